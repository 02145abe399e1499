"""The processes of the suites of defects: they save, run, prune and act until they are killed or done."""

from __future__ import annotations

import json
import os
import resource
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Conflict, HoldfastError, Retention
from tests.crash.tracing import say, wait_for_tracer
from tests.parity.defects_scene import state_at


def _told(task: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(task.read_text())
    return told


def _say(pipe: int, *words: object) -> None:
    os.write(pipe, (" ".join(map(str, words)) + "\n").encode())


def save_until_killed(task: Path, pipe: int) -> None:
    """Save one state after the other, each acknowledged by its number."""
    thread = holdfast.open(_told(task)["url"]).thread("t")
    n = thread.step()
    while True:
        n += 1
        thread.save(state_at(n), step=n)
        _say(pipe, n)


def save_twice(task: Path, pipe: int) -> None:
    """Make a store and save to it, traced; told after each save that has returned."""
    wait_for_tracer(pipe)
    thread = holdfast.open(_told(task)["url"]).thread("t")
    for n in (1, 2):
        thread.save(state_at(n))
        say(pipe, "saved")


def prune_until_killed(task: Path, pipe: int) -> None:
    """Save, rewind and prune, again and again."""
    thread = holdfast.open(_told(task)["url"]).thread("t")
    n = 0
    while True:
        for _ in range(6):
            n += 1
            thread.save(state_at(n), step=n)
        thread.rewind("@-3")
        _say(pipe, "pruning")
        thread.prune(Retention(keep_last=1))
        _say(pipe, n)


def count_up(task: Path, pipe: int) -> None:
    """Add one to what is there, so many times; whoever comes too late looks again."""
    told = _told(task)
    with holdfast.open(told["url"]) as hf:
        thread = hf.thread("t")
        done = refused = 0
        while done < told["times"]:
            latest = thread.latest()
            assert latest is not None
            try:
                thread.save({"count": latest.state["count"] + 1})
                done += 1
            except Conflict:
                refused += 1
        _say(pipe, done, refused)


def hold_runs(task: Path, pipe: int) -> None:
    """Begin runs, and live on without an end."""
    told = _told(task)
    hf = holdfast.open(told["url"])
    with ExitStack() as stack:
        for name in told["threads"]:
            run = stack.enter_context(hf.run(name, start={"n": 0}))
            run.state["n"] = 1
            run.save()
        _say(pipe, "holding")
        signal.pause()


def act_once(task: Path, pipe: int) -> None:
    """A run that does something to the world and is killed before it can say so."""
    told = _told(task)

    def pay(amount: int) -> str:
        with Path(told["book"]).open("a") as book:
            book.write(f"{amount}\n")
        _say(pipe, "acting")
        signal.pause()
        return "paid"

    with holdfast.open(told["url"]) as hf, hf.run("t", start={"n": 0}) as run:
        for _ in run.steps():
            run.tool(pay, {"amount": 7}, key="p")


def save_until_full(task: Path, pipe: int) -> None:
    """Save to files that may not grow beyond a limit, until that is refused; say what was acknowledged and how."""
    told = _told(task)
    thread = holdfast.open(told["url"]).thread("t")
    n = 0
    thread.save(state_at(n))
    _limit_files(told["largest"])
    try:
        while True:
            n += 1
            thread.save(state_at(n), step=n)
    except HoldfastError as error:
        _say(pipe, type(error).__name__, n - 1)


def run_until_full(task: Path, pipe: int) -> None:
    """The same in a run: each step that begins is told."""
    told = _told(task)
    hf = holdfast.open(told["url"])
    try:
        with hf.run("t", start={"n": 0}, policy=holdfast.EveryN(1), lease=2.0) as run:
            run.save()
            _limit_files(told["largest"])
            for step in run.steps():
                _say(pipe, "step", step)
                run.state = state_at(step)
    except HoldfastError as error:
        _say(pipe, type(error).__name__)


def _limit_files(largest: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
