"""Limits of a handler: held across processes that share the store, also when workers are killed."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Run
from holdfast.errors import InvalidArgument
from tests.runs.conftest import World, stop_renewing
from tests.selection import every_store

DEADLINE = 180.0


# -- counted by the handlers themselves -------------------------------------------------------------------------------


def held_now(folder: Path) -> int:
    """How many handlers run now, in all processes: each holds a lock, which ends with its process.

    The probe is a shared lock, so that a handler that counts at the same time does not take it for a running handler.
    """
    count = 0
    for path in folder.glob("*.lock"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                count += 1
    return count


def counting(folder: Path, seconds: float) -> Callable[[Run], None]:
    """A handler that notes how many run at the same time as itself."""

    def handler(run: Run) -> None:
        path = folder / f"{uuid.uuid4().hex}.lock"
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            note = path.with_suffix(".count")
            note.write_text(f"{held_now(folder)} {run.thread}")
            note.rename(folder.parent / "counts" / f"{time.time_ns()}-{path.name}")  # whole, also if this is killed
            time.sleep(seconds)
        path.unlink()

    return handler


def work(url: str, folder: str, limit: int, seconds: float, lease: float) -> None:
    """A worker process with four loops."""
    limited = holdfast.handler(concurrency=limit)(counting(Path(folder), seconds))
    with holdfast.open(url, durability="off") as hf:
        hf.worker({"limited": limited, "free": lambda run: None}, concurrency=4, lease=lease, attempts=50).run()


class Workers:
    """Worker processes that can be killed."""

    def __init__(self, *arguments: object) -> None:
        code = "import sys; from tests.runs.test_limits import work; a = sys.argv[1:]; "
        code += "work(a[0], a[1], int(a[2]), float(a[3]), float(a[4]))"
        self._command = [sys.executable, "-c", code, *map(str, arguments)]
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.running.append(subprocess.Popen(self._command, cwd=Path(__file__).parents[2]))

    def kill_one(self) -> None:
        victim = self.running.pop(0)
        victim.kill()
        victim.wait()

    def stop(self) -> None:
        for each in self.running:
            each.send_signal(signal.SIGTERM)
        for each in self.running:
            each.wait()


@every_store("each store counts the leases in its own transaction")
def test_the_maximum_holds_across_processes_that_are_killed(url: str, tmp_path: Path) -> None:
    if url == "memory:":
        pytest.skip("one process")
    folder, counts = tmp_path / "held", tmp_path / "counts"
    folder.mkdir()
    counts.mkdir()
    with holdfast.open(url, durability="off") as hf:
        for number in range(14):
            hf.submit("limited", f"t{number}", start={})
        workers = Workers(url, folder, 2, 0.15, 20.0)
        try:
            for _ in range(3):
                workers.start()
            deadline = time.monotonic() + DEADLINE
            for killed in range(1, 4):
                while len(list(counts.iterdir())) < killed * 3:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                workers.kill_one()
                workers.start()
            while list(hf.threads(status="completed", prefix="t")) == [] or any(
                info.status != "completed" for info in hf.threads(prefix="t")
            ):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            workers.stop()
    seen = [int(path.read_text().split()[0]) for path in counts.iterdir()]
    assert max(seen) == 2, seen
    assert len(seen) >= 14


@every_store("each store counts the leases in its own transaction")
def test_a_handler_at_its_limit_does_not_hold_up_others(hf: Holdfast) -> None:
    for number in range(60):
        hf.submit("limited", f"limited {number}", start={}, priority=5)
    hf.submit("free", "free", start={})
    ran: list[str] = []
    ran_before_free: list[str] = []
    is_free_done = threading.Event()

    def limited(run: Run) -> None:
        ran.append(run.thread)
        assert is_free_done.wait(DEADLINE)

    def free(run: Run) -> None:
        ran_before_free.extend(ran)
        is_free_done.set()

    declared = holdfast.handler(concurrency=1)(limited)
    worker = hf.worker({"limited": declared, "free": free}, concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert is_free_done.wait(DEADLINE)
        assert set(ran_before_free) <= {"limited 0"}
    finally:
        is_free_done.set()
        worker.stop()
        thread.join()


def test_a_worker_at_a_limit_does_not_spin(world: World) -> None:
    with world.open().run("by hand", start={}, agent="limited"):
        claims: list[float] = []

        def counted(store: Any) -> Any:
            claim = store.claim

            def counting_claim(*args: Any) -> Any:
                claims.append(time.monotonic())
                return claim(*args)

            store.claim = counting_claim
            return store

        hf = world.open(store=counted)
        for number in range(20):
            hf.submit("limited", f"t{number}", start={})
        worker = hf.worker({"limited": holdfast.handler(concurrency=1)(lambda run: None)}, concurrency=4)
        thread = threading.Thread(target=worker.run)
        thread.start()
        time.sleep(1.2)
        worker.stop()
        thread.join()
    assert 1 <= len(claims) <= 4 * 4, "at most one for each loop and each half of a second"


def test_a_worker_that_died_holds_its_slot_until_its_lease_ends(world: World) -> None:
    hf = world.open()
    hf.submit("limited", "first", start={})
    stop_renewing(world.open().run("first", start={}, lease=30.0).__enter__())  # whether it died is unknown
    hf.submit("limited", "second", start={}, priority=1)
    ran: list[str] = []
    handlers = {"limited": holdfast.handler(concurrency=1)(lambda run: ran.append(run.thread))}
    world.open().worker(handlers).run(until_idle=True)
    assert ran == []
    world.pass_time(31)
    world.open().worker(handlers).run(until_idle=True)
    assert ran == ["second", "first"]


def test_due_runs_of_a_handler_at_its_limit_are_queued(world: World) -> None:
    """So that they are not read again at every look."""
    hf = world.open()

    def sleeper(run: Run) -> str:
        run.sleep(10)
        return "slept"

    for number in range(3):
        hf.submit("limited", f"t{number}", start={})
    hf.worker({"limited": sleeper}).run(until_idle=True)
    world.pass_time(20)
    with world.open().run("by hand", start={}, agent="limited"):
        limited = holdfast.handler(concurrency=1)(sleeper)
        world.open().worker({"limited": limited}).run(until_idle=True)
        assert len(hf.context.store.due(limit=9)) <= 1, "that is the one whose claim was refused"
    world.open().worker({"limited": limited}).run(until_idle=True)
    assert [hf.result(f"t{number}") for number in range(3)] == ["slept"] * 3


# -- rates ------------------------------------------------------------------------------------------------------------


def test_a_rate_holds_across_handles(world: World) -> None:
    """By the clock of the store, which the test moves."""
    for number in range(7):
        world.open().submit("h", f"t{number}", start={})
    ran: list[str] = []
    limited = holdfast.handler(rate="3/minute")(lambda run: ran.append(run.thread))

    def works() -> int:
        before = len(ran)
        world.open().worker({"h": limited}).run(until_idle=True)
        return len(ran) - before

    assert works() == 3
    assert works() == 0
    world.pass_time(59)
    assert works() == 0
    world.pass_time(1)
    assert works() == 3
    world.pass_time(61)
    assert works() == 1


def test_resumed_runs_count_for_the_rate(world: World) -> None:
    calls: list[str] = []

    def handler(run: Run) -> Any:
        calls.append(run.thread)
        return run.wait("ask")

    hf = world.open()
    limited = holdfast.handler(rate="1/hour")(handler)
    hf.submit("h", "t", start={})
    hf.worker({"h": limited}).run(until_idle=True)
    hf.answer("t", "ask", 1)
    world.open().worker({"h": limited}).run(until_idle=True)
    assert calls == ["t"]
    world.pass_time(3600)
    world.open().worker({"h": limited}).run(until_idle=True)
    assert hf.result("t") == 1


def test_a_rate_survives_a_restart_of_the_machine(world: World) -> None:
    ran: list[str] = []
    limited = holdfast.handler(rate="2/day")(lambda run: ran.append(run.thread))
    for number in range(4):
        world.open().submit("h", f"t{number}", start={})
    world.open().worker({"h": limited}).run(until_idle=True)
    world.boot = "boot-2"
    world.open().worker({"h": limited}).run(until_idle=True)
    assert ran == ["t0", "t1"]


@every_store("each store keeps the window in its own way, and counts by its own clock")
def test_a_rate_in_real_time(hf: Holdfast) -> None:
    for number in range(5):
        hf.submit("h", f"t{number}", start={})
    times: list[float] = []
    done = threading.Event()

    def handler(run: Run) -> None:
        times.append(time.monotonic())
        if len(times) == 5:
            done.set()

    limited = holdfast.handler(rate="2/second")(handler)
    workers = [hf.worker({"h": limited}, concurrency=2) for _ in range(2)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        assert done.wait(DEADLINE)
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
    # A handler starts some time after its claim, so the times are compared with some room.
    assert times[4] - times[0] >= 1.5, times


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number, 1 or more"),
        ({"concurrency": 1.5}, "concurrency must be a whole number, 1 or more"),
        ({"rate": "fast"}, 'rate must be like "10/minute"'),
        ({"rate": "0/minute"}, 'rate must be like "10/minute"'),
        ({"rate": "10/week"}, 'rate must be like "10/minute"'),
        ({"rate": "10 / minute"}, 'rate must be like "10/minute"'),
        ({"rate": "1001/second"}, 'rate must be like "10/minute"'),
        ({"rate": 10}, 'rate must be like "10/minute"'),
        ({}, "handler needs at least one of"),
    ],
)
def test_a_limit_is_checked_when_it_is_declared(options: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        holdfast.handler(**options)


def test_recover_leaves_runs_above_the_limit_alone(world: World) -> None:
    hf = world.open()
    with world.dying("t", start={}, agent="h"):
        pass
    limited = holdfast.handler(concurrency=1)(lambda run: "resumed")
    with world.open().run("by hand", start={}, agent="h"):
        assert hf.recover({"h": limited}) == []
    [info] = hf.recover({"h": limited})
    assert info.result == "resumed"


def test_async_handlers_have_limits(world: World) -> None:
    hf = world.open()
    for number in range(5):
        hf.submit("h", f"t{number}", start={})
    now, most = 0, 0

    @holdfast.handler(concurrency=2)
    async def handler(_run: Any) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1

    hf.worker({"h": handler}, concurrency=5).run(until_idle=True)
    assert 1 <= most <= 2
    assert [info.status for info in hf.threads()] == ["completed"] * 5
