"""A command in a process forked from a warm one: starting Python takes longer than most commands do."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec

from tests.crash.nursery import Child, Nursery

MODULES = ("holdfast.cli.main", "holdfast.cli.work", "holdfast.cli.transfer", "holdfast.cli.look")


class Words(msgspec.Struct):
    """What is typed, where, and where its output goes."""

    words: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    out: str
    err: str
    around: str = ""  # "module:name" of a context manager that the command runs in


@cache
def nursery(*more: str) -> Nursery:
    """One for all tests of this process. `more` are further modules to import."""
    made = Nursery(*MODULES, *more)
    atexit.register(made.close)
    return made


def started(words: Words, task: Path, *more: str) -> Child:
    """Start a command. `task` is a file for its words."""
    task.write_bytes(msgspec.json.encode(words))
    return nursery(*more).start("tests.cli.warm:run", task)


def carry_out(words: Words, task: Path) -> int:
    """Run a command to its end; its exit code."""
    child = started(words, task)
    try:
        child.wait_for_end()
    finally:
        child.close()
    assert child.failure is None, child.failure
    if child.lines:
        return int(child.lines[-1])
    assert child.code is not None
    return child.code  # it was killed


def run(task: Path, pipe: int) -> None:
    """In the forked process: become `python -m holdfast`."""
    told = msgspec.json.decode(task.read_bytes(), type=Words)
    os.chdir(told.folder)
    os.environ.clear()
    os.environ.update(told.environment)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, told.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, told.err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    module, _, name = told.around.partition(":")
    around = getattr(import_module(module), name) if module else nullcontext
    sys.path[0] = told.folder  # as with -m
    sys.argv = ["holdfast", *told.words]
    code: object = 0
    try:
        with around():
            runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(pipe, f"{int(code) if isinstance(code, int) else 0 if code is None else 1}\n".encode())
