"""The clock of a bucket: the server's time, as the times of written objects show it.

A process writes a small object and reads when the server wrote it. So it knows the server's time at a moment between
the two, give or take the duration of the requests and the second to which servers round. The clock of the machine
counts from there. Later measurements make the interval smaller.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Final

from holdfast.stores import clock as clocks
from holdfast.stores.contract_runs import Clock
from holdfast.stores.log.objects import Objects

FOLDER: Final = "clock"
_AGAIN: Final = 60_000  # ms between measurements
_DRIFT: Final = 0.0002  # how much faster or slower than the server's the clock of a machine may be


class BucketClock:
    """The time of one server. Safe for threads; all handles of a process on one store share it."""

    def __init__(self, objects: Objects, id: str, machine: Callable[[], int] = clocks.now) -> None:
        """`id` is that of the store: leases of all its processes are on the same clock."""
        self._objects = objects
        self._id = id
        self._machine = machine
        # Processes share few objects. Some services slow down writes to a single one.
        self._key = f"{FOLDER}/{secrets.token_hex(1)}"
        self._lock = threading.Lock()
        self._bounds: tuple[float, float] | None = None  # of the server's time minus the machine's, in ms
        self._measured = 0

    def __call__(self) -> Clock:
        with self._lock:
            now = self._machine()
            if self._bounds is None or now - self._measured > _AGAIN:
                self._measure()
                now = self._machine()
            low, high = self._at(now)
            return Clock(self._id, now + int(high), now + int(low))

    def _at(self, now: int) -> tuple[float, float]:
        """The bounds now: they widen with time, because no clock runs exactly as fast as another."""
        low, high = self._bounds or (0.0, 0.0)
        drift = (now - self._measured) * _DRIFT
        return low - drift, high + drift

    def _measure(self) -> None:
        before = self._machine()
        self._objects.put(self._key, b"holdfast\n")
        found = self._objects.head(self._key)
        after = self._machine()
        if found is None:
            return  # another process removed it; the next call measures again
        written = found.written / 1000
        # Servers round down to the second. Some give more digits, but a zero may be a digit.
        rounded = 1000 if found.written % 1_000_000 == 0 else 1
        low, high = written - after, written + rounded - before
        if self._bounds is not None:
            known = self._at(after)
            narrower = max(low, known[0]), min(high, known[1])
            # If they do not overlap, the server's clock was set, or the machine's was stopped: the newest counts.
            low, high = narrower if narrower[0] <= narrower[1] else (low, high)
        self._bounds, self._measured = (low, high), after
