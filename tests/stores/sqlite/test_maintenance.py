"""Compaction, sweeping and giving space back, beyond what every store must do."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from holdfast.stores import segments
from holdfast.stores.contract import Append, Live, Span, Swept
from holdfast.stores.sql import upkeep
from holdfast.stores.sql.transaction import Transaction
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.connection import PAGE_SIZE
from holdfast.testing.contract.build import (
    Line,
    commit,
    names_of,
    noise,
    numbers_of,
    saved,
    swept_blobs,
    texts_of,
    value,
)
from holdfast.threads.scan import checkpoint_at, thread_named
from tests.covers import covers
from tests.stores.sqlite.conftest import Open


def long(store: SQLiteStore, name: str, saves: int, size: int = 2000) -> Line:
    line = Line(store, name)
    for n in range(saves):
        line.save(f"{n} {noise(store, size // 2, f'{name} {n}').hex()}")
    return line


def merged(path: Path) -> list[tuple[int, int, int]]:
    """The merged segments: first and last commit, size before compression."""
    reader = sqlite3.connect(path)
    found = reader.execute("SELECT first_seq, row_key, cells FROM segment ORDER BY row_key").fetchall()
    reader.close()
    return [
        (first, row_key & 0xFFFFFFFF, segments.open_(cells, segments.context_of(row_key, first))[0].size)
        for first, row_key, cells in found
    ]


def test_merged_segments_have_a_good_size(path: Path, store: SQLiteStore) -> None:
    line = long(store, "t", 700)
    before = store.cells([line.span()])[0].cells
    live = line.whole(line.span())
    done = store.sweep(line.number, live)
    assert done == Swept(merged=700)
    made = merged(path)
    assert [first for first, _, _ in made] == [1, *(last + 1 for _, last, _ in made[:-1])]
    assert len(made) == 3
    assert all(segments.TARGET <= size < 2 * segments.TARGET for _, _, size in made[:-1])
    assert store.cells([line.span()])[0].cells == before
    some = store.cells([line.span(n, 3) for n in (0, 1, 250, 690)])
    assert [read.cells for read in some] == [before[n : n + 3] for n in (0, 1, 250, 690)]
    assert list(store.check()) == []


def test_compacting_again_writes_nothing(path: Path, store: SQLiteStore) -> None:
    line = long(store, "t", 300)
    live = line.whole(line.span())
    store.sweep(line.number, live)
    store.reclaim()
    wal = path.with_name("store.db-wal")
    assert wal.stat().st_size == 0
    assert store.sweep(line.number, live) == Swept()
    assert wal.stat().st_size == 0


def test_large_segments_are_left_alone_when_small_ones_follow(path: Path, store: SQLiteStore) -> None:
    line = long(store, "t", 600)
    store.sweep(line.number, line.whole(line.span()))
    large = merged(path)[:-1]
    for n in range(5):
        line.save(f"more {n}")
    done = store.sweep(line.number, line.whole(line.span()))
    assert done.merged == 6, "five saves and the small segment at the end"
    assert merged(path)[: len(large)] == large


def test_merging_shrinks_the_file(path: Path, store: SQLiteStore) -> None:
    line = Line(store, "t")
    prompt = noise(store, 1500).hex()
    for n in range(300):
        line.save(f"{n}: what every save repeats, {prompt}, and what is new, {noise(store, 100, str(n)).hex()}")
    store.reclaim()
    before = path.stat().st_size
    store.sweep(line.number, line.whole(line.span()))
    store.reclaim()
    assert path.stat().st_size < 0.3 * before
    assert list(store.check()) == []


def test_merging_goes_on_around_a_damaged_segment(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", *"abcdefghi")
    foreign = sqlite3.connect(path)
    foreign.execute("UPDATE checkpoint SET cells = zeroblob(40) WHERE row_key = 1 << 32 | 5")
    foreign.commit()
    foreign.close()
    live = line.whole(line.span())
    assert store.sweep(line.number, live) == Swept(merged=8, damaged=1)
    assert [(first, last) for first, last, _ in merged(path)] == [(1, 4), (6, 9)]
    assert texts_of(store, line.span(0, 4), line.span(5, 4)) == [list("abcd"), list("fghi")]
    assert store.sweep(line.number, live) == Swept(damaged=1)
    assert store.sweep(line.number, line.live()).dropped == 8, "what cannot be verified is not known to be dead"
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT cells FROM checkpoint WHERE row_key = 1 << 32 | 5").fetchone() == (bytes(40),)
    reader.close()


def test_a_merged_segment_is_merged_again_without_its_dead_cells(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", *"abcdef")
    store.sweep(line.number, line.whole(line.span()))
    done = store.sweep(line.number, line.whole(line.span(0, 2), line.span(4, 2)))
    assert done == Swept(merged=1, dropped=2)
    assert texts_of(store, line.span(0, 2), line.span(4, 2)) == [["a", "b"], ["e", "f"]]
    assert store.sweep(line.number, line.whole(line.span(0, 2), line.span(4, 2))) == Swept()


def test_compacting_beside_a_writer_and_a_reader(store: SQLiteStore) -> None:
    line = long(store, "t", 300)
    other = Line(store, "other")
    stop = threading.Event()
    failures: list[BaseException] = []
    before = store.cells([line.span()])[0].cells
    whole = line.span()

    def write() -> None:
        while not stop.is_set():
            other.save("x")

    def read() -> None:
        while not stop.is_set():
            if store.cells([whole])[0].cells != before:
                failures.append(AssertionError("the cells changed"))

    threads = [threading.Thread(target=work) for work in (write, read)]
    for thread in threads:
        thread.start()
    try:
        for n in range(5):
            line.save(f"new {n}")
            store.sweep(line.number, Live((whole, line.span()), n + 295, frozenset()))
        store.reclaim()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert list(store.check()) == []


def test_two_compact_the_same_thread_at_once(open_store: Open) -> None:
    line = long(open_store(), "t", 400)
    stores = [line.store, open_store(), open_store()]
    before = line.store.cells([line.span()])[0].cells
    done: list[Swept] = []
    threads = [
        threading.Thread(target=lambda store=store: done.append(store.sweep(1, line.whole(line.span()))))
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(each.merged for each in done) >= 400
    assert not any(each.damaged or each.dropped for each in done)
    assert line.store.cells([line.span()])[0].cells == before
    assert list(line.store.check()) == []


@covers("H9")
def test_deleted_checkpoints_free_their_space(path: Path, store: SQLiteStore) -> None:
    line = Line(store, "t")
    for n in range(300):
        line.save(f"save {n}", skeleton=noise(store, 3000, str(n)))
    store.reclaim()
    before = path.stat().st_size
    store.delete(line.number, range(1, 300))
    store.reclaim()
    assert path.stat().st_size < 0.2 * before
    assert texts_of(store, line.span(298, 2)) == [["save 298", "save 299"]]
    assert list(store.check()) == []


@covers("H9")
def test_a_dropped_thread_frees_its_space(path: Path, store: SQLiteStore) -> None:
    saved(store, "stays", "x")
    store.reclaim()
    before = path.stat().st_size
    line = long(store, "t", 600)
    store.commit(commit("u", blobs=[value(noise(store, 300_000))]))
    store.drop(line.number)
    store.drop(line.number + 1)
    assert swept_blobs(store) == 1
    store.reclaim()
    assert path.stat().st_size <= before + 3 * PAGE_SIZE
    assert names_of(store) == ["stays"]
    assert list(store.check()) == []


def test_a_drop_that_was_cut_off_is_finished_by_a_sweep(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    line = long(store, "t", 600)
    steps = 0
    clear = upkeep.clear

    def cut_off(tx: Transaction, thread: int) -> bool:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise KeyboardInterrupt
        return clear(tx, thread)

    monkeypatch.setattr(upkeep, "clear", cut_off)
    with pytest.raises(KeyboardInterrupt):
        store.drop(line.number)
    assert thread_named(store, "t") is None
    assert checkpoint_at(store, line.number, 500) is None
    assert numbers_of(store) == [line.number]
    assert list(store.check()) == []
    store.sweep(line.number, line.live())
    assert numbers_of(store) == []


@covers("B1")
def test_numbers_are_never_given_out_twice(open_store: Open) -> None:
    store = open_store()
    first = saved(store, "t", "x")
    store.drop(first.number)
    store.close()
    second = saved(open_store(), "t", "y")
    assert second.number > first.number


def test_spans_over_the_same_rows_unpack_each_segment_once(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    line = saved(store, "t", *"abcdef")
    store.sweep(1, Live((line.span(),), 3, frozenset()))
    unpacked: list[segments.Opened] = []
    parts = segments.parts

    def counted(opened: segments.Opened) -> list[segments.Part]:
        unpacked.append(opened)
        return parts(opened)

    monkeypatch.setattr(segments, "parts", counted)
    spans = [line.span(n, 2) for n in range(5)] + [line.span()]
    assert texts_of(store, *spans)[-1] == list("abcdef")
    assert len(unpacked) == 4, "one merged segment and three commits"
    unpacked.clear()
    store.cells([Span(1, 1, 5, 1, 1, 6)])
    assert len(unpacked) == 1, "only what holds wanted cells"


def test_several_logs_in_one_commit_survive_merging(store: SQLiteStore) -> None:
    position = None
    for n in range(20):
        runs = [Append(log, n, (b"%d-%d" % (log, n),)) for log in (3, 1, 2)]
        position = store.commit(commit("t", position, appends=runs))
    spans = [Span(1, log, 0, 20, 1, 20) for log in (1, 2, 3)]
    before = [read.cells for read in store.cells(spans)]
    assert store.sweep(1, Live(tuple(spans), 20, frozenset())).merged == 20
    assert [read.cells for read in store.cells(spans)] == before


def test_a_plan_is_not_applied_to_a_segment_that_has_grown_since(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merged segment is found by its last commit: merged again with what lies before, it keeps its key."""
    line = Line(store, "t")
    for size in (400, 400, 300, 100, 100, 100, 100):
        line.save("x" * size)
    monkeypatch.setattr(segments, "TARGET", 150)
    store.sweep(line.number, line.whole(line.span(0, 5), horizon=5))
    monkeypatch.setattr(segments, "TARGET", 1000)
    first, stale = store.read(upkeep.plan, line.number, line.live(line.span())).groups
    store.repeatable(0, upkeep.merge, line.number, line.live(line.span()), first)
    assert [(first, last) for first, last, _ in merged(path)] == [(1, 3), (4, 5)]
    # Somebody prunes, and merges what is left.
    for _ in range(2):
        store.sweep(line.number, line.whole(line.span(0, 1), line.span(3, 2), horizon=5))
    assert [(first, last) for first, last, _ in merged(path)] == [(1, 5)]
    live = line.live(line.span(0, 1), line.span(3))
    assert store.repeatable(0, upkeep.merge, line.number, live, stale) == Swept()
    assert store.repeatable(0, upkeep.drop_dead, line.number, line.live(), stale[:1]) == Swept()
    assert texts_of(store, line.span(0, 1), line.span(3, 1)) == [["x" * 400], ["x" * 100]]
