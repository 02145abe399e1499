"""Progress that a run tells, and runs that make none: which, since when, and why."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, HoldfastError, InvalidArgument, NotFound, Run, Stuck
from tests.runs.conftest import World

HOUR = 3600.0


class Counting:
    """A store that counts what is written to it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("commit", "journal", "renew", "update_run", "park", "claim", "tell"):
            self.writes.append(name)
        return getattr(self._store, name)


def renew(run: Run) -> None:
    """What a lease does by itself three times before it ends."""
    assert run._core._lease is not None
    run._core._lease._renew()


# -- telling --------------------------------------------------------------------------------------------------------


def test_progress_costs_no_write_and_comes_with_the_next_renewal(world: World) -> None:
    counting: list[Counting] = []

    def between(store: Any) -> Any:
        counting.append(Counting(store))
        return counting[0]

    hf = world.open(store=between)
    with world.running("t", hf, start={}) as run:
        counting[0].writes.clear()
        for page in range(1000):
            run.progress(page, total=1000, note=f"page {page}")
        assert counting[0].writes == []
        assert hf.progress("t") is None
        before = time.time()
        renew(run)
        told = hf.progress("t")
        assert told is not None
        assert (told.done, told.total, told.note) == (999.0, 1000.0, "page 999")
        assert abs(told.at.timestamp() - before) < 60
        assert counting[0].writes == ["renew"]


def test_progress_comes_with_a_checkpoint(world: World) -> None:
    hf = world.open()
    with world.running("t", start={}) as run:
        run.progress(1)
        run.save()
        told = hf.progress("t")
        assert told is not None
        assert (told.done, told.total, told.note) == (1.0, None, None)
        run.save()
        assert hf.progress("t") == told


@pytest.mark.parametrize("end", ["completed", "halted", "idle", "waiting", "failed"])
def test_progress_comes_with_the_end_of_the_block(world: World, end: str) -> None:
    hf = world.open()
    with suppress(ZeroDivisionError), hf.run("t", start={}) as run:
        run.progress(3, 4, "nearly")
        if end == "completed":
            run.finish()
        elif end == "halted":
            run.halt("enough")
        elif end == "waiting":
            run.wait("well?")
        elif end == "failed":
            raise ZeroDivisionError
    told = hf.progress("t")
    assert told is not None
    assert ([thread.status for thread in hf.threads()], told.note) == ([end], "nearly")


def test_what_is_stored_is_not_written_again(world: World) -> None:
    brought: list[Any] = []

    class Recording:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def renew(self, thread: int, fence: int, until: int, progress: Any = None) -> None:
            brought.append(progress and progress.done)
            self._store.renew(thread, fence, until, progress)

        def commit(self, commit: Any) -> Any:
            brought.append(commit.run and commit.run.progress.done)
            return self._store.commit(commit)

    recording: Any = Recording
    hf = world.open()
    with world.running("t", hf, start={}):
        pass
    with world.running("t", world.open(store=recording)) as run:
        run.save()
        brought.clear()
        run.progress(1)
        renew(run)
        renew(run)
        run.save()
        run.progress(2)
        run.save()
        run.save()
        renew(run)
    assert brought == [1.0, None, None, 2.0, None, None]


def test_what_is_said_while_a_checkpoint_is_being_written_is_stored_with_it(world: World) -> None:
    hf = world.open()
    with world.dying("t", start={}):
        pass
    with world.running("t", hf) as run:
        write = run._core.saving()
        run.progress(1)
        write()
        told = hf.progress("t")
        assert told is not None
        assert told.done == 1.0


def test_progress_does_not_shorten_a_lease_or_undo_a_checkpoint(world: World) -> None:
    with world.running("t", start={}) as run:
        run.progress(1)
        world.pass_time(10)
        renew(run)
        held = run._core._lease
        assert held is not None
        until = held.row.lease_until
        run.progress(2)
        run.save()
        store = world.open()._session.store
        row = store.run(1)
        assert row is not None
        assert row.lease_until >= until
        assert (row.status, row.progress and row.progress.done) == ("running", 2.0)


def test_a_renewal_that_failed_is_told_with_the_next(world: World) -> None:
    class Unsteady:
        def __init__(self, store: Any) -> None:
            self._store = store
            self.fails = True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def renew(self, *given: Any) -> None:
            if self.fails:
                raise holdfast.Busy("locked")
            self._store.renew(*given)

    stores: list[Unsteady] = []

    def between(store: Any) -> Any:
        stores.append(Unsteady(store))
        return stores[0]

    hf = world.open(store=between)
    with world.running("t", hf, start={}) as run:
        run.progress(5)
        with pytest.raises(holdfast.Busy):
            renew(run)
        stores[0].fails = False
        renew(run)
        told = hf.progress("t")
        assert told is not None
        assert told.done == 5


def test_who_goes_on_with_a_run_has_said_nothing_yet(world: World) -> None:
    hf = world.open()
    with world.dying("t", start={}) as run:
        run.progress(1, 2)
        renew(run)
    assert hf.progress("t") is not None
    with world.running("t", hf):
        assert hf.progress("t") is None


def test_what_has_no_run_has_no_progress(world: World) -> None:
    hf = world.open()
    hf.thread("t").save({})
    assert hf.progress("t") is None
    with pytest.raises(NotFound):
        hf.progress("nothing")


@pytest.mark.parametrize(
    "given",
    [(-1,), (True,), (math.nan,), (math.inf,), ("1",), (None,), (1, -1), (1, False), (1, math.nan), (1, 2, 3)],
)
def test_progress_is_numbers_and_a_text(world: World, given: Any) -> None:
    with world.running("t", start={}) as run, pytest.raises(InvalidArgument):
        run.progress(*given)


def test_a_run_that_has_ended_makes_no_progress(world: World) -> None:
    with world.running("t", start={}, ends="completed") as run:
        run.finish()
        with pytest.raises(HoldfastError):
            run.progress(1)


def test_async_runs_tell_without_awaiting(world: World) -> None:
    async def main() -> Any:
        hf = world.open().aio
        async with hf.run("t", start={}) as run:
            run.progress(1, 2, "half")
            await run.save()
            stuck = [each async for each in hf.stuck(older_than=HOUR)]
            return await hf.progress("t"), stuck

    told, found = asyncio.run(main())
    assert (told.done, told.note, found) == (1.0, "half", [])


# -- stuck ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch, world: World) -> Callable[[float], None]:
    """Lets time pass, on the wall and on the clock of leases."""
    ahead = [0]
    wall = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall() + ahead[0])

    def pass_time(seconds: float) -> None:
        ahead[0] += round(seconds * 1_000_000_000)
        world.pass_time(seconds)

    return pass_time


def only(hf: Holdfast, older_than: float = HOUR) -> Stuck:
    [found] = hf.stuck(older_than=older_than)
    return found


def test_a_queued_run_that_nobody_claims(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    hf.submit("invoice", "t", start={}, version="v2")
    assert list(hf.stuck(older_than=HOUR)) == []
    later(HOUR + 1)
    found = only(hf)
    assert (found.thread, found.status) == ("t", "queued")
    assert abs(found.since.timestamp() - time.time()) < 60
    assert found.why == "queued, and nobody claims it: is a worker with handler 'invoice' and version 'v2' running?"
    hf.worker({"invoice": lambda _: None}).run(until_idle=True)
    assert list(hf.stuck(older_than=0)) == [], "what is finished is not stuck"


def test_a_run_whose_owner_is_gone(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.dying("t", start={}):
        pass
    assert list(hf.stuck(older_than=HOUR)) == []
    later(HOUR + 1)
    assert only(hf).why == "its owner is gone, and it has no handler: hf.run goes on with it"


def test_a_run_that_hangs_inside_a_call(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    found: list[Stuck] = []

    def hang(on: str) -> None:
        later(HOUR + 1)
        renew(run)
        found.extend(hf.stuck(older_than=HOUR))

    def quick() -> None: ...

    with world.running("t", start={}, lease=86_400) as run:
        run.tool(quick)
        assert list(hf.stuck(older_than=HOUR)) == []
        run.tool(hang, {"on": "secret"})
        assert list(hf.stuck(older_than=HOUR)) == [], "a journal entry is progress"
    [hanging] = found
    assert hanging.status == "running"
    assert hanging.why.startswith("runs, and is inside hang (call 2, since 20")
    assert "secret" not in hanging.why


@pytest.mark.parametrize("by", ["progress", "save"])
def test_a_run_that_hangs_somewhere(world: World, later: Callable[[float], None], by: str) -> None:
    hf = world.open()
    with world.running("t", start={}, lease=86_400) as run:
        later(HOUR + 1)
        renew(run)
        assert only(hf).why == "runs, and nothing is recorded: inside a model call, a read, or its own code"
        if by == "progress":
            run.progress(1)
            renew(run)
        else:
            run.save()
        assert list(hf.stuck(older_than=HOUR)) == []


def test_a_parent_whose_child_gets_on_is_not_stuck(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", start={}, lease=86_400) as run, run.child("c", start={}) as child:
        later(HOUR + 1)
        renew(run)
        renew(child)
        assert {each.thread for each in hf.stuck(older_than=HOUR)} == {"t", "t/c"}
        child.save()
        assert list(hf.stuck(older_than=HOUR)) == []


def test_a_run_that_waits_for_an_answer(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", start={}, ends="waiting") as run:
        run.wait("approve", {"sum": 10}, timeout=HOUR * 5)
    later(HOUR + 1)
    found = only(hf)
    assert (found.status, found.why) == ("waiting", "waits for an answer to 'approve'; hf.answer answers it")
    later(HOUR * 5)
    assert only(hf).why.startswith(
        "waits for an answer to 'approve', and the time for that is over, and it has no handler"
    )
    hf.answer("t", "approve", value=True)
    assert only(hf, 0).why.startswith("queued")


def test_a_run_in_doubt(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()

    def post() -> None:
        raise OSError

    with world.running("t", start={}, ends="waiting") as run:
        run.tool(post)
    later(HOUR + 1)
    found = only(hf)
    assert (found.status, found.why) == ("waiting", "in doubt: post, call 1; hf.settle decides")


def test_a_run_that_sleeps_is_not_stuck_until_nobody_wakes_it(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", start={}, ends="waiting") as run:
        run.sleep(HOUR * 5)
    later(HOUR * 4)
    assert list(hf.stuck(older_than=0)) == []
    later(HOUR * 1.5)
    assert list(hf.stuck(older_than=HOUR)) == [], "due for half an hour"
    later(HOUR)
    assert only(hf).why == ("sleeps, and the time for that is over, and it has no handler: hf.run goes on with it")


def test_a_run_that_failed(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.failing("t", ZeroDivisionError, start={}):
        raise ZeroDivisionError("x")
    later(HOUR + 1)
    found = only(hf)
    assert found.status == "failed"
    assert found.why == ("failed after 1 attempts: ZeroDivisionError: x; workers leave it; hf.run goes on with it")


def test_a_run_that_fails_again_and_again_and_then_is_dead(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()

    def fail(_: Run) -> None:
        raise ZeroDivisionError("x")

    hf.submit("agent", "t", start={})
    worker = hf.worker({"agent": fail}, attempts=3)
    worker.run(until_idle=True)
    assert only(hf, 0).why == (
        "failed 1 times since its last checkpoint: ZeroDivisionError: x; is tried again in 1 seconds"
    )
    later(HOUR + 1)
    worker.run(until_idle=True)
    found = only(hf)
    assert found.status == "queued"
    assert found.why.startswith("failed 2 times since its last checkpoint: ZeroDivisionError: x; is tried again in")
    later(HOUR + 1)
    assert "nobody claims it: is a worker with handler 'agent' running?" in only(hf).why
    worker.run(until_idle=True)
    assert [each.status for each in hf.stuck(older_than=0)] == ["dead"]
    assert only(hf, 0).why.startswith("dead after 3 attempts: ZeroDivisionError: x")


@pytest.mark.parametrize("end", ["completed", "halted", "idle"])
def test_what_has_ended_is_not_stuck(world: World, later: Callable[[float], None], end: str) -> None:
    hf = world.open()
    hf.thread("no run").save({})
    with world.running("t", start={}, ends=end) as run:
        if end == "completed":
            run.finish()
        elif end == "halted":
            run.halt("enough")
    later(HOUR)
    assert list(hf.stuck(older_than=0)) == []


def test_all_of_them_in_one_look(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    for n in range(450):
        hf.submit("agent", f"t{n}", start={})
    later(HOUR + 1)
    assert {each.thread for each in hf.stuck(older_than=HOUR)} == {f"t{n}" for n in range(450)}


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "1", None])
def test_older_than_is_seconds(world: World, bad: Any) -> None:
    with pytest.raises(InvalidArgument):
        world.open().stuck(older_than=bad)


def test_stuck_is_safe_beside_workers(world: World) -> None:
    hf = world.open()
    done = threading.Event()
    for n in range(50):
        hf.submit("agent", f"t{n}", start={})

    def save(run: Run) -> None:
        run.save()

    def work() -> None:
        hf.worker({"agent": save}).run(until_idle=True)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        list(hf.stuck(older_than=0))
    thread.join()
    assert list(hf.stuck(older_than=0)) == []
