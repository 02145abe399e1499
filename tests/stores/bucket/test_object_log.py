"""Objects of a log that are missing, deleted or created too late: nothing is lost without notice."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import obstore
import pytest

from holdfast.errors import Damaged, OutcomeUnknown
from holdfast.stores import clock as clocks
from holdfast.stores.contract_runs import Clock
from holdfast.stores.log import objects
from holdfast.stores.log.device import GRACE, Moved, thread_key
from holdfast.stores.log.object_log import TAIL, name_of
from holdfast.testing.contract.build import Line, saved, texts_of
from tests.stores.bucket.test_memory import opened

LONG = "x" * TAIL


def test_a_missing_part_is_damage(tmp_path: Path) -> None:
    store = opened(tmp_path)
    line = saved(store, "a", LONG, "y", "z")
    store.objects.delete([name_of(thread_key("a"), 1)])
    other = opened(tmp_path)
    with pytest.raises(Damaged, match="missing"):
        other.head("a")
    assert [problem.thread for problem in other.check()] == ["a"]
    assert texts_of(store, line.span()) == [[LONG, "y", "z"]], "this handle has the bytes"


def test_a_part_that_a_newer_object_repeats_may_be_deleted(tmp_path: Path) -> None:
    """A reader that has read the newest object, and not its parts, looks again."""
    store = opened(tmp_path)
    reader: Any = opened(tmp_path)
    line = saved(store, "a", "x")
    log = reader._device.log(thread_key("a"))
    seen = log.stat()
    line.save(LONG)
    line.save("y")
    head = store.head("a")
    assert seen is not None
    assert head is not None
    log._parts = type(log._parts)()
    store.objects.delete([name_of(thread_key("a"), 1)])
    assert reader.head("a") == head


def test_a_log_without_its_newest_object_is_damage(tmp_path: Path) -> None:
    """Only a stub is left of the one before it."""
    store: Any = opened(tmp_path, grace=GRACE)
    saved(store, "a", "x", "y", "z")
    store._device.clean(scrub=True)
    store.objects.delete([name_of(thread_key("a"), 3)])
    with pytest.raises(Damaged):
        opened(tmp_path).head("a")


@pytest.mark.parametrize("source", ["now", "wall"])
def test_a_writer_that_was_suspended_does_not_report_a_write_of_which_it_is_not_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Meanwhile, others may have appended, and their old objects may have been deleted, with the number of this one."""
    store: Any = opened(tmp_path, grace=GRACE)
    line = saved(store, "a", "x")
    other = opened(tmp_path, grace=GRACE)
    log = store._device.log(thread_key("a"))
    create, later = log._objects.create, 2 * GRACE * (1000 if source == "now" else 1_000_000)
    real = getattr(clocks, source)
    woken: list[bool] = []

    def late(key: str, data: bytes) -> Any:
        if not woken:
            woken.append(True)
            monkeypatch.setattr(clocks, source, lambda: int(real() + later))
            ahead = copy(line)
            ahead.store = other
            for text in "abc":
                ahead.save(text)
            other.objects.delete([name_of(thread_key("a"), number) for number in range(1, 4)])
        return create(key, data)

    monkeypatch.setattr(log._objects, "create", late)
    with pytest.raises(OutcomeUnknown):
        line.save("mine")
    assert woken
    head = store.head("a")
    assert head is not None
    assert head.thread.count == 4


def test_a_handle_that_knows_how_a_log_ended_finds_one_that_starts_again(tmp_path: Path) -> None:
    """The objects of a dropped thread are deleted when they are old, and the numbers start again."""
    store, reader = opened(tmp_path), opened(tmp_path)
    store.drop(saved(store, "a", "x").number)
    assert reader.head("a") is None
    store.objects.delete([each.key for each in store.objects.list(thread_key("a"))])
    line = saved(opened(tmp_path), "a", "new")
    assert texts_of(reader, line.span()) == [["new"]]
    line.store = reader
    line.save("newer")
    assert texts_of(opened(tmp_path), line.span()) == [["new", "newer"]]


def test_a_handle_that_was_idle_does_not_take_a_log_that_started_again_for_the_one_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects have the same numbers and sizes."""
    store, reader = opened(tmp_path, grace=GRACE), opened(tmp_path, grace=GRACE)
    old = saved(store, "a", LONG, "x", "y")
    assert texts_of(reader, old.span()) == [[LONG, "x", "y"]]
    store.drop(old.number)
    store.objects.delete([each.key for each in store.objects.list(thread_key("a"))])
    new = saved(opened(tmp_path, grace=GRACE), "a", LONG, "z", "w")
    now = clocks.now
    monkeypatch.setattr(clocks, "now", lambda: now() + 2 * int(GRACE) * 1000)
    head = reader.head("a")
    assert head is not None
    assert head.thread.position.thread == new.number
    new.store = reader
    new.save("v")
    assert texts_of(opened(tmp_path, grace=GRACE), new.span()) == [[LONG, "z", "w", "v"]]
    assert list(opened(tmp_path, grace=GRACE).check()) == []


def test_no_log_is_read_if_all_its_objects_are_young(tmp_path: Path) -> None:
    store: Any = opened(tmp_path)
    for name in "abc":
        saved(store, name, "x", "y")
    store.drop(saved(store, "d", "x").number)
    before = store.objects.requests["get"]
    store._device.clean(scrub=False)
    assert store.objects.requests["get"] == before


def test_an_erasure_leaves_objects_alone_whose_bytes_were_removed(tmp_path: Path) -> None:
    """They would never be old if each erasure wrote them again."""
    store: Any = opened(tmp_path, grace=GRACE)
    saved(store, "a", "x", "y", "z")
    store._device.clean(scrub=True)
    before = [(each.key, each.written) for each in store.objects.list(thread_key("a"))]
    store._device.clean(scrub=True)
    assert [(each.key, each.written) for each in store.objects.list(thread_key("a"))] == before


def test_a_dropped_thread_stays_dropped_while_its_objects_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server deletes the objects of one request in any order, and a reader may look in between."""
    store = opened(tmp_path)
    store.drop(saved(store, "a", "x", "y").number)
    readers = [opened(tmp_path) for _ in range(9)]
    later = int(clocks.wall() // 1000 + 2 * GRACE * 1000)
    cleaner = opened(tmp_path, clock=lambda: Clock("later", later))
    delete = obstore.delete

    def one_by_one(client: Any, keys: Sequence[str]) -> None:
        for key in sorted(keys):  # the newest object first
            delete(client, [key])
            assert readers.pop().head("a") is None

    monkeypatch.setattr(obstore, "delete", one_by_one)
    cleaner.reclaim()
    cleaner.reclaim()
    assert store.objects.list(thread_key("a")) == []


def test_a_part_of_a_log_is_not_deleted_beside_a_writer_and_an_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the listing, the newest object in it becomes a stub, which does not have the numbers of the parts."""
    store = opened(tmp_path, grace=GRACE)
    line = saved(store, "a", LONG, "y", "z")
    later = int(clocks.wall() // 1000 + 2 * GRACE * 1000)
    cleaner: Any = opened(tmp_path, grace=GRACE, clock=lambda: Clock("later", later))
    get, left = cleaner.objects.get, [True]

    def late(key: str) -> Any:
        if left and key == name_of(thread_key("a"), 3):
            left.pop()
            line.save("w")
            opened(tmp_path, grace=GRACE).reclaim(scrub=True)
        return get(key)

    monkeypatch.setattr(cleaner.objects, "get", late)
    cleaner.reclaim()
    assert not left
    assert texts_of(opened(tmp_path, grace=GRACE), line.span()) == [[LONG, "y", "z", "w"]]


def test_a_reader_whose_log_was_replaced_by_one_with_the_same_numbers_looks_again(tmp_path: Path) -> None:
    store: Any = opened(tmp_path, grace=GRACE)
    reader: Any = opened(tmp_path, grace=GRACE)
    old = saved(store, "a", LONG, "x", "y")
    log = reader._device.log(thread_key("a"))
    seen = log.stat()
    store.drop(old.number)
    store.objects.delete([each.key for each in store.objects.list(thread_key("a"))])
    saved(opened(tmp_path, grace=GRACE), "a", LONG, "z", "w")
    with pytest.raises(Moved):
        log.read(seen, 0)


def test_a_log_that_started_again_is_kept_by_a_second_process_that_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read how the log before it ended. The second one deletes what it found when the first has finished."""
    store = opened(tmp_path, grace=GRACE)
    store.drop(saved(store, "a", "x").number)
    later = int(clocks.wall() // 1000 + 2 * GRACE * 1000)
    first, second = (opened(tmp_path, grace=GRACE, clock=lambda: Clock("later", later)) for _ in range(2))
    first.reclaim()
    replace = second.objects.replace
    lines: list[Line] = []

    def late(*args: Any) -> Any:
        if not lines:
            first.reclaim()
            lines.append(saved(store, "a", "y", "z"))
        return replace(*args)

    monkeypatch.setattr(second.objects, "replace", late)
    second.reclaim()
    assert [texts_of(opened(tmp_path, grace=GRACE), line.span()) for line in lines] == [[["y", "z"]]]


def test_the_end_of_a_log_that_another_process_is_about_to_delete_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has replaced it, and deletes it. Then another log starts, before the second one has finished."""
    store = opened(tmp_path, grace=GRACE)
    store.drop(saved(store, "a", "x").number)
    start, micros = [clocks.wall()], objects._micros
    age = int(2 * GRACE * 1_000_000)
    # What has been written until `start` is old.
    monkeypatch.setattr(objects, "_micros", lambda at: micros(at) - (age if micros(at) <= start[-1] else 0))
    now = lambda: Clock("now", clocks.wall() // 1000)  # noqa: E731
    first, second = (opened(tmp_path, grace=GRACE, clock=now) for _ in range(2))
    first.reclaim()
    start.append(clocks.wall())
    ends: list[str] = []
    lines: list[Line] = []
    get, delete = second.objects.get, first.objects.delete
    monkeypatch.setattr(first.objects, "delete", ends.extend)

    def late(key: str) -> Any:
        if not ends:
            first.reclaim()
        return get(key)

    def later(keys: Sequence[str]) -> None:
        if not lines:
            delete(ends)
            lines.append(saved(store, "a", "y", "z"))
        delete(keys)

    monkeypatch.setattr(second.objects, "get", late)
    monkeypatch.setattr(second.objects, "delete", later)
    second.reclaim()
    assert ends
    assert [texts_of(opened(tmp_path, grace=GRACE), line.span()) for line in lines] == [[["y", "z"]]]


def test_a_late_deletion_does_not_meet_a_log_that_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server carries it out after another process has deleted the rest of the log before."""
    store = opened(tmp_path, grace=GRACE)
    store.drop(saved(store, "a", "x", "y").number)
    start, micros = clocks.wall(), objects._micros
    age = int(2 * GRACE * 1_000_000)
    # What has been written until now is old.
    monkeypatch.setattr(objects, "_micros", lambda at: micros(at) - (age if micros(at) <= start else 0))
    now = lambda: Clock("now", clocks.wall() // 1000)  # noqa: E731
    first, second = (opened(tmp_path, grace=GRACE, clock=now) for _ in range(2))
    lines: list[Line] = []
    delete = first.objects.delete

    def late(keys: Sequence[str]) -> None:
        if not lines:
            delete(keys)  # the answer is lost
            second.reclaim()
            second.reclaim()
            lines.append(saved(store, "a", "y", "z"))
        delete(keys)

    monkeypatch.setattr(first.objects, "delete", late)
    first.reclaim()
    assert [texts_of(opened(tmp_path, grace=GRACE), line.span()) for line in lines] == [[["y", "z"]]]


def test_a_part_that_a_writer_of_the_same_handle_has_repeated_is_not_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader has started before. Meanwhile another process erases the part."""
    store: Any = opened(tmp_path, grace=GRACE)
    line = saved(store, "a", "x", LONG)
    log = store._device.log(thread_key("a"))
    seen = log.stat()
    get, left = log._objects.get, [True]

    def late(key: str) -> Any:
        if left:
            left.pop()
            line.save("y")
            opened(tmp_path, grace=GRACE).reclaim(scrub=True)
        return get(key)

    log._parts = type(log._parts)()
    monkeypatch.setattr(log._objects, "get", late)
    with pytest.raises(Moved):
        log.read(seen, 0)
    assert texts_of(store, line.span()) == [["x", LONG, "y"]]
