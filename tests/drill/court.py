"""Logs of runs as they are written by hand, and the judge that they are brought before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.codec import msgpack
from holdfast.drill.child import TrialOutcome
from holdfast.drill.verdict import Judge, Trial
from holdfast.drill.world import EndedCall, Killed, Kind, Line, StartedCall, WorldLog
from holdfast.testing import Drill, Kill


def call(number: int, kind: Kind, name: str, key: str | None = None, *, arguments: str = "a") -> list[Line]:
    """A call from its beginning to its end."""
    started = StartedCall(call=number, kind=kind, name=name, arguments=arguments, thread=1, step=1, entry=name, key=key)
    return [started, EndedCall(call=number, result=msgpack.encode(number))]


def refused(number: int, kind: Kind, name: str) -> list[Line]:
    """A call that said that nothing was done."""
    return [call(number, kind, name)[0], EndedCall(call=number, error="NotDone: ", not_done=True)]


KILL: list[Line] = [Killed("here")]


class Court:
    """Judges logs by what undisturbed runs did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def trial(self, lines: Sequence[Line], seen: Sequence[Any] = ()) -> Trial:
        self._count += 1
        log = WorldLog(self._folder / f"log-{self._count}")
        for line in lines:
            log.write(line)
        ended = TrialOutcome(
            status="completed",
            state=msgpack.encode({}),
            result=msgpack.encode(None),
            seen=[msgpack.encode(each) for each in seen],
        )
        return Trial(log.lines(), log.calls(), ended)

    def judge(self, undisturbed: list[Line], killed: list[Line], *, second: list[Line] | None = None) -> Kill:
        judge = self.of_calls(undisturbed, undisturbed if second is None else second)
        return judge.judge(1, "here", self.trial(killed), 0.1)

    def of_calls(self, first: list[Line], second: list[Line]) -> Judge:
        return Judge(Drill(handler=lambda run: None, start={}), self.trial(first), self.trial(second))

    def of_watched(self, first: Sequence[Any], second: Sequence[Any]) -> Judge:
        """The judge of a drill that watches the paths "0", "1" and so on."""
        drill = Drill(handler=lambda run: None, start={}, watch=[str(number) for number in range(len(first))])
        return Judge(drill, self.trial([], first), self.trial([], second))

    def seen(self, judge: Judge, *seen: Any) -> Kill:
        return judge.judge(1, "here", self.trial([], seen), 0.1)
