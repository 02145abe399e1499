"""Questions of children: who is to be answered, and that nobody is left asleep or woken for nothing."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Cancelled, Conflict, EveryN, Holdfast, Run
from holdfast.errors import AskedByChild
from holdfast.runs.lease import posts
from holdfast.stores.contract import Store
from holdfast.threads.scan import thread_named
from tests.runs.conftest import World
from tests.runs.test_children import status_of
from tests.waiting import DEADLINE


def asks(run: Run, *below: str, name: str = "approve") -> Any:
    """A run whose child, or whose child's child, asks."""
    if not below:
        return run.wait(name)
    with run.child(below[0], start={}) as child:
        if child.status != "completed":
            child.finish(asks(child, *below[1:], name=name))
    return child.result


@pytest.mark.parametrize(("below", "child"), [(("a",), "p/a"), (("a", "b"), "p/a/b")])
def test_whoever_answers_a_parent_is_told_which_child_asks(world: World, below: tuple[str, ...], child: str) -> None:
    hf = world.open()
    with world.running("p", hf, start={}, ends="waiting") as run:
        asks(run, *below)
    before = hf.effects("p")
    with pytest.raises(AskedByChild, match=f"'approve' is asked by '{child}'") as refused:
        hf.answer("p", "approve", "yes")
    assert refused.value.thread == child
    assert isinstance(refused.value, Conflict)
    assert copy.copy(refused.value).thread == child
    assert hf.effects("p") == before, "nothing was stored"
    hf.answer(refused.value.thread, "approve", "yes")
    with world.running("p", hf, ends="completed") as run:
        run.finish(asks(run, *below))
    assert run.result == "yes"


def test_an_early_answer_to_a_parent_counts_while_no_child_asks_that(world: World) -> None:
    hf = world.open()
    with world.running("p", hf, start={}, ends="waiting") as run:
        asks(run, "a", name="how many")
    hf.answer("p", "approve", "yes", early=True)
    hf.answer("p", "approve", "yes", early=True)  # again: the same changes nothing
    hf.answer("p/a", "how many", 3)
    with world.running("p", hf, ends="completed") as run:
        run.finish([asks(run, "a", name="how many"), run.wait("approve")])
    assert run.result == [3, "yes"]


def test_an_early_answer_that_came_before_its_child_asked_is_the_parent_s(world: World) -> None:
    hf = world.open()
    with world.running("p", hf, start={}):
        hf.answer("p", "approve", "to the parent", early=True)
    with world.running("p", hf, ends="waiting") as run:
        asks(run, "a")
    hf.answer("p", "approve", "to the parent", early=True)  # said again
    hf.answer("p/a", "approve", "to the child")
    with world.running("p", hf, ends="completed") as run:
        run.finish([asks(run, "a"), run.wait("approve")])
    assert run.result == ["to the child", "to the parent"]


def test_what_the_parent_asks_itself_is_answered_there(world: World) -> None:
    hf = world.open()

    def work(run: Run) -> Any:
        first = run.wait("approve")
        run.save()
        return [first, asks(run, "a")]

    with world.running("p", hf, start={}, ends="waiting") as run:
        work(run)
    hf.answer("p", "approve", "yes")
    with world.running("p", hf, ends="waiting") as run:
        work(run)
    hf.answer("p", "approve", "yes")  # sent again, by somebody who did not hear
    with pytest.raises(AskedByChild):
        hf.answer("p", "approve", "no")  # another: it cannot be meant for what was answered


@pytest.mark.parametrize("how", ["rewound", "another turn", "closed"])
def test_a_child_that_nobody_goes_on_with_is_in_nobody_s_way(world: World, how: str) -> None:
    hf = world.open()
    with world.running("p", hf, start={}, turn="1") as run:
        run.save()
    with world.running("p", hf, ends="waiting") as run:
        asks(run, "a")
    assert status_of(hf, "p/a") == "waiting"
    if how == "rewound":
        hf.thread("p").rewind("@0")
    elif how == "closed":
        with world.running("p", hf, policy=EveryN(1)) as run:
            steps = run.steps()
            next(steps)
            next(steps)  # a save alone would leave the step open
    else:
        hf.cancel("p", "enough")
        with world.running("p", hf, turn="2"):
            pass
    hf.answer("p", "approve", "for the parent", early=True)
    with world.running("p", hf, ends="completed") as run:
        run.finish(run.wait("approve"))
    assert run.result == "for the parent"


def waits_for_both(run: Run) -> Any:
    """A child that asks while a call is under way that gets into doubt: the call is what its parent waits for."""
    started = threading.Event()

    def ask() -> Any:
        assert started.wait(DEADLINE)
        return asks(run, "c")

    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(ask)

        def fails() -> None:
            started.set()
            child.exception(DEADLINE)  # by then it has asked
            raise OSError

        try:
            run.tool(fails, {}, key="k")
        finally:
            started.set()
        return child.result()


def parent_of(hf: Holdfast) -> tuple[str, int]:
    store = hf.context.store
    thread = thread_named(store, "p")
    run = None if thread is None else store.run(thread.position.thread)
    assert run is not None
    return run.status, run.fence


def test_a_parent_that_waits_for_something_else_goes_on_with_its_child_after_that(world: World) -> None:
    hf = world.open()
    hf.submit("h", "p", start={})
    hf.worker({"h": waits_for_both}).run(until_idle=True)
    assert {(each.thread, each.about) for each in hf.waiting()} == {("p", "in doubt"), ("p/c", "wait")}
    hf.answer("p/c", "approve", "yes")
    hf.worker({"h": waits_for_both}).run(until_idle=True)
    assert parent_of(hf)[0] == "waiting", "it has its own question"
    [question] = hf.waiting()
    hf.settle("p", question.effect, holdfast.Happened())
    hf.worker({"h": waits_for_both}).run(until_idle=True)
    assert (parent_of(hf)[0], status_of(hf, "p/c")) == ("completed", "completed")


def test_nobody_above_a_parent_with_a_question_of_its_own_is_woken_for_nothing(world: World) -> None:
    hf = world.open()
    hf.submit("h", "p", start={})
    entered: list[int] = []

    def handler(run: Run) -> Any:
        entered.append(run.attempt)
        with run.child("mid", start={}) as mid:
            if mid.status != "completed":
                mid.finish(waits_for_both(mid))
        return mid.result

    worker = hf.worker({"h": handler})
    worker.run(until_idle=True)
    hf.answer("p/mid/c", "approve", "yes")
    assert status_of(hf, "p/mid/c") == "queued"
    before = parent_of(hf)
    for _ in range(3):
        worker.run(until_idle=True)
    assert (parent_of(hf), len(entered)) == (before, 1)
    [question] = hf.waiting()
    hf.settle("p/mid", question.effect, holdfast.Happened())
    worker.run(until_idle=True)
    assert (parent_of(hf)[0], len(entered)) == ("completed", 2)


def test_a_parent_hears_that_the_child_it_waits_for_was_cancelled(world: World) -> None:
    hf = world.open()
    hf.submit("h", "p", start={})

    def handler(run: Run) -> Any:
        try:
            return asks(run, "a", "b")
        except Cancelled as error:
            return str(error)

    hf.worker({"h": handler}).run(until_idle=True)
    assert (parent_of(hf)[0], status_of(hf, "p/a/b")) == ("waiting", "waiting")
    hf.cancel("p/a/b", "no need")
    hf.cancel("p/a/b", "no need")
    hf.worker({"h": handler}).run(until_idle=True)
    assert (parent_of(hf)[0], status_of(hf, "p/a/b")) == ("completed", "halted")
    with world.running("p", hf, ends="completed") as run:
        assert run.result.startswith("the run of thread 'p/a/b' was cancelled: no need.")


def test_a_child_that_nobody_waits_for_is_halted_at_once(world: World) -> None:
    hf = world.open()
    with world.running("p", hf, start={}, ends="waiting") as run:
        asks(run, "a")
    with world.running("p", hf) as run:
        run.save()
    hf.cancel("p/a", "no need")
    assert status_of(hf, "p/a") == "halted"


def test_a_child_of_another_turn_is_halted_at_once_whatever_its_parent_waits_for(world: World) -> None:
    hf = world.open()
    with world.running("p", hf, start={}, turn="1", ends="waiting") as run:
        asks(run, "a")
    with world.running("p", hf, turn="1", ends="completed") as run:
        run.finish()
    with world.running("p", hf, turn="2", ends="waiting") as run:
        asks(run, "b")
    before = parent_of(hf)
    hf.cancel("p/a", "of another turn")
    assert status_of(hf, "p/a") == "halted"
    assert parent_of(hf) == before


def test_a_cancellation_while_a_child_is_created_halts_the_child(world: World) -> None:
    """Another process cancels the parent after the entry of the child was written, and before its thread exists."""
    called: list[str] = []

    class Raced:
        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def commit(self, made: Any) -> Any:
            if called == ["first"]:
                called.clear()
                world.open().cancel("t", "stop")
                posts.at = -1.0  # it was another process
            return self._store.commit(made)

    with world.failing("t", holdfast.Cancelled, world.open(store=Raced), start={}) as run:
        run.model(called.append, "first")
        with run.child("c", start={}) as child:
            child.model(called.append, "second")
            child.finish()
    assert not called
    assert [info.status for info in world.open().threads()] == ["halted", "halted"]
