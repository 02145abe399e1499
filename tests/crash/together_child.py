"""A child of the nursery that saves to several threads together, to be killed while it does."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from holdfast import AppendTo, SaveTo
from tests.crash.tracing import say, wait_for_tracer

BIG = "words " * 20_000  # a blob


def save(path: Path, pipe: int) -> None:
    """Save to two threads that exist and to a new one. Opened before it is traced: every call is one of the save."""
    hf = holdfast.open(path.read_text())
    wait_for_tracer(pipe)
    hf.save_together(
        [AppendTo("session", "events", [2]), SaveTo("user", {"n": 2, "big": BIG}), SaveTo("app", {"n": 2})]
    )
    say(pipe, "saved")
    os._exit(0)
