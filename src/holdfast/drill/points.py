"""The points at which a process can be killed: before and after each write to a store, and each call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from holdfast.drill.world import Killed, WorldLog
from holdfast.stores.contract import Commit, Store
from holdfast.stores.contract_runs import Clock, Entry

# Renewals of leases are not points, because their time depends on the clock. Nor are writes of the drill itself.
_VERBS = ("commit", "claim", "journal")
_OUTCOMES = {"started": "intent of", "done": "result of"}


class Countdown:
    """Counts the points that a process passes, and kills or interrupts it at number `at`; 0 means never."""

    def __init__(self, at: int, log: WorldLog, *, interrupts: bool = False) -> None:
        self._at = at
        self._log = log
        self._interrupts = interrupts
        self._lock = threading.Lock()
        self.places: list[str] = []
        self.interrupted: str | None = None  # the place of the interrupt

    def tick(self, place: str) -> None:
        with self._lock:
            self.places.append(place)
            if len(self.places) != self._at:
                return
            if not self._interrupts:
                self._log.write(Killed(place))
                os.kill(os.getpid(), signal.SIGKILL)
            self.interrupted = place
        # The main thread handles it as it handles Ctrl-C: not in the middle of a write.
        signal.raise_signal(signal.SIGINT)


class Slept:
    """The time for which runs of a trial slept. It passes on their clock only, so that a long sleep takes no time."""

    def __init__(self, path: Path) -> None:
        """`path` is a file that the processes of a trial share."""
        self._path = path
        self.ms = int(path.read_text()) if path.exists() else 0

    def pass_time(self, ms: int) -> None:
        self.ms += ms
        self._path.write_text(str(self.ms))


class CountedStore:
    """A store with a point before and after each write, and a clock on which sleeps have passed."""

    def __init__(self, store: Store, countdown: Countdown, slept: Slept) -> None:
        self._store = store
        self._countdown = countdown
        self._slept = slept

    def clock(self) -> Clock:
        clock = self._store.clock()
        return replace(clock, now=clock.now + self._slept.ms)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(name, found) if name in _VERBS else found

    def _counted(self, verb: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            place = _place(verb, args, kwargs)
            self._countdown.tick(f"before {place}")
            answer = write(*args, **kwargs)
            self._countdown.tick(f"after {place}")
            return answer

        return counted


def counted(store: Store, countdown: Countdown, slept: Slept) -> Store:
    """The store with its writes counted."""
    return cast(Store, CountedStore(store, countdown, slept))


def spread(count: int, most: int | None) -> list[int]:
    """The numbers 1 to `count`, or at most `most` of them: the first, the last, and others evenly between."""
    if most is None or most >= count:
        return list(range(1, count + 1))
    if most == 1:
        return [(count + 1) // 2]
    return [1 + round(number * (count - 1) / (most - 1)) for number in range(most)]


def _place(verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    match verb, args:
        case "commit", [Commit(expect=None), *_]:
            return "the first checkpoint"
        case "commit", [Commit() as commit, *_]:
            return f"the checkpoint of step {commit.summary.step}"
        case "journal", _ if (run := kwargs.get("run")) is not None:
            return "the run is suspended" if run.status == "waiting" else "the run is released"
        case "journal", [_, _, [*_, Entry() as row]]:
            word = "reply of" if row.kind == "model" else _OUTCOMES.get(row.status, "outcome of")
            return f"the {word} {row.name}, step {row.step}"
        case "claim", _:
            return "the claim"
        case _:
            return "the run is released"
