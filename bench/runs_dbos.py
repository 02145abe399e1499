"""The measurements of DBOS, one process each. Prints the results as JSON.

It needs DBOS and not Holdfast, so that any Python can run it. DBOS has its default settings, except for less logging
and a fixed application version, so that it need not hash the code.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.side_by_side import WARM_UP, measure, side_by_side


def launch(where: str, function: Callable[[int], int]) -> tuple[Any, Any]:
    """Start DBOS in a folder (SQLite) or a database, with a workflow of a given number of steps."""
    # Imported by name, so that type checkers do not need DBOS.
    dbos = importlib.import_module("dbos").DBOS
    dbos(
        config={
            "name": "bench",
            "system_database_url": where if "://" in where else f"sqlite:///{where}/runs.db",
            "log_level": "ERROR",
            "application_version": "1",
        }
    )
    step = dbos.step(name="step")(function)

    def steps_of(steps: int) -> int:
        for i in range(1, steps + 1):
            step(i)
        return steps

    workflow = dbos.workflow(name="work")(steps_of)
    dbos.launch()
    return dbos, workflow


def trivial(i: int) -> int:
    return i


def one(folder: str, steps: int) -> dict[str, Any]:
    """Seconds of one run."""
    dbos, workflow = launch(folder, trivial)
    workflow(WARM_UP)
    begin = time.perf_counter()
    workflow(steps)
    seconds = time.perf_counter() - begin
    dbos.destroy()
    return {"seconds": seconds, "version": importlib.metadata.version("dbos")}


def many(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """Steps of concurrent runs, and the seconds from the start of the first to the end of the last.

    A run may fail, because it waits at most 30 seconds for a connection of DBOS's pool. Its steps still count.
    """
    made: list[int] = []

    def counted(i: int) -> int:
        made.append(i)
        return i

    dbos, workflow = launch(folder, counted)
    workflow(WARM_UP)
    made.clear()
    seconds, failed = side_by_side(lambda _: workflow(steps), runs)
    dbos.destroy()
    return {"seconds": seconds, "steps": len(made), "failed": failed}


def acting(where: str, runs: int, steps: int) -> dict[str, Any]:
    """Runs whose steps act. A step that calls a model is the same in DBOS. Runs may fail as in `many`."""
    made: list[int] = []

    def act(i: int) -> int:
        made.append(i)
        return i

    dbos, workflow = launch(where, act)
    found = measure(lambda _, count: workflow(count), made, runs, steps)
    dbos.destroy()
    return {**found, "settings": f"DBOS {importlib.metadata.version('dbos')}, default settings{_syncs(where)}"}


def _syncs(where: str) -> str:
    if "://" in where:
        return ""
    connection = sqlite3.connect(f"{where}/runs.db")
    [(journal,)] = connection.execute("PRAGMA journal_mode")
    [(level,)] = connection.execute("PRAGMA synchronous")  # DBOS does not change it
    connection.close()
    return f": journal_mode={journal}, synchronous={['off', 'normal', 'full'][level]}"


def killed(folder: str, steps: int) -> dict[str, Any]:
    """Execute half of a run and die in the next step."""

    def step_or_die(i: int) -> int:
        if i > steps // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    _, workflow = launch(folder, step_or_die)
    workflow(steps)
    raise AssertionError("the process should be dead")


def restarted(folder: str, started: float, steps: int) -> dict[str, Any]:
    """Let DBOS recover that run. Returns the seconds from process start to the first unrecorded step."""
    first = threading.Event()
    calls: list[tuple[int, float]] = []

    def step_and_look(i: int) -> int:
        calls.append((i, time.monotonic() - started))
        first.set()
        return i

    launch(folder, step_and_look)
    if not first.wait(120):
        raise AssertionError("DBOS did not resume the run")
    assert calls[0][0] == steps // 2 + 1, "a recorded step was repeated"
    return {"seconds": calls[0][1]}


def main(arguments: list[str]) -> None:
    started, what, place, *numbers = arguments
    sizes = [int(number) for number in numbers]
    match what:
        case "one":
            found = one(place, *sizes)
        case "many":
            found = many(place, *sizes)
        case "acting":
            found = acting(place, *sizes)
        case "killed":
            found = killed(place, *sizes)
        case "restarted":
            found = restarted(place, float(started), *sizes)
        case _:
            raise ValueError(what)
    print(json.dumps(found), flush=True)
    # Exit at once: the threads of DBOS would keep the process alive until the resumed run ends.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
