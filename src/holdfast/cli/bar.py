"""A progress bar on stderr for long operations."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

Show = Callable[[str, int, int | None], None]
"""Show progress: what is being done, how much is done, and the total if known."""

_PATIENCE = 0.5  # seconds before the bar is drawn: most commands end sooner, and `rich` is slow to import


@contextmanager
def bar(begun: str) -> Generator[Show | None]:
    """Yield a function that reports progress; the bar shows the elapsed time if it is never called.

    Yields None if stderr is not a terminal. Draws nothing if `rich` is not installed.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    drawing = _Drawing(begun)
    timer = threading.Timer(_PATIENCE, drawing.begin)
    timer.daemon = True
    timer.start()
    try:
        yield drawing.show
    finally:
        timer.cancel()
        drawing.end()


class _Drawing:
    """The last reported progress, and the bar once it is drawn."""

    def __init__(self, what: str) -> None:
        self._lock = threading.Lock()
        self._said: tuple[str, int, int | None] = (what, 0, None)
        self._drawn: Any = None
        self._has_ended = False

    def begin(self) -> None:
        try:
            console: Any = importlib.import_module("rich.console")
            progress: Any = importlib.import_module("rich.progress")
        except ImportError:
            return
        with self._lock:
            if self._has_ended:
                return
            columns = (
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[count]}"),
                progress.TimeElapsedColumn(),
            )
            self._drawn = progress.Progress(*columns, console=console.Console(stderr=True), transient=True)
            self._drawn.add_task(self._said[0], total=None, count="")
            self._update()
            self._drawn.start()

    def show(self, what: str, done: int, of: int | None) -> None:
        with self._lock:
            self._said = (what, done, of)
            if self._drawn is not None:
                self._update()

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            if self._drawn is not None:
                self._drawn.stop()
                self._drawn = None

    def _update(self) -> None:
        what, done, of = self._said
        count = f"{done:,} of {of:,}" if of is not None else f"{done:,}" if done else ""
        self._drawn.update(0, description=what, completed=done, total=of, count=count)
