"""A bar on stderr while something lasts, where somebody looks on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

Show = Callable[[str, int, int | None], None]
"""Say what is being done, how much of it is, and of how much if that is known."""


@contextmanager
def bar(begun: str) -> Generator[Show | None]:
    """What shows how far something is. None where stderr is no terminal, or there is no `rich`: it is a nicety."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        console: Any = importlib.import_module("rich.console")
        progress: Any = importlib.import_module("rich.progress")
    except ImportError:
        yield None
        return
    with progress.Progress(console=console.Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(begun, total=None)

        def show(what: str, done: int, of: int | None) -> None:
            drawn.update(task, description=what, completed=done, total=of)

        yield show
