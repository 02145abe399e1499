"""One run of the drill as it is judged: its world log by model function and tool, and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from holdfast.drill.child import Outcome
from holdfast.drill.world import Begun, Called, Ended, Kind, Line, Settled

Name = tuple[Kind, str]
Grain = Callable[[Called], str]  # calls for which it returns the same are compared with each other
_WORDS: dict[Kind, str] = {"model": "the model function", "read": "the read", "idempotent": "the idempotent"}


class Trial(msgspec.Struct, frozen=True):
    """The log and the outcome of a run."""

    lines: list[Line]
    calls: list[Called]
    outcome: Outcome

    def names(self) -> list[Name]:
        """Each model function and tool that was called, without probes."""
        found: dict[Name, None] = {
            (called.begun.kind, called.begun.name): None for called in self.calls if called.begun.kind != "probe"
        }
        return list(found)

    def begun(self, name: Name, grain: Grain) -> Counter[str]:
        """How often a name was called. Calls that reported that nothing was done do not count."""
        return Counter(grain(called) for called in self._of(name) if not called.was_not_done)

    def happened(self, name: Name, grain: Grain) -> Counter[str]:
        """How often a call had its effect. An idempotent call has it once per key, however often it returns."""
        returned = [called for called in self._of(name) if called.returned]
        if name[0] != "idempotent":
            return Counter(map(grain, returned))
        acts = {(called.begun.arguments, called.begun.key): called for called in returned}
        return Counter(map(grain, acts.values()))

    def decided(self, name: Name, grain: Grain) -> Counter[str]:
        """How often a probe or the drill was asked about a call."""
        probed = Counter(grain(called) for called in self._of(("probe", name[1])))
        settled = (line for line in self.lines if isinstance(line, Settled) and line.name == name[1])
        return probed + Counter(grain(_as_called(line)) for line in settled)

    def may_give_up(self, name: Name) -> bool:
        return any(called.begun.may_give_up for called in self._of(name))

    def in_flight(self) -> int:
        """The largest number of model calls that were in flight at once."""
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

    def _of(self, name: Name) -> list[Called]:
        return [called for called in self.calls if (called.begun.kind, called.begun.name) == name]


def by_arguments(called: Called) -> str:
    return called.begun.arguments


def by_name(_: Called) -> str:
    return ""


def by_entry(called: Called) -> str:
    """The call's place in the journal: one entry is one call, whatever its arguments."""
    return f"{called.begun.thread} {called.begun.step} {called.begun.entry}"


def shown(name: Name) -> str:
    return f"{_WORDS.get(name[0], 'the tool')} {name[1]}"


def _as_called(line: Settled) -> Called:
    """The call that a settled line is about."""
    about = Begun(call=0, kind="irreversible", name=line.name, arguments=line.arguments, thread=0, step=0, entry="")
    return Called(about, None, before=True)
