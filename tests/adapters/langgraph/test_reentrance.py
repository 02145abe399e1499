"""Any thread, any loop, at any moment: also in the middle of a list, and sync and async side by side."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, awaited, checkpoint, config, in_time, numbers, version
from tests.waiting import DEADLINE


def filled(savers: Savers, count: int = 4) -> tuple[HoldfastSaver, Face]:
    saver = savers.open()
    face = Face(saver, is_async=False)
    for number in range(1, count + 1):
        face.put(number, {"a": number}, parent=number - 1 or None)
    return saver, face


def given(number: int) -> tuple[Any, Any, Any]:
    at = {"a": version(number)}
    return checkpoint(number, {"a": number}, at), {"source": "loop", "step": number, "parents": {}}, at


def test_a_list_can_be_interrupted_by_anything(savers: Savers) -> None:
    saver, face = filled(savers)

    def walk() -> list[int]:
        seen = []
        for found in saver.list(config()):
            [number] = numbers([found])
            seen.append(number)
            assert face.values(number) == {"a": number}
            assert numbers(face.list(config(), limit=1)) == [len(seen) + 3]
            face.write(number, [("a", "written")])
            face.put(4 + len(seen), {"a": "new"}, parent=3 + len(seen))
            face.put(1, {"a": 1}, thread=f"another-{number}")
        return seen

    # Whether a put under way is seen by the list is open; what was there when it began is seen once.
    assert [number for number in in_time(walk) if number <= 4] == [4, 3, 2, 1]
    assert face.writes(2) == [("task", "a", "written")]


def test_an_async_list_can_be_interrupted_by_anything(savers: Savers) -> None:
    saver, face = filled(savers)

    async def walk() -> list[int]:
        seen = []
        async for found in saver.alist(config()):
            [number] = numbers([found])
            seen.append(number)
            inner = await saver.aget_tuple(config(number=number))
            assert inner is not None
            assert inner.checkpoint["channel_values"] == {"a": number}
            assert [one async for one in saver.alist(config("nobody"))] == []
            await saver.aput_writes(config(number=number), [("a", "written")], "task")
            await saver.aput(config(number=3 + len(seen)), *given(4 + len(seen)))
            await asyncio.gather(*(saver.aput(config(f"{number}-{at}"), *given(1)) for at in range(3)))
        return seen

    assert [number for number in awaited(walk()) if number <= 4] == [4, 3, 2, 1]
    assert face.writes(2) == [("task", "a", "written")]


def test_a_thread_can_be_deleted_in_the_middle_of_its_list(savers: Savers) -> None:
    saver, face = filled(savers)

    def walk() -> None:
        listing = saver.list(config())
        next(listing)
        face.delete_thread("t")
        assert len([*listing]) <= 3

    in_time(walk)
    assert face.list(config()) == []


def test_a_list_that_nobody_reads_to_its_end_holds_nothing_up(savers: Savers) -> None:
    saver, face = filled(savers)
    left = [saver.list(config()), saver.list(None)]
    for listing in left:
        next(iter(listing))
    other = Face(savers.open(), is_async=False)

    in_time(lambda: other.put(5, {"a": 5}, parent=4))
    in_time(lambda: face.put(6, {"a": 6}, parent=5))
    in_time(lambda: asyncio.run(saver.adelete_thread("nobody")))

    assert face.values() == {"a": 6}
    assert len(left) == 2


def test_an_async_list_that_is_left_early_holds_nothing_up(savers: Savers) -> None:
    saver, _ = filled(savers)

    async def leave() -> None:
        async for _ in saver.alist(config()):
            break
        listing: Any = saver.alist(config())
        await anext(listing)
        await saver.aput(config(number=4), *given(5))
        await listing.aclose()

    awaited(leave())
    assert in_time(lambda: asyncio.run(saver.aget(config()))) is not None


def test_a_list_sees_no_checkpoint_twice_and_none_half(savers: Savers) -> None:
    saver, face = filled(savers, 8)

    def walk() -> list[int]:
        listing = saver.list(config())
        seen = [next(listing)]
        face.put(9, {"a": 9}, parent=8)
        face.write(5, [("a", "late")])
        seen += listing
        return numbers(seen)

    found = in_time(walk)
    assert len(set(found)) == len(found)
    assert [number for number in found if number <= 8] == [8, 7, 6, 5, 4, 3, 2, 1]


def test_sync_and_async_calls_see_one_store(savers: Savers) -> None:
    saver = savers.open()
    sync = Face(saver, is_async=False)
    by_loop = Face(saver, is_async=True)

    sync.put(1, {"a": 1})
    by_loop.put(2, {"a": 2}, parent=1)
    by_loop.write(2, [("a", "async")])
    sync.write(2, [("a", "ignored"), ("b", "sync")])

    for face in (sync, by_loop):
        assert face.values() == {"a": 2}
        assert face.writes(2) == [("task", "a", "async"), ("task", "b", "sync")]
        assert numbers(face.list(config())) == [2, 1]


def test_sync_calls_may_be_made_inside_a_running_loop(savers: Savers) -> None:
    saver = savers.open()

    async def mix() -> None:
        await saver.aput(config(), *given(1))
        saver.put(config(number=1), *given(2))
        saver.put_writes(config(number=2), [("a", "x")], "task")
        latest = await saver.aget_tuple(config())
        again = saver.get_tuple(config())
        assert latest is not None
        assert latest == again
        assert numbers([*saver.list(config())]) == [2, 1]
        assert latest.pending_writes == [("task", "a", "x")]

    awaited(mix())


def test_async_calls_may_be_made_from_many_loops_at_once(savers: Savers) -> None:
    saver = savers.open()

    async def work(name: str) -> int:
        for number in range(1, 5):
            parent = number - 1 or None
            await saver.aput(config(name, number=parent), *given(number))
            await saver.aput_writes(config(name, number=number), [("a", name)], "task")
        return len([one async for one in saver.alist(config(name))])

    with ThreadPoolExecutor(4) as threads:
        counts = [*threads.map(lambda at: asyncio.run(work(f"thread-{at}")), range(8))]

    assert counts == [4] * 8


def test_many_tasks_of_one_loop_may_call_at_once(savers: Savers) -> None:
    saver = savers.open()

    async def work() -> list[Any]:
        names = [f"thread-{at}" for at in range(20)]
        await asyncio.gather(*(saver.aput(config(name), *given(1)) for name in names))
        await asyncio.gather(
            *(saver.aput_writes(config(name, number=1), [("a", name)], f"{at}") for name in names for at in range(3))
        )
        found: list[Any] = await asyncio.gather(*(saver.aget_tuple(config(name)) for name in names))
        return found

    for at, found in enumerate(awaited(work())):
        assert found.pending_writes == [(str(task), "a", f"thread-{at}") for task in range(3)]


def test_many_threads_may_write_to_one_checkpoint_at_once(savers: Savers) -> None:
    saver, face = filled(savers, 1)
    other = savers.open()
    start = threading.Barrier(4)

    def work(at: int) -> None:
        start.wait(DEADLINE)
        for number in range(5):
            (saver if at % 2 else other).put_writes(
                config(number=1), [("a", [at, number])], f"task-{at}-{number}", f"path-{at}"
            )

    with ThreadPoolExecutor(4) as threads:
        [*threads.map(work, range(4))]

    expected = [(f"task-{at}-{number}", "a", [at, number]) for at in range(4) for number in range(5)]
    assert face.writes(1) == expected


@pytest.mark.parametrize("turns", range(4))
def test_a_put_that_is_cancelled_is_there_or_not_and_the_saver_goes_on(savers: Savers, turns: int) -> None:
    saver, face = filled(savers, 1)

    async def cancel() -> None:
        putting = asyncio.create_task(saver.aput(config(number=1), *given(2)))
        for _ in range(turns):
            await asyncio.sleep(0)
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)

    awaited(cancel())

    # What is under way ends before the next call on the thread does.
    [number] = numbers([face.get()])
    assert number in (1, 2)
    face.put(7, {"a": 7}, thread="another")
    assert face.values(number) == {"a": number}
