"""What several processes do to one store at once: one saves, others fork what it saved, prune it and merge it."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Literal

import msgspec

import holdfast
from holdfast import Holdfast, Retention
from holdfast.errors import Conflict, NotFound
from tests.waiting import until

MAIN = "main"


class Race(msgspec.Struct):
    """What one of the processes is told."""

    url: str
    role: Literal["save", "fork", "prune", "optimize"]
    rounds: int
    seed: int = 0


def state_of(n: int) -> dict[str, Any]:
    """A state whose messages are shared with the ones before; every seventh forgets most of them."""
    first = n - n % 7
    return {
        "n": n,
        "messages": [{"role": "user", "content": f"message {i} " * 12} for i in range(first, 3 * n + 3)],
        "prompt": f"You are number {n // 5}. " * 1_000,
    }


def race(path: Path, pipe: int) -> None:
    """Do one's part. Only losing a race is no failure: what is told at the end is what was done."""
    task = msgspec.json.decode(path.read_bytes(), type=Race)
    with holdfast.open(task.url, durability="off") as hf:
        if task.role != "save":
            _wait_for_the_first(hf)
        for at in range(task.rounds):
            done = _DEEDS[task.role](hf, task, at)
            if done is not None:
                os.write(pipe, f"{done}\n".encode())


def _wait_for_the_first(hf: Holdfast) -> None:
    until(lambda: hf.thread(MAIN).head() is not None, "another process has saved something")


def _save(hf: Holdfast, task: Race, at: int) -> str:
    hf.thread(MAIN).save(state_of(at))
    return f"saved {at}"


def _fork(hf: Holdfast, task: Race, at: int) -> str | None:
    """Begin a thread at a checkpoint that may be pruned at any moment, and go on in it."""
    name = f"fork-{task.seed}-{at}"
    main = hf.thread(MAIN)
    found = random.Random(f"{task.seed} {at}").choice(list(main.history(limit=8)))
    try:
        fork = main.fork(name, at=found)
    except (Conflict, NotFound):
        return None
    latest = fork.latest()
    assert latest is not None
    n = latest.state["n"]
    assert latest.state == state_of(n), f"{name} does not begin with a state that was saved"
    state = latest.state
    state["messages"].append({"role": "user", "content": name})
    fork.save(state)
    if at % 4 == 3:
        fork.drop()
        return None
    return f"forked {name} {n}"


def _prune(hf: Holdfast, task: Race, at: int) -> None:
    hf.thread(MAIN).prune(Retention(keep_last=2))


def _optimize(hf: Holdfast, task: Race, at: int) -> None:
    hf.optimize()


_DEEDS: dict[str, Any] = {"save": _save, "fork": _fork, "prune": _prune, "optimize": _optimize}
