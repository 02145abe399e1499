"""A bar on stderr while a drill lasts, where somebody looks on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from holdfast.testing.drill.lab import Progress, Step


@contextmanager
def shown() -> Generator[Progress | None]:
    """What shows how far a drill is. None where stderr is no terminal, or there is no `rich`: it is a nicety."""
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
        task = bar.add_task("runs undisturbed", total=None)

        def show(step: Step) -> None:
            failed = f", {step.failed} failed" if step.failed else ""
            bar.update(task, description=f"kills and resumes{failed}", completed=step.done, total=step.of)

        yield show
