"""The shield: signals take effect at its end, and the handlers of the program stay its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import signals
from holdfast.runs.claim import ClaimRequest
from holdfast.signals import Shield, shield, sleep
from tests.waiting import DEADLINE


@pytest.fixture(autouse=True)
def handlers() -> Iterator[list[int]]:
    """A program that handles SIGTERM itself."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    yield came
    signal.signal(signal.SIGTERM, before)


def test_an_interrupt_is_raised_after_the_block() -> None:
    done: list[str] = []

    def work() -> None:
        with shield:
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")
        done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_outermost_block_counts() -> None:
    done: list[str] = []

    def work() -> None:
        with shield:
            with shield:
                signal.raise_signal(signal.SIGINT)
            done.append("after the inner block")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after the inner block"]


def test_a_handler_of_the_program_is_called_after_the_block(handlers: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with shield:
        signal.raise_signal(signal.SIGTERM)
        assert handlers == []
    assert handlers == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_block_calls_nothing_but_itself() -> None:
    """Every save has such a block. The functions of the module `signal` convert numbers to enums, which is slow."""
    called: list[str] = []

    def work() -> None:
        with shield:
            pass

    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    assert set(called) <= {__file__, signals.__file__}


def test_an_error_in_the_block_is_the_context_of_the_interrupt() -> None:
    def work() -> None:
        with shield:
            signal.raise_signal(signal.SIGINT)
            raise ValueError("in the block")

    with pytest.raises(KeyboardInterrupt) as raised:
        work()
    assert isinstance(raised.value.__context__, ValueError)


def test_signals_take_effect_while_a_shielded_block_waits() -> None:
    done: list[str] = []

    def work() -> None:
        with shield:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                sleep(60)
            finally:
                signal.raise_signal(signal.SIGTERM)
                done.append("the end is shielded again")

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - started < 50
    assert done == ["the end is shielded again"]


def test_other_threads_shield_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    inside: list[Any] = []

    def work() -> None:
        with shield:
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


def test_a_default_action_is_not_deferred() -> None:
    """Without a handler SIGTERM ends the process, which every store survives."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with shield:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_child_after_fork_in_a_thread_defers_signals() -> None:
    result: list[int] = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            with shield:
                os._exit(0 if signal.getsignal(signal.SIGINT) is not signal.default_int_handler else 1)
        result.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert result == [0]


def test_a_child_of_another_thread_is_not_in_the_blocks_of_the_main_thread() -> None:
    result: list[int] = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                os._exit(0)
            os._exit(1)
        result.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    thread = threading.Thread(target=fork)
    with shield:
        thread.start()
        thread.join()
    assert result == [0]


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGUSR1])
def test_a_time_limit_takes_effect_after_the_block(number: signal.Signals) -> None:
    """As `signal.alarm` and the soft limit of Celery do."""
    done: list[str] = []

    def expire(number: int, frame: object) -> None:
        raise TimeoutError

    def work() -> None:
        with shield:
            signal.raise_signal(number)
            done.append("all of it")
        done.append("never")

    before = signal.signal(number, expire)
    try:
        with pytest.raises(TimeoutError):
            work()
        assert signal.getsignal(number) is expire
    finally:
        signal.signal(number, before)
    assert done == ["all of it"]


def test_an_interrupt_at_the_end_of_a_lifted_block_leaves_no_shield() -> None:
    """At every call and line of it, also when the traceback is freed."""
    points = 0
    while strike(points + 1, work=wait_in_a_block):
        points += 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert points > 10


def wait_in_a_block() -> None:
    with shield:
        sleep(0.0)


def strike(point: int, work: Callable[[], None]) -> bool:
    """Send SIGINT at the n-th call or line of the module, or of what it is made with. False if there are fewer."""
    seen = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in (signals.__file__, contextlib.__file__):
            return None
        if event in ("call", "line"):
            seen += 1
            if seen == point:
                sys.settrace(None)
                frame.f_trace = None
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    assert seen < point
    return False


def test_signals_take_effect_while_an_async_run_is_entered_and_left(handlers: list[int]) -> None:
    """A shield across an await would also defer the signals of all other tasks."""
    entering, go_on = threading.Event(), threading.Event()
    claim = ClaimRequest.claim

    def slow(request: ClaimRequest) -> Any:
        entering.set()
        assert go_on.wait(DEADLINE)
        return claim(request)

    async def block(hf: holdfast.Holdfast) -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.finish()

    async def main() -> None:
        with holdfast.open("memory:") as hf:
            task = asyncio.ensure_future(block(hf))
            assert await asyncio.to_thread(entering.wait, DEADLINE)
            signal.raise_signal(signal.SIGTERM)
            assert handlers == [signal.SIGTERM]
            go_on.set()
            await task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaimRequest, "claim", slow)
        asyncio.run(main())


def test_an_interpreter_that_cannot_set_handlers_shields_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, handler: object) -> None:
        raise ValueError("signal only works in main thread of the main interpreter")

    other = Shield()
    monkeypatch.setattr("holdfast.signals._set_handler", refuse)
    for _ in range(2):
        with other:
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_shield_converts_nothing_to_enums() -> None:
    """Every verb of a store is shielded. The functions of `signal` take ten times as long as those of C."""
    called: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        with shield:
            pass
    finally:
        sys.setprofile(None)
    assert called
    assert not [path for path in called if path.endswith(("enum.py", "signal.py"))]
