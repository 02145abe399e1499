"""Retry: how often a failed call is made again and after which pauses, and the recorded tries of one call."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import Cancelled, InvalidArgument, LeaseLost, Unsupported
from holdfast.runs.arguments import is_number
from holdfast.runs.block_end import Waiting
from holdfast.runs.drivers import Call, Invocation, pause
from holdfast.runs.lease import deadline_in, on_clock
from holdfast.stores.contract_runs import Deadline, Entry
from holdfast.threads.metadata import moment

if TYPE_CHECKING:
    from holdfast.runs.context import RunContext

_MOST_TIMES: Final = 1_000
_MOST_SECONDS: Final = 30 * 86_400


class Retry(msgspec.Struct, frozen=True):
    """Make a failed call again up to `times` times, if its error is one of the classes `on`.

    The first pause takes `first` seconds, each further one `factor` times as long, at most `limit` seconds. Each pause
    is shortened by up to half, depending on the call, so that runs that failed together do not retry together.

    >>> Retry(3, first=1, factor=2, limit=60, on=ConnectionError).pauses()
    [1.0, 2.0, 4.0]
    """

    times: int
    first: float = 1.0
    factor: float = 2.0
    limit: float = 60.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        if type(self.times) is not int or not 1 <= self.times <= _MOST_TIMES:
            raise InvalidArgument(f"Retry: times must be a whole number from 1 to {_MOST_TIMES}")
        if not is_number(self.first, 0, _MOST_SECONDS):
            raise InvalidArgument("Retry: first must be a number of seconds, from 0 to 30 days")
        if not is_number(self.factor, 1):
            raise InvalidArgument("Retry: factor must be a number, 1 or more")
        if not is_number(self.limit, 0, _MOST_SECONDS):
            raise InvalidArgument("Retry: limit must be a number of seconds, from 0 to 30 days")
        if self.limit < self.first:
            raise InvalidArgument(
                f"Retry: first ({self.first:g}) is above limit ({self.limit:g}); pass a larger limit="
            )
        classes = self.on if isinstance(self.on, tuple) else (self.on,)
        if not classes or not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
            raise InvalidArgument("Retry: on must be an exception class, or a tuple of them")

    def pauses(self) -> list[float]:
        """Return the longest pause before each retry, in seconds."""
        return [self._longest(tries) for tries in range(1, self.times + 1)]

    def pause(self, tries: int, spread: float) -> float:
        """The pause after so many tries have failed. `spread`, from 0 to 1: at 1 it is half as long."""
        return self._longest(tries) * (1 - spread / 2)

    def _longest(self, tries: int) -> float:
        try:
            return float(min(self.first * self.factor ** (tries - 1), self.limit))
        except OverflowError:
            return float(self.limit)


def checked_retry(retry: object) -> Retry | None:
    """A retry policy, or None; InvalidArgument for anything else."""
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument("retry must be a holdfast.Retry, like Retry(3, first=1.0)")
    return retry


# -- the tries of one call ----------------------------------------------------------------------------------------

SHORT_SECONDS: Final = 2.0  # a longer pause suspends the run


class RetryState:
    """How many tries of a call have failed, and when the next one is due. The newest entry of the call has both."""

    def __init__(self, context: RunContext, retry: Retry) -> None:
        self._context = context
        self._retry = retry
        self._count = 0
        self._again: Deadline | None = None

    def resume(self, known: Entry | None) -> None:
        """Continue the tries that an earlier claim recorded in the newest entry of the call.

        If the program received the error of the last try, that series has ended.
        """
        is_earlier = known is not None and known.fence != self._context.lease.fence
        if known is not None and is_earlier and (not known.heard or known.status in ("started", "in_doubt")):
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
            yield Invocation(pause, (left,), is_internal=True)
            self._context.require_active()

    def _suspended(self, entry: Entry, again: Deadline) -> Waiting:
        when = moment(again.wall).isoformat(sep=" ", timespec="seconds")
        times = "once" if self._count == 1 else f"{self._count} times"
        reason = f"{entry.name} failed {times} and is called again at {when}"
        return Waiting(None, reason, wake_at=again.at, wake_wall=again.wall, blocked_call=entry)

    def _spread(self, entry: Entry) -> float:
        """A number from 0 to 1 that differs from call to call."""
        parts = self._context.run_id, entry.step, entry.key, self._count
        return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()[0] / 255
