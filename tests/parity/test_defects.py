"""Defects of earlier checkpoint systems, which Holdfast must not have: one test per number, A1 to H9.

This file holds group A, losing or corrupting data on a crash, and the check that no number is forgotten; each other
group has a file of its own. docs/defects.md is the table.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, Holdfast, HoldfastError, NotAStore, OutcomeUnknown, Retention, StoreError, Thread
from tests.crash.nursery import Nursery
from tests.parity import defects_table as table
from tests.parity.defects_scene import (
    SAYS,
    SYNCS,
    WRITES,
    calls_of,
    child_of,
    damage_content,
    damage_record,
    database,
    everywhere,
    files,
    fill,
    latest,
    log_of,
    on_disk,
    opened,
    place,
    seqs,
    size,
    state_at,
    wait_for_line,
)
from tests.test_guarantees import names_of

KINDS_OF_DAMAGE = {"the record": damage_record, "the content": damage_content}

# -- every number ------------------------------------------------------------------------------------------------------


def test_every_number_has_a_test_or_a_reason() -> None:
    tests = table.tests()
    reasons = {number for number, defect in table.DEFECTS.items() if defect.not_here}
    assert list(table.DEFECTS) == [f"{group}{n}" for group, count in table.COUNTS.items() for n in range(1, count + 1)]
    assert tests.keys() | reasons == table.DEFECTS.keys()
    assert not tests.keys() & reasons


def test_every_test_is_in_the_file_of_its_group() -> None:
    for number, named in table.tests().items():
        assert {path for path, _ in named} == {table.FILES[number[0]]}, number


def test_every_other_test_that_is_named_exists() -> None:
    for number, defect in table.DEFECTS.items():
        for beside in defect.deeper:
            path, _, name = beside.partition("::")
            assert name in names_of(path), f"{number} names {beside}"


def test_the_page_is_what_the_table_generates() -> None:
    assert table.PAGE.read_text("utf-8") == table.render(), "run: python -m tests.parity.defects_table"


# -- A. losing or corrupting data on a crash ---------------------------------------------------------------------------


@on_disk
def test_a1_a_kill_leaves_the_newest_acknowledged_checkpoint(url: str, nursery: Nursery, tmp_path: Path) -> None:
    acknowledged = 0
    for saves in (1, 2, 5, 3):
        child = child_of(nursery, tmp_path, "save_until_killed", url=url)
        child.wait_for(saves)
        child.kill()
        assert child.failure is None
        acknowledged = int(child.lines[-1])
        with opened(url) as hf:
            found = latest(hf.thread("t"))
            assert found.step in (acknowledged, acknowledged + 1)  # the one in flight may have got through
            assert found.state == state_at(found.step)
            assert [each.step for each in hf.thread("t").history()] == list(range(found.step, 0, -1))
            assert hf.verify().ok
    assert acknowledged >= 11


@on_disk
def test_a2_no_file_that_a_crash_empties_hides_the_newest(url: str) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 3)
    holds_it = database(url) or log_of(url, "t")
    for path in files(url):
        if path == holds_it or path.name == "holdfast.json":  # the data itself, and what says whose folder this is
            continue
        kept = path.read_bytes()
        path.write_bytes(b"")
        with opened(url) as hf:
            assert latest(hf.thread("t")).state == state_at(3), path.name
            hf.thread("t").save(state_at(4), expect=holdfast.ANY)
            hf.thread("t").rewind("@3")
        path.write_bytes(kept)
    assert not [path for path in files(url) if re.search("latest|head|current", path.name)]


@on_disk
def test_a3_a_save_returns_when_it_is_on_the_disk(url: str, nursery: Nursery, tmp_path: Path) -> None:
    calls = calls_of(nursery, tmp_path, "save_twice", url=url)
    said = [n for n, (name, _) in enumerate(calls) if name == SAYS]
    assert len(said) == 2
    for start, end in ((0, said[0]), (said[0], said[1])):
        at, (_, file) = [(n, call) for n, call in enumerate(calls[start:end], start) if call[0] in WRITES][-1]
        assert str(tmp_path) in file
        assert [name for name, about in calls[at:end] if about == file and name in SYNCS]


@on_disk
def test_a4_a_newest_checkpoint_that_is_missing_is_no_empty_thread(url: str) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 3)
    damage_record(url, 3)
    with opened(url) as hf:
        with pytest.raises(Damaged):
            hf.thread("t").latest()
        with pytest.raises(Damaged):
            hf.thread("t").load("@3")
        found = hf.thread("t").latest(fallback=True)
        assert found is not None
        assert found.state == state_at(2)
        assert [skipped.seq for skipped in found.skipped] == [3]
        assert hf.thread("never saved").latest() is None


@on_disk
def test_a5_a_damaged_newest_falls_back_when_asked_and_says_so(url: str) -> None:
    with opened(url) as hf:
        ids = [checkpoint.id for checkpoint in fill(hf.thread("t"), 4)]
    damage_content(url, 4)
    damage_content(url, 3)
    with opened(url) as hf:
        with pytest.raises(Damaged):
            hf.thread("t").latest()
        found = hf.thread("t").latest(fallback=True)
        assert found is not None
        assert found.state == state_at(2)
        assert [(skipped.id, skipped.step) for skipped in found.skipped] == [(ids[3], 4), (ids[2], 3)]
        assert all(skipped.why for skipped in found.skipped)


@on_disk
def test_a6_a_damaged_checkpoint_hurts_itself_alone(url: str, tmp_path: Path) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 5)
        fill(hf.thread("other"), 2)
    damage_record(url, 2)
    with opened(url) as hf:
        thread = hf.thread("t")
        assert latest(thread).state == state_at(5)
        assert seqs(thread, skip_damaged=True) == [5, 4, 3, 1]
        assert thread.load("@-1").state == state_at(5)
        assert thread.save(state_at(6)).seq == 6
        assert hf.thread("other").prune(Retention(keep_last=1)).kept == 1
        # What a prune cannot read it cannot judge. It says so; in what `repair` makes, it goes on.
        with pytest.raises(Damaged):
            thread.prune(Retention(keep_last=1))
        hf.repair(f"dir:{tmp_path}/repaired")
    with opened(f"dir:{tmp_path}/repaired") as hf:
        assert hf.thread("t").prune(Retention(keep_last=1)).kept == 1
        assert latest(hf.thread("t")).state == state_at(6)


@on_disk
@pytest.mark.parametrize("seq", [1, 3, 5])
def test_a7_what_cannot_be_listed_is_told_in_one_way(url: str, seq: int) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 5)
    damage_record(url, seq)
    with opened(url) as hf:
        listing = hf.thread("t").history()
        given = [next(listing).seq for _ in range(4)]
        assert given == [n for n in (5, 4, 3, 2, 1) if n != seq]
        with pytest.raises(Damaged):
            next(listing)
        assert seqs(hf.thread("t"), skip_damaged=True) == given
        assert not hf.verify().ok


@on_disk
def test_a8_a_save_that_fails_says_so_and_the_newest_is_never_older(url: str, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "save_until_full", url=url, largest=120_000)
    child.wait_for_end()
    assert child.failure is None
    [line] = child.lines
    error, acknowledged = line.split()
    assert issubclass(getattr(holdfast, error), StoreError)
    assert int(acknowledged) > 5
    with opened(url) as hf:
        found = latest(hf.thread("t"))
        assert found.step >= int(acknowledged)
        assert found.state == state_at(found.step)
        assert hf.thread("t").save(state_at(0)).seq == found.seq + 1


@on_disk
def test_a9_every_folder_on_the_way_to_a_file_is_synced(url: str, nursery: Nursery, tmp_path: Path) -> None:
    url = url.replace("agents", "a/b/agents")
    calls = calls_of(nursery, tmp_path, "save_twice", url=url)
    before = calls[: [name for name, _ in calls].index(SAYS)]
    synced = {file for name, file in before if name in SYNCS}
    way = (database(url) or log_of(url, "t")).parent
    while way != tmp_path.parent:
        assert str(way) in synced
        way = way.parent


@on_disk
def test_a10_what_was_stored_is_checked_when_it_is_read(url: str) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 4)
    where = database(url) or log_of(url, "t")
    kept = where.read_bytes()
    told = 0
    for at in range(37, len(kept), len(kept) // 90):
        where.write_bytes(kept[:at] + bytes([kept[at] ^ 16]) + kept[at + 1 :])
        try:
            with opened(url) as hf:
                assert latest(hf.thread("t")).state == state_at(4), at
        except HoldfastError:
            told += 1
    assert told


@on_disk
def test_a11_what_a_crash_left_behind_is_swept(url: str, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "save_until_killed", url=url)
    child.wait_for(3)
    child.kill()
    if database(url) is None:
        log = log_of(url, "t")
        with log.open("ab") as torn:
            torn.write(b'{"crc":"00000000","t":"cell","seq":99,')  # what a cut-off write leaves
        log.with_name("log.jsonl.0123abcd.new").write_bytes(b"half a log")
    with opened(url) as hf:
        step = latest(hf.thread("t")).step
        assert step >= 3
        hf.thread("t").save(state_at(step + 1))
        hf.optimize()
        assert hf.verify().ok
    left = {path.name for path in files(url)}
    assert not {name for name in left if name.endswith((".new", "-wal", "-shm", "-journal"))}
    with opened(url) as hf:
        assert latest(hf.thread("t")).state == state_at(step + 1)


@on_disk
def test_a12_that_a_run_was_cut_off_is_known_from_the_store_itself(url: str, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "hold_runs", url=url, threads=["t"])
    wait_for_line(child, "holding")
    child.kill()
    for path in files(url):
        if path not in (database(url), log_of(url, "t")) and path.suffix not in (".json", ".db-wal", ".db-shm"):
            path.unlink()  # whatever else there is has no part in it
    with opened(url) as hf:
        [found] = hf.interrupted()
        assert (found.thread, found.step, found.attempt) == ("t", 1, 1)


@on_disk
def test_a13_a_run_does_not_go_on_unprotected(url: str, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "run_until_full", url=url, largest=120_000)
    child.wait_for_end()
    assert child.failure is None
    *steps, error = child.lines
    assert issubclass(getattr(holdfast, error), StoreError)
    with opened(url) as hf:
        # No step was begun whose predecessor is not stored.
        assert latest(hf.thread("t")).step >= len(steps) - 1 > 3


@everywhere
def test_a14_no_save_fails_because_tidying_up_did(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def prune(*arguments: Any, **options: Any) -> Any:
        raise StoreError("no tidying up today")

    with opened(url, retention=Retention(keep_last=2)) as hf:
        with monkeypatch.context() as patched:
            patched.setattr(Thread, "prune", prune)
            made = fill(hf.thread("t"), 5)
            assert [checkpoint.seq for checkpoint in made] == [1, 2, 3, 4, 5]
            with pytest.raises(StoreError, match="no tidying up today"):
                hf.maintain()
        hf.thread("t").save(state_at(6))
        hf.maintain()
        assert seqs(hf.thread("t")) == [6, 5]


@on_disk
@pytest.mark.parametrize("rounds", [1, 2])
def test_a15_cut_off_while_pruning_it_leaves_no_holes(url: str, rounds: int, nursery: Nursery, tmp_path: Path) -> None:
    child = child_of(nursery, tmp_path, "prune_until_killed", url=url)
    while child.lines.count("pruning") < rounds and not child.ended:
        child.wait_for(len(child.lines) + 1)
    child.kill()
    assert child.failure is None
    with opened(url) as hf:
        assert hf.verify().ok  # every parent is there, or a tombstone
        listed = list(hf.thread("t").history())
        assert len(listed) == hf.thread("t").count()
        for checkpoint in listed:
            assert hf.thread("t").load(checkpoint).state == state_at(checkpoint.step)
        assert latest(hf.thread("t")).seq in [checkpoint.seq for checkpoint in listed]


@everywhere
def test_a16_a_save_that_is_cancelled_is_whole_or_not_there(hf: Holdfast) -> None:
    async def work() -> None:
        thread = hf.aio.thread("t")
        for n in range(1, 25):
            task = asyncio.create_task(thread.save(state_at(n)))
            for _ in range(n % 6):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await thread.save(state_at(99))

    asyncio.run(work())
    thread = hf.thread("t")
    assert latest(thread).state == state_at(99)
    assert seqs(thread) == list(range(thread.count(), 0, -1))
    for checkpoint in thread.history():
        state = thread.load(checkpoint).state
        assert state == state_at(state["n"])


@everywhere
def test_a17_nothing_is_cut_off_and_going_back_deletes_nothing(hf: Holdfast) -> None:
    thread = hf.thread("t")
    many = {f"key {n}": [n] for n in range(3_000)}
    thread.save(many)
    for n in range(2, 452):
        thread.save({"n": n})
    assert thread.load("@1").state == many
    assert seqs(thread) == list(range(451, 0, -1))
    thread.rewind("@1")
    assert latest(thread).state == many
    assert thread.count() == 451
    assert thread.load("@451").state == {"n": 451}


def test_a18_what_cannot_be_done_is_an_error_never_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError):
        holdfast.open(tmp_path / "missing" / "agent.db")
    (tmp_path / "letter.db").write_bytes(b"Dear Sir or Madam, " * 300)
    with pytest.raises(NotAStore):
        holdfast.open(tmp_path / "letter.db")
    with opened(str(tmp_path / "agent.db")) as hf:
        hf.thread("t").save({"n": 1})
        place(str(tmp_path / "agent.db")).rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreError):
            hf.thread("t").save({"n": 2})
    with opened(f"dir:{tmp_path}/agents") as hf:
        hf.thread("t").save({"n": 1})
        before = size(f"dir:{tmp_path}/agents")
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", failing)
            with pytest.raises((StoreError, OutcomeUnknown)):
                hf.thread("t").save({"n": 2})
        assert size(f"dir:{tmp_path}/agents") == before


def failing(*arguments: Any) -> int:
    raise OSError(errno.EIO, "the disk is gone")
