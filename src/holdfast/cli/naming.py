"""Checkpoints and threads in the output of verbs that steer: a line for people, an object for programs."""

from __future__ import annotations

from typing import Any

from holdfast.text import shown
from holdfast.types import Checkpoint


def checkpoint_data(checkpoint: Checkpoint) -> dict[str, Any]:
    """What tells a checkpoint from others."""
    return {
        "thread": checkpoint.thread,
        "id": checkpoint.id,
        "seq": checkpoint.seq,
        "step": checkpoint.step,
        "label": checkpoint.label,
        "tags": list(checkpoint.tags),
    }


def described(checkpoint: Checkpoint) -> str:
    """A checkpoint in some words."""
    label = "" if checkpoint.label is None else f", {shown(checkpoint.label)}"
    return f"{checkpoint.id} (step {checkpoint.step}{label})"
