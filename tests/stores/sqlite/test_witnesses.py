"""An index that lost an entry: what it would lead to is missed, and nothing older is given in its place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged, NotFound


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def lose_entry(path: Path, index: str, but: str) -> None:
    """Make an index anew without some entries, and let the schema say that it has all."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (said,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
        connection.execute(f"DROP INDEX {index}")
        connection.execute(f"{said} AND NOT ({but})")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (said, index))


@pytest.mark.parametrize("lost", [5, 3])
def test_a_label_that_its_index_lost(path: Path, lost: int) -> None:
    with holdfast.open(path, durability="off") as hf:
        for n in range(1, 7):
            hf.thread("t").save({"n": n}, label="good" if n in (1, 3, 5) else None)
    lose_entry(path, "checkpoint_by_label", f"row_key & 0xffffffff = {lost}")
    with holdfast.open(path, durability="off") as hf:
        thread = hf.thread("t")
        if lost == 5:
            with pytest.raises(Damaged):
                thread.load("@good")
        else:
            assert thread.load("@good").seq == 5
        # Looking at the rows one by one finds it all the same.
        found = thread.find(label="good")
        assert found is not None
        assert found.seq == 5
        seen = [checkpoint.seq for checkpoint in thread.history(label="good", skip_damaged=True)]
        assert seen == [5, 3, 1]
        with pytest.raises(NotFound):
            thread.load("@other")
        assert not hf.verify().ok


def test_a_turn_that_was_done_is_not_done_again_because_an_index_lost_it(path: Path) -> None:
    def answer(hf: holdfast.Holdfast, turn: str, says: Callable[[], str]) -> object:
        with hf.run("chat", start={}, turn=turn) as run:
            if run.status != "completed":
                run.finish(run.model(says))
        return run.result

    with holdfast.open(path, durability="off") as hf:
        for turn in ("one", "two"):
            answer(hf, turn, lambda turn=turn: f"answer {turn}")  # type: ignore[misc]  # mypy does not infer it
    lose_entry(path, "entry_by_topic", "topic = CAST('turn/one' AS BLOB)")
    with holdfast.open(path, durability="off") as hf:
        assert answer(hf, "two", lambda: "again") == "answer two"
        with pytest.raises(Damaged):
            answer(hf, "one", lambda: "again")
        assert answer(hf, "three", lambda: "answer three") == "answer three"
        assert not hf.verify().ok


def test_a_name_that_was_changed_in_the_row_and_in_its_index(path: Path) -> None:
    with holdfast.open(path, durability="off") as hf:
        hf.thread("t").save({"n": 1})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE thread SET name = CAST('s' AS BLOB)")
    with holdfast.open(path, durability="off") as hf:
        with pytest.raises(Damaged):
            hf.thread("t").latest()
        assert hf.thread("u").latest() is None


def test_a_thread_that_one_index_lost_can_be_read_by_ids(path: Path) -> None:
    with holdfast.open(path, durability="off") as hf:
        first = hf.thread("t").save({"n": 1})
        hf.thread("t").save({"n": 2})
    lose_entry(path, "thread_by_digest", "thread_no = 1")
    with holdfast.open(path, durability="off") as hf:
        thread = hf.thread("t")
        with pytest.raises(Damaged):
            thread.latest()
        assert thread.load(first.id).state == {"n": 1}
        assert [checkpoint.seq for checkpoint in thread.history(skip_damaged=True)] == [2, 1]
        fallen = thread.latest(fallback=True)
        assert fallen is not None
        assert fallen.state == {"n": 2}


@pytest.mark.parametrize("count", [2, 300])
def test_a_thread_is_not_taken_for_a_new_one_if_the_two_indexes_of_names_are_swapped(path: Path, count: int) -> None:
    names = [f"thread {n}" for n in range(count)]
    with holdfast.open(path, durability="off") as hf:
        for name in names:
            hf.thread(name).save({"of": name})
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage - 1 FROM sqlite_schema WHERE name IN ('thread_by_name', 'thread_by_digest')"
        (one,), (other,) = connection.execute(query).fetchall()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = path.read_bytes()
    pages = [content[at : at + size] for at in range(0, len(content), size)]
    pages[one], pages[other] = pages[other], pages[one]
    path.write_bytes(b"".join(pages))
    with holdfast.open(path, durability="off") as hf:
        for name in (*names, "new"):
            with pytest.raises(Damaged):
                hf.thread(name).latest()
            with pytest.raises(Damaged):
                hf.thread(name).save({"of": "another"})
        assert not hf.verify().ok


@pytest.mark.parametrize("is_saved_after", [False, True])
def test_a_completed_run_that_is_lost_with_its_journal_is_not_run_again(path: Path, is_saved_after: bool) -> None:
    with holdfast.open(path, durability="off") as hf:
        with hf.run("paid", start={}, turn="one") as run:
            run.finish(run.model(lambda: "done"))
        if is_saved_after:
            hf.thread("paid").save({"n": 2})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM run")
        connection.execute("DELETE FROM entry")
    with holdfast.open(path, durability="off") as hf:
        with pytest.raises(Damaged):
            hf.effects("paid")
        with pytest.raises(Damaged), hf.run("paid", start={}, turn="one"):
            pytest.fail("the run was started again")
        assert [problem.thread for problem in hf.verify().problems] == ["paid"]
