"""Optimizing while others write: no blob that a checkpoint uses is dropped, and none that nothing uses is left."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Holdfast, NotFound, Retention
from holdfast.stores.contract import Live, Swept
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.testing.contract.build import numbers_of
from holdfast.threads.branches import Placer
from holdfast.threads.gc import blobs_of, remove_unused
from holdfast.threads.scan import checkpoint_at, numbered, thread_named
from tests.selection import every_store, tries


def large(name: str) -> str:
    return f"{name} " * 3_000


def plant(hf: Holdfast) -> None:
    """Threads with blobs, in skeletons and in nested cells; some were swept before, some were changed since."""
    for name in ("kept", "source", "dropped", "other"):
        thread = hf.thread(name)
        thread.save({"image": large(f"{name} 1"), "list": [{"deep": large(f"{name} deep")}, *range(50)]})
        thread.save({"image": large(f"{name} 2"), "list": [{"deep": large(f"{name} deep")}, *range(60)]})
    hf.thread("kept").fork("fork", at="@1")
    hf.optimize()
    hf.thread("source").save({"image": large("source 3"), "list": [{"deep": large("source new")}]})
    hf.thread("source").save({"small": 1})


def states(hf: Holdfast) -> dict[str, list[Any]]:
    """Every state of every thread, read from the store."""
    hf.context.bases.clear()
    return {
        info.name: [hf.thread(info.name).load(each).state for each in hf.thread(info.name).history()]
        for info in hf.threads()
    }


def stored(hf: Holdfast) -> int:
    store = hf.context.store
    assert isinstance(store, MemoryStore)
    return int(store._connection.execute("SELECT count(*) FROM blob").fetchone()[0])


def used(hf: Holdfast) -> frozenset[bytes]:
    store = hf.context.store
    return frozenset(digest for number in numbers_of(store) for digest in blobs_of(store, number))


# -- what others do meanwhile -----------------------------------------------------------------------------------------


def fork_and_delete(hf: Holdfast) -> None:
    """A fork whose source is deleted: only the fork uses the blobs now."""
    hf.thread("source").fork("new fork", at="@3")
    hf.thread("source").delete("@3")


def fork_of_a_fork(hf: Holdfast) -> None:
    hf.thread("fork").fork("second", at="@1")
    hf.thread("fork").drop()
    hf.thread("kept").drop()


def copy_and_delete(hf: Holdfast) -> None:
    """A checkpoint of another thread, named by a thread that exists."""
    store = hf.context.store
    source, there = thread_named(store, "source"), thread_named(store, "other")
    assert source is not None
    assert there is not None
    row = checkpoint_at(store, source.position.thread, 3)
    assert row is not None
    place = Placer(hf.context, "other")
    with place.lock:
        place.copy(row, source.position.thread, expect=there.position, under=None)
    hf.thread("source").delete("@3")


def save_what_was_swept(hf: Holdfast) -> None:
    hf.thread("other").save({"image": large("source 3"), "again": large("dropped 1")})


def rewind_and_save(hf: Holdfast) -> None:
    hf.thread("source").rewind("@3")
    hf.thread("source").save({"image": large("source 3"), "more": 1})


def drop(hf: Holdfast) -> None:
    hf.thread("dropped").drop()


def prune(hf: Holdfast) -> None:
    hf.thread("source").prune(Retention(keep_last=1))


def create(hf: Holdfast) -> None:
    hf.thread("created").save({"image": large("created"), "known": large("source 1")})


def optimize(hf: Holdfast) -> None:
    hf.optimize()


def save_and_optimize(hf: Holdfast) -> None:
    """Another optimize, for which a save is old that is new for the first."""
    hf.thread("other").save({"image": large("between")})
    hf.optimize()
    hf.thread("kept").save({"image": large("between 2")})


ACTIONS: list[Callable[[Holdfast], None]] = [
    fork_and_delete,
    fork_of_a_fork,
    copy_and_delete,
    save_what_was_swept,
    rewind_and_save,
    drop,
    prune,
    create,
    optimize,
    save_and_optimize,
]


@contextmanager
def interrupted(at: int, action: Callable[[], None]) -> Iterator[list[int]]:
    """Run an action before transaction number `at` of the memory store. The list counts the transactions."""
    count = [0]

    def before() -> None:
        count[0] += 1
        if count[0] == at:
            action()

    with pytest.MonkeyPatch.context() as patch:
        read, write = MemoryStore.read, MemoryStore.write

        def reading(*args: Any, **kwargs: Any) -> Any:
            before()
            return read(*args, **kwargs)

        def writing(*args: Any, **kwargs: Any) -> Any:
            before()
            return write(*args, **kwargs)

        patch.setattr(MemoryStore, "read", reading)
        patch.setattr(MemoryStore, "write", writing)
        yield count


@pytest.mark.parametrize("action", ACTIONS)
def test_between_any_two_transactions(action: Callable[[Holdfast], None]) -> None:
    expected: dict[str, list[Any]] = {"": []}
    step = tries(1, 3)  # `make test` takes every third place, and with each action others
    at = ACTIONS.index(action) % step + 1 - step
    while expected:
        at += step
        expected = {}
        with holdfast.open("memory:") as hf:
            plant(hf)

            def act(hf: Holdfast = hf, expected: dict[str, list[Any]] = expected) -> None:
                action(hf)
                expected.update(states(hf))

            with interrupted(at, act):
                removed = remove_unused(hf.context.store)
            assert removed.damaged == {}, f"at {at}"
            if expected:
                assert states(hf) == expected, f"at {at}"
                assert hf.verify().problems == (), f"at {at}"
                hf.optimize()
                assert states(hf) == expected, f"at {at}"
            assert stored(hf) == len(used(hf)), "all that nothing uses is gone now"
    assert at > 15


def drop_source(hf: Holdfast) -> None:
    hf.thread("source").drop()


@pytest.mark.parametrize("action", [prune, drop_source])
def test_a_thread_that_others_prune_or_drop_is_not_called_damaged(action: Callable[[Holdfast], None]) -> None:
    at = 0
    count = [0]
    while at <= count[0]:
        at += 1
        with holdfast.open("memory:") as hf:
            plant(hf)
            with interrupted(at, lambda hf=hf: action(hf)) as count, suppress(NotFound):  # type: ignore[misc]
                hf.thread("source").prune(Retention(keep_last=2))
            assert hf.verify().problems == (), f"at {at}"
    assert at > 5


class Crash(BaseException):
    pass


def test_killed_between_any_two_transactions() -> None:
    crashed = [0]
    at = 0

    def crash() -> None:
        crashed.append(0)
        raise Crash

    while crashed:
        at = len(crashed)
        with holdfast.open("memory:") as hf:
            plant(hf)
            hf.thread("other").drop()
            hf.thread("source").delete("@1")
            with interrupted(at, crash), suppress(Crash):
                remove_unused(hf.context.store)
                crashed.clear()  # there are no more transactions
            hf.context.store._epoch = 0  # type: ignore[attr-defined] # another process knows nothing of the first
            create(hf)
            fork_and_delete(hf)
            before = states(hf)
            hf.optimize()
            assert states(hf) == before
            assert hf.verify().problems == ()
            assert stored(hf) == len(used(hf))
    assert at > 15


# -- what is not read again -------------------------------------------------------------------------------------------


def test_only_threads_that_were_changed_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open("memory:") as hf:
        plant(hf)
        hf.optimize()
        store = hf.context.store
        numbers = {str(each.name): each.number for each in numbered(store)}
        swept: list[int] = []
        real = MemoryStore.sweep

        def sweep(own: MemoryStore, number: int, live: Live) -> Swept:
            swept.append(number)
            return real(own, number, live)

        monkeypatch.setattr(MemoryStore, "sweep", sweep)

        def after(action: Callable[[], object]) -> set[str]:
            action()
            swept.clear()
            hf.optimize()
            return {name for name, number in numbers.items() if number in swept}

        assert after(lambda: None) == set()
        assert after(lambda: hf.thread("other").save({"n": 1})) == {"other"}
        assert after(lambda: hf.thread("other").delete("@1")) == {"other"}
        assert after(lambda: hf.thread("source").prune(Retention(keep_last=1))) == {"source"}
        assert after(lambda: hf.thread("fork").save({"n": 1})) == {"fork"}, "its origin has no fewer cells in use"
        assert after(lambda: hf.thread("fork").delete("@1")) == {"fork", "kept"}, "cells of the origin may be dead"
        assert after(lambda: hf.thread("fork").drop()) == {"kept"}
        assert after(lambda: None) == set()


@every_store("each store records it by itself")
def test_blobs_of_dropped_and_pruned_threads_go(hf: Holdfast) -> None:
    plant(hf)
    before = remove_unused(hf.context.store).used
    assert before == used(hf)
    hf.thread("dropped").drop()
    hf.thread("source").prune(Retention(keep_last=1))
    left = remove_unused(hf.context.store).used
    assert left == used(hf)
    assert len(before - left) == 3 + 5
    for digest in before - left:
        with pytest.raises(holdfast.Damaged):
            hf.context.store.blob(digest)
    assert hf.verify().problems == ()


# -- damage -----------------------------------------------------------------------------------------------------------

DAMAGES = [
    "UPDATE sweep SET state = state + 1",
    "UPDATE sweep SET last = last + 100",
    "UPDATE sweep SET last = 0",
    "UPDATE sweep SET blobs = x''",
    "UPDATE sweep SET blobs = substr(blobs, 1, 32) WHERE length(blobs) > 32",
    "UPDATE sweep SET blobs = zeroblob(length(blobs)) WHERE length(blobs) > 0",
    "UPDATE sweep SET checksum = checksum + 1",
    "UPDATE sweep SET checksum = NULL",
    "DELETE FROM sweep",
    "DELETE FROM sweep WHERE thread_no % 2",
    "UPDATE sweep SET thread_no = thread_no + 1000",
    "UPDATE sweep SET thread_no = -thread_no",
    "UPDATE thread SET last = last - 1 WHERE name = CAST('source' AS BLOB)",
    "UPDATE thread SET checksum = checksum + 1",
    "UPDATE thread SET deleted_checksum = deleted_checksum + 1",
    "UPDATE thread SET thread_no = 77 WHERE name = CAST('source' AS BLOB)",
    "UPDATE thread SET name = NULL WHERE name = CAST('source' AS BLOB)",
    "UPDATE epoch SET value = value + 1",
    "UPDATE epoch SET value = 0",
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_changed", [False, True])
def test_no_damage_to_records_drops_a_blob_in_use(tmp_path: Path, damage: str, is_changed: bool) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        plant(hf)
        if not is_changed:
            hf.optimize()
        hf.thread("other").drop()
        blobs = used(hf)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(damage)
        connection.commit()
    with holdfast.open(path, durability="off") as hf:
        for _ in range(2):
            hf.optimize()
            assert all(hf.context.store.blob(digest) for digest in blobs)


def test_a_thread_that_the_table_does_not_show_keeps_all_blobs(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        plant(hf)
        hf.thread("other").drop()
        blobs = used(hf)
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(data), size) if data[at] == 0x0D and b"defaultsource" in data[at : at + size]]
    for at in pages:  # of the table, not of its index
        start = data.index(b"defaultsource", at)
        data[start : start + 7] = b"Default"
    path.write_bytes(data)
    assert len(pages) == 1
    with holdfast.open(path, durability="off") as hf:
        for _ in range(2):
            assert hf.optimize().damaged == 1
            assert all(hf.context.store.blob(digest) for digest in blobs)


def test_a_damaged_record_is_made_again_and_told_by_verify(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        plant(hf)
        hf.optimize()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE sweep SET blobs = x'' WHERE length(blobs) > 0")
        connection.commit()
    with holdfast.open(path, durability="off") as hf:
        assert any("last sweep" in problem.what for problem in hf.verify().problems)
        assert hf.optimize().damaged == 0
        assert hf.verify().problems == ()
        assert remove_unused(hf.context.store).used == used(hf)


def test_a_thread_that_changes_all_the_time_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open("memory:") as hf:
        plant(hf)
        store: Any = hf.context.store
        real, rounds = store.sweep, 0

        def busy(number: int, live: Live) -> Swept:
            nonlocal rounds
            rounds += 1
            done: Swept = real(number, msgspec.structs.replace(live, token=0))
            return done

        monkeypatch.setattr(store, "sweep", busy)
        hf.thread("other").drop()
        assert hf.optimize().damaged == 0
        assert remove_unused(store).is_unfinished
        assert any("kept changing" in text for text in hf.erase("dropped").beyond)
        assert rounds > 20
        monkeypatch.undo()
        assert hf.erase("kept").beyond == ()
        assert remove_unused(store).used == used(hf)


def test_a_thread_that_cannot_be_read_keeps_all_blobs(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        plant(hf)
        hf.thread("other").drop()
        hf.thread("source").save({"n": 1})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE checkpoint SET refs = x'00' WHERE row_key >> 32 = 2 AND row_key & 255 = 3")
        connection.commit()
    with holdfast.open(path, durability="off") as hf:
        for _ in range(2):
            assert hf.optimize().damaged == 1
        assert remove_unused(hf.context.store).used is None
