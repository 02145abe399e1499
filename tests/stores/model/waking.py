"""An index of the runs that wait for a time, so that runs that are not due cost nothing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, RunRow

# A time, and the number of the thread whose run waits for it.
_Times = list[tuple[int, int]]


class _Place(NamedTuple):
    clock: str
    at: int
    wall: int


class Waking:
    """Thread numbers by the clock that their runs wait on, sorted by wake time and by wake time on the wall clock."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._by_clock: dict[str, tuple[_Times, _Times]] = {}

    def follow(self, thread: int, run: RunRow | None) -> None:
        """Update the index after the run of a thread has changed or was removed."""
        known = self._places.pop(thread, None)
        if known is not None:
            at, wall = self._by_clock[known.clock]
            del at[bisect_left(at, (known.at, thread))], wall[bisect_left(wall, (known.wall, thread))]
            if not at:
                del self._by_clock[known.clock]
        if run is not None and rules.is_timed(run):
            self._places[thread] = _Place(run.clock, run.wake_at, run.wake_wall)
            at, wall = self._by_clock.setdefault(run.clock, ([], []))
            insort(at, (run.wake_at, thread))
            insort(wall, (run.wake_wall, thread))

    def due(self, clock: Clock, wall: int) -> list[int]:
        """Threads whose runs are due."""
        found: list[int] = []
        for name, (by_clock, by_wall) in self._by_clock.items():
            times, now = (by_clock, clock.now) if name == clock.id else (by_wall, wall)
            end = bisect_right(times, now, key=lambda time: time[0])
            found += [thread for _, thread in times[:end]]
        return found

    def holds(self, threads: dict[int, RunRow]) -> bool:
        """Whether the index has exactly the runs among these that wait for a time."""
        places = {
            number: _Place(run.clock, run.wake_at, run.wake_wall)
            for number, run in threads.items()
            if rules.is_timed(run)
        }
        at = sorted((place.clock, place.at, number) for number, place in places.items())
        wall = sorted((place.clock, place.wall, number) for number, place in places.items())
        by_clock = sorted(self._by_clock.items())
        return (
            self._places == places
            and [(clock, *time) for clock, (times, _) in by_clock for time in times] == at
            and [(clock, *time) for clock, (_, times) in by_clock for time in times] == wall
        )

    def clear(self) -> None:
        self._places.clear()
        self._by_clock.clear()
