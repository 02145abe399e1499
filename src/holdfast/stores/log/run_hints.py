"""Hints: small objects that name the threads whose runs have not ended, so that workers need not read all threads.

open/<time>/<thread>/<number>             the log is worth reading from this time on (ms since 1970)
ready/<handler>/<place>/<thread>/<number> workers with the handler may claim the run at once

A hint decides nothing: the log of the thread does. It is written before the object of the log that makes it necessary,
which has the `number`. It is removed by a process that has read that object or a later one, and found the hint
unnecessary. So every run that has not ended has a hint that is early enough: docs/model/hint.pml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from holdfast.stores import rules
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.log.device import OPEN, READY, THREADS, encoded
from holdfast.stores.log.objects import PAGE, Listed, Objects

OPEN_STATUSES: Final = frozenset({"queued", "running", "waiting", "released", "failed"})
_NEVER: Final = 10**16 - 1  # of a run that waits for something else than a time
_LOWEST: Final = 1 << 62
_CONTENT: Final = b"\n"
_REMEMBERED: Final = 10_000  # threads


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
    """The hints of a namespace. Safe for threads, as far as the handle's lock makes it necessary."""

    def __init__(self, objects: Objects, grace: float, newest: Callable[[str], int]) -> None:
        """A writer appends to its log within less than `grace` seconds of the hint, or not at all.

        `newest` returns the number of the newest object of a log, as far as known.
        """
        self.newest = newest
        self._objects = objects
        self._grace = int(grace * 1_000_000)
        self._seen: dict[str, dict[str, Hint]] = {}  # by thread and key

    # -- writing ----------------------------------------------------------------------------------------------------

    def announce(self, thread: str, before: RunRow | None, row: RunRow) -> int:
        """Write the hints that a run needs, before the object of the log that replaces the run `before` by it.

        Return the number of that object.
        """
        number = self.newest(thread) + 1
        at, was = open_at(row), open_at(before)
        if at is not None and (was is None or at < was):
            self._put(f"{OPEN}/{at:016d}/{_name(thread)}/{number}")
        ready = ready_at(row)
        if ready is not None and ready != ready_at(before):
            self._put(f"{READY}/{ready}/{_name(thread)}/{number}")
        return number

    def settle(self, thread: str, number: int, row: RunRow | None, now: int) -> None:
        """Remove the hints that this process knows and a run does not need. It was read from the object `number`."""
        self.tidy([(hint, number, row) for hint in list(self._seen.get(thread, {}).values())], now)

    def tidy(self, read: Iterable[tuple[Hint, int, RunRow | None]], now: int) -> None:
        """Remove or replace hints for which the logs were read, up to the numbers given."""
        gone: list[Hint] = []
        for hint, number, row in read:
            is_old = 0 < hint.written < now * 1000 - self._grace
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

    def mend(self, runs: Iterable[tuple[str, RunRow]]) -> None:
        """Write the hints that are missing, given the runs of all threads."""
        hints: dict[str, list[Hint]] = {}
        for hint in self.all():
            hints.setdefault(hint.thread, []).append(hint)
        for thread, row in runs:
            there, at, ready = hints.get(thread, []), open_at(row), ready_at(row)
            has_time = at is None or any(hint.key.startswith(OPEN) and hint.at <= at for hint in there)
            has_place = ready is None or any(hint.key.startswith(f"{READY}/{ready}/") for hint in there)
            if not has_time or not has_place:
                self.announce(thread, None, row)

    def _put(self, key: str) -> None:
        self._objects.put(key, _CONTENT)
        self._remember(_parsed(Listed(key, 0, 0)))

    # -- reading ----------------------------------------------------------------------------------------------------

    def due(self, now: int) -> Iterator[Hint]:
        """The hints whose time has come, the earliest first."""
        return self._pages(OPEN, "", f"{OPEN}/{now:016d}/~")

    def ready(self, handler: str, after: tuple[int, int, int]) -> Iterator[Hint]:
        """The hints of a handler in the order of `Store.queue`, above a place."""
        folder = f"{READY}/{encoded(handler)}"
        return self._pages(folder, f"{folder}/{_place(after)}/~", "~")

    def _pages(self, folder: str, start: str, last: str) -> Iterator[Hint]:
        while page := self._read(self._objects.list(folder, after=start, last=last, most=PAGE)):
            yield from page
            if len(page) < PAGE:
                return
            start = page[-1].key

    def all(self) -> list[Hint]:
        return self._read([*self._objects.list(OPEN), *self._objects.list(READY)])

    def _read(self, listed: Iterable[Listed]) -> list[Hint]:
        found = [_parsed(each) for each in listed]
        for hint in found:
            self._remember(hint)
        return found

    def _remember(self, hint: Hint) -> None:
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.setdefault(hint.thread, {})[hint.key] = hint


def _parsed(listed: Listed) -> Hint:
    kind, place, *_, name, number = listed.key.split("/")
    at = int(place) if kind == OPEN else 0
    return Hint(listed.key, f"{THREADS}/{name}", int(number), at, listed.written)


def _name(thread: str) -> str:
    return thread.rpartition("/")[2]


def _within(at: int) -> int:
    return min(max(at, 0), _NEVER - 1)


def _place(place: tuple[int, int, int]) -> str:
    """A place in a queue, as text with the same order."""
    priority, updated, thread = place
    return f"{max(priority + _LOWEST, 0):020d}-{max(updated, 0):020d}-{max(thread, 0):020d}"
