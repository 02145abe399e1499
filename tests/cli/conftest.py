"""Commands as a person gives them: processes of their own, in a folder with an application."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast
from tests.cli.warm import Words, carry_out
from tests.waiting import DEADLINE


class Command:
    """A command that was started. What it says is read from files, so it never waits for somebody to read."""

    def __init__(self, words: tuple[str, ...], folder: Path, environment: dict[str, str], number: int) -> None:
        self._out, self._err = folder / f"out-{number}", folder / f"err-{number}"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "holdfast", *words],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self._process.poll() is None, self.err
            assert time.monotonic() < deadline, f"nothing happened for {DEADLINE:.0f} s; it said: {self.err}"
            time.sleep(0.005)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for it to end; its exit code."""
        return self._process.wait(DEADLINE)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Folder:
    """A folder with applications and a store, in which commands are given."""

    def __init__(self, path: Path, around: str = "") -> None:
        """`around` is a context manager, as `Words` has it."""
        self.path = path
        self._around = around
        self.store = path / "agent.db"
        self._commands: list[Command] = []

    def write(self, name: str, source: str) -> None:
        (self.path / name).write_text(source)

    def start(self, *words: str, **environment: str) -> Command:
        command = Command(words, self.path, self._environment(environment), len(self._commands))
        self._commands.append(command)
        return command

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        """Give a command and wait for it: its exit code, and what it wrote to stdout and stderr."""
        if "PYTHONPATH" in environment:  # what Python itself reads when it starts
            command = self.start(*words, **environment)
            code = command.end()
            return code, command.out, command.err
        out, err = self.path / "out", self.path / "err"
        code = carry_out(
            Words(words, str(self.path), self._environment(environment), str(out), str(err), self._around),
            self.path / "words",
        )
        return code, out.read_text(), err.read_text()

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "HOLDFAST_STORE"}
        # No entry for the current folder: that it can be imported from is up to the command.
        known = os.pathsep.join(filter(None, sys.path))
        return {**inherited, "PYTHONPATH": known, "XDG_DATA_HOME": str(self.path), **given}

    def open(self) -> Holdfast:
        return holdfast.open(self.store, durability="off")

    def close(self) -> None:
        for command in self._commands:
            command.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()
