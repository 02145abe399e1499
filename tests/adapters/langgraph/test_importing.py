"""Graphs that run while something is being imported: nobody waits for a lock that the one who waits for him holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.selection import tries
from tests.waiting import DEADLINE

# A module that runs a graph when it is imported. The values are of its own types, whose module the serializer imports.
AGENT = """
import asyncio
import dataclasses
import enum
import sys
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel

from holdfast.adapters.langgraph import HoldfastSaver


@dataclasses.dataclass
class Plan:
    goal: str


class Model(BaseModel):
    name: str


class Mood(enum.Enum):
    GOOD = "good"


class State(TypedDict, total=False):
    plan: Plan
    model: Model
    done: Annotated[list[Any], lambda old, new: [*(old or []), *new]]


def think(state):
    return {"plan": Plan(state["plan"].goal + "!"), "done": [Mood.GOOD]}


def work(state):
    return {"model": Model(name="at work"), "done": [state["plan"]]}


saver = HoldfastSaver("memory:", allow=[Plan, Model, Mood])
graph = (
    StateGraph(State)
    .add_node("think", think)
    .add_node("work", work)
    .add_edge(START, "think")
    .add_conditional_edges("think", lambda state: [Send("work", state)], ["work"])
    .compile(checkpointer=saver)
)
thread = {"configurable": {"thread_id": "1"}}
durability, way = sys.argv[1:]
for turn in range(2):
    given = {"plan": Plan(f"turn {turn}"), "model": Model(name="new")}
    if way == "async":
        answer = asyncio.run(graph.ainvoke(given, thread, durability=durability))
    else:
        answer = graph.invoke(given, thread, durability=durability)
if way == "async":
    state = asyncio.run(graph.aget_state(thread)).values
else:
    state = graph.get_state(thread).values
assert state == answer, state
assert state["plan"] == Plan("turn 1!"), state
assert state["model"] == Model(name="at work"), state
assert state["done"] == [Mood.GOOD, Plan("turn 0!"), Mood.GOOD, Plan("turn 1!")], state
print("done")
"""

# Threads that all import the saver and use it first at one moment, each with a module of its own to be imported.
BEGINNERS = """
import importlib
import sys
import threading

together = threading.Barrier(6)
failed = []


def begin(number):
    together.wait()
    try:
        from holdfast.adapters.langgraph import HoldfastSaver

        with HoldfastSaver(sys.argv[1]) as saver:
            module = importlib.import_module("types_of_%d" % (number % 2))
            module.use(saver, number)
    except BaseException as error:
        failed.append(error)
        raise


threads = [threading.Thread(target=begin, args=(number,)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
print("done")
"""

TYPES = """
import dataclasses


@dataclasses.dataclass
class Own:
    number: int


def use(saver, number):
    saver = saver.with_allowlist([Own])
    config = {"configurable": {"thread_id": str(number), "checkpoint_ns": ""}}
    values = {"own": Own(number), "all": [Own(number), {"in": Own(number + 1)}]}
    checkpoint = {
        "v": 4, "id": "1f0d5a10-0001-6000-8000-0000000000aa", "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values, "channel_versions": dict.fromkeys(values, "1"), "versions_seen": {},
        "updated_channels": None,
    }
    config = saver.put(config, checkpoint, {"source": "input", "step": -1, "parents": {}}, dict.fromkeys(values, "1"))
    saver.put_writes(config, [("own", Own(number))], "task")
    found = saver.get_tuple(config)
    assert found.checkpoint["channel_values"] == values
    assert found.pending_writes == [("task", "own", Own(number))]
"""


def run(folder: Path, *command: str) -> str:
    """What a process says; it fails if that takes longer than anything but a lock does."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("durability", "way"),
    [("sync", "async"), ("async", "sync"), ("exit", "async"), ("sync", "sync"), ("async", "async"), ("exit", "sync")][
        : tries(6, 2)
    ],
)
def test_a_graph_may_run_while_the_module_of_its_types_is_imported(tmp_path: Path, durability: str, way: str) -> None:
    (tmp_path / "agent.py").write_text(AGENT)

    assert run(tmp_path, "-c", "import agent", durability, way) == "done"


def test_a_graph_may_run_in_the_file_that_is_the_program(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)

    assert run(tmp_path, "agent.py", "sync", "sync") == "done"


def test_threads_may_import_and_begin_at_one_moment(tmp_path: Path) -> None:
    (tmp_path / "begin.py").write_text(BEGINNERS)
    for number in range(2):
        (tmp_path / f"types_of_{number}.py").write_text(TYPES)

    assert run(tmp_path, "begin.py", "agent.db") == "done"
