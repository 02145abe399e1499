"""The report of a drill: one record for each kill, and the whole."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.drill.table import table

FinalState = Literal["equal", "different", "not compared", "none"]
FindingKind = Literal["duplicate", "lost", "model", "state", "watch", "failed"]
FORMAT = 1


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

    `points` is the number of points; `kills` are those that were tried. `further` are second kills, interrupts, and
    calls that act after their time-outs. `calls` is the number of calls in the undisturbed run. `same_seed` is None if
    runs were resumed with other hash seeds, else the reason why they were not. `unsteady` lists what differs between
    undisturbed runs and is judged by counts, or not compared. `unjudged` lists what cannot be judged at all, with
    advice.
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
        return table(self)

    def json(self) -> bytes:
        """The report as JSON, with `passed` in it."""
        fields = {"passed": self.passed, **msgspec.to_builtins(self)}
        return msgspec.json.format(msgspec.json.encode(fields), indent=2)
