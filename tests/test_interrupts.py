"""The shield: signals take effect at its end, and the handlers of the program stay its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.interrupts import Shield, shield, sleep


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


def test_an_interpreter_that_cannot_set_handlers_shields_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, handler: object) -> None:
        raise ValueError("signal only works in main thread of the main interpreter")

    other = Shield()
    monkeypatch.setattr("holdfast.interrupts._set_handler", refuse)
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
