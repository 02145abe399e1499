"""Erasing: nothing of a subject is left in the store's files, nothing of others is lost, and what stays is told."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast import Cipher, Damaged, Holdfast, InvalidArgument, LeaseHeld, Retention
from holdfast.errors import ErasePending, StoreError
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.testing.contract.build import numbers_of
from holdfast.threads import process
from holdfast.threads.erase import plan
from holdfast.threads.scan import thread_named
from holdfast.types import EraseResult
from tests.covers import covers
from tests.selection import every_store
from tests.stores.postgres.server import address_at, database, schema_of
from tests.threads.subject import CHILD, OTHERS, PLACES, SECRETS, SHARED, SUBJECT, found_in, pieces_of, plant, states
from tests.threads.wholes import change_blob, flip

CIPHER = Cipher(keys={"k": bytes(32)}, current="k")
# In a SQLite store these lie in compressed segments: rows and their bytes are searched for instead.
COMPRESSED = {"message", "edited", "key", "large", "binary"}
# Gone before anybody erases: rewriting and sweeping have removed them.
SWEPT = {"pruned", "rewound"}


def address(kind: str, folder: Path) -> str:
    return {"sqlite": f"{folder / 'agent.db'}", "directory": f"dir:{folder / 'agents'}", "memory": "memory:"}[kind]


@pytest.fixture(params=["sqlite", "directory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hf(kind: str, tmp_path: Path) -> Iterator[Holdfast]:
    """A store in files, with the subject planted in it."""
    with holdfast.open(address(kind, tmp_path), durability="off") as opened:
        plant(opened)
        yield opened


@pytest.fixture(params=["memory", "sqlite", "directory", "postgres", "encrypted"])
def any_hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    """Every kind of store, empty."""
    if request.param == "postgres":
        url, cipher = address_at(tmp_path), None
    elif request.param == "encrypted":
        url, cipher = address("sqlite", tmp_path), CIPHER
    else:
        url, cipher = address(request.param, tmp_path), None
    with holdfast.open(url, cipher=cipher) as opened:
        yield opened


# -- in the files -----------------------------------------------------------------------------------------------------


@every_store("each store leaves other files")
def test_nothing_of_it_is_left_in_the_files(hf: Holdfast, kind: str, tmp_path: Path) -> None:
    expected = set(PLACES) - SWEPT - (COMPRESSED if kind == "sqlite" else set())
    assert expected <= found_in(tmp_path), "the search finds what is there"
    before = states(hf)
    erased = hf.erase(SUBJECT)
    assert erased.threads == (SUBJECT, CHILD)
    assert erased.forks_left == ()
    assert len(erased.blobs_kept) == 1, "the text that another has, too"
    assert found_in(tmp_path) == set()
    assert states(hf) == before
    assert hf.verify().problems == ()
    hf.close()
    assert found_in(tmp_path) == set()


def test_not_even_compressed_bytes_are_left_in_a_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        plant(hf)
        before = _columns(path)
        seen = [piece for piece in before if any(piece in data for data in pieces_of(tmp_path))]
        assert len(seen) > 0.9 * len(before), "those are found that no end of a page has cut"
        hf.erase(SUBJECT)
        gone = before - _columns(path)
        assert len(gone) > 50
        assert [piece for piece in gone if any(piece in data for data in pieces_of(tmp_path))] == []


def _columns(path: Path) -> set[bytes]:
    """Pieces of all that is in the rows of a store: such as fit one page, and do not begin by chance."""
    pieces: set[bytes] = set()
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (name,) in tables:
            for row in connection.execute(f'SELECT * FROM "{name.decode()}"'):  # noqa: S608 - names of the schema
                for value in row:
                    if isinstance(value, bytes):
                        pieces.update(value[at : at + 24] for at in range(0, len(value) - 24, 100))
    return {piece for piece in pieces if len(set(piece)) > 12}


def test_what_was_left_by_a_store_that_did_not_overwrite_is_gone_too(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        plant(hf)
        hf.thread("others/0").save({"n": 1})
    with closing(sqlite3.connect(path)) as connection:
        # As a store of before has it: rows that were deleted lie in pages that are free now.
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("DELETE FROM entry")
        connection.execute("UPDATE run SET entries = 0")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert SECRETS["argument"] in found_in(tmp_path, SECRETS["argument"])
    with holdfast.open(path, durability="off") as hf:
        hf.context.store.reclaim(scrub=True)
        assert found_in(tmp_path, SECRETS["argument"]) == set()


def test_a_name_is_free_and_erasing_again_does_nothing(any_hf: Holdfast) -> None:
    any_hf.thread("t").save({"n": 1})
    assert any_hf.erase("t").threads == ("t",)
    assert any_hf.erase("t").threads == ()
    assert any_hf.thread("t").latest() is None
    any_hf.thread("t").save({"n": 2})
    assert any_hf.thread("t").count() == 1
    assert any_hf.verify().problems == ()


@every_store("each store reaches something else")
def test_what_the_store_cannot_reach_is_said(any_hf: Holdfast, request: pytest.FixtureRequest) -> None:
    beyond = " ".join(any_hf.erase("t").beyond)
    if "postgres" in request.node.name:
        assert all(word in beyond for word in ("vacuumed", "write-ahead log", "replicas", "backups"))
    elif "memory" in request.node.name:
        assert beyond == ""
    else:
        assert all(word in beyond for word in ("file system", "snapshots", "backups"))


def test_nothing_of_it_is_in_the_tables_of_postgres(tmp_path: Path) -> None:
    with holdfast.open(address_at(tmp_path)) as hf:
        plant(hf)
        assert set(PLACES) - SWEPT - COMPRESSED <= _in_tables(schema_of(tmp_path))
        before = states(hf)
        hf.erase(SUBJECT)
        assert _in_tables(schema_of(tmp_path)) == set()
        assert states(hf) == before
        assert hf.verify().problems == ()


def _in_tables(schema: str) -> set[str]:
    """The places whose secrets are in a column of any table of a schema."""
    found: set[str] = set()
    with psycopg.connect(database()) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        for (table,) in tables:
            query = sql.SQL("SELECT * FROM {}.{}").format(sql.Identifier(schema), sql.Identifier(table))
            for row in connection.execute(query):
                for value in row:
                    data = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
                    found.update(place for place, text in SECRETS.items() if text.encode() in data)
    return found


# -- forks ------------------------------------------------------------------------------------------------------------


@every_store("each store leaves other files")
def test_forks_stay_with_what_they_use_and_are_told(hf: Holdfast, kind: str, tmp_path: Path) -> None:
    subject = hf.thread(SUBJECT)
    fork = subject.fork("fork", at="@-1")
    state = fork.load("@-1").state
    fork.save({"own": "words", "messages": state["messages"]})
    erased = hf.erase(SUBJECT)
    assert erased.forks_left == ("fork",)
    assert fork.load("@-2").state == state
    left = found_in(tmp_path)
    # What a fork was forked at it has with all that was said of it.
    assert not left & {
        "name",
        "model",
        "argument",
        "result",
        "failure",
        "payload",
        "answer",
        "answerer",
        "note",
        "turn",
    }
    assert not left & {"finish", "child", "question", "rewound"}
    assert hf.verify().problems == ()
    again = hf.erase("fork")
    assert again.threads == ("fork",)
    assert found_in(tmp_path) == set()


def test_forks_go_where_that_is_asked_for(hf: Holdfast, tmp_path: Path) -> None:
    subject = hf.thread(SUBJECT)
    subject.fork("fork", at="@-1").fork("fork of the fork")
    erased = hf.erase(SUBJECT, forks=True)
    assert erased.threads == ("fork", "fork of the fork", SUBJECT, CHILD)
    assert erased.forks_left == ()
    assert found_in(tmp_path) == set()
    assert hf.verify().problems == ()


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_what_only_a_fork_still_used_of_its_origin_goes_with_it(kind: str, tmp_path: Path, is_cut_off: bool) -> None:
    words = "something that only the fork still has"
    with holdfast.open(address(kind, tmp_path), durability="off") as hf:
        origin = hf.thread("origin")
        origin.save({"messages": [f"{words} {number}" for number in range(5)]})
        hf.thread("origin").fork("fork")
        origin.save({"messages": ["other"]})
        origin.delete("@1")
        hf.optimize()
        if is_cut_off:  # after the first of what erasing does
            hf.thread("fork").drop()
        assert hf.erase("fork").threads == (() if is_cut_off else ("fork",))
        assert origin.load("@-1").state == {"messages": ["other"]}
        hf.close()
    assert found_in(tmp_path, words) == set()


def test_a_dropped_origin_goes_when_its_last_fork_is_erased(kind: str, tmp_path: Path) -> None:
    with holdfast.open(address(kind, tmp_path), durability="off") as hf:
        hf.thread("origin").save({"messages": [f"{SECRETS['message']} {number}" for number in range(50)]})
        hf.thread("origin").fork("fork")
        hf.thread("origin").drop()
        assert hf.erase("fork").threads == ("fork",)
        assert numbers_of(hf.context.store) == []
    assert found_in(tmp_path) == set()


def test_of_a_thread_that_stays_for_its_forks_only_their_cells_do(kind: str, tmp_path: Path) -> None:
    with holdfast.open(address(kind, tmp_path), durability="off") as hf:
        hf.thread(SUBJECT).save({"messages": ["hello"] * 50, "large": "x" * 20_000})
        hf.thread(SUBJECT).fork("fork")
        subject = hf.thread(SUBJECT)
        subject.latest()
        subject.save(
            {"messages": ["hello"] * 50 + [SECRETS["message"]]}, agent=SECRETS["agent"], label=SECRETS["label"]
        )
        subject.delete("@1")
        erased = hf.erase(SUBJECT)
        assert (erased.forks_left, len(erased.blobs_kept)) == (("fork",), 0), "nobody had it but a checkpoint deleted"
        assert found_in(tmp_path) == set()
        assert hf.thread("fork").load("@-1").state == {"messages": ["hello"] * 50, "large": "x" * 20_000}
        assert hf.verify().problems == ()


def test_where_no_cell_is_dead_all_else_goes_and_what_lies_beside_the_log(tmp_path: Path) -> None:
    state = {"messages": ["a word" * 50] * 20}
    with holdfast.open(address("directory", tmp_path)) as hf:
        hf.thread(SUBJECT).save(state, label=SECRETS["label"])
        hf.thread(SUBJECT).fork("fork").save(state)
        with hf.run(SUBJECT, agent=SECRETS["agent"]) as run:
            run.finish(run.model(lambda: SECRETS["model"]))
        [log] = (tmp_path / "agents" / "default" / "threads").glob("people*/*")
        log.with_name("torn-1-1").write_bytes(SECRETS["message"].encode())
        hf.thread("fork").delete("@1")
        assert found_in(tmp_path) == {"name", "label", "agent", "model", "message"}
        hf.erase(SUBJECT)
        assert found_in(tmp_path) - {"label"} == set(), "the log of the fork has its label until that is rewritten"
        assert [path.name for path in (tmp_path / "agents" / "default" / "dropped").glob("*/*")] == ["log.jsonl"]
        assert hf.thread("fork").load("@-1").state == state
        assert hf.verify().problems == ()


def test_what_somebody_is_writing_beside_the_log_is_told(tmp_path: Path) -> None:
    with holdfast.open(address("directory", tmp_path)) as hf:
        hf.thread(SUBJECT).save({"messages": ["a word" * 50] * 20})
        hf.thread(SUBJECT).fork("fork")
        hf.erase(SUBJECT)
        [log] = (tmp_path / "agents" / "default" / "dropped").glob("*/*")
        beside = log.with_name("log.jsonl.0123.new")
        with beside.open("wb") as writing:
            fcntl.flock(writing, fcntl.LOCK_EX)
            erased = hf.erase(SUBJECT)
            assert [each for each in erased.beyond if beside.name in each and "Erase again" in each]
        assert not [each for each in hf.erase(SUBJECT).beyond if beside.name in each]
        assert not list(tmp_path.rglob(beside.name))


# -- values -----------------------------------------------------------------------------------------------------------


@every_store("each store leaves other files")
def test_values_that_others_use_stay_and_are_told(any_hf: Holdfast) -> None:
    for name in ("a", "b"):
        any_hf.thread(name).save({"shared": SHARED, "own": name * 20_000})
    erased = any_hf.erase("a")
    assert len(erased.blobs_kept) == 1
    store = any_hf.context.store
    assert store.blob(bytes.fromhex(erased.blobs_kept[0]))
    assert any_hf.thread("b").load("@-1").state == {"shared": SHARED, "own": "b" * 20_000}
    assert any_hf.erase("b").blobs_kept == ()
    with pytest.raises(Damaged, match="missing"):
        store.blob(bytes.fromhex(erased.blobs_kept[0]))


# -- by metadata ------------------------------------------------------------------------------------------------------


@covers("cortex/MemoryBackend.clear_agent_sessions", "cortex/SessionManager.clear_agent_sessions")
@covers("cortex/session test_session_manager_clear")
def test_every_thread_with_the_metadata_goes(any_hf: Holdfast) -> None:
    metadata: dict[str, dict[str, Any]] = {
        "a": {"user": "ann", "region": "eu"},
        "b": {"user": "ann", "region": "us"},
        "c": {"user": "bob", "region": "eu"},
        "d": {},
    }
    for name, each in metadata.items():
        any_hf.thread(name).save({"n": 1}, metadata=each)
        any_hf.thread(name).save({"n": 2})  # of the head nothing is said
    assert any_hf.erase(metadata={"user": "ann", "region": "eu"}).threads == ("a",)
    assert any_hf.erase(metadata={"user": "ann"}).threads == ("b",)
    assert any_hf.erase(metadata={"user": "ann"}).threads == ()
    assert [info.name for info in any_hf.threads()] == ["c", "d"]


def test_metadata_is_compared_by_value_and_type() -> None:
    with holdfast.open("memory:") as hf:
        for name, value in {"int": 1, "bool": True, "float": 1.0, "text": "1", "list": [1], "none": None}.items():
            hf.thread(name).save({}, metadata={"id": value})
        hf.thread("without").save({}, metadata={"other": 1})
        assert hf.erase(metadata={"id": None}).threads == ("none",)
        assert hf.erase(metadata={"id": 1}).threads == ("int",)
        assert hf.erase(metadata={"id": [1]}).threads == ("list",)


def test_metadata_with_half_a_surrogate_pair_is_found_among_other_entries(any_hf: Holdfast) -> None:
    found: list[dict[str, Any]] = [{"\ud800": 1}, {"a": "\ud800"}, {"a": 1}, {"a": "b"}]
    for at, metadata in enumerate(found):
        any_hf.thread(f"{at}").save({}, metadata={"\udfff": 0, **metadata, "z": [1]})
        assert any_hf.erase(metadata=metadata).threads == (f"{at}",)


def test_many_checkpoints_are_looked_through() -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("t").save({}, metadata={"user": "ann"})
        for number in range(450):
            hf.thread("t").save({"n": number})
        assert hf.erase(metadata={"user": "ann"}).threads == ("t",)


def test_metadata_is_looked_for_as_it_was_redacted() -> None:
    with holdfast.open("memory:", redact=lambda text: text.replace("ann", "[hidden]")) as hf:
        hf.thread("t").save({}, metadata={"user": "ann"})
        assert hf.erase(metadata={"user": "ann"}).threads == ("t",)


def test_what_cannot_be_read_is_told_and_not_taken_for_what_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open("memory:") as hf:
        for name in ("a", "b"):
            for number in range(3):
                hf.thread(name).save({"n": number}, metadata={"user": name, "n": number})
        number = thread_named(hf.context.store, "b").position.thread  # type: ignore[union-attr] # it was just saved
        walk = MemoryStore.walk

        def broken(store: MemoryStore, thread: int, *, after: int, **which: Any) -> Any:
            if (thread, after) == (number, 1):
                raise Damaged("of all things")
            return walk(store, thread, after=after, **which)

        def no_page(store: MemoryStore, thread: int, **_: Any) -> Any:
            if thread == number:
                raise Damaged("of all things")
            return checkpoints(store, thread, **_)

        def no_search(store: MemoryStore, having: bytes, *, after: int) -> Any:
            raise Damaged("of all things")

        checkpoints = MemoryStore.checkpoints
        monkeypatch.setattr(MemoryStore, "walk", broken)
        monkeypatch.setattr(MemoryStore, "checkpoints", no_page)
        monkeypatch.setattr(MemoryStore, "search", no_search)
        erased = hf.erase(metadata={"user": "a"})
        assert erased.threads == ("a",)
        assert any("'b'" in each and "1 checkpoints" in each for each in erased.beyond)
        assert hf.erase(metadata={"user": "b", "n": 0}).threads == ("b",), "the others can be read"


@pytest.mark.parametrize("cipher", [None, CIPHER])
@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ("UPDATE checkpoint SET meta = x'80' WHERE row_key = 2 << 32 | 2", 1),
        ("UPDATE checkpoint SET head = x'80' WHERE row_key = 2 << 32 | 2", 1),
        ("UPDATE checkpoint SET step = 7, label = x'00' WHERE row_key = 2 << 32 | 2", 1),
        ("DELETE FROM checkpoint WHERE row_key = 2 << 32 | 2", 1),
        ("DELETE FROM checkpoint WHERE row_key > 2 << 32 | 1", 2),
        ("DELETE FROM checkpoint WHERE row_key > 2 << 32", 3),
    ],
)
def test_checkpoints_that_cannot_be_searched_are_told(
    tmp_path: Path, cipher: Cipher | None, damage: str, lost: int
) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, cipher=cipher) as hf:
        for name in ("a", "b"):
            for number in range(3):
                hf.thread(name).save({"n": number}, metadata={"user": name, "n": number})
        hf.thread("a").delete("@1")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(damage)
        connection.commit()
    with holdfast.open(path, cipher=cipher) as hf:
        planned = plan(hf.context, None, {"user": "a"}, forks=False)
        assert planned.threads == ("a",)
        if cipher is not None and lost > 1:  # the key of the thread is looked for in its newest checkpoint
            lost = 3
        assert any("'b'" in each and f"{lost} checkpoints" in each for each in planned.beyond), planned.beyond
        assert not any("'a'" in each for each in planned.beyond)
        assert plan(hf.context, None, {"user": "b"}, forks=False).threads == (("b",) if lost < 3 else ())


def test_threads_that_the_table_or_its_index_has_lost_are_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf:
        for name in ("a", "b"):
            hf.thread(name).save({}, metadata={"user": name})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE thread SET checksum = 0 WHERE thread_no = 2")
        connection.commit()
    with holdfast.open(path) as hf, pytest.raises(Damaged):
        hf.erase(metadata={"user": "a"})


@pytest.mark.parametrize(
    "given", [{}, {"thread": "t", "metadata": {"a": 1}}, {"metadata": {}}, {"thread": ""}, {"metadata": {1: 2}}]
)
def test_what_says_nothing_or_too_much_is_refused(given: dict[str, Any]) -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("t").save({"n": 1}, metadata={"a": 1})
        with pytest.raises(InvalidArgument):
            hf.erase(**given)
        assert hf.thread("t").count() == 1


# -- children ---------------------------------------------------------------------------------------------------------


def family(hf: Holdfast) -> None:
    with hf.run("parent", start={}) as run:
        for name in ("first", "second"):
            with run.child(name, start={}) as child:
                child.finish("its result")
            run.model(lambda: 1)
        run.finish()


def test_of_a_child_that_goes_alone_its_parent_is_told(any_hf: Holdfast) -> None:
    family(any_hf)
    erased = any_hf.erase("parent/first")
    assert erased.threads == ("parent/first",)
    assert [each for each in erased.beyond if "journal of thread 'parent'" in each and "'parent/first'" in each]
    erased = any_hf.erase("parent")
    assert erased.threads == ("parent", "parent/second")
    assert not [each for each in erased.beyond if "journal" in each]


def test_a_damaged_journal_keeps_nothing_from_being_erased(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        family(hf)
    change_blob(path, "entry", "record", "row_key & 4294967295 = 1", flip)  # that of the first child
    with holdfast.open(path, durability="off") as hf:
        erased = hf.erase("parent")
        assert erased.threads == ("parent", "parent/second")
        assert [each for each in erased.beyond if "1 entries of its journal cannot be read" in each]
        assert hf.erase("parent/first").threads == ("parent/first",)
        assert numbers_of(hf.context.store) == []


# -- what stands in the way -------------------------------------------------------------------------------------------


def test_a_thread_that_is_being_run_is_left_alone(any_hf: Holdfast) -> None:
    any_hf.thread("t").save({"n": 1}, metadata={"user": "ann"})
    any_hf.thread("z").save({"n": 1}, metadata={"user": "ann"})
    with any_hf.run("t") as run:
        with pytest.raises(LeaseHeld, match="nothing was erased"):
            any_hf.erase(metadata={"user": "ann"})
        run.halt("enough")
    assert [info.name for info in any_hf.threads()] == ["t", "z"]
    assert any_hf.erase(metadata={"user": "ann"}).threads == ("t", "z")


def test_nobody_waits_for_a_worker_that_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open("memory:") as hf:
        block = hf.run("t", start={})
        run = block.__enter__()
        with pytest.raises(LeaseHeld):
            hf.erase("t")
        monkeypatch.setattr(process, "is_dead", bool)
        assert hf.erase("t").threads == ("t",)
        assert run.core._lease is not None
        run.core._lease.stop()


def test_a_reader_in_the_way_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        plant(hf)
        before = states(hf)
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM checkpoint").fetchone()
            with pytest.raises(ErasePending, match="Erase again") as pending:
                hf.erase(SUBJECT)
            assert isinstance(pending.value, StoreError)
            assert pending.value.erased is not None
            assert pending.value.erased.threads == (SUBJECT, CHILD)
            assert found_in(tmp_path) != set()
            assert states(hf) == before
            hf.thread("others/0").latest()
            hf.thread("others/0").save({"still": "works"})
        assert hf.erase(SUBJECT).threads == ()
        assert found_in(tmp_path) == set()
        assert hf.verify().problems == ()


def test_damage_elsewhere_keeps_shared_values_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf:
        for name in ("a", "b"):
            hf.thread(name).save({"large": name * 20_000})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE checkpoint SET refs = x'00' WHERE row_key >> 32 = 1")
        connection.commit()
    with holdfast.open(path) as hf:
        erased = hf.erase("b")
        assert erased.threads == ("b",)
        assert any("blobs were not removed" in each for each in erased.beyond)


def test_nothing_is_erased_where_nobody_knows_which_threads_there_are(tmp_path: Path) -> None:
    with holdfast.open(address("directory", tmp_path)) as hf:
        for name in ("a", "b"):
            hf.thread(name).save({"n": 1})
    log = tmp_path / "agents" / "default" / "threads" / "a" / "log.jsonl"
    log.write_bytes(bytes(log.stat().st_size))
    with holdfast.open(address("directory", tmp_path)) as hf:
        with pytest.raises(Damaged):
            hf.erase("b")
        assert hf.thread("b").load("@-1").state == {"n": 1}


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_the_data_key_of_an_encrypted_thread_is_gone(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", cipher=CIPHER) as hf:
        store = hf.context.store

        def keys() -> int:
            return len(store.keys(limit=99))

        namespace = keys()
        hf.thread("a").save({"n": 1})
        hf.thread("a").fork("fork")
        hf.thread("b").save({"n": 1})
        assert keys() == namespace + 3
        assert hf.erase("a", forks=True).threads == ("a", "fork")
        assert keys() == namespace + 1
        assert hf.thread("b").load("@-1").state == {"n": 1}


def test_other_handles_see_that_it_is_gone(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db") as one, holdfast.open(tmp_path / "agent.db") as other:
        one.thread("t").save({"n": 1})
        thread = other.thread("t")
        thread.latest()
        one.erase("t")
        assert thread.latest() is None
        thread.save({"n": 2})
        other.thread("u").save({"n": 3})
        assert one.thread("u").load("@-1").state == {"n": 3}


def test_it_can_be_awaited(tmp_path: Path) -> None:
    async def erase() -> EraseResult:
        async with await holdfast.aopen(tmp_path / "agent.db") as hf:
            await hf.thread("t").save({"n": 1})
            return await hf.erase("t")

    assert asyncio.run(erase()).threads == ("t",)


@every_store("each store leaves other files")
def test_the_pruned_is_gone_with_the_rest(kind: str, tmp_path: Path) -> None:
    with holdfast.open(address(kind, tmp_path), durability="off") as hf:
        thread = hf.thread("t")
        for number in range(30):
            thread.save({"messages": [f"{SECRETS['pruned']} {number}"]}, label=SECRETS["label"])
        thread.prune(Retention(keep_last=1, keep_labelled=False))
        thread.drop()
        hf.thread("other").save({"n": 1})
        assert hf.erase("t").threads == (), "it was dropped; what that left is scrubbed all the same"
        assert found_in(tmp_path) == set()


def test_others_are_named_by_none_of_it() -> None:
    assert not any(secret in name for name in OTHERS for secret in SECRETS.values())
