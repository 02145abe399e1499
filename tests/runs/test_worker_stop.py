"""Where a worker's idle loops wait: stopping lets all of them go, an announcement one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast import Holdfast, Run
from holdfast.runs.worker import LoopSignal
from tests.selection import every_store
from tests.waiting import DEADLINE

NEVER = 3600.0


@contextmanager
def waiting(stop: LoopSignal, loops: int) -> Iterator[threading.Semaphore]:
    """So many loops that wait once; each says when it was let go."""
    gone = threading.Semaphore(0)

    def loop() -> None:
        stop.wait(NEVER)
        gone.release()

    threads = [threading.Thread(target=loop) for _ in range(loops)]
    for each in threads:
        each.start()
    try:
        yield gone
    finally:
        stop.set()
        for each in threads:
            each.join(DEADLINE)
            assert not each.is_alive()


def test_stopping_lets_all_go_now_and_later() -> None:
    stop = LoopSignal(3)
    with waiting(stop, 3) as gone:
        assert not stop.is_set()
        stop.set()
        assert all(gone.acquire(timeout=DEADLINE) for _ in range(3))
    assert stop.is_set()
    stop.wait(NEVER)


def test_an_announcement_lets_one_go() -> None:
    stop = LoopSignal(3)
    with waiting(stop, 3) as gone:
        stop.announce()
        assert gone.acquire(timeout=DEADLINE)
        assert not gone.acquire(blocking=False)
        assert not stop.is_set()


def test_what_is_announced_while_nobody_waits_is_remembered_as_often_as_there_are_loops() -> None:
    stop = LoopSignal(2)
    for _ in range(10):
        stop.announce()
    stop.wait(NEVER)
    stop.wait(NEVER)
    began = time.monotonic()
    stop.wait(0.05)
    assert time.monotonic() - began >= 0.05


def test_a_signal_may_stop_whoever_is_at_it() -> None:
    stop = LoopSignal(1)
    with stop._changed:  # where a signal may find the main thread
        stop.set()
    assert stop.is_set()


@every_store("a worker waits for each store in its own way")
def test_sigterm_ends_a_worker_that_would_not_look_for_long(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runs.work_queue._IDLE_SECONDS", NEVER)

    def handler(run: Run) -> None:
        raise AssertionError

    worker = hf.worker({"h": handler}, concurrency=2)
    idle = threading.Semaphore(0)
    wait = worker._stop.wait

    def said(seconds: float) -> None:
        idle.release()
        wait(seconds)

    monkeypatch.setattr(worker._stop, "wait", said)

    def terminate() -> None:
        assert idle.acquire(timeout=DEADLINE)
        assert idle.acquire(timeout=DEADLINE)
        os.kill(os.getpid(), signal.SIGTERM)

    terminating = threading.Thread(target=terminate)
    terminating.start()
    worker.run()
    terminating.join(DEADLINE)
