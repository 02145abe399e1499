"""What became of an effect: what people say when they settle one, and what a probe answers."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from holdfast.errors import HoldfastError


class NotDone(HoldfastError):
    """The effect did not happen: raise it in a tool, or give it to `hf.settle`. The tool may be called again."""


class Happened(msgspec.Struct, frozen=True):
    """The effect happened, with this result."""

    result: Any = None


class GiveUp(msgspec.Struct, frozen=True):
    """Nobody will find out. The caller is told that the outcome is unknown."""


Outcome: TypeAlias = Happened | NotDone | GiveUp


def unknown_outcome(tool: str) -> dict[str, str]:
    """What the caller of a tool is told when its outcome was given up."""
    return {"outcome": "unknown", "tool": tool, "note": "It may or may not have happened. Do not assume either."}
