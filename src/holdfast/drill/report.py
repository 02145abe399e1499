"""The report of a drill: a record for each kill and each further disturbance, and the whole as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

FinalState = Literal["equal", "different", "not compared", "none"]
FindingKind = Literal["duplicate", "lost", "model", "state", "watch", "failed"]
FORMAT = 1
_HEAD = ("", "killed", "model again", "effects again", "in doubt", "final state")


class Finding(msgspec.Struct, frozen=True):
    """A problem that a kill revealed.

    `kind`: "duplicate" (an effect happened too often, without a question), "lost" (an effect happened too rarely),
    "model" (more model calls were repeated than were in flight), "state" (the run ended with another state, status or
    result), "watch" (something watched ended differently), "failed" (the resumed run raised an error or did not end).
    """

    kind: FindingKind
    text: str


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill, and the end of the run that another process resumed.

    `in_doubt` tells, for each call whose outcome was unknown, how it was decided. `final_state` is "none" if the run
    did not end, and "not compared" if undisturbed runs differ from each other or a call was given up as declared.
    """

    number: int
    place: str
    model_calls_repeated: int = 0
    reads_repeated: int = 0
    effects_repeated: int = 0
    in_doubt: tuple[str, ...] = ()
    final_state: FinalState = "none"
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.findings


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of every kill, and what two undisturbed runs show about the agent itself.

    `points` is the number of points; `kills` are those that were tried. `further` are second kills, interrupts, calls
    that act after their timeouts, and faults. `calls` is the number of calls in the undisturbed run. `same_seed` is
    None if runs were resumed with other hash seeds, else the reason why they were not. `unsteady` lists what differs
    between undisturbed runs and is judged by counts, or not compared. `unjudged` lists what cannot be judged at all,
    with advice.
    """

    format: int = FORMAT
    handler: str
    points: int
    calls: int
    kills: tuple[Kill, ...]
    further: tuple[Kill, ...] = ()
    same_seed: str | None = None
    unsteady: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no kill found a problem, and everything that reveals repeated calls could be judged.

        If the number of calls differs between undisturbed runs, a repeated call could go unnoticed, so the drill does
        not pass.
        """
        return self.is_judged and not self.failures

    @property
    def is_judged(self) -> bool:
        """Whether calls and watched things could be judged by contents or by counts."""
        return not self.unjudged

    @property
    def failures(self) -> tuple[Kill, ...]:
        return tuple(kill for kill in (*self.kills, *self.further) if not kill.passed)

    def table(self) -> str:
        """The report as text: a line for each kill, then the findings."""
        return _table(self)

    def json(self) -> bytes:
        """The report as JSON, with `passed` in it."""
        fields = {"passed": self.passed, **msgspec.to_builtins(self)}
        return msgspec.json.format(msgspec.json.encode(fields), indent=2)


# -- the report as text -----------------------------------------------------------------------------------------------


def _table(report: DrillReport) -> str:
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
