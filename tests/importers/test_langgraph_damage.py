"""Damaged sources: what cannot be moved is skipped with a reason, and the rest goes on. What differs is told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import holdfast
from holdfast import Holdfast, InvalidArgument, NotFound, StoreError
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.importers import import_from
from tests.importers.sources import edit, play, postgres_saver, postgres_schema, tuples

KIND = "langgraph-sqlite"
THIRD = "(SELECT checkpoint_id FROM checkpoints WHERE thread_id = 'chat' ORDER BY checkpoint_id LIMIT 1 OFFSET 2)"

DAMAGES = {
    "no msgpack": ("checkpoint = substr(checkpoint, 1, length(checkpoint) / 2)", "its bytes are not msgpack"),
    "no bytes": ("checkpoint = NULL", "its bytes are missing"),
    "no type": ("type = NULL", "it has the type None"),
    "no dict": ("checkpoint = x'93010203'", "it is not a dict"),
    "another's content": (
        "checkpoint = (SELECT checkpoint FROM checkpoints c ORDER BY checkpoint_id DESC LIMIT 1)",
        "its content belongs to another checkpoint",
    ),
    "bad metadata": ("metadata = '{\"step\": 1'", "its metadata is not JSON"),
    "metadata that is a list": ("metadata = '[1]'", "its metadata is not an object"),
    "metadata that is not a string": ("metadata = x'ff22'", "its metadata is not JSON"),
    "metadata that is ours": ("metadata = '{\"$langgraph\": 1}'", "metadata has the key $langgraph, which is reserved"),
    "half a surrogate pair": ('metadata = \'{"a": "\\ud800"}\'', "this string is not valid Unicode"),
    "pickle": ("type = 'pickle'", "it has the type 'pickle' and cannot be converted without loading it"),
    "encrypted": ("type = 'msgpack+aes'", "it has the type 'msgpack+aes'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_checkpoint_is_skipped(small: Path, hf: Holdfast, damage: str) -> None:
    change, reason = DAMAGES[damage]
    with SqliteSaver.from_conn_string(str(small)) as theirs:
        expected = tuples(theirs, "chat")
    with closing(sqlite3.connect(small)) as connection:
        [(bad,)] = connection.execute(f"SELECT {THIRD}")
    edit(small, f"UPDATE checkpoints SET {change} WHERE checkpoint_id = {THIRD}")  # noqa: S608 - of this file

    told = import_from(hf, KIND, str(small), dry_run=True)
    report = import_from(hf, KIND, str(small))

    assert told.skipped == report.skipped
    [skipped] = report.skipped
    assert (skipped.thread, skipped.item) == ("chat", f"checkpoint {bad}")
    assert reason in skipped.reason
    assert report.differing == ()
    assert not report.ok
    assert tuples(HoldfastSaver(hf), "chat") == [each for each in expected if each.checkpoint["id"] != bad]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("channel_versions", [1], "a table of versions is not a dict"),
        ("channel_versions", {"a": None}, "a version is neither"),
        ("channel_versions", {1: "x"}, "has a key that is not a string"),
        ("versions_seen", {"node": 1}, "a table of versions is not a dict"),
        ("versions_seen", None, "versions_seen is not a dict"),
        ("updated_channels", {"a": 1}, "updated_channels is not a list"),
        ("channel_values", [1], "channel_values is not a dict"),
    ],
)
def test_a_checkpoint_that_is_not_as_langgraph_writes_them(
    small: Path, hf: Holdfast, field: str, value: Any, reason: str
) -> None:
    with closing(sqlite3.connect(small)) as connection:
        [(data,)] = connection.execute(f"SELECT checkpoint FROM checkpoints WHERE checkpoint_id = {THIRD}")  # noqa: S608
    written = ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext)
    changed = ormsgpack.packb({**written, field: value}, option=ormsgpack.OPT_NON_STR_KEYS)
    edit(small, f"UPDATE checkpoints SET checkpoint = ? WHERE checkpoint_id = {THIRD}", changed)  # noqa: S608

    [skipped] = import_from(hf, KIND, str(small)).skipped

    assert reason in skipped.reason


def test_a_bad_write_is_skipped_and_its_checkpoint_is_not(small: Path, hf: Holdfast) -> None:
    edit(
        small, "UPDATE writes SET value = x'c1' WHERE rowid = (SELECT min(rowid) FROM writes WHERE thread_id = 'chat')"
    )

    report = import_from(hf, KIND, str(small))

    [skipped] = report.skipped
    assert skipped.item is not None
    assert ", write " in skipped.item
    assert skipped.reason == "its bytes are not msgpack"
    assert report.differing == ()
    assert report.checked == report.checkpoints


def test_a_parent_that_is_missing_is_remarked(small: Path, hf: Holdfast) -> None:
    edit(small, f"DELETE FROM checkpoints WHERE checkpoint_id = {THIRD}")  # noqa: S608 - of this file

    report = import_from(hf, KIND, str(small))

    assert report.ok
    [remark] = report.remarks
    assert "is not in the source" in remark.reason
    with SqliteSaver.from_conn_string(str(small)) as theirs:
        assert tuples(HoldfastSaver(hf), "chat") == tuples(theirs, "chat")


def test_a_thread_without_a_name_is_skipped(small: Path, hf: Holdfast) -> None:
    edit(small, "UPDATE checkpoints SET thread_id = '' WHERE thread_id = 'chat'")
    edit(small, "UPDATE writes SET thread_id = '' WHERE thread_id = 'chat'")
    [skipped] = import_from(hf, KIND, str(small)).skipped
    assert skipped.reason == "its thread id is empty or not a string"


def test_a_name_that_is_no_text_is_skipped(small: Path, hf: Holdfast) -> None:
    edit(small, "UPDATE checkpoints SET thread_id = CAST(x'ff' AS TEXT) WHERE thread_id = 'chat'")
    edit(small, "DELETE FROM writes WHERE thread_id = 'chat'")
    report = import_from(hf, KIND, str(small))
    assert len(report.skipped) == 1
    assert report.threads == 3
    assert {row.name for row in hf.threads()} == {"sends", "asks"}


def test_rows_that_are_of_other_types_are_skipped(small: Path, hf: Holdfast) -> None:
    """SQLite takes bytes where texts belong."""
    edit(small, "UPDATE checkpoints SET thread_id = x'01' WHERE thread_id = 'sends'")
    edit(small, "UPDATE writes SET task_path = x'01' WHERE thread_id = 'asks' AND idx = 0")
    edit(small, f"UPDATE checkpoints SET checkpoint_id = x'01' WHERE checkpoint_id = {THIRD}")  # noqa: S608

    report = import_from(hf, KIND, str(small))

    assert {each.reason for each in report.skipped} == {
        "its thread id is empty or not a string",
        "its task id, path, index or channel is invalid",
        "it cannot be found by its id",
    }
    assert report.differing == ()


def test_a_file_that_cannot_be_listed(source: Path, hf: Holdfast) -> None:
    data = bytearray(source.read_bytes())
    data[2 * 4096 :] = b"\xa5" * (len(data) - 2 * 4096)
    source.write_bytes(data)
    with pytest.raises(StoreError, match=r"\.recover"):
        import_from(hf, KIND, str(source))


def test_damaged_pages_cost_what_is_on_them(source: Path, hf: Holdfast) -> None:
    data = bytearray(source.read_bytes())
    page = 40 * 4096
    data[page : page + 4096] = b"\xa5" * 4096
    source.write_bytes(data)

    report = import_from(hf, KIND, str(source))

    assert report.skipped
    assert report.checkpoints > 0


def test_what_is_stored_otherwise_is_told(small: Path, hf: Holdfast) -> None:
    """The source was changed behind its ids: what is stored is not what it has."""
    import_from(hf, KIND, str(small))
    with closing(sqlite3.connect(small)) as connection:
        [(id, data)] = connection.execute(
            "SELECT checkpoint_id, checkpoint FROM checkpoints WHERE thread_id = 'chat' AND checkpoint_id IN "
            "(SELECT checkpoint_id FROM writes WHERE idx = 0) ORDER BY checkpoint_id DESC LIMIT 1"
        )
    written = ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext)
    written["channel_values"]["messages"] = ["something else"]
    written["ts"] = "2020-01-01T00:00:00+00:00"
    edit(small, "UPDATE checkpoints SET checkpoint = ? WHERE checkpoint_id = ?", ormsgpack.packb(written), id)
    edit(small, "UPDATE checkpoints SET metadata = '{}', parent_checkpoint_id = 'x' WHERE checkpoint_id = ?", id)
    edit(small, "UPDATE writes SET value = x'01', type = 'msgpack' WHERE checkpoint_id = ? AND idx = 0", id)

    report = import_from(hf, KIND, str(small))

    assert not report.ok
    assert {each.item for each in report.differing} == {f"checkpoint {id}"}
    assert [each.reason for each in report.differing] == [
        "differs from the source: its parent",
        "differs from the source: its versions",
        "differs from the source: its metadata",
        "differs from the source: channel messages",
        "differs from the source: its writes",
    ]


def test_what_is_no_source_is_refused(tmp_path: Path, hf: Holdfast) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, and long enough that SQLite looks at its first page" * 30)
    other = tmp_path / "other.db"
    edit(other, "CREATE TABLE checkpoints (id)")
    with pytest.raises(NotFound, match="there is no file"):
        import_from(hf, KIND, str(tmp_path / "nowhere.db"))
    with pytest.raises(NotFound, match="there is no file"):
        import_from(hf, KIND, str(tmp_path))
    with pytest.raises(InvalidArgument, match="cannot be read as a SQLite database"):
        import_from(hf, KIND, str(text))
    with pytest.raises(InvalidArgument, match="is not a database of LangGraph's SqliteSaver"):
        import_from(hf, KIND, str(other))
    with pytest.raises(InvalidArgument, match=r"there is no format 'nothing'; the formats are .*langgraph-sqlite"):
        import_from(hf, "nothing", str(other))
    with pytest.raises(InvalidArgument, match="only a dry run works without one"):
        import_from(None, KIND, str(other))
    assert not [*hf.threads()]


def test_no_postgresql(hf: Holdfast) -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        import_from(hf, "langgraph-postgres", "postgresql://user:secret@127.0.0.1:1/nothing")
    with pytest.raises(InvalidArgument, match="this is not a database URL") as caught:
        import_from(hf, "langgraph-postgres", "postgresql://user:secret@127.0.0.1:1/nothing?what=secret")
    assert "secret" not in str(caught.value)
    with postgres_schema() as url, pytest.raises(InvalidArgument, match="not a database of LangGraph's PostgresSaver"):
        import_from(hf, "langgraph-postgres", url)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            "UPDATE checkpoint_blobs SET blob = '\\xc1' WHERE channel = 'messages'",
            "channel messages: its bytes are not msgpack",
        ),
        (
            "UPDATE checkpoint_blobs SET blob = NULL WHERE channel = 'messages'",
            "channel messages: its bytes are missing",
        ),
        ("UPDATE checkpoints SET checkpoint = '[]'", "it is not an object"),
        (
            "UPDATE checkpoints SET checkpoint = checkpoint #- '{channel_versions}'",
            "table of versions is not an object",
        ),
        ("UPDATE checkpoints SET metadata = '3'", "its metadata is not an object"),
    ],
)
def test_bad_rows_in_postgresql(hf: Holdfast, change: str, reason: str) -> None:
    with postgres_schema() as url:
        with postgres_saver(url) as theirs:
            play(theirs, "chat", "sends")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"{change}{' AND' if 'WHERE' in change else ' WHERE'} thread_id = 'chat'".encode())

        report = import_from(hf, "langgraph-postgres", url)

        assert {each.thread for each in report.skipped} == {"chat"}
        assert all(reason in each.reason for each in report.skipped)
        assert report.differing == ()
        with postgres_saver(url) as theirs:
            assert tuples(HoldfastSaver(hf), "sends") == tuples(theirs, "sends")


def test_nothing_is_changed_in_postgresql(hf: Holdfast) -> None:
    with postgres_schema() as url:
        with postgres_saver(url) as theirs:
            play(theirs, "chat")
        with psycopg.connect(url, autocommit=True) as connection:
            before = connection.execute("SELECT xmin, * FROM checkpoints ORDER BY checkpoint_id").fetchall()
            assert import_from(hf, "langgraph-postgres", url).ok
            after = connection.execute("SELECT xmin, * FROM checkpoints ORDER BY checkpoint_id").fetchall()
        assert after == before


def test_an_import_may_be_redacted(small: Path, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "r.db", durability="off", redact=lambda text: text.replace("question", "***")) as hf:
        assert import_from(hf, KIND, str(small)).ok
        assert "question" not in str(hf.thread("chat").load("@-1").state)
        assert import_from(hf, KIND, str(small)).ok
