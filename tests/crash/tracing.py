"""Faults at system calls: strace attaches to a child of the nursery that waits for it, and makes some calls fail.

Attaching costs some hundredths of a second; a new interpreter under strace would cost ten times that for each call.
The child waits in `wait_for_tracer`, and reports by `say`: both use calls that are never made to fail.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from tests.crash.nursery import Nursery
from tests.waiting import DEADLINE

# Those that a machine does not have are passed over: some know only the calls that end in "at".
WRITING = (
    *("write", "pwrite64", "fsync", "fdatasync", "ftruncate"),
    *("?rename", "?renameat", "?renameat2", "?unlink", "?unlinkat", "?mkdir", "?mkdirat", "?rmdir"),
)
READING = ("read", "pread64", "openat", "?newfstatat", "?fstatat64", "?stat", "?lstat", "?statx", "getdents64")
_ALLOW_TRACING = 0x59616D61  # prctl: PR_SET_PTRACER
_LINE = re.compile(r"(\w+)\((.*)")


class Call(NamedTuple):
    """A call that a child made: the `number`-th of its name, as strace shows it."""

    name: str
    number: int
    shown: str

    def is_on(self, folder: Path) -> bool:
        return str(folder) in self.shown

    @property
    def is_injected(self) -> bool:
        return "(INJECTED" in self.shown


class Fault(NamedTuple):
    """What happens to which calls of a name: strace's `inject`."""

    name: str
    when: str
    what: str

    @property
    def expression(self) -> str:
        return f"inject={self.name}:{self.what}:when={self.when}"


class Traced(NamedTuple):
    """What a child said, the calls it made, and how it ended."""

    lines: list[str]
    calls: list[Call]
    ended: Literal["itself", "killed"]

    @property
    def struck(self) -> Call | None:
        """The call that the first fault struck."""
        if self.ended == "killed":
            return self.calls[-1]
        return next((call for call in self.calls if call.is_injected), None)


def trace(
    nursery: Nursery,
    program: str,
    task: Path,
    calls: Sequence[str],
    fault: Fault | None = None,
    options: Sequence[str] = ("-s", "0"),
) -> Traced:
    """Run a program of the nursery with a fault; from where the program calls `wait_for_tracer`, calls are counted."""
    report = task.with_suffix(".strace")
    child = nursery.start(program, task)
    try:
        while "ready" not in child.lines and not child.ended:
            child.wait_for(len(child.lines) + 1)
        assert "ready" in child.lines, child.lines
        command = [needed(), "-y", *options, "-p", str(child.pid), "-o", str(report), "-e", f"trace={','.join(calls)}"]
        if fault is not None:
            command += ["-e", fault.expression]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            try:
                assert strace.stderr is not None
                said = strace.stderr.readline()
                # From here on the child cannot make a call that strace does not see.
                assert "attached" in said, said + strace.stderr.read()
                os.kill(child.pid, signal.SIGUSR1)
                child.wait_for_end()
                strace.wait(DEADLINE)
            finally:
                strace.kill()
    finally:
        child.close()
    text = report.read_text(errors="replace")
    lines = [line for line in child.lines if line != "ready"]
    return Traced(lines, _calls(text), "killed" if "+++ killed by SIGKILL" in text else "itself")


def needed() -> str:
    """Where strace is. A lab without it would pass and have tried nothing."""
    found = shutil.which("strace")
    if found is None:
        pytest.fail("the crash lab needs strace: apt-get install strace (Debian, Ubuntu), dnf install strace", False)
    return found


def _calls(text: str) -> list[Call]:
    numbers: Counter[str] = Counter()
    calls: list[Call] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None:
            numbers[found[1]] += 1
            calls.append(Call(found[1], numbers[found[1]], line))
    return calls


# -- in the child ------------------------------------------------------------------------------------------------------


def say(pipe: int, text: str) -> None:
    """Report a line. Not by `write`, which may be the call that fails."""
    os.writev(pipe, [text.encode() + b"\n"])


def wait_for_tracer(pipe: int) -> None:
    """Report that this process can be attached to, and wait until it is."""
    # Where only ancestors may trace: strace is none.
    ctypes.CDLL(None).prctl(_ALLOW_TRACING, ctypes.c_ulong(-1), 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    say(pipe, "ready")
    signal.sigwait({signal.SIGUSR1})
