"""One tool call of a graph: its result from the journal or from the tool, or the question whether it was made."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from holdfast.adapters.langgraph.call_place import CallPlace
from holdfast.adapters.langgraph.serde import Values
from holdfast.adapters.langgraph.tool_journal import Unsettled, journals
from holdfast.adapters.seam_modes import AWAITING, BLOCKING, Mode, finished
from holdfast.codec import msgpack
from holdfast.errors import Conflict, InvalidArgument, Unsupported
from holdfast.handle import Holdfast
from holdfast.runs.drivers import Uncalled, is_async
from holdfast.runs.tool_calls import digest_of
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome, Tool


class GraphCall(msgspec.Struct, frozen=True):
    """A call as LangChain makes it: its id, config and input."""

    id: str | None
    config: RunnableConfig
    given: Any


_current: Final[ContextVar[GraphCall | None]] = ContextVar("holdfast_tool_call", default=None)


def current_call() -> GraphCall | None:
    """The call that the current task is making."""
    return _current.get()


@contextmanager
def calling(call: GraphCall | None) -> Generator[None]:
    """Note the call that the current task is making."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


class WrappedTool(msgspec.Struct, frozen=True):
    """A tool whose calls are recorded. `injected` are its arguments that LangGraph adds to those of the model.

    `asks`: whether a call that may repeat one of an abandoned branch is asked about.
    """

    hf: Holdfast
    tool: BaseTool
    declared: Tool
    injected: frozenset[str]
    lease: float
    wait: float
    asks: bool


class JournaledCall:
    """A call with validated arguments, which is made once."""

    def __init__(
        self,
        wrapped: WrappedTool,
        values: Values,
        call: GraphCall,
        act: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """`act` is the tool's function, to be called with `args` and `kwargs`."""
        self._name = wrapped.tool.name
        if not call.id:
            raise InvalidArgument(
                f"{self._name} was called without a tool call id, so it could not be recorded; nothing was "
                "done. Call the original tool if the call need not be recorded."
            )
        self._wrapped = wrapped
        self._values = values
        self._act = functools.partial(act, *args)
        self._kwargs = kwargs
        self._has_artifact = wrapped.tool.response_format == "content_and_artifact"
        self._bubbling: GraphBubbleUp | None = None
        self._problem: str | None = None  # why the last answer was refused
        self._place = CallPlace(call.config)
        self._journal = journals.of(wrapped.hf.context, self._place.thread_id, wrapped.lease)
        self._key = self._place.key(call.id)
        self._given = _given_by_model(call.given, wrapped.injected)
        if wrapped.declared.effect == "read":  # with other arguments it is another call
            given = wrapped.hf.context.redaction.arguments(self._given)
            self._key += f"/{digest_of(given)[:8].hex()}"

    def made(self) -> Any:
        """Return the result of the tool: the recorded one, or that of a call made now."""
        if is_async(self._wrapped.declared.probe or _nothing):
            raise InvalidArgument(f"the probe of {self._name} is async; use ainvoke or astream")
        return finished(self._made(BLOCKING))

    async def amade(self) -> Any:
        """The same as `made`, for an async call."""
        return await self._made(AWAITING)

    async def _made(self, mode: Mode) -> Any:
        wrapped = self._wrapped
        declared = msgspec.structs.replace(
            wrapped.declared, function=self._function(mode), in_thread=mode.awaits and runs_in_thread(wrapped.tool)
        )
        if declared.effect != "read":
            await self._place.stored(mode, self._name)
        lineage = self._place.lineage() if wrapped.asks else None
        while True:
            try:
                return self._result(
                    await self._journal.call(mode, declared, self._given, self._key, wrapped.wait, lineage)
                )
            except Uncalled as ended:
                raise self._bubbling or ended from None
            except Unsettled as unsettled:
                asked = unsettled
            for effect, outcome, force in self._answers(asked):
                settle = functools.partial(wrapped.hf.settle, self._journal.name, effect, outcome, force=force)
                try:
                    await mode.work(settle)
                except Conflict as refused:  # it was settled elsewhere meanwhile, or may still act
                    self._problem = str(refused)

    # -- the call ---------------------------------------------------------------------------------------------------

    def _function(self, mode: Mode) -> Callable[..., Any]:
        """The function of the call, as the journal calls it."""

        async def act(**given: Any) -> Any:
            key = {}
            if self._wrapped.declared.takes_key:
                self._kwargs.pop("idempotency_key", None)
                key = {"idempotency_key": given["idempotency_key"]}
            with calling(None), self._interruptible():
                result = self._act(**self._kwargs, **key)
                return self._recorded(await result if mode.awaits else result)

        def act_now(**given: Any) -> Any:
            return finished(act(**given))

        return act if mode.awaits else act_now

    @contextmanager
    def _interruptible(self) -> Generator[None]:
        """Treat a tool that interrupts the graph as not called: LangGraph runs it again from its start.

        LangGraph stores its question; the journal does not.
        """
        try:
            yield
        except GraphBubbleUp as bubbling:
            self._bubbling = bubbling
            raise Uncalled from None

    def _recorded(self, result: Any) -> Any:
        """Convert a result to the form that is recorded."""
        if self._has_artifact and isinstance(result, tuple) and len(result) == 2:
            content, artifact = result
            kept: Any = {"content": _content(content), "artifact": artifact}
        else:
            kept = _content(result)
        try:
            return self._values.to_plain(kept, f"tool.{self._name}")
        except Unsupported:
            return kept  # the journal rejects it, and its error says that the tool was called

    def _result(self, recorded: Any) -> Any:
        """Convert a recorded result, or the result in an answer, back."""
        result = self._values.from_plain(recorded, f"tool.{self._name}")
        if not self._has_artifact:
            return result
        if isinstance(result, dict) and result.keys() == {"content", "artifact"}:
            return result["content"], result["artifact"]
        return result, None

    # -- in doubt ---------------------------------------------------------------------------------------------------

    def _answers(self, asked: Unsettled) -> Iterator[tuple[int, Outcome, bool]]:
        """Interrupt the graph to ask for the outcome of a call, or whether to make it.

        The answer may also settle another call in doubt.
        """
        question: dict[str, Any] = {
            "question": "in doubt",
            "thread": self._journal.name,
            "effect": asked.number,
            "tool": asked.name,
            "arguments": asked.arguments,
            "answers": ["happened", "not_done", "give_up"],
        }
        if asked.may_repeat:
            question = {**question, "question": "may repeat", "reason": asked.reason}
        if self._problem is not None:
            question = {**question, "problem": self._problem}
        while True:
            answer = interrupt(question)
            try:
                effect, outcome = _parsed(answer)
            except InvalidArgument as refused:
                question = {**question, "problem": str(refused)}
                continue
            yield effect, outcome, isinstance(answer, dict) and answer.get("force") is True
            if effect == asked.number:
                return


def injected_into(tool: BaseTool) -> frozenset[str]:
    """The names of the arguments that LangGraph adds to those of the model."""
    schema: Any = tool.get_input_schema()
    return frozenset(schema.model_fields) - frozenset(tool.args)


def _given_by_model(given: Any, injected: frozenset[str]) -> dict[str, Any]:
    """The arguments that the model wrote."""
    if not isinstance(given, dict):
        return {"input": given}
    return {name: value for name, value in given.items() if name not in injected and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    try:
        msgpack.check(value)
    except Unsupported:
        return False
    return True


def _content(result: Any) -> Any:
    """A result that can be recorded: as it is, or converted as LangChain does for the content of a message."""
    outputs = result if isinstance(result, list) and result else [result]
    if all(isinstance(each, ToolOutputMixin) for each in outputs) or _is_plain(result):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except Exception:  # noqa: BLE001 - an object may raise anything
        return str(result)


def runs_in_thread(tool: BaseTool) -> bool:
    """Whether `ainvoke` calls a sync function in a thread, because the tool has no async one."""
    coroutine: Any = getattr(tool, "coroutine", _nothing)
    if coroutine is not _nothing:  # a tool that was made from functions
        return coroutine is None
    return not any("_arun" in vars(kind) for kind in type(tool).__mro__[: type(tool).__mro__.index(BaseTool)])


def _parsed(answer: Any) -> tuple[int, Outcome]:
    """Parse an answer: the number of the call, and its outcome."""
    if not isinstance(answer, dict) or type(answer.get("effect")) is not int:
        raise InvalidArgument(
            'answer with {"effect": number, "outcome": …}; the number ensures that the answer is for this call'
        )
    effect = answer["effect"]
    match answer.get("outcome"):
        case "happened":
            msgpack.check(answer.get("result"))
            return effect, Happened(answer.get("result"))
        case "not_done":
            return effect, NotDone()
        case "give_up":
            return effect, GiveUp()
        case _:
            raise InvalidArgument('outcome must be "happened" (with a "result"), "not_done" or "give_up"')


def _nothing() -> None: ...
