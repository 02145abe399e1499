"""What the processes do that the suites kill."""

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


def _reply(step: int) -> str:
    return f"reply {step}"


def _say(pipe: int, text: str) -> None:
    os.write(pipe, f"{text}\n".encode())
