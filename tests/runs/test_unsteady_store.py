"""A store that fails for a moment: what was paid for or done is recorded when it is back."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.errors import Busy, OutcomeUnknown, StoreError, StoreFull, ToolNotDone
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import RunRow
from tests.covers import covers
from tests.runs.conftest import World
from tests.selection import every_store


class Unsteady:
    """A store that refuses some journal writes."""

    def __init__(self, store: Store, refusals: list[Exception | None]) -> None:
        self._store = store
        self._refusals = refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def journal(self, *args: Any, run: RunRow | None = None, **options: Any) -> None:
        refusal = self._refusals.pop(0) if self._refusals and run is None else None
        if refusal is not None:
            raise refusal
        self._store.journal(*args, run=run, **options)


class Unrenewed(Unsteady):
    """One that refuses renewals, too."""

    def renew(self, *_: Any) -> None:
        raise Busy("locked")


@pytest.mark.parametrize("refusal", [Busy("locked"), StoreFull("no room")])
def test_a_reply_is_recorded_when_the_store_is_back(world: World, refusal: Exception) -> None:
    asked: list[int] = []

    def model() -> str:
        asked.append(1)
        return "reply"

    hf = world.open(store=lambda store: Unsteady(store, [refusal, refusal]))
    with world.dying("t", hf, start={}) as run:
        assert run.model(model) == "reply"
    with world.running("t") as run:
        assert run.model(model) == "reply"
    assert len(asked) == 1


@pytest.mark.parametrize("refusal", [Busy("locked"), StoreFull("no room")])
def test_what_a_tool_did_is_recorded_when_the_store_is_back(world: World, refusal: Exception) -> None:
    acted: list[int] = []

    def act() -> str:
        acted.append(1)
        return "done"

    hf = world.open(store=lambda store: Unsteady(store, [None, refusal, refusal]))
    with world.dying("t", hf, start={}) as run:
        assert run.tool(act, {}) == "done"
    with world.running("t") as run:
        assert run.tool(act, {}) == "done"
    assert len(acted) == 1


@covers("A13", "cortex/DurableError.StorageError")
def test_an_intent_that_cannot_be_written_is_refused_before_the_tool_acts(world: World) -> None:
    acted: list[int] = []

    def act() -> None:
        acted.append(1)

    hf = world.open(store=lambda store: Unsteady(store, [Busy("locked")]))
    with world.failing("t", Busy, hf, start={}) as run:
        run.tool(act, {})
    assert not acted


@pytest.mark.parametrize(("before", "tries"), [([], 0), ([None, None], 1)])
def test_an_intent_that_cannot_be_written_uses_no_retry_of_the_tool(
    world: World, before: list[Exception | None], tries: int
) -> None:
    """The error of the store is raised at once, for the first intent and for that of a retry."""
    acted: list[int] = []

    @holdfast.tool(effect="idempotent", retry=holdfast.Retry(1, first=0))
    def act() -> str:
        acted.append(1)
        if len(acted) <= tries + 1:
            raise ToolNotDone("closed")
        return "done"

    hf = world.open(store=lambda store: Unsteady(store, [*before, Busy("locked")]))
    with world.running("t", hf, start={}) as run:
        with pytest.raises(Busy):
            run.tool(act, {}, key="k")
        assert len(acted) == tries
        assert run.tool(act, {}, key="k") == "done"  # fails once more, and is retried
    assert len(acted) == tries + 2


def test_it_is_not_tried_for_longer_than_the_lease(world: World) -> None:
    def act() -> str:
        assert run.core._lease is not None
        run.core._lease._stop_at = 0.0  # the lease has ended meanwhile
        return "done"

    hf = world.open(store=lambda store: Unrenewed(store, [None, *[Busy("locked")] * 1000]))
    with world.failing("t", holdfast.LeaseLost, hf, start={}) as run:
        run.tool(act, {}, key="k")
    [effect, evidence] = world.open().effects("t")
    assert (effect.status, evidence.status, evidence.result) == ("started", "late", "done")


def test_a_call_that_was_not_made_leaves_no_late_result(world: World) -> None:
    """The worker loses the run between the intent and the call, and cannot record that it did not call the tool."""
    acted: list[str] = []

    def pay() -> None:
        acted.append("paid")

    class Sleepy(Unsteady):
        def journal(self, *args: Any, run: RunRow | None = None, **options: Any) -> None:
            super().journal(*args, run=run, **options)
            lease = stale.core._lease
            if lease is not None and not lease.must_stop():
                lease._done.set()
                world.pass_time(31)
                with world.failing("t", RuntimeError):
                    raise RuntimeError
                lease.lose()

    hf = world.open(store=lambda store: Sleepy(store, []))
    stale = hf.run("t", start={}).__enter__()
    with pytest.raises(holdfast.LeaseLost):
        stale.tool(pay, {})
    assert not acted
    assert [effect.status for effect in world.open().effects("t")] == ["started"]


def test_a_cancelled_block_whose_store_fails_no_longer_renews_its_lease(world: World) -> None:
    class Gone(Unsteady):
        def entries(self, *args: Any, **options: Any) -> Any:
            if is_gone:
                raise StoreError("gone")
            return self._store.entries(*args, **options)

    is_gone = False
    with world.failing("t", holdfast.Cancelled, world.open(store=lambda store: Gone(store, [])), start={}) as run:
        is_gone = True
        raise holdfast.Cancelled("by a child")
    assert run.core._lease is not None
    assert run.core._lease.is_stopped


def test_a_run_that_was_completed_stays_so_if_its_block_is_cancelled_and_its_store_fails(world: World) -> None:
    class Gone(Unsteady):
        def commit(self, *args: Any, **options: Any) -> Any:
            done = self._store.commit(*args, **options)
            if is_gone:
                raise OutcomeUnknown("lost")
            return done

        def entries(self, *args: Any, **options: Any) -> Any:
            if is_gone:
                raise StoreError("gone")
            return self._store.entries(*args, **options)

    is_gone = False
    with world.failing("t", holdfast.Cancelled, world.open(store=lambda store: Gone(store, [])), start={}) as run:
        is_gone = True
        with pytest.raises(OutcomeUnknown):
            run.finish()
        raise holdfast.Cancelled("by a child")
    assert run.status == "completed"


@every_store("each store keeps leases and their clock")
def test_who_slept_through_his_lease_goes_on_if_nobody_has_taken_the_run(world: World) -> None:
    acted: list[int] = []
    with world.running("t", start={}) as run:
        assert run.core._lease is not None
        run.core._lease._stop_at = 0.0
        run.tool(lambda: acted.append(1), {}, key="k")
    assert acted == [1]


@every_store("each store keeps leases and their clock")
def test_who_slept_through_his_lease_is_refused_if_somebody_has(world: World) -> None:
    acted: list[int] = []
    with world.failing("t", holdfast.LeaseLost, start={}) as run:
        assert run.core._lease is not None
        run.core._lease._stop_at = 0.0
        world.pass_time(31)
        with world.open().run("t") as other:
            other.finish()
        run.tool(lambda: acted.append(1), {}, key="k")
    assert acted == []
