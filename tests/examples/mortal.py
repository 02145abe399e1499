"""Runs an example in a process that can be killed, by others or by itself at a definite moment.

The processes are forked from one that has imported the clients: that takes longer than all that an example does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tests.examples.serving import EXAMPLES
from tests.waiting import DEADLINE

Moment = Literal["never", "before the order", "after the order"]
LEDGER = "orders.csv"
KEYS = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}  # the scripted server looks at none

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pytest", "tests.examples.clients", "holdfast.stores.sqlite"])


class Mortal:
    """A process of an example, in `folder`."""

    def __init__(self, folder: Path, example: str, arguments: tuple[str, ...], dies: Moment) -> None:
        self._output = folder / "output.txt"
        self._output.unlink(missing_ok=True)
        self._process = _FORKS.Process(target=_run, args=(folder, example, arguments, dies))
        self._process.start()

    @property
    def output(self) -> str:
        return self._output.read_text("utf-8") if self._output.exists() else ""

    @property
    def has_ended(self) -> bool:
        return not self._process.is_alive()

    def kill(self) -> None:
        """SIGKILL. Fails if it had ended by itself."""
        self._process.kill()
        assert self.end() == -signal.SIGKILL, self.output

    def close(self) -> None:
        if not self.has_ended:
            self.kill()
        self._process.close()

    def end(self) -> int | None:
        """Wait for its end; its exit code."""
        self._process.join(DEADLINE)
        return self._process.exitcode


@contextlib.contextmanager
def started(folder: Path, example: str, *arguments: str, dies: Moment = "never") -> Iterator[Mortal]:
    """A process that is gone when the block ends, however it ends."""
    process = Mortal(folder, example, arguments, dies)
    try:
        yield process
    finally:
        process.close()


def _run(folder: Path, example: str, arguments: tuple[str, ...], dies: Moment) -> None:
    os.chdir(folder)
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    if dies != "never":
        sys.addaudithook(_Death(dies))
    os.environ.update(KEYS)
    sys.argv = [example, *arguments]
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")


class _Death:
    """Kills the process when it opens the ledger to write, or when it is about to record what it wrote there.

    Python tells such a hook before it opens a file, and before it takes a lock, as the store does to record.
    """

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._before = _size()

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self._moment == "before the order":
            is_time = event == "open" and str(args[0]).endswith(LEDGER) and args[1] == "a"
        else:
            is_time = event == "fcntl.flock" and _size() > self._before
        if is_time:
            os.kill(os.getpid(), signal.SIGKILL)


def _size() -> int:
    try:
        return os.stat(LEDGER).st_size
    except FileNotFoundError:
        return 0
