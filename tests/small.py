"""Tests that fork, run in a small process: this one holds every test, and each fork of it copies its page tables.

`pytestmark = small.process()` runs the tests of a module there. Fixtures stay here, and what a test takes from them is
pickled.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.crash.nursery import Nursery

Around = Callable[[], AbstractContextManager[object]]


def process(around: Around = contextlib.nullcontext) -> pytest.MarkDecorator:
    """The mark. `around` is entered for each test, in the process that runs it."""
    return pytest.mark.small_process.with_args(around)  # called, it would mark the function


def call(function: Callable[..., Any], around: Around = contextlib.nullcontext, **arguments: Any) -> Any:
    """The result of a function of a module. AssertionError with the traceback if it raises."""
    return _called(f"{function.__module__}:{function.__qualname__}", around, arguments)


def run(item: pytest.Function) -> bool:
    """Run a test with the mark; False if it has none."""
    mark = item.get_closest_marker("small_process")
    if mark is None:
        return False
    around: Around = mark.args[0]
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    if not _is_measured():
        try:
            _called(f"{item.module.__name__}:{item.originalname}", around, arguments)
        except AssertionError as error:
            failed = error
        else:
            return True
        with around():
            item.obj(**arguments)  # again, here, where pytest shows the values
        raise failed
    with around():
        item.obj(**arguments)
    return True


def _is_measured() -> bool:
    """Whether coverage is on: it does not see other processes."""
    coverage = sys.modules.get("coverage")
    return coverage is not None and coverage.Coverage.current() is not None


def _called(name: str, around: Around, arguments: dict[str, Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder, "task")
        task.write_bytes(pickle.dumps((name, around, arguments)))
        child = _nursery(name.partition(":")[0]).start("tests.small:serve", task)
        try:
            child.wait_for_end()
        finally:
            child.close()
        assert child.failure is None, child.failure
        assert child.code == 0, f"{name} ended with status {child.code}"
        return pickle.loads(task.with_name("result").read_bytes())  # noqa: S301 - from the process started here


@functools.cache
def _nursery(module: str) -> Nursery:
    """One for each package, so that it has no more in memory than its tests need."""
    made = _of_package(module.rpartition(".")[0])
    made.warm(module)
    return made


@functools.cache
def _of_package(package: str) -> Nursery:
    made = Nursery("tests.small")
    atexit.register(made.close)
    return made


def serve(task: Path, pipe: int) -> None:
    """In the forked process: call the function, and leave its result next to the task."""
    name, around, arguments = pickle.loads(task.read_bytes())  # noqa: S301 - from the process that started this one
    module, _, function = name.partition(":")
    with around():
        result = getattr(import_module(module), function)(**arguments)
    task.with_name("result").write_bytes(pickle.dumps(result))
    os.close(pipe)
