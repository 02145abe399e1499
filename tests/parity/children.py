"""What the processes do that the suites start, and kill."""

from __future__ import annotations

import json
import os
import threading
from itertools import count
from pathlib import Path
from typing import Any

import holdfast


def saving(task: Path, pipe: int) -> None:
    """Save step after step, and say each one that is acknowledged, until the process is killed."""
    told = json.loads(task.read_text())
    with holdfast.open(told["store"]) as hf:
        thread = hf.thread("t")
        latest = thread.latest()
        state: dict[str, Any] = {"messages": []} if latest is None else latest.state
        for step in count(thread.step() + 1):
            state["messages"].append({"step": step, "content": f"message {step} " * 40})
            thread.save(state, step=step)
            _say(pipe, str(step))


def working(task: Path, pipe: int) -> None:
    """Close steps of a run, begin another and be in the middle of it until the process is killed."""
    told = json.loads(task.read_text())
    begin = {"task": told["task"], "done": []}
    with holdfast.open(told["store"]) as hf, hf.run(told["thread"], start=begin, policy=holdfast.EveryN(1)) as run:
        for step in run.steps():
            run.state["done"].append(run.model(_reply, step))
            if step == told["steps"] + 1:
                _say(pipe, "in the middle")
                threading.Event().wait()


def reading(task: Path, pipe: int) -> None:
    """Say what the newest checkpoint of a thread is, and which threads there are."""
    told = json.loads(task.read_text())
    with holdfast.open(told["store"]) as hf:
        found = hf.thread(told["thread"]).load("@-1")
        seen = {"id": found.id, "thread": found.thread, "step": found.step, "agent": found.agent, "state": found.state}
        _say(pipe, json.dumps({**seen, "threads": [info.name for info in hf.threads()]}, default=str))


def counting(task: Path, pipe: int) -> None:
    """Save once, and say which step the thread was at before, which it is at then, and which the checkpoint has."""
    told = json.loads(task.read_text())
    with holdfast.open(told["store"]) as hf:
        thread = hf.thread(told["thread"])
        before = thread.step()
        saved = thread.save({"n": before + 1})
        _say(pipe, json.dumps([before, thread.step(), saved.step]))


def _reply(step: int) -> str:
    return f"reply {step}"


def _say(pipe: int, text: str) -> None:
    os.write(pipe, f"{text}\n".encode())
