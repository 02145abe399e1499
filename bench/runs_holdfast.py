"""The measurements of Holdfast's runs, one process each. Prints the results as JSON.

Every step is one journaled result, which is one durable commit. No checkpoint is written before the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import holdfast

WARM_UP = 50


def trivial(i: int) -> int:
    return i


def work(hf: holdfast.Holdfast, name: str, steps: int) -> None:
    """Execute one run from start to end."""
    with hf.run(name, start={}, policy=holdfast.Never()) as run:
        for step in run.steps():
            if step > steps:
                run.finish()
            else:
                run.model(trivial, step)


def one(folder: Path, steps: int) -> dict[str, float]:
    """Seconds of one run."""
    with holdfast.open(folder / "runs.db") as hf:
        work(hf, "warm-up", WARM_UP)
        begin = time.perf_counter()
        work(hf, "one", steps)
        seconds = time.perf_counter() - begin
        assert len(hf.effects("one")) == steps
    return {"seconds": seconds}


def many(folder: Path, runs: int, steps: int) -> dict[str, float]:
    """Steps of concurrent runs, and the seconds from the start of the first to the end of the last."""
    with holdfast.open(folder / "runs.db") as hf:
        work(hf, "warm-up", WARM_UP)
        threads = [threading.Thread(target=work, args=(hf, f"run-{i}", steps)) for i in range(runs)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begin
        for i in range(runs):
            assert len(hf.effects(f"run-{i}")) == steps
    return {"seconds": seconds, "steps": runs * steps, "failed": 0}


class Steps:
    """The steps of a long run. A resumed run must call the same function."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act

    def step(self, i: int) -> int:
        self._act(i)
        return i


def killed(folder: Path, steps: int) -> dict[str, float]:
    """Execute half of a run and die in the next step."""

    def die(i: int) -> None:
        if i > steps // 2:
            os.kill(os.getpid(), signal.SIGKILL)

    long = Steps(die)
    with holdfast.open(folder / "runs.db") as hf, hf.run("long", start={}, policy=holdfast.Never()) as run:
        for step in run.steps():
            run.model(long.step, step)
    raise AssertionError("the process should be dead")


def restarted(folder: Path, started: float, steps: int) -> dict[str, float]:
    """Resume that run. Returns the seconds from process start to the first unrecorded step."""
    calls: list[int] = []
    seconds = 0.0

    def look(i: int) -> None:
        nonlocal seconds
        seconds = time.monotonic() - started
        calls.append(i)

    long = Steps(look)
    with holdfast.open(folder / "runs.db") as hf, hf.run("long", policy=holdfast.Never()) as run:
        assert run.resumed
        for step in run.steps():
            run.model(long.step, step)
            if calls:
                break
    assert calls == [steps // 2 + 1], "a recorded step was repeated"
    return {"seconds": seconds}


def main(arguments: list[str]) -> None:
    started, what, folder, *numbers = arguments
    place, sizes = Path(folder), [int(number) for number in numbers]
    match what:
        case "one":
            found = one(place, *sizes)
        case "many":
            found = many(place, *sizes)
        case "killed":
            found = killed(place, *sizes)
        case "restarted":
            found = restarted(place, float(started), *sizes)
        case _:
            raise ValueError(what)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
