"""When a run looks for what was told from outside: by its own writes, where they show that nothing came between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import holdfast
from holdfast.runs import journal
from holdfast.runs.lease import local_seconds
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from tests.runs.conftest import World
from tests.selection import every_store


class Counting:
    """A store that counts how often a journal is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def entries(self, *args: Any, **options: Any) -> Sequence[Entry]:
        self.looks += 1
        return self._store.entries(*args, **options)


class Ticking:
    """A clock by which a call takes most of the time between two looks, and two calls take more."""

    def __init__(self) -> None:
        self._now = local_seconds()

    def __call__(self) -> float:
        self._now += journal._POLL_SECONDS * 0.4
        return self._now


def test_a_run_that_writes_needs_no_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counting: list[Counting] = []

    def counted(store: Store) -> Any:
        counting.append(Counting(store))
        return counting[-1]

    monkeypatch.setattr(journal, "local_seconds", Ticking())
    with world.running("t", world.open(store=counted), start={}) as run:
        run.model(lambda: "first")
        before = counting[0].looks
        for _ in range(10):
            run.model(lambda: "more")
        assert counting[0].looks == before
        run.core.calls().context.journal.poll(at_once=True)
        assert counting[0].looks == before + 1  # a read is counted


@every_store("the store numbers the entries")
def test_what_came_between_two_writes_is_heard_at_the_next_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long ago the last look was meant to be: the number of the second write shows it."""
    monkeypatch.setattr(journal, "_POLL_SECONDS", 60.0)
    monkeypatch.setattr("holdfast.runs.waits.note_posted", lambda: None)  # as if another process had told it
    hf = world.open()
    with world.failing("t", holdfast.Cancelled, hf, start={}) as run:
        run.model(lambda: "first")
        hf.cancel("t", "enough")
        run.model(lambda: "not heard yet: this call's own write is what shows it")
        run.model(lambda: "never called")
    assert [effect.status for effect in hf.effects("t") if effect.effect == "model"] == ["done", "done"]


def test_a_cancellation_that_any_poll_reads_is_kept(world: World) -> None:
    hf = world.open()
    with world.failing("t", holdfast.Cancelled, hf, start={}) as run:
        run.model(lambda: "first")
        hf.cancel("t", "enough")
        run.core.calls().context.journal.poll(at_once=True)
        run.model(lambda: pytest.fail("called"))
    info = hf.run_info("t")
    assert info is not None
    assert (info.status, info.reason) == ("halted", "enough")
