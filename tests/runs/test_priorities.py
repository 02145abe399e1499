"""Runs with a higher priority are taken first, then older ones, on every store and by any number of workers."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Run
from holdfast.errors import InvalidArgument
from tests.runs.conftest import World
from tests.selection import every_store


def order_of(hf: Holdfast, **options: Any) -> list[str]:
    """The threads in the order in which a worker runs them."""
    order: list[str] = []
    hf.worker({"h": lambda run: order.append(run.thread)}, **options).run(until_idle=True)
    return order


@every_store("each store orders its queue in its own way")
def test_a_higher_priority_first_then_the_older(hf: Holdfast) -> None:
    for name, priority in (("c", 0), ("a", 9), ("d", 0), ("b", 9), ("e", -1)):
        hf.submit("h", name, start={}, priority=priority)
    hf.submit("h", "default", start={})
    info = hf.run_info("a")
    assert info is not None
    assert info.priority == 9
    assert order_of(hf) == ["a", "b", "c", "d", "default", "e"]


@every_store("each store orders its queue in its own way")
def test_the_order_holds_across_handlers_and_workers(hf: Holdfast) -> None:
    for number in range(24):
        hf.submit(f"h{number % 2}", f"t{number}", start={}, priority=number % 3)
    taken: list[int] = []
    lock = threading.Lock()

    def handler(run: Run) -> None:
        with lock:
            taken.append(int(run.thread[1:]) % 3)

    workers = [hf.worker({"h0": handler, "h1": handler}) for _ in range(3)]
    threads = [threading.Thread(target=worker.run, kwargs={"until_idle": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 24
    # Three workers at a time: a run is taken before at most two of a higher priority, which other workers hold.
    for place, priority in enumerate(taken):
        assert sum(later > priority for later in taken[place + 1 :]) <= 2, taken


def test_interrupted_and_due_runs_have_their_priority_too(world: World) -> None:
    hf = world.open()
    at = datetime.now(UTC) + timedelta(seconds=60)
    hf.submit("h", "queued", start={}, priority=1)
    hf.submit("h", "due", start={}, priority=2, at=at)
    hf.submit("h", "died", start={}, priority=3)
    hf.submit("h", "due first", start={}, priority=5, at=at)
    hf.submit("h", "last", start={})
    with world.dying("died", start={}):
        pass
    world.pass_time(120)
    assert order_of(world.open()) == ["due first", "died", "due", "queued", "last"]


def test_a_run_keeps_its_priority(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={}, priority=7)

    def handler(run: Run) -> Any:
        return run.wait("ask")

    hf.worker({"h": handler}).run(until_idle=True)
    hf.submit("h", "other", start={}, priority=1)
    hf.answer("t", "ask", "yes")
    hf.answer("other", "ask", "yes", early=True)
    ran: list[str] = []

    def again(run: Run) -> Any:
        ran.append(run.thread)
        return run.wait("ask")

    hf.worker({"h": again}).run(until_idle=True)
    assert ran == ["t", "other"]


@pytest.mark.parametrize("priority", [101, -101, 1.0, True, "1", None])
def test_a_priority_is_a_small_whole_number(hf: Holdfast, priority: Any) -> None:
    with pytest.raises(InvalidArgument, match="priority must be a whole number from -100 to 100"):
        hf.submit("h", "t", start={}, priority=priority)
    assert list(hf.threads()) == []


def test_async_submit() -> None:
    with holdfast.open("memory:") as hf:
        asyncio.run(hf.aio.submit("h", "t", start={}, priority=4))
        info = hf.run_info("t")
        assert info is not None
        assert info.priority == 4
