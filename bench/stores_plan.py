"""Sizes and places of the measurements of stores, and the PostgreSQL server that both sides use."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from bench.databases import Databases
from bench.plan import child_environment

HOLDFAST = "bench.stores_runs"
DBOS = "bench.stores_dbos"


class Sizes(NamedTuple):
    """How much to measure."""

    saves: int
    messages: int  # messages in a long conversation
    loads: int
    steps: int  # steps of one run
    rounds: int
    writers: int  # concurrent writers
    workflows: int  # concurrent workflows in DBOS
    steps_each: int  # steps of each writer and workflow
    waiting: int  # queued runs, and as many again that wait for an answer
    claims: int


FULL = Sizes(400, 3_000, 40, 1_000, 5, 16, 8, 100, 10_000, 400)
QUICK = Sizes(8, 60, 2, 20, 1, 4, 2, 5, 20, 4)


class Plan:
    """One execution of the benchmark. `folder` is on the measured disk; `peer` is the Python with DBOS, if any."""

    def __init__(self, folder: Path, sizes: Sizes, peer: str | None) -> None:
        self.folder = folder
        self.sizes = sizes
        self.peer = None if peer is None else str(Path(peer).absolute())  # child processes have another working folder
        self._environment = child_environment(folder)
        self._places = itertools.count(1)
        self._databases = Databases(folder)
        self.database = self._databases.new
        self.stop = self._databases.stop

    @property
    def sides(self) -> list[str]:
        """The modules to measure. Holdfast is always the first."""
        return [HOLDFAST] if self.peer is None else [HOLDFAST, DBOS]

    def place(self) -> Path:
        """A new folder for one measurement."""
        place = self.folder / str(next(self._places))
        place.mkdir()
        return place

    def child(self, side: str, *arguments: str | int) -> dict[str, Any]:
        """Execute one side and return its JSON."""
        python = self.peer if side == DBOS and self.peer is not None else sys.executable
        done = subprocess.run(
            [python, "-m", side, *map(str, arguments)],
            env=self._environment,
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
        )
        if done.returncode:
            raise RuntimeError(f"{side} {arguments[0]} ended with {done.returncode}:\n{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
