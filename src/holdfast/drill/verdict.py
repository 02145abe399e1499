"""The verdict on a disturbed run: its world log, its end and what was watched, compared with two undisturbed runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.codec import msgpack
from holdfast.drill.child import TrialOutcome
from holdfast.drill.report import FinalState, Finding, Kill
from holdfast.drill.spec import Drill
from holdfast.drill.watched import View, common_view, difference, name_of
from holdfast.drill.world import Called, EndedCall, Killed, Kind, Line, Settled, StartedCall

Name = tuple[Kind, str]
Grain = Callable[[Called], str]  # calls for which it returns the same are compared with each other
_WORDS: dict[Kind, str] = {"model": "the model function", "read": "the read", "idempotent": "the idempotent"}
_ADVICE = "make the agent call the same things in each run: script its model or fix its seed"


# -- one run, by model function and tool ------------------------------------------------------------------------------


class Trial(msgspec.Struct, frozen=True):
    """The log and the outcome of a run."""

    lines: list[Line]
    calls: list[Called]
    outcome: TrialOutcome

    def names(self) -> list[Name]:
        """Each model function and tool that was called, without probes."""
        found: dict[Name, None] = {
            (called.started.kind, called.started.name): None for called in self.calls if called.started.kind != "probe"
        }
        return list(found)

    def started(self, name: Name, grain: Grain) -> Counter[str]:
        """How often a name was called. Calls that reported that nothing was done do not count."""
        return Counter(grain(called) for called in self._of(name) if not called.was_not_done)

    def happened(self, name: Name, grain: Grain) -> Counter[str]:
        """How often a call had its effect. An idempotent call has it once per key, however often it returns."""
        returned = [called for called in self._of(name) if called.returned]
        if name[0] != "idempotent":
            return Counter(map(grain, returned))
        acts = {(called.started.arguments, called.started.key): called for called in returned}
        return Counter(map(grain, acts.values()))

    def decided(self, name: Name, grain: Grain) -> Counter[str]:
        """How often a probe or the drill was asked about a call."""
        probed = Counter(grain(called) for called in self._of(("probe", name[1])))
        settled = (line for line in self.lines if isinstance(line, Settled) and line.name == name[1])
        return probed + Counter(grain(_as_called(line)) for line in settled)

    def may_give_up(self, name: Name) -> bool:
        return any(called.started.may_give_up for called in self._of(name))

    def in_flight(self) -> int:
        """The largest number of model calls that were in flight at once."""
        under_way: set[int] = set()
        most = 0
        for line in self.lines:
            match line:
                case StartedCall(kind="model", call=call):
                    under_way.add(call)
                case EndedCall(call=call):
                    under_way.discard(call)
                case _:
                    pass
            most = max(most, len(under_way))
        return most

    def _of(self, name: Name) -> list[Called]:
        return [called for called in self.calls if (called.started.kind, called.started.name) == name]


def by_arguments(called: Called) -> str:
    return called.started.arguments


def by_name(_: Called) -> str:
    return ""


def by_entry(called: Called) -> str:
    """The call's place in the journal: one entry is one call, whatever its arguments."""
    return f"{called.started.thread} {called.started.step} {called.started.entry}"


def shown(name: Name) -> str:
    return f"{_WORDS.get(name[0], 'the tool')} {name[1]}"


def _as_called(line: Settled) -> Called:
    """The call that a settled line is about."""
    about = StartedCall(
        call=0, kind="irreversible", name=line.name, arguments=line.arguments, thread=0, step=0, entry=""
    )
    return Called(about, None, before=True)


# -- what two undisturbed runs have in common -------------------------------------------------------------------------


# Each model function, tool and watched thing is judged separately: by contents if those are equal in both runs,
# otherwise by counts. If even the counts differ, it cannot be judged.


class Steadiness:
    """The common properties of two undisturbed runs.

    `unsteady` lists differences that are judged by counts or need not be judged. `unjudged` lists what cannot be
    judged, with advice.
    """

    def __init__(self, drill: Drill, first: Trial, second: Trial) -> None:
        self._drill = drill
        self._first = first
        self._second = second
        self.unsteady: list[str] = []
        self.unjudged: list[str] = []
        names = dict.fromkeys([*first.names(), *second.names()])
        self._grains = {name: self._common_grain(name) for name in names}
        for name, grain in self._grains.items():
            self._tell_of_calls(name, grain)
        ends = _end_differences(second.outcome, first.outcome)
        self._is_end_steady = not ends
        self.unsteady += [f"final state: {text}; not compared" for text in ends]
        self._views: list[View] = []
        for watched, one, other in zip(drill.watch, first.outcome.seen, second.outcome.seen, strict=True):
            self._views.append(common_view(msgpack.decode(one), msgpack.decode(other)))
            self._tell_of_watched(name_of(watched), self._views[-1], msgpack.decode(one), msgpack.decode(other))

    def grain(self, name: Name) -> Grain | None:
        """The way to compare the calls of a name with the undisturbed run; None if they cannot be compared."""
        if name in self._grains:
            return self._grains[name]
        # A call that no undisturbed run makes must not be made, unless the agent chooses differently each time.
        picks = any(grain is None and kind != "read" for (kind, _), grain in self._grains.items())
        return None if picks else by_arguments

    @property
    def final_state(self) -> FinalState:
        """The verdict on a final state without differences."""
        return "equal" if self._is_end_steady else "not compared"

    def ended_otherwise(self, outcome: TrialOutcome) -> list[str]:
        """Differences between the end of a run and that of the undisturbed run, one line each."""
        return _end_differences(outcome, self._first.outcome) if self._is_end_steady else []

    def seen_otherwise(self, seen: Sequence[bytes]) -> list[str]:
        """Watched things that differ from the undisturbed run, one line each."""
        found: list[str] = []
        for watched, view, now, then in zip(
            self._drill.watch, self._views, seen, self._first.outcome.seen, strict=True
        ):
            text = difference(msgpack.decode(now), msgpack.decode(then), view)
            found += [f"{name_of(watched)}: {text}"] if text else []
        return found

    def _common_grain(self, name: Name) -> Grain | None:
        for grain in (by_arguments, by_name):
            if self._measures(self._first, name, grain) == self._measures(self._second, name, grain):
                return grain
        return None

    def _measures(self, trial: Trial, name: Name, grain: Grain) -> tuple[Any, ...]:
        match name[0]:
            case "idempotent":
                return (trial.happened(name, grain),)
            case "irreversible":
                return trial.started(name, grain), trial.happened(name, grain)
            case _:
                return (trial.started(name, grain),)

    def _tell_of_calls(self, name: Name, grain: Grain | None) -> None:
        if name[0] == "read" or grain is by_arguments:
            return  # reads may be repeated
        if grain is by_name:
            self.unsteady.append(f"{shown(name)}: called with other arguments each time; judged by counts")
            return
        counts = [self._measures(trial, name, by_name)[-1].total() for trial in (self._first, self._second)]
        if counts[0] == counts[1]:
            counts = [trial.started(name, by_name).total() for trial in (self._first, self._second)]
        advice = _ADVICE if self._drill.recorded else f"{_ADVICE}, or play the first run back with recorded=True"
        self.unjudged.append(f"{shown(name)}: called {counts[0]}, then {counts[1]} times; {advice}")

    def _tell_of_watched(self, name: str, view: View, first: Any, second: Any) -> None:
        text = difference(second, first, "contents")
        if view == "nothing":
            self.unjudged.append(f"{name}: {text}; watch a function that leaves out what differs, or returns a count")
        elif text:
            self.unsteady.append(f"{name}: {text}; judged by counts")


def _end_differences(outcome: TrialOutcome, wanted: TrialOutcome) -> list[str]:
    if outcome.status != wanted.status:
        return [f"the run ended {outcome.status}, {wanted.status} in the undisturbed run"]
    now, then = msgpack.decode(outcome.state), msgpack.decode(wanted.state)
    # A dict that was filled in the order of a set is the same dict in another process.
    state = None if msgpack.encode_sorted(now) == msgpack.encode_sorted(then) else difference(now, then, "contents")
    found = [f"another state: {state}"] if state else []
    result, other = msgpack.decode(outcome.result), msgpack.decode(wanted.result)
    is_same = msgpack.encode_sorted(result) == msgpack.encode_sorted(other)
    return found if is_same else [*found, "another result"]


# -- judgement --------------------------------------------------------------------------------------------------------


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
        first, second = self._first.started(name, grain), self._second.started(name, grain)
        # If undisturbed runs differ even in number, a new call may be made once.
        allowed = {key: max(first[key], second[key], 0 if is_judged else 1) for key in trial.started(name, grain)}
        return sum(max(0, count - allowed[key]) for key, count in trial.started(name, grain).items())

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
        may_happen, may_begin = self._first.happened(name, grain), self._first.started(name, grain)
        happened, decided = trial.happened(name, grain), trial.decided(name, grain)
        for key, started in trial.started(name, grain).items():
            if happened[key] > may_happen[key]:
                yield Finding("duplicate", _too_often(name, happened[key], may_happen[key]))
            elif kind == "irreversible" and started > may_begin[key] + decided[key]:
                yield Finding("duplicate", f"{word} was started {_times(started)}, without a question in between")

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
    acted = {called.started.key for called in trial.calls if called.before and called.started.key is not None}
    for called in trial.calls:
        started = called.started
        if called.before:
            continue
        if started.kind == "probe":
            yield f"{started.name}: probed"
        elif started.kind == "idempotent" and started.key in acted:
            yield f"{started.name}: again, same key"
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
