"""A log that cannot be read at all: it is told, and not taken for a thread that never was; and nothing goes with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged, HoldfastError
from holdfast.formats.lines import reseal
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import holds, names_of, numbers_of, saved, texts_of, value
from holdfast.threads.scan import last_of, numbered, thread_named
from tests.covers import covers
from tests.stores.log.conftest import Open, damage_line, log_of

WAYS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut off": lambda whole: whole[:-5],
    "zeros at the end": lambda whole: whole[:-100] + b"\0" * 100,
    "zeros": lambda whole: b"\0" * len(whole),
    "a damaged end": lambda whole: whole[:-20] + b"~" + whole[-19:],
    "a zero in the end": lambda whole: whole[:-20] + b"\0" + whole[-19:],
}


@pytest.fixture(params=list(WAYS))
def store(open_store: Open, path: Path, request: pytest.FixtureRequest) -> DirectoryStore:
    """A store of the threads a, whose log is one group and not whole any more, and b, which is sound."""
    made = open_store()
    line = saved(made, "a", *(f"{n}" for n in range(30)))
    saved(made, "b", "x")
    made.sweep(line.number, line.whole(line.span(20)))
    made.close()
    log = log_of(path, "a")
    log.write_bytes(WAYS[request.param](log.read_bytes()))
    return open_store()


@covers("A4")
def test_it_is_damage_and_not_a_thread_that_never_was(store: DirectoryStore, path: Path) -> None:
    before = log_of(path, "a").read_bytes()
    with pytest.raises(Damaged, match=r"threads/a/log\.jsonl"):
        thread_named(store, "a")
    with pytest.raises(Damaged, match=r"threads/a/log\.jsonl"):
        saved(store, "a", "from zero")
    assert log_of(path, "a").read_bytes() == before
    assert list(log_of(path, "a").parent.iterdir()) == [log_of(path, "a")]


def test_it_is_found_by_a_check(store: DirectoryStore, path: Path) -> None:
    assert any("threads/a" in problem.what for problem in store.check())
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        assert any("threads/a" in problem.what for problem in hf.verify().problems)


def test_others_are_there_and_new_ones_can_be_made(store: DirectoryStore) -> None:
    assert thread_named(store, "b") is not None
    line = saved(store, "c", "x", "y")
    assert texts_of(store, line.span()) == [["x", "y"]]


def test_no_value_is_swept_that_it_may_name(store: DirectoryStore) -> None:
    shared = value(b"a prompt")
    saved(store, "c", "x").save("y", blobs=[shared])
    with pytest.raises(Damaged, match="threads/a"):
        list(numbered(store))
    with pytest.raises(Damaged, match="threads/a"):
        store.sweep_blobs(store.sweep_blobs().epoch)
    assert holds(store, shared)


def test_a_folder_without_a_log_is_no_thread(open_store: Open, path: Path) -> None:
    store = open_store()
    saved(store, "b", "x")
    log_of(path, "a").parent.mkdir()
    log_of(path, "a").with_name("log.jsonl.new").write_bytes(b"half")
    assert thread_named(store, "a") is None
    assert names_of(store) == ["b"]
    assert len(numbers_of(store)) == 1
    assert list(store.check()) == []
    assert texts_of(store, saved(store, "a", "x").span()) == [["x"]]


def newer(log: Path) -> None:
    first, rest = log.read_bytes().split(b"\n", 1)
    log.write_bytes(reseal(b"{" + first[18:].replace(b'"format":1', b'"format":2')) + rest)


def loop(log: Path) -> None:
    log.unlink()
    log.symlink_to(log)


@pytest.mark.parametrize("happens", [newer, loop])
def test_what_cannot_be_opened_hurts_nobody_else(open_store: Open, path: Path, happens: Callable[[Path], None]) -> None:
    made = open_store()
    line = saved(made, "b", "x")
    saved(made, "a", "x")
    happens(log_of(path, "a"))
    store = open_store()
    assert last_of(store, line.number) == 1
    assert last_of(store, 77) == 0
    assert texts_of(store, line.span()) == [["x"]]
    with pytest.raises(Damaged):
        list(numbered(store))
    with pytest.raises(HoldfastError):
        store.sweep_blobs(store.sweep_blobs().epoch)


def test_a_log_that_becomes_unreadable_is_not_taken_for_an_empty_journal(open_store: Open, path: Path) -> None:
    store = open_store()
    line = saved(store, "a", "x")
    log = log_of(path, "a")
    log.rename(log.with_name("old"))
    log.write_bytes(log.with_name("old").read_bytes())
    damage_line(log, "end")
    with pytest.raises(Damaged):
        store.entries(line.number, after=0, limit=9)
