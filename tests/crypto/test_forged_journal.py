"""A journal that somebody without a key has written to: an entry is believed as, and where, it was written, or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Conflict, Damaged, Run
from holdfast.crypto.sealed_store import SealedStore
from holdfast.stores.contract_runs import Deadline, Entry, EntryStatus
from holdfast.testing.contract.build import commit, effect, held, journaled, posted, saved, settled
from holdfast.threads.scan import thread_named
from tests.crypto.forging import CIPHER, changed, forged, number_of, opened

# A thread's key opens them, or the store gives them out.
IN_CLEAR = [
    "branch",
    "step",
    "kind",
    "status",
    "fence",
    "started_at",
    "ended_at",
    "heard",
    "matches",
    "matches_thread",
    "valid_after",
    "topic",
    "deadline",
    "held",
    "redacted",
]
WHOLE = effect(
    ended_at=7,
    heard=False,
    matches=1,
    matches_thread=2,
    valid_after=3,
    topic="mark",
    deadline=Deadline("clock", 5, 6),
    held=8,
    redacted=1,
    result=b"said",
)


class Died(Exception):
    """Ends a run in the middle."""


@pytest.fixture
def number(address: str) -> int:
    """A thread with a journal of three entries, and another."""
    with closing(opened(address)) as store:
        for name in ("a", "b"):
            line = saved(store, name, "x")
            store.claim(None, held(store, line.number))
            journaled(store, line.number, 1, [WHOLE, effect(key="second"), effect(key="third")])
        return number_of(store, "a")


def read(store: SealedStore, number: int) -> list[Entry]:
    return store.entries(number, after=0, limit=10)


# -- what is in clear ------------------------------------------------------------------------------------------------


def test_a_done_call_that_is_said_not_to_be_is_not_made_again(address: str) -> None:
    charged: list[int] = []

    @holdfast.tool(effect="irreversible")
    def charge(amount: int) -> str:
        charged.append(amount)
        return "charged"

    def work(run: Run) -> None:
        run.tool("charge", {"amount": 7}, key="k")
        raise Died

    with holdfast.open(address, cipher=CIPHER, tools=[charge]) as hf:
        with pytest.raises(Died), hf.run("a", start={}) as run:
            work(run)
        store = hf.context.store
        assert isinstance(store, SealedStore)
        [entry] = store.underlying.entries(number_of(store, "a"), after=0, limit=9)
        settled(store.underlying, number_of(store, "a"), 1, "done", replace(entry, status="not_done"))
    with holdfast.open(address, cipher=CIPHER, tools=[charge]) as hf:
        with pytest.raises(Damaged), hf.run("a") as run:
            work(run)
        assert "changed or moved to another place" in hf.verify().problems[0].what
    assert charged == [7]


def test_every_field_in_clear_is_authenticated(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        stored = store.underlying.entries(number, after=0, limit=1)[0]
        empty = {field.name: field.default for field in msgspec.structs.fields(Entry)}
        said = [name for name in Entry.__struct_fields__ if getattr(stored, name) not in (empty[name], "", b"")]
        assert said == [*IN_CLEAR, "sealed", "number"], "a field that is in clear and not tried here"
        for name in IN_CLEAR:
            forger.of_entry = lambda _, row, name=name: replace(row, **{name: changed(getattr(row, name))})  # type: ignore[misc]
            with pytest.raises(Damaged):
                read(store, number)
            forger.of_entry = lambda _, row, name=name: replace(row, **{name: default(name)})  # type: ignore[misc]
            with pytest.raises(Damaged):
                read(store, number)


def default(name: str) -> Any:
    """What a field says of which nothing is stored, or nothing of the kind."""
    found = {field.name: field.default for field in msgspec.structs.fields(Entry)}[name]
    return {"kind": "read", "status": "not_done"}.get(name, 0) if found is msgspec.NODEFAULT else found


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("under", "taken"), [(1, 2), (2, 1), (3, 1)])
def test_an_entry_is_not_believed_under_another_number(address: str, number: int, under: int, taken: int) -> None:
    with forged(address) as (store, forger):
        other = store.underlying.entries(number, after=taken - 1, limit=1)[0]
        forger.of_entry = lambda _, row: replace(other, number=under) if row.number == under else row
        with pytest.raises(Damaged, match="changed or moved to another place"):
            read(store, number)


def test_entries_that_changed_places_are_a_problem_for_verify(address: str, number: int) -> None:
    with closing(opened(address)) as store:
        one, two, _ = store.underlying.entries(number, after=0, limit=9)
        for entry, under in ((one, 2), (two, 1)):
            settled(store.underlying, number, under, "done", replace(entry, number=under))
    with holdfast.open(address, cipher=CIPHER) as hf:
        assert any("moved to another place" in problem.what for problem in hf.verify().problems)


def test_an_entry_of_another_thread_is_not_believed(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        others = store.underlying.entries(number_of(store, "b"), after=0, limit=9)
        forger.of_entry = lambda thread, row: others[row.number - 1] if thread == number else row
        with pytest.raises(Damaged, match="key of another thread"):
            read(store, number)


@pytest.mark.parametrize("status", ["started", "done"])
def test_an_entry_that_is_replaced_keeps_its_number(address: str, number: int, status: EntryStatus) -> None:
    with closing(opened(address)) as store:
        journaled(store, number, 1, [effect(status, key="changed", number=2)])
        settled(store, number, 3, "done", effect(status, key="settled"))
        assert [row.key for row in read(store, number)] == ["key", "changed", "settled"]


@pytest.fixture
def store(address: str, number: int) -> Iterator[SealedStore]:
    """Where that journal is."""
    with closing(opened(address)) as store:
        yield store


@pytest.mark.parametrize("verb", ["journal", "commit", "post"])
def test_entries_are_sealed_for_their_numbers_after_a_post(
    store: SealedStore, address: str, number: int, verb: str
) -> None:
    with closing(opened(address)) as other:
        posted(other, number, effect(key="posted", kind="answer", fence=0))
    at = thread_named(store, "a")
    assert at is not None

    def write(last: int) -> None:
        mine = effect(key="mine", number=last + 1)
        if verb == "journal":
            store.journal(number, 1, [mine], last=last)
        elif verb == "commit":
            store.commit(replace(commit("a", at.position), fence=1, entries=(mine,), last_entry=last))
        else:
            store.post(number, mine)

    with pytest.raises(Conflict):
        write(3)
    write(4)
    for each in (store, opened(address)):
        assert [row.key for row in read(each, number)] == ["key", "second", "third", "posted", "mine"]
    for under, taken in ((4, 5), (5, 4), (3, 5)):
        with forged(address) as (reader, forger):
            moved = reader.underlying.entries(number, after=taken - 1, limit=1)[0]
            forger.of_entry = lambda _, row, under=under, moved=moved: (  # type: ignore[misc]
                replace(moved, number=under) if row.number == under else row
            )
            with pytest.raises(Damaged):
                read(reader, number)


def test_entries_that_are_shifted_together_are_not_believed(address: str, number: int) -> None:
    """An entry is put before the others, and all of them move by one."""
    with forged(address) as (reader, forger):
        stored = reader.underlying.entries(number, after=0, limit=9)
        forger.of_entry = lambda _, row: replace(stored[max(row.number - 2, 0)], number=row.number)
        with pytest.raises(Damaged):
            reader.entries(number, after=1, limit=9)
