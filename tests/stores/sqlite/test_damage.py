"""Damage: whatever happens to the file, what is read is what was written, or an error says that it is not."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import Damaged, StoreError
from holdfast.stores import segments
from holdfast.stores.contract import Append, Live, Refs, Span
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.connection import PAGE_SIZE
from holdfast.testing.contract.build import Line, commit, effect, journaled, noise, run_row, saved, summary, value
from holdfast.threads.scan import checkpoint_at, last_of, numbered, thread_named, with_refs
from tests.covers import covers
from tests.selection import tries
from tests.stores.sqlite.conftest import Open, alter, damage

SAVES = 40
ENTRIES = 40
ENDED = 10
SLEEPING = 12
IMAGE = value(b"an image " * 1000, b"its second half")


def fill(store: SQLiteStore) -> None:
    """A bit of everything: merged and single segments, labels, tombstones, a rewind, a dropped origin, a value."""
    line = Line(store, "thread")
    for n in range(SAVES):
        line.save(f"words of save {n} " * 20, label="even" if n % 2 == 0 else None, blobs=[IMAGE] if n == 3 else ())
        if n == SAVES // 2:
            store.sweep(line.number, Live((line.span(),), n, frozenset()))
    origin = saved(store, "origin", "a b", "c")
    fork = Line(store, "fork")
    fork.save("d", bases=[(origin.number, 2)], origins=[origin.number], refs=Refs(spans=(origin.span(),)))
    store.drop(origin.number)
    store.delete(line.number, [7, 8])
    line.rewind(SAVES - 5)
    line.position = store.commit(
        commit("thread", line.at, appends=[Append(2, 0, (noise(store, 9000),))], shows=summary(1))
    )

    store.claim(None, run_row(line.number, reason="why", result=b"r" * 300, updated_at=5))
    journaled(store, line.number, 1, [effect(key=f"call_{n}", result=b"%d " % n * 40) for n in range(ENTRIES)])
    for n in range(ENDED):
        store.commit(replace(commit(f"run {n}"), run=run_row(0, status="completed", updated_at=n)))
    for n in range(1, SLEEPING + 1):
        later = 1 << 60 if n % 2 else 0
        here = {"clock": store.clock().id, "wake_at": n + later, "wake_wall": n}
        elsewhere = {"clock": f"boot {n % 3}", "wake_at": n, "wake_wall": n + later}
        for name, times in (("here", here), ("elsewhere", elsewhere)):
            waits = run_row(0, status="waiting", **times)
            store.commit(replace(commit(f"{name} {n}"), run=waits))


def spans(store: SQLiteStore) -> list[Span]:
    return [Span(1, 1, 0, SAVES, 1, SAVES), Span(1, 2, 0, 1, SAVES + 1, SAVES + 1), Span(2, 1, 0, 3, 1, 2)]


def head_of(store: SQLiteStore, name: str) -> object:
    """A thread and its head; the error of either is raised."""
    head = store.head(name)
    return None if head is None else (head.thread, head.row)


VERBS: dict[str, Callable[[SQLiteStore], object]] = {
    "thread": lambda store: head_of(store, "thread"),
    "fork": lambda store: head_of(store, "fork"),
    "none": lambda store: head_of(store, "nobody"),
    "threads": lambda store: store.threads(prefix="", after=None, limit=100),
    "checkpoints": lambda store: store.checkpoints(1, before=None, limit=100),
    "labelled": lambda store: store.checkpoints(1, before=None, limit=100, label="even"),
    "stepped": lambda store: store.checkpoints(1, before=None, limit=100, step=9),
    "whole": lambda store: [checkpoint_at(store, 1, seq) for seq in range(1, SAVES + 3)],
    "refs": lambda store: [*with_refs(store, 1)],
    "cells": lambda store: store.cells(spans(store)),
    "blob": lambda store: store.blob(IMAGE.digest),
    "forks": lambda store: store.forks(2),
    "last": lambda store: last_of(store, 1),
    "numbered": lambda store: [replace(thread, last=last_of(store, thread.number)) for thread in numbered(store)],
    "run": lambda store: store.run(1),
    "entries": lambda store: store.entries(1, after=0, limit=100),
    "last entry": lambda store: store.last_entry(1),
    "woken": lambda store: store.due(limit=100),
    "open": lambda store: store.runs(statuses=["running"], after=(0, 0), limit=100),
    "waiting": lambda store: store.runs(statuses=["waiting"], after=(0, 0), limit=100),
    "ended": lambda store: store.runs(statuses=["completed"], after=(0, 0), limit=100),
}
# Found through one index alone; a damaged one may hide entries, which only a check brings to light.
CHECKED = {"threads", "labelled", "open", "waiting", "ended", "woken"}


def seen(store: SQLiteStore) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, verb in VERBS.items():
        try:
            found[name] = verb(store)
        except StoreError as error:
            found[name] = error
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, object]]:
    """A store's file, and what is read from it."""
    path = tmp_path_factory.mktemp("damage") / "store.db"
    store = SQLiteStore(path, namespace="default", durability="off")
    fill(store)
    store.reclaim()
    expected = seen(store)
    assert not [name for name, found in expected.items() if isinstance(found, Exception)]
    assert list(store.check()) == []
    store.close()
    return path.read_bytes(), expected


def assert_honest(path: Path, damaged: bytes, expected: dict[str, object]) -> int:
    """Every verb answers as before or raises; how many raised."""
    path.write_bytes(damaged)
    try:
        store = SQLiteStore(path, namespace="default", durability="off")
    except StoreError:
        return len(VERBS)
    try:
        found = seen(store)
        wrong = {name for name in VERBS if found[name] != expected[name]}
        lies = {name for name in wrong if not isinstance(found[name], Exception)}
        assert lies <= CHECKED
        if lies:
            assert list(store.check()), lies
        return len(wrong)
    finally:
        store.close()


def test_any_flipped_bit_is_noticed_or_harmless(path: Path, written: tuple[bytes, dict[str, object]]) -> None:
    stored, expected = written
    source = random.Random(7)
    hurt = 0
    flips = tries(400, 60)
    for _ in range(flips):
        damaged = bytearray(stored)
        bit = source.randrange(len(stored) * 8)
        damaged[bit // 8] ^= 1 << bit % 8
        hurt += bool(assert_honest(path, bytes(damaged), expected))
    assert hurt > flips / 8, "a good part of the file matters"


def test_structural_bytes_are_no_exception(path: Path, written: tuple[bytes, dict[str, object]]) -> None:
    """Page headers, cell pointers and the file's header, where a flipped bit sends SQLite elsewhere."""
    stored, expected = written
    source = random.Random(8)
    for _ in range(tries(400, 60)):
        damaged = bytearray(stored)
        page = source.randrange(len(stored) // PAGE_SIZE)
        at = page * PAGE_SIZE + (100 if page == 0 else 0) + source.randrange(40)
        if page == 0 and source.random() < 0.5:
            at = source.randrange(100)
        damaged[at] ^= 1 << source.randrange(8)
        assert_honest(path, bytes(damaged), expected)


@pytest.mark.parametrize(
    "content", [bytes(PAGE_SIZE), b"\xff" * PAGE_SIZE, None], ids=["zeros", "ones", "another page"]
)
def test_any_lost_page_is_noticed_or_harmless(
    path: Path, written: tuple[bytes, dict[str, object]], content: bytes | None
) -> None:
    stored, expected = written
    pages = len(stored) // PAGE_SIZE
    for page in range(pages):
        damaged = bytearray(stored)
        other = (page + 3) % pages * PAGE_SIZE
        damaged[page * PAGE_SIZE : page * PAGE_SIZE + PAGE_SIZE] = content or stored[other : other + PAGE_SIZE]
        assert_honest(path, bytes(damaged), expected)


def read_by_thread(store: SQLiteStore, lines: list[Line]) -> list[object]:
    """What each verb that reads a range of rows returns for each thread, or its error."""
    verbs: list[Callable[[Line], object]] = [
        lambda line: [cells.cells for cells in store.cells([line.span()])],
        lambda line: store.checkpoints(line.number, before=None, limit=9),
        lambda line: [None if isinstance(row, Damaged) else row for row in store.walk(line.number, after=0, limit=9)],
        lambda line: head_of(store, line.name),
    ]
    found: list[object] = []
    for line in lines:
        for verb in verbs:
            try:
                found.append(verb(line))
            except StoreError as error:
                found.append(error)
    return found


@pytest.mark.parametrize("is_merged", [False, True])
def test_pages_of_two_threads_that_changed_places_are_noticed(path: Path, open_store: Open, is_merged: bool) -> None:
    """One row per page, and equal positions in all threads: only the keys of the rows differ."""
    store = open_store()
    lines = [Line(store, name) for name in "ab"]
    for line in lines:
        for n in range(3):
            line.save(noise(store, 1300, f"{line.name} {n}").hex())
        if is_merged:
            store.sweep(line.number, Live((line.span(),), 2, frozenset()))
    expected = read_by_thread(store, lines)
    assert not [each for each in expected if isinstance(each, Exception)]
    store.reclaim()
    store.close()
    stored = path.read_bytes()
    pages = [stored[at : at + PAGE_SIZE] for at in range(0, len(stored), PAGE_SIZE)]
    leaves = [at for at, page in enumerate(pages) if page[0] == 0x0D and any(page[3:5]) and at]  # of tables
    for one, other in itertools.permutations(leaves, 2):
        for changed in ({one: pages[other]}, {one: pages[other], other: pages[one]}):
            path.write_bytes(b"".join(changed.get(at, page) for at, page in enumerate(pages)))
            try:
                reading = SQLiteStore(path, namespace="default", durability="off")
            except StoreError:
                continue
            found = read_by_thread(reading, lines)
            reading.close()
            for was, now in zip(expected, found, strict=True):
                assert was == now or isinstance(now, StoreError) or is_partly(was, now), (one, other, len(changed))


def is_partly(was: object, now: object) -> bool:
    """Whether a walk returned what was there, or None for what it could not read."""
    if not isinstance(was, list) or not isinstance(now, list) or len(was) != len(now):
        return False
    return all(new is None or new == old for old, new in zip(was, now, strict=True))


def test_a_file_that_was_cut_is_noticed(path: Path, written: tuple[bytes, dict[str, object]]) -> None:
    stored, expected = written
    # SQLite reads zeros for what is missing of the last page: the last byte that is not zero is the last that counts.
    last = len(stored.rstrip(b"\0")) - 1
    for size in (*range(PAGE_SIZE, len(stored), PAGE_SIZE), 100, 5000, last):
        assert assert_honest(path, stored[:size], expected)


COPY = "INSERT INTO checkpoint SELECT ?, step, label, head, meta, refs, skeleton, cells FROM checkpoint LIMIT 1"
MOVE_CELLS = """UPDATE checkpoint SET cells = (SELECT cells FROM checkpoint WHERE row_key = 1 << 32 | 3)
    WHERE row_key = 1 << 32 | 2"""
MOVE_HEAD = """UPDATE checkpoint SET head = (SELECT head FROM checkpoint WHERE row_key = 1 << 32 | 3)
    WHERE row_key = 1 << 32 | 2"""


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM checkpoint WHERE row_key = 1 << 32 | 3",
        "DELETE FROM checkpoint WHERE row_key = 1 << 32 | 2",
        "UPDATE thread SET last = 2",
        "UPDATE thread SET head = 2",
        "UPDATE thread SET name = x'7a' WHERE thread_no = 1",
        "UPDATE thread SET name_digest = x'05' WHERE thread_no = 1",
        "UPDATE thread SET namespace = x'7a'",
        "UPDATE thread SET step = step + 1",
        "UPDATE thread SET deleted = 1",
        "UPDATE checkpoint SET meta = x'00'",
        "UPDATE checkpoint SET step = step + 1",
        "UPDATE checkpoint SET label = x'00'",
        "INSERT INTO move VALUES (1 << 32 | 9, 2, 0)",
        "INSERT INTO segment VALUES (9 << 32 | 1, 1, x'00')",
        "INSERT INTO segment VALUES (1 << 32 | 2, 1, x'00'), (1 << 32 | 3, 2, x'00')",
        "INSERT INTO fork VALUES (1, 9)",
        "DELETE FROM piece WHERE piece_key = 1 << 24",
        "DELETE FROM blob",
        "UPDATE run SET status = CAST('completed' AS BLOB)",
        "UPDATE run SET updated_at = 9",
        "UPDATE run SET entries = 2",
        "UPDATE run SET clock = x'7a'",
        "UPDATE run SET wake_at = 1",
        "UPDATE run SET wake_at = 0 WHERE thread_no = 2",
        "UPDATE run SET wake_wall = 1",
        "UPDATE run SET fence = 2",
        "UPDATE run SET lease_until = 2",
        "UPDATE run SET lease_checksum = 2",
        "UPDATE thread SET fence = NULL",
        "UPDATE thread SET fence = 2",
        "UPDATE run SET namespace = x'7a'",
        "UPDATE run SET record = x'00'",
        "DELETE FROM run",
        """INSERT INTO run SELECT 9, namespace, status, fence, updated_at, clock, wake_at, wake_wall, handler, rank,
        ready, lease_until, lease_checksum, entries, record, checksum FROM run LIMIT 1""",
        "UPDATE entry SET record = zeroblob(length(record)) WHERE row_key = 1 << 32 | 2",
        "UPDATE entry SET record = (SELECT record FROM entry WHERE row_key = 1 << 32 | 1)",
        "DELETE FROM entry WHERE row_key = 1 << 32 | 2",
        "DELETE FROM entry WHERE row_key = 1 << 32 | 3",
        "INSERT INTO entry SELECT 1 << 32 | 4, record, topic FROM entry LIMIT 1",
        "INSERT INTO entry SELECT 9 << 32 | 1, record, topic FROM entry LIMIT 1",
    ],
)
def test_a_check_finds_what_contradicts_itself(path: Path, store: SQLiteStore, sql: str) -> None:
    line = saved(store, "t", "a", "b")
    line.save("c", blobs=[IMAGE])
    store.claim(None, run_row(1))
    journaled(store, 1, 1, [effect(key=key) for key in "abc"])
    store.commit(replace(commit("sleeps"), run=run_row(0, status="waiting", clock="boot", wake_at=7, wake_wall=7)))
    assert list(store.check()) == []
    alter(path, sql)
    assert list(store.check())


@pytest.mark.parametrize("key", [1 << 32 | 4, 9 << 32 | 1])
def test_a_check_finds_a_checkpoint_that_should_not_be_there(path: Path, store: SQLiteStore, key: int) -> None:
    saved(store, "t", "a", "b", "c")
    alter(path, COPY, key)
    assert list(store.check())


def test_a_check_says_which_checkpoint_is_hurt(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "a", "b", "c")
    alter(path, "UPDATE checkpoint SET skeleton = x'00' WHERE row_key = 1 << 32 | 2")
    assert [(problem.thread, problem.seqs) for problem in store.check()] == [("t", (2,))]


@covers("A4", "ares/test_stale_pointer", "ares/CheckpointManager.load_latest.invalid")
def test_a_thread_whose_newest_checkpoint_vanished_is_damaged_and_not_older(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", "a", "b", "c")
    alter(path, "DELETE FROM checkpoint WHERE row_key = 1 << 32 | 3")
    with pytest.raises(Damaged):
        thread_named(store, "t")
    with pytest.raises(Damaged):
        line.save("d")
    with pytest.raises(Damaged, match="checkpoint 3"):
        checkpoint_at(store, 1, 3)
    with pytest.raises(Damaged, match="checkpoint 3"):
        list(with_refs(store, 1))
    assert checkpoint_at(store, 1, 2) is not None, "what is whole can be read"


def test_a_checkpoint_missing_in_the_middle_stops_a_sweep_but_no_neighbour(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "a", "b", "c", "d")
    alter(path, "DELETE FROM checkpoint WHERE row_key = 1 << 32 | 2")
    with pytest.raises(Damaged, match="checkpoint 2"):
        list(with_refs(store, 1))
    with pytest.raises(Damaged, match="checkpoint 2"):
        store.checkpoints(1, before=None, limit=10)
    assert [row.seq for row in store.checkpoints(1, before=None, limit=2)] == [4, 3]


@covers("C7")
def test_an_existing_key_is_damage_and_not_overwritten(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", "a")
    alter(
        path,
        "INSERT INTO checkpoint SELECT 1 << 32 | 2, step, label, head, meta, refs, skeleton, cells FROM checkpoint",
    )
    with pytest.raises(Damaged):
        line.save("b")


@covers("G5")
def test_rows_that_were_swapped_are_noticed(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", "a", "b", "c")
    alter(path, MOVE_CELLS)
    with pytest.raises(Damaged):
        store.cells([line.span(1, 1)])
    assert store.cells([line.span(0, 1), line.span(2, 1)])
    alter(path, MOVE_HEAD)
    with pytest.raises(Damaged):
        checkpoint_at(store, 1, 2)


def test_cells_that_changed_threads_are_noticed(path: Path, store: SQLiteStore) -> None:
    one, other = saved(store, "a", "a1", "a2"), saved(store, "b", "b1", "b2")
    with sqlite3.connect(path) as connection:
        keys = [segments.key(line.number, 1) for line in (one, other)]
        read = "SELECT cells FROM checkpoint WHERE row_key = ?"
        cells = [connection.execute(read, (key,)).fetchone()[0] for key in keys]
        connection.executemany(
            "UPDATE checkpoint SET cells = ? WHERE row_key = ?", zip(cells, reversed(keys), strict=True)
        )
    connection.close()
    for line in (one, other):
        with pytest.raises(Damaged):
            store.cells([line.span(0, 1)])
        assert store.cells([line.span(1, 1)])


def test_a_merged_segment_is_bound_to_its_first_commit(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", "a", "b", "c", "d")
    store.sweep(line.number, Live((line.span(2),), 4, frozenset()))
    alter(path, "UPDATE segment SET first_seq = 1")
    with pytest.raises(Damaged):
        store.cells([line.span(2)])


def test_a_damaged_segment_hurts_only_those_who_name_it(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", "a", "b", "c")
    alter(path, "UPDATE checkpoint SET cells = zeroblob(length(cells)) WHERE row_key = 1 << 32 | 2")
    with pytest.raises(Damaged, match="cells 1 to 2 of log 1"):
        store.cells([line.span()])
    # Asked for by a span whose commits reach over the damaged one, and named by nobody.
    assert store.cells([Span(1, 1, 0, 1, 1, 3)])[0].cells == store.cells([line.span(0, 1)])[0].cells


def test_a_page_that_sqlite_cannot_read_hurts_only_those_who_name_it(path: Path, open_store: Open) -> None:
    store = open_store()
    line = Line(store, "t")
    for n in range(9):
        line.position = store.commit(commit("t", line.position, appends=[Append(1, n, (noise(store, 3000, str(n)),))]))
    store.reclaim()
    store.close()
    stored = bytearray(path.read_bytes())
    needle = noise(store, 3000, "4")[:100]
    page = stored.index(needle) // PAGE_SIZE
    stored[page * PAGE_SIZE : page * PAGE_SIZE + 8] = bytes(8)
    path.write_bytes(stored)
    store = open_store()
    spans = [Span(1, 1, n, 1, 1, 9) for n in range(9)]
    whole = []
    for n, span in enumerate(spans):
        try:
            assert store.cells([span])[0].cells == [noise(store, 3000, str(n))]
        except Damaged:
            continue
        whole.append(n)
    assert whole == [0, 1, 2, 3, 5, 6, 7, 8]


def test_a_damaged_value_is_noticed(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "a")
    store.commit(commit("u", blobs=[IMAGE]))
    alter(path, "UPDATE piece SET data = zeroblob(length(data)) WHERE piece_key = 1 << 24 | 1")
    with pytest.raises(Damaged):
        store.blob(IMAGE.digest)


# A record's header: its length, and integers of a byte each (9 stands for the integer 1, which then takes none).
@pytest.mark.parametrize(
    ("tree", "old", "new"),
    [
        ("fork", b"\x03\x09\x01\x02", b"\x03\x09\x01\x03"),
        ("fork", b"\x03\x09\x01\x02", b"\x03\x08\x01\x02"),
        ("fork_by_thread", b"\x03\x01\x09\x02", b"\x03\x01\x08\x02"),
    ],
)
def test_nothing_a_fork_uses_goes_on_the_word_of_one_page(
    path: Path, open_store: Open, tree: str, old: bytes, new: bytes
) -> None:
    origin = saved(open_store(), "origin", "a b", "c")
    fork = Line(origin.store, "fork")
    fork.save("d", bases=[(origin.number, 2)], origins=[origin.number], refs=Refs(spans=(origin.span(),)))
    before = origin.store.cells([origin.span()])
    origin.store.close()
    damage(path, tree, old, new)
    store = open_store()
    for verb in (store.forks, store.drop):
        with pytest.raises(Damaged, match="lookups of the forks"):
            verb(origin.number)
    with pytest.raises(Damaged, match="lookups of the forks"):
        store.sweep(origin.number, Live((), 0))
    assert store.cells([origin.span()]) == before


def test_a_label_that_its_index_lost_is_damage(path: Path, open_store: Open) -> None:
    line = Line(open_store(), "t")
    line.save("a", label="plan-ready")
    line.save("b")
    line.save("c", label="plan-done")
    line.store.close()
    damage(path, "checkpoint_by_label", b"plan-ready", b"plan-seady")
    store = open_store()
    with pytest.raises(Damaged, match="label"):
        store.checkpoints(line.number, before=None, limit=10, label="plan-ready")
    assert [row.seq for row in store.checkpoints(line.number, before=None, limit=10, label="plan-done")] == [3]
    assert store.checkpoints(line.number, before=None, limit=10, label="plan-done", step=1) == []
    assert store.checkpoints(line.number, before=3, limit=10, label="plan-done") == []
    assert store.checkpoints(line.number, before=None, limit=10, label="never") == []


@pytest.mark.parametrize(
    "change",
    ["UPDATE thread SET step = 77", "UPDATE thread SET deleted = 77", "UPDATE thread SET head_id = zeroblob(16)"],
)
def test_damage_in_another_namespace_is_not_reported_in_this_one(path: Path, open_store: Open, change: str) -> None:
    theirs = saved(open_store(namespace="theirs"), "t", "a")
    alter(path, change)
    store = open_store(namespace="mine")
    assert store.numbered(after=None, limit=1) == store.numbered(after=None, limit=2) == []
    assert checkpoint_at(store, theirs.number, 1) is None
    assert store.walk(theirs.number, after=0, limit=9) == []
    assert store.forks(theirs.number) == []
    mine = saved(store, "t", "a")
    assert [each.number for each in store.numbered(after=None, limit=1)] == [mine.number]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_thread_with_a_damaged_namespace_is_not_taken_for_one_of_another(
    path: Path, store: SQLiteStore, is_dropped: bool
) -> None:
    origin = saved(store, "origin", "a")
    fork = Line(store, "fork")
    fork.save("b", bases=[(origin.number, 1)], origins=[origin.number], refs=Refs(spans=(origin.span(),)))
    if is_dropped:
        store.drop(origin.number)
    alter(path, "UPDATE thread SET namespace = CAST('theirs' AS BLOB) WHERE thread_no = 1")
    [found] = store.numbered(after=None, limit=1)
    assert found.number == origin.number
    assert isinstance(found.name, Damaged)
    with pytest.raises(Damaged):
        store.forks(origin.number)
