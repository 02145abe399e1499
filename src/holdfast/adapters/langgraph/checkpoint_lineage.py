"""The place of a tool call among the checkpoints of its graph, which time travel divides into branches."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from holdfast.adapters.langgraph.naming import thread_id_of

# Keys of LangGraph's config for a task.
CHECKPOINTER: Final = "__pregel_checkpointer"
CHECKPOINTS: Final = "checkpoint_map"

_STEP: Final = "loop"  # the source of a checkpoint that a step of the graph led to
_POLL_SECONDS: Final = 0.005
_PATIENCE: Final = 1.0  # seconds to wait for a checkpoint that is being stored


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
            found = self._found(at)
            if found is None:
                return max((place for place in places if place < at), default=None)
            at = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            if at in places and found.metadata.get("source") == _STEP:
                return at
        return None

    def _found(self, id: str) -> CheckpointTuple | None:
        config: RunnableConfig = {
            "configurable": {"thread_id": self._thread_id, "checkpoint_ns": "", "checkpoint_id": id}
        }
        deadline = time.monotonic() + _PATIENCE
        while (found := self._saver.get_tuple(config)) is None and id == self.place and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return found


def lineage_of(config: RunnableConfig) -> CheckpointLineage | None:
    """The lineage of a call; None in a graph without checkpoints."""
    said: Mapping[str, Any] = config.get("configurable", {})
    saver, place = said.get(CHECKPOINTER), (said.get(CHECKPOINTS) or {}).get("")
    if not isinstance(saver, BaseCheckpointSaver) or place is None:
        return None
    return CheckpointLineage(saver, thread_id_of(config), place)
