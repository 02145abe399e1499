"""Order: a checkpoint waits for the writes that led to it, and for no others."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Send

from holdfast.adapters.langgraph import HoldfastSaver, ordering
from holdfast.adapters.langgraph.ordering import Arrivals, has_run
from tests.adapters.langgraph.conftest import Savers
from tests.waiting import DEADLINE


def test_the_nodes_that_ran_are_those_that_have_seen_more() -> None:
    before = {"a": {"x": 1}, "b": {"x": 1}, "__input__": {}}
    now = {"a": {"x": 2}, "b": {"x": 1}, "c": {"y": 1}, "__input__": {}, "__interrupt__": {"x": 2}, "d": {}}
    assert has_run(now, before) == {"~__pregel_pull, a", "~__pregel_pull, c"}
    assert has_run(now, now) == frozenset()
    assert has_run({}, before) == frozenset()


def test_waiting_ends_at_once_when_they_are_there() -> None:
    asked: list[int] = []

    def are_there() -> bool:
        asked.append(1)
        return True

    Arrivals().wait("t", are_there)
    assert asked == [1]


def test_waiting_ends_when_they_come() -> None:
    arrivals, come, waits = Arrivals(), threading.Event(), threading.Event()

    def are_there() -> bool:
        waits.set()
        return come.is_set()

    waiting = threading.Thread(target=arrivals.wait, args=("t", are_there))
    waiting.start()
    assert waits.wait(DEADLINE)
    come.set()
    arrivals.tell("t")
    waiting.join(DEADLINE)
    assert not waiting.is_alive()


def test_waiting_for_what_never_comes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PATIENCE", 0.01)
    asked: list[int] = []

    def are_there() -> bool:
        asked.append(1)
        return False

    Arrivals().wait("t", are_there)
    assert asked


def test_what_comes_for_others_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PATIENCE", DEADLINE)
    arrivals, asked, come = Arrivals(), threading.Semaphore(0), threading.Event()
    looks: list[int] = []

    def are_there() -> bool:
        looks.append(1)
        asked.release()
        return come.is_set()

    waiting = threading.Thread(target=arrivals.wait, args=("t", are_there))
    waiting.start()
    assert asked.acquire(timeout=DEADLINE)
    assert asked.acquire(timeout=DEADLINE)
    for _ in range(100):
        arrivals.tell("another")
    come.set()
    arrivals.tell("t")
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    assert len(looks) == 3
    assert arrivals._waiting == {}


def test_after_a_fork_the_lock_is_a_new_one() -> None:
    arrivals = Arrivals()
    held = arrivals._lock
    with held:
        arrivals.renew()
        told = threading.Thread(target=arrivals.tell, args=("t",))
        told.start()
        told.join(DEADLINE)
        assert not told.is_alive()


# -- through a saver -------------------------------------------------------------------------------------------------


class Two:
    """A checkpoint that is stored, and the one that a node's writes lead to."""

    def __init__(self, saver: HoldfastSaver) -> None:
        self.saver = saver
        start: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        first = self._made("1", {"a": 1}, {"node": {}})
        self.config = saver.put(start, first, {"source": "loop", "step": 0}, {"a": 1})
        self.next = self._made("2", {"a": 2}, {"node": {"a": 1}})

    def _made(self, id: str, versions: dict[str, Any], seen: dict[str, dict[str, Any]]) -> Checkpoint:
        made = empty_checkpoint()
        made["id"] = id
        made["channel_values"] = {"a": versions["a"]}
        made["channel_versions"] = versions
        made["versions_seen"] = seen
        return made

    def put_next(self, step: int = 1, source: str = "loop") -> None:
        self.saver.put(self.config, self.next, {"source": source, "step": step}, {"a": 2})  # type: ignore[typeddict-item]  # any text

    def put_writes(self) -> None:
        self.saver.put_writes(self.config, [("a", 2)], "task", "~__pregel_pull, node")

    def ids(self) -> list[str]:
        return [found.checkpoint["id"] for found in self.saver.list({"configurable": {"thread_id": "t"}})]


@pytest.fixture
def two(local: Savers) -> Two:
    return Two(local.open())


def test_a_checkpoint_waits_for_the_writes_of_the_node_that_ran(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PATIENCE", DEADLINE)
    put = threading.Thread(target=two.put_next)
    put.start()
    # Whatever happens while it waits, it is not stored before they are.
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert two.ids() == ["1"]
    two.put_writes()
    put.join(DEADLINE)
    assert not put.is_alive()
    assert two.ids() == ["2", "1"]


@pytest.mark.parametrize(("step", "source"), [(1, "input"), (1, "update"), (2, "loop")])
def test_a_checkpoint_that_is_not_the_next_of_a_run_waits_for_none(
    two: Two, monkeypatch: pytest.MonkeyPatch, step: int, source: str
) -> None:
    monkeypatch.setattr(ordering, "_PATIENCE", DEADLINE)
    began = time.monotonic()
    two.put_next(step, source)
    assert time.monotonic() - began < DEADLINE
    assert two.ids() == ["2", "1"]


def test_writes_that_never_come_do_not_hold_a_checkpoint_back(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PATIENCE", 0.02)
    two.put_next()
    assert two.ids() == ["2", "1"]


def test_writes_that_are_there_already_are_not_waited_for(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_PATIENCE", DEADLINE)
    two.put_writes()
    began = time.monotonic()
    two.put_next()
    assert time.monotonic() - began < DEADLINE


def test_a_checkpoint_waits_for_each_task_that_was_sent_for(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    """No version says that such a task has run: the checkpoint before says how many there are."""
    monkeypatch.setattr(ordering, "_PATIENCE", DEADLINE)
    saver = local.open()
    first = empty_checkpoint()
    first["id"] = "1"
    first["channel_values"] = {TASKS: [Send("node", 1), Send("node", 2)]}
    first["channel_versions"] = {TASKS: 1}
    start: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    config = saver.put(start, first, {"source": "loop", "step": 0}, {TASKS: 1})
    second: Checkpoint = {**empty_checkpoint(), "id": "2"}
    put = threading.Thread(target=saver.put, args=(config, second, {"source": "loop", "step": 1}, {}))
    put.start()
    for number in range(2):
        found = saver.get_tuple(start)
        assert found is not None
        assert found.checkpoint["id"] == "1"
        saver.put_writes(config, [("a", number)], f"task-{number}", f"~__pregel_push, {number:010}")
    put.join(DEADLINE)
    assert not put.is_alive()
    assert [one.checkpoint["id"] for one in saver.list(start)] == ["2", "1"]
