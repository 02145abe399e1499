"""Build the metadata of a new row: LangGraph's own, and the step, status and trigger that Holdfast lists."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from holdfast.adapters.langgraph.notes import metadata_with
from holdfast.adapters.langgraph.track import Track
from holdfast.redaction import AS_IS
from holdfast.threads.save import Details, checked_details
from holdfast.types import Status

_STEP_MAX: Final = 1 << 62


def details_of(
    track: Track,
    metadata: CheckpointMetadata,
    written: Collection[str],
    id: str | None,
    parent: str | None,
    tip: str | None,
    highest: str | None,
) -> Details:
    """Build the details of a new row; `written` are the channels of its writes."""
    step = metadata.get("step")
    status: Status = "waiting" if INTERRUPT in written else "failed" if ERROR in written else "idle"
    return checked_details(
        AS_IS,
        # LangGraph counts from -1.
        step=step + 1 if type(step) is int and -1 <= step < _STEP_MAX else None,
        metadata=metadata_with(metadata, id, parent, tip, highest, track.placer.context.redaction),
        status=status,
        trigger="writes" if written else str(metadata.get("source") or "put"),
    )
