"""How much to measure, and where."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import holdfast
from bench.longrun import LongRun, long_run

ROOT = Path(__file__).resolve().parent.parent


class Sizes(NamedTuple):
    """How much of everything."""

    messages: int  # in a long conversation
    rounds: int  # of quick things
    loads: int  # of loading a long conversation
    short: int  # checkpoints of a short thread
    long: int  # checkpoints of a long thread
    few: int  # threads of a small store
    many: int  # threads of a large store
    writers: int
    seconds: float  # of one round of writing side by side
    writer_rounds: int
    imports: int


FULL = Sizes(3_000, 400, 60, 10, 10_000, 100, 100_000, 64, 2.5, 3, 15)
QUICK = Sizes(60, 8, 2, 10, 40, 10, 40, 8, 0.3, 1, 2)


class Plan:
    """One run of the bench. `folder` is on the disk that is measured, and is removed at the end."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder
        self.sizes = sizes

    @cached_property
    def long_run(self) -> LongRun:
        """A long conversation, saved at every step. Several numbers are about what it leaves."""
        folder = self.folder / "long"
        folder.mkdir()
        return long_run(folder, self.sizes.messages)


def child_environment(folder: Path) -> dict[str, str]:
    """Children find the same code, and its byte code: without that an import would measure the compiler."""
    places = [str(ROOT), str(Path(holdfast.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONUTF8": str(sys.flags.utf8_mode),
    }
