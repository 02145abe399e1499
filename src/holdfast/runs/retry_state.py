"""RetryState: the failed tries of one call (`Retry`), recorded so that a resume continues them."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import Cancelled, LeaseLost, Unsupported
from holdfast.runs.context import RunContext, Suspended
from holdfast.runs.deadlines import deadline_in, on_clock
from holdfast.runs.drivers import Call, Invocation, pause
from holdfast.runs.retry import Retry
from holdfast.stores.contract_runs import Deadline, Entry
from holdfast.threads.metadata import moment

SHORT_SECONDS: Final = 2.0  # a longer pause suspends the run


class RetryState:
    """How many tries of a call have failed, and when the next one is due. The newest entry of the call has both."""

    def __init__(self, context: RunContext, retry: Retry) -> None:
        self._context = context
        self._retry = retry
        self._count = 0
        self._again: Deadline | None = None

    def resume(self, known: Entry | None) -> None:
        """Continue after the newest entry of the call, if an earlier claim wrote it.

        An error that the program received ends a series of tries.
        """
        is_earlier = known is not None and known.fence != self._context.lease.fence
        if known is not None and is_earlier and (not known.heard or known.status in ("begun", "in_doubt")):
            self._count, self._again = known.tries, known.again

    def allow(self, error: BaseException) -> bool:
        """Whether the call is made again after this error."""
        is_left = self._count < self._retry.times and isinstance(error, self._retry.on)
        return is_left and not isinstance(error, LeaseLost | Unsupported | Cancelled)

    def failed(self, entry: Entry) -> Entry:
        """The entry of a try that failed, to be recorded with the time of the next one."""
        self._count += 1
        seconds = self._retry.pause(self._count, self._spread(entry))
        self._again = deadline_in(seconds, self._context.store.clock())
        return replace(entry, heard=False, tries=self._count, again=self._again)

    def next(self, entry: Entry) -> Entry:
        """The entry of the next try."""
        return replace(entry, heard=True, tries=self._count, again=None)

    def wait(self, entry: Entry) -> Call:
        """Wait until the next try is due: here if that is soon, else suspended."""
        if self._again is None:
            return
        clock = self._context.store.clock()
        again = on_clock(self._again, clock)
        left = (again.at - clock.now) / 1000
        if left > SHORT_SECONDS:
            raise self._suspended(entry, again)
        self._again = None
        if left > 0:
            yield Invocation(pause, (left,), is_probe=True)
            self._context.require_active()

    def _suspended(self, entry: Entry, again: Deadline) -> Suspended:
        when = moment(again.wall).isoformat(sep=" ", timespec="seconds")
        times = "once" if self._count == 1 else f"{self._count} times"
        reason = f"{entry.name} failed {times} and is called again at {when}"
        return Suspended(None, reason, wake_at=again.at, wake_wall=again.wall, about=entry)

    def _spread(self, entry: Entry) -> float:
        """A number from 0 to 1 that differs from call to call."""
        parts = self._context.identity, entry.step, entry.key, self._count
        return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()[0] / 255
