"""The lease of a run, which one process holds at a time; the clocks, and the deadlines of calls and waits."""

from __future__ import annotations

import functools
import math
import threading
import time
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from msgspec.structs import replace

from holdfast import forksafe
from holdfast.errors import Closed, Conflict, LeaseLost, StoreError
from holdfast.signals import shield
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock, Deadline, Entry, Progress, RunRow
from holdfast.threads.metadata import moment
from holdfast.threads.process import is_alive
from holdfast.time_limit import TimeLimit

_RENEWALS: Final = 3  # per lease
# Shares of a lease:
_MARGIN: Final = 0.1  # the holder stops acting this much before the end: a call starts a little after its check
_ANSWERED_WITHIN: Final = 1 / 6  # how long a renewal waits for the store; two may fail before the lease ends
_RETRY_AFTER: Final = 1 / 30  # the pause after a renewal that failed

# A clock of this machine that also counts suspended time: a laptop that slept has lost its leases.
local_seconds = functools.partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def now() -> int:
    """Microseconds since 1970, for people to read. Nothing is ordered by it."""
    return time.time_ns() // 1000


_leases: Final[weakref.WeakSet[Lease]] = weakref.WeakSet()


class Lease:
    """The right of this process to a run. A thread renews it until `stop`."""

    def __init__(self, store: Store, row: RunRow, seconds: float, taken_at: float, parent: Lease | None = None) -> None:
        """`taken_at` is the local time before the claim: the store may have counted from then.

        `parent` is the lease of the run's parent. If it is lost, so is this lease.
        """
        self.row = row
        self.fence = row.fence  # 0 in a forked child: the store refuses its writes
        self.seconds: Final = seconds
        self.is_renewal_failing = False  # whether the last renewal failed because of the store
        self.is_write_failing = False  # whether a result waits for a store that fails
        self.unstored_progress: Progress | None = None  # progress that is not stored yet
        self._store = store
        self._parent = parent
        self.taken_at: Final = taken_at
        self._stop_at = taken_at + seconds * (1 - _MARGIN)
        self._read_at = (taken_at, row.lease_until - round(seconds * 1000))
        self._lost = False
        self._lock = threading.Lock()
        self.limit: Final = LeaseLimit(self)  # for the store calls before an action
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_done, name="holdfast-lease", daemon=True)
        _leases.add(self)
        self._thread.start()

    def check(self) -> None:
        """Raise LeaseLost unless this process certainly still holds the run. Called right before every action."""
        if self._parent is not None:
            self._parent.check()
        if not self._lost and local_seconds() <= self._stop_at:
            return
        if not self._lost:
            # The store was away, or the machine slept. Renewing finds out whether another process has the run. If this
            # process gave up instead, a renewal that is under way could still keep all others out.
            margin = self.seconds * _MARGIN
            left = self._stop_at + margin - local_seconds()
            with suppress(LeaseLost, StoreError, Closed):
                self._renew(within=left if left > 0 else margin)
        if not self.fence:
            raise LeaseLost(
                "this process was forked inside the block of a run, and the run belongs to its parent; nothing was "
                "done. Use the run only in the process that called hf.run."
            )
        if self._lost or local_seconds() > self._stop_at:
            raise LeaseLost(
                "this process could not renew its lease, and another one may hold the run. This process does nothing "
                "more; recorded calls are kept. Call hf.run again to resume the run."
            )

    @property
    def is_stopped(self) -> bool:
        """Whether the block of the run has ended."""
        return self._done.is_set()

    def must_stop(self) -> bool:
        """Whether this process must not act now. Asks no store."""
        return self._lost or local_seconds() > self._stop_at

    def confirm(self) -> None:
        """Renew the lease now. LeaseLost if another process has the run."""
        try:
            self._renew()
        except LeaseLost:
            self._lost = True
            raise

    def deadline(self, seconds: float) -> Deadline:
        """The time in so many seconds on the clock of the store. It is never too early, and takes no round trip.

        The store's clock was read after the local time that is kept with it, so at most the time since then has passed.
        """
        local, read = self._read_at
        ahead = local_seconds() - local + seconds
        return Deadline(self.row.clock, read + math.ceil(ahead * 1000), now() + math.ceil(seconds * 1_000_000))

    def lose(self) -> None:
        """Note that another process has the run."""
        self._lost = True

    def give_up(self) -> None:
        """Give up the run in a forked child, which must not act under the fence of its parent."""
        self.fence = 0
        self._lost = True
        self._lock = threading.Lock()

    def changed(self, **changes: Any) -> RunRow:
        """Change fields of the run's record and return it, for the caller to store. The lease counts from now.

        Storing the previous end of the lease would cancel a renewal that was made in between.
        """
        until = self._store.clock().now + round(self.seconds * 1000)
        with self._lock:
            self.row = replace(self.row, lease_until=until, **changes)
            return self.row

    def note(self, **changes: Any) -> None:
        """Note fields of the run's record that are stored."""
        with self._lock:
            self.row = replace(self.row, **changes)

    def final_row(self) -> RunRow:
        """The run's record with the time that it was held, for its release."""
        return replace(self.row, held=self.row.held + round((local_seconds() - self.taken_at) * 1000))

    def report(self, progress: Progress) -> None:
        """Put progress into the run's record. The next write of the record stores it."""
        with self._lock:
            self.row = replace(self.row, progress=progress)
            self.unstored_progress = progress

    def progress_stored(self, progress: Progress | None) -> None:
        """Note that progress is stored."""
        with self._lock:
            if self.unstored_progress is progress:
                self.unstored_progress = None

    def stop(self) -> None:
        """Stop renewing."""
        self._done.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _renew_until_done(self) -> None:
        pause = regular = self.seconds / _RENEWALS
        while not self._done.wait(pause):
            try:
                self._renew()
            except (LeaseLost, Closed):
                self._lost = True
                return
            except StoreError:
                # Locked or restarting: try again. `check` stops the run if that lasts too long.
                self.is_renewal_failing = True
                pause = self.seconds * _RETRY_AFTER
            else:
                self.is_renewal_failing = False
                pause = regular

    def _renew(self, within: float | None = None) -> None:
        if self._parent is not None and self._parent._lost:
            raise LeaseLost("another process holds the parent of this run, so this process does nothing more")
        before = local_seconds()
        limit = before + (self.seconds * _ANSWERED_WITHIN if within is None else within)
        unstored_progress = self.unstored_progress
        with shield, TimeLimit(lambda: local_seconds() > limit):
            until = self._store.clock().now + round(self.seconds * 1000)
            self._store.renew(self.row.thread, self.row.fence, until, unstored_progress)
        self.progress_stored(unstored_progress)
        with self._lock:
            self.row = replace(self.row, lease_until=until)
        self._stop_at = before + self.seconds * (1 - _MARGIN)
        self._read_at = (before, until - round(self.seconds * 1000))


class LeaseLimit(TimeLimit):
    """Limits the store calls in its block to the time of the lease. LeaseLost if the store fails after that."""

    def __init__(self, lease: Lease) -> None:
        # An interrupt may end the block before its `__exit__`. A limit that stayed must not outlast the run.
        super().__init__(lambda: lease.must_stop() and not lease.is_stopped)
        self._lease = lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, StoreError):
            self._lease.check()


def _give_up_all() -> None:
    for lease in list(_leases):
        lease.give_up()


forksafe.register(in_child=_give_up_all)


class Posts:
    """The time at which this process last posted an entry to any run."""

    at = -1.0


posts = Posts()


def note_posted() -> None:
    """Note that this process posted an entry: runs that it holds read it at their next call."""
    posts.at = local_seconds()


# -- deadlines of calls and waits, and whether a call may still act -----------------------------------------------


def may_act(entry: Entry, clock: Clock) -> bool:
    """Whether a call certainly may still act: before its deadline, or in a process that is alive."""
    if entry.deadline is not None and not has_passed(entry.deadline, clock):
        return True
    return entry.owner is not None and is_alive(entry.owner)


def require_cannot_act(entry: Entry, clock: Clock, advice: str) -> None:
    """Conflict if a call may still act."""
    if not may_act(entry, clock):
        return
    if entry.deadline is not None and not has_passed(entry.deadline, clock):
        until = f"until {moment(entry.deadline.wall).isoformat(sep=' ', timespec='seconds')}"
    else:
        until = f"because process {entry.owner.pid} is still running its function" if entry.owner is not None else ""
    raise Conflict(
        f"{entry.name} (call {entry.number}) may still act {until}; nothing was changed. If it is called again now, it "
        f"may happen twice. {advice}, or pass force=True if you know that it can no longer act."
    )


def has_passed(deadline: Deadline, clock: Clock) -> bool:
    """Whether a time has passed. If its clock no longer exists, the wall clock decides."""
    return clock.has_reached(deadline.at) if clock.id == deadline.clock else now() >= deadline.wall


def on_clock(deadline: Deadline, clock: Clock) -> Deadline:
    """The same time on a clock. If its own clock no longer exists, it is computed from the wall clock."""
    if deadline.clock == clock.id:
        return deadline
    return Deadline(clock.id, clock.now + max((deadline.wall - now()) // 1000, 0), deadline.wall)


def deadline_in(seconds: float, clock: Clock) -> Deadline:
    """The time in so many seconds."""
    return Deadline(clock.id, clock.now + round(seconds * 1000), now() + round(seconds * 1_000_000))
