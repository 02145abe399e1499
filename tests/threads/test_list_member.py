"""Lists of a thread's state that are changed at their end, without the rest of the state."""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Damaged, Holdfast, InvalidArgument, LeaseHeld
from holdfast.errors import AlreadyExists
from holdfast.stores.contract import Cells, Head, Span
from holdfast.threads.list_member import ListMember
from tests.selection import every_store


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "lists.db", durability="off") as handle:
        yield handle


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number}: {'words ' * 20}", "number": number}


def test_items_are_appended_and_read_from_the_end(hf: Holdfast) -> None:
    thread, items = hf.thread("t"), [message(number) for number in range(200)]
    assert thread.tail("messages") == []
    for start in range(0, 200, 3):
        thread.append("messages", items[start : start + 3])
    for reader in (thread, hf.thread("t")):
        assert reader.tail("messages") == items
        assert reader.tail("messages", 7) == items[-7:]
        assert reader.tail("messages", 0) == []
        assert reader.tail("messages", 500) == items
    found = hf.thread("t").latest()
    assert found is not None
    assert found.state == {"messages": items}
    assert hf.thread("t").count() == 67


def test_the_rest_of_the_state_stays(hf: Holdfast) -> None:
    thread = hf.thread("t")
    rest = {"plan": "x" * 10_000, "head": {"turn": 3}, "other": [message(1)] * 50}
    thread.save({**rest, "messages": [message(number) for number in range(100)]})
    thread.append("messages", [message(100)])
    assert thread.pop("messages") == message(100)
    assert thread.pop("messages") == message(99)
    found = hf.thread("t").latest()
    assert found is not None
    assert found.state == {**rest, "messages": [message(number) for number in range(99)]}


def test_the_last_items_can_all_be_taken(hf: Holdfast) -> None:
    thread = hf.thread("t")
    assert thread.pop("messages") is None
    thread.append("messages", [1, "two", None])
    assert [thread.pop("messages") for _ in range(4)] == [None, "two", 1, None]
    thread.append("messages", [message(1)])
    assert thread.tail("messages") == [message(1)]


def test_a_list_in_a_state_that_is_not_divided_into_its_values(hf: Holdfast) -> None:
    many = {f"key {number}": "x" * 100 for number in range(70)}
    few = dict(list(many.items())[:40])
    states: list[tuple[str, list[Any]]] = [
        ("messages", [many]),
        ("messages", [dict(list(many.items())[:64])]),  # the list is the 65th entry
        ("messages", [many, few]),
        ("messages", [{1: 2, (3, "four"): 5}]),
        ("\ud800", [{}]),
    ]
    for number, (path, saved) in enumerate(states):
        thread, items = hf.thread(f"t{number}"), [message(1), "two"]
        for state in saved:
            thread.save(state)
        for item in items:
            thread.append(path, [item])
        found = hf.thread(f"t{number}").latest()
        assert found is not None
        assert found.state == {**saved[-1], path: items}
        assert thread.tail(path) == items
        assert [thread.pop(path) for _ in range(3)] == [*reversed(items), None]


def test_a_unique_append_is_made_once(hf: Holdfast) -> None:
    thread = hf.thread("t")
    assert thread.append("messages", [1], unique="a") is not None
    assert thread.append("messages", [1], unique="a") is None
    assert hf.thread("t").append("messages", [1], unique="a") is None
    thread.append("messages", [2], unique="b")
    assert thread.pop("messages", unique="c") == 2
    assert thread.pop("messages", unique="c") is None
    assert thread.tail("messages") == [1]


def test_writers_do_not_lose_items(tmp_path: Path) -> None:
    def write(name: str) -> None:
        with holdfast.open(tmp_path / "lists.db", durability="off") as hf:
            for number in range(30):
                hf.thread("t").append("messages", [f"{name} {number}"])

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with holdfast.open(tmp_path / "lists.db") as hf:
        found = hf.thread("t").tail("messages")
    assert sorted(found) == sorted(f"{name} {number}" for name in "ab" for number in range(30))
    assert [each for each in found if each.startswith("a")] == [f"a {number}" for number in range(30)]


def test_an_expected_head_is_required(hf: Holdfast) -> None:
    thread = hf.thread("t")
    first = thread.append("messages", [1])
    thread.append("messages", [2])
    with pytest.raises(Conflict):
        thread.append("messages", [3], expect=first)
    assert thread.tail("messages") == [1, 2]


def test_an_expected_head_is_the_one_whose_items_are_kept(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer rewinds the thread to the expected checkpoint while the append reads."""
    thread, other = hf.thread("t"), hf.thread("t")
    thread.append("messages", [1])
    expected = thread.append("messages", [2])
    assert expected is not None
    thread.append("messages", [3])
    read, count = hf.context.store.head, itertools.count()

    def head(name: str) -> Head | None:
        if next(count) == 1:
            other.rewind(expected)
        return read(name)

    monkeypatch.setattr(hf.context.store, "head", head)
    with pytest.raises(Conflict):
        thread.append("messages", [4], expect=expected)
    monkeypatch.undo()
    other.latest()
    other.rewind(expected)
    thread.append("messages", [4], expect=expected)
    assert thread.tail("messages") == [1, 2, 4]


def test_a_thread_that_exists_is_not_appended_to_as_a_new_one(hf: Holdfast) -> None:
    thread = hf.thread("t")
    assert thread.append("messages", [1], expect=holdfast.NEW, unique="a") is not None
    assert thread.append("messages", [1], expect=holdfast.NEW, unique="a") is None
    for use in (thread.append, hf.thread("t").append):
        with pytest.raises(AlreadyExists, match="thread 't' already exists; nothing was saved"):
            use("messages", [2], expect=holdfast.NEW)
    assert thread.tail("messages") == [1]


@pytest.mark.parametrize("column", ["cells", "skeleton", "meta"])
def test_a_damaged_state_is_not_replaced_by_what_is_appended(tmp_path: Path, column: str) -> None:
    path = tmp_path / "damaged.db"
    with holdfast.open(path) as hf:
        hf.thread("t").save({"messages": [message(number) for number in range(50)], "plan": "p" * 500})
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE checkpoint SET {column} = x'00'")  # noqa: S608 - the names are above
        db.commit()
    with holdfast.open(path) as hf:
        thread = hf.thread("t")
        for use in (
            lambda: thread.append("messages", [1]),
            lambda: thread.append("other", [1]),
            lambda: thread.tail("messages"),
            lambda: thread.pop("messages"),
        ):
            with pytest.raises(Damaged):
                use()
        assert thread.count() == 1
        thread.save({"messages": []}, expect=holdfast.ANY)
        thread.append("messages", [1])
        assert thread.tail("messages") == [1]


def test_a_head_that_another_writer_removes_meanwhile_is_read_again(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, other = hf.thread("t"), hf.thread("t")
    thread.save({"messages": [message(number) for number in range(50)]})
    hf.context.bases.clear()
    read, count = hf.context.store.cells, itertools.count()

    def cells(spans: Sequence[Span]) -> list[Cells]:
        if next(count) == 0:
            other.latest()
            other.save({"messages": ["new"]})
            other.prune(holdfast.Retention(keep_last=1))
        return read(spans)

    monkeypatch.setattr(hf.context.store, "cells", cells)
    assert thread.tail("messages") == ["new"]
    hf.context.bases.clear()
    thread.append("messages", ["newer"])
    assert thread.tail("messages") == ["new", "newer"]


def test_what_is_not_a_list_is_refused(hf: Holdfast) -> None:
    thread = hf.thread("t")
    thread.save({"messages": "text", "n": 1})
    for use in (
        lambda: thread.append("messages", [1]),
        lambda: thread.append("n", [1]),
        lambda: thread.tail("n"),
        lambda: thread.append("messages", "abc"),  # type: ignore[arg-type]
        lambda: thread.append("", [1]),
        lambda: thread.tail("list", -1),
    ):
        with pytest.raises(InvalidArgument):
            use()


def test_items_are_redacted(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "r.db", redact=lambda text: text.replace("secret", "[x]")) as hf:
        hf.thread("t").append("messages", [{"content": "a secret"}])
        assert hf.thread("t").tail("messages") == [{"content": "a [x]"}]


@every_store("the commit has the form that each store takes")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_stores(tmp_path: Path, kind: str) -> None:
    with holdfast.open(tmp_path / ("t.db" if kind == "sqlite" else "folder/"), durability="off") as hf:
        for number in range(20):
            hf.thread("t").append("messages", [message(number)])
        assert hf.thread("t").pop("messages") == message(19)
        assert hf.verify().ok
        assert hf.thread("t").tail("messages", 2) == [message(17), message(18)]


def test_the_time_does_not_grow_with_the_list(hf: Holdfast) -> None:
    thread = hf.thread("t")
    thread.append("messages", [message(number) for number in range(20_000)])

    def fastest(name: str) -> float:
        other, times = hf.thread(name), []
        for number in range(30):
            started = time.perf_counter()
            other.append("messages", [message(number)])
            times.append(time.perf_counter() - started)
        return min(times)

    hf.thread("small").append("messages", [message(0)])
    assert fastest("t") < fastest("small") * 10  # to compare 20,000 items takes more than 30 times as long


def test_a_refused_append_does_not_change_the_head_that_the_thread_expects(hf: Holdfast) -> None:
    thread, other = hf.thread("t"), hf.thread("t")
    thread.save({"messages": [], "by": "thread"})
    other.save({"messages": [], "by": "other"})
    with hf.run("t"), pytest.raises(LeaseHeld):
        thread.append("messages", [message(1)])
    with pytest.raises(Conflict):
        thread.save({"messages": [], "by": "thread"})


@pytest.mark.parametrize("verb", ["append", "pop", "tail"])
def test_a_thread_that_another_handle_prunes_meanwhile_is_not_damaged(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(member: ListMember, *given: Any) -> Any:
        monkeypatch.undo()
        thread = other.thread("t")
        thread.latest()
        thread.save({"messages": ["new"]})
        thread.prune(holdfast.Retention(keep_last=1))
        other.optimize()
        return read(member, *given)

    read, url = ListMember._whole, tmp_path / "t.db"
    with holdfast.open(url, durability="off") as one, holdfast.open(url, durability="off") as other:
        other.thread("t").save({"messages": ["old"], "large": "x" * 50_000})
        monkeypatch.setattr(ListMember, "_whole", reading)
        thread = one.thread("t")
        if verb == "append":
            thread.append("messages", ["more"])
            assert other.thread("t").tail("messages") == ["new", "more"]
        else:
            assert (thread.pop("messages") if verb == "pop" else thread.tail("messages", 1)[0]) == "new"
