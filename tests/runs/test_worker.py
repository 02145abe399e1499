"""Workers: queued, interrupted and answered runs are claimed, oldest first, whatever happens to one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Holdfast, InvalidArgument, Run
from holdfast.threads.scan import thread_named
from tests.cases import for_each
from tests.covers import covers
from tests.runs.conftest import Crash, World
from tests.selection import every_store
from tests.waiting import DEADLINE


def status_of(world: World, thread: str) -> str:
    store = world.open().context.store
    found = thread_named(store, thread)
    assert found is not None
    run = store.run(found.position.thread)
    assert run is not None
    return run.status


def drain(world: World, handler: Callable[[Run], Any], **options: Any) -> None:
    """A worker of one handler, until there is nothing that could be claimed now."""
    world.open().worker({"h": handler}, **options).run(until_idle=True)


# -- submitting -------------------------------------------------------------------------------------------------------


@every_store("two writers meet in the store")
def test_what_is_submitted_is_run_once(world: World) -> None:
    seen: list[Any] = []

    def handler(run: Run) -> str:
        seen.append((run.state, run.resumed, run.attempt))
        return "result"

    world.open().submit("h", "t", start={"n": 1})
    drain(world, handler)
    drain(world, handler)
    assert seen == [({"n": 1}, False, 1)]
    with world.running("t", ends="completed") as run:
        assert run.result == "result"


def test_submitting_again_is_accepted_once(world: World) -> None:
    runs: list[str] = []
    hf = world.open()
    hf.submit("h", "t", start={"n": 1})
    hf.submit("h", "t", start={"n": 1})
    world.open().submit("h", "t", start={"n": 1})
    drain(world, lambda run: runs.append("ran"))
    hf.submit("h", "t", start={"n": 1})
    drain(world, lambda run: runs.append("ran"))
    assert runs == ["ran"]
    assert hf.thread("t").count() == 2


@pytest.mark.parametrize(("handler", "start"), [("h", {"n": 2}), ("h", {"n": True}), ("other", {"n": 1})])
def test_submitting_something_else_under_the_name_is_a_conflict(world: World, handler: str, start: Any) -> None:
    hf = world.open()
    hf.submit("h", "t", start={"n": 1})
    with pytest.raises(Conflict):
        hf.submit(handler, "t", start=start)
    latest = hf.thread("t").latest()
    assert latest is not None
    assert latest.state == {"n": 1}


def test_submitting_over_a_thread_without_a_run_is_a_conflict(world: World) -> None:
    hf = world.open()
    hf.thread("t").save({"n": 1})
    with pytest.raises(Conflict):
        hf.submit("h", "t", start={"n": 1})


@pytest.mark.parametrize(
    "wrong", [{"handler": ""}, {"handler": 5}, {"version": 5}, {"version": ""}, {"start": object()}]
)
def test_what_cannot_be_submitted(hf: Holdfast, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        hf.submit(**{"handler": "h", "thread": "t", "start": {}, **wrong})
    assert list(hf.threads()) == []


@for_each(
    ("handlers", "options"),
    [
        ({}, {}),
        (None, {}),
        ([("h", dict)], {}),
        ({"h": "text"}, {}),
        ({5: dict}, {}),
        ({"h": dict}, {"concurrency": 0}),
        ({"h": dict}, {"concurrency": 1.5}),
        ({"h": dict}, {"attempts": 0}),
        ({"h": dict}, {"attempts": "5"}),
        ({"h": dict}, {"lease": 0}),
        ({"h": dict}, {"lease": "30"}),
        ({"h": dict}, {"versions": "v1"}),
        ({"h": dict}, {"versions": [1]}),
    ],
)
def test_what_a_worker_cannot_be_given(hf: Holdfast, handlers: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        hf.worker(handlers, **options)


# -- what is claimed --------------------------------------------------------------------------------------------------


def test_the_oldest_run_comes_first(world: World) -> None:
    hf = world.open()
    names = [f"t{n}" for n in (3, 1, 4, 0, 2)]
    for name in names:
        hf.submit("h", name, start=name)
    order: list[Any] = []
    drain(world, lambda run: order.append(run.state))
    assert order == names


@every_store("each store finds runs by its own query")
def test_many_runs_are_found_page_by_page(world: World) -> None:
    hf = world.open()
    names = [f"t{n:03}" for n in range(120)]
    for name in names:
        hf.submit("other" if int(name[1:]) % 2 else "h", name, start=name)
    done: list[Any] = []
    drain(world, lambda run: done.append(run.state))
    assert done == names[::2]


def test_only_declared_handlers_and_versions_are_claimed(world: World) -> None:
    hf = world.open()
    hf.submit("h", "old", start="old", version="1")
    hf.submit("h", "new", start="new", version="2")
    hf.submit("h", "none", start="none")
    hf.submit("other", "other", start="other")
    done: list[Any] = []
    drain(world, lambda run: done.append(run.state), versions=["2"])
    assert done == ["new"]
    drain(world, lambda run: done.append(run.state), versions=[None])
    assert done == ["new", "none"]
    drain(world, lambda run: done.append(run.state))
    assert done == ["new", "none", "old"]
    assert status_of(world, "other") == "queued"


@every_store("each store keeps leases and their clock")
def test_an_interrupted_run_is_taken_over(world: World) -> None:
    replies = ["reply"]

    def model() -> str:
        return replies[-1]

    hf = world.open()
    hf.submit("h", "t", start={})
    with world.dying("t", hf, start={}) as run:
        run.model(model)
    done: list[Any] = []

    def handler(run: Run) -> None:
        replies.append("paid for twice")
        done.append((run.resumed, run.attempt, run.model(model)))

    drain(world, handler)
    assert done == [(True, 2, "reply")]


@every_store("each store keeps leases and their clock")
def test_a_run_that_is_held_is_left_alone(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})
    with world.running("t", hf, start={}):
        drain(world, lambda run: pytest.fail("two workers hold one run"))


def test_a_handler_may_end_its_run_itself(world: World) -> None:
    hf = world.open()
    for name in ("finish", "halt"):
        hf.submit("h", name, start=name)

    def handler(run: Run) -> str:
        if run.state == "finish":
            run.finish("its own")
        else:
            run.halt("why not")
        return "ignored"

    drain(world, handler)
    with world.running("finish", ends="completed") as run:
        assert run.result == "its own"
    assert status_of(world, "halt") == "halted"


@every_store("two writers meet in the store")
def test_runs_are_run_beside_each_other(world: World) -> None:
    hf = world.open()
    for n in range(3):
        hf.submit("h", f"t{n}", start=n)
    together = threading.Barrier(3, timeout=DEADLINE)
    drain(world, lambda run: together.wait() and None, concurrency=3)
    assert [status_of(world, f"t{n}") for n in range(3)] == ["completed"] * 3


# -- failure ----------------------------------------------------------------------------------------------------------


@covers("ares/LoopConfig.halt_on_consecutive_failures")
@pytest.mark.parametrize("error", [ValueError("broken"), Conflict("own"), holdfast.LeaseHeld("of another thread")])
def test_a_run_that_fails_is_tried_again_later_and_given_up_in_the_end(world: World, error: Exception) -> None:
    attempts: list[int] = []

    def handler(run: Run) -> None:
        attempts.append(run.attempt)
        raise error

    world.open().submit("h", "t", start={})
    for expected in (1, 2):
        drain(world, handler, attempts=3)
        drain(world, handler, attempts=3)  # not before its time, in whatever process
        assert len(attempts) == expected
        assert status_of(world, "t") == "queued"
        world.pass_time(150)
    drain(world, handler, attempts=3)
    assert attempts == [1, 2, 3]
    assert status_of(world, "t") == "dead"
    world.pass_time(10_000)
    drain(world, handler, attempts=3)
    assert attempts == [1, 2, 3]


def test_the_wait_grows_with_each_failure(world: World) -> None:
    def handler(run: Run) -> None:
        raise ValueError

    hf = world.open()
    hf.submit("h", "t", start={})
    waits: list[int] = []
    for _ in range(4):
        drain(world, handler)
        [(_, row)] = hf.context.store.runs(statuses=("queued",), after=(0, 0), limit=1)
        waits.append(row.wake_at - world.clock().now)
        world.pass_time(1000)
    assert waits == sorted(set(waits))
    assert waits[0] >= 1000


def test_a_dead_run_is_listed(world: World) -> None:
    def handler(run: Run) -> None:
        raise ValueError

    hf = world.open()
    hf.submit("h", "t", start={})
    drain(world, handler, attempts=1)
    assert status_of(world, "t") == "dead"
    row = hf.context.store.runs(statuses=("dead",), after=(0, 0), limit=10)
    assert [(name, run.reason) for name, run in row] == [("t", "ValueError: ")]


def test_a_dead_run_is_listed_by_threads(world: World) -> None:
    def handler(run: Run) -> None:
        raise ValueError

    hf = world.open()
    hf.submit("h", "t", start={})
    drain(world, handler, attempts=1)
    assert [info.name for info in hf.threads(status="dead")] == ["t"]


def test_a_run_whose_process_dies_each_time_is_given_up(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})
    for _ in range(3):
        with world.dying("t", start={}):
            pass
    drain(world, lambda run: pytest.fail("tried a fourth time"), attempts=3)
    assert status_of(world, "t") == "dead"


@covers("ares/LoopConfig.halt_on_consecutive_failures")
def test_a_checkpoint_is_progress(world: World) -> None:
    tries: list[int] = []

    def handler(run: Run) -> None:
        for step in run.steps():
            tries.append(run.attempt)
            run.state["n"] = step
            if step == 4:
                return
            run.save()
            raise ValueError

    world.open().submit("h", "t", start={"n": 0})
    for _ in range(10):
        drain(world, handler, attempts=3)
        world.pass_time(150)
    assert status_of(world, "t") == "completed"
    assert tries == [1, 2, 2, 2]


def test_a_poisoned_run_does_not_starve_the_others(world: World) -> None:
    hf = world.open()
    hf.submit("h", "poison", start="poison")
    for n in range(5):
        hf.submit("h", f"t{n}", start=n)
    done: list[Any] = []

    def handler(run: Run) -> None:
        if run.state == "poison":
            raise ValueError
        done.append(run.state)

    drain(world, handler)
    assert done == list(range(5))


def test_a_run_by_hand_is_not_for_workers(world: World) -> None:
    with world.dying("t", start={}):
        pass
    drain(world, lambda run: pytest.fail("no handler was named for it"))


# -- questions --------------------------------------------------------------------------------------------------------


def test_a_run_that_waits_goes_on_when_it_is_answered(world: World) -> None:
    calls: list[int] = []

    def act() -> str:
        calls.append(1)
        raise ConnectionError

    hf = world.open()
    hf.submit("h", "t", start={})
    drain(world, lambda run: run.tool(act, {}, key="k"), attempts=1)
    assert status_of(world, "t") == "waiting"
    drain(world, lambda run: pytest.fail("nobody has answered"), attempts=1)
    hf.settle("t", 1, holdfast.Happened("by hand"))
    assert status_of(world, "t") == "queued"
    attempts: list[int] = []

    def handler(run: Run) -> Any:
        attempts.append(run.attempt)
        assert run.resumed
        return run.tool(act, {}, key="k")

    drain(world, handler, attempts=1)  # to wait is not to fail
    assert attempts == [1]
    assert calls == [1]
    with world.running("t", ends="completed") as run:
        assert run.result == "by hand"


@every_store("two writers meet in the store")
def test_an_answer_and_the_queueing_of_its_run_are_one_write(world: World) -> None:
    def act() -> str:
        raise ConnectionError

    hf = world.open()
    hf.submit("h", "t", start={})
    drain(world, lambda run: run.tool(act, {}, key="k"))
    assert status_of(world, "t") == "waiting"

    def cut(*_args: object, **_options: object) -> None:
        raise Crash

    store: Any = hf.context.store
    real = store.post

    def settle_and_die(*args: object, **options: object) -> None:
        real(*args, **options)
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "post", cut)
        with pytest.raises(Crash):
            hf.settle("t", 1, holdfast.Happened("by hand"))
    assert status_of(world, "t") == "waiting"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "post", settle_and_die)
        with pytest.raises(Crash):
            hf.settle("t", 1, holdfast.Happened("by hand"))
    assert status_of(world, "t") == "queued"
    hf.settle("t", 1, holdfast.Happened("by hand"))  # said again by somebody who did not hear
    with pytest.raises(Conflict):
        hf.settle("t", 1, holdfast.Happened("something else"))
    assert status_of(world, "t") == "queued"


# -- stores that fail, workers that end -------------------------------------------------------------------------------


class Moody:
    """A store that is locked for a while: whatever it is asked, until it was asked so often."""

    def __init__(self, store: Any, names: tuple[str, ...], times: int) -> None:
        assert all(hasattr(store, name) for name in names)
        self._store = store
        self._names = names
        self.left = times

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in self._names:
            return found

        def asked(*args: Any, **kwargs: Any) -> Any:
            if self.left > 0:
                self.left -= 1
                raise holdfast.errors.Busy("locked")
            return found(*args, **kwargs)

        return asked


@pytest.mark.parametrize("name", ["runs", "queue", "claim", "head", "run", "commit", "journal"])
def test_a_worker_survives_a_store_that_is_locked(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runs.work_queue._IDLE_SECONDS", 0.01)
    world.open().submit("h", "t", start={})
    moody: list[Moody] = []

    def between(store: Any) -> Any:
        moody.append(Moody(store, (name,), 3))
        return moody[0]

    def act() -> str:
        return "done"

    failures = [ValueError()]

    def handler(run: Run) -> Any:
        result = run.tool(holdfast.tool(effect="idempotent")(act), {})
        if failures:
            raise failures.pop()
        return result

    worker = world.open(store=between).worker({"h": handler}, lease=10)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        deadline = time.monotonic() + DEADLINE
        while status_of(world, "t") != "completed":
            assert time.monotonic() < deadline
            world.pass_time(20)  # backoffs, and the lease of an end that could not be written
            time.sleep(0.02)
    finally:
        worker.stop()
        thread.join()
    assert moody[0].left < 3


@covers("ares/EmergencyStop")
def test_a_worker_that_is_stopped_gives_its_runs_back_at_the_end_of_a_step(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={"n": 0})
    hf.submit("h", "u", start={"n": 0})
    steps: list[int] = []

    def handler(run: Run) -> None:
        for step in run.steps():
            steps.append(step)
            run.tool(dict, {})
            run.state["n"] = step
            if step == 3:
                worker.stop()

    worker = hf.worker({"h": handler})
    worker.run()
    assert steps == [1, 2, 3]
    assert (status_of(world, "t"), status_of(world, "u")) == ("queued", "queued")
    with world.running("t", start={"n": 0}) as run:
        assert run.state == {"n": 3}


def test_what_a_worker_cannot_go_on_with_is_raised(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})
    worker = hf.worker({"h": lambda run: None})
    hf.close()
    with pytest.raises(holdfast.Closed):
        worker.run()
