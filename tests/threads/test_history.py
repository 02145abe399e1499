"""Histories and references where records are lost: what can be read is given, never an older one for a lost one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Checkpoint, Damaged, Holdfast, Retention
from tests.conftest import OpenHandle
from tests.covers import covers

SAVES = 12


@pytest.fixture
def made(open_file: OpenHandle) -> list[Checkpoint]:
    """A thread of twelve checkpoints, every third with a label, a tag and a status."""
    good: dict[str, Any] = {"label": "good", "tags": ["g"], "status": "idle"}
    with open_file() as hf:
        return [hf.thread("t").save({"n": n}, step=n, **(good if n % 3 == 0 else {})) for n in range(1, SAVES + 1)]


def lose(path: Path, seqs: Iterable[int]) -> None:
    """Make the records of some checkpoints unreadable."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for seq in seqs:
            changed = connection.execute(
                "UPDATE checkpoint SET head = zeroblob(64) WHERE row_key & 4294967295 = ?", (seq,)
            )
            assert changed.rowcount == 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@covers("A7", "ares/CheckpointManager.list_checkpoints.corrupt", "continuum/list passes over damage")
@pytest.mark.parametrize("lost", [{1}, {7}, {12}, {11, 12}, {1, 2, 3}, {2, 5, 9}, set(range(2, 13))])
@pytest.mark.parametrize("deleted", [(), (4, 8)])
def test_what_can_be_read_is_listed_then_what_cannot_is_told(
    open_file: OpenHandle, path: Path, made: list[Checkpoint], lost: set[int], deleted: tuple[int, ...]
) -> None:
    with open_file() as hf:
        for seq in deleted:
            hf.thread("t").delete(made[seq - 1])
    lose(path, lost)
    thread = open_file().thread("t")
    left = [seq for seq in range(SAVES, 0, -1) if seq not in lost and seq not in deleted]
    seen: list[int] = []
    with pytest.raises(Damaged, match="checkpoints were listed"):
        seen.extend(checkpoint.seq for checkpoint in thread.history())
    assert seen == left
    assert [checkpoint.seq for checkpoint in thread.history(skip_damaged=True)] == left
    assert [checkpoint.seq for checkpoint in thread.history(3, skip_damaged=True)] == left[:3]
    if left:
        before = thread.history(skip_damaged=True, before=made[left[0] - 1])
        assert [checkpoint.seq for checkpoint in before] == left[1:]
    every: list[dict[str, Any]] = [{"label": "good"}, {"tag": "g"}, {"status": "idle"}]
    for filters in every:
        found = thread.history(skip_damaged=True, **filters)
        assert [checkpoint.seq for checkpoint in found] == [seq for seq in left if seq % 3 == 0]


def test_pages_go_on_behind_damage(open_file: OpenHandle, path: Path) -> None:
    with open_file() as hf:
        for n in range(1, 701):
            hf.thread("t").save({"n": n})
    lost = {1, 199, 200, 201, 499, 500, 501, 502, 700}
    lose(path, lost)
    found = open_file().thread("t").history(skip_damaged=True)
    assert [checkpoint.seq for checkpoint in found] == [seq for seq in range(700, 0, -1) if seq not in lost]


def test_an_async_history_gives_what_it_can_first(open_file: OpenHandle, path: Path, made: list[Checkpoint]) -> None:
    lose(path, [5])

    async def main() -> list[int]:
        seen: list[int] = []
        try:
            async for checkpoint in open_file().aio.thread("t").history():
                seen.append(checkpoint.seq)  # noqa: PERF401 - what was seen before the error counts
        except Damaged:
            return seen
        pytest.fail("nothing was told of what is lost")

    assert asyncio.run(main()) == [seq for seq in range(SAVES, 0, -1) if seq != 5]


@pytest.mark.parametrize("filters", [{"label": "good"}, {"tag": "g"}, {"status": "idle"}])
def test_the_newest_that_matches_is_found_or_may_be_lost(
    open_file: OpenHandle, path: Path, made: list[Checkpoint], filters: dict[str, Any]
) -> None:
    lose(path, [3, 5])
    found = open_file().thread("t").find(**filters)
    assert found is not None
    assert found.seq == 12
    lose(path, [12])
    with pytest.raises(Damaged):
        open_file().thread("t").find(**filters)


@covers("B8")
def test_references_lead_past_damage(open_file: OpenHandle, path: Path, made: list[Checkpoint]) -> None:
    lose(path, [5, 6, 10])
    thread = open_file().thread("t")
    for back, seq in ((1, 12), (2, 11), (4, 9), (6, 7), (9, 4), (12, 1)):
        assert thread.load(f"@-{back}").seq == seq
    for back in (3, 7, 8):
        with pytest.raises(Damaged):
            thread.load(f"@-{back}")
    for ref, seq in (("@good", 12), ("@11", 11), ("@12", 12), (made[3].id, 4), (made[3].id[-8:], 4)):
        assert thread.load(ref).seq == seq
    # A newer one that is lost may have been of the step, or have the id, that is asked for.
    for ref in ("@4", made[9].id, made[9].id[-8:], made[3].id[-10:-2]):
        with pytest.raises(Damaged):
            thread.load(ref)


def test_counting_back_past_damage_and_deletions_is_a_guess(
    open_file: OpenHandle, path: Path, made: list[Checkpoint]
) -> None:
    with open_file() as hf:
        hf.thread("t").delete(made[4])
    lose(path, [8])
    thread = open_file().thread("t")
    assert thread.load("@-4").seq == 9
    with pytest.raises(Damaged):
        thread.load("@-6")


@covers("A6")
def test_a_prune_does_not_judge_what_it_cannot_read(open_file: OpenHandle, path: Path, made: list[Checkpoint]) -> None:
    lose(path, [5])
    thread = open_file().thread("t")
    with pytest.raises(Damaged):
        thread.prune(Retention(keep_last=2))
    assert len(list(thread.history(skip_damaged=True))) == SAVES - 1


# -- falling back ------------------------------------------------------------------------------------------------------


def branched(hf: Holdfast) -> None:
    """1 2 3, back to 2, 4 5 6, back to 5, 7 8: the line is 1 2 4 5 7 8."""
    thread = hf.thread("t")
    ids = [thread.save({"n": n}).id for n in (1, 2, 3)]
    thread.rewind(ids[1])
    ids += [thread.save({"n": n}).id for n in (4, 5, 6)]
    thread.rewind(ids[4])
    ids += [thread.save({"n": n}).id for n in (7, 8)]


@pytest.mark.parametrize(
    ("lost", "found"),
    [
        ([8], 7),
        ([8, 3], 7),
        ([7, 8], None),  # 7 began a branch: where it came from is lost with it
        ([7], 8),
        ([3, 6], 8),
        ([8, 7, 6], None),
    ],
)
def test_falling_back_follows_the_line_as_far_as_it_can_be_known(
    open_file: OpenHandle, path: Path, lost: list[int], found: int | None
) -> None:
    with open_file() as hf:
        branched(hf)
    lose(path, lost)
    thread = open_file().thread("t")
    if found is None:
        with pytest.raises(Damaged):
            thread.latest(fallback=True)
        return
    latest = thread.latest(fallback=True)
    assert latest is not None
    assert latest.state == {"n": found}
    assert [skipped.seq for skipped in latest.skipped] == [seq for seq in (8, 7) if seq in lost and seq > found]


def test_within_a_branch_of_a_rewound_thread_a_lost_record_has_a_known_parent(
    open_file: OpenHandle, path: Path
) -> None:
    with open_file() as hf:
        thread = hf.thread("t")
        first = thread.save({"n": 1})
        thread.save({"n": 2})
        thread.rewind(first)
        for n in range(3, 9):
            thread.save({"n": n})
    lose(path, [5, 6, 7, 8])
    latest = open_file().thread("t").latest(fallback=True)
    assert latest is not None
    assert latest.state == {"n": 4}
    assert [skipped.seq for skipped in latest.skipped] == [8, 7, 6, 5]


@covers("A4", "ares/test_stale_pointer")
def test_a_thread_whose_newest_record_is_gone_can_be_read(
    open_file: OpenHandle, path: Path, made: list[Checkpoint]
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checkpoint WHERE row_key & 4294967295 IN (11, 12)")
    thread = open_file().thread("t")
    with pytest.raises(Damaged):
        thread.latest()
    latest = thread.latest(fallback=True)
    assert latest is not None
    assert latest.seq == 10
    assert [skipped.seq for skipped in latest.skipped] == [0, 12, 11]
    assert [checkpoint.seq for checkpoint in thread.history(skip_damaged=True)] == list(range(10, 0, -1))
    assert thread.load(made[2].id).state == {"n": 3}


def test_a_thread_record_that_is_older_than_its_checkpoints_has_no_known_head(
    open_file: OpenHandle, path: Path, made: list[Checkpoint]
) -> None:
    with open_file() as hf:
        hf.thread("t").save({"n": 13})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ATTACH ? AS kept", (f"{path}.kept",))
        connection.execute("CREATE TABLE kept.thread AS SELECT * FROM main.thread")
    with open_file() as hf:
        hf.thread("t").save({"n": 14})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM main.thread")
        connection.execute("ATTACH ? AS kept", (f"{path}.kept",))
        connection.execute("INSERT INTO main.thread SELECT * FROM kept.thread")
    thread = open_file().thread("t")
    for fallback in (False, True):
        with pytest.raises(Damaged):
            thread.latest(fallback=fallback)
    assert thread.load(made[2].id).state == {"n": 3}
