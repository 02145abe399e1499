"""A child of the nursery that erases the subject of `tests.threads.subject`, to be killed while it does."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from tests.crash.tracing import say, wait_for_tracer
from tests.threads.subject import SUBJECT


def erase(path: Path, pipe: int) -> None:
    """Erase from the store whose address is in a file. Opened before it is traced: every call is one of the erasing."""
    hf = holdfast.open(path.read_text())
    wait_for_tracer(pipe)
    hf.erase(SUBJECT)
    say(pipe, "erased")
    os._exit(0)
