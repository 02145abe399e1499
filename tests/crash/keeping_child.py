"""Children of the nursery that back a store up or repair it, to be killed while they do.

A task is a file of two lines: the address of the store, and that of the target. The store is opened before the child is
traced: every call is one of the verb's.
"""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from tests.crash.tracing import say, wait_for_tracer


def back_up(path: Path, pipe: int) -> None:
    source, target = path.read_text().splitlines()
    hf = holdfast.open(source)
    wait_for_tracer(pipe)
    report = hf.backup(target).report
    say(pipe, "done" if report.ok else f"wrong: {report.problems}")
    os._exit(0)


def repair(path: Path, pipe: int) -> None:
    source, target = path.read_text().splitlines()
    hf = holdfast.open(source)
    wait_for_tracer(pipe)
    done = hf.repair(target)
    say(pipe, "done" if done.ok else f"wrong: {done.lost}")
    os._exit(0)
