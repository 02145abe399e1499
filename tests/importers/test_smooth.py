"""Stores of Smooth's engine become threads: an agent each, its checkpoints in the order in which they were saved."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast import Checkpoint, Holdfast, InvalidArgument, NotFound, StoreError
from holdfast.importers import Report, import_from
from tests.importers.smooth_source import BEGAN, IMAGE, checkpoints, insert, talk, write_files, write_sqlite
from tests.selection import IN_FULL

AGENTS = ("agent-1", "agent-2")


class Kept(NamedTuple):
    """A store of Smooth's with two agents."""

    kind: str
    path: Path

    def import_to(self, hf: Holdfast | None, **options: Any) -> Report:
        return import_from(hf, self.kind, str(self.path), **options)


@pytest.fixture
def hf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path_factory.mktemp("store") / "agent.db", durability="off") as handle:
        yield handle


@pytest.fixture(params=["smooth-file", "smooth-sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    write: Callable[..., Path] = write_files if request.param == "smooth-file" else write_sqlite
    return Kept(request.param, write(tmp_path / "smooth", *AGENTS))


def history(hf: Holdfast, agent: str = "agent-1") -> list[Checkpoint]:
    thread = hf.thread(agent)
    return [thread.load(each) for each in reversed([*thread.history()])]


def ids(found: list[Checkpoint]) -> list[str]:
    return [each.metadata["$imported"]["id"] for each in found]


# -- both stores ------------------------------------------------------------------------------------------------------


def test_an_agent_is_a_thread_and_its_checkpoints_are_in_order(kept: Kept, hf: Holdfast) -> None:
    report = kept.import_to(hf)

    assert report.ok
    assert not report.remarks
    assert (report.threads, report.checkpoints, report.checked) == (2, 8, 8)
    for agent in AGENTS:
        found, written = history(hf, agent), checkpoints(agent)
        assert ids(found) == [each["id"] for each in written]
        assert [each.step for each in found] == [1, 1, 1, 2]
        assert [each.parent for each in found] == [None, *(each.id for each in found[:-1])]
        assert {each.agent for each in found} == {agent}


def test_the_conversation_is_the_state_and_nothing_of_it_is_lost(kept: Kept, hf: Holdfast) -> None:
    kept.import_to(hf)
    last = history(hf)[-1]
    assert last.state == {
        "messages": talk(),
        "conversation_id": "talk of agent-1",
        "max_context_tokens": 8000,
    }
    assert last.state["messages"][1]["images"] == [{"url": IMAGE, "detail": "low"}]
    assert last.metadata["phase"] == "execute"


def test_what_cannot_be_gone_on_with_yet_says_so(kept: Kept, hf: Holdfast) -> None:
    """Smooth saves after each result of several: models refuse a call without one."""
    kept.import_to(hf)
    assert [each.resume_hint for each in history(hf)] == [
        "2 tool calls have no result yet",
        "1 tool call has no result yet",
        None,
        None,
    ]


def test_twice_imports_once(kept: Kept, hf: Holdfast) -> None:
    kept.import_to(hf)
    before = history(hf)
    again = kept.import_to(hf)
    assert again.ok
    assert (again.checkpoints, again.existing, again.present) == (0, 2, 8)
    assert history(hf) == before


@pytest.mark.parametrize("after", range(1, 16))
def test_an_import_that_was_stopped_goes_on(kept: Kept, hf: Holdfast, after: int) -> None:
    def stop(what: str, done: int, total: int) -> None:
        assert total == 16
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.import_to(hf, progress=stop)
    report = kept.import_to(hf)
    assert report.ok
    assert report.checkpoints + report.present == 8
    assert [ids(history(hf, agent)) for agent in AGENTS] == [
        [each["id"] for each in checkpoints(agent)] for agent in AGENTS
    ]


def test_a_dry_run_tells_what_would_be_and_stores_nothing(kept: Kept, hf: Holdfast) -> None:
    told, without = kept.import_to(hf, dry_run=True), kept.import_to(None, dry_run=True)
    assert not [*hf.threads()]
    assert told == without
    assert (told.threads, told.checkpoints, told.checked) == (2, 8, 0)


def test_an_image_is_stored_once(kept: Kept, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        kept.import_to(hf)
    stored = (tmp_path / "agent.db").read_bytes()
    assert stored.count(IMAGE[:40].encode()) <= 1
    assert len(stored) < 8 * len(IMAGE)


# -- files ------------------------------------------------------------------------------------------------------------


def test_times_of_files_are_kept_to_the_microsecond_and_as_they_were_written(tmp_path: Path, hf: Holdfast) -> None:
    import_from(hf, "smooth-file", str(write_files(tmp_path, "agent-1")))
    found = history(hf)
    assert [each.created_at for each in found] == [BEGAN + n * timedelta(milliseconds=100) for n in range(4)]
    assert [each.metadata["$imported"]["rest"]["created_at"] for each in found] == [
        each["created_at"] for each in checkpoints("agent-1")
    ]


def test_an_agent_whose_id_has_slashes_is_in_a_folder_of_a_folder(tmp_path: Path, hf: Holdfast) -> None:
    report = import_from(hf, "smooth-file", str(write_files(tmp_path, "team/agent-2", "team")))
    assert report.ok
    assert {row.name for row in hf.threads()} == {"team", "team/agent-2"}
    assert len(history(hf, "team")) == 4


def test_iterations_that_began_anew_stay_behind_those_before_them(tmp_path: Path, hf: Holdfast) -> None:
    """An agent that is resumed counts from 1 again."""
    write_files(tmp_path, "agent-1")
    later = checkpoints("agent-1", between=timedelta(seconds=1))[1]
    later.update(id="later", iteration=1)
    (tmp_path / "agent-1" / "later.json").write_text(json.dumps(later))
    import_from(hf, "smooth-file", str(tmp_path))
    assert ids(history(hf))[-1] == "later"


FILE_DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "torn": (lambda data: data[: len(data) // 2], "it is cut off in the middle"),
    "empty": (lambda _: b"", "it is empty"),
    "zeros": (lambda data: bytes(len(data)), "it contains no JSON"),
    "no text": (lambda data: data.replace(b"careful", b"\xff\xfe"), "it is not UTF-8"),
    "a list": (lambda data: b"[" + data + b"]", "it is not a JSON object"),
    "no conversation": (
        lambda data: data.replace(b'"conversation"', b'"conversion"'),
        "its conversation is not a JSON",
    ),
    "messages that are none": (
        lambda data: data.replace(b'"messages": [', b'"messages": [7, '),
        "one of its messages is not",
    ),
    "no iteration": (lambda data: data.replace(b'"iteration"', b'"alteration"'), "it has no iteration"),
    "an iteration below 0": (
        lambda data: data.replace(b'"iteration": ', b'"iteration": -'),
        "its iteration is not a whole",
    ),
    "another agent": (lambda data: data.replace(b'"agent-1"', b'"agent-9"'), "its agent_id names another agent"),
    "no id": (lambda data: data.replace(b'"id": "0', b'"uid": "0'), "it has no id"),
    "deep": (lambda data: data.replace(b": 8000", b": " + b"[" * 300 + b"]" * 300), "nested"),
    "deeper": (lambda _: b"[" * 200_000, "it is nested too deeply"),
    "huge": (lambda data: data + b" " * 300_000, "--max-file-bytes"),
}


@pytest.mark.parametrize("damage", FILE_DAMAGES)
def test_one_bad_file_does_not_hinder_the_others(tmp_path: Path, hf: Holdfast, damage: str) -> None:
    change, reason = FILE_DAMAGES[damage]
    write_files(tmp_path, *AGENTS)
    bad = checkpoints("agent-1")[1]["id"]
    path = tmp_path / "agent-1" / f"{bad}.json"
    path.write_bytes(change(path.read_bytes()))

    told = import_from(hf, "smooth-file", str(tmp_path), dry_run=True, max_file_bytes=200_000)
    report = import_from(hf, "smooth-file", str(tmp_path), max_file_bytes=200_000)

    assert told.skipped == report.skipped
    [skipped] = report.skipped
    assert skipped.thread == "agent-1"
    assert reason in skipped.reason
    assert bad in str(skipped.item)
    assert not report.differing
    assert ids(history(hf)) == [each["id"] for each in checkpoints("agent-1") if each["id"] != bad]
    assert len(history(hf, "agent-2")) == 4


def test_a_time_that_is_none_is_told(tmp_path: Path, hf: Holdfast) -> None:
    write_files(tmp_path, "agent-1")
    odd = checkpoints("agent-1")[0]
    (tmp_path / "agent-1" / f"{odd['id']}.json").write_text(json.dumps({**odd, "created_at": "yesterday"}))
    report = import_from(hf, "smooth-file", str(tmp_path))
    assert report.ok
    [remark] = report.remarks
    assert remark.reason == "it has no valid time; the time of the import is used"
    assert len(history(hf)) == 4


def test_metadata_that_is_none_does_not_cost_the_conversation(tmp_path: Path, hf: Holdfast) -> None:
    write_files(tmp_path, "agent-1")
    odd = checkpoints("agent-1")[0]
    (tmp_path / "agent-1" / f"{odd['id']}.json").write_text(json.dumps({**odd, "metadata": ["x"]}))
    report = import_from(hf, "smooth-file", str(tmp_path))
    assert report.ok
    assert len(report.remarks) == 1
    assert history(hf)[0].metadata["$imported"]["rest"]["metadata"] == ["x"]


def test_links_are_not_followed(tmp_path: Path, hf: Holdfast) -> None:
    write_files(tmp_path / "files", "agent-1")
    (tmp_path / "files" / "agent-1" / "link.json").symlink_to("/etc/hostname")
    (tmp_path / "files" / "loop").symlink_to(tmp_path / "files", target_is_directory=True)
    report = import_from(hf, "smooth-file", str(tmp_path / "files"))
    assert {each.item for each in report.skipped} == {"file link.json", "loop"}
    assert {each.reason for each in report.skipped} == {"it is a link, and links are not followed"}
    assert report.checkpoints == 4


@pytest.mark.parametrize(
    ("name", "error"), [("nowhere", NotFound), ("file", InvalidArgument), ("none", InvalidArgument)]
)
def test_what_is_no_folder_of_smooths_is_refused(
    tmp_path: Path, hf: Holdfast, name: str, error: type[Exception]
) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "none" / "deep").mkdir(parents=True)
    with pytest.raises(error):
        import_from(hf, "smooth-file", str(tmp_path / name))


# -- SQLite -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return write_sqlite(tmp_path / "smooth.db", *AGENTS)


def edit(path: Path, sql: str, *given: Any) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql, given)
        connection.commit()


def test_rows_of_one_second_are_in_the_order_in_which_they_were_saved(database: Path, hf: Holdfast) -> None:
    """Smooth itself orders by the second, and takes the oldest of them for the newest."""
    import_from(hf, "smooth-sqlite", str(database))
    found = history(hf)
    assert {each.created_at for each in found} == {datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)}
    assert [len(each.state["messages"]) for each in found] == [3, 4, 5, 6]


def test_a_clock_that_went_back_does_not_change_the_order(database: Path, hf: Holdfast) -> None:
    last = checkpoints("agent-1")[-1]["id"]
    edit(database, "UPDATE checkpoints SET created_at = 7 WHERE id = ?", last)
    import_from(hf, "smooth-sqlite", str(database))
    assert ids(history(hf))[-1] == last
    assert history(hf)[-1].created_at == datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)


def test_the_file_is_read_while_others_write_and_left_as_it_is(database: Path, hf: Holdfast) -> None:
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM checkpoints")
        before = database.read_bytes()
        assert import_from(hf, "smooth-sqlite", str(database)).checkpoints == 8
        assert database.read_bytes() == before
        writer.rollback()


def test_what_is_still_in_the_journal_is_imported(tmp_path: Path, database: Path, hf: Holdfast) -> None:
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        insert(writer, {**checkpoints("agent-1")[-1], "id": "in the journal"})
        writer.commit()
        copied = tmp_path / "copied.db"
        shutil.copy(database, copied)
        shutil.copy(f"{database}-wal", f"{copied}-wal")
    import_from(hf, "smooth-sqlite", str(copied))
    assert ids(history(hf))[-1] == "in the journal"


ROW_DAMAGES = {
    "torn": ("conversation = substr(conversation, 1, 40)", "it is cut off in the middle"),
    "missing": ("conversation = 7", "its conversation is not a JSON object"),
    "a list": ("conversation = x'5b5d'", "its conversation is not a JSON object"),
    "iteration": ("iteration = 'many'", "its iteration is not a whole number"),
    "id": ("id = x'00ff'", "its id is empty or not a string"),
    "nested": ("conversation = replace(hex(zeroblob(100000)), '00', '[')", "it is nested too deeply"),
    "too large": ("conversation = zeroblob(300000)", "SQLite cannot read it"),
}


@pytest.mark.parametrize("damage", ROW_DAMAGES)
def test_one_bad_row_does_not_hinder_the_others(database: Path, hf: Holdfast, damage: str) -> None:
    change, reason = ROW_DAMAGES[damage]
    bad = checkpoints("agent-1")[1]["id"]
    edit(database, f"UPDATE checkpoints SET {change} WHERE id = ?", bad)  # noqa: S608 - of this file

    report = import_from(hf, "smooth-sqlite", str(database), max_file_bytes=200_000)

    [skipped] = report.skipped
    assert (skipped.thread, skipped.item) == ("agent-1", "row 2")
    assert reason in skipped.reason
    assert not report.differing
    assert ids(history(hf)) == [each["id"] for each in checkpoints("agent-1") if each["id"] != bad]


@pytest.mark.parametrize("agent", ["x'ff'", "''", "CAST(x'ff' AS TEXT)"])
def test_an_agent_whose_id_is_no_text_is_skipped(database: Path, hf: Holdfast, agent: str) -> None:
    edit(database, f"UPDATE checkpoints SET agent_id = {agent} WHERE agent_id = 'agent-1'")  # noqa: S608 - of this file
    report = import_from(hf, "smooth-sqlite", str(database))
    assert len(report.skipped) == 1
    assert [row.name for row in hf.threads()] == ["agent-2"]


def test_metadata_of_a_row_that_is_none_does_not_cost_the_conversation(database: Path, hf: Holdfast) -> None:
    edit(database, "UPDATE checkpoints SET metadata = '{', created_at = 'x' WHERE rowid = 1")
    edit(database, "UPDATE checkpoints SET metadata = NULL WHERE rowid = 2")
    report = import_from(hf, "smooth-sqlite", str(database))
    assert report.ok
    assert len(report.remarks) == 2
    assert report.checkpoints == 8


def test_a_file_with_damaged_pages_gives_what_can_be_read_or_one_error(tmp_path: Path) -> None:
    """Each page of the file, in turn, is overwritten."""
    with closing(sqlite3.connect(write_sqlite(tmp_path / "smooth.db", *AGENTS))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = (tmp_path / "smooth.db").read_bytes()
    outcomes: set[str] = set()
    junks = (b"\0", b"\xff", b"\x0d")
    for page in range(0, len(data), 4096):
        for junk in junks if IN_FULL else [junks[page // 4096 % len(junks)]]:
            path = tmp_path / "damaged.db"
            path.write_bytes(data[:page] + junk * 4096 + data[page + 4096 :])
            with holdfast.open("memory:") as hf:
                try:
                    report = import_from(hf, "smooth-sqlite", str(path))
                except (InvalidArgument, StoreError):
                    outcomes.add("refused")
                    continue
                assert not report.differing
                outcomes.add("ok" if report.ok else "skipped")
    assert outcomes >= {"refused", "skipped"}


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "CREATE TABLE checkpoints (id)",
        "CREATE VIEW checkpoints AS SELECT 1 id, 2 agent_id, 3 iteration, 4 conversation, 5 metadata, 6 created_at",
    ],
)
def test_what_is_no_database_of_smooths_is_refused(tmp_path: Path, hf: Holdfast, sql: str) -> None:
    edit(tmp_path / "other.db", sql)
    with pytest.raises(InvalidArgument, match="is not a database of Smooth's SqliteCheckpointStore"):
        import_from(hf, "smooth-sqlite", str(tmp_path / "other.db"))
    with pytest.raises(NotFound):
        import_from(hf, "smooth-sqlite", str(tmp_path / "nowhere.db"))
    (tmp_path / "notes.txt").write_text("notes " * 1000)
    with pytest.raises(InvalidArgument, match="cannot be read as a SQLite database"):
        import_from(hf, "smooth-sqlite", str(tmp_path / "notes.txt"))
