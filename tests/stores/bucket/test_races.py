"""Writes that concern two logs: a writer that is delayed between them does not contradict another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ActHeld, Conflict, LeaseHeld, LimitReached, NotFound
from holdfast.stores import clock as clocks
from holdfast.stores.contract import KeyRow, Refs
from holdfast.stores.contract_runs import ClaimLimit, Clock, RunRow
from holdfast.stores.log.device import BLOBS, GRACE, NUMBERS, thread_key
from holdfast.stores.log.object_log import Parts, name_of
from holdfast.testing.contract.build import Line, commit, effect, held, holds, posted, saved, texts_of, value
from holdfast.testing.contract.claims import act_key, claimed, found, opened_run
from holdfast.testing.contract.queues import claimed as claim_limited
from holdfast.testing.contract.queues import queued
from tests.stores.bucket.test_memory import opened
from tests.waiting import DEADLINE, until


def meanwhile(store: Any, name: str, happens: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Call a function right before a handle writes to the log of a thread, once. The list is empty then."""
    log = store._device.log(thread_key(name))
    left = [True]

    def delayed(create: Callable[..., object]) -> Callable[..., object]:
        def late(*args: Any) -> object:
            if left:
                left.pop()
                happens()
            return create(*args)

        return late

    monkeypatch.setattr(log, "_create", delayed(log._create))
    return left


def test_a_claim_of_an_act_that_was_delayed_is_prevented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, key = opened(tmp_path), opened(tmp_path), act_key("A-17")
    one, other = opened_run(first, "a"), opened_run(second, "b")
    left = meanwhile(first, "a", lambda: claimed(second, other, key), monkeypatch)
    with pytest.raises(ActHeld):
        claimed(first, one, key)
    assert not left
    assert found(first, key) == found(second, key)
    assert (first.last_entry(one), first.last_entry(other)) == (0, 1)


def test_a_claim_of_an_act_whose_writer_died_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, key = opened(tmp_path), opened(tmp_path), act_key("A-17")
    one, other = opened_run(first, "a"), opened_run(second, "b")

    def die() -> None:
        raise KeyboardInterrupt

    meanwhile(first, "a", die, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        claimed(first, one, key)
    assert found(second, key) is None
    row = claimed(second, other, key)
    assert found(first, key) == row
    assert list(first.check()) == []


def test_a_limited_claim_that_was_delayed_is_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, limit = opened(tmp_path), opened(tmp_path), ClaimLimit("h", held=1)
    rows = [queued(first, name) for name in ("a", "b")]
    left = meanwhile(first, "a", lambda: claim_limited(second, rows[1], limit), monkeypatch)
    with pytest.raises(LimitReached):
        claim_limited(first, rows[0], limit)
    assert not left
    assert first.run(rows[0].thread) == rows[0]


def test_limited_claims_of_several_handles_are_counted_exactly(tmp_path: Path) -> None:
    store, limit = opened(tmp_path), ClaimLimit("h", held=2)
    rows = [queued(store, f"{number}") for number in range(5)]
    claims: list[int] = []

    def claim(row: RunRow) -> None:
        try:
            claims.append(claim_limited(opened(tmp_path), row, limit).thread)
        except LimitReached:
            return

    threads = [threading.Thread(target=claim, args=(row,)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims) == 2


@pytest.mark.parametrize("how", ["delete", "drop"])
def test_a_fork_that_was_delayed_does_not_use_what_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    origin = saved(first, "origin", "a b", "c")

    def remove() -> None:
        if how == "delete":
            assert second.delete(origin.number, [1]) == 1
        else:
            second.drop(origin.number)

    left = meanwhile(first, "fork", remove, monkeypatch)
    fork = Line(first, "fork")
    with pytest.raises((Conflict, NotFound)):
        fork.save("d", bases=[(origin.number, 1)], origins=[origin.number])
    assert not left
    assert first.head("fork") is None
    if how == "delete":
        assert texts_of(second, origin.span()) == [["a", "b", "c"]]


@pytest.mark.parametrize("how", ["delete", "drop"])
def test_a_fork_does_not_use_what_was_removed_after_it_had_looked_at_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The fork is not registered with its origin yet."""
    first: Any = opened(tmp_path)
    second = opened(tmp_path)
    origin = saved(first, "origin", "a b", "c")
    free_number, left = first._space.free_number, [True]

    def late() -> int:
        if left and not first._device.trust.is_on():  # the first plan, which trusts what the handle knows, is not used
            left.pop()
            if how == "delete":
                assert second.delete(origin.number, [1]) == 1
            else:
                second.drop(origin.number)
        number: int = free_number()
        return number

    monkeypatch.setattr(first._space, "free_number", late)
    with pytest.raises((Conflict, NotFound)):
        Line(first, "fork").save("d", bases=[(origin.number, 1)], origins=[origin.number])
    assert not left
    assert first.head("fork") is None


def test_a_thread_that_was_claimed_meanwhile_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    line = saved(first, "a", "x")
    left = meanwhile(second, "a", lambda: first.claim(None, held(first, line.number)), monkeypatch)
    with pytest.raises(LeaseHeld):
        second.drop(line.number)
    assert not left
    assert first.head("a") is not None


def test_a_fork_whose_number_was_not_stored_yet_is_prevented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion finds a registered fork by its number, even if the fork has just been registered."""
    first: Any = opened(tmp_path)
    second = opened(tmp_path)
    origin = saved(first, "origin", "a b", "c")
    create, left = first._space.create, [True]

    def late(*args: Any) -> None:
        if left:
            left.pop()
            assert second.delete(origin.number, [1]) == 1
        create(*args)

    monkeypatch.setattr(first._space, "create", late)
    with pytest.raises((Conflict, NotFound)):
        Line(first, "fork").save("d", bases=[(origin.number, 1)], origins=[origin.number])
    assert not left
    assert first.head("fork") is None


def test_a_claim_is_counted_once_in_the_rate_of_its_handler(tmp_path: Path) -> None:
    store, limit = opened(tmp_path), ClaimLimit("h", held=9, claims=3, within=3_600_000)
    rows = [queued(store, f"{number}") for number in range(4)]
    for row in rows[:3]:
        claim_limited(store, row, limit)
    with pytest.raises(LimitReached):
        claim_limited(store, rows[3], limit)


def test_a_claim_that_was_planned_again_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other, limit = opened(tmp_path), opened(tmp_path), ClaimLimit("h", claims=1, within=3_600_000)
    row = queued(store, "a")
    answer = effect(key="answer", kind="answer", fence=0)
    left = meanwhile(store, "a", lambda: posted(other, row.thread, answer, last=0), monkeypatch)
    claim_limited(store, row, limit)
    assert not left
    with pytest.raises(LimitReached):
        claim_limited(store, queued(store, "b"), limit)


def test_the_key_of_a_thread_that_is_being_created_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first: Any = opened(tmp_path, grace=GRACE)
    second = opened(tmp_path, grace=GRACE)
    key = KeyRow(bytes(8), "k", b"wrapped")
    unused = first._keys.remove_unused

    def late(threads: dict[int, str]) -> None:
        Line(second, "a").save("x", key=key)
        unused(threads)

    monkeypatch.setattr(first._keys, "remove_unused", late)
    first.reclaim()
    assert second.keys(limit=9) == [key]


def test_the_keys_of_threads_are_not_read_to_find_unused_ones(tmp_path: Path) -> None:
    store: Any = opened(tmp_path)
    gone = KeyRow(bytes(8), "k", b"wrapped")
    store._keys.put_new(gone, 7)
    for n in range(1, 10):
        Line(store, f"{n}").save("x", key=KeyRow(bytes([n]) * 8, "k", b"wrapped"))
    read, asked = store._keys._read, list[str]()

    def counted(id: str) -> Any:
        asked.append(id)
        return read(id)

    store._keys._read = counted
    store.reclaim()
    assert asked == [gone.id.hex()]


def test_a_blob_that_was_stored_since_a_sweep_started_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the sweep took to reach it: its process may have been suspended."""
    hour, now = 3_600_000, [0]
    clock = lambda: Clock("boot", now[0])  # noqa: E731
    first: Any = opened(tmp_path, grace=GRACE, clock=clock)
    second = opened(tmp_path, grace=GRACE, clock=clock)
    shared = value(b'"an image"')
    first._device.put(f"{BLOBS}/{shared.digest.hex()}", shared.pieces)
    now[0] = 100 * hour
    monkeypatch.setattr(clocks, "now", lambda: now[0])
    epoch = first.sweep_blobs().epoch
    remove = first._blobs.remove

    def late(digests: Any) -> None:
        found = list(digests)
        saved_at = Line(second, "a")
        saved_at.save("x", blobs=[shared], refs=Refs(blobs=(shared.digest,)))
        now[0] += 100 * hour
        remove(found)

    monkeypatch.setattr(first._blobs, "remove", late)
    first.sweep_blobs(epoch)
    assert holds(second, shared)


def test_numbers_of_threads_that_no_longer_exist_are_removed(tmp_path: Path) -> None:
    store: Any = opened(tmp_path)
    kept, dropped = saved(store, "a", "x"), saved(store, "b", "x")
    store.drop(dropped.number)
    store.reclaim()
    assert list(store._device.keys(NUMBERS)) == [f"{NUMBERS}/{kept.number}"]


def test_forks_that_were_dropped_cost_one_look_at_the_threads(tmp_path: Path) -> None:
    store = opened(tmp_path)
    origin = saved(store, "a", "x")
    for number in range(20):
        fork = Line(store, f"{number}")
        fork.save("y", origins=[origin.number], bases=[(origin.number, 1)])
        store.drop(fork.number)

    def requests(verb: Callable[[], object]) -> int:
        before = store.objects.requests.total()
        assert verb() == []
        return store.objects.requests.total() - before

    look = requests(lambda: store.numbered(after=origin.number, limit=9))
    assert requests(lambda: store.forks(origin.number)) <= look + 5


def test_readers_and_writers_of_a_handle_share_what_was_read() -> None:
    parts = Parts()
    wrong: list[BaseException] = []
    data = bytes(30 << 20)  # few of them fit

    def use(first: int) -> None:
        try:
            for number in range(3000):
                parts.put("a", first + number % 5, data)
                parts.get("a", number % 10)
        except BaseException as error:  # noqa: BLE001 - asserted below
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(first,)) for first in (0, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_read_of_another_thread_does_not_hide_a_conflict_from_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write is conditional on what its plan has read, whatever the handle reads between the plan and the write."""
    first: Any = opened(tmp_path)
    second = opened(tmp_path)
    line, shared = saved(first, "a", "x"), value(b'"an image"')
    store, left = first._blobs.store, [True]

    def late(blob: Any) -> None:
        if left:
            left.pop()
            second.claim(None, held(second, line.number))
            reader = threading.Thread(target=first.head, args=["a"])
            reader.start()
            reader.join()
        store(blob)

    monkeypatch.setattr(first._blobs, "store", late)
    with pytest.raises(LeaseHeld):
        line.save("y", blobs=[shared], refs=Refs(blobs=(shared.digest,)))
    assert not left
    assert list(second.check()) == []


def test_a_reader_that_finds_the_object_of_a_writer_of_its_handle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has asked for the next object before the writer creates it, and gets the answer after that."""
    store: Any = opened(tmp_path)
    line, shared = saved(store, "a", "x"), value(b'"an image"')
    log = store._device.log(thread_key("a"))
    put, get = store._blobs.store, store.objects.get
    asked = threading.Event()
    readers: list[threading.Thread] = []

    def slow(key: str) -> Any:
        if threading.current_thread() in readers and key == name_of(thread_key("a"), 2):
            asked.set()
            until(lambda: log._head.number == 2)
        return get(key)

    def start_reader(blob: Any) -> None:
        put(blob)
        if not readers:
            readers.append(threading.Thread(target=store.head, args=["a"]))
            readers[0].start()
            assert asked.wait(DEADLINE)

    monkeypatch.setattr(store._blobs, "store", start_reader)
    monkeypatch.setattr(store.objects, "get", slow)
    line.save("y", blobs=[shared], refs=Refs(blobs=(shared.digest,)))
    readers[0].join()
    other = opened(tmp_path)
    head = other.head("a")
    assert head is not None
    theirs = commit("a", head.thread.position)
    line.save("z")
    with pytest.raises(Conflict):
        other.commit(theirs)


def test_cells_that_a_drop_has_just_copied_for_a_fork_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a thread, the copy looks like one that an interrupted drop has left."""
    first: Any = opened(tmp_path)
    second = opened(tmp_path)
    origin = saved(first, "origin", "a b", "c")
    Line(first, "fork").save("d", bases=[(origin.number, 1)], origins=[origin.number])
    delete, left = first._space.delete, [True]

    def late(*args: Any) -> None:
        if left:
            left.pop()
            second.reclaim()
        delete(*args)

    monkeypatch.setattr(first._space, "delete", late)
    first.drop(origin.number)
    assert not left
    assert texts_of(opened(tmp_path), origin.span()) == [["a", "b", "c"]]


def test_a_clean_up_of_many_hours_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that started before it is too old to append to the log of a fork."""
    store: Any = opened(tmp_path)
    origin = saved(store, "origin", "a b", "c")
    Line(store, "fork").save("d", bases=[(origin.number, 1)], origins=[origin.number])
    store.drop(origin.number)
    clean, now, hours = store._device.clean, clocks.now, [0]

    def slow(**options: Any) -> Any:
        assert not hours[0], "it starts again"
        hours[0] += 7
        return clean(**options)

    monkeypatch.setattr(clocks, "now", lambda: now() + hours[0] * 3_600_000)
    monkeypatch.setattr(store._device, "clean", slow)
    store.reclaim()
    assert texts_of(opened(tmp_path), origin.span()) == [["a", "b", "c"]]


def test_cells_of_a_thread_that_was_dropped_after_it_was_looked_at_are_kept_for_its_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path)
    second: Any = opened(tmp_path)
    origin = saved(first, "origin", "a b", "c")
    Line(first, "fork").save("d", bases=[(origin.number, 1)], origins=[origin.number])
    reclaim, left = second._reclaim, [True]

    def late(found: Any) -> None:
        if left and found.thread.number == origin.number:
            left.pop()
            first.drop(origin.number)
        reclaim(found)

    monkeypatch.setattr(second, "_reclaim", late)
    second.reclaim()
    assert not left
    assert texts_of(opened(tmp_path), origin.span()) == [["a", "b", "c"]]


@pytest.mark.parametrize("happens", ["fork", "claim"])
def test_a_thread_that_is_used_while_it_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    """The drop has interrupted the forks that it knows, and reads the log again to look for them."""
    first, second = opened(tmp_path), opened(tmp_path)
    dropper: Any = second
    origin = saved(first, "origin", "a b", "c")
    forks: Callable[[int], list[int]] = dropper._space.forks
    left = [True]
    registered, dropped = threading.Event(), threading.Event()
    saved_fork: list[Line] = []

    def delayed() -> bool:
        registered.set()
        return dropped.wait(DEADLINE)

    def fork() -> None:
        line = Line(first, "fork")
        with suppress(Conflict, NotFound):
            line.save("d", bases=[(origin.number, 1)], origins=[origin.number])
            saved_fork.append(line)

    writer = threading.Thread(target=fork)

    def used(number: int) -> list[int]:
        if left:
            left.pop()
            if happens == "claim":
                first.claim(None, held(first, origin.number))
            else:
                meanwhile(first, "fork", delayed, monkeypatch)
                writer.start()
                assert registered.wait(DEADLINE)
        return forks(number)

    monkeypatch.setattr(dropper._space, "forks", used)
    if happens == "claim":
        with pytest.raises(LeaseHeld):
            second.drop(origin.number)
        assert texts_of(opened(tmp_path), origin.span()) == [["a", "b", "c"]]
        return
    second.drop(origin.number)
    dropped.set()
    writer.join()
    assert not saved_fork
    assert opened(tmp_path).head("fork") is None
