"""Leases: one worker at a time holds a run, and stops by itself before another may take it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from holdfast.errors import Closed, LeaseLost, StoreError
from holdfast.stores.contract import Store
from holdfast.stores.running import Clock, Progress, RunRow

_RENEWALS = 3  # per lease: two may fail before it ends
_MARGIN = 0.1  # of a lease: so much earlier the holder stops, for the time that a check takes to become an act


def local_seconds() -> float:
    """A clock of this machine that counts suspended time: a laptop that slept has lost its leases."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Two counts of model and tool calls, added."""
    return one[0] + other[0], one[1] + other[1]


def is_over(row: RunRow, clock: Clock) -> bool:
    """Whether a lease has ended by time. One on another clock has: its machine was started again."""
    return row.clock != clock.id or row.lease_until <= clock.now


class Lease:
    """A run that this process holds. Renewed in the background until it is given back."""

    def __init__(self, store: Store, row: RunRow, seconds: float, taken_at: float) -> None:
        """`taken_at` is the local time from before the claim: the store may have counted from then."""
        self.row = row
        self._store = store
        self.seconds = seconds
        self._taken_at = taken_at
        self._until = taken_at + seconds
        self._lost = False
        self.is_failing = False  # whether the store could not be written the last time it was to be renewed
        self._unsaid: Progress | None = None
        self._known = (0, 0)  # model and tool calls that were answered from the journal, and nothing stored says so yet
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_done, name="holdfast-lease", daemon=True)
        self._thread.start()

    @property
    def fence(self) -> int:
        return self.row.fence

    def check(self) -> None:
        """Raise LeaseLost unless the run is surely still held. Called right before anything that acts."""
        if not self._lost and self._is_ending():
            # The store was away, or the machine slept. A renewal says whether anybody has taken the run since. To give
            # up without asking would keep all out for as long as a renewal that was under way has made the lease.
            with suppress(LeaseLost, StoreError, Closed):
                self._renew()
        if self._lost or self._is_ending():
            raise LeaseLost(
                "this worker could not keep its lease, and another may have the run by now; what was done is recorded"
            )

    def _is_ending(self) -> bool:
        return local_seconds() > self._until - self.seconds * _MARGIN

    def has_passed(self, until: int) -> bool:
        """Whether a time on the clock of this lease lies behind."""
        return is_over(replace(self.row, lease_until=until), self._store.clock())

    def lose(self) -> None:
        """Take note that another worker has the run."""
        self._lost = True

    def changed(self, **changes: Any) -> RunRow:
        """The run's record with some of it changed, to be stored by the caller. The lease counts from now.

        A record that carried the end of the lease as it was would take back a renewal made in between.
        """
        until = self._store.clock().now + round(self.seconds * 1000)
        with self._lock:
            self.row = replace(self.row, lease_until=until, **changes)
            return self.row

    def last_row(self) -> RunRow:
        """The run's record with how long it was held by now, for whoever gives it back."""
        return replace(self.counted(), held=self.row.held + round((local_seconds() - self._taken_at) * 1000))

    def note_known(self, *, is_model: bool) -> None:
        """A call was answered from the journal. It is counted with whatever is written next."""
        with self._lock:
            self._known = both(self._known, (1, 0) if is_model else (0, 1))

    def take_known(self) -> tuple[int, int]:
        """How many calls were answered so since this was last asked, for a journal entry to say."""
        with self._lock:
            known, self._known = self._known, (0, 0)
            return known

    def counted(self) -> RunRow:
        """The run's record with the calls that no entry counts."""
        return replace(self.row, known=both(self.row.known, self._known))

    @property
    def has_uncounted(self) -> bool:
        """Whether there are such calls."""
        return self._known != (0, 0)

    def note_counted(self, row: RunRow) -> None:
        """Take note that a record with them is stored."""
        with self._lock:
            self._known = (
                self._known[0] - row.known[0] + self.row.known[0],
                self._known[1] - row.known[1] + self.row.known[1],
            )
            self.row = replace(self.row, known=row.known)

    def say(self, progress: Progress) -> None:
        """Let the run's record say how far it is, with the next renewal or whatever writes the record before."""
        with self._lock:
            self.row = replace(self.row, progress=progress)
            self._unsaid = progress

    @property
    def unsaid(self) -> Progress | None:
        """What was said and not stored yet."""
        return self._unsaid

    def said(self, progress: Progress | None) -> None:
        """Take note that it is stored."""
        with self._lock:
            if self._unsaid is progress:
                self._unsaid = None

    def stop(self) -> None:
        """Renew no more."""
        self._done.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _renew_until_done(self) -> None:
        while not self._done.wait(self.seconds / _RENEWALS):
            try:
                self._renew()
            except (LeaseLost, Closed):
                self._lost = True
                return
            except StoreError:
                # Locked or restarting: try again. `check` stops the worker if that lasts too long.
                self.is_failing = True
            else:
                self.is_failing = False

    def _renew(self) -> None:
        before = local_seconds()
        until = self._store.clock().now + round(self.seconds * 1000)
        unsaid = self._unsaid
        self._store.renew(self.row.thread, self.row.fence, until, unsaid)
        self.said(unsaid)
        with self._lock:
            self.row = replace(self.row, lease_until=until)
        self._until = before + self.seconds
