"""A progress bar on stderr during a drill."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from holdfast.drill.lab import Progress, Step


@contextmanager
def shown() -> Generator[Progress | None]:
    """A function that updates the bar; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("undisturbed runs", total=None)

        def show(step: Step) -> None:
            failed = f", {step.failed} failed" if step.failed else ""
            bar.update(task, description=f"kills and resumes{failed}", completed=step.done, total=step.of)

        yield show
