"""Defects B1 to B8, which Holdfast must not have: a wrong answer to "which is the latest"."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast
from holdfast import Conflict, Holdfast, Retention, Unsupported
from tests.parity.defects_scene import (
    WallClock,
    everywhere,
    files,
    fill,
    latest,
    on_disk,
    opened,
    place,
    seqs,
    state_at,
    with_a_fleet,
)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@with_a_fleet
def test_b1_saves_of_one_moment_are_in_the_order_they_were_made(hf: Holdfast, wall: WallClock) -> None:
    thread = hf.thread("t")
    made = fill(thread, 10)
    assert len({checkpoint.created_at for checkpoint in made}) == 1
    assert latest(thread).state == state_at(10)
    assert [checkpoint.step for checkpoint in thread.history()] == list(range(10, 0, -1))
    thread.prune(Retention(keep_last=3))
    assert [checkpoint.step for checkpoint in thread.history()] == [10, 9, 8]


@everywhere
def test_b2_every_verb_goes_by_the_same_order(hf: Holdfast, wall: WallClock) -> None:
    thread = hf.thread("t")
    for n, moved in enumerate((0, -50, 70, -3_600, 20), 1):
        wall.move(moved)
        thread.save(state_at(n), step=n, label="same", tags=["same"])
    newest = latest(thread).seq
    head, found, [info] = thread.head(), thread.find(label="same"), hf.threads()
    assert head is not None
    assert found is not None
    assert [newest, head.seq, found.seq, info.seq, thread.load("@-1").seq, thread.load("@same").seq] == [5] * 6
    assert seqs(thread) == seqs(thread, label="same") == seqs(thread, tag="same") == [5, 4, 3, 2, 1]
    assert [thread.load(f"@-{n}").seq for n in (1, 2, 3, 4, 5)] == [5, 4, 3, 2, 1]
    pruned = thread.prune(Retention(keep_last=2, keep_labelled=False))
    assert sorted(checkpoint.seq for checkpoint in pruned.removed) == [1, 2, 3]


@everywhere
def test_b3_a_clock_that_is_set_back_makes_nothing_older_the_newest(hf: Holdfast, wall: WallClock) -> None:
    thread = hf.thread("t")
    made = []
    for n in range(1, 6):
        made.append(thread.save(state_at(n), step=n))
        wall.move(-86_400)
    assert [checkpoint.created_at for checkpoint in made] == sorted(
        (checkpoint.created_at for checkpoint in made), reverse=True
    )
    assert latest(thread).state == state_at(5)
    assert latest(hf.thread("t")).seq == 5
    assert seqs(thread) == [5, 4, 3, 2, 1]
    assert [checkpoint.parent for checkpoint in made[1:]] == [checkpoint.id for checkpoint in made[:-1]]
    thread.prune(Retention(keep_last=1))
    assert latest(thread).state == state_at(5)


@everywhere
def test_b4_the_same_step_again_is_another_checkpoint(hf: Holdfast) -> None:
    thread = hf.thread("t")
    first = fill(thread, 3)
    again = thread.save({"another": "third step"}, step=3)
    assert again.seq == 4
    assert latest(thread).state == {"another": "third step"}
    assert thread.load("@3").seq == 4
    assert thread.load(first[2]).state == state_at(3)
    assert list(thread.history())[1:] == first[::-1]
    assert thread.save({"back": "to one"}, step=1).seq == 5
    assert latest(thread).state == {"back": "to one"}
    assert thread.load(first[0]).state == state_at(1)


@on_disk
def test_b5_a_copy_has_the_newest_whatever_the_times_of_its_files(url: str, tmp_path: Path) -> None:
    with opened(url) as hf:
        fill(hf.thread("t"), 4)
        hf.thread("t").rewind("@2")
        hf.thread("t").save(state_at(9), step=9)
    copy = tmp_path / "copy"
    where = place(url)
    shutil.copytree(where, copy, copy_function=shutil.copyfile) if where.is_dir() else shutil.copyfile(where, copy)
    there = f"dir:{copy}" if where.is_dir() else str(copy)
    for moment, path in enumerate(reversed(files(there)), 1_000_000_000):
        os.utime(path, (moment, moment))
    for address in (url, there):
        with opened(address) as hf:
            assert latest(hf.thread("t")).state == state_at(9)
            assert [checkpoint.step for checkpoint in hf.thread("t").history()] == [9, 4, 3, 2, 1]


@on_disk
def test_b6_steps_are_counted_in_the_store(url: str) -> None:
    with opened(url) as hf:
        thread = hf.thread("t")
        for n in range(1, 4):
            assert thread.save({"n": n}).step == n
        with pytest.raises(Unsupported):
            thread.save({"n": object()})
    with opened(url) as hf, opened(url) as another:
        assert hf.thread("t").step() == 3
        mine, theirs = hf.thread("t"), another.thread("t")
        assert latest(mine) == latest(theirs)
        made = mine.save({"n": 4})
        assert (made.step, made.seq) == (4, 4)  # the save that was refused took no number
        with pytest.raises(Conflict):
            theirs.save({"n": 4})
        theirs.latest()
        assert theirs.save({"n": 5}).step == 5
        assert [checkpoint.step for checkpoint in mine.history()] == [5, 4, 3, 2, 1]


@everywhere
def test_b7_a_time_comes_back_as_it_was(url: str, wall: WallClock) -> None:
    with opened(url) as hf:
        made = hf.thread("t").save(state_at(1))
        assert made.created_at == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
        [listed] = hf.thread("t").history()
        [info] = hf.threads()
        assert latest(hf.thread("t")).created_at == listed.created_at == info.updated_at == made.created_at
    if url != "memory:":
        with holdfast.open(url) as hf:
            assert latest(hf.thread("t")).created_at == made.created_at


@everywhere
def test_b8_of_equal_labels_the_newest_is_found(hf: Holdfast) -> None:
    thread = hf.thread("t")
    for n in range(1, 5):
        thread.save(state_at(n), label="good" if n < 4 else None, tags=["kept"] if n < 3 else ())
    found, tagged = thread.find(label="good"), thread.find(tag="kept")
    assert found is not None
    assert tagged is not None
    assert (found.seq, tagged.seq) == (3, 2)
    assert thread.load("@good").state == state_at(3)
