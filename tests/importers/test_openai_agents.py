"""Sessions of the OpenAI Agents SDK become threads: an item is a checkpoint, a branch is one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Checkpoint, Holdfast, InvalidArgument, NotFound, StoreError
from holdfast.importers import Report, import_from
from tests.importers.openai_agents_source import (
    ITEMS,
    MORE,
    OTHERWISE,
    add_items,
    connect,
    write_branches,
    write_sessions,
)

KIND = "openai-agents-sqlite"
SESSIONS = ("support-1", "support-2")


@pytest.fixture
def hf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path_factory.mktemp("store") / "agent.db", durability="off") as handle:
        yield handle


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return write_sessions(tmp_path / "sessions.db", *SESSIONS)


def taken(hf: Holdfast | None, path: Path, **options: Any) -> Report:
    return import_from(hf, KIND, str(path), **options)


def history(hf: Holdfast, session: str = "support-1") -> list[Checkpoint]:
    thread = hf.thread(session)
    return [thread.load(each) for each in reversed([*thread.history()])]


def latest(hf: Holdfast, session: str = "support-1") -> list[Any]:
    found = hf.thread(session).latest()
    assert found is not None
    items: list[Any] = found.state["messages"]
    return items


def edit(path: Path, sql: str, *given: Any) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql, given)
        connection.commit()


def test_a_session_is_a_thread_and_each_item_of_it_a_checkpoint(database: Path, hf: Holdfast) -> None:
    report = taken(hf, database)

    assert report.ok
    assert not report.remarks
    assert (report.threads, report.checkpoints, report.checked) == (2, 18, 18)
    items = ITEMS + MORE
    found = history(hf, "support-2")
    assert [each.state for each in found] == [{"messages": items[: n + 1]} for n in range(9)]
    assert [each.step for each in found] == [*range(1, 10)]
    assert [each.parent for each in found] == [None, *(each.id for each in found[:-1])]
    assert [each.metadata["$imported"]["id"] for each in found] == [str(n) for n in (*range(8, 15), 17, 18)]
    assert found[-1].created_at == datetime(2026, 4, 2, 8, 1, tzinfo=UTC)
    assert [each.trigger for each in found][:4] == ["user", "reasoning", "function_call", "function_call"]
    assert found[6].trigger == "assistant"


def test_a_state_in_which_calls_have_no_output_says_so(database: Path, hf: Holdfast) -> None:
    """The SDK saves a call and its output in two goes: what is between them cannot be sent to a model."""
    taken(hf, database)
    hints = [each.resume_hint for each in history(hf)]
    assert hints[:6] == [
        None,
        None,
        "1 tool call has no result yet",
        "2 tool calls have no result yet",
        "1 tool call has no result yet",
        None,
    ]


def test_branches_of_an_advanced_session_are_branches(tmp_path: Path, hf: Holdfast) -> None:
    report = taken(hf, write_branches(tmp_path / "branches.db", "support-1"))

    assert report.ok
    assert report.checkpoints == 11
    found = history(hf)
    assert found[8].state == {"messages": ITEMS + MORE}
    assert found[10].state == {"messages": ITEMS + OTHERWISE}
    assert found[7].parent == found[9].parent == found[6].id
    assert [each.metadata["branch"] for each in found] == ["main"] * 9 + ["graz"] * 2
    assert latest(hf) == ITEMS + OTHERWISE


def test_items_in_no_branch_follow_the_ones_before_them(tmp_path: Path, hf: Holdfast) -> None:
    path = write_branches(tmp_path / "branches.db", "support-1")
    edit(path, "DELETE FROM message_structure WHERE message_id > 9")
    assert taken(hf, path).ok
    assert latest(hf) == ITEMS + MORE + OTHERWISE


def test_twice_imports_once(database: Path, hf: Holdfast) -> None:
    taken(hf, database)
    before = history(hf)
    again = taken(hf, database)
    assert again.ok
    assert (again.checkpoints, again.existing, again.present) == (0, 2, 18)
    assert history(hf) == before


@pytest.mark.parametrize("after", range(1, 36, 3))
def test_an_import_that_was_stopped_goes_on(database: Path, hf: Holdfast, after: int) -> None:
    def stop(what: str, done: int, total: int) -> None:
        assert total == 36
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taken(hf, database, progress=stop)
    report = taken(hf, database)
    assert report.ok
    assert report.checkpoints + report.present == 18
    assert latest(hf) == latest(hf, "support-2") == ITEMS + MORE


def test_a_dry_run_tells_what_would_be_and_stores_nothing(database: Path, hf: Holdfast) -> None:
    told = taken(hf, database, dry_run=True)
    assert taken(None, database, dry_run=True) == told
    assert (told.threads, told.checkpoints) == (2, 18)
    assert not [*hf.threads()]


def test_the_file_is_read_while_others_write_and_left_as_it_is(database: Path, hf: Holdfast) -> None:
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM agent_messages")
        before = database.read_bytes()
        assert taken(hf, database).checkpoints == 18
        assert database.read_bytes() == before
        writer.rollback()


DAMAGES: dict[str, tuple[object, str]] = {
    "cut off": ('{"role": "us', "it is cut off in the middle"),
    "no json": ("oops", "it is not JSON"),
    "a list": ("[]", "it is not a JSON object"),
    "bytes": (b"{}", "its data is not a string"),
    "nested": ('{"a":' + "[" * 300 + "]" * 300 + "}", "nested more than 200 deep"),
    "nested more": ("[" * 100_000, "it is nested too deeply"),
    "too large": ("x" * 300_000, "SQLite cannot read it"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_bad_row_is_skipped_and_the_others_go_on_without_it(database: Path, hf: Holdfast, damage: str) -> None:
    data, reason = DAMAGES[damage]
    edit(database, "UPDATE agent_messages SET message_data = ? WHERE id = 2", data)

    told = taken(hf, database, dry_run=True, max_file_bytes=200_000)
    report = taken(hf, database, max_file_bytes=200_000)

    assert told.skipped == report.skipped
    [skipped] = report.skipped
    assert (skipped.thread, skipped.item) == ("support-1", "message 2")
    assert reason in skipped.reason
    assert not report.differing
    assert latest(hf) == [ITEMS[0], *ITEMS[2:], *MORE]
    assert latest(hf, "support-2") == ITEMS + MORE


@pytest.mark.parametrize("session", ["x'ff'", "''", "CAST(x'ff' AS TEXT)"])
def test_a_session_whose_id_is_no_text_is_skipped(database: Path, hf: Holdfast, session: str) -> None:
    edit(database, f"UPDATE agent_messages SET session_id = {session} WHERE session_id = 'support-1'")  # noqa: S608
    report = taken(hf, database)
    assert len(report.skipped) == 1
    assert [row.name for row in hf.threads()] == ["support-2"]


def test_a_time_that_is_none_costs_nothing_else(database: Path, hf: Holdfast) -> None:
    edit(database, "UPDATE agent_messages SET created_at = 'soon' WHERE id = 1")
    report = taken(hf, database)
    assert report.ok
    assert len(history(hf)) == 9


def test_an_item_that_its_branch_has_behind_a_later_one_follows_the_one_before_it(tmp_path: Path, hf: Holdfast) -> None:
    path = write_branches(tmp_path / "branches.db", "support-1")
    edit(path, "UPDATE message_structure SET sequence_number = -sequence_number WHERE branch_id = 'main'")
    report = taken(hf, path)
    assert report.ok
    assert report.checkpoints == 11
    assert history(hf)[7].state["messages"] == ITEMS + MORE[:1]


def test_items_of_any_shape_are_kept_as_they_are(tmp_path: Path, hf: Holdfast) -> None:
    odd: list[dict[str, Any]] = [{}, {"type": 7, "call_id": []}, {"role": None, "é": ["\ud83d", 10**30, 1.0, -0.0]}]
    with closing(connect(tmp_path / "odd.db")) as connection:
        add_items(connection, "odd", odd, 0)
    assert taken(hf, tmp_path / "odd.db").ok
    assert json.dumps(latest(hf, "odd")) == json.dumps(odd)


def test_a_file_with_damaged_pages_gives_what_can_be_read_or_one_error(tmp_path: Path, database: Path) -> None:
    """Each page of the file, in turn, is overwritten."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = database.read_bytes()
    outcomes: set[str] = set()
    for page in range(0, len(data), 4096):
        for junk in (b"\0", b"\xff", b"\x0d"):
            path = tmp_path / "damaged.db"
            path.write_bytes(data[:page] + junk * 4096 + data[page + 4096 :])
            with holdfast.open("memory:") as hf:
                try:
                    report = taken(hf, path)
                except (InvalidArgument, StoreError):
                    outcomes.add("refused")
                    continue
                assert not report.differing
                outcomes.add("ok" if report.ok else "skipped")
    assert "refused" in outcomes


@pytest.mark.parametrize("sql", ["", "CREATE TABLE agent_messages (id)", "CREATE TABLE agent_sessions (session_id)"])
def test_what_is_no_database_of_sessions_is_refused(tmp_path: Path, hf: Holdfast, sql: str) -> None:
    edit(tmp_path / "other.db", sql)
    with pytest.raises(InvalidArgument, match="is not a database of the OpenAI Agents SDK's SQLiteSession"):
        taken(hf, tmp_path / "other.db")
    with pytest.raises(NotFound):
        taken(hf, tmp_path / "nowhere.db")
