"""The memory store where it goes beyond the contract: what it refuses, and what its own check finds."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import AlreadyExists, Conflict, InvalidArgument, NotFound
from holdfast.stores.contract import Append, Blob, Live, Span, Store
from holdfast.stores.contract_runs import Clock
from holdfast.testing.contract.build import (
    cell,
    commit,
    effect,
    inside,
    journaled,
    numbers_of,
    run,
    run_row,
    saved,
    value,
)
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.stores.model import ModelStore
from tests.stores.model.thread import Thread


@pytest.fixture
def store() -> ModelStore:
    return ModelStore(namespace="default")


def test_it_is_a_store(store: ModelStore) -> None:
    typed: Store = store
    assert typed.encoding == "packed"


@covers("H8")
def test_cells_and_values_are_not_copied(store: ModelStore) -> None:
    large, shared = cell("x" * 1000), value(b"y" * 1000)
    at = store.commit(commit("a", appends=[Append(1, 0, (large,))], blobs=[shared]))
    assert store.cells([Span(at.thread, 1, 0, 1, 1, 1)])[0].cells[0] is large
    assert store.blob(shared.digest)[0] is shared.pieces[0]


@covers("C7")
@pytest.mark.parametrize("start", [0, 1])
def test_a_position_of_a_log_is_written_once(store: ModelStore, start: int) -> None:
    line = saved(store, "a", "x y")
    with pytest.raises(InvalidArgument, match="already has cells"):
        store.commit(commit("a", line.at, appends=[run("z", start=start)]))
    assert line.stored().position == line.at


def test_a_position_is_written_once_within_a_commit(store: ModelStore) -> None:
    with pytest.raises(InvalidArgument, match="already has cells"):
        store.commit(commit("a", appends=[run("x", "y"), run("z", start=1)]))
    at = store.commit(commit("a", appends=[run("x", "y"), run("z", start=2)]))
    assert store.cells([Span(at.thread, 1, 0, 3, 1, 1)])[0].cells == [cell("x"), cell("y"), cell("z")]


def test_a_tombstone_is_not_committed(store: ModelStore) -> None:
    made = commit("a")
    with pytest.raises(InvalidArgument, match="deleted"):
        store.commit(msgspec.structs.replace(made, row=msgspec.structs.replace(made.row, deleted=True)))


def test_pieces_are_at_most_8_mib(store: ModelStore) -> None:
    store.commit(commit("a", blobs=[Blob(b"d" * 32, (bytes(8 * 2**20),))]))
    with pytest.raises(InvalidArgument, match="8 MiB"):
        store.commit(commit("b", blobs=[Blob(b"e" * 32, (bytes(8 * 2**20 + 1),))]))


@pytest.mark.parametrize("kept_for_a_fork", [False, True])
def test_a_thread_that_is_gone_is_not_found(store: ModelStore, kept_for_a_fork: bool) -> None:
    line = saved(store, "a", "x", "y")
    if kept_for_a_fork:
        saved(store, "fork").save(origins=[line.number])
    store.drop(line.number)
    with pytest.raises(NotFound, match="the thread with number 1 does not exist"):
        store.drop(line.number)
    with pytest.raises(NotFound, match="the thread with number 1 does not exist"):
        store.delete(line.number, [1])


def test_creating_a_thread_that_exists_says_so(store: ModelStore) -> None:
    saved(store, "a", "x")
    with pytest.raises(AlreadyExists):
        store.commit(commit("a"))


def test_an_origin_that_is_gone_conflicts(store: ModelStore) -> None:
    line = saved(store, "a", "x")
    store.drop(line.number)
    with pytest.raises(Conflict, match="no longer exists"):
        store.commit(commit("b", origins=[line.number]))
    assert thread_named(store, "b") is None


def test_a_thread_is_no_fork_of_itself(store: ModelStore) -> None:
    one, two = saved(store, "one", "x"), saved(store, "two", "y")
    two.save(origins=[one.number])
    one.save(origins=[one.number, two.number])
    assert store.forks(one.number) == [two.number]
    assert store.forks(two.number) == [one.number]
    store.drop(one.number)
    store.drop(two.number)
    assert numbers_of(store) == []


def test_live_spans_of_another_thread_are_refused(store: ModelStore) -> None:
    line = saved(store, "a", "x")
    own = msgspec.structs.replace(line.span(), thread=0)
    with pytest.raises(InvalidArgument, match="names the thread with number 0"):
        store.sweep(line.number, Live((own,), 1))
    assert store.cells([line.span()])[0].cells == [cell("x")]


def test_runs_that_are_not_due_are_not_looked_at() -> None:
    store = ModelStore(namespace="default", clock=lambda: Clock("here", 1000), wall=lambda: 1000)
    later = {"clock": "here", "wake_at": 1001, "wake_wall": 1}, {"clock": "another", "wake_at": 1, "wake_wall": 1001}
    for n in range(200):
        store.commit(inside(commit(f"later {n}"), run=run_row(0, status="waiting", **later[n % 2])))
    store.commit(inside(commit("due"), run=run_row(0, status="waiting", clock="here", wake_at=1000)))
    looked_at: list[int] = []

    class Watched(dict[int, Thread]):
        def __getitem__(self, number: int) -> Thread:
            looked_at.append(number)
            return super().__getitem__(number)

    store._threads = Watched(store._threads)
    assert [name for name, _ in store.due(limit=100)] == ["due"]
    assert looked_at == [201]


@pytest.mark.parametrize("changes", [{"wake_at": 8}, {"wake_wall": 8}, {"clock": "z"}, {"status": "idle"}, None])
def test_check_finds_wake_times_that_are_not_those_of_the_runs(
    store: ModelStore, changes: dict[str, object] | None
) -> None:
    row = run_row(0, status="waiting", clock="a", wake_at=7, wake_wall=7)
    at = store.commit(inside(commit("a"), run=row))
    assert list(store.check()) == []
    stored = store.run(at.thread)
    assert stored is not None
    store._named["a"].run = None if changes is None else msgspec.structs.replace(stored, **changes)
    assert [problem.what for problem in store.check()] == ["the index of wake times does not match the runs"]


def test_check_finds_what_is_wrong(store: ModelStore) -> None:
    for name in "abcdefgh":
        saved(store, name, "x", "y")
    for name in "fg":
        store.claim(None, run_row(store._named[name].number))
        journaled(store, store._named[name].number, 1, [effect(), effect()])
    del store._named["f"].effects[0]
    store._named["g"].run = None
    store._named["h"].run = run_row(99)
    store._names.reverse()
    store._named["a"].count += 1
    store._named["b"].head = 9
    del store._named["c"].rows[0]
    store._named["d"].number = 99
    found = [(problem.thread, problem.what) for problem in store.check()]
    assert found == [
        (None, "the index of thread names does not match the threads"),
        ("a", "the number of checkpoints differs from the thread's record"),
        ("b", "the checkpoint at the head is missing or deleted"),
        ("c", "the checkpoints do not match their numbers"),
        ("c", "the checkpoint at the head is missing or deleted"),
        ("c", "the number of checkpoints differs from the thread's record"),
        ("d", "looking up the thread's number does not find it"),
        ("f", "the journal entries do not match their numbers"),
        ("g", "the run of the thread is missing"),
        ("h", "the run belongs to another thread"),
    ]
