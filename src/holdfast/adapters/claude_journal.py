"""Claude Agent SDK: a journal of a session's tool calls, written by hooks, so that a call that acts is made once."""

# pyright: reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from anyio import to_thread
from claude_agent_sdk import HookMatcher

from holdfast.adapters.seam import BegunCall, Declarations, Seam, checked
from holdfast.adapters.session_store import StoreLike, StoreOwner, quoted_part
from holdfast.codec import msgpack
from holdfast.errors import Cancelled, Halted, InvalidArgument
from holdfast.runs.block_end import Waiting
from holdfast.runs.identity import own_key
from holdfast.runs.run import Run, RunBlock
from holdfast.types import Effect, Status

# The SDK's own tools that change nothing outside of the session. The other ones act.
_READS: Final = (
    *("Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "BashOutput", "TaskOutput"),
    *("ToolSearch", "TodoWrite", "AskUserQuestion", "ExitPlanMode", "ListMcpResourcesTool", "ReadMcpResourceTool"),
)
_AGENTS: Final = ("Task", "Agent")  # their own calls are recorded
_DEFAULTS: Final[Declarations] = {
    **{name: {"effect": "read"} for name in _READS},
    **{name: {"effect": "idempotent"} for name in _AGENTS},
}
_ANSWER: Final = "This call was made before, and was not made again. Result of call"
_ANSWERED: Final = re.compile(f"{re.escape(_ANSWER)} (\\S+):")
_WAITS: Final = (
    "An earlier process made this call, and its outcome is unknown, so it was not made again. A person has been asked. "
    "Make the same call again when the conversation continues: its outcome is then known."
)
_HOOK_SECONDS: Final = 24 * 3600.0  # a call that waits lets the others end first
_ENDED: Final = ("done", "given_up", "failed", "not_done")


class Journal(StoreOwner):
    """Records the tool calls of a session. After a crash, a call that acts is not made again:

        with Journal("sessions.db", project_key, session_id, declare={"mcp__shop__buy": {...}}) as journal:
            options = ClaudeAgentOptions(resume=session_id, hooks=journal.hooks(), session_store=sessions, …)

    `store` is that of the `HoldfastSessionStore`. `declare` has the options of `holdfast.tool` by the names of tools.
    Tools that only read are not recorded. If a person has to decide about a call, the session stops, and `status` is
    "waiting".
    """

    def __init__(
        self,
        store: StoreLike,
        project_key: str,
        session_id: str,
        *,
        declare: Declarations | None = None,
    ) -> None:
        super().__init__(store)
        self.thread: Final = journal_name(project_key, session_id)
        self._declare: Final[Declarations] = {**_DEFAULTS, **checked(declare)}
        self._transcript: Final = transcript_name({"project_key": project_key, "session_id": session_id})
        self._block: RunBlock | None = None
        self._run: Run | None = None
        self._begun: dict[str, tuple[BegunCall, str | None]] = {}  # calls that the CLI makes now, with their sub-agents
        self._resolving: Final = threading.Lock()
        self._unknown: list[Effect] = []  # calls of earlier processes whose results the model does not know
        self._answers: dict[str, list[str]] = {}  # their results, by tool and arguments, if they were made

    # -- the block ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._block is None:
            block = self._hf.run(self.thread, start={})
            self._run, self._block = block.__enter__(), block
            self._find_unknown()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        try:
            if block is not None:
                block.__exit__(kind, error, trace)
        finally:
            super().close()

    def close(self) -> None:
        """Release the session, and close the store if it was opened here."""
        self.__exit__(None, None, None)

    @property
    def status(self) -> Status:
        """The status of the session's run: "waiting" if a person has to decide about a call."""
        if self._run is None:
            raise InvalidArgument("the journal was not opened; use `with Journal(…) as journal:`")
        return self._run.status

    def hooks(self) -> dict[str, list[Any]]:
        """The hooks for `ClaudeAgentOptions(hooks=…)`. A hook that fails blocks the call."""
        self.__enter__()
        functions = {
            "UserPromptSubmit": self._prompted,
            "PreToolUse": self._before,
            "PostToolUse": self._after,
            "PostToolUseFailure": self._after_failure,
            "Stop": self._ended,
            "SubagentStop": self._ended,
        }
        is_blocking = ("UserPromptSubmit", "PreToolUse")
        return {
            event: [
                HookMatcher(
                    hooks=[function], timeout=_HOOK_SECONDS, on_failure="block" if event in is_blocking else None
                )
            ]
            for event, function in functions.items()
        }

    # -- hooks --------------------------------------------------------------------------------------------------------

    async def _prompted(self, *_: Any) -> dict[str, Any]:
        """Before a turn: find out about the calls of earlier processes, and tell the model.

        If only a person can tell, no model is called.
        """
        try:
            told = await to_thread.run_sync(self._resolve)
        except Waiting as waiting:
            return {"decision": "block", **_stopped(f"waits for a person: {waiting}")}
        return _output("UserPromptSubmit", additionalContext="\n".join(told)) if told else {}

    async def _before(self, given: Any, call_id: str, _: Any) -> dict[str, Any]:
        name, arguments = given["tool_name"], given["tool_input"]
        if self._declare.get(name, {}).get("effect") == "read":
            return {}
        try:
            begun = await to_thread.run_sync(self._begin, name, arguments, call_id)
        except Waiting as waiting:
            return {**_denied(_WAITS), **_stopped(f"waits for a person: {waiting}")}
        except (Halted, Cancelled) as error:
            return {**_denied(str(error)), **_stopped(str(error))}
        if isinstance(begun, str):
            return _denied(begun)
        self._begun[call_id] = begun, given.get("agent_id")
        return {}

    def _begin(self, name: str, arguments: dict[str, Any], call_id: str) -> BegunCall | str:
        """Start a call, or return the answer of an earlier process. After a restart, calls have new ids."""
        self._resolve()
        digest = hashlib.sha256(msgpack.encode_sorted([name, arguments])).hexdigest()[:32]
        answers = self._answers.get(digest)
        if answers:
            return answers.pop(0)
        return self._seam.begin_tool_sync(name, arguments, key=f"{call_id} {digest}", declare=self._declare)

    async def _after(self, given: Any, call_id: str, _: Any) -> dict[str, Any]:
        begun, _ = self._begun.pop(call_id, (None, None))
        if begun is not None:
            await to_thread.run_sync(begun.done_sync, given["tool_response"])
        return {}

    async def _after_failure(self, given: Any, call_id: str, _: Any) -> dict[str, Any]:
        """Record the error as the outcome. If the call was interrupted, or errors leave doubt, it is in doubt."""
        begun, _ = self._begun.pop(call_id, (None, None))
        if begun is None:
            return {}
        error = str(given["error"])
        is_doubt = given.get("is_interrupt") or self._declare.get(given["tool_name"], {}).get("errors") == "doubt"
        try:
            end = partial(begun.failed_sync, RuntimeError(error)) if is_doubt else partial(begun.done_sync, error)
            await to_thread.run_sync(end)
        except Waiting as waiting:
            return _stopped(f"waits for a person: {waiting}")
        return {}

    async def _ended(self, given: Any, *_: Any) -> dict[str, Any]:
        """The turn of the agent, or of a sub-agent, is over. Its calls that did not end were not made: denied.

        A sub-agent in the background may still make calls when the agent's turn is over.
        """
        ended = [id_ for id_, (_, agent) in self._begun.items() if agent == given.get("agent_id")]
        for call_id in ended:
            begun = self._begun.pop(call_id, (None,))[0]  # it may have ended meanwhile
            if begun is not None:
                await to_thread.run_sync(begun.not_called_sync)
        return {}

    # -- calls of earlier processes -----------------------------------------------------------------------------------

    @property
    def _seam(self) -> Seam:
        if self._run is None:
            raise InvalidArgument("the journal was not opened; use `with Journal(…) as journal:`")
        return Seam(self._run)

    def _effects(self) -> list[Effect]:
        return self._hf.effects(self.thread)

    def _find_unknown(self) -> None:
        """Find the recorded calls whose results are not in the transcripts of the session."""
        told = self._told()
        effects = self._effects()
        self._unknown = [each for each in effects if each.status not in _ENDED or _id_of(each) not in told]
        self._seam.accept({own_key(each.key) or "" for each in effects if each.status in _ENDED})

    def _resolve(self) -> list[str]:
        """Find the results that the model does not know, and return the text for it. Hooks run at the same time."""
        with self._resolving:
            return self._resolved() if self._unknown else []

    def _resolved(self) -> list[str]:
        self._seam.settle_doubts({effect.name for effect in self._unknown}, self._declare)
        unknown, self._unknown = self._unknown, []
        told: list[str] = []
        for effect in unknown:
            result, is_made = effect.result, effect.status in ("done", "given_up")
            if effect.status not in _ENDED and effect.effect == "irreversible":
                key, arguments = own_key(effect.key) or "", effect.arguments
                begun = self._seam.begin_tool_sync(effect.name, arguments, key=key, declare=self._declare)
                result, is_made = begun.recorded, begun.is_recorded
                if not is_made:
                    begun.not_called_sync()
            if is_made:
                text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
                answer = f"{_ANSWER} {_id_of(effect)}: {text}"
                self._answers.setdefault((own_key(effect.key) or "").partition(" ")[2], []).append(answer)
                told.append(f"{effect.name} {json.dumps(effect.arguments, ensure_ascii=False)}: {answer}")
        return told

    def _told(self) -> set[str]:
        """The ids of the calls whose results are in the transcripts."""
        found: set[str] = set()
        for info in [*self._hf.threads(f"{self._transcript}/"), *self._hf.threads(self._transcript)]:
            if info.name != self._transcript and not info.name.startswith(f"{self._transcript}/"):
                continue  # a longer name
            for entry in self._hf.thread(info.name).tail("entries"):
                found.update(_told_in(entry))
        return found


def _id_of(effect: Effect) -> str:
    return (own_key(effect.key) or "").partition(" ")[0]


def _told_in(entry: Any) -> Iterator[str]:
    """The ids of the calls whose results are in an entry of a transcript."""
    yield from _ANSWERED.findall(json.dumps(entry, ensure_ascii=False))
    message = entry.get("message") if isinstance(entry, Mapping) else None
    blocks = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(blocks, list) or entry.get("toolDenialKind") == "interrupted":
        return  # the CLI adds such a result when it resumes a session whose process has died
    for block in blocks:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            yield str(block.get("tool_use_id"))


def _output(event: str, **fields: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def _denied(reason: str) -> dict[str, Any]:
    return _output("PreToolUse", permissionDecision="deny", permissionDecisionReason=reason)


def _stopped(reason: str) -> dict[str, Any]:
    return {"continue_": False, "stopReason": reason}


# -- names of threads -------------------------------------------------------------------------------------------------


def transcript_name(key: Any) -> str:
    """The thread of a transcript: PROJECT/SESSION, or PROJECT/SESSION/SUBPATH."""
    parts = (key["project_key"], key["session_id"], key.get("subpath"))
    return "/".join(quoted_part(part) for part in parts if part is not None)


def journal_name(project_key: str, session_id: str) -> str:
    """The thread of a session's journal. Parts have no `#`, so no transcript of the project has this name."""
    return f"{quoted_part(project_key)}#calls/{quoted_part(session_id)}"
