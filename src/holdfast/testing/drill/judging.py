"""The verdict on a killed run: its world log, its end and what was watched, held against runs that nobody disturbed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from holdfast.codec import packed
from holdfast.testing.drill.child import Outcome
from holdfast.testing.drill.report import FinalState, Finding, Kill
from holdfast.testing.drill.spec import Drill
from holdfast.testing.drill.watching import changes, differences
from holdfast.testing.drill.world import Begun, Called, Ended, Kind, Line, Settled

_Call = tuple[str, str]  # name and arguments


class Trial(msgspec.Struct, frozen=True):
    """One run of the drill, as it is judged."""

    lines: list[Line]
    calls: list[Called]
    outcome: Outcome

    def begun(self, *kinds: Kind) -> Counter[_Call]:
        return Counter(_call(called) for called in self.calls if called.begun.kind in kinds)

    def returned(self, *kinds: Kind) -> Counter[_Call]:
        return Counter(_call(called) for called in self.calls if called.begun.kind in kinds and called.returned)

    def keys(self) -> dict[_Call, set[str | None]]:
        """The keys under which idempotent tools acted. One that takes no key acts as often as it likes, once."""
        found: dict[_Call, set[str | None]] = defaultdict(set)
        for called in self.calls:
            if called.begun.kind == "idempotent" and called.returned:
                found[_call(called)].add(called.begun.key)
        return found

    def in_flight(self) -> int:
        """How many model calls were made beside each other, at most."""
        under_way: set[int] = set()
        most = 0
        for line in self.lines:
            match line:
                case Begun(kind="model", call=call):
                    under_way.add(call)
                case Ended(call=call):
                    under_way.discard(call)
                case _:
                    pass
            most = max(most, len(under_way))
        return most

    def decided(self) -> Counter[_Call]:
        """How often somebody was asked about a call: a probe, or the drill."""
        probed = self.begun("probe")
        settled = Counter((line.name, line.arguments) for line in self.lines if isinstance(line, Settled))
        return probed + settled


class Judge:
    """Judges kills by two undisturbed runs."""

    def __init__(self, drill: Drill, first: Trial, second: Trial) -> None:
        self._drill = drill
        self._first = first
        self._second = second
        self.unsteady: list[str] = []
        acting: tuple[Kind, ...] = ("model", "idempotent", "irreversible")
        self._is_calls_steady = first.begun(*acting) == second.begun(*acting)
        if not self._is_calls_steady:
            names = sorted({name for name, _ in first.begun(*acting) - second.begun(*acting)})
            self.unsteady.append(f"calls: other ones, or with other arguments ({', '.join(names) or 'more of them'})")
        difference = _state_difference(second.outcome, first.outcome)
        self._is_state_steady = not difference
        self.unsteady += [f"final state: {text}" for text in difference]
        watched = differences(drill.watch, second.outcome.seen, first.outcome.seen)
        self._is_watched_steady = not watched
        self.unsteady += watched

    def judge(self, number: int, place: str, trial: Trial, seconds: float) -> Kill:
        """What a kill did."""
        findings = [*self._duplicates(trial), *self._lost(trial)]
        repeated = len([finding for finding in findings if finding.kind == "duplicate"])
        again = self._again(trial)
        models = self._repeated(trial, "model")
        most = max(1, self._first.in_flight())
        if models > most and self._is_calls_steady:
            findings.append(Finding("model", f"{models} model calls were repeated; {_number(most)} can be in flight"))
        state: FinalState = "equal"
        difference = _state_difference(trial.outcome, self._first.outcome)
        if trial.outcome.failure is not None:
            state = "none"
            findings.append(Finding("failed", f"the resumed run did not end: {trial.outcome.failure}"))
        elif not self._is_state_steady or trial.outcome.given_up:
            state = "not compared"
        elif difference:
            state = "different"
            findings += [Finding("state", text) for text in difference]
        if self._is_watched_steady and trial.outcome.failure is None:
            watched = differences(self._drill.watch, trial.outcome.seen, self._first.outcome.seen)
            suspects = f"; called again after this kill: {', '.join(again)}" if again else ""
            findings += [Finding("watch", text + suspects) for text in watched]
        return Kill(
            number=number,
            place=place,
            model_calls_repeated=models,
            reads_repeated=self._repeated(trial, "read"),
            effects_repeated=repeated,
            in_doubt=tuple(_doubts(trial)),
            final_state=state,
            findings=tuple(findings),
            seconds=seconds,
        )

    def _allowed(self, call: _Call, first: Counter[_Call], second: Counter[_Call]) -> int:
        """How often a call may be made. Where undisturbed runs differ, what is new may be, once."""
        return max(first[call], second[call], 0 if self._is_calls_steady else 1)

    def _repeated(self, trial: Trial, kind: Kind) -> int:
        """How many calls were made again that had been made before the kill: begun more often than undisturbed."""
        first, second = self._first.begun(kind), self._second.begun(kind)
        counts = trial.begun(kind).items()
        return sum(max(0, count - self._allowed(call, first, second)) for call, count in counts)

    def _duplicates(self, trial: Trial) -> Iterator[Finding]:
        decided, returned = trial.decided(), trial.returned("irreversible")
        for call, begun in trial.begun("irreversible").items():
            may_return = self._allowed(
                call, self._first.returned("irreversible"), self._second.returned("irreversible")
            )
            may_begin = self._allowed(call, self._first.begun("irreversible"), self._second.begun("irreversible"))
            if returned[call] > may_return:
                yield Finding("duplicate", _too_often(call[0], returned[call], may_return))
            elif begun > may_begin + decided[call]:
                yield Finding("duplicate", f"{call[0]} was begun {_times(begun)}, and nobody was asked")
        known = self._first.keys()
        for call, keys in trial.keys().items():
            if self._is_calls_steady and len(keys) > max(len(known.get(call, ())), 1):
                yield Finding("duplicate", f"{call[0]} was made again with another idempotency key")
            elif self._is_calls_steady and call not in known:
                yield Finding("duplicate", _too_often(call[0], 1, 0))

    def _lost(self, trial: Trial) -> Iterator[Finding]:
        if not self._is_calls_steady or trial.outcome.failure is not None:
            return
        may_give_up = {_call(called) for called in self._first.calls if called.begun.may_give_up}
        happened = trial.returned("irreversible", "idempotent")
        for call, wanted in self._first.returned("irreversible").items():
            if happened[call] < wanted and call not in may_give_up:
                yield Finding("lost", f"{call[0]} happened {_times(happened[call])}, {wanted} in the undisturbed run")
        made = trial.keys()
        for call, keys in self._first.keys().items():
            if len(made.get(call, ())) < len(keys):
                yield Finding("lost", f"{call[0]} did not happen, and did in the undisturbed run")

    def _again(self, trial: Trial) -> list[str]:
        """The calls that were made again and are declared to do no harm: where a hidden effect can be."""
        names: dict[str, None] = {}
        words: dict[Kind, str] = {"model": "the model function", "read": "the read", "idempotent": "the idempotent"}
        for kind, word in words.items():
            first, second = self._first.begun(kind), self._second.begun(kind)
            for call, count in trial.begun(kind).items():
                if count > max(first[call], second[call]):
                    names[f"{word} {call[0]}"] = None
        return list(names)


def _call(called: Called) -> _Call:
    return called.begun.name, called.begun.arguments


def _doubts(trial: Trial) -> Iterator[str]:
    """How calls were decided that were in doubt after the kill."""
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


def _state_difference(outcome: Outcome, wanted: Outcome) -> list[str]:
    if outcome.failure is not None:
        return []
    if outcome.status != wanted.status:
        return [f"the run ends {outcome.status}, {wanted.status} in the undisturbed run"]
    found: list[str] = []
    if outcome.state != wanted.state:
        found.append(f"another state: {changes(packed.decode(outcome.state), packed.decode(wanted.state))}")
    if outcome.result != wanted.result:
        found.append("another result")
    return found


def _too_often(name: str, count: int, allowed: int) -> str:
    if not allowed:
        return f"{name} happened, and never with these arguments in the undisturbed run"
    return f"{name} happened {_times(count)}, {allowed} in the undisturbed run"


def _number(count: int) -> str:
    return "one" if count == 1 else str(count)


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
