"""Many at once: processes that save, fork, prune and merge, threads on one handle, forked handles, clocks that jump,
and tasks that are cancelled at every await.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Holdfast, Retention
from holdfast.errors import LeaseHeld
from tests.covers import covers
from tests.crash import ledger
from tests.crash.lab import FULL
from tests.crash.nursery import Child, Nursery
from tests.crash.racing import MAIN, Race, state_of
from tests.stores.postgres.server import reused_address_at
from tests.waiting import DEADLINE

RACES = 12 if FULL else 1
SAVES = 24
THREADS = 200
HOUR = 3600 * 10**9


@pytest.fixture(params=["sqlite", "directory", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes can open."""
    if request.param == "postgres":
        return reused_address_at(tmp_path)
    return f"dir:{tmp_path}/agents" if request.param == "directory" else str(tmp_path / "agent.db")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


# -- processes ---------------------------------------------------------------------------------------------------------


@covers("A15", "D1")
@pytest.mark.parametrize("seed", range(RACES))
def test_saving_forking_pruning_and_merging_at_once(nursery: Nursery, shared: str, tmp_path: Path, seed: int) -> None:
    holdfast.open(shared, durability="off").close()
    saves = SAVES // 3 if shared.startswith("postgresql:") else SAVES
    parts = [
        Race(shared, "save", saves),
        Race(shared, "fork", saves // 2, 2 * seed),
        Race(shared, "fork", saves // 2, 2 * seed + 1),
        Race(shared, "prune", saves),
        Race(shared, "optimize", saves // 2),
    ]
    children: list[Child] = []
    try:
        for at, part in enumerate(parts):
            task = tmp_path / f"task-{at}"
            task.write_bytes(msgspec.json.encode(part))
            children.append(nursery.start("tests.crash.racing:race", task))
        for part, child in zip(parts, children, strict=True):
            child.wait_for_end()
            assert child.failure is None, f"{part.role}: {child.failure}"
    finally:
        for child in children:
            child.close()
    told = [line.split() for child in children for line in child.lines]
    with holdfast.open(shared, durability="off") as hf:
        latest = hf.thread(MAIN).latest()
        assert latest is not None
        assert (latest.seq, latest.state) == (saves, state_of(saves - 1))
        for checkpoint in hf.thread(MAIN).history():
            assert hf.thread(MAIN).load(checkpoint).state == state_of(checkpoint.seq - 1)
        forks = {words[1]: int(words[2]) for words in told if words[0] == "forked"}
        assert {info.name for info in hf.threads()} == {MAIN, *forks}
        for name, n in forks.items():
            started, gone_on = (hf.thread(name).load(ref).state for ref in ("@-2", "@-1"))
            assert started == state_of(n)
            assert gone_on["messages"] == [*started["messages"], {"role": "user", "content": name}]
        report = hf.verify()
        assert report.ok, report.problems
    kind = {"dir": "directory", "postgresql": "postgres"}.get(shared.partition(":")[0], "sqlite")
    ledger.note("saving, forking, pruning and merging at once", kind, races=1)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_forks_while_its_threads_save(shared: str) -> None:
    with holdfast.open(shared, durability="off") as hf:
        is_over = threading.Event()
        failures: list[BaseException] = []
        saved = [0] * 4

        def work(at: int) -> None:
            try:
                while not is_over.is_set():
                    hf.thread(f"thread-{at}").save({"n": saved[at] + 1, "text": "word " * 500})
                    saved[at] += 1
            except BaseException as failure:
                failures.append(failure)
                raise

        workers = [threading.Thread(target=work, args=(at,)) for at in range(len(saved))]
        for worker in workers:
            worker.start()
        try:
            children = [_forked(hf, f"child-{n}") for n in range(6)]
            ended = [os.waitpid(child, 0)[1] for child in children]
        finally:
            is_over.set()
            for worker in workers:
                worker.join(DEADLINE)
        assert not failures
        assert ended == [0] * len(children)
        for at, count in enumerate(saved):
            latest = hf.thread(f"thread-{at}").latest()
            assert (0 if latest is None else latest.state["n"]) == count
        for n in range(len(children)):
            latest = hf.thread(f"child-{n}").latest()
            assert latest is not None
            assert latest.state == {"n": 3}
        report = hf.verify()
        assert report.ok, report.problems


def _forked(hf: Holdfast, name: str) -> int:
    """A child that saves by the handle that it inherited; its process id."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(DEADLINE))
        code = 1
        try:
            for n in range(1, 4):
                hf.thread(name).save({"n": n})
            code = 0 if [checkpoint.seq for checkpoint in hf.thread(name).history()] == [3, 2, 1] else 2
        finally:
            os._exit(code)
    return child


# -- threads -----------------------------------------------------------------------------------------------------------


@covers("smooth/SqliteCheckpointStore.concurrent_saves", "smooth/CheckpointStore.list.states")
@covers("smooth/CheckpointStore.list.agent")
def test_two_hundred_threads_on_one_handle(hf: Holdfast) -> None:
    failures: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def work(at: int) -> None:
        try:
            begin.wait(DEADLINE)
            hf.thread("everybody's").save({"by": at}, expect=holdfast.ANY)
            own = hf.thread(f"own-{at}")
            own.save({"n": at, "text": "word " * 100})
            latest = own.latest()
            assert latest is not None
            assert latest.state["n"] == at
        except BaseException as failure:
            failures.append(failure)
            raise

    workers = [threading.Thread(target=work, args=(at,)) for at in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(DEADLINE)
    assert not any(worker.is_alive() for worker in workers)
    assert not failures
    states = [hf.thread("everybody's").load(checkpoint).state for checkpoint in hf.thread("everybody's").history()]
    assert sorted(state["by"] for state in states) == list(range(THREADS))
    assert len(list(hf.threads())) == THREADS + 1
    assert hf.verify().ok


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The wall clock, in nanoseconds: what the test writes there."""
    now = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now[0] / 10**9)
    return now


@covers("B1", "B2", "B3", "ares/CheckpointManager.load_latest", "smooth/CheckpointStore.load_latest")
@covers("cortex/CheckpointStore.load_latest", "cortex/CheckpointManager.load_latest")
def test_the_order_is_that_of_the_saves_whatever_the_clock_says(hf: Holdfast, wall: list[int]) -> None:
    thread = hf.thread("t")
    for n, jump in enumerate([0, 24 * HOUR, -48 * HOUR, 0, 0, -1, HOUR, 0]):
        wall[0] += jump
        thread.save({"n": n})
        latest = hf.thread("t").latest()
        assert latest is not None
        assert latest.state == {"n": n}
    listed = list(thread.history())
    assert [checkpoint.seq for checkpoint in listed] == list(range(8, 0, -1))
    assert len({checkpoint.id for checkpoint in listed}) == len(listed)
    assert thread.load("@-3").state == {"n": 5}
    wall[0] -= 100 * HOUR
    fork = thread.fork("fork", at="@-2")
    started = fork.latest()
    assert started is not None
    assert started.state == {"n": 6}
    pruned = thread.prune(Retention(keep_last=2))
    assert [checkpoint.seq for checkpoint in pruned.removed] == [6, 5, 4, 3, 2, 1]
    assert hf.verify().ok


@covers("B3")
@pytest.mark.parametrize("jump", [-24 * HOUR, 24 * HOUR])
def test_a_lease_does_not_end_because_the_wall_clock_jumps(hf: Holdfast, wall: list[int], jump: int) -> None:
    with hf.run("t", start={"n": 0}, lease=30) as run:
        wall[0] += jump
        with pytest.raises(LeaseHeld):
            hf.run("t").__enter__()
        with pytest.raises(LeaseHeld):
            hf.thread("t").save({"n": 7}, expect=holdfast.ANY)
        assert not list(hf.interrupted())
        run.state["n"] = 1
        run.save()
    latest = hf.thread("t").latest()
    assert latest is not None
    assert latest.state == {"n": 1}


# -- tasks -------------------------------------------------------------------------------------------------------------


class CancelledAt:
    """Awaits something, and is cancelled where that awaits for the n-th time."""

    def __init__(self, inner: Any, n: int) -> None:
        self._inner = inner
        self._left = n

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._inner.__await__()
        step: Callable[[], Any] = lambda: next(steps)  # noqa: E731 - which step comes next is decided below
        while True:
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            self._left -= 1
            if self._left:
                yield waited_for
                step = lambda: next(steps)  # noqa: E731
            else:
                waited_for._asyncio_future_blocking = False
                step = lambda: steps.throw(asyncio.CancelledError())  # noqa: E731


@covers("A16")
def test_cancelled_at_every_await_a_thread_goes_on(hf: Holdfast) -> None:
    """At the first await, the second, the third …: what was called before is there, whole; what comes next works."""

    async def work(thread: Any, done: list[str]) -> None:
        for n in (1, 2):
            await thread.save({"n": n, "text": "word " * 50})
            done.append(f"save {n}")
        assert (await thread.latest()).state["n"] == 2
        assert (await thread.load("@-2")).state["n"] == 1
        assert [checkpoint.seq async for checkpoint in thread.history()] == [2, 1]
        await thread.rewind("@-2")
        done.append("rewind")
        fork = await thread.fork(f"{thread.name}/fork")
        await fork.save({"n": 8})
        done.append("fork")
        await thread.save({"n": 3})
        done.append("save 3")

    async def cut(at: int) -> bool:
        thread = hf.aio.thread(f"t{at}")
        done: list[str] = []
        try:
            await CancelledAt(work(thread, done), at)
            was_cancelled = False
        except asyncio.CancelledError:
            was_cancelled = True
        # The same handle goes on: whether the verb that was cancelled was done, it knows.
        count = await thread.count()
        saved = await thread.save({"n": 9})
        assert saved.seq in (count + 1, count + 2), done  # a save that was cancelled may have been on its way
        states = [(await thread.load(checkpoint)).state["n"] async for checkpoint in thread.history()]
        made = [n for n in (1, 2, 3) if f"save {n}" in done]
        assert states[0] == 9
        assert states[1:][::-1][: len(made)] == made
        assert states[1:][::-1] in ([1, 2, 3][: len(made)], [1, 2, 3][: len(made) + 1])
        latest = await hf.aio.thread(thread.name).latest()
        assert latest is not None
        assert latest.id == saved.id
        return was_cancelled

    at = 1
    while asyncio.run(asyncio.wait_for(cut(at), DEADLINE)):
        at += 1
    assert at > 8
    assert hf.verify().ok
