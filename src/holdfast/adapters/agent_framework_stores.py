"""Checkpoints of workflows and histories of agents of Microsoft Agent Framework, in a store of Holdfast."""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from agent_framework import Content, HistoryProvider, Message, WorkflowCheckpoint, WorkflowCheckpointException
from agent_framework._workflows._checkpoint_encoding import decode_checkpoint_value, encode_checkpoint_value
from pydantic_core import to_jsonable_python

from holdfast.adapters.seam import current
from holdfast.adapters.store_owner import StoreLike, StoreOwner
from holdfast.aio.executor import to_the_end
from holdfast.runs.drivers import current_call
from holdfast.threads.save import ANY
from holdfast.threads.thread import Thread
from holdfast.types import Checkpoint

MESSAGES: Final = "messages"  # the key of the list in the state of a session's thread
_INTERRUPTED: Final = "The call was interrupted, and its outcome is unknown. Do not assume that it happened."
_FOLDER: Final = "workflows"


class HoldfastCheckpointStorage(StoreOwner):
    """The framework's `CheckpointStorage`: the thread workflows/NAME has the checkpoints of a workflow.

    `store` is what `holdfast.open` takes, or an open handle. The framework tells apart workflows, not their runs: use
    `storage.for_run("order-17")` for each, or `get_latest` returns the newest checkpoint of all runs. A checkpoint that
    could not be loaded is refused when it is saved: see `allowed_checkpoint_types` of `FileCheckpointStorage`.
    """

    def __init__(self, store: StoreLike, *, allowed_checkpoint_types: list[str] | None = None) -> None:
        super().__init__(store)
        self._allowed: Final = frozenset(allowed_checkpoint_types or ())
        self._run: str | None = None

    def for_run(self, run: str) -> HoldfastCheckpointStorage:
        """The storage of one run. Its checkpoints are in threads of their own, workflows/NAME/RUN."""
        view = HoldfastCheckpointStorage(self._hf, allowed_checkpoint_types=list(self._allowed))
        view._run = run
        return view

    async def save(self, checkpoint: Any) -> str:
        """Store a copy of a checkpoint, and return its id."""
        try:
            state = encode_checkpoint_value(checkpoint.to_dict())
            decode_checkpoint_value(state, allowed_types=self._allowed)
        except WorkflowCheckpointException:
            raise
        except Exception as error:
            raise WorkflowCheckpointException(
                f"checkpoint {checkpoint.checkpoint_id} could not be loaded again, so it was not saved: {error}"
            ) from error
        id_: str = checkpoint.checkpoint_id
        details = {"checkpoint_id": id_, "timestamp": checkpoint.timestamp}

        thread = self._thread(checkpoint.workflow_name)
        await to_the_end(lambda: thread.save(state, label=id_, metadata=details, expect=ANY))
        return id_

    async def load(self, checkpoint_id: str) -> Any:
        """A copy of a checkpoint. WorkflowCheckpointException if there is none."""

        def load() -> Any:
            for thread, found in self._found(checkpoint_id):
                return thread.load(found).state
            raise WorkflowCheckpointException(f"there is no checkpoint {checkpoint_id!r}")

        return self._decoded(await to_the_end(load))

    async def list_checkpoints(self, *, workflow_name: str) -> list[Any]:
        """Copies of the checkpoints of a workflow, oldest first."""
        thread = self._thread(workflow_name)
        states = await to_the_end(lambda: [thread.load(each).state for each in _oldest_first(thread)])
        return [self._decoded(state) for state in states]

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if there is none."""

        def delete() -> bool:
            places = list(self._found(checkpoint_id))
            for thread, _ in places:
                while (found := thread.find(label=checkpoint_id)) is not None:  # it may have been saved more than once
                    _delete(thread, found)
            return bool(places)

        return await to_the_end(delete)

    async def get_latest(self, *, workflow_name: str) -> Any:
        """A copy of the newest checkpoint of a workflow; None if there is none."""
        thread = self._thread(workflow_name)

        def latest() -> Any:
            newest = max(_oldest_first(thread), key=lambda each: each.metadata["timestamp"], default=None)
            return None if newest is None else thread.load(newest).state

        found = await to_the_end(latest)
        return None if found is None else self._decoded(found)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """The ids of the checkpoints of a workflow, oldest first."""
        thread = self._thread(workflow_name)
        return await to_the_end(lambda: [each.metadata["checkpoint_id"] for each in _oldest_first(thread)])

    def _thread(self, workflow_name: str) -> Thread:
        parts = (workflow_name,) if self._run is None else (workflow_name, self._run)
        return self._hf.thread("/".join((_FOLDER, *map(_quoted, parts))))

    def _found(self, checkpoint_id: str) -> Iterator[tuple[Thread, Checkpoint]]:
        """The checkpoint with an id, in the thread of its workflow."""
        end = None if self._run is None else _quoted(self._run)
        for info in list(self._hf.threads(f"{_FOLDER}/")):
            _, _, *run = info.name.split("/")
            thread = self._hf.thread(info.name)
            found = thread.find(label=checkpoint_id) if run == ([] if end is None else [end]) else None
            if found is not None:
                yield thread, found

    def _decoded(self, state: Any) -> Any:
        return WorkflowCheckpoint.from_dict(decode_checkpoint_value(state, allowed_types=self._allowed))


def _oldest_first(thread: Thread) -> list[Checkpoint]:
    """The checkpoints of a workflow. Of those with one id, the newest."""
    known: dict[str, Checkpoint] = {}
    for each in thread.history():
        known.setdefault(each.metadata["checkpoint_id"], each)
    return list(known.values())[::-1]


def _delete(thread: Thread, found: Checkpoint) -> None:
    """Delete a checkpoint. The head of a thread cannot be deleted, so the one before it is saved again."""
    newest = list(thread.history(limit=2))
    if found.id != newest[0].id:
        thread.delete(found)
    elif len(newest) == 1:
        thread.drop()
    else:
        before = thread.load(newest[1])
        thread.save(before.state, label=before.label, metadata=before.metadata, expect=found)
        thread.delete(found)
        thread.delete(before)


class HoldfastHistoryProvider(StoreOwner, HistoryProvider):  # type: ignore[misc]  # not installed for type checks
    """The framework's `HistoryProvider`: the thread with the name of a session has its messages.

    `store` is what `holdfast.open` takes, or an open handle. In a run of Holdfast, a resumed run loads the same
    messages, and adds none twice.

    `repairs` says what the last `get_messages` did to a conversation with calls without results, or the reverse, which
    models refuse. The stored messages are not changed.
    """

    DEFAULT_SOURCE_ID = "holdfast_history"

    def __init__(self, store: StoreLike, *, source_id: str | None = None, **options: Any) -> None:
        StoreOwner.__init__(self, store)
        HistoryProvider.__init__(self, source_id or self.DEFAULT_SOURCE_ID, **options)
        self.repairs: list[str] = []

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Any]:
        """All messages of a session, oldest first."""
        thread = self._hf.thread(session_id or "default")
        stored = await to_the_end(lambda: thread.tail(MESSAGES))
        count = await self._made("get_messages", "read", thread.name, lambda _: len(stored))
        messages, self.repairs = repaired([Message.from_dict(each) for each in stored[:count]])
        for repair in self.repairs:
            logging.getLogger("holdfast").warning("session %r: %s", session_id, repair)
        return messages

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Any],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append messages, all or none."""
        if not messages:
            return
        added = [to_jsonable_python(each.to_dict(), serialize_unknown=True) for each in messages]
        thread = self._hf.thread(session_id or "default")

        def append(key: str | None) -> None:
            thread.append(MESSAGES, added, unique=key)

        await self._made("save_messages", "idempotent", thread.name, append)

    async def _made(self, verb: str, effect: str, key: str, work: Callable[[str | None], Any]) -> Any:
        """Call a verb. In a run, the call is recorded. A cancelled caller waits for the end of the work."""
        seam = current()
        if seam is None:
            return await to_the_end(lambda: work(None))

        async def call() -> Any:
            made = current_call()
            unique = None if made is None or effect == "read" else made.idempotency_key
            return await to_the_end(lambda: work(unique))

        name = f"history.{verb}"
        return await seam.tool(name, call, {}, key=key, declare={name: {"effect": effect}})


def repaired(messages: list[Any]) -> tuple[list[Any], list[str]]:
    """The messages in a form that models accept, and what was changed.

    A call without a result gets one that says so. A result without its call is left out.
    """
    calls = {each.call_id for message in messages for each in message.contents if each.type == "function_call"}
    results = {each.call_id for message in messages for each in message.contents if each.type == "function_result"}
    approvals = {
        each.function_call.call_id
        for message in messages
        for each in message.contents
        if each.type in ("function_approval_request", "function_approval_response") and each.function_call is not None
    }  # calls that wait for an approval have no result yet
    repairs: list[str] = []
    found: list[Any] = []
    for message in messages:
        orphans = [each for each in message.contents if each.type == "function_result" and each.call_id not in calls]
        open_ = [
            each
            for each in message.contents
            if each.type == "function_call" and each.call_id not in results | approvals
        ]
        if orphans:
            repairs += [f"the result of call {each.call_id!r} has no call; it was left out" for each in orphans]
            kept = [each for each in message.contents if each not in orphans]
            message = Message.from_dict({**message.to_dict(), "contents": [each.to_dict() for each in kept]})  # noqa: PLW2901
        if message.contents or not orphans:
            found.append(message)
        if open_:
            repairs += [f"call {each.call_id!r} has no result; one was added that says so" for each in open_]
            added = [Content.from_function_result(call_id=each.call_id, result=_INTERRUPTED) for each in open_]
            found.append(Message("tool", added))
    return found, repairs


def _quoted(part: str) -> str:
    """A part of a thread's name, without the separator of parts."""
    return quote(part, safe=" ~") or "%"
