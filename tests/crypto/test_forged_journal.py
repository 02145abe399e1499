"""A journal that somebody without a key has written to: an entry is believed as, and where, it was written, or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Closed, Damaged, LeaseLost, Run
from holdfast.crypto.sealed_store import SealedStore
from holdfast.errors import Busy
from holdfast.stores.contract_runs import Deadline, Entry, EntryStatus
from holdfast.testing.contract.build import commit, effect, held, numbered, saved
from tests.crypto.forging import CIPHER, changed, forged, number_of, opened

# A thread's key opens them, or the store gives them out.
IN_CLEAR = [
    "branch",
    "step",
    "kind",
    "status",
    "fence",
    "begun_at",
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
            store.journal(line.number, 1, [WHOLE, effect(key="second"), effect(key="third")])
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
        [entry] = store.plain.entries(number_of(store, "a"), after=0, limit=9)
        store.plain.settle(number_of(store, "a"), 1, "done", replace(entry, status="not_done"))
    with holdfast.open(address, cipher=CIPHER, tools=[charge]) as hf:
        with pytest.raises(Damaged), hf.run("a") as run:
            work(run)
        assert "changed or moved to another place" in hf.verify().problems[0].what
    assert charged == [7]


def test_every_field_in_clear_is_authenticated(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        stored = store.plain.entries(number, after=0, limit=1)[0]
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
        other = store.plain.entries(number, after=taken - 1, limit=1)[0]
        forger.of_entry = lambda _, row: replace(other, number=under) if row.number == under else row
        with pytest.raises(Damaged, match=f"journal entry {under} .* under another number"):
            read(store, number)


def test_entries_that_changed_places_are_a_problem_for_verify(address: str, number: int) -> None:
    with closing(opened(address)) as store:
        one, two, _ = store.plain.entries(number, after=0, limit=9)
        for entry, under in ((one, 2), (two, 1)):
            store.plain.settle(number, under, "done", replace(entry, number=under))
    with holdfast.open(address, cipher=CIPHER) as hf:
        assert any("under another number" in problem.what for problem in hf.verify().problems)


def test_an_entry_of_another_thread_is_not_believed(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        others = store.plain.entries(number_of(store, "b"), after=0, limit=9)
        forger.of_entry = lambda thread, row: others[row.number - 1] if thread == number else row
        with pytest.raises(Damaged, match="key of another thread"):
            read(store, number)


@pytest.mark.parametrize("status", ["begun", "done"])
def test_an_entry_that_is_replaced_keeps_its_number(address: str, number: int, status: EntryStatus) -> None:
    with closing(opened(address)) as store:
        store.journal(number, 1, [effect(status, key="changed", number=2)])
        store.settle(number, 3, "done", effect(status, key="settled"))
        assert [row.key for row in read(store, number)] == ["key", "changed", "settled"]


def told_before(
    store: SealedStore, address: str, number: int, times: int, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Let somebody tell the run something just before what is written next gets to the store."""
    write = getattr(store.plain, verb)

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        with closing(opened(address)) as other:
            for n in range(times):
                other.post(number, effect(key=f"told {n}", kind="answer", fence=0))
        return write(*args, **options)

    monkeypatch.setattr(store.plain, verb, late)


@pytest.fixture
def store(address: str, number: int) -> Iterator[SealedStore]:
    """Where that journal is."""
    with closing(opened(address)) as store:
        yield store


@pytest.mark.parametrize("verb", ["journal", "commit"])
def test_entries_come_to_stand_behind_what_was_told_meanwhile(
    store: SealedStore, address: str, number: int, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their numbers are not those that they were sealed for, and they are believed: what came between was told."""
    told_before(store, address, number, 2, monkeypatch, verb)
    entries = [effect(key="fourth"), effect(key="fifth")]
    if verb == "journal":
        assert store.journal(number, 1, entries) == [6, 7]
    else:
        at = store.thread("a")
        assert at is not None
        store.commit(replace(commit("a", at.position), fence=1, entries=tuple(entries)))
    assert store.journal(number, 1, [effect(key="sixth")]) == [8]
    expected = numbered(
        WHOLE,
        effect(key="second"),
        effect(key="third"),
        effect(key="told 0", kind="answer", fence=0),
        effect(key="told 1", kind="answer", fence=0),
        *entries,
        effect(key="sixth"),
    )
    for each in (store, opened(address)):
        assert read(each, number) == expected


@pytest.mark.parametrize("error", [Busy("locked"), LeaseLost("taken"), Closed("closed")])
def test_an_entry_that_cannot_be_written_again_was_written_once(
    store: SealedStore, number: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands behind what was told meanwhile. Whoever heard of an error would write it a second time."""
    write = store.plain.journal

    def once(*args: Any) -> list[int]:
        def refuse(*args: Any) -> list[int]:
            monkeypatch.undo()
            raise error

        store.plain.post(number, store._seal_entry(store._seal_of(number), effect(key="told", fence=0), 4), last=3)
        monkeypatch.setattr(store.plain, "journal", refuse)
        return write(*args)

    monkeypatch.setattr(store.plain, "journal", once)
    assert store.journal(number, 1, [effect(key="mine")]) == [5]
    assert [row.key for row in read(store, number)][3:] == ["told", "mine"]


def test_what_came_to_stand_behind_is_believed_there_alone(
    store: SealedStore, address: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_before(store, address, number, 1, monkeypatch, "commit")
    at = store.thread("a")
    assert at is not None
    brought = (effect(key="fifth"), effect(key="sixth"))
    store.commit(replace(commit("a", at.position), fence=1, entries=brought))
    store.journal(number, 1, [effect(key="seventh"), effect(key="eighth")])
    for under, taken in ((4, 5), (6, 5), (7, 5), (8, 5), (7, 6), (5, 6)):
        with forged(address) as (other, forger):
            moved = other.plain.entries(number, after=taken - 1, limit=1)[0]
            forger.of_entry = lambda _, row, under=under, moved=moved: (  # type: ignore[misc]
                replace(moved, number=under) if row.number == under else row
            )
            with pytest.raises(Damaged):
                read(other, number)


def test_two_that_tell_at_once_are_both_heard(
    store: SealedStore, address: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_before(store, address, number, 1, monkeypatch, "post")
    assert store.post(number, effect(key="mine")) == 5
    assert [row.key for row in read(store, number)][3:] == ["told 0", "mine"]
