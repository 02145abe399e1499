"""The runs that have not ended, found by hints instead of reading all threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.stores import rules
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.log.device import READY
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.namespace import Namespace
from holdfast.stores.log.replay import RUN, ReplayedThread
from holdfast.stores.log.run_hints import Hint, RunHints, ready_at

Found = tuple[ReplayedThread, RunRow]

_LEAST: Final = 256  # so many due runs are compared by their priorities


class RunIndex:
    """Runs that have not ended. Each log is read before its run is returned, and hints that are wrong are removed."""

    def __init__(self, space: Namespace, hints: RunHints, now: Callable[[], int]) -> None:
        """`now` is the latest time that it may be on any clock of the store, in ms since 1970."""
        self._space = space
        self._hints = hints
        self._now = now

    def open(self) -> Iterator[Found]:
        """All of them."""
        return self._runs(self._hints.all())

    def open_rows(self) -> Iterator[RunRow]:
        return (row for _, row in self.open())

    def due(self, limit: int) -> Iterator[Found]:
        """Those that wait for a time that may have come, or whose lease may have ended; if there are many, the oldest.

        `limit` is how many the caller needs, if they are due.
        """
        return self._runs(islice(self._hints.due(self._now()), max(4 * limit, _LEAST)))

    def queue(self, handlers: Collection[str], after: tuple[int, int, int], limit: int) -> list[Found]:
        """A page of `Store.queue`."""
        queues = [self._ready(handler, after, limit) for handler in sorted(set(handlers))]
        return list(islice(merge(*queues, key=lambda found: rules.queue_place(found[1])), max(limit, 0)))

    def mend(self) -> None:
        """Read all threads, remove the hints that are wrong, and write those that are missing."""
        self._read(self._hints.all())
        logs = [log for log in self._space.everything() if not log.thread.is_gone and RUN not in log.thread.doubts]
        self._hints.mend((log.key, log.thread.run_row) for log in logs if log.thread.run_row is not None)

    def _ready(self, handler: str, after: tuple[int, int, int], limit: int) -> list[Found]:
        hints = self._hints.ready(handler, after) if limit > 0 else iter(())
        found: dict[int, Found] = {}
        while len(found) < limit and (some := list(islice(hints, limit - len(found)))):
            for hint, (thread, row) in self._read(some):
                if hint.key.startswith(f"{READY}/{ready_at(row)}/") and rules.queue_place(row) > after:
                    found[thread.number] = thread, row
        return list(found.values())

    def _runs(self, hints: Iterable[Hint]) -> Iterator[Found]:
        found = {thread.number: (thread, row) for _, (thread, row) in self._read(list(hints))}
        return iter(found.values())

    def _read(self, hints: list[Hint]) -> list[tuple[Hint, Found]]:
        """The runs that hints name."""
        logs: dict[str, ThreadLog | None] = {}
        for key in self._space.fetched(list(dict.fromkeys(hint.thread for hint in hints))):
            with suppress(HoldfastError):  # a run that cannot be read is skipped
                logs[key] = self._space.under(key)
        found: list[tuple[Hint, Found]] = []
        read: list[tuple[Hint, int, RunRow | None]] = []
        for hint in hints:
            log = logs.get(hint.thread)
            if log is None:
                if hint.thread in logs:
                    read.append((hint, self._hints.newest(hint.thread), None))
            elif log.thread.is_placed and RUN not in log.thread.doubts and log.thread.name is not None:
                read.append((hint, log.seen.changed, log.thread.run_row))
                if log.thread.run_row is not None:
                    found.append((hint, (log.thread, log.thread.run_row)))
        with suppress(HoldfastError):  # the next reader tries again
            self._hints.tidy(read, self._now())
        return found
