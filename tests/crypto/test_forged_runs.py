"""Records of runs that somebody without a key has written: each is believed as it was written, for its own thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Conflict, Damaged, Run
from holdfast.crypto.sealed_store import SealedStore
from holdfast.stores.contract_runs import Progress, RunRow
from holdfast.testing.contract.build import effect, held, posted, put_run, saved, settled, suspended
from tests.crypto.forging import CIPHER, changed, forged, number_of, opened, other_compressor
from tests.selection import every_store

PROGRESS = Progress(1.0, 2.0, "half of it", 5)
IN_CLEAR = [
    "status",
    "fence",
    "attempt",
    "tried_at",
    "owner",
    "clock",
    "lease_first",
    "held",
    "wake_at",
    "wake_wall",
    "question",
    "began",
    "closed",
    "closed_at",
    "progress",
    "branch",
    "created_at",
    "updated_at",
    "nonce",
]
# What a store changes by itself: which number the thread gets, and until when the lease goes on.
BY_THE_STORE = ["thread", "lease_until"]


def whole(store: Any, thread: int, **changes: Any) -> RunRow:
    numbers = {name: 3 for name in IN_CLEAR if name not in ("status", "fence", "owner", "clock", "progress", "nonce")}
    return held(store, thread, **(numbers | {"progress": PROGRESS, "nonce": b"n", "turn": "turn"} | changes))


@pytest.fixture
def number(address: str) -> int:
    """Two threads, each with a run."""
    with closing(opened(address)) as store:
        for name in ("a", "b"):
            line = saved(store, name, "x")
            store.claim(None, whole(store, line.number, turn=f"turn of {name}"))
        return number_of(store, "a")


def listed(store: Any) -> list[str]:
    return [name for name, _ in store.runs(statuses=["running", "waiting"], after=(0, 0), limit=9)]


# -- what is in clear ------------------------------------------------------------------------------------------------


def test_every_field_in_clear_is_authenticated(address: str, number: int) -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(RunRow)}
    with forged(address) as (store, forger):
        stored = store.underlying.run(number)
        assert stored is not None
        said = {name for name in RunRow.__struct_fields__ if getattr(stored, name) != defaults[name]}
        assert said == {*IN_CLEAR, *BY_THE_STORE, "sealed"}, "a field that is in clear and not tried here"
        for name in IN_CLEAR:
            forger.of_run = lambda row, name=name: replace(row, **{name: changed(getattr(row, name))})  # type: ignore[misc]
            with pytest.raises(Damaged):
                store.run(number)
            if defaults[name] is not msgspec.NODEFAULT and name != "progress":
                forger.of_run = lambda row, name=name: replace(row, **{name: defaults[name]})  # type: ignore[misc]
                with pytest.raises(Damaged):
                    store.run(number)


@pytest.mark.parametrize("said", [{"done": 2.0}, {"total": None}, {"at": 6}, {"note": None}, {"note": "made up"}])
def test_how_far_a_run_is_cannot_be_made_up(address: str, number: int, said: dict[str, Any]) -> None:
    with forged(address) as (store, forger):
        forger.of_run = lambda row: replace(row, progress=row.progress and replace(row.progress, **said))
        with pytest.raises((Damaged, holdfast.errors.NotEncrypted)):
            store.run(number)


def test_a_lease_is_renewed_and_not_cut_short(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        before = store.run(number)
        assert before is not None
        store.renew(number, 1, before.lease_until + 5, replace(PROGRESS, note="more", done=1))
        renewed = store.run(number)
        assert renewed == replace(before, lease_until=before.lease_until + 5, progress=replace(PROGRESS, note="more"))
        forger.of_run = lambda row: replace(row, lease_until=before.lease_until - 1)
        with pytest.raises(Damaged, match="lease"):
            store.run(number)


def test_a_run_that_nobody_holds_cannot_be_given_a_lease(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        row = store.run(number)
        assert row is not None
        put_run(store, replace(row, status="idle", owner=None, lease_until=0))
        forger.of_run = lambda row: replace(row, lease_until=1)
        with pytest.raises(Damaged):
            store.run(number)


def test_the_question_of_a_run_is_the_one_it_asked(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        row = store.run(number)
        assert row is not None
        assert suspended(store, replace(row, status="waiting", owner=None, lease_until=0), effect("asked"), 0) == 1
        parked = store.run(number)
        assert parked is not None
        assert parked.question == 1
        forger.of_run = lambda row: replace(row, question=0)
        with pytest.raises(Damaged):
            store.run(number)


# -- whose it is -----------------------------------------------------------------------------------------------------


def exchanged(store: SealedStore, number: int) -> Callable[[RunRow], RunRow]:
    """The runs of the two threads, each in the other one's place."""
    other = number_of(store, "b")
    rows = {number: store.underlying.run(other), other: store.underlying.run(number)}

    def exchange(row: RunRow) -> RunRow:
        found = rows[row.thread]
        assert found is not None
        return replace(found, thread=row.thread)

    return exchange


def test_the_run_of_another_thread_is_not_believed(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        forger.of_run = exchanged(store, number)
        with pytest.raises(Damaged, match="another thread"):
            store.run(number)


def test_the_run_of_another_thread_is_not_believed_by_who_knows_nothing_yet(address: str, number: int) -> None:
    with closing(opened(address)) as store:
        exchange = exchanged(store, number)
    with forged(address) as (store, forger):
        forger.of_run = exchange
        with pytest.raises(Damaged, match="another thread"):
            store.run(number)
        assert listed(store) == []
        with pytest.raises(Damaged, match="another thread"):
            store.runs(statuses=(), after=(0, 0), limit=1)


def test_a_note_of_another_thread_is_not_believed(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        other = store.underlying.run(number_of(store, "b"))
        assert other is not None
        forger.of_run = lambda row: replace(row, progress=other.progress)
        with pytest.raises(Damaged):
            store.run(number)


@pytest.mark.parametrize("limit", [1, 9])
def test_a_run_that_cannot_be_told_keeps_nobody_from_the_others(address: str, number: int, limit: int) -> None:
    with forged(address) as (store, forger):
        forger.of_run = lambda row: replace(row, attempt=9) if row.thread == number else row
        [(name, _)] = store.runs(statuses=["running"], after=(0, 0), limit=limit)
        assert name == "b"
        with pytest.raises(Damaged):
            store.runs(statuses=(), after=(0, 0), limit=1)
        forger.of_run = lambda row: row
        assert store.runs(statuses=(), after=(0, 0), limit=1) == []
        assert listed(store) == ["a", "b"]


# -- handles of two compressors --------------------------------------------------------------------------------------


@every_store("each store compares the record that a claim expects")
def test_a_run_is_claimed_by_a_handle_that_seals_to_other_bytes(
    address: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "a turn with a long name " * 20
    with closing(opened(address)) as store:
        row = store.run(number)
        assert row is not None
        row = replace(row, fence=2, turn=long)
        store.claim(store.run(number), row)
        sealed = store.underlying.run(number)
    other_compressor(monkeypatch)
    with closing(opened(address)) as store:
        assert store.run(number) == row
        assert sealed is not None
        assert len(sealed.sealed) < len(store._seal_run(row).sealed), "it would be sealed to other bytes"
        store.claim(row, replace(row, fence=3))
        with pytest.raises(Conflict):
            store.claim(row, replace(row, fence=3))
    monkeypatch.undo()
    with closing(opened(address)) as store:
        found = store.run(number)
        assert found == replace(row, fence=3)
        assert posted(store, number, effect(fence=0), run=found) == 1
        with pytest.raises(Conflict):
            posted(store, number, effect(fence=0), run=row)
        settled(store, number, 1, "done", effect("failed", fence=0), found, replace(found, fence=4, status="queued"))


def test_a_question_is_answered_by_a_handle_that_seals_to_other_bytes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(run: Run) -> None:
        run.finish(run.wait("approve", {"amount": 7, "reason": "as agreed " * 50}))

    with holdfast.open(address, cipher=CIPHER) as hf, hf.run("a", start={}) as run:
        work(run)
    other_compressor(monkeypatch)
    with holdfast.open(address, cipher=CIPHER) as hf:
        hf.answer("a", "approve", True)
        with hf.run("a") as run:
            work(run)
    assert run.result is True
