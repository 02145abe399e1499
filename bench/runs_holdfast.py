"""The measurements of Holdfast's runs, one process each. Prints the results as JSON.

Where the policy is Never, every step is one journaled result, which is one durable commit, and no checkpoint is written
before the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from bench.side_by_side import WARM_UP, measure, side_by_side

made: list[int] = []  # what the tools and the model did


@holdfast.tool
def asking(i: int) -> int:
    """An irreversible tool as it is declared by default: a person is asked about a call in doubt."""
    made.append(i)
    return i


def look(i: int) -> holdfast.Happened | holdfast.NotDone:
    return holdfast.Happened(i) if i in made else holdfast.NotDone()


@holdfast.tool(effect="irreversible", in_doubt="probe", probe=look)
def probing(i: int) -> int:
    made.append(i)
    return i


@holdfast.tool(effect="idempotent")
def idempotent(i: int) -> int:
    made.append(i)
    return i


def reply(i: int) -> int:
    made.append(i)
    return i


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
        seconds, failed = side_by_side(lambda i: work(hf, f"run-{i}", steps), runs)
        for i in range(runs):
            assert len(hf.effects(f"run-{i}")) == steps
    return {"seconds": seconds, "steps": runs * steps, "failed": failed}


def checkpointed(kind: str, where: str, runs: int, steps: int) -> dict[str, Any]:
    """Runs with the default policy. Each step makes one call, changes the state and is closed by a checkpoint."""
    calls: dict[str, Callable[[holdfast.Run, int], int]] = {
        "model": lambda run, i: run.model(reply, i),
        "asking": lambda run, i: run.tool(asking, {"i": i}),
        "probing": lambda run, i: run.tool(probing, {"i": i}),
        "idempotent": lambda run, i: run.tool(idempotent, {"i": i}),
    }
    call = calls[kind]

    def agent(name: str, steps: int) -> None:
        with hf.run(name, start={"last": 0}) as run:
            for step in run.steps():
                if step > steps:
                    run.finish()
                else:
                    run.state["last"] = call(run, step)

    with holdfast.open(where if "://" in where else Path(where, "runs.db")) as hf:
        found = measure(agent, made, runs, steps)
        for i in range(runs):
            latest = hf.thread(f"run-{i}").latest()
            assert latest is not None
            assert latest.state == {"last": steps}
    assert not found["failed"]
    return {**found, "settings": 'default settings: durability "full"'}


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
        case "model" | "asking" | "probing" | "idempotent":
            found = checkpointed(what, folder, *sizes)
        case "killed":
            found = killed(place, *sizes)
        case "restarted":
            found = restarted(place, float(started), *sizes)
        case _:
            raise ValueError(what)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
