"""Threads that somebody without a key has mixed up: names, agents, labels, checkpoints, cells are not believed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Damaged
from holdfast.crypto.sealed_store import SealedStore
from holdfast.stores.contract import NO_REFS, Cells, CheckpointRow, Refs, Span, ThreadRow
from holdfast.testing.contract.build import effect, held, journaled
from holdfast.threads.scan import checkpoint_at, thread_named
from tests.covers import covers
from tests.crypto.forging import CIPHER, Forger, changed, forged, number_of, opened


def messages(name: str, count: int = 60) -> list[dict[str, str]]:
    return [{"text": f"{name} {n:03} " + "x" * 200} for n in range(count)]


@pytest.fixture
def number(address: str) -> int:
    """Two threads that look alike, with an agent, a label and a journal each."""
    with holdfast.open(address, cipher=CIPHER) as hf:
        for name in ("a", "b"):
            hf.thread(name).save({"m": messages(name)}, agent=f"agent of {name}", label=f"first of {name}")
            hf.thread(name).save({"m": messages(name, 61)}, label=f"second of {name}")
            store = hf.context.store
            thread = number_of(store, name)
            store.claim(None, held(store, thread))
            journaled(store, thread, 1, [effect(key=f"of {name}")])
        return number_of(hf.context.store, "a")


def other_of(store: SealedStore) -> int:
    return number_of(store, "b")


# -- names -----------------------------------------------------------------------------------------------------------


def with_name_of_other(store: SealedStore, forger: Forger) -> None:
    """The names of the two threads are exchanged."""
    rows = {name: thread_named(store.underlying, name) for name in ("a", "b")}

    def exchange(row: ThreadRow) -> ThreadRow:
        other = rows["b" if row.name == "a" else "a"]
        assert other is not None
        return replace(other, name=row.name)

    forger.of_thread = exchange


def test_a_thread_is_not_found_under_the_name_of_another(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        with_name_of_other(store, forger)
        with pytest.raises(Damaged):
            thread_named(store, "a")


def test_a_thread_is_not_listed_under_the_name_of_another(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        with_name_of_other(store, forger)
        with pytest.raises(Damaged):
            store.threads(prefix="", after=None, limit=9)


def test_what_is_sealed_for_a_name_does_not_lead_to_another_thread(address: str, number: int) -> None:
    """The row of a thread says all that it said, but for the number: that of the other."""
    with forged(address) as (store, forger):
        other = other_of(store)
        forger.of_thread = lambda row: replace(row, position=replace(row.position, thread=other))
        with pytest.raises(Damaged, match="key of another thread"):
            thread_named(store, "a")
    with forged(address) as (store, forger):
        forger.of_thread = lambda row: replace(row, position=replace(row.position, thread=other))
        assert thread_named(store, "a") is not None, "nothing says yet whose that number is"
        with pytest.raises(Damaged, match="key of another thread"):
            checkpoint_at(store, other, 1)


@pytest.mark.parametrize("limit", [1, 9])
def test_a_thread_that_cannot_be_told_keeps_nobody_from_the_others(address: str, number: int, limit: int) -> None:
    with forged(address) as (store, forger):
        other = thread_named(store.underlying, "b")
        assert other is not None
        forger.of_thread = lambda row: replace(other, name="a") if row.name == "a" else row
        [told] = store.threads(prefix="", after=None, limit=limit)
        assert told.name == "b"
        with pytest.raises(Damaged):
            store.threads(prefix="", after="b", limit=limit)
        forger.of_thread = lambda row: row
        assert store.threads(prefix="", after="b", limit=limit) == []


@pytest.mark.parametrize("agent", [None, "", "made up", "\x01sealed:" + "QUJD" * 20])
def test_a_thread_that_has_lost_its_agent_is_known_by_its_checkpoints(
    address: str, number: int, agent: str | None
) -> None:
    """So its states can be fallen back on, and repaired."""
    with forged(address) as (store, forger):
        forger.of_thread = lambda row: with_agent(row, agent) if row.name == "a" else row
        with pytest.raises(Damaged, match="does not belong to its name") as raised:
            thread_named(store, "a")
        assert raised.value.known is not None
        assert raised.value.known.position.thread == number
        listed = store.threads(prefix="", after=None, limit=9)
        assert [row.summary.agent for row in listed] == [None, other_agent(store)]
        with pytest.raises(Damaged, match="does not belong to its name"):
            store.threads(prefix="", after="b", limit=9)


def other_agent(store: SealedStore) -> str | None:
    row = thread_named(store, "b")
    return None if row is None else row.summary.agent


def with_agent(row: ThreadRow, agent: str | None) -> ThreadRow:
    return replace(row, summary=replace(row.summary, agent=agent))


def test_the_agent_of_another_thread_is_not_believed(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        other = thread_named(store.underlying, "b")
        assert other is not None
        forger.of_thread = lambda row: with_agent(row, other.summary.agent)
        with pytest.raises(Damaged):
            thread_named(store, "a")


def test_a_rewound_thread_keeps_its_name_and_agent(address: str, number: int) -> None:
    with holdfast.open(address, cipher=CIPHER) as hf:
        hf.thread("c").save({"n": 1}, agent="first")
        hf.thread("c").save({"n": 2}, agent="second")
    with closing(opened(address)) as store:
        row = thread_named(store, "c")
        assert row is not None
    with closing(opened(address)) as store:
        store.rewind(row.position, to=1, summary=replace(row.summary, agent="first"))
    with holdfast.open(address, cipher=CIPHER) as hf:
        latest = hf.thread("c").latest()
        assert latest is not None
        assert latest.state == {"n": 1}
        assert {info.name: info.agent for info in hf.threads()}["c"] == "first"


# -- which key a thread has ------------------------------------------------------------------------------------------


def test_what_is_read_first_does_not_decide_whose_a_thread_is(address: str, number: int) -> None:
    """The other thread's records come first, to a handle that has read nothing: they are damage."""
    with closing(opened(address)) as store:
        other = other_of(store)
        entry = store.underlying.entries(other, after=0, limit=1)[0]
        saved = checkpoint_at(store.underlying, other, 1)
        assert saved is not None
    with forged(address) as (store, forger):
        forger.of_entry = lambda thread, row: entry
        with pytest.raises(Damaged, match="key of another thread"):
            store.entries(number, after=0, limit=1)
        forger.of_entry = lambda thread, row: row
        assert store.entries(number, after=0, limit=1)[0].key == "of a"
    with forged(address) as (store, forger):
        forger.of_checkpoint = lambda thread, row: saved if row.seq == 1 else row
        with pytest.raises(Damaged, match="key of another thread"):
            checkpoint_at(store, number, 1)
        assert checkpoint_at(store, number, 2) is not None


def test_a_key_that_a_record_only_claims_to_have_is_not_learned(address: str, number: int) -> None:
    with closing(opened(address)) as store:
        saved = checkpoint_at(store.underlying, other_of(store), 2)
        assert saved is not None
    with forged(address) as (store, forger):
        # The newest checkpoint is said to be sealed by the other's key, which does not open it.
        forger.of_checkpoint = lambda thread, row: claimed(row, saved.meta) if row.seq == 2 else row
        assert store.entries(number, after=0, limit=1)[0].key == "of a", "the one before it says whose this is"


def claimed(row: CheckpointRow, by: bytes) -> CheckpointRow:
    return replace(row, meta=by[:10] + row.meta[10:])


# -- checkpoints -----------------------------------------------------------------------------------------------------


@covers("G9")
@pytest.mark.parametrize("field", ["seq", "id", "step", "move", "digest", "label"])
def test_every_field_of_a_checkpoint_is_authenticated(address: str, number: int, field: str) -> None:
    with forged(address) as (store, forger):
        forger.of_checkpoint = lambda _, row: replace(row, **{field: changed(getattr(row, field))})
        with pytest.raises(Damaged):
            checkpoint_at(store, number, 2)
        with pytest.raises(Damaged):
            store.checkpoints(number, before=None, limit=9)


@pytest.mark.parametrize("parent", [None, (0, 2), (9, 1)])
def test_the_parent_of_a_checkpoint_is_authenticated(address: str, number: int, parent: Any) -> None:
    with forged(address) as (store, forger):
        forger.of_checkpoint = lambda _, row: replace(row, parent=parent)
        with pytest.raises(Damaged):
            checkpoint_at(store, number, 2)


def test_a_label_does_not_lead_to_another_checkpoint(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        tokens = {row.seq: row.label for row in store.underlying.checkpoints(number, before=None, limit=9)}
        forger.of_checkpoint = lambda _, row: replace(row, label=tokens[3 - row.seq])
        with pytest.raises(Damaged):
            store.checkpoints(number, before=None, limit=1, label="first of a")


def test_cells_that_a_checkpoint_names_are_those_it_named(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        forger.of_checkpoint = lambda _, row: replace(row, refs=shifted(row.refs))
        with pytest.raises(Damaged):
            checkpoint_at(store, number, 2)


def shifted(refs: Refs) -> Refs:
    """The same number of cells, from elsewhere in the same logs."""
    return Refs(tuple(Span(s.thread, s.log, s.start + 1, s.count, s.first, s.last) for s in refs.spans), refs.blobs)


def test_cells_that_a_cell_names_are_those_it_named(address: str) -> None:
    state = {"files": {f"file {n}": [f"line {line} " + "y" * 90 for line in range(80)] for n in range(80)}}
    with holdfast.open(address, cipher=CIPHER) as hf:
        hf.thread("deep").save(state)
    with forged(address) as (store, forger):
        thread = number_of(store, "deep")
        row = checkpoint_at(store, thread, 1)
        assert row is not None
        spans = [replace(span, thread=thread) for span in row.refs.spans]
        [read] = [cells for cells in store.cells(spans) if any(refs != NO_REFS for refs in cells.refs)]
        assert read.cells
        forger.of_cells = lambda cells: Cells(cells.blocks, [shifted(refs) for refs in cells.refs])
        with pytest.raises(Damaged):
            store.cells(spans)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_fork_does_not_take_the_cells_of_another_for_those_of_its_origin(address: str, is_dropped: bool) -> None:
    numbers: dict[str, int] = {}
    with holdfast.open(address, cipher=CIPHER) as hf:
        for name in ("a", "b"):
            hf.thread(name).save({"m": messages(name)})
            numbers[name] = number_of(hf.context.store, name)
            hf.thread(name).fork(f"fork of {name}")
            if is_dropped:
                hf.thread(name).drop()
    with forged(address) as (store, forger):
        row = checkpoint_at(store, number_of(store, "fork of a"), 1)
        assert row is not None
        exchange = {numbers["a"]: numbers["b"], numbers["b"]: numbers["a"]}
        forger.of_span = lambda span: replace(span, thread=exchange[span.thread])
        with pytest.raises(Damaged, match="key of another thread"):
            store.cells(row.refs.spans)


# -- heads -----------------------------------------------------------------------------------------------------------


def test_a_forged_head_is_returned_as_an_error_with_its_thread(address: str, number: int) -> None:
    with forged(address) as (store, forger):
        before = store.head("a")
        assert before is not None
        assert not isinstance(before.checkpoint, Damaged)
        forger.of_checkpoint = lambda _, row: replace(row, step=row.step + 1)
        head = store.head("a")
        assert head is not None
        assert head.thread == before.thread
        assert isinstance(head.checkpoint, Damaged)
        forger.of_checkpoint = lambda _, row: replace(row, deleted=True, meta=b"", skeleton=b"")
        head = store.head("a")
        assert head is not None
        with pytest.raises(Damaged, match="deleted"):
            _ = head.row
