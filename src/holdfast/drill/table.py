"""A report as text: a line for each kill, then the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.drill.report import DrillReport, Kill

_HEAD = ("", "killed", "model again", "effects again", "in doubt", "final state")


def table(report: DrillReport) -> str:
    """The report as text."""
    rows = [_HEAD, *(_row(kill) for kill in (*report.kills, *report.further))]
    return "\n".join([*_aligned(rows), "", *_told(report)])


def _row(kill: Kill) -> tuple[str, ...]:
    number = f"{kill.number}" if kill.passed else f"FAILED {kill.number}"
    model, effects = (str(count or "-") for count in (kill.model_calls_repeated, kill.effects_repeated))
    return number, kill.place, model, effects, "; ".join(kill.in_doubt) or "-", kill.final_state


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = zip(row, widths, strict=True)
        cells = [f"{first[0]:>{first[1]}}", *(f"{text:{width}}" for text, width in others)]
        yield "  ".join(cells).rstrip()


def _told(report: DrillReport) -> Iterator[str]:
    if report.unsteady:
        yield "Two undisturbed runs differ:"
        yield from (f"  {text}" for text in report.unsteady)
        yield ""
    if report.unjudged:
        yield "Two undisturbed runs differ too much, so this could not be judged:"
        yield from (f"  {text}" for text in report.unjudged)
        yield ""
    if report.same_seed is not None:
        yield f"Runs were resumed with the same hash seed, because the agent was not loaded again: {report.same_seed}"
        yield ""
    for kill in report.failures:
        yield f"point {kill.number}, {kill.place if kill in report.further else f'killed {kill.place}'}:"
        yield from (f"  {finding.kind}: {finding.text}" for finding in kill.findings)
    tried = len(report.kills)
    among = f"{tried} of {report.points} points" if tried < report.points else f"all {report.points} points"
    failed = len(report.failures)
    if failed:
        verdict = f"{failed} FAILED"
    elif not report.is_judged:
        verdict = "NOT PASSED: no problem was found, but a repeated call could go unnoticed in what was not judged"
    elif not report.calls:
        verdict = "nothing lost; the agent made no calls, so there was nothing to repeat"
    else:
        verdict = "nothing lost, nothing silently repeated"
    yield f"{report.handler} was killed at {among} and resumed: {verdict} ({report.seconds:.1f} s)"
