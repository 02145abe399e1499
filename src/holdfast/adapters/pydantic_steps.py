"""HoldfastStepStore: the runs of Pydantic AI's harness, with their snapshots, events and tool effects, in a store."""

# pyright: reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.adapters.seam import require

require("pydantic-ai-harness", "0.62", "0.63", "pydantic-ai-harness")

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import ModelMessagesTypeAdapter
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
    is_provider_valid,
)
from pydantic_core import PydanticSerializationError

from holdfast.adapters.pydantic_ai import repaired
from holdfast.adapters.session_store import MESSAGES, StoreOwner, insist
from holdfast.aio.executor import to_the_end
from holdfast.errors import InvalidArgument
from holdfast.text import quoted
from holdfast.threads.save import NEW
from holdfast.threads.thread import Thread
from holdfast.types import Checkpoint

_RUNS: Final = "steps/"  # the start of the names of the threads with the records and the snapshots of runs
_LOGS: Final = "step-log/"  # the start of the names of the threads with the events and the tool effects of runs
_LOG: Final = "log"  # the key of the list in the state of a log's thread
_RUN: Final = "run"  # keys in the metadata of checkpoints, and the tag of snapshots
_SNAPSHOT: Final = "snapshot"
_EVENT: Final = "event"  # keys of the items of a log
_EFFECT: Final = "effect"
_NEAR: Final = 64  # items at the end of a log that usually have the tool effect that is looked for

_run: Final = TypeAdapter[Any](RunRecord)
_event: Final = TypeAdapter[Any](StepEvent)
_effect: Final = TypeAdapter[Any](ToolEffectRecord)
_snapshot: Final = TypeAdapter[Any](ContinuableSnapshot)


class HoldfastStepStore(StoreOwner):
    """The harness's `StepStore`: `StepPersistence(store=HoldfastStepStore("agent.db"))`.

    `store` is what `holdfast.open` takes, or an open handle. The thread steps/RUN has the snapshots of a run, each as a
    checkpoint with its `messages`, and the thread step-log/RUN its events and tool effects. A snapshot stores only the
    messages that are new. An event or a snapshot with an idempotency key is stored once, whichever process stores it.

    A snapshot that is marked complete, and has calls without results or results without calls, is repaired when it is
    loaded, and the repair is logged. The stored messages do not change.
    """

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def register_run(self, record: Any) -> None:
        """Store the record of a new run. InvalidArgument, which is a ValueError, if the run is in the store."""
        await to_the_end(lambda: self._register(record))

    async def get_run(self, *, run_id: str) -> Any:
        """The record of a run; None if there is none."""
        return await to_the_end(lambda: _run_of(self._thread(run_id)))

    async def list_runs(self, *, parent_run_id: str | None = None, conversation_id: str | None = None) -> list[Any]:
        """The records of the runs that match all arguments, oldest first."""

        def read() -> list[Any]:
            found = [_run_of(self._hf.thread(info.name)) for info in self._hf.threads(_RUNS)]
            matching = [
                record
                for record in found
                if record is not None
                and parent_run_id in (None, record.parent_run_id)
                and conversation_id in (None, record.conversation_id)
            ]
            return sorted(matching, key=lambda record: record.started_at)

        return await to_the_end(read)

    # -- events and tool effects: a list that grows -------------------------------------------------------------------

    async def append_event(self, event: Any) -> None:
        """Append an event to those of its run. Nothing happens if one with its idempotency key is there."""
        item = {_EVENT: _plain(_event, event)}
        await to_the_end(lambda: self._log(event.run_id).append(_LOG, [item], unique=event.idempotency_key))

    async def list_events(self, *, run_id: str) -> list[Any]:
        """The events of a run, in the order in which they were stored."""
        items = await to_the_end(lambda: self._log(run_id).tail(_LOG))
        return [_record(_event, run_id, item[_EVENT]) for item in items if _EVENT in item]

    async def record_tool_effect(self, record: Any) -> None:
        """Store the record of a tool call, in place of an earlier one."""
        item = {_EFFECT: _plain(_effect, record)}
        await to_the_end(lambda: self._log(record.run_id).append(_LOG, [item]))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> Any:
        """The newest record of a tool call; None if there is none."""

        def read() -> Any:
            for count in (_NEAR, None):
                effects = self._effects(run_id, count)
                if tool_call_id in effects:
                    return effects[tool_call_id]
            return None

        return await to_the_end(read)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[Any]:
        """The tool calls that were started, and neither completed nor failed: after a crash the outcome is unknown."""
        effects = await to_the_end(lambda: self._effects(run_id))
        return [record for record in effects.values() if record.status == "started"]

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: Any) -> None:
        """Store a snapshot. Nothing happens if one with its idempotency key is there."""
        await to_the_end(lambda: self._save(snapshot))

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> Any:
        """The newest snapshot that is complete, or the newest of all; None if there is none."""

        def read() -> Any:
            thread = self._thread(run_id)
            found = thread.find(tag=_tag(include_interrupted))
            return None if found is None else _snapshot_of(run_id, thread.load(found))

        return await to_the_end(read)

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[Any]:
        """The snapshots of a run that are complete, or all, in the order in which they were stored."""

        def read() -> list[Any]:
            thread = self._thread(run_id)
            found = list(thread.history(tag=_tag(include_interrupted)))
            return [_snapshot_of(run_id, thread.load(each)) for each in reversed(found)]

        return await to_the_end(read)

    # -- threads ------------------------------------------------------------------------------------------------------

    def _thread(self, run_id: str) -> Thread:
        return self._hf.thread(f"{_RUNS}{_checked_id(run_id)}")

    def _log(self, run_id: str) -> Thread:
        return self._hf.thread(f"{_LOGS}{_checked_id(run_id)}")

    def _effects(self, run_id: str, count: int | None = None) -> dict[str, Any]:
        """The newest records of tool calls, by the ids of the calls, of the whole log or of its last items."""
        items = self._log(run_id).tail(_LOG, count)
        records = [_record(_effect, run_id, item[_EFFECT]) for item in items if _EFFECT in item]
        return {record.tool_call_id: record for record in records}

    def _register(self, record: Any) -> None:
        plain = _plain(_run, record)

        def save(thread: Thread, head: Checkpoint | None) -> None:
            if head is not None and head.metadata.get(_RUN) is not None:
                raise InvalidArgument(f"run {quoted(record.run_id)} is already in the store; nothing was changed")
            messages = thread.tail(MESSAGES)  # of snapshots that were stored before the run
            thread.save(
                {MESSAGES: messages},
                metadata={_RUN: plain},
                agent=record.agent_name,
                trigger="run registered",
                expect=head or NEW,
            )

        self._change(record.run_id, save)

    def _save(self, snapshot: Any) -> None:
        fields = _plain(_snapshot, snapshot)
        try:
            messages = ModelMessagesTypeAdapter.dump_python(snapshot.messages, mode="json")
        except PydanticSerializationError as error:
            raise InvalidArgument(
                f"the messages of a snapshot cannot be stored; nothing was changed: {error}"
            ) from error
        key = snapshot.idempotency_key
        label = None if key is None else f"{_SNAPSHOT} {key}"

        def save(thread: Thread, head: Checkpoint | None) -> None:
            if label is not None and thread.find(label=label) is not None:
                return
            run = None if head is None else head.metadata.get(_RUN)
            thread.save(
                {MESSAGES: messages},
                metadata={_RUN: run, _SNAPSHOT: fields},
                tags=(_SNAPSHOT, snapshot.state),
                label=label,
                agent=snapshot.agent_name,
                trigger=_SNAPSHOT,
                expect=head or NEW,
            )

        self._change(snapshot.run_id, save)

    def _change(self, run_id: str, save: Callable[[Thread, Checkpoint | None], None]) -> None:
        """Save a checkpoint after the head, and again after another one if another writer was faster."""
        thread = self._thread(run_id)
        insist(f"run {quoted(run_id)}", lambda: save(thread, thread.head()))


# -- records ----------------------------------------------------------------------------------------------------------


def _checked_id(run_id: object) -> str:
    if type(run_id) is not str or not run_id:
        raise InvalidArgument("the id of a run must be a non-empty string")
    return run_id


def _tag(include_interrupted: bool) -> str:
    return _SNAPSHOT if include_interrupted else "complete"


def _plain(adapter: TypeAdapter[Any], record: Any) -> dict[str, Any]:
    """The fields of a record as plain data, without messages. InvalidArgument if it could not be loaded again."""
    _checked_id(record.run_id)
    try:
        plain: dict[str, Any] = adapter.dump_python(
            record, mode="json", exclude={"run_id", "messages"}, exclude_none=True, warnings="error"
        )
        _record(adapter, record.run_id, plain)
    except (PydanticSerializationError, ValidationError) as error:
        raise InvalidArgument(
            f"this {type(record).__name__} could not be loaded again; nothing was changed: {error}"
        ) from error
    return plain


def _record(adapter: TypeAdapter[Any], run_id: str, plain: dict[str, Any]) -> Any:
    fields = {**plain, "run_id": run_id}
    return adapter.validate_python({**fields, "messages": []} if adapter is _snapshot else fields)


def _run_of(thread: Thread) -> Any:
    head = thread.head()
    plain = None if head is None else head.metadata.get(_RUN)
    return None if plain is None else _record(_run, thread.name.removeprefix(_RUNS), plain)


def _snapshot_of(run_id: str, checkpoint: Checkpoint) -> Any:
    messages = ModelMessagesTypeAdapter.validate_python(checkpoint.state[MESSAGES])
    found = _record(_snapshot, run_id, checkpoint.metadata[_SNAPSHOT])
    is_poisoned = found.state == "complete" and not is_provider_valid(messages)
    found.messages = repaired(checkpoint.thread, messages, is_last_closed=True) if is_poisoned else messages
    return found
