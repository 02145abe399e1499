"""A thread that is dropped: its name is free, and its forks keep what they use, whoever comes in between."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.errors import Damaged, StoreFull
from holdfast.stores.log import DirectoryStore, disk
from holdfast.stores.log.namespace import Namespace
from holdfast.testing.contract.build import Line, commit, numbers_of, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.stores.log.conftest import Open, damage_line, log_of
from tests.stores.sqlite.conftest import finished, forked


@pytest.fixture
def origin(store: DirectoryStore) -> Line:
    return saved(store, "main", "x", "y")


@pytest.fixture
def fork(store: DirectoryStore, origin: Line) -> Line:
    return forked_from(origin, "child")


def forked_from(origin: Line, name: str) -> Line:
    line = Line(origin.store, name)
    line.save("own", origins=[origin.number], bases=[(origin.number, 1)])
    return line


def test_a_drop_is_one_turn(
    store: DirectoryStore, origin: Line, fork: Line, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store(busy_timeout=0.05)
    leave = store._folder._gate.leave

    def next_one() -> None:
        leave()
        monkeypatch.undo()
        saved(other, "main", "new")

    monkeypatch.setattr(store._folder._gate, "leave", next_one)
    store.drop(origin.number)
    reader = open_store()
    assert texts_of(reader, origin.span()) == [["x", "y"]]
    assert reader.forks(origin.number) == [fork.number]
    assert list(log_of(path, "main").parent.iterdir()) == [log_of(path, "main")]


def test_a_drop_is_done_though_what_is_left_cannot_be_tidied_up(
    origin: Line, fork: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    origin.store.drop(origin.number)
    with monkeypatch.context() as patched:
        patched.setattr(DirectoryStore, "_remove_dropped", fail)
        origin.store.drop(fork.number)
    assert thread_named(origin.store, "child") is None
    store = open_store()
    assert numbers_of(store) == [origin.number]
    store.reclaim()
    assert numbers_of(store) == []


def test_a_drop_whose_cells_cannot_be_kept_changes_nothing(
    origin: Line, fork: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_all", fail)
        with pytest.raises(StoreFull, match="nothing was changed"):
            origin.store.drop(origin.number)
    for store in (origin.store, open_store()):
        assert thread_named(store, "main") == origin.stored()
        assert store.forks(origin.number) == [fork.number]
        assert list(store.check()) == []


def test_a_fork_whose_first_line_is_damaged_is_a_fork(origin: Line, fork: Line, open_store: Open, path: Path) -> None:
    fork.save("more")
    damage_line(log_of(path, "child"), "checkpoint", 0)
    store = open_store()
    assert store.forks(origin.number) == [fork.number]
    store.drop(origin.number)
    assert texts_of(open_store(), origin.span()) == [["x", "y"]]


@pytest.mark.parametrize("kind", ["thread", "end"])
def test_a_fork_whose_log_cannot_be_read_keeps_its_cells(
    origin: Line, fork: Line, open_store: Open, path: Path, kind: str
) -> None:
    log = log_of(path, "child")
    whole = log.read_bytes()
    damage_line(log, kind)
    store = open_store()
    if kind == "end":
        with pytest.raises(Damaged, match="child"):
            store.forks(origin.number)
    store.drop(origin.number)
    assert thread_named(store, "main") is None
    log.write_bytes(whole)
    reader = open_store()
    assert texts_of(reader, origin.span()) == [["x", "y"]]
    assert reader.forks(origin.number) == [fork.number]


def test_a_drop_goes_for_good_when_what_stood_in_its_way_is_mended(origin: Line, open_store: Open, path: Path) -> None:
    fork = forked_from(origin, "child")
    log = log_of(path, "child")
    whole = log.read_bytes()
    damage_line(log, "end")
    store = open_store()
    store.drop(origin.number)
    log.write_bytes(whole)
    store.drop(fork.number)
    store.reclaim()
    assert numbers_of(store) == []
    assert list((path / "default" / "dropped").iterdir()) == []


def test_threads_that_were_never_forks_are_not_kept_by_damage_elsewhere(
    store: DirectoryStore, open_store: Open, path: Path
) -> None:
    line, _ = saved(store, "a", "x"), saved(store, "b", "x")
    damage_line(log_of(path, "b"), "end")
    other = open_store()
    assert other.forks(line.number) == []
    other.drop(line.number)
    assert not (path / "default" / "dropped" / str(line.number)).exists()


def test_forks_that_are_gone_cost_one_look_at_the_folder(
    store: DirectoryStore, origin: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        saved(store, f"other-{n}", "x")
    for n in range(10):
        store.drop(forked_from(origin, f"fork-{n}").number)
    looks = 0
    everything = store._space.everything

    def counted() -> object:
        nonlocal looks
        looks += 1
        return everything()

    monkeypatch.setattr(store._space, "everything", counted)
    assert store.forks(origin.number) == []
    assert looks <= 1


@pytest.mark.parametrize("verb", ["delete", "_remove_dropped"])
def test_a_process_killed_in_a_drop(
    origin: Line, fork: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The thread is there, or only its cells are."""
    first = Line(origin.store, "first")
    first.save("w")
    origin.save("z", origins=[first.number], bases=[(first.number, 1)])

    def die(*_: object) -> None:
        os._exit(0)

    def drop() -> None:
        monkeypatch.setattr(Namespace if verb == "delete" else DirectoryStore, verb, die)
        open_store().drop(origin.number)

    finished(forked(drop))
    other = open_store()
    assert (thread_named(other, "main") is None) is (verb != "delete")
    if verb != "delete":
        saved(other, "main", "new")
    assert texts_of(open_store(), origin.span()) == [["x", "y", "z"]]
    assert open_store().forks(origin.number) == [fork.number]
    assert list(open_store().check()) == []


def test_a_fork_keeps_the_few_cells_of_a_thread_with_many_checkpoints(
    store: DirectoryStore, origin: Line, fork: Line, open_store: Open
) -> None:
    """The copy of the cells is shorter than the number of the last checkpoint."""
    for _ in range(1_000):
        thread = thread_named(store, "main")
        assert thread is not None
        store.commit(commit("main", thread.position))
    store.drop(origin.number)
    reader = open_store()
    assert texts_of(reader, origin.span()) == [["x", "y"]]
    assert reader.forks(origin.number) == [fork.number]
    assert list(reader.check()) == []


def test_the_name_of_a_dropped_fork_is_not_kept(origin: Line, open_store: Open, path: Path) -> None:
    fork = forked_from(origin, "jane doe")
    fork.store.drop(fork.number)
    fork.store.reclaim(scrub=True)
    for file in path.rglob("*"):
        assert "jane" not in file.name
        assert not file.is_file() or b"jane" not in file.read_bytes()


def test_a_dropped_thread_whose_first_line_is_damaged_is_not_reported_as_renamed(
    store: DirectoryStore, origin: Line, fork: Line, open_store: Open, path: Path
) -> None:
    store.drop(origin.number)
    damage_line(path / "default" / "dropped" / f"{origin.number}" / "log.jsonl", "thread")
    with pytest.raises(Damaged, match="line with the name"):
        texts_of(open_store(), fork.span(), origin.span())
