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
    """How much to measure."""

    messages: int  # messages in a long conversation
    rounds: int  # rounds of quick measurements
    loads: int  # rounds of loading a long conversation
    short: int  # checkpoints of a short thread
    long: int  # checkpoints of a long thread
    few: int  # threads of a small store
    many: int  # threads of a large store
    writers: int
    seconds: float  # of one round of concurrent writing
    writer_rounds: int
    imports: int
    scale_threads: int  # threads of the store that is measured as a whole
    scale_checkpoints: int  # checkpoints of its longest thread


FULL = Sizes(3_000, 400, 60, 10, 10_000, 100, 100_000, 64, 2.5, 3, 15, 200_000, 100_000)
QUICK = Sizes(60, 8, 2, 10, 40, 10, 40, 8, 0.3, 1, 2, 60, 40)


class Plan:
    """One execution of the benchmark. `folder` is on the measured disk, and is removed at the end."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder
        self.sizes = sizes

    @cached_property
    def long_run(self) -> LongRun:
        """A long conversation, saved at every step. Several numbers use its results."""
        folder = self.folder / "long"
        folder.mkdir()
        return long_run(folder, self.sizes.messages)


def child_environment(folder: Path) -> dict[str, str]:
    """Let child processes use the same code and byte code. Without byte code, an import would include compiling."""
    places = [str(ROOT), str(Path(holdfast.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONUTF8": str(sys.flags.utf8_mode),
    }
