"""The verdict on a killed run: compares its world log, its end and what was watched with undisturbed runs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.drill.report import FinalState, Finding, Kill
from holdfast.drill.spec import Drill
from holdfast.drill.steadiness import Steadiness
from holdfast.drill.trial import Name, Trial, by_arguments, by_entry, shown
from holdfast.drill.world import Killed, Kind, Settled


class Judge:
    """Judges kills by two undisturbed runs."""

    def __init__(self, drill: Drill, first: Trial, second: Trial) -> None:
        self._first = first
        self._second = second
        self._steadiness = Steadiness(drill, first, second)
        self.unsteady = self._steadiness.unsteady
        self.unjudged = self._steadiness.unjudged

    def judge(self, number: int, place: str, trial: Trial, seconds: float) -> Kill:
        """The result of a kill."""
        names = list(dict.fromkeys([*self._first.names(), *trial.names()]))
        findings = [finding for name in names for finding in self._duplicates(trial, name)]
        repeated = len(findings)
        if trial.outcome.failure is None:
            findings += [finding for name in names for finding in self._lost(trial, name)]
        findings += self._models(trial)
        state, differences = self._end(trial)
        findings += differences
        if trial.outcome.failure is None:
            again = [shown(name) for name in names if name[0] != "irreversible" and self._again(trial, name)]
            suspects = f"; called again after this kill: {', '.join(again)}" if again else ""
            findings += [
                Finding("watch", text + suspects) for text in self._steadiness.seen_otherwise(trial.outcome.seen)
            ]
        return Kill(
            number=number,
            place=place,
            model_calls_repeated=self._repeated(trial, "model"),
            reads_repeated=self._repeated(trial, "read"),
            effects_repeated=repeated,
            in_doubt=tuple(_doubts(trial)),
            final_state=state,
            findings=tuple(findings),
            seconds=seconds,
        )

    def _again(self, trial: Trial, name: Name) -> int:
        """How many calls were repeated after the kill: started more often than in undisturbed runs."""
        grain = self._steadiness.grain(name)
        is_judged = grain is not None
        grain = grain or by_arguments
        first, second = self._first.begun(name, grain), self._second.begun(name, grain)
        # If undisturbed runs differ even in number, a new call may be made once.
        allowed = {key: max(first[key], second[key], 0 if is_judged else 1) for key in trial.begun(name, grain)}
        return sum(max(0, count - allowed[key]) for key, count in trial.begun(name, grain).items())

    def _repeated(self, trial: Trial, kind: Kind) -> int:
        return sum(self._again(trial, name) for name in trial.names() if name[0] == kind)

    def _models(self, trial: Trial) -> Iterator[Finding]:
        judged = [name for name in trial.names() if name[0] == "model" and self._steadiness.grain(name) is not None]
        repeated = sum(self._again(trial, name) for name in judged)
        stops = sum(isinstance(line, Killed) for line in trial.lines)
        most = max(1, self._first.in_flight()) * max(1, stops)
        if repeated > most:
            count = "one" if most == 1 else str(most)
            yield Finding("model", f"{repeated} model calls were repeated; {count} can be in flight")

    def _duplicates(self, trial: Trial, name: Name) -> Iterator[Finding]:
        kind, word = name
        if kind not in ("idempotent", "irreversible"):
            return
        grain = self._steadiness.grain(name)
        if grain is None:
            yield from self._entries_twice(trial, name)
            return
        may_happen, may_begin = self._first.happened(name, grain), self._first.begun(name, grain)
        happened, decided = trial.happened(name, grain), trial.decided(name, grain)
        for key, begun in trial.begun(name, grain).items():
            if happened[key] > may_happen[key]:
                yield Finding("duplicate", _too_often(name, happened[key], may_happen[key]))
            elif kind == "irreversible" and begun > may_begin[key] + decided[key]:
                yield Finding("duplicate", f"{word} was started {_times(begun)}, without a question in between")

    def _entries_twice(self, trial: Trial, name: Name) -> Iterator[Finding]:
        """Calls made twice for one journal entry: a repetition even if the number of calls cannot be judged."""
        undisturbed = [*self._first.happened(name, by_entry).values(), *self._second.happened(name, by_entry).values()]
        allowed = max(undisturbed, default=1)
        for count in trial.happened(name, by_entry).values():
            if count > allowed:
                yield Finding("duplicate", _too_often(name, count, allowed))

    def _lost(self, trial: Trial, name: Name) -> Iterator[Finding]:
        grain = self._steadiness.grain(name)
        if grain is None or name[0] not in ("idempotent", "irreversible") or self._first.may_give_up(name):
            return
        happened = trial.happened(name, grain)
        for key, wanted in self._first.happened(name, grain).items():
            if happened[key] < wanted:
                yield Finding("lost", f"{name[1]} happened {_times(happened[key])}, {wanted} in the undisturbed run")

    def _end(self, trial: Trial) -> tuple[FinalState, list[Finding]]:
        if trial.outcome.failure is not None:
            return "none", [Finding("failed", f"the resumed run did not end: {trial.outcome.failure}")]
        if trial.outcome.given_up:
            return "not compared", []
        different = [Finding("state", text) for text in self._steadiness.ended_otherwise(trial.outcome)]
        return ("different" if different else self._steadiness.final_state), different


def _doubts(trial: Trial) -> Iterator[str]:
    """The decisions about calls that were in doubt after the kill."""
    acted = {called.begun.key for called in trial.calls if called.before and called.begun.key is not None}
    for called in trial.calls:
        begun = called.begun
        if called.before:
            continue
        if begun.kind == "probe":
            yield f"{begun.name}: probed"
        elif begun.kind == "idempotent" and begun.key in acted:
            yield f"{begun.name}: again, same key"
    for line in trial.lines:
        if isinstance(line, Settled):
            yield f"{line.name}: asked, {'had' if line.happened else 'had not'} happened"
    yield from (f"{name}: given up" for name in trial.outcome.given_up)


def _too_often(name: Name, count: int, allowed: int) -> str:
    kind, word = name
    if not allowed:
        return f"{word} happened, but never with these arguments in the undisturbed run"
    if kind == "idempotent":
        return f"{word} was made again with another idempotency key"
    return f"{word} happened {_times(count)}, {allowed} in the undisturbed run"


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
