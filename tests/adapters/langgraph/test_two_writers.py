"""Two writers of one thread: an input that was taken is on the tip, for good; who came too late gets Conflict."""

from __future__ import annotations

import asyncio
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.children import CONFIG, answering, ask, contend, processes
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, checkpoint, config, numbers, version
from tests.adapters.langgraph.playing import Player
from tests.selection import every_store, tries
from tests.waiting import DEADLINE

ROUNDS = tries(20, 4)
DURABILITIES = ["sync", "async", "exit"]


def tip(savers: Savers) -> list[str]:
    """The messages of the latest state, as a process sees it that had no part in it."""
    values = answering(savers.open()).get_state(CONFIG).values
    return [message.id for message in values.get("messages", [])]


def kept(names: list[str], on: list[str]) -> None:
    """Each input that was taken is on the tip, and so is the reply to it."""
    assert [name for name in names if name not in on] == []
    assert [name for name in names if f"reply-{name}" not in on] == []


@pytest.mark.parametrize("durability", DURABILITIES)
def test_many_inputs_of_two_savers(savers: Savers, durability: str) -> None:
    together = threading.Barrier(2)

    def work(name: str) -> list[str]:
        graph = answering(savers.open())
        taken = []
        for number in range(ROUNDS):
            together.wait(DEADLINE)
            if ask(graph, f"{name}-{number}", durability):
                taken.append(f"{name}-{number}")
        return taken

    with ThreadPoolExecutor(2) as threads:
        left, right = threads.map(work, ["left", "right"])

    kept([*left, *right], tip(savers))
    assert left + right, "nobody got anything done"


@pytest.mark.parametrize("kind_of_clone", ["same", "copy"])
def test_many_inputs_of_two_tasks_on_one_saver(savers: Savers, kind_of_clone: str) -> None:
    saver = savers.open()
    graph = [answering(saver), answering(copy.copy(saver) if kind_of_clone == "copy" else saver)]

    async def one(at: int, number: int) -> str | None:
        name = f"{at}-{number}"
        try:
            await graph[at].ainvoke({"messages": [HumanMessage("?", id=name)]}, CONFIG, durability="async")
        except holdfast.Conflict:
            return None
        return name

    async def work() -> list[str]:
        taken: list[str | None] = []
        for number in range(ROUNDS):
            taken += await asyncio.gather(one(0, number), one(1, number))
        return [name for name in taken if name is not None]

    taken = asyncio.run(work())
    kept(taken, tip(savers))
    assert taken


@every_store("two writers meet in the store")
@pytest.mark.parametrize("durability", DURABILITIES)
def test_many_inputs_of_two_processes(lasting: Savers, durability: str) -> None:
    context = processes()
    told = context.Queue()
    together = context.Barrier(2)
    work = [
        context.Process(
            target=contend, args=(lasting.url, lasting.namespace, name, ROUNDS, durability, together, told), daemon=True
        )
        for name in ("left", "right")
    ]
    for process in work:
        process.start()
    taken = told.get(timeout=DEADLINE) + told.get(timeout=DEADLINE)
    for process in work:
        process.join(DEADLINE)

    assert [process.exitcode for process in work] == [0, 0]
    kept(taken, tip(lasting))
    assert taken


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("shared", [False, True])
def test_who_is_overtaken_in_the_middle_of_a_step_is_told(savers: Savers, durability: str, shared: bool) -> None:
    saver = savers.open()
    other = answering(saver if shared else savers.open())
    taken: list[str] = []

    def overtake(name: str) -> None:
        # What the slow one stores in the background may come between; not for ever.
        if name == "slow" and any(ask(other, "fast", durability) for _ in range(100)):
            taken.append("fast")

    graph = answering(saver, overtake)
    assert ask(graph, "before", durability)

    assert not ask(graph, "slow", durability)

    assert taken == ["fast"]
    kept(["before", "fast"], tip(savers))
    assert "reply-slow" not in tip(savers)
    assert ask(graph, "after", durability)
    kept(["before", "fast", "after"], tip(savers))


def test_who_lost_before_his_first_checkpoint_leaves_none(savers: Savers) -> None:
    slow, fast = (Face(savers.open(), is_async=False) for _ in range(2))
    slow.put(1, {"a": 1})
    slow.get()
    fast.get()

    fast.put(2, {"a": "fast"}, parent=1)
    with pytest.raises(holdfast.Conflict):
        slow.put(3, {"a": "slow"}, parent=1)

    for face in (slow, fast):
        assert numbers(face.list(config())) == [2, 1]
        assert face.values() == {"a": "fast"}
        assert face.get_raw(config(number=3)) is None


def test_a_thread_that_both_found_empty_is_started_by_one(savers: Savers) -> None:
    slow, fast = (Face(savers.open(), is_async=False) for _ in range(2))
    assert slow.get_raw(config()) is None
    assert fast.get_raw(config()) is None

    fast.put(1, {"a": "fast"})
    with pytest.raises(holdfast.Conflict):
        slow.put(2, {"a": "slow"})

    assert slow.values() == {"a": "fast"}
    assert numbers(fast.list(config())) == [1]


def test_who_looked_again_goes_on(savers: Savers) -> None:
    slow, fast = (Face(savers.open(), is_async=False) for _ in range(2))
    slow.put(1)
    slow.get()
    fast.get()
    fast.put(2, {"a": "fast"}, parent=1)
    with pytest.raises(holdfast.Conflict):
        slow.put(3, parent=1)

    assert numbers([slow.get()]) == [2]
    slow.put(4, {"a": "slow"}, parent=2)

    assert fast.values() == {"a": "slow"}
    assert numbers(fast.list(config())) == [4, 2, 1]


def test_who_is_overtaken_between_two_checkpoints_is_told(savers: Savers) -> None:
    """The tip that he continues is one that he put, and that another has continued since."""
    slow, fast = (Face(savers.open(), is_async=False) for _ in range(2))
    slow.get_raw(config())
    slow.put(1, {"a": 1})
    fast.get()
    fast.put(2, {"a": "fast"}, parent=1)

    with pytest.raises(holdfast.Conflict):
        slow.put(3, {"a": "slow"}, parent=1)

    assert slow.values() == {"a": "fast"}


def test_a_look_at_a_checkpoint_by_its_id_does_not_turn_a_run_into_a_fork(savers: Savers) -> None:
    """A page that shows the checkpoint on which a run is at work, say: in the same process, by the same saver."""
    saver = savers.open()
    other = answering(savers.open())
    looking = answering(saver)

    def overtake(name: str) -> None:
        if name == "slow":
            looking.get_state(looking.get_state(CONFIG).config)
            assert ask(other, "fast", "sync")

    graph = answering(saver, overtake)

    assert not ask(graph, "slow", "sync")

    kept(["fast"], tip(savers))


def test_writes_of_who_lost_do_not_change_the_tip(savers: Savers) -> None:
    slow, fast = (Face(savers.open(), is_async=False) for _ in range(2))
    slow.put(1)
    slow.get()
    fast.get()
    fast.put(2, {"a": "fast"}, parent=1)

    slow.write(1, [("a", "late")])

    assert slow.values() == {"a": "fast"}
    assert slow.writes() == []


def test_a_fork_that_was_asked_for_by_its_id_is_no_conflict(savers: Savers) -> None:
    one, other = (Player(graphs.steps(savers.open()), is_async=False, durability="sync") for _ in range(2))
    one.invoke({"number": 1})
    other.invoke({"number": 2})
    # What is forked now was the latest once, for this saver too.
    past = one.history()[3]
    assert one.state().values["number"] == 2

    one.invoke({"number": 3}, past.config)

    assert other.state().values["log"][-3:] == ["one of 3", "two of 3", "three of 3"]
    other.invoke({"number": 4})
    assert one.state().values["number"] == 4


@pytest.mark.parametrize("is_async", [False, True])
def test_what_was_the_latest_for_this_saver_may_be_forked_by_its_id(savers: Savers, is_async: bool) -> None:
    player = Player(graphs.steps(savers.open()), is_async=is_async, durability="sync")
    player.invoke({"number": 1})
    past = player.state()  # the latest, handed out as such
    player.invoke({"number": 2})

    player.invoke({"number": 3}, past.config)

    assert player.state().values["log"] == [
        f"{name} of {number}" for number in (1, 3) for name in ("one", "two", "three")
    ]
    assert len(player.history()) == 15


@pytest.mark.parametrize("is_async", [False, True])
def test_an_old_checkpoint_may_be_updated(savers: Savers, is_async: bool) -> None:
    player = Player(graphs.steps(savers.open()), is_async=is_async, durability="sync")
    player.invoke({"number": 1})
    past = player.state()
    player.invoke({"number": 2})

    branch = player.update({"log": ["by hand"]}, past.config, as_node="two")
    player.invoke(None, branch)

    assert player.state().values["log"] == ["one of 1", "two of 1", "three of 1", "by hand", "three of 1"]


def test_an_update_of_what_is_the_latest_no_more_is_a_conflict(savers: Savers) -> None:
    """`update_state` without an id means the latest; so does an invoke."""
    slow, fast = (Face(savers.open(), is_async=False) for _ in range(2))
    slow.put(1)
    latest = slow.get()
    fast.put(2, parent=1)

    with pytest.raises(holdfast.Conflict):
        slow.put_raw(latest.config, checkpoint(3, {}, {}), {"source": "update", "step": 2, "parents": {}}, {})


def test_two_answers_to_one_question(savers: Savers) -> None:
    """Whoever answers first is heard; the other is told, or finds that nothing waits any more."""
    one, other = (Player(graphs.asking(savers.open()), is_async=False, durability="sync") for _ in range(2))
    one.invoke({"number": 1})
    first, second = one.state().interrupts
    one.invoke(Command(resume={first.id: "a", second.id: "b"}))
    waiting = other.state().interrupts
    assert [question.value for question in waiting] == ["first"]
    one.invoke(Command(resume="of one"))

    other.invoke(Command(resume="of the other"))

    assert one.state().values["log"][-1] == "of one and of the other"


def test_threads_do_not_conflict_with_each_other(savers: Savers) -> None:
    graph = answering(savers.open())

    def work(thread: str) -> int:
        told: dict[str, Any] = {"configurable": {"thread_id": thread}}
        for number in range(5):
            graph.invoke({"messages": [HumanMessage("?", id=f"{number}")]}, told)
        return len(graph.get_state(told).values["messages"])

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(work, "abcd")] == [10] * 4


def test_who_is_overtaken_is_told_although_the_cache_was_full_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with HoldfastSaver(path, base_bytes=100_000) as saver, HoldfastSaver(path) as other:
        face, told = Face(saver, is_async=False), {"caller": "mine"}
        face.put(1, {"a": "x" * 50_000})
        assert saver.get_tuple({**config(), "metadata": told}) is not None
        for number in range(4):
            face.put(1, {"a": "x" * 90_000}, thread=f"{number}")
        Face(other, is_async=False).put(2, {"a": 2}, parent=1)

        with pytest.raises(holdfast.Conflict, match="another writer has continued"):
            saver.put({**config(number=1), "metadata": told}, checkpoint(3, {"a": 3}, {"a": version(3)}), {}, {})
