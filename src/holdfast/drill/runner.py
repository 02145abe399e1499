"""Starts a drill: as a function, as an assertion for tests, and with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.drill import lab
from holdfast.drill.faults import Fault
from holdfast.drill.lab import DrillStep, Progress
from holdfast.drill.report import DrillReport
from holdfast.drill.spec import Drill, Watched
from holdfast.policy import Policy


def crash_everywhere(
    handler: Callable[..., Any],
    start: Any,
    *,
    tools: Sequence[Callable[..., Any]] = (),
    fakes: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]] = (),
    live: bool = False,
    recorded: bool = False,
    watch: Sequence[Watched] = (),
    setup: Callable[[], object] | None = None,
    answers: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    points: int | None = None,
    timeout: float = 60.0,
    faults: Sequence[Fault] = (),
) -> DrillReport:
    """Run an agent, kill it at every point, resume it each time, and report what was repeated, lost or different.

    `handler` is a function that takes a run, or an async function that takes an async run. `tools` are the tools that
    it calls by name. Instead of a tool, the function of the same name in `fakes` is called. A tool without a fake is
    rejected, unless `live` is True. Model functions are called. With `recorded`, functions are called in the first run
    only, and their results are played back in the others. `watch` are paths, and functions that return something to
    compare; each must end as in the undisturbed run. Each run has a new current folder, which `setup` may fill.
    `answers` are the answers to `run.wait`, by name. `points` is the number of points to try, evenly spread, for
    kills and for each further kind of disturbance; by default all for kills, and 8 for each further kind. A run that
    takes longer than `timeout` seconds has failed. `faults` are also injected, each into one call of a run: "timeout"
    and "connection-cut" lose the reply of a tool that has acted, "rate-limit" refuses a model call, "truncated-reply"
    cuts a model's reply. The run must end as without them, at once or after it is resumed.

    Raises InvalidArgument if the drill cannot be done as defined, HoldfastError if the undisturbed run fails. POSIX
    only, because it forks.
    """
    drill = Drill(
        handler=handler,
        start=start,
        tools=tools,
        fakes=fakes,
        live=live,
        recorded=recorded,
        watch=watch,
        setup=setup,
        answers={} if answers is None else answers,
        policy=policy,
        points=points,
        timeout=timeout,
        faults=faults,
    )
    return run_drill(drill)


def run_drill(drill: Drill) -> DrillReport:
    """Do a drill, with a progress bar if stderr is a terminal. Raises the errors of `crash_everywhere`."""
    with _bar() as show:
        return lab.run(drill, show)


def drill_passes(drill: Drill | Callable[..., Any], start: Any = None, **how: Any) -> DrillReport:
    """Assert in a test that an agent survives the drill; AssertionError with the table if it does not.

    Takes a Drill, or the arguments of `crash_everywhere`.
    """
    __tracebackhide__ = True  # a failing test shows its own line and the table
    report = run_drill(drill) if isinstance(drill, Drill) else crash_everywhere(drill, start, **how)
    if not report.passed:
        raise AssertionError(f"the drill found problems\n{report.table()}")
    return report


@contextmanager
def _bar() -> Generator[Progress | None]:
    """A function that updates the bar; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("undisturbed runs", total=None)

        def show(step: DrillStep) -> None:
            failed = f", {step.failed} failed" if step.failed else ""
            bar.update(task, description=f"kills and resumes{failed}", completed=step.done, total=step.of)

        yield show
