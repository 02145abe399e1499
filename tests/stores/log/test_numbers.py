"""The numbers of threads, the epochs of blobs, and the records of forks: what remains if one of them is lost."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.formats.lines import reseal
from holdfast.stores.contract import Live
from holdfast.stores.log import DirectoryStore, namespace
from holdfast.testing.contract.build import holds, numbers_of, saved, swept_blobs, texts_of, value
from holdfast.threads.scan import last_of, numbered, thread_named
from tests.covers import covers
from tests.stores.log.conftest import Open, damage_line, log_of
from tests.stores.log.test_drop import forked_from

# -- two threads of one number ----------------------------------------------------------------------------------------


@covers("A2")
@pytest.mark.parametrize("left", [None, b"", b"\0" * 16, b"9" * 40, reseal(b'{"value":6}')[:-4], b"half a number"])
def test_a_number_that_a_log_has_is_not_given_out_again(path: Path, left: bytes | None) -> None:
    """Even if the clock stopped, and the counter is lost or damaged."""
    with closing(DirectoryStore(path, namespace="default", durability="off", number=lambda: 5)) as store:
        numbers = [saved(store, name, "x").number for name in "abc"]
        assert numbers == [5, 6, 7]
    counter = path / "default" / "counters" / "number"
    assert json.loads(counter.read_bytes())["value"] == 7
    if left is None:
        counter.unlink()
    else:
        counter.write_bytes(left)
    with closing(DirectoryStore(path, namespace="default", durability="off", number=lambda: 5)) as store:
        assert ["counters/number" in problem.what for problem in store.check()] == [True] * bool(
            (left or b"").strip(b"\0")
        )
        assert saved(store, "new", "x").number == 8
        assert list(store.check()) == []


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
        twins.sweep_blobs(twins.sweep_blobs().epoch)
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


# -- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [None, b"", b"\0" * 16, b"~"])
def test_no_value_is_swept_in_an_epoch_that_is_not_recorded(
    store: DirectoryStore, open_store: Open, path: Path, left: bytes | None
) -> None:
    """A commit that does not know the epoch does not stamp its values with it."""
    line = saved(store, "a", "x")
    epoch = store.sweep_blobs().epoch
    counter = path / "default" / "counters" / "epoch"
    if left is None:
        counter.unlink()
    else:
        counter.write_bytes(left)
    shared = value(b"a prompt")
    line.save("y", blobs=[shared])
    with pytest.raises(Damaged, match="epoch"):
        store.sweep_blobs(epoch)
    assert holds(store, shared)
    other = open_store()
    assert other.sweep_blobs().epoch > epoch
    assert swept_blobs(other, [shared.digest]) == 0
    assert holds(other, shared)


def test_a_stamp_outlives_a_rewrite(store: DirectoryStore, open_store: Open) -> None:
    line = saved(store, "a", "x", "y")
    epoch = store.sweep_blobs().epoch
    shared = value(b"a prompt")
    line.save("z", blobs=[shared])
    assert store.sweep(line.number, line.whole()).dropped == 3
    for reader in (store, open_store()):
        assert swept_blobs(reader, epoch=epoch) == 0
        assert holds(reader, shared)


def test_a_stamp_that_is_damaged_keeps_the_values_until_the_thread_is_read(
    store: DirectoryStore, open_store: Open, path: Path
) -> None:
    line = saved(store, "a", "x")
    other = open_store()
    epoch = other.sweep_blobs().epoch
    token = other.sweep_blobs(epoch).unswept[line.number]
    other.sweep(line.number, Live((), line.at.last, frozenset(), token))
    shared = value(b"a prompt")
    line.save("y", blobs=[shared])
    damage_line(log_of(path, "a"), "stamp")
    assert list(other.sweep_blobs(epoch).unswept) == [line.number]
    assert holds(other, shared)


# -- forks: the log of a thread names the threads that use its cells ------------------------------------------------


@pytest.mark.parametrize("kind", ["fork", "end"])
def test_forks_are_known_if_the_record_of_them_is_damaged(
    store: DirectoryStore, open_store: Open, path: Path, kind: str
) -> None:
    origin = saved(store, "main", "x")
    fork = forked_from(origin, "child")
    origin.save("y")
    damage_line(log_of(path, "main"), kind, -1 if kind == "fork" else -2)
    other = open_store()
    assert other.forks(origin.number) == [fork.number]
    other.sweep(origin.number, origin.whole(origin.span()))
    assert open_store().forks(origin.number) == [fork.number]
    other.drop(origin.number)
    assert texts_of(open_store(), origin.span(0, 1)) == [["x"]]


def test_a_record_of_a_fork_outlives_a_rewrite_and_a_drop(store: DirectoryStore, open_store: Open) -> None:
    origin = saved(store, "main", "x", "y")
    fork = forked_from(origin, "child")
    assert store.sweep(origin.number, origin.whole(origin.span(0, 1))).dropped == 1
    assert open_store().forks(origin.number) == [fork.number]
    store.drop(origin.number)
    assert open_store().forks(origin.number) == [fork.number]
    store.drop(fork.number)
    assert numbers_of(open_store()) == []


def test_a_fork_that_was_copied_alone_is_registered_before_values_are_swept(
    store: DirectoryStore, open_store: Open, path: Path, tmp_path: Path
) -> None:
    origin = saved(store, "main", "x")
    early = log_of(path, "main").read_bytes()
    fork = forked_from(origin, "child")
    log_of(path, "main").write_bytes(early)
    other = open_store()
    assert other.forks(origin.number) == []
    other.sweep_blobs(other.sweep_blobs().epoch)
    assert open_store().forks(origin.number) == [fork.number]


def test_the_record_of_a_fork_has_a_copy_of_the_position(store: DirectoryStore, open_store: Open, path: Path) -> None:
    """The damaged end of a commit before it hides nothing."""
    origin = saved(store, "main", "x", "y")
    forked_from(origin, "child")
    damage_line(log_of(path, "main"), "end", -2)
    assert thread_named(open_store(), "main") == origin.stored()
    assert texts_of(open_store(), origin.span()) == [["x", "y"]]
