"""The result of a run: read without claiming it, at once or when it is there."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from holdfast import InvalidArgument, NotFound, Run
from holdfast.errors import Unfinished
from tests.runs.conftest import World
from tests.selection import every_store
from tests.waiting import DEADLINE


def completed(world: World, thread: str = "t", **options: Any) -> None:
    with world.running(thread, ends="completed", start={}, **options) as run:
        run.finish({"answer": 42})


@every_store("the record of a run is read")
def test_a_completed_run_has_its_result(world: World) -> None:
    completed(world)
    hf = world.open()
    assert hf.result("t") == {"answer": 42}
    info = hf.run_info("t")
    assert info is not None
    assert info.result == {"answer": 42}
    assert asyncio.run(hf.aio.result("t")) == {"answer": 42}


@every_store("nothing is claimed")
def test_a_queued_run_is_not_claimed_and_a_worker_takes_it(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})
    with pytest.raises(Unfinished, match=r"^the run of thread 't' is queued and has no result yet"):
        hf.result("t")
    with pytest.raises(Unfinished, match="queued"):
        asyncio.run(hf.aio.result("t", wait=0.1))
    world.open().worker({"h": lambda run: "done"}).run(until_idle=True)
    assert hf.result("t") == "done"


@pytest.mark.parametrize("is_async", [False, True])
def test_it_waits_for_a_run_that_another_process_completes(world: World, is_async: bool) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})

    def work(run: Run) -> str:
        time.sleep(0.2)
        return "done"

    worker = threading.Thread(target=world.open().worker({"h": work}).run, kwargs={"until_idle": True})
    worker.start()
    try:
        found = asyncio.run(hf.aio.result("t", wait=DEADLINE)) if is_async else hf.result("t", wait=DEADLINE)
        assert found == "done"
    finally:
        worker.join()


@pytest.mark.parametrize("status", ["failed", "halted"])
def test_a_run_that_ended_without_a_result_is_not_waited_for(world: World, status: str) -> None:
    if status == "failed":
        with world.failing("t", ValueError, start={}):
            raise ValueError("no money")
    else:
        with world.running("t", ends="halted", start={}) as run:
            run.halt("no money")
    started = time.monotonic()
    with pytest.raises(Unfinished, match=rf"is {status} and has no result \(.*no money"):
        world.open().result("t", wait=DEADLINE)
    assert time.monotonic() - started < DEADLINE / 2


def test_the_result_of_an_earlier_turn(world: World) -> None:
    for turn in ("one", "two"):
        with world.running("t", ends="completed", start={}, turn=turn) as run:
            run.finish(f"result of {turn}")
    hf = world.open()
    assert (hf.result("t"), hf.result("t", turn="one"), hf.result("t", turn="two")) == (
        "result of two",
        "result of one",
        "result of two",
    )
    with pytest.raises(Unfinished, match="turn 'three' of thread 't' has no result yet"):
        hf.result("t", turn="three")


def test_a_rewound_run_has_no_result(world: World) -> None:
    completed(world)
    hf = world.open()
    hf.thread("t").rewind("@0", past_effects=True)
    with pytest.raises(Unfinished, match="was rewound"):
        hf.result("t")


def test_a_thread_without_a_run_has_no_result(world: World) -> None:
    hf = world.open()
    with pytest.raises(NotFound, match="there is no thread 't'"):
        hf.result("t")
    hf.thread("t").save({})
    with pytest.raises(NotFound, match="thread 't' has no run"):
        hf.result("t")
    assert hf.run_info("t") is None


@pytest.mark.parametrize("wait", [-1, float("inf"), "1", True])
def test_a_wait_that_is_no_number_of_seconds_is_refused(world: World, wait: Any) -> None:
    completed(world)
    with pytest.raises(InvalidArgument, match="wait must be a number of seconds"):
        world.open().result("t", wait=wait)


# -- entering a queued run -------------------------------------------------------------------------------------------


@every_store("nothing is claimed")
def test_entering_a_queued_run_says_what_to_use_instead(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={"n": 1})
    with pytest.raises(Unfinished, match=r"hf\.result\('t', wait=…\)"), hf.run("t"):
        pytest.fail("entered")
    assert [info.status for info in hf.threads()] == ["queued"]
    world.open().worker({"h": lambda run: run.state["n"]}).run(until_idle=True)
    assert hf.result("t") == 1


def test_a_queued_run_can_be_entered_with_its_start(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={"n": 1})
    with world.running("t", ends="completed", start={"n": 1}) as run:
        run.finish(run.state["n"])
    assert hf.result("t") == 1


def test_a_run_without_a_handler_that_was_answered_is_entered_without_a_start(world: World) -> None:
    with world.running("t", ends="waiting", start={}) as run:
        run.wait("approve")
    hf = world.open()
    hf.answer("t", "approve", True)
    with world.running("t") as run:
        assert run.wait("approve") is True
