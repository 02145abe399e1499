"""A call that can still act: "not done" does not count yet, in whatever process and for whatever reason."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, GiveUp, Happened, Holdfast, NotDone
from tests.runs.conftest import Crash, World
from tests.stores.postgres.server import reused_address_at
from tests.waiting import DEADLINE, until

TIMEOUT = 10.0
SOON = 0.05


class Bank:
    """Pays when a request arrives, which may be long after it was sent. Its probe reports what it did so far."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.paid: list[str] = []
        self.probes = 0
        self.go_on = threading.Event()
        self.fault: BaseException | None = None

    def send(self, what: str) -> str:
        """Send a request. It arrives with `arrive`."""
        self.requests.append(what)
        if self.fault is not None:
            raise self.fault
        self.arrive()
        return f"paid {what}"

    def slow(self, what: str) -> str:
        """Send a request after a long time. A second one is a mistake, and is not waited for."""
        self.requests.append(what)
        assert len(self.requests) == 1, "sent twice"
        assert self.go_on.wait(DEADLINE)
        self.paid.append(what)
        return f"paid {what}"

    def arrive(self) -> None:
        self.paid = list(self.requests)

    def was_paid(self, what: str) -> Happened | NotDone:
        self.probes += 1
        return Happened(f"found {what}") if what in self.paid else NotDone()


@pytest.fixture
def bank() -> Iterator[Bank]:
    made = Bank()
    yield made
    made.go_on.set()


def tool_of(bank: Bank, function: Callable[..., Any], **declared: Any) -> Any:
    return holdfast.tool(**{"name": "pay", "probe": bank.was_paid, **declared})(lambda what: function(what))  # noqa: PLW0108 - a new function each time


def status_of(hf: Holdfast) -> str:
    info = hf.run_info("t")
    assert info is not None
    return info.status


def resume(world: World, pay: Any, ends: str) -> Any:
    """Resume the run in another process, and return the result of its call."""
    found: list[Any] = []
    with world.running("t", ends=ends) as run:
        found.append(run.tool(pay, {"what": "rent"}, key="k"))
    return found[0] if found else None


# -- the function is still running ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True], ids=["sync run", "async run"])
def test_a_late_thread_is_known_in_other_processes(world: World, bank: Bank, is_async: bool) -> None:
    """The tool took longer than its timeout and continues. Another process resumes the run meanwhile."""
    pay = tool_of(bank, bank.slow, timeout=SOON, retry=holdfast.Retry(3, first=0))
    hf = world.open(pay)

    async def run_async() -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(pay, {"what": "rent"}, key="k")

    if is_async:
        asyncio.run(run_async())
    else:
        with hf.run("t", start={}) as run:
            run.tool(pay, {"what": "rent"}, key="k")
    for _ in range(2):
        world.pass_time(3600)
        resume(world, pay, "waiting")
    assert bank.requests == ["rent"]
    with pytest.raises(Conflict, match="still running its function"):
        world.open().settle("t", 1, NotDone())
    bank.go_on.set()
    until(lambda: status_of(hf) == "queued")
    assert resume(world, pay, "idle") == "paid rent"
    assert bank.paid == bank.requests == ["rent"]


def test_a_late_thread_that_fails_leaves_the_call_to_its_probe(world: World, bank: Bank) -> None:
    """The time in which the service may act counts from the end of the function, as it took longer than declared."""

    def fail(what: str) -> str:
        bank.requests.append(what)
        if len(bank.requests) == 1:
            assert bank.go_on.wait(DEADLINE)
            raise ConnectionError
        return "paid"

    pay = tool_of(bank, fail, timeout=SOON)
    hf = world.open()
    with world.running("t", hf, ends="waiting", start={}) as run:
        run.tool(pay, {"what": "rent"}, key="k")
    world.pass_time(3600)
    bank.go_on.set()
    until(lambda: status_of(hf) == "queued")
    assert resume(world, pay, "waiting") is None
    world.pass_time(2)
    with pytest.raises(ConnectionError), hf.run("t") as run:
        run.tool(pay, {"what": "rent"}, key="k")
    assert bank.requests == ["rent"]
    assert resume(world, pay, "idle") == "paid"


def test_after_the_death_of_a_process_whose_thread_was_late_a_person_is_asked(world: World, bank: Bank) -> None:
    """The timeout was wrong for this call, so it does not bound what the call has sent."""
    pay = tool_of(bank, bank.slow, timeout=SOON)
    with world.dying("t", start={}) as run, pytest.raises(BaseException):  # noqa: B017, PT011 - the suspension
        run.tool(pay, {"what": "rent"}, key="k")
    world.pass_time(3600)
    assert resume(world, pay, "waiting") is None
    [question] = world.open().waiting()
    assert question.payload == {"what": "rent"}
    assert bank.requests == ["rent"]
    world.open().settle("t", question.effect, NotDone())


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_a_tool_runs_in_its_thread(world: World, bank: Bank) -> None:
    """In a notebook: the cell is interrupted and run again, and the thread of the tool still runs."""
    pay = tool_of(bank, bank.slow, timeout=DEADLINE)
    hf = world.open()

    def interrupt() -> None:
        until(lambda: bool(bank.requests))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt), hf.run("t", start={}) as run:
        run.tool(pay, {"what": "rent"}, key="k")
    thread.join()
    for _ in range(2):
        world.pass_time(3600)
        assert resume(world, pay, "waiting") is None
    bank.go_on.set()
    until(lambda: status_of(hf) == "queued")
    assert resume(world, pay, "idle") == "paid rent"
    assert bank.paid == bank.requests == ["rent"]


def test_ctrl_c_inside_a_tool(world: World, bank: Bank) -> None:
    """The function has ended, and its request is on its way."""
    pay = tool_of(bank, bank.send, probe_after=TIMEOUT)
    bank.fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), world.open().run("t", start={}) as run:
        run.tool(pay, {"what": "rent"}, key="k")
    bank.fault = None  # if the request is sent again, it arrives
    assert resume(world, pay, "waiting") is None
    bank.arrive()
    assert resume(world, pay, "idle") == "found rent"
    assert bank.requests == ["rent"]


# -- the request is on its way ----------------------------------------------------------------------------------------


def test_a_killed_worker_whose_request_is_in_flight(world: World, bank: Bank) -> None:
    pay = tool_of(bank, bank.send, timeout=100.0)
    bank.fault = Crash()
    with world.dying("t", start={}, lease=1.0) as run:
        run.tool(pay, {"what": "rent"}, key="k")
    assert resume(world, pay, "waiting") is None
    bank.arrive()
    assert resume(world, pay, "idle") == "found rent"
    assert bank.requests == ["rent"]


def test_the_own_timeout_of_a_tool_s_client(world: World, bank: Bank) -> None:
    pay = tool_of(bank, bank.send, timeout=TIMEOUT)
    bank.fault = TimeoutError("read timed out")
    with world.running("t", start={}, ends="waiting") as run:
        run.tool(pay, {"what": "rent"}, key="k")
    bank.arrive()
    assert resume(world, pay, "idle") == "found rent"
    assert bank.requests == ["rent"]


def test_a_worker_that_is_cut_off_from_its_store(world: World, bank: Bank) -> None:
    """Nobody can prove that it is dead, and its tool acts after its lease and its timeout have passed."""
    pay = tool_of(bank, bank.send, timeout=TIMEOUT)
    bank.fault = Crash()
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(pay, {"what": "rent"}, key="k")
    world.pass_time(3600)
    assert resume(world, pay, "waiting") is None
    bank.arrive()
    assert bank.requests == bank.paid == ["rent"]
    assert resume(world, pay, "idle") == "found rent"


# -- "not done" counts afterwards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [{"timeout": TIMEOUT}, {"probe_after": 12.0}, {"timeout": 5, "probe_after": 12.0}])
@pytest.mark.parametrize("is_proven", [True, False])
def test_not_done_counts_when_the_time_has_passed(
    world: World, bank: Bank, declared: dict[str, float], is_proven: bool
) -> None:
    pay = tool_of(bank, bank.send, **declared)
    bank.fault = Crash()
    with world.dying("t", start={}, lease=1.0, is_proven=is_proven) as run:
        run.tool(pay, {"what": "rent"}, key="k")
    bank.fault = None
    world.pass_time(8)  # 10 since the call
    assert resume(world, pay, "waiting") is None
    assert list(world.open().waiting()) == [], "its probe is called again, so no person is asked"
    world.pass_time(3)
    if not is_proven and "probe_after" not in declared:
        assert resume(world, pay, "waiting") is None
        assert [question.name for question in world.open().waiting()] == ["pay"]
        return
    assert resume(world, pay, "idle") == "paid rent"
    assert bank.probes == 2
    assert bank.requests == ["rent", "rent"]


def test_a_worker_resumes_the_run_when_the_time_has_passed(world: World, bank: Bank) -> None:
    pay = tool_of(bank, bank.send, timeout=TIMEOUT)
    hf = world.open(pay)

    def job(run: Any) -> None:
        run.finish(run.tool("pay", {"what": "rent"}, key="k"))

    bank.fault = Crash()
    hf.submit("job", "t", start={})
    with world.dying("t", hf, start={}, lease=1.0) as run:
        job(run)
    bank.fault = None
    worker = hf.worker({"job": job})
    worker.run(until_idle=True)
    assert (status_of(hf), bank.probes) == ("waiting", 1)
    world.pass_time(11)
    worker.run(until_idle=True)
    assert (status_of(hf), bank.probes) == ("completed", 2)
    assert bank.requests == ["rent", "rent"]


def test_without_a_timeout_not_done_never_counts(world: World, bank: Bank) -> None:
    pay = tool_of(bank, bank.send)
    bank.fault = Crash()
    with world.dying("t", start={}) as run:
        run.tool(pay, {"what": "rent"}, key="k")
    world.pass_time(3600)
    assert resume(world, pay, "waiting") is None
    [question] = world.open().waiting()
    world.open().settle("t", question.effect, NotDone())
    bank.fault = None
    assert resume(world, pay, "idle") == "paid rent"


def test_an_error_is_raised_when_its_call_was_not_done(world: World, bank: Bank) -> None:
    """The program that called the tool gets its error, once it is known that nothing happened."""
    pay = tool_of(bank, bank.send, timeout=TIMEOUT, retry=holdfast.Retry(1, first=0))
    bank.fault = ConnectionError("reset")
    for tries in (1, 2):
        with world.running("t", start={}, ends="waiting") as run:
            run.tool(pay, {"what": "rent"}, key="k")
        assert len(bank.requests) == tries
        world.pass_time(13)
    with world.running("t") as run, pytest.raises(ConnectionError, match="reset"):
        run.tool(pay, {"what": "rent"}, key="k")
    assert len(bank.requests) == 2, "one call and one retry"


def test_a_retried_failure_is_not_raised_by_a_replay(world: World, bank: Bank) -> None:
    """The program did not see it: its call was made again, and returned."""
    pay = tool_of(bank, bank.send, timeout=TIMEOUT, retry=holdfast.Retry(1, first=0))
    bank.fault = ConnectionError("reset")
    with world.running("t", start={}, ends="waiting") as run:
        run.tool(pay, {"what": "rent"}, key="k")
    world.pass_time(13)
    bank.fault = None
    for _ in range(2):
        with world.dying("t") as run:
            assert run.tool(pay, {"what": "rent"}, key="k") == "paid rent"


def test_a_slow_store_does_not_shorten_the_time(world: World, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """The intent takes longer than the margin, so the call starts later: the intent is written again."""
    pay = tool_of(bank, bank.send, timeout=TIMEOUT)
    hf = world.open()
    write, slow = hf.context.store.journal, [0.7]

    def delayed(*args: Any, **kwargs: Any) -> Any:
        time.sleep(slow.pop() if slow else 0)
        return write(*args, **kwargs)

    with world.running("t", hf, start={}) as run:
        monkeypatch.setattr(hf.context.store, "journal", delayed)
        deadlines: list[Any] = []
        bank.arrive = lambda: deadlines.append(run.core.calls().context.journal.entries()[0].deadline)  # type: ignore[method-assign]
        run.tool(pay, {"what": "rent"}, key="k")
        monkeypatch.undo()
    assert deadlines[0].at >= world.clock().now + 12_000 + 700


# -- NotYet -----------------------------------------------------------------------------------------------------------


def test_a_probe_may_answer_that_it_is_too_early_to_tell(world: World, bank: Bank) -> None:
    answers: list[Any] = [holdfast.NotYet(60), holdfast.NotYet, NotDone()]
    pay = tool_of(bank, bank.send, timeout=TIMEOUT, probe=lambda what: answers.pop(0))
    hf = world.open(pay)
    bank.fault = Crash()
    hf.submit("job", "t", start={})

    def job(run: Any) -> None:
        run.finish(run.tool("pay", {"what": "rent"}, key="k"))

    with world.dying("t", hf, start={}) as run:
        job(run)
    bank.fault = None
    worker = hf.worker({"job": job})
    for seconds, left in ((0, 2), (59, 2), (2, 1), (29, 1)):
        world.pass_time(seconds)
        worker.run(until_idle=True)
        assert (status_of(hf), len(answers)) == ("waiting", left)
        assert list(hf.waiting()) == []
    world.pass_time(2)
    worker.run(until_idle=True)
    assert (status_of(hf), answers, bank.paid) == ("completed", [], ["rent", "rent"])


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), "5", None, True])
def test_not_yet_takes_seconds(wrong: Any) -> None:
    with pytest.raises(holdfast.InvalidArgument):
        holdfast.NotYet(wrong)


# -- a person's answer ------------------------------------------------------------------------------------------------


def test_a_person_is_told_that_a_call_may_still_act(world: World, bank: Bank) -> None:
    pay = tool_of(bank, bank.send, timeout=TIMEOUT, probe=None, in_doubt="ask")
    bank.fault = TimeoutError()
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool(pay, {"what": "rent"}, key="k")
    [question] = hf.waiting()
    with pytest.raises(Conflict, match="may still act until"):
        hf.settle("t", question.effect, NotDone())
    assert status_of(hf) == "waiting"
    world.pass_time(13)
    hf.settle("t", question.effect, NotDone())
    assert status_of(hf) == "queued"


@pytest.mark.parametrize("outcome", [NotDone(), Happened("paid"), GiveUp()])
def test_a_person_may_settle_a_call_before_its_time(world: World, bank: Bank, outcome: Any) -> None:
    """Also while the run waits for the probe."""
    pay = tool_of(bank, bank.send, timeout=TIMEOUT)
    bank.fault = TimeoutError()
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool(pay, {"what": "rent"}, key="k")
    hf.settle("t", 1, outcome, force=isinstance(outcome, NotDone))
    assert status_of(hf) == "queued"


# -- two processes ----------------------------------------------------------------------------------------------------

LATE = """
import sys, time
from pathlib import Path
import holdfast

folder = Path(sys.argv[2])

def pay(what):
    with open(folder / "requests", "a") as file:
        file.write("request\\n")
    while not (folder / "go").exists():
        time.sleep(0.01)
    (folder / "paid").touch()
    return "paid"

def was_paid(what):
    return holdfast.Happened("found") if (folder / "paid").exists() else holdfast.NotDone()

pay = holdfast.tool(name="pay", probe=was_paid, timeout=0.05, retry=holdfast.Retry(3, first=0))(pay)
with holdfast.open(sys.argv[1]) as hf:
    with hf.run("t", start={}) as run:
        print("result", run.tool(pay, {"what": "rent"}, key="k"), flush=True)
    print(run.status, flush=True)
    sys.stdin.readline()
"""


class Results:
    """Starts processes until one has the result."""

    def __init__(self, start: Callable[[], str]) -> None:
        self._start = start
        self.last = ""

    def have_one(self) -> bool:
        self.last = self._start()
        return self.last.startswith("result")


@pytest.mark.parametrize("store", ["sqlite", "directory", "postgres"])
def test_a_suspended_run_is_resumed_in_another_process_while_the_thread_lives(tmp_path: Path, store: str) -> None:
    addresses = {
        "sqlite": lambda: str(tmp_path / "agent.db"),
        "directory": lambda: f"dir:{tmp_path / 'agents'}",
        "postgres": lambda: reused_address_at(tmp_path),
    }
    command = [sys.executable, "-c", LATE, addresses[store](), str(tmp_path)]
    started: list[subprocess.Popen[str]] = []

    def start() -> str:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None
        return child.stdout.readline()

    try:
        assert start() == "waiting\n"
        time.sleep(1.2)  # longer than the timeout and its margin
        assert start() == "waiting\n"
        assert (tmp_path / "requests").read_text() == "request\n"
        (tmp_path / "go").touch()
        until((tmp_path / "paid").exists)
        until((results := Results(start)).have_one)
        assert results.last in ("result paid\n", "result found\n")
        assert (tmp_path / "requests").read_text() == "request\n"
    finally:
        for child in started:
            child.kill()
            child.communicate()
