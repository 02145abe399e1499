"""The steadiness of an agent: the common properties of two undisturbed runs, by which kills are judged.

Each model function, tool and watched thing is judged separately: by contents if those are equal in both runs, otherwise
by counts. If even the counts differ, it cannot be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.codec import msgpack
from holdfast.drill.child import Outcome
from holdfast.drill.report import FinalState
from holdfast.drill.spec import Drill
from holdfast.drill.trial import Grain, Name, Trial, by_arguments, by_name, shown
from holdfast.drill.watching import View, common_view, difference, name_of

_ADVICE = "make the agent call the same things in each run: script its model or fix its seed"


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

    def ended_otherwise(self, outcome: Outcome) -> list[str]:
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
                return trial.begun(name, grain), trial.happened(name, grain)
            case _:
                return (trial.begun(name, grain),)

    def _tell_of_calls(self, name: Name, grain: Grain | None) -> None:
        if name[0] == "read" or grain is by_arguments:
            return  # reads may be repeated
        if grain is by_name:
            self.unsteady.append(f"{shown(name)}: called with other arguments each time; judged by counts")
            return
        counts = [self._measures(trial, name, by_name)[-1].total() for trial in (self._first, self._second)]
        if counts[0] == counts[1]:
            counts = [trial.begun(name, by_name).total() for trial in (self._first, self._second)]
        advice = _ADVICE if self._drill.recorded else f"{_ADVICE}, or play the first run back with recorded=True"
        self.unjudged.append(f"{shown(name)}: called {counts[0]}, then {counts[1]} times; {advice}")

    def _tell_of_watched(self, name: str, view: View, first: Any, second: Any) -> None:
        text = difference(second, first, "contents")
        if view == "nothing":
            self.unjudged.append(f"{name}: {text}; watch a function that leaves out what differs, or returns a count")
        elif text:
            self.unsteady.append(f"{name}: {text}; judged by counts")


def _end_differences(outcome: Outcome, wanted: Outcome) -> list[str]:
    if outcome.status != wanted.status:
        return [f"the run ended {outcome.status}, {wanted.status} in the undisturbed run"]
    now, then = msgpack.decode(outcome.state), msgpack.decode(wanted.state)
    # A dict that was filled in the order of a set is the same dict in another process.
    state = None if msgpack.encode_sorted(now) == msgpack.encode_sorted(then) else difference(now, then, "contents")
    found = [f"another state: {state}"] if state else []
    result, other = msgpack.decode(outcome.result), msgpack.decode(wanted.result)
    is_same = msgpack.encode_sorted(result) == msgpack.encode_sorted(other)
    return found if is_same else [*found, "another result"]
