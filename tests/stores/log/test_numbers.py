"""The numbers of threads, and the log of the namespace that gives them out."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.stores.log import DirectoryStore, namespace
from holdfast.testing.contract.build import holds, numbers_of, saved, swept_blobs, texts_of, value
from holdfast.threads.scan import last_of, numbered, thread_named
from tests.covers import covers
from tests.stores.log.conftest import Open, damage_line, log_of, records_of
from tests.stores.log.test_drop import forked_from


@pytest.fixture
def own(path: Path) -> Path:
    """The namespace's own log."""
    return path / "default" / "namespace.jsonl"


# -- two threads of one number ----------------------------------------------------------------------------------------


def test_a_number_that_a_log_has_is_not_given_out_again(store: DirectoryStore, open_store: Open, own: Path) -> None:
    saved(store, "old", "x")
    early = own.read_bytes()
    line = saved(store, "late", "x")
    own.write_bytes(early)  # a copy that was made while a thread began: this file first, then the threads
    other = open_store()
    assert saved(other, "new", "x").number != line.number
    assert list(other.check()) == []


def test_a_log_of_the_namespace_that_is_older_than_the_threads_knows_all_forks_again(
    store: DirectoryStore, open_store: Open, own: Path
) -> None:
    origin = saved(store, "main", "x")
    early = own.read_bytes()
    fork = forked_from(origin, "child")
    own.write_bytes(early)
    assert open_store().forks(origin.number) == [fork.number]
    other = open_store()
    saved(other, "new", "x")
    assert other.forks(origin.number) == [fork.number]
    other.drop(origin.number)
    assert texts_of(open_store(), origin.span()) == [["x"]]


@pytest.fixture
def twins(
    store: DirectoryStore, open_store: Open, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DirectoryStore:
    """A store into which a thread of another copy of it was put: `alice` and `bob` have one number."""
    base = saved(store, "base", "x")
    monkeypatch.setattr(namespace.Namespace, "free_number", lambda space: base.number + 1)
    store.close()
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    saved(open_store(), "alice", "alice")
    mine = path.rename(tmp_path / "mine")
    copy.rename(path)
    saved(open_store(), "bob", "bob")
    shutil.copytree(log_of(path, "bob").parent, log_of(mine, "bob").parent)
    path.rename(copy)
    mine.rename(path)
    monkeypatch.undo()
    return open_store()


def test_of_two_threads_with_one_number_neither_is_taken_for_the_other(twins: DirectoryStore) -> None:
    first = thread_named(twins, "alice")
    assert first is not None, "nothing is wrong yet with what was read"
    for name in ("bob", "alice"):
        with pytest.raises(Damaged, match=r"alice.*bob|bob.*alice"):
            thread_named(twins, name)
    number = first.position.thread
    for verb in (partial(last_of, twins), twins.forks, twins.drop):
        with pytest.raises(Damaged):
            verb(number)
    assert [each.number for each in twins.numbered(after=None, limit=9) if isinstance(each.name, Damaged)] == [number]
    with pytest.raises(Damaged):
        list(numbered(twins))
    told = " ".join(problem.what for problem in twins.check())
    assert "alice" in told
    assert "bob" in told
    assert thread_named(twins, "base") is not None


def test_values_are_not_swept_while_two_threads_have_one_number(twins: DirectoryStore) -> None:
    shared = value(b"a prompt")
    saved(twins, "c", "x").save("y", blobs=[shared])
    with pytest.raises(Damaged):
        twins.sweep_blobs(twins.start_epoch())
    assert holds(twins, shared)


def test_when_one_of_the_two_is_taken_away_the_other_is_there_again(twins: DirectoryStore, path: Path) -> None:
    for name in ("alice", "bob"):
        try:
            thread_named(twins, name)
        except Damaged:
            continue
    shutil.rmtree(log_of(path, "bob").parent)
    assert thread_named(twins, "alice") is not None
    assert thread_named(twins, "bob") is None
    assert len(numbers_of(twins)) == 2


# -- the namespace's own log -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["end", "number", "namespace", "epoch", "stamp", "fork"])
@pytest.mark.parametrize("at", [0, -1])
def test_a_damaged_log_of_a_namespace_is_made_again(
    store: DirectoryStore, open_store: Open, own: Path, kind: str, at: int
) -> None:
    origin, dropped = saved(store, "main", "x"), saved(store, "dropped", "x")
    fork = forked_from(origin, "child")
    store.drop(dropped.number)
    epoch = store.start_epoch()
    shared = value(b"a prompt")
    last = saved(store, "last", "x")
    last.save("y", blobs=[shared])
    store.drop(last.number)
    store.close()
    damage_line(own, kind, at)
    damaged = own.read_bytes()
    reader = open_store()
    assert any("namespace.jsonl" in problem.what for problem in reader.check())
    assert own.read_bytes() == damaged, "reading changes nothing"
    other = open_store()
    assert saved(other, "new", "x").number != last.number
    assert other.forks(origin.number) == [fork.number]
    assert swept_blobs(other, epoch=epoch) == 0, "a sweep that began before may not know of the values since"
    assert other.start_epoch() > epoch
    assert list(other.check()) == []
    assert [aside.read_bytes() for aside in own.parent.glob("damaged/*")] == [damaged], "what was there is kept"
    records_of(own)


@covers("A2")
@pytest.mark.parametrize("left", [b"", b"\0" * 100, b'{"crc":"half'])
def test_a_log_of_a_namespace_without_a_group_is_made_again(
    store: DirectoryStore, open_store: Open, own: Path, left: bytes
) -> None:
    line = saved(store, "a", "x")
    own.write_bytes(left)
    assert saved(open_store(), "b", "x").number != line.number
    records_of(own)


def test_a_fork_that_could_not_be_read_when_the_log_was_made_again_is_a_fork(
    store: DirectoryStore, open_store: Open, own: Path, path: Path
) -> None:
    origin = saved(store, "main", "x")
    fork = forked_from(origin, "child")
    store.close()
    own.unlink()
    log = log_of(path, "child")
    whole = log.read_bytes()
    log.write_bytes(b"~" + whole[1:-20] + b"~~" + whole[-18:])
    saved(open_store(), "new", "x")
    log.write_bytes(whole)
    other = open_store()
    assert other.forks(origin.number) == [fork.number]
    other.reclaim()
    assert open_store().forks(origin.number) == [fork.number]


def test_a_log_of_a_namespace_does_not_grow_for_ever(
    store: DirectoryStore, open_store: Open, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "_LARGE", 4_000)
    other = open_store()
    origin = saved(store, "main", "x")
    fork = forked_from(origin, "child")
    epoch = store.start_epoch()
    shared = value(b"a prompt")
    line = saved(store, "a", "x")
    for n in range(100):
        line.save(f"{n}", blobs=[shared])
        assert own.stat().st_size < 10_000
    for reader in (other, open_store()):
        assert reader.forks(origin.number) == [fork.number]
        assert swept_blobs(reader, epoch=epoch) == 0
        assert list(reader.check()) == []
    assert saved(other, "b", "x").number > line.number
    assert store.start_epoch() == epoch + 1


def test_forks_and_values_that_are_gone_are_forgotten_by_a_reclaim(
    store: DirectoryStore, open_store: Open, own: Path
) -> None:
    origin = saved(store, "main", "x")
    for n in range(50):
        fork = forked_from(origin, f"fork-{n}")
        fork.save("y", blobs=[value(f"prompt {n}".encode())])
        store.drop(fork.number)
    kept = forked_from(origin, "kept")
    kept.save("y", blobs=[value(b"kept")])
    assert swept_blobs(store, [value(b"kept").digest]) == 50
    store.reclaim()
    assert own.stat().st_size < 1_000
    other = open_store()
    assert other.forks(origin.number) == [kept.number]
    assert saved(other, "new", "x").number > kept.number
    assert list(other.check()) == []
