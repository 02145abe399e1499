"""What users call: the drill as a function, and as an assertion of a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.policy import Policy
from holdfast.testing.drill import lab, progress
from holdfast.testing.drill.report import DrillReport
from holdfast.testing.drill.spec import Drill, Watched


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
) -> DrillReport:
    """Run an agent, then kill it at every point, resume it each time, and report what was repeated, lost or different.

    `handler` is a function of a run, or an async one of an async run. `tools` are what it calls by name, and tell what
    is declared; called are the `fakes` of the same names. Without one a tool is refused, unless `live` allows it. Model
    functions are called. `recorded`: all is called in the first run only, and played back in the others. `watch`:
    paths, and functions that return what they see of the world; each must end as it does undisturbed. Each run has a
    new folder as its current one, which `setup` may fill. `answers` are those to `run.wait`, by name. `points` is how
    many to try, evenly spread; by default all. A run that takes longer than `timeout` seconds failed.

    InvalidArgument for what cannot be done; HoldfastError if the undisturbed run fails. POSIX only: it forks.
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
    )
    return run_drill(drill)


def run_drill(drill: Drill) -> DrillReport:
    """Do a drill, with a bar on stderr if that is a terminal. Raises what `crash_everywhere` does."""
    with progress.shown() as show:
        return lab.run(drill, show)


def drill_passes(drill: Drill | Callable[..., Any], start: Any = None, **how: Any) -> DrillReport:
    """Assert in a test that an agent survives the drill: AssertionError with the table if it does not.

    Takes a Drill, or what `crash_everywhere` takes.
    """
    __tracebackhide__ = True  # a failing test shows its own line, and the table
    report = run_drill(drill) if isinstance(drill, Drill) else crash_everywhere(drill, start, **how)
    if not report.passed:
        raise AssertionError(f"the drill found something\n{report.table()}")
    return report
