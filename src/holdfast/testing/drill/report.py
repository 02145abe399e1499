"""What a drill found: one record for each kill, and the whole."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.testing.drill.table import table

FinalState = Literal["equal", "different", "not compared", "none"]
FindingKind = Literal["duplicate", "lost", "model", "state", "watch", "failed"]
FORMAT = 1


class Finding(msgspec.Struct, frozen=True):
    """Something that a kill brought to light and that must not be.

    `kind`: "duplicate" (an effect made once too often, and nobody was asked), "lost" (made once too seldom), "model"
    (more calls repeated than the one in flight), "state" (the run ends with another state, status or result), "watch"
    (what was watched is not as it should be), "failed" (the resumed run raised, or came to no end).
    """

    kind: FindingKind
    text: str


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill, and how the run ended that another process went on with.

    `in_doubt` says, call by call, how a call was decided whose outcome nobody knew. `final_state` is "none" if the run
    came to no end, and "not compared" if undisturbed runs differ from each other, or a call was given up as declared.
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
    """What became of every kill, and what two runs that nobody disturbed tell of the agent itself.

    `points` is how many there are, of which `kills` tells those that were tried. `calls` is how many calls the
    undisturbed run makes. `unsteady` says what differs between undisturbed runs and is judged by counts, or is not
    compared; `unjudged` what cannot be judged at all, and what to do about it.
    """

    format: int = FORMAT
    handler: str
    points: int
    calls: int
    kills: tuple[Kill, ...]
    unsteady: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no kill brought anything to light, and all that tells of repetition could be judged.

        Where the number of calls differs by itself, a repeated one may hide: that is no pass.
        """
        return self.is_judged and all(kill.passed for kill in self.kills)

    @property
    def is_judged(self) -> bool:
        """Whether calls, and what is watched, could be judged by their contents or by counts."""
        return not self.unjudged

    @property
    def failures(self) -> tuple[Kill, ...]:
        return tuple(kill for kill in self.kills if not kill.passed)

    def table(self) -> str:
        """The report for people to read: a line for each kill, then what was found."""
        return table(self)

    def json(self) -> bytes:
        """The report as JSON, with `passed` in it."""
        fields = {"passed": self.passed, **msgspec.to_builtins(self)}
        return msgspec.json.format(msgspec.json.encode(fields), indent=2)
