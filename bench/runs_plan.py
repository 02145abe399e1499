"""Sizes and places of the measurements of runs, and how each side is started."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.databases import Databases
from bench.plan import child_environment

HOLDFAST = "bench.runs_holdfast"
DBOS = "bench.runs_dbos"
RESTATE = "bench.runs_restate"
ABSURD = "bench.runs_absurd"
_RESTATE_SERVER = "node_modules/@restatedev/restate-server-*/bin/restate-server"


class Sizes(NamedTuple):
    """How much to measure."""

    steps: int  # steps of one run
    rounds: int
    runs: int  # concurrent runs
    steps_each: int  # steps of each concurrent run
    crowd_rounds: int
    long: int  # steps of the run that is killed half-way
    restarts: int
    reads: int  # calls of a read-only tool in one round
    read_rounds: int
    journals: tuple[int, int]  # entries of a short journal and of a long one
    opens: int  # rounds per journal
    peer_steps: int  # steps of one run beside every peer
    peer_steps_each: int  # steps of each concurrent run beside every peer
    peer_rounds: int


FULL = Sizes(1_000, 5, 32, 100, 3, 2_000, 7, 200, 60, (2_000, 100_000), 5, 300, 30, 3)
QUICK = Sizes(20, 1, 4, 5, 1, 20, 1, 10, 4, (20, 60), 1, 10, 3, 1)


class Plan:
    """One execution of the benchmark. `folder` is on the measured disk; `peer` is the Python with the peers, if any."""

    def __init__(self, folder: Path, sizes: Sizes, peer: str | None) -> None:
        self.folder = folder
        self.sizes = sizes
        self.peer = None if peer is None else str(Path(peer).absolute())  # child processes have another working folder
        self._environment = child_environment(folder)
        self._made = 0
        self._databases = Databases(folder)
        self.database = self._databases.new
        self.server_settings = self._databases.settings
        self.stop = self._databases.stop

    @property
    def sides(self) -> list[str]:
        """The modules to measure. Holdfast is always the first."""
        return [HOLDFAST] if self.peer is None else [HOLDFAST, DBOS]

    def place(self) -> Path:
        """A new folder for one measurement."""
        self._made += 1
        place = self.folder / str(self._made)
        place.mkdir()
        return place

    def child(self, side: str, *arguments: str | int | Path) -> dict[str, Any]:
        """Execute one side and return its JSON. It gets its start time; both use the machine's clock."""
        done = self._run(side, arguments)
        if done.returncode:
            raise RuntimeError(f"{side} {arguments[0]} ended with {done.returncode}:\n{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def killed_child(self, side: str, *arguments: str | int | Path) -> None:
        """Execute one side until it kills itself."""
        done = self._run(side, arguments)
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"{side} {arguments[0]} ended with {done.returncode}, not killed:\n{done.stderr}")

    def _run(self, side: str, arguments: Sequence[str | int | Path]) -> subprocess.CompletedProcess[str]:
        python = sys.executable if side == HOLDFAST or self.peer is None else self.peer
        command = [python, "-m", side, repr(time.monotonic()), *map(str, arguments)]
        return subprocess.run(
            command, env=self._environment, cwd=self.folder, check=False, capture_output=True, text=True, timeout=900
        )


def has_dbos(python: str) -> bool:
    """Whether a Python can import DBOS."""
    return _can_import(python, "dbos")


def restate_server(python: str) -> Path | None:
    """Restate's server, which npm puts into the environment of the Python with its client. None if one is missing."""
    found = next(iter(Path(python).absolute().parent.parent.glob(_RESTATE_SERVER)), None)
    return found if found is not None and _can_import(python, "restate", "hypercorn") else None


def has_absurd(python: str) -> bool:
    """Whether a Python can import Absurd and its schema."""
    return _can_import(python, "absurd_sdk", "absurdctl")


def _can_import(python: str, *modules: str) -> bool:
    program = "import importlib.util, sys; sys.exit(None in map(importlib.util.find_spec, sys.argv[1:]))"
    try:
        return subprocess.run([python, "-c", program, *modules], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
