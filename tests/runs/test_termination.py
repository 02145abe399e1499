"""Runs that are given back: Ctrl-C and SIGTERM outside a worker."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast import time_limit
from holdfast.aio import run as aio_run
from holdfast.errors import LeaseLost
from holdfast.runs import claim as claim_module
from holdfast.runs import run as run_module
from holdfast.runs.block_end import Termination
from holdfast.runs.claim import ClaimRequest
from holdfast.runs.run import RunBlock
from tests.interruption import Interrupt
from tests.runs.conftest import World
from tests.waiting import DEADLINE

PROGRAM = """
    import sys, signal, threading
    import holdfast

    hf = holdfast.open(sys.argv[1])

    def act():
        print("acting", flush=True)
        threading.Event().wait(60)

    with hf.run("t", start={"n": 0}) as run:
        for step in run.steps():
            run.state["n"] = step
            if step == 3:
                {last}
"""


@pytest.fixture(autouse=True)
def _as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks that other tests entered and never left, as a process that dies does, are still listening."""
    termination = Termination()
    monkeypatch.setattr(run_module, "termination", termination)
    monkeypatch.setattr(aio_run, "termination", termination)
    previous = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, previous)


def start(path: Path, last: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM).replace("{last}", last)
    return subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_gives_the_run_back(tmp_path: Path, number: signal.Signals, code: int) -> None:
    child = start(tmp_path / "a.db", "print('ready', flush=True); threading.Event().wait(60)")
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.wait(DEADLINE) == code
    finally:
        child.kill()
        child.communicate()
    with holdfast.open(tmp_path / "a.db") as hf:
        assert [info.status for info in hf.threads()] == ["released"]
        with hf.run("t") as run:
            assert (run.step, run.attempt) == (1, 1)


def test_a_signal_inside_a_tool_leaves_it_in_doubt(tmp_path: Path) -> None:
    child = start(tmp_path / "a.db", "run.tool(act, {})")
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "acting\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE) == 143
    finally:
        child.kill()
        child.communicate()
    with holdfast.open(tmp_path / "a.db") as hf:
        assert [info.status for info in hf.threads()] == ["released"]
        assert [effect.status for effect in hf.effects("t")] == ["started"]


def test_a_program_with_a_handler_of_its_own_keeps_it(tmp_path: Path) -> None:
    heard: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        with holdfast.open("memory:") as hf, hf.run("t", start={}) as run:
            signal.raise_signal(signal.SIGTERM)
            run.finish()
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert heard == [signal.SIGTERM]


def test_after_the_last_block_everything_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert before is signal.SIG_DFL
    with holdfast.open("memory:") as hf:
        first, second = hf.run("a", start={}), hf.run("b", start={})
        first.__enter__()
        second.__enter__()
        assert signal.getsignal(signal.SIGTERM) is not before
        first.__exit__(None, None, None)  # not the last one entered
        assert signal.getsignal(signal.SIGTERM) is not before
        second.__exit__(None, None, None)
        assert signal.getsignal(signal.SIGTERM) is before
        thread = threading.Thread(target=lambda: hf.run("c", start={}).__enter__())
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_at_the_first_bytecode_of_the_end_of_a_block_releases_the_run_first() -> None:
    """Python calls the handler at the start of `__exit__`, before any of its lines."""
    handler: list[Any] = []

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is RunBlock.__exit__.__code__:
            sys.settrace(None)
            handler[0](signal.SIGINT, frame)

    with holdfast.open("memory:") as hf:

        def block() -> None:
            with hf.run("t", start={}):
                handler.append(signal.getsignal(signal.SIGINT))
                sys.settrace(trace)

        before = sys.gettrace()
        with pytest.raises(KeyboardInterrupt):
            block()
        sys.settrace(before)
        assert [info.status for info in hf.threads()] == ["idle"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_that_cannot_be_entered_leaves_everything_as_before() -> None:
    with holdfast.open("memory:") as hf, hf.run("a", start={}) as run:
        listening = signal.getsignal(signal.SIGTERM)
        with pytest.raises(holdfast.LeaseHeld):
            hf.run("a").__enter__()
        assert signal.getsignal(signal.SIGTERM) == listening
        run.finish()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("is_async", [False, True])
def test_a_signal_that_comes_as_soon_as_a_run_is_claimed_gives_it_back(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    claim = ClaimRequest.claim

    def and_then_a_signal(*args: Any, **options: Any) -> Any:
        claimed = claim(*args, **options)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return claimed

    def sync() -> None:
        with hf.run("t"):
            pytest.fail("entered")

    async def block() -> None:
        async with hf.aio.run("t"):
            pytest.fail("entered")

    with holdfast.open("memory:") as hf:
        with hf.run("t", start={}):
            pass
        monkeypatch.setattr(ClaimRequest, "claim", and_then_a_signal)
        with pytest.raises(SystemExit):
            asyncio.run(block()) if is_async else sync()
        assert [info.status for info in hf.threads()] == ["released"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("handler", [None, "h"])
def test_ctrl_c_while_a_run_is_entered_is_no_failure_of_it(
    monkeypatch: pytest.MonkeyPatch, handler: str | None
) -> None:
    def interrupted(*_args: Any, **_options: Any) -> Any:
        raise KeyboardInterrupt

    with holdfast.open("memory:") as hf:
        if handler is None:
            with hf.run("t", start={}):
                pass
        else:
            hf.submit(handler, "t", start={})
        with monkeypatch.context() as patch:
            patch.setattr(claim_module, "RunCore", interrupted)
            with pytest.raises(KeyboardInterrupt):
                hf.run("t", start={}).__enter__()
        [info] = hf.threads()
        assert info.status == ("released" if handler is None else "queued")
        with hf.run("t", start={}) as run:
            assert run.attempt == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in the callback of a weak reference
def test_ctrl_c_while_the_thread_of_a_tool_starts_is_raised() -> None:
    """Python waits for the new thread, and an interrupt there was raised as "release unlocked lock"."""
    with holdfast.open("memory:") as hf:
        pay = holdfast.tool(effect="irreversible", timeout=DEADLINE, name="pay")(lambda: "receipt")
        for at in itertools.count(1):
            interrupt = Interrupt(at, number=signal.SIGINT, within=threading.__file__)
            with interrupt.strike(), hf.run(f"t{at}", start={}) as run:
                run.tool(pay, {})
            if not interrupt.came:
                break
            assert interrupt.ended_block or run.status == "idle", interrupt.place
        assert at > 50, "hardly an interrupt was made"


def test_a_run_is_given_back_when_what_its_threads_are_in_has_ended() -> None:
    started, go_on, refused = threading.Event(), threading.Event(), threading.Event()
    statuses: list[str] = []

    def act() -> str:
        started.set()
        assert go_on.wait(DEADLINE)
        return "done"

    def beside(run: holdfast.Run) -> None:
        run.tool(act, {}, key="a")

    def late(run: holdfast.Run) -> None:
        # The block is left while `act` is under way: then no more calls are taken.
        while not refused.is_set():
            try:
                run.model(lambda: 1, key="b")
            except holdfast.InvalidArgument:
                refused.set()
        statuses.extend(info.status for info in hf.threads())
        go_on.set()

    threads: list[threading.Thread] = []

    def block() -> None:
        with hf.run("t", start={}) as run:
            for function in (beside, late):
                threads.append(threading.Thread(target=function, args=(run,)))
                threads[-1].start()
            assert started.wait(DEADLINE)
            raise ValueError("wrong")

    with holdfast.open("memory:") as hf:
        with pytest.raises(ValueError, match="wrong"):
            block()
        assert go_on.is_set()
        for thread in threads:
            thread.join()
        assert statuses == ["running"]
        assert [info.status for info in hf.threads()] == ["failed"]
        assert [effect.status for effect in hf.effects("t") if effect.name == "act"] == ["done"]


def test_a_child_whose_block_nobody_left_keeps_its_parent_from_nothing() -> None:
    with holdfast.open("memory:") as hf:
        with hf.run("t", start={}) as run:
            run.child("a", start={}).__enter__()
        assert run.status == "idle"


def test_a_limit_whose_end_was_interrupted_ends_with_the_run(world: World) -> None:
    """Ctrl-C right before the end of a limited block leaves the limit on the thread."""
    before = time_limit._limits.stack
    with pytest.raises(LeaseLost), world.open().run("t", start={}) as run:  # noqa: PT012 - the block ends with it
        lease = run.core.calls().context.lease
        lease.limit.__enter__()
        lease.lose()
        assert time_limit.is_exhausted()
        run.save()
    try:
        assert not time_limit.is_exhausted(), "the next run of this thread would not wait for its database"
    finally:
        time_limit._limits.stack = before
