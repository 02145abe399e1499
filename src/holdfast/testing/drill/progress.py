"""A progress bar on stderr during a drill."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.testing.drill.lab import Progress, Step


@contextmanager
def shown() -> Generator[Progress | None]:
    """A function that updates the bar; None if stderr is not a terminal or `rich` is not installed."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        console: Any = importlib.import_module("rich.console")
        progress: Any = importlib.import_module("rich.progress")
    except ImportError:
        yield None
        return
    with progress.Progress(console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("undisturbed runs", total=None)

        def show(step: Step) -> None:
            failed = f", {step.failed} failed" if step.failed else ""
            bar.update(task, description=f"kills and resumes{failed}", completed=step.done, total=step.of)

        yield show
