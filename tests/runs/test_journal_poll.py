"""When a run looks for what was told from outside: by its own writes, where they show that nothing came between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import holdfast
from holdfast.runs import journal
from holdfast.runs.flusher import flusher
from holdfast.runs.lease import local_seconds
from holdfast.stores.contract import Commit, Store
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
    monkeypatch.setattr(flusher, "is_off", True)  # its write would show it earlier
    hf = world.open()
    with world.failing("t", holdfast.Cancelled, hf, start={}) as run:
        run.model(lambda: "first")
        hf.cancel("t", "enough")
        run.model(lambda: "not heard yet: the write before it is what shows it")
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


def test_a_resume_finds_a_cancellation_before_many_entries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume reads a journal from its end, and stops at the first entries that are closed."""
    monkeypatch.setattr(journal, "_POLL_SECONDS", 60.0)
    monkeypatch.setattr("holdfast.runs.waits.note_posted", lambda: None)  # as if another process had posted it
    look = holdfast.tool(effect="read", name="look")(lambda number: number)
    hf = world.open()
    with world.dying("t", hf, start={}) as run:
        for step in run.steps():
            if step == 2:
                break
            for number in range(50):
                run.tool(look, {"number": number}, key=str(number))
            hf.cancel("t", "enough")  # before the entries, which the checkpoint writes
    with world.failing("t", holdfast.Cancelled, hf) as run:
        run.model(lambda: pytest.fail("called"))


@every_store("two writers meet in the store")
def test_a_checkpoint_with_entries_is_saved_after_an_entry_that_was_posted_meanwhile(world: World) -> None:
    """It is numbered again, and saved once."""
    hf = world.open()
    store: Any = hf.context.store
    commit = store.commit
    tried: list[int | None] = []

    def posted_first(given: Commit) -> Any:
        if not tried:
            hf.answer("t", "approve", "yes", early=True)
        tried.append(given.last_entry)
        return commit(given)

    look = holdfast.tool(effect="read")(lambda: "seen")
    with pytest.MonkeyPatch.context() as patch, world.running("t", hf, start={}) as run:
        run.model(lambda: "reply")
        run.tool(look, {}, key="look")
        patch.setattr(store, "commit", posted_first)
        run.save()
        assert run.wait("approve") == "yes"
    assert tried == [1, 2]
    assert [(effect.number, effect.effect) for effect in hf.effects("t")] == [
        (1, "model"),
        (2, "answer"),
        (3, "read"),
        (4, "wait"),
    ]


@every_store("two writers meet in the store")
def test_a_cancellation_that_the_last_write_before_a_sleep_meets_is_not_slept_through(world: World) -> None:
    hf = world.open()
    store: Any = hf.context.store
    journal_ = store.journal
    cancelled: list[str] = []

    def cancelled_first(*args: Any, **options: Any) -> Any:
        if not cancelled:
            cancelled.append("enough")
            hf.cancel("t", "enough")
        return journal_(*args, **options)

    look = holdfast.tool(effect="read")(lambda: "seen")
    with pytest.MonkeyPatch.context() as patch, world.running("t", hf, start={}, ends="queued") as run:
        run.tool(look, {}, key="look")  # written when the run is suspended
        patch.setattr(store, "journal", cancelled_first)
        run.sleep(3600)
    assert cancelled
    with world.failing("t", holdfast.Cancelled, hf) as run:
        run.sleep(3600)
    info = hf.run_info("t")
    assert info is not None
    assert (info.status, info.reason) == ("halted", "enough")
