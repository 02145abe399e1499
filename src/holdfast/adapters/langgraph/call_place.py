"""The place of a tool call in a graph: its key, the checkpoint that asks for it, and the ancestors of that."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from holdfast.adapters.langgraph.checkpoint_format import Note, namespace_of, thread_id_of
from holdfast.adapters.langgraph.checkpoints import GraphThread
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.seam_modes import Mode
from holdfast.errors import HoldfastError, InvalidArgument

# Keys of LangGraph's config for a task.
_CHECKPOINTER: Final = "__pregel_checkpointer"
_CHECKPOINTS: Final = "checkpoint_map"
_READ: Final = "__pregel_read"
_DURABILITY: Final = "__pregel_durability"

_BETWEEN: Final = "|"
_STEP: Final = "loop"  # the source of a checkpoint that a step of the graph led to
_POLL_SECONDS: Final = 0.005
_PATIENCE: Final = 10.0  # seconds to wait for the checkpoint with a tool call
_PATIENCE_BELOW: Final = 1.0  # in a subgraph, which may have no checkpoints; and for the checkpoint around it


class CallPlace:
    """The place in which a graph calls a tool, from LangGraph's config."""

    def __init__(self, config: RunnableConfig) -> None:
        self.thread_id: Final = thread_id_of(config)
        self._namespace = namespace_of(config)
        self._said: Mapping[str, Any] = config.get("configurable", {})
        saver = self._said.get(_CHECKPOINTER)
        self._saver: BaseCheckpointSaver[Any] | None = saver if isinstance(saver, BaseCheckpointSaver) else None

    def key(self, id: str) -> str:
        """The key of a call in the journal. It includes the message id: call ids may repeat from message to message."""
        read = self._said.get(_READ)
        seen: tuple[Any, ...] = getattr(read, "args", ())
        values: Any = read(list(seen[1]), False) if read is not None and len(seen) > 1 else {}
        for value in values.values() if isinstance(values, dict) else ():
            for message in reversed(value) if isinstance(value, list) else ():
                is_ours = isinstance(message, AIMessage) and any(call["id"] == id for call in message.tool_calls)
                if is_ours and message.id:
                    return f"{message.id}/{id}"
        return f"{self._namespace}/{id}"

    def lineage(self) -> CheckpointLineage | None:
        """The checkpoint of the outermost graph; None in a graph without checkpoints."""
        place = self._checkpoint("")
        return None if self._saver is None or place is None else CheckpointLineage(self._saver, self.thread_id, place)

    async def stored(self, mode: Mode, tool: str) -> None:
        """Wait until the checkpoint that asks for a call of a tool is stored. HoldfastError if that takes too long.

        With durability="async" LangGraph stores the checkpoint while it calls the tool. After a crash in between, it
        would ask the model again, and the new tool call would not be recognised as the one already made.
        """
        if self._said.get(_DURABILITY) == "exit":
            raise InvalidArgument(
                f'{tool} was not called: with durability="exit" the call could be repeated after a crash. '
                'Use "sync" or "async".'
            )
        namespace = self._namespace.rpartition(_BETWEEN)[0]
        id = self._checkpoint(namespace)
        if not isinstance(self._saver, HoldfastSaver) or id is None:
            return
        thread = self._saver.shared.thread(self.thread_id, namespace)
        deadline = time.monotonic() + (_PATIENCE_BELOW if namespace else _PATIENCE)
        while not await mode.work(lambda: is_stored(thread, id)):
            if time.monotonic() > deadline:
                if namespace:
                    return
                raise HoldfastError(f"{tool} was not called: the checkpoint with the tool call was not stored in time")
            await mode.pause(_POLL_SECONDS)

    def _checkpoint(self, namespace: str) -> str | None:
        return (self._said.get(_CHECKPOINTS) or {}).get(namespace)


def is_stored(thread: GraphThread, id: str) -> bool:
    """Whether a checkpoint is stored."""
    return _note(thread, id) is not None


def _note(thread: GraphThread, id: str) -> Note | None:
    with thread.lock:
        head = thread.look()
        return head.note if head is not None and head.note.id == id else thread.index(head).get(id)


class CheckpointLineage:
    """The checkpoint of the outermost graph in which a call is made, and its ancestors."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread_id: str, place: str) -> None:
        self._saver = saver
        self._thread_id = thread_id
        self.place: Final = place

    def nearest(self, places: Collection[str]) -> str | None:
        """The checkpoint itself or its nearest ancestor that is one of these; None if none is.

        An ancestor counts if its step led to the checkpoint that follows it here. If that is a new input or an update,
        the step failed or is of another branch. If an ancestor was deleted, the newest of those that are older is taken
        for one.
        """
        oldest = min(places)  # the ids of checkpoints grow with time
        at: str | None = self.place
        if at in places:
            return at
        while at is not None and at >= oldest:
            found = self._awaited() if at == self.place else self._found(at)
            if found is None:
                return max((place for place in places if place < at), default=None)
            at, source = found
            if at in places and source == _STEP:
                return at
        return None

    def _awaited(self) -> tuple[str | None, Any] | None:
        """The checkpoint of the call, which may not be stored yet."""
        deadline = time.monotonic() + _PATIENCE_BELOW
        while (found := self._found(self.place)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return found

    def _found(self, id: str) -> tuple[str | None, Any] | None:
        """The checkpoint before a checkpoint, and its source; None if it is not stored."""
        if isinstance(self._saver, HoldfastSaver):  # without reading the state
            note = _note(self._saver.shared.thread(self._thread_id, ""), id)
            return None if note is None else (note.parent or note.before, note.metadata.get("source"))
        config: RunnableConfig = {
            "configurable": {"thread_id": self._thread_id, "checkpoint_ns": "", "checkpoint_id": id}
        }
        found = self._saver.get_tuple(config)
        if found is None:
            return None
        parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        return (parent, found.metadata.get("source"))
