"""Runs that are given back: Ctrl-C and SIGTERM outside a worker."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.runs import block
from holdfast.runs.signals import Termination

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
    monkeypatch.setattr(block, "termination", Termination())
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
        assert child.wait(30) == code
    finally:
        child.kill()
        child.communicate()
    with holdfast.open(tmp_path / "a.db") as hf:
        assert [info.status for info in hf.threads()] == ["idle"]
        with hf.run("t") as run:
            assert (run.step, run.attempt) == (1, 1)


def test_a_signal_inside_a_tool_leaves_it_in_doubt(tmp_path: Path) -> None:
    child = start(tmp_path / "a.db", "run.tool(act, {})")
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "acting\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 143
    finally:
        child.kill()
        child.communicate()
    with holdfast.open(tmp_path / "a.db") as hf:
        assert [info.status for info in hf.threads()] == ["idle"]
        assert [effect.status for effect in hf.effects("t")] == ["begun"]


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


def test_a_signal_while_a_run_is_given_back_comes_after_that() -> None:
    termination = Termination()
    done: list[str] = []
    termination.listen()

    def give_back() -> None:
        with termination.deferred():
            signal.raise_signal(signal.SIGTERM)
            done.append("given back")

    with pytest.raises(SystemExit):
        give_back()
    assert done == ["given back"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
