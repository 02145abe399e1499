"""Progress that a run tells."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import HoldfastError, InvalidArgument, NotFound, Run
from tests.covers import covers
from tests.runs.conftest import World
from tests.selection import every_store

HOUR = 3600.0


class Counting:
    """A store that counts what is written to it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("commit", "journal", "renew", "claim", "post"):
            self.writes.append(name)
        return getattr(self._store, name)


def renew(run: Run) -> None:
    """What a lease does by itself three times before it ends."""
    assert run.core._lease is not None
    run.core._lease._renew()


@covers("cortex/ExecutionState.progress", "cortex/ExecutionState.current_step", "cortex/ExecutionState.total_steps")
@covers("cortex/test_progress")
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


@covers("cortex/ExecutionState.progress", "cortex/ExecutionState.current_step")
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


@covers("continuum/AgentState.waiting_tool", "cortex/ExecutionState.status", "cortex/ExecutionStatus.Completed")
@covers("cortex/ExecutionStatus.Failed", "cortex/ExecutionStatus.Paused", "cortex/GraphStatus", "cortex/test_progress")
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
        write = run.core.prepare_save()
        run.progress(1)
        write()
        told = hf.progress("t")
        assert told is not None
        assert told.done == 1.0


@every_store("each store keeps leases and their clock")
def test_progress_does_not_shorten_a_lease_or_undo_a_checkpoint(world: World) -> None:
    with world.running("t", start={}) as run:
        run.progress(1)
        world.pass_time(10)
        renew(run)
        held = run.core._lease
        assert held is not None
        until = held.row.lease_until
        run.progress(2)
        run.save()
        store = world.open().context.store
        row = store.run(held.row.thread)
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
                raise holdfast.errors.Busy("locked")
            self._store.renew(*given)

    stores: list[Unsteady] = []

    def between(store: Any) -> Any:
        stores.append(Unsteady(store))
        return stores[0]

    hf = world.open(store=between)
    with world.running("t", hf, start={}) as run:
        run.progress(5)
        with pytest.raises(holdfast.errors.Busy):
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
