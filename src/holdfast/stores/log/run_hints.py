"""Hints: small objects that name the threads whose runs have not ended, so that workers need not read all threads.

open/<time>/<thread>/<number>             the log is worth reading from this time on (ms since 1970)
ready/<handler>/<place>/<thread>/<number> workers with the handler may claim the run at once

A hint decides nothing: the log of the thread does. It is written before the object of the log that makes it necessary,
which has the `number`. It is removed by a process that has read that object or a later one, and found the hint
unnecessary. So every run that has not ended has a hint that is early enough: docs/model/hint.pml.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, RunRow
from holdfast.stores.log.device import GRACE, OPEN, READY, THREADS, encoded
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.namespace import FoundRun, Namespace
from holdfast.stores.log.replay import RUN

if TYPE_CHECKING:  # the directory store needs no client of buckets
    from holdfast.stores.log.objects import Objects

OPEN_STATUSES: Final = frozenset({"queued", "running", "waiting", "released", "failed"})
_NEVER: Final = 10**16 - 1  # of a run that waits for something else than a time
_LOWEST: Final = 1 << 62
_CONTENT: Final = b"\n"
_REMEMBERED: Final = 10_000  # threads
_LEAST: Final = 256  # at least this many due runs are read, to find those with the highest priority


class Hint(NamedTuple):
    """A hint: the key of its object, the thread, and the object of the log before which it was written."""

    key: str
    thread: str
    number: int
    at: int  # 0 if it is for a handler
    written: int  # by the server's clock (µs); 0 if this process has written it


def open_at(row: RunRow | None) -> int | None:
    """The time from which the log of a run is worth reading; None if the run has ended, or is ready for a handler."""
    if row is None or row.status not in OPEN_STATUSES or ready_at(row) is not None:
        return None
    if row.status == "running":
        return _within(row.lease_until if row.owner is not None else 0)
    return _within(min(row.wake_at, row.wake_wall // 1000)) if rules.is_timed(row) else _NEVER


def ready_at(row: RunRow | None) -> str | None:
    """The handler of a run that workers may claim at once, and its place in the queue; None if it is not ready."""
    handler = rules.queue_of(row) if row is not None and rules.is_ready(row) else None
    return None if row is None or handler is None else f"{encoded(handler)}/{_place(rules.queue_place(row))}"


class RunHints:
    """The runs that have not ended, by their hints. Not thread-safe: the store's lock comes first.

    Each log is read before its run is returned, and hints that are wrong are removed.
    """

    def __init__(self, space: Namespace, objects: Objects, clock: Callable[[], Clock], wall: Callable[[], int]) -> None:
        self._space = space
        self._objects = objects
        self._clock = clock
        self._wall = wall
        self._seen: dict[str, dict[str, Hint]] = {}  # by thread and key

    # -- reading ----------------------------------------------------------------------------------------------------

    def open(self) -> Iterable[FoundRun]:
        """All runs that have not ended."""
        return self._runs(self._all())

    def due(self, limit: int) -> Iterable[FoundRun]:
        """Runs that wait for a time that may have come, or whose lease may have ended; if there are many, the oldest.

        `limit` is how many due runs the caller needs.
        """
        hints = self._listed(OPEN, last=f"{OPEN}/{self._latest(self._clock()):016d}/~")
        return self._runs(islice(hints, max(4 * limit, _LEAST)))

    def queue(self, handlers: Collection[str], after: tuple[int, int, int], limit: int) -> list[FoundRun]:
        """A page of `Store.queue`."""
        queues = [self._ready(handler, after, limit) for handler in sorted(set(handlers))]
        return list(islice(merge(*queues, key=lambda found: rules.queue_place(found[1])), max(limit, 0)))

    def _ready(self, handler: str, after: tuple[int, int, int], limit: int) -> list[FoundRun]:
        folder = f"{READY}/{encoded(handler)}"
        hints = self._listed(folder, f"{folder}/{_place(after)}/~") if limit > 0 else iter(())
        found: dict[int, FoundRun] = {}
        while len(found) < limit and (some := list(islice(hints, limit - len(found)))):
            for hint, (thread, row) in self._read(some):
                if hint.key.startswith(f"{READY}/{ready_at(row)}/") and rules.queue_place(row) > after:
                    found[thread.number] = thread, row
        return list(found.values())

    def _runs(self, hints: Iterable[Hint]) -> Iterable[FoundRun]:
        return {run[0].number: run for _, run in self._read(list(hints))}.values()

    def _read(self, hints: list[Hint]) -> list[tuple[Hint, FoundRun]]:
        """The runs that hints name."""
        clock: Clock | None = None  # a caller may look at runs while the server's time is not known
        with suppress(HoldfastError):
            clock = self._clock()
        logs: dict[str, ThreadLog | None] = {}
        for key in self._space.fetched(list(dict.fromkeys(hint.thread for hint in hints))):
            with suppress(HoldfastError):  # a run that cannot be read is skipped
                logs[key] = self._space.under(key)
        found: list[tuple[Hint, FoundRun]] = []
        read: list[tuple[Hint, int, RunRow | None]] = []
        for hint in hints:
            log = logs.get(hint.thread)
            if log is None:
                if hint.thread in logs:
                    read.append((hint, self._newest(hint.thread), None))
            elif log.thread.has_known_run and log.thread.name is not None:
                read.append((hint, log.seen.changed, log.thread.run_row))
                if log.thread.run_row is not None:
                    found.append((hint, (log.thread, log.thread.run_row)))
        if clock is not None:
            with suppress(HoldfastError):  # the next reader tries again
                self._tidy(read, clock)
        return found

    def _all(self) -> list[Hint]:
        return [*self._listed(OPEN), *self._listed(READY)]

    def _listed(self, folder: str, start: str = "", last: str = "~") -> Iterator[Hint]:
        listed = self._objects.pages(folder, after=start, last=last)
        return (self._remembered(each.key, each.written) for each in listed)

    def _newest(self, thread: str) -> int:
        """The number of the newest object of a log, as far as known."""
        return self._space.device.log(thread).newest

    def _remembered(self, key: str, written: int = 0) -> Hint:
        kind, place, *_, name, number = key.split("/")
        hint = Hint(key, f"{THREADS}/{name}", int(number), int(place) if kind == OPEN else 0, written)
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.setdefault(hint.thread, {})[key] = hint
        return hint

    # -- writing ----------------------------------------------------------------------------------------------------

    def announce(self, thread: str, before: RunRow | None, row: RunRow) -> int:
        """Write the hints that a run needs, before the object of the log that replaces the run `before` by it.

        Return the number of that object.
        """
        number = self._newest(thread) + 1
        at, was = open_at(row), open_at(before)
        if at is not None and (was is None or at < was):
            self._put(f"{OPEN}/{at:016d}/{_name(thread)}/{number}")
        ready = ready_at(row)
        if ready is not None and ready != ready_at(before):
            self._put(f"{READY}/{ready}/{_name(thread)}/{number}")
        return number

    def settle(self, thread: str, number: int, row: RunRow | None) -> None:
        """Remove the hints that this process knows and a run does not need. It was read from the object `number`."""
        hints = [hint for hint in self._seen.get(thread, {}).values() if hint.number <= number]
        self._tidy([(hint, number, row) for hint in hints], self._clock())

    def mend(self) -> None:
        """Read all threads, remove the hints that are wrong, and write those that are missing."""
        hints: dict[str, list[Hint]] = {}
        self._read(self._all())
        for hint in self._all():
            hints.setdefault(hint.thread, []).append(hint)
        for log in self._space.everything():
            row = None if log.thread.is_gone or RUN in log.thread.doubts else log.thread.run_row
            there, at, ready = hints.get(log.key, []), open_at(row), ready_at(row)
            has_time = at is None or any(hint.key.startswith(OPEN) and hint.at <= at for hint in there)
            has_place = ready is None or any(hint.key.startswith(f"{READY}/{ready}/") for hint in there)
            if row is not None and not (has_time and has_place):
                self.announce(log.key, None, row)

    def _tidy(self, read: Iterable[tuple[Hint, int, RunRow | None]], clock: Clock) -> None:
        """Remove or replace hints for which the logs were read, up to the numbers given, at this time or later."""
        gone: list[Hint] = []
        now = self._latest(clock)
        for hint, number, row in read:
            is_old = 0 < hint.written < clock.latest_certain * 1000 - int(GRACE * 1_000_000)
            if hint.number > number and not is_old:
                continue  # its writer may be about to append
            if hint.key.startswith(READY):
                if not hint.key.startswith(f"{READY}/{ready_at(row)}/"):
                    gone.append(hint)
                continue
            at = open_at(row)
            if at is None:
                gone.append(hint)
            elif hint.at <= now and hint.at < at:
                self._put(f"{OPEN}/{at:016d}/{_name(hint.thread)}/{number}")
                gone.append(hint)
        if gone:
            self._objects.delete([hint.key for hint in gone])
        for hint in gone:
            self._seen.get(hint.thread, {}).pop(hint.key, None)

    def _latest(self, clock: Clock) -> int:
        """The latest time that it may be on any clock of the store, in ms since 1970."""
        return max(clock.now, self._wall() // 1000)

    def _put(self, key: str) -> None:
        self._objects.put(key, _CONTENT)
        self._remembered(key)


def _name(thread: str) -> str:
    return thread.rpartition("/")[2]


def _within(at: int) -> int:
    return min(max(at, 0), _NEVER - 1)


def _place(place: tuple[int, int, int]) -> str:
    """A place in a queue, as text with the same order."""
    priority, updated, thread = place
    return f"{max(priority + _LOWEST, 0):020d}-{max(updated, 0):020d}-{max(thread, 0):020d}"
