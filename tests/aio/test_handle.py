"""The async view: the same verbs, awaited, and what only concerns async code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Holdfast, Retention
from holdfast.stores.sqlite.memory import MemoryStore
from tests.covers import covers
from tests.selection import every_store
from tests.waiting import DEADLINE


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


@covers("continuum/CheckpointSystemTrait", "cortex/CheckpointStore", "cortex/test_load_latest")
@every_store("threads use one store at once")
def test_a_tour(url: str) -> None:
    async def main() -> None:
        async with await holdfast.aopen(url, durability="off") as ahf:
            thread = ahf.thread("t")
            assert await thread.latest() is None
            first = await thread.save({"messages": ["a"]}, label="first")
            await thread.save({"messages": ["a", "b"]})
            latest = await thread.latest()
            assert latest is not None
            assert latest.state == {"messages": ["a", "b"]}
            assert [c.seq async for c in thread.history()] == [2, 1]
            assert [c.seq async for c in thread.history(limit=1, before="@2")] == [1]
            assert await thread.find(label="first") == first
            fork = await thread.fork("f", at="@first")
            assert [c.path for c in (await ahf.diff("f", "t")).changes] == ["$.messages[1]"]
            await fork.drop()
            await thread.rewind(first.id)
            assert (await thread.load("@-1")).id == first.id
            head = await thread.head()
            assert head is not None
            assert (head.id, await thread.step(), await thread.count()) == (first.id, 1, 2)
            await thread.prune(Retention(keep_last=0))
            assert [info.name async for info in ahf.threads()] == ["t"]
            await ahf.optimize()
            await ahf.maintain()
            assert (await ahf.verify()).ok
            assert await ahf.sync.aio.thread("t").count() == 1
        with pytest.raises(holdfast.Closed):
            await ahf.thread("t").latest()

    run(main)


def test_what_happens_to_the_state_after_the_call_does_not_count(url: str) -> None:
    async def main() -> None:
        async with await holdfast.aopen(url, durability="off") as ahf:
            thread = ahf.thread("t")
            state = {"messages": [{"n": n, "text": "x" * 50} for n in range(100)]}
            saves = []
            for n in range(5):
                state["messages"].append({"n": 100 + n, "text": "y"})
                saves.append(asyncio.ensure_future(thread.save(state)))
                await asyncio.sleep(0)  # the save runs to its first await
            state["messages"].clear()
            checkpoints = await asyncio.gather(*saves)
            assert [c.seq for c in checkpoints] == [1, 2, 3, 4, 5]
            for n, checkpoint in enumerate(checkpoints):
                assert len((await thread.load(checkpoint)).state["messages"]) == 101 + n

    run(main)


class SlowStore(MemoryStore):
    """Holds every commit until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(namespace="default")
        self.go_on = threading.Event()
        self.entered = threading.Event()

    def commit(self, commit: Any) -> Any:
        self.entered.set()
        assert self.go_on.wait(DEADLINE)
        return super().commit(commit)


@covers("A16")
@pytest.mark.parametrize("warm", [False, True])
def test_a_cancelled_save_is_stored_whole_and_the_thread_goes_on(warm: bool) -> None:
    async def main() -> None:
        store = SlowStore()
        ahf = Holdfast(store).aio
        thread = ahf.thread("t")
        if warm:
            store.go_on.set()
            await thread.save({"n": 0})
            store.go_on.clear()
            store.entered.clear()
        before = await thread.count()
        task = asyncio.ensure_future(thread.save({"n": 1}))
        await asyncio.to_thread(store.entered.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.go_on.set()
        following = await thread.save({"n": 2})
        assert following.seq == before + 2
        assert (await thread.load("@-2")).state == {"n": 1}
        await ahf.close()

    run(main)


@covers("D6", "cortex/CheckpointStore", "cortex/CheckpointManager.new")
def test_the_loop_goes_on_while_a_save_waits_for_the_disk() -> None:
    async def main() -> None:
        store = SlowStore()
        ahf = Holdfast(store).aio
        task = asyncio.ensure_future(ahf.thread("t").save({"n": 1}))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        store.go_on.set()
        assert (await task).seq == 1
        await ahf.close()

    run(main)


def test_conflicts_reach_the_caller(tmp_path: Path) -> None:
    async def main() -> None:
        async with await holdfast.aopen(tmp_path / "a.db", durability="off") as ahf:
            mine, other = ahf.thread("t"), ahf.thread("t")
            await mine.save({"n": 1})
            await other.save({"n": 2})
            with pytest.raises(Conflict):
                await mine.save({"n": 3})
            with pytest.raises(holdfast.Unsupported):
                await mine.save({"n": object()})
            assert await mine.count() == 2

    run(main)


def test_every_verb_waits_for_the_saves_called_before_it() -> None:
    async def main() -> None:
        store = SlowStore()
        ahf = Holdfast(store).aio
        thread = ahf.thread("t")
        first = asyncio.ensure_future(thread.save({"n": 1}))
        second = asyncio.ensure_future(thread.save({"n": 2}))
        await asyncio.sleep(0)
        rewound = asyncio.ensure_future(thread.rewind("@1"))
        counted = asyncio.ensure_future(thread.count())
        await asyncio.sleep(0)
        store.go_on.set()
        await asyncio.gather(first, second)
        assert await counted == 2
        assert (await rewound).seq == 1
        head = await thread.head()
        assert head is not None
        assert head.seq == 1
        await ahf.close()

    run(main)


def test_methods_that_move_the_head_run_in_the_order_of_the_calls(url: str) -> None:
    async def main() -> None:
        async with await holdfast.aopen(url, durability="off") as ahf:
            thread = ahf.thread("t")
            await thread.save({"messages": []})
            await asyncio.gather(*(thread.append("messages", [n]) for n in range(40)))
            head = await thread.latest()
            assert head is not None
            assert head.state == {"messages": list(range(40))}
            saved = thread.save({"messages": ["saved"]})  # not a conflict with the append before it
            await asyncio.gather(thread.append("messages", [40]), saved, thread.append("messages", ["appended"]))
            assert await thread.pop("messages") == "appended"
            assert await thread.tail("messages") == ["saved"]

    run(main)


def test_a_save_of_a_loop_that_was_closed_does_not_hold_up_the_next(hf: Holdfast) -> None:
    thread = hf.aio.thread("t")

    async def begin() -> asyncio.Task[Any]:
        task = asyncio.ensure_future(thread.save({"n": 1}))
        await asyncio.sleep(0)
        return task

    async def follow() -> int:
        async with asyncio.timeout(DEADLINE):
            return (await thread.save({"n": 2})).seq

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(begin())
    loop.close()
    assert asyncio.run(follow()) == 2
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # its loop was closed on purpose


def test_tasks_of_two_loops_save_to_one_thread_object(hf: Holdfast) -> None:
    thread = hf.aio.thread("t")

    async def save() -> None:
        async with asyncio.timeout(DEADLINE):
            for n in range(20):
                await thread.append("messages", [n])

    async def create() -> None:
        await thread.save({"messages": []})

    asyncio.run(create())
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(lambda: asyncio.run(save())) for _ in range(2)]:
            each.result()
    assert hf.thread("t").count() == 41


def test_saves_of_two_loops_do_not_conflict(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    thread, preparing = hf.aio.thread("t"), threading.Event()
    asyncio.run(thread.save({"n": 0}))
    prepare = thread._saver.prepare

    def slow(*args: Any) -> Any:
        prepared = prepare(*args)
        if not preparing.is_set():
            preparing.set()
            other.join(0.2)  # it waits until this save is started
        return prepared

    def save_other() -> None:
        assert preparing.wait(DEADLINE)
        asyncio.run(thread.save({"n": 2}))

    other = threading.Thread(target=save_other)
    other.start()
    monkeypatch.setattr(thread._saver, "prepare", slow)
    assert asyncio.run(thread.save({"n": 1})).seq == 2
    other.join(DEADLINE)
    assert hf.thread("t").count() == 3
