"""Format a checkpoint for output: as text for people, as an object for programs."""

from __future__ import annotations

from typing import Any

from holdfast.text import quoted
from holdfast.types import Checkpoint


def checkpoint_data(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields that identify a checkpoint."""
    return {
        "thread": checkpoint.thread,
        "id": checkpoint.id,
        "seq": checkpoint.seq,
        "step": checkpoint.step,
        "label": checkpoint.label,
        "tags": list(checkpoint.tags),
    }


def described(checkpoint: Checkpoint) -> str:
    """Return the id, step and label of a checkpoint as text."""
    label = "" if checkpoint.label is None else f", {quoted(checkpoint.label)}"
    return f"{checkpoint.id} (step {checkpoint.step}{label})"
