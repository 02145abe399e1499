"""Attempts by number, in a process whose memory and time end: `python -m tests.hostile.fuzz PART FIRST COUNT`.

An attempt that raises anything but errors of Holdfast's own, takes more than its time, or more memory than the process
has, is a defect. What is printed then has the command that makes the same attempt again.
"""

from __future__ import annotations

import importlib
import resource
import sys
import traceback
from pathlib import Path

from tests.crash.bounds import soon

PARTS = {"sqlite": "forged_sqlite", "directory": "forged_directory", "decoders": "forged_records"}
SECONDS = 30  # of processor time, for a tour of some eighty verbs; most take a tenth of one
MOST = 5  # failures that are shown
MEMORY = 768 << 20  # more than the process has when it starts


def main(part: str, first: int, count: int) -> int:
    attempt = importlib.import_module(f"tests.hostile.{PARTS[part]}").attempt
    failed = 0
    for seed in range(first, first + count):
        try:
            with soon(SECONDS):
                attempt(seed)
        except BaseException:  # noqa: BLE001 - a Ctrl-C is shown as well, and the next attempt is made
            failed += 1
            say(traceback.format_exc())
            say(f"again: .venv/bin/python -m tests.hostile.fuzz {part} {seed} 1\n")
        if seed == first:
            _bound_memory()  # from here on: what is made once has been made
        if failed == MOST:
            break
    say(f"{count} attempts, {failed} failed\n")
    return 1 if failed else 0


def _bound_memory() -> None:
    held = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
