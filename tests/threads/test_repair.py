"""Repair: all that can be read is in the new store as it was, what cannot is said, and the old one is not touched."""

from __future__ import annotations

import itertools
import os
import random
import resource
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, HoldfastError, InvalidArgument, maintenance, urls
from holdfast.errors import AlreadyExists, StoreError
from holdfast.stores.contract import Span
from holdfast.threads.scan import thread_named
from holdfast.threads.strays import UsedCells
from holdfast.types import RepairResult, VerifyProgress
from tests.covers import covers
from tests.crash import ledger
from tests.runs.conftest import write_results
from tests.selection import IN_FULL
from tests.threads import tables as tabled
from tests.threads.tables import Tables
from tests.threads.wholes import (
    CIPHER,
    KINDS,
    STATES,
    address,
    execute,
    fill,
    fingerprint,
    flip,
    opened,
    seen,
    state_at,
)

SEQ = "row_key & 4294967295"
FLIPS = 1_500 if os.environ.get("HOLDFAST_LAB") == "full" else 100  # fewer do not tell the limits below from chance


@pytest.fixture(params=tabled.KINDS)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    return Tables(request.param, tmp_path)


# `make test` has each kind of store once as what is copied, and each as what it is copied to.
COPIES = [("memory", "sqlite"), ("sqlite", "directory"), ("directory", "postgres"), ("postgres", "sqlite")]


@pytest.mark.parametrize(
    ("kind", "target"),
    list(itertools.product(KINDS, ["sqlite", "directory", "postgres"])) if IN_FULL else COPIES,
)
@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
def test_a_whole_store_is_copied_as_it_is(kind: str, target: str, cipher: Any, tmp_path: Path) -> None:
    with opened(kind, tmp_path, cipher=cipher) as hf:
        fill(hf)
        before = seen(hf)
        done = hf.repair(address(target, tmp_path, "new"))
        positions = [thread_named(hf.context.store, name) for name in before]
    assert done.ok
    assert (done.threads, done.entries) == (4, 3)
    with opened(target, tmp_path, "new", cipher) as new:
        assert seen(new) == before
        assert new.verify().ok
        found = [thread_named(new.context.store, name) for name in before]
        assert [(row.position.move, row.position.last) for row in found if row] == [
            (row.position.move, row.position.last) for row in positions if row
        ]
        # It goes on as the old one would have.
        assert new.thread("t").save(state_at(4)).seq == STATES + 2
        new.optimize()
        assert new.verify().ok
        assert {name: seen(new)[name] for name in before if name != "t"} == {
            name: before[name] for name in before if name != "t"
        }


@covers("G8")
def test_digests_stay_where_no_thread_has_another_number(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, cipher=CIPHER) as hf:
        thread = hf.thread("t")
        for n in range(1, STATES + 1):
            thread.save(state_at(n))
        thread.fork("fork")
        mark = hf.fingerprint()
        done = hf.repair(address("sqlite", tmp_path, "new"))
    assert done.redigested == 0
    with opened("sqlite", tmp_path, "new", CIPHER) as new:
        assert new.verify(fingerprint=mark).ok


def test_the_target_holds_nothing_yet(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "new") as new:
        new.thread("mine").save({"n": 1})
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
        for target in ("new", "store"):
            with pytest.raises(AlreadyExists):
                hf.repair(address("sqlite", tmp_path, target))
    with opened("sqlite", tmp_path, "new") as new:
        assert [info.name for info in new.threads()] == ["mine"]
    assert not list(tmp_path.glob(".holdfast-*"))


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[VerifyProgress] = []
    with opened("memory", tmp_path) as hf:
        fill(hf)
        hf.repair(address("sqlite", tmp_path, "new"), progress=told.append)
    assert told[-1].done == told[-1].total


def filled(tables: Tables) -> None:
    with tables.opened() as hf:
        fill(hf)


def repaired(tables: Tables) -> tuple[RepairResult, Holdfast]:
    with tables.opened() as hf:
        done = hf.repair(address("sqlite", tables.folder, "new"))
    new = opened("sqlite", tables.folder, "new")
    assert new.verify().ok
    return done, new


@covers("A6")
def test_checkpoints_that_are_damaged_become_tombstones_and_the_others_stay(tables: Tables) -> None:
    filled(tables)
    tables.change_blob("checkpoint", "skeleton", f"{tables.in_thread('t')} AND {SEQ} = 8", flip)
    done, new = repaired(tables)
    with new:
        assert [(lost.thread, lost.seqs) for lost in done.lost] == [("t", (8,))]
        assert [c.seq for c in new.thread("t").history()] == [9, 7, 6, 5, 4, 3]
        assert new.thread("t").load("@6").state == state_at(6)


def test_cells_that_are_damaged_hurt_what_names_them(tables: Tables) -> None:
    filled(tables)
    tables.change_blob("checkpoint", "cells", f"{tables.in_thread('t')} AND {SEQ} = 5", flip)
    done, new = repaired(tables)
    with new:
        assert {seq for lost in done.lost if lost.thread == "t" for seq in lost.seqs} == {5, 6, 7, 8, 9}
        assert [c.seq for c in new.thread("t").history()] == [4, 3]
        # What began at the damaged one is lost with it.
        assert {lost.thread for lost in done.lost} == {"t", "fork"}
        assert [info.name for info in new.threads()] == ["orphan", "run", "t"]


def test_a_head_that_is_lost_is_replaced_by_the_nearest_before_it(tables: Tables) -> None:
    with tables.opened() as hf:
        for n in range(1, STATES + 1):
            hf.thread("t").save(state_at(n), step=n)
    tables.change_blob("checkpoint", "cells", f"{SEQ} = 8", flip)
    done, new = repaired(tables)
    with new:
        latest = new.thread("t").latest()
        assert latest is not None
        assert latest.state == state_at(7)
        assert any("continues from checkpoint 7" in lost.what for lost in done.lost)


def test_a_missing_row_leaves_those_after_it_with_another_digest(tables: Tables) -> None:
    filled(tables)
    tables.execute(f"DELETE FROM checkpoint WHERE {tables.in_thread('t')} AND {SEQ} = 7")  # noqa: S608 - a number
    done, new = repaired(tables)
    with new:
        # 8 came from it, and nothing came from 8; what 7 brought, 8 names.
        assert {seq for lost in done.lost for seq in lost.seqs} == {7, 8}
        assert [c.seq for c in new.thread("t").history()] == [9, 6, 5, 4, 3]


def test_the_record_of_a_thread_in_a_file_is_made_anew(tmp_path: Path) -> None:
    tables = Tables("sqlite", tmp_path)
    filled(tables)
    tables.execute("UPDATE thread SET size = size + 1 WHERE name = ?", b"t")
    with tables.opened() as hf, pytest.raises(HoldfastError):
        hf.thread("t").latest()
    done, new = repaired(tables)
    with new:
        assert done.ok
        assert len(list(new.thread("t").history())) == STATES - 1


@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
def test_a_thread_in_a_database_whose_record_is_damaged_is_said_and_the_others_are_copied(
    cipher: Any, tmp_path: Path
) -> None:
    tables = Tables("postgres", tmp_path)
    with tables.opened(cipher) as hf:
        fill(hf)
        before = seen(hf)
    tables.execute("UPDATE thread SET size = size + 1 WHERE name = ?", b"orphan")
    with tables.opened(cipher) as hf:
        done = hf.repair(address("directory", tmp_path, "new"))
    assert any("thread with number" in lost.what for lost in done.lost)
    with opened("directory", tmp_path, "new", cipher) as new:
        assert new.verify().ok
        assert seen(new) == {name: each for name, each in before.items() if name != "orphan"}


def test_a_thread_whose_record_is_gone_gets_a_name(tmp_path: Path) -> None:
    tables = Tables("sqlite", tmp_path)
    filled(tables)
    [(number,)] = tables.rows("SELECT thread_no FROM thread WHERE name = ?", b"t")
    tables.execute("DELETE FROM thread WHERE name = ?", b"t")
    _, new = repaired(tables)
    with new:
        assert len(list(new.thread(f"recovered thread {number}").history())) == STATES - 1


def test_a_lost_journal_entry_is_in_doubt_and_its_run_is_nobodys(tables: Tables) -> None:
    with tables.opened() as hf:
        fill(hf)
        with hf.run("open", start={"n": 0}) as run:
            for _ in run.steps():
                for _ in range(3):
                    run.model(lambda: 1)
                break
    tables.change_blob("entry", "record", f"{tables.in_thread('open')} AND {SEQ} = 2", flip)
    done, new = repaired(tables)
    with new:
        assert [(lost.thread, "journal entries 2" in lost.what) for lost in done.lost] == [("open", True)]
        assert [effect.status for effect in new.effects("open")] == ["done", "in_doubt", "done"]
        (info,) = new.threads(prefix="open")
        assert info.status == "failed"
        assert [(each.status, each.reason) for each in new.interrupted()] == [
            ("failed", "part of it was damaged, and a repair left that out")
        ]


def test_a_run_that_was_under_way_can_be_resumed(tables: Tables, tmp_path: Path) -> None:
    asked: list[int] = []

    def reply() -> int:
        asked.append(7)
        return 7

    with tables.opened() as hf:
        block = hf.run("open", start={"n": 0}, lease=600.0)
        run = block.__enter__()
        assert run.model(reply) == 7
        write_results(run)
        done = hf.repair(address("sqlite", tmp_path, "new"))
        assert done.ok
        block.__exit__(None, None, None)

    with opened("sqlite", tmp_path, "new") as new, new.run("open", start={"n": 0}) as again:
        assert again.model(reply) == 7
    assert asked == [7]


def test_the_old_store_is_only_read(tmp_path: Path) -> None:
    for kind in ("sqlite", "directory"):
        folder = tmp_path / kind
        folder.mkdir()
        with opened(kind, folder) as hf:
            fill(hf)
        before = fingerprint(folder)
        with opened(kind, folder) as hf:
            hf.repair(address("sqlite", tmp_path, f"new {kind}"))
        after = {name: digest for name, digest in fingerprint(folder).items() if not name.endswith("-wal")}
        assert after == before


def test_the_old_store_in_a_database_is_only_read(tmp_path: Path) -> None:
    tables = Tables("postgres", tmp_path)
    filled(tables)
    before = tables.content()
    _, new = repaired(tables)
    new.close()
    assert tables.content() == before


def test_a_fork_of_a_dropped_thread_is_kept_where_the_log_of_another_is_lost(tmp_path: Path) -> None:
    with opened("directory", tmp_path) as hf:
        fill(hf)
        orphan = hf.thread("orphan").load("@-1").state
    (tmp_path / "store" / "default" / "threads" / "run" / "log.jsonl").write_bytes(b"nothing of it is left")
    with opened("directory", tmp_path) as hf:
        done = hf.repair(address("directory", tmp_path, "new"))
    assert not done.ok
    with opened("directory", tmp_path, "new") as new:
        assert [info.name for info in new.threads()] == ["fork", "orphan", "t"]
        assert new.thread("orphan").load("@-1").state == orphan
        assert new.verify().ok


@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
def test_a_thread_whose_last_line_is_damaged_is_kept_up_to_there(tmp_path: Path, cipher: Any) -> None:
    with opened("directory", tmp_path, cipher=cipher) as hf:
        for n in range(1, 6):
            hf.thread("t").save(state_at(n), step=n)
    log = tmp_path / "store" / "default" / "threads" / "t" / "log.jsonl"
    data = bytearray(log.read_bytes())
    data[-30] ^= 1
    log.write_bytes(data)
    with opened("directory", tmp_path, cipher=cipher) as hf:
        done = hf.repair(address("directory", tmp_path, "new"))
    assert not done.ok
    assert (done.threads, done.checkpoints) == (1, 4)
    with opened("directory", tmp_path, "new", cipher) as new:
        assert new.verify().ok
        assert [checkpoint.step for checkpoint in new.thread("t").history()] == [4, 3, 2, 1]
        latest = new.thread("t").latest()
        assert latest is not None
        assert latest.state == state_at(4)


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_the_target_is_not_the_old_store_nor_in_it(kind: str, tmp_path: Path) -> None:
    """Also where so much of it is lost that it looks empty."""
    with opened(kind, tmp_path) as hf:
        hf.thread("t").save(state_at(2))
    if kind == "sqlite":
        execute(tmp_path / "store.db", "DELETE FROM thread")
    before = fingerprint(tmp_path)
    with opened(kind, tmp_path) as hf:
        with pytest.raises(AlreadyExists, match="the store itself"):
            hf.repair(address(kind, tmp_path))
        if kind == "directory":
            for target in (f"dir:{tmp_path / 'store' / 'new'}", tmp_path / "store" / "new.db"):
                with pytest.raises(InvalidArgument, match="in the folder of the store"):
                    hf.repair(target)
    assert fingerprint(tmp_path) == before


def test_whatever_bit_is_flipped_what_is_repaired_is_true(tmp_path: Path) -> None:
    """Each store that can be opened is repaired into a sound one, of which every state is one that was saved."""
    with opened("sqlite", tmp_path) as hf:
        for name in ("t", "other"):
            for n in range(1, STATES + 1):
                hf.thread(name).save(state_at(n), step=n)
        hf.thread("t").fork("fork", at="@5")
    content = (tmp_path / "store.db").read_bytes()
    source = random.Random(14)
    kept = closed = 0
    for number in range(FLIPS):
        at, bit = source.randrange(len(content)), source.randrange(8)
        where = f"flip bit {bit} of byte {at} (number {number}; seed 14)"
        changed = bytearray(content)
        changed[at] ^= 1 << bit
        (tmp_path / "flipped.db").write_bytes(changed)
        try:
            with opened("sqlite", tmp_path, "flipped") as hf:
                done = hf.repair(address("sqlite", tmp_path, f"new {number}"))
        except HoldfastError:
            closed += 1
        else:
            with opened("sqlite", tmp_path, f"new {number}") as new:
                assert new.verify().ok, where
                for info in new.threads():
                    for checkpoint in new.thread(info.name).history():
                        state = new.thread(info.name).load(checkpoint).state
                        assert state == state_at(state["step"]), where
            assert done.checkpoints == 2 * STATES + 1 or done.lost, where
            kept += done.checkpoints
        for file in tmp_path.glob(f"new {number}.db*"):
            file.unlink()
        for file in tmp_path.glob("flipped.db-*"):
            file.unlink()
    # Seven of a hundred flips hit the header or the schema; three deviations more are chance.
    assert closed < 0.07 * FLIPS + 3 * (0.07 * FLIPS) ** 0.5
    assert kept > 0.97 * (FLIPS - closed) * (2 * STATES + 1)
    ledger.note("repair", "sqlite", bits_flipped=FLIPS)


def test_a_merged_store_with_deleted_checkpoints_is_copied_whole(tmp_path: Path) -> None:
    """Cells that deleted checkpoints brought, and merged segments hold, find their way to what names them."""
    source = random.Random(3)
    with opened("sqlite", tmp_path) as hf:
        thread = hf.thread("t")
        state: dict[str, Any] = {"messages": [], "files": {f"f{i}": "x" * 30 for i in range(90)}}
        for n in range(60):
            state["messages"].append({"n": n, "text": "word " * source.randrange(60)})
            state["files"][f"f{source.randrange(90)}"] = f"changed at {n}"
            if n % 7 == 0:
                state["messages"] = state["messages"][source.randrange(len(state["messages"])) :]
            thread.save(state)
            if n in (20, 40):
                thread.rewind("@-3")
                head = thread.latest()
                assert head is not None
                state = head.state
        for seq in (2, 5, 6, 7, 19, 30, 31, 44, 45, 46):
            found = [c for c in thread.history() if c.seq == seq]
            if found:
                thread.delete(found[0])
        hf.optimize()
        before = seen(hf)
        for kind in ("sqlite", "directory"):
            assert hf.repair(address(kind, tmp_path, "new")).ok
            with opened(kind, tmp_path, "new") as new:
                assert seen(new) == before
                assert new.verify().ok


def test_a_repair_to_memory_is_refused_no_more_than_any(tmp_path: Path) -> None:
    with opened("memory", tmp_path) as hf:
        fill(hf)
        assert hf.repair("memory:").ok  # it is lost at once, which is the caller's business
    assert holdfast.types.RepairResult is RepairResult


def test_a_copy_that_does_not_fit_on_the_disk_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite moves the last pages from the WAL to the file when it is closed, and reports no error then."""
    plain = urls.open_plain

    def opened_on_a_full_disk(place: str, **options: Any) -> Any:
        store = plain(place, **options)
        close = store.close

        def full() -> None:
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (Path(place).stat().st_size, limits[1]))
            try:
                close()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        monkeypatch.setattr(store, "close", full)
        return store

    with opened("sqlite", tmp_path) as hf:
        hf.thread("a").save({"x": random.Random(1).randbytes(100_000)})
        monkeypatch.setattr(maintenance, "open_plain", opened_on_a_full_disk)
        before = sorted(tmp_path.iterdir())
        with pytest.raises(StoreError, match="space"):
            hf.repair(address("sqlite", tmp_path, "new"))
        assert sorted(tmp_path.iterdir()) == before


def test_cells_are_not_stray_if_their_commit_is_found_after_a_reference() -> None:
    used = UsedCells()
    used.names(Span(7, 1, 0, 4, 1, 2))
    assert used.threads() == {7}
    used.wrote(7, 1, ((1, 0, 3),))
    assert [stray.span for stray in used.strays(7)] == [Span(7, 1, 3, 1, 1, 2)]
    used.wrote(7, 2, ((1, 3, 1),))
    assert used.threads() == set()
    assert list(used.strays(7)) == []
