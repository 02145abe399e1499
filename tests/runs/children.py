"""What the children of the run tests do until they are stopped, killed, or done."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Run

DEADLINE = 20.0


def say(pipe: int, *words: object) -> None:
    os.write(pipe, (" ".join(map(str, words)) + "\n").encode())


def wait_until(there: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not there.exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"{there.name} did not come")
        time.sleep(0.005)


def _told(task: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(task.read_text())
    return told


def hold(task: Path, pipe: int) -> None:
    """Begin an effect and stay inside it until killed."""
    told = _told(task)

    def act() -> None:
        say(pipe, "acting")
        time.sleep(DEADLINE)

    hf = holdfast.open(told["store"], durability="off")
    with hf.run("t", start={"n": 0}, lease=told["lease"]) as run:
        run.model(lambda: "paid for")
        run.tool(act, {}, key="k")


def race(task: Path, pipe: int) -> None:
    """Claim as soon as all are there; whoever wins keeps the run until told to leave."""
    told = _told(task)
    hf = holdfast.open(told["store"], durability="off")
    say(pipe, "ready")
    wait_until(Path(told["go"]))
    try:
        with hf.run("t", start={"n": 0}):
            say(pipe, "won")
            wait_until(Path(told["leave"]))
    except holdfast.LeaseHeld:
        say(pipe, "LeaseHeld")


def zombie(task: Path, pipe: int) -> None:
    """Act once inside which the process is stopped; then try to act again."""
    told = _told(task)
    ledger = Path(told["ledger"])

    def act(what: str) -> str:
        with ledger.open("a") as file:
            file.write(f"{what}\n")
        if what == "first":
            say(pipe, "acting")
            wait_until(Path(told["go"]))
        return f"{what} done"

    hf = holdfast.open(told["store"], durability="off")
    try:
        with hf.run("t", start={"n": 0}, lease=told["lease"]) as run:
            for what in ("first", "second"):
                try:
                    say(pipe, run.tool(act, {"what": what}, key=what))
                except holdfast.LeaseLost:
                    say(pipe, what, "LeaseLost")
            run.finish("zombie")
    except holdfast.LeaseLost:
        say(pipe, "block LeaseLost")


def work(task: Path, pipe: int) -> None:
    """A worker until SIGTERM. Its handler tells of its steps."""
    told = _told(task)
    hf = holdfast.open(told["store"], durability="off")

    def handler(run: Run) -> str:
        for step in run.steps():
            run.tool(dict, {})
            run.state["n"] = step
            say(pipe, "step", step)
            time.sleep(0.01)
        return "unreachable"

    hf.worker({"h": handler}).run()
    say(pipe, "drained")
