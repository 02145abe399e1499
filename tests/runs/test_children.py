"""Children: runs of their own that belong to another, and are resumed, cancelled and waited for with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Cancelled, Holdfast, HoldfastError, InvalidArgument, Run
from holdfast.runs.claim import ClaimRequest
from holdfast.threads.scan import thread_named
from tests.runs.conftest import World
from tests.selection import every_store
from tests.waiting import DEADLINE


def status_of(hf: Holdfast, thread: str) -> str:
    [info] = [info for info in hf.threads() if info.name == thread]
    return info.status


class Asked:
    """Models, and how often each was asked."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def ask(self, name: str) -> str:
        self.names.append(name)
        return f"reply to {name}"


def research(child: Run, asked: Asked, name: str) -> Any:
    """A child's whole work; its result."""
    if child.status != "completed":
        reply = child.model(asked.ask, name)
        child.state["notes"].append(reply)
        child.finish(reply)
    return child.result


def test_a_child_has_a_thread_of_its_own_and_its_result_is_journaled(world: World) -> None:
    asked = Asked()
    hf = world.open()
    with world.running("p", hf, start={}) as run, run.child("a", start={"notes": []}) as child:
        assert (child.thread, child.fresh) == ("p/a", True)
        assert research(child, asked, "a") == "reply to a"
    assert status_of(hf, "p/a") == "completed"
    [entry] = hf.effects("p")
    assert (entry.effect, entry.name, entry.status, entry.result) == ("child", "p/a", "done", "reply to a")
    latest = hf.thread("p/a").latest()
    assert latest is not None
    assert latest.state == {"notes": ["reply to a"]}


def test_a_child_is_resumed_with_its_parent(world: World) -> None:
    asked = Asked()
    hf = world.open()

    def work(run: Run, *, dies: bool) -> None:
        with run.child("a", start={"notes": []}) as child:
            if child.status != "completed":
                child.model(asked.ask, "first")
                child.save()
                child.model(asked.ask, "second")
                if dies:
                    world.kill(child)
                child.finish("done")
            assert child.result == "done"

    with world.dying("p", hf, start={}) as run:
        work(run, dies=True)
    with world.running("p", hf) as run, run.child("a", start={"notes": []}) as child:
        assert (child.resumed, child.step) == (True, 1)
        assert child.model(asked.ask, "first") == "reply to first"
        child.save()
        assert child.model(asked.ask, "second") == "reply to second"
        child.finish("done")
    assert asked.names == ["first", "second"]
    with world.running("p", hf) as run:
        work(run, dies=False)
    assert asked.names == ["first", "second"]


def test_a_child_is_claimed_only_through_its_parent(world: World) -> None:
    hf = world.open()
    with world.running("p", hf, start={}) as run, run.child("a", start={}) as child:
        child.save()
    with pytest.raises(InvalidArgument, match="child of 'p'"):
        hf.run("p/a").__enter__()
    with pytest.raises(holdfast.Conflict):
        hf.submit("h", "p/a", start={"n": 1})
    with world.running("q/a", hf, start={}):
        pass
    with world.running("q", hf, start={}) as run, pytest.raises(InvalidArgument, match="cannot be a child"):
        run.child("a", start={}).__enter__()


@every_store("threads use one store at once")
def test_children_beside_each_other(world: World) -> None:
    asked = Asked()
    hf = world.open()

    def work(run: Run) -> list[Any]:
        def one(name: str) -> Any:
            with run.child(name, start={"notes": []}) as child:
                return research(child, asked, name)

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(one, ["a", "b", "c", "d"]))

    with world.dying("p", hf, start={}) as run:
        results = work(run)
    with world.running("p", hf) as run:
        assert work(run) == results == [f"reply to {name}" for name in "abcd"]
        run.save()
    assert sorted(asked.names) == ["a", "b", "c", "d"]


def test_the_same_child_twice_at_once_is_refused(world: World) -> None:
    with world.running("p", start={}) as run, run.child("a", start={}):
        with pytest.raises(InvalidArgument, match=r"run\.child with the same name"):
            run.child("a", start={}).__enter__()
        with pytest.raises(InvalidArgument, match="under way"):
            run.save()


def test_in_a_later_step_a_child_goes_on_from_its_head(world: World) -> None:
    asked = Asked()
    hf = world.open()
    with world.running("p", hf, start={}) as run:
        for step in run.steps():
            if step == 3:
                break
            with run.child("a", start={"notes": []}) as child:
                assert child.fresh
                research(child, asked, str(step))
    latest = hf.thread("p/a").latest()
    assert latest is not None
    assert latest.state == {"notes": ["reply to 1", "reply to 2"]}


def test_a_rewound_parent_has_other_children(world: World) -> None:
    asked = Asked()
    hf = world.open()
    with world.running("p", hf, start={}) as run:
        with run.child("a", start={"notes": []}) as child:
            research(child, asked, "first")
        run.save()
    hf.thread("p").rewind("@0")
    with world.running("p", hf) as run, run.child("a", start={"notes": []}) as child:
        assert child.thread == "p/a~1"
        research(child, asked, "second")
    assert asked.names == ["first", "second"]


def test_a_child_that_fails_is_its_parents_to_decide(world: World) -> None:
    hf = world.open()
    with world.running("p", hf, start={}) as run:
        with pytest.raises(ZeroDivisionError):
            fail(run)
        assert status_of(hf, "p/a") == "failed"
        with run.child("a", start={}) as child:
            assert child.resumed
            child.finish("at last")
    with world.failing("q", ZeroDivisionError, hf, start={}) as run:
        fail(run)
    assert status_of(hf, "q") == "failed"


def fail(run: Run) -> None:
    with run.child("a", start={}):
        raise ZeroDivisionError


def test_the_failure_of_a_child_that_the_parent_went_on_from_is_raised_again(world: World) -> None:
    told: list[str] = []
    hf = world.open()

    def tell(run: Run, text: str) -> None:
        def say(text: str) -> None:
            told.append(text)

        run.tool(holdfast.tool(effect="irreversible", name="tell")(say), {"text": text})

    def work(run: Run, *, fails: bool) -> None:
        try:
            with run.child("a", start={}) as child:
                if fails:
                    raise ZeroDivisionError("no")
                child.finish("well")
            tell(run, "well")
        except ZeroDivisionError:
            tell(run, "sorry")

    with world.dying("p", hf, start={}) as run:
        work(run, fails=True)
    with world.running("p", hf) as run:
        work(run, fails=False)
        with run.child("a", start={}) as child:
            child.finish("at last")
    assert told == ["sorry"]
    assert [(effect.effect, effect.status) for effect in hf.effects("p")] == [
        ("child", "failed"),
        ("irreversible", "done"),
        ("child", "done"),
    ]


def test_a_failure_of_a_child_that_nobody_went_on_from_is_tried_again(world: World) -> None:
    hf = world.open()
    with world.failing("p", ZeroDivisionError, hf, start={}) as run:
        fail(run)
    with world.running("p", hf) as run, run.child("a", start={}) as child:
        child.finish("at last")


def test_a_child_that_completed_is_answered_from_the_journal_of_its_parent(world: World) -> None:
    asked = Asked()
    hf = world.open()
    with world.dying("p", hf, start={}) as run, run.child("a", start={"notes": []}) as child:
        research(child, asked, "a")
    hf.thread("p/a").drop()
    with world.running("p", hf) as run, run.child("a", start={"notes": []}) as child:
        assert (child.status, research(child, asked, "a")) == ("completed", "reply to a")
    assert asked.names == ["a"]


def test_a_child_of_another_turn_is_another(world: World) -> None:
    asked = Asked()
    hf = world.open()
    with world.running("p", hf, start={}, turn="one", ends="halted") as run:
        with run.child("a", start={"notes": []}) as child:
            research(child, asked, "one")
        run.halt("enough")
    with world.running("p", hf, turn="two", ends="halted") as run:
        with run.child("a", start={"notes": []}) as child:
            assert child.fresh
            child.model(asked.ask, "two")
            child.save()
        run.halt("enough")
    with world.running("p", hf, turn="three") as run, run.child("a", start={"notes": []}) as child:
        assert child.fresh, "what the turn before did not finish is not this one's"
        assert research(child, asked, "three") == "reply to three"
    assert asked.names == ["one", "two", "three"]


def test_the_children_of_a_parent_that_was_dropped_are_not_another_s(world: World) -> None:
    hf = world.open()
    with world.running("p", hf, start={}) as run, run.child("a", start={"who": "old"}) as child:
        child.finish("old")
    hf.thread("p").drop()
    with world.running("p", hf, start={}) as run:
        with pytest.raises(holdfast.Conflict, match="Drop the child too"):
            run.child("a", start={"who": "new"}).__enter__()
        hf.thread("p/a").drop()
        with run.child("a", start={"who": "new"}) as child:
            assert child.state == {"who": "new"}


@pytest.mark.parametrize("other", [lambda child: child.sleep(3600), lambda child: child.wait("approve")])
@pytest.mark.parametrize("order", ["sleeper first", "sleeper last"])
def test_a_parent_wakes_with_the_first_of_its_children(world: World, other: Callable[[Run], Any], order: str) -> None:
    hf = world.open()
    started = threading.Barrier(2)
    has_parked = threading.Event()

    def one(run: Run, work: Callable[[Run], Any], name: str, *, is_last: bool) -> None:
        try:
            with run.child(name, start={}) as child:
                started.wait(DEADLINE)
                if is_last:
                    assert has_parked.wait(DEADLINE)
                work(child)
        finally:
            has_parked.set()

    with world.running("p", hf, start={}, ends="waiting") as run, ThreadPoolExecutor(2) as pool:
        is_last = order == "sleeper last"
        sleeper = pool.submit(one, run, lambda child: child.sleep(60), "sleeper", is_last=is_last)
        pool.submit(one, run, other, "other", is_last=not is_last)
        sleeper.result()
    store = hf.context.store
    thread = thread_named(store, "p")
    parent = None if thread is None else store.run(thread.position.thread)
    assert parent is not None
    assert parent.wake_at == world.clock().now + 60_000


def test_a_child_that_begins_while_its_parent_is_cancelled_is_cancelled_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = world.open()
    asked = Asked()
    with world.failing("p", Cancelled, hf, start={}) as run:
        claims = ClaimRequest.enter

        def cancelled_before(request: ClaimRequest, **options: Any) -> Any:
            hf.cancel("p", "stop")
            return claims(request, **options)

        monkeypatch.setattr(ClaimRequest, "enter", cancelled_before)
        with run.child("a", start={"notes": []}) as child:
            research(child, asked, "a")
    assert (status_of(hf, "p"), status_of(hf, "p/a"), asked.names) == ("halted", "halted", [])


def test_an_async_child_reads_nothing_on_the_event_loop_before_it_is_entered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = world.open()

    async def main() -> None:
        async with hf.aio.run("p", start={}) as run:
            with monkeypatch.context() as patch:
                for verb in ("head", "entries", "walk", "run"):
                    patch.setattr(hf.context.store, verb, None)
                child = run.child("a", start={})
            async with child as entered:
                await entered.finish("done")

    asyncio.run(main())
    assert status_of(hf, "p/a") == "completed"


def test_a_parent_waits_while_its_child_does(world: World) -> None:
    hf = world.open()
    hf.submit("h", "p", start={})
    answers: list[Any] = []

    def handler(run: Run) -> str:
        with run.child("a", start={}) as child:
            if child.status != "completed":
                answers.append(child.wait("approve", "may I?"))
                child.finish(answers[-1])
        return str(child.result)

    hf.worker({"h": handler}).run(until_idle=True)
    assert (status_of(hf, "p"), status_of(hf, "p/a"), answers) == ("waiting", "waiting", [])
    [question] = hf.waiting()
    assert (question.thread, question.name) == ("p/a", "approve")
    hf.answer("p/a", "approve", "yes")
    assert status_of(hf, "p") == "queued"
    hf.worker({"h": handler}).run(until_idle=True)
    assert (status_of(hf, "p"), status_of(hf, "p/a"), answers) == ("completed", "completed", ["yes"])


def test_who_answers_a_child_and_dies_does_not_leave_its_parent_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = world.open()
    hf.submit("h", "p", start={})

    def handler(run: Run) -> Any:
        with run.child("a", start={}) as child:
            if child.status != "completed":
                child.finish(child.wait("approve"))
        return child.result

    hf.worker({"h": handler}).run(until_idle=True)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.runs.waits.wake_parents", lambda *_: None)
        hf.answer("p/a", "approve", "yes")
    assert status_of(hf, "p") == "waiting"
    hf.worker({"h": handler}).run(until_idle=True)
    hf.worker({"h": handler}).run(until_idle=True)
    assert status_of(hf, "p") == "completed"


def test_a_sleeping_child_wakes_its_parent(world: World) -> None:
    hf = world.open()
    hf.submit("h", "p", start={})

    def handler(run: Run) -> None:
        with run.child("a", start={}) as child:
            if child.status != "completed":
                child.sleep(60)
                child.finish()

    hf.worker({"h": handler}).run(until_idle=True)
    assert status_of(hf, "p") == "waiting"
    world.pass_time(61)
    hf.worker({"h": handler}).run(until_idle=True)
    assert (status_of(hf, "p"), status_of(hf, "p/a")) == ("completed", "completed")


def test_children_are_cancelled_with_their_parent(world: World) -> None:
    hf = world.open()
    with world.failing("p", Cancelled, hf, start={}) as run, run.child("a", start={}) as child:
        hf.cancel("p", "stop")
        child.save()
    assert (status_of(hf, "p"), status_of(hf, "p/a")) == ("halted", "halted")
    with world.running("p", hf) as run, run.child("a", start={}) as child:
        child.finish("after all")


def test_a_fork_s_children_ask_too(world: World) -> None:
    charged: list[int] = []

    def charge() -> None:
        charged.append(1)

    hf = world.open(charge)
    with world.running("p", hf, start={}) as run:
        run.save()
    hf.thread("p").fork("f")
    with world.running("f", hf, ends="waiting") as run, run.child("a", start={}) as child:
        child.tool("charge", {})
    assert charged == []
    assert [question.thread for question in hf.waiting()] == ["f/a"]


def test_what_cannot_be_a_child(world: World) -> None:
    wrong: Any
    with world.running("p", start={}, ends="completed") as run:
        for wrong in ("", 5, "a/b", "a~1", None):
            with pytest.raises(InvalidArgument):
                run.child(wrong, start={})
        with pytest.raises(holdfast.NotFound):
            run.child("a").__enter__()
        run.finish()
        with pytest.raises(HoldfastError, match="completed"):
            run.child("a", start={})


def test_async_children(world: World) -> None:
    asked = Asked()
    hf = world.open()

    async def one(run: holdfast.AsyncRun, name: str) -> Any:
        async with run.child(name, start={"notes": []}) as child:
            if child.status != "completed":
                reply = await child.model(asked.ask, name)
                await child.finish(reply)
        return child.result

    async def main() -> None:
        async with hf.aio.run("p", start={}) as run:
            results = await asyncio.gather(*(one(run, name) for name in "abc"))
        assert results == [f"reply to {name}" for name in "abc"]

    for _ in range(2):
        asyncio.run(main())
    assert sorted(asked.names) == ["a", "b", "c"]


def test_a_worker_that_drains_ends_children_too(world: World) -> None:
    hf = world.open()
    hf.submit("h", "p", start={})
    started = threading.Event()
    steps: list[int] = []

    def handler(run: Run) -> None:
        with run.child("a", start={}) as child:
            for step in child.steps():
                steps.append(step)
                started.set()
                worker.stop()

    worker = hf.worker({"h": handler})
    worker.run()
    assert (steps, status_of(hf, "p"), status_of(hf, "p/a")) == ([1], "queued", "released")
