"""The queue of runs: which run a worker takes next, and how a run is submitted or queued again."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from holdfast.errors import Conflict, InvalidArgument, LimitReached, NotFound
from holdfast.runs.arguments import checked_text
from holdfast.runs.handlers import Handlers
from holdfast.runs.lease import deadline_in, now
from holdfast.runs.record import each_run, handler_of, is_free, queued, start_digest
from holdfast.runs.waits import wake_parents
from holdfast.stores.abilities import Expiring
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.threads.ancestry import branch_of
from holdfast.threads.save import NEW, Saver
from holdfast.threads.scan import checkpoint_at, thread_named, thread_numbered
from holdfast.types import Status

NamedRun = tuple[str, RunRow]

_IDLE_SECONDS = 0.5  # between two looks at the store when there is nothing to do
_PAGE: Final = 50
_FIRST: Final = (-(1 << 62), 0, 0)
_CHILDREN: Final = ""  # the queue of children
_INTERRUPTED_SECONDS: Final = 0.2  # between two searches for runs of dead workers, while there is other work


class WorkQueue:
    """The runs for a worker, those with a higher priority first.

    Among runs of the same priority, those of dead workers that the last search has found come first. After them, the
    queued runs, oldest first, and the due runs, longest overdue first, take turns to be first.
    """

    def __init__(self, store: Store, handlers: Handlers) -> None:
        self._store = store
        self._handlers = handlers
        self._overdue_first = False
        self._searched_at = 0.0
        self._interrupted: list[NamedRun] = []  # found by the last search, and not offered yet
        self.lost_race = False  # whether another worker was faster since there was last nothing to do
        # Handlers at their limits: until when (local seconds), and whether the end of a run may change that.
        self._blocked: dict[str, tuple[float, bool]] = {}

    def __iter__(self) -> Iterator[NamedRun]:
        # Alternate: neither runs that wake again and again nor queued runs may starve others of the same priority.
        self._overdue_first = not self._overdue_first
        both = (self._overdue(), self._queued()) if self._overdue_first else (self._queued(), self._overdue())
        # A search reads all running runs, so it is not made for every claim.
        is_searching = time.monotonic() - self._searched_at >= _INTERRUPTED_SECONDS
        if is_searching:
            self._search()
        for found in heapq.merge(list(self._interrupted), *both, key=lambda found: -found[1].priority):
            self._forget(found)
            yield found
        if not is_searching:
            self._search()
            for found in list(self._interrupted):
                self._forget(found)
                yield found

    def _queued(self) -> Iterator[NamedRun]:
        """The runs that are queued, released or failed."""
        after = _FIRST
        while page := self._store.queue(handlers=self._open_handlers(), after=after, limit=_PAGE):
            after = _order(page[-1][1])
            for _, group in groupby(page, key=lambda found: found[1].priority):
                same = list(group)
                # Workers that compete for the same run start at different places after one has lost a race.
                start = random.randrange(len(same)) if self.lost_race else 0  # noqa: S311 - not a secret
                for name, row in same[start:] + same[:start]:
                    if row.parent is not None:
                        wake_parents(self._store, row)  # the process that answered the child may have died before
                    elif self.is_open(row):
                        yield name, row

    def _search(self) -> None:
        """Search the runs whose workers died."""
        self._searched_at = time.monotonic()
        clock = self._store.clock()
        store = self._store
        found = store.expired() if isinstance(store, Expiring) else each_run(store, ("running",))
        running = [each for each in found if self.is_open(each[1])]
        free = [found for found in running if is_free(self._store, found[1], clock)]
        self._interrupted = sorted(free, key=lambda found: _order(found[1]))

    def _forget(self, found: NamedRun) -> None:
        """Offer an interrupted run once per search. If its record changed since, it cannot be claimed."""
        if found in self._interrupted:
            self._interrupted = [each for each in self._interrupted if each is not found]

    def _overdue(self) -> Iterator[NamedRun]:
        """The runs that waited for a time that has passed."""
        limit = _PAGE
        seen = 0
        while len(page := self._store.due(limit=limit)) > seen:
            for found in page[seen:]:
                if self.is_open(found[1]):
                    yield found
                elif self._handlers.of(found[1]) is not None:
                    self._enqueue(found[1])
            # Runs for other workers may be overdue for longer: look past them.
            seen, limit = len(page), limit * 2

    def _enqueue(self, row: RunRow) -> None:
        """Queue a due run whose handler is at its limit: then it is not read again at every look."""
        with suppress(Conflict):  # another worker has it
            is_waiting = row.status == "waiting"
            ready = queued(row) if is_waiting else replace(row, fence=row.fence + 1, wake_at=0, wake_wall=0)
            self._store.claim(row, ready)

    # -- limits -----------------------------------------------------------------------------------------------------

    def block(self, row: RunRow, refused: LimitReached) -> None:
        """Leave out the runs of a handler for a while, because it is at its limit."""
        seconds = _IDLE_SECONDS if refused.seconds is None else refused.seconds
        self._blocked[handler_of(row) or ""] = time.monotonic() + seconds, refused.seconds is None

    def ended(self, row: RunRow) -> None:
        """Note that this worker ended a run: its handler may be below its limit."""
        until, can_end_early = self._blocked.get(handler_of(row) or "", (0.0, False))
        if can_end_early and until:
            self._blocked.pop(handler_of(row) or "", None)

    def pause(self) -> float:
        """For how many seconds to wait if nothing was found."""
        now = time.monotonic()
        times = [until - now for until, _ in list(self._blocked.values()) if until > now]
        return min(_IDLE_SECONDS, *times) if times else _IDLE_SECONDS

    def _open_handlers(self) -> list[str]:
        now = time.monotonic()
        return [name for name in (_CHILDREN, *self._handlers.names) if self._blocked.get(name, (0.0,))[0] <= now]

    def is_open(self, row: RunRow) -> bool:
        """Whether a run is for this worker, and its handler is not at its limit as far as known."""
        if self._handlers.of(row) is None:
            return False
        return self._blocked.get(handler_of(row) or "", (0.0,))[0] <= time.monotonic()


def _order(row: RunRow) -> tuple[int, int, int]:
    """The place of a run in the order of `Store.queue`."""
    return -row.priority, row.updated_at, row.thread


# -- queueing a run again -----------------------------------------------------------------------------------------

_ADVICE: Final = {
    "completed": "Rewind the thread to repeat its last steps",
    "queued": "A worker with its handler will take it",
    "waiting": "An answer, or the time that it waits for, resumes it",
    "running": "Wait until its process has released it, or end it with hf.cancel",
}


class Requeue(NamedTuple):
    """A run that can be queued for workers with its handler. `found` is what the decision is based on.

    `queue` raises Conflict if the run has changed since.
    """

    handler: str
    found: tuple[str, int]
    is_first: bool
    queue: Callable[[], None]


def requeue_of(store: Store, thread: ThreadRow) -> Requeue:
    """Return how to queue the run of a thread. A fork without a run gets one with the handler of its origin.

    NotFound if the thread has no run and is not a fork of a thread with one, InvalidArgument if the run has no handler,
    Conflict if it is completed, queued or waiting, or if a process holds it.
    """
    run = store.run(thread.position.thread)
    if run is None:
        return _first(store, thread)
    if run.handler is None:
        raise InvalidArgument(
            f"the run of thread {quoted(thread.name)} has no handler, so no worker can take it; nothing was queued. "
            "Resume it with its program."
        )
    if run.status in ("completed", "queued", "waiting") or (run.status == "running" and not is_free(store, run)):
        raise Conflict(
            f"the run of thread {quoted(thread.name)} is {run.status}, so it cannot be queued; nothing was changed. "
            f"{_ADVICE[run.status]}."
        )

    def queue() -> None:
        # The person who resumes it has seen why earlier attempts failed, so the count starts again.
        store.claim(run, replace(queued(run), attempt=0, owner=None, lease_until=0))

    return Requeue(run.handler, (run.status, run.fence), is_first=False, queue=queue)


def _first(store: Store, thread: ThreadRow) -> Requeue:
    origin = _origin_run(store, thread)
    if origin is None:
        raise NotFound(
            f"thread {quoted(thread.name)} has no run to resume; nothing was queued. Start one with hf.run or "
            "hf.submit."
        )
    handler, version = origin.handler, origin.version
    if handler is None:
        raise InvalidArgument(
            f"the run that thread {quoted(thread.name)} was forked from has no handler, so no worker can take the "
            "fork; nothing was queued. Run the fork with its program."
        )
    position = thread.position
    row = RunRow(
        thread=position.thread,
        status="queued",
        fence=1,
        branch=branch_of(position),
        began=position.last,
        handler=handler,
        version=version,
        agent=origin.agent,
        created_at=now(),
        updated_at=now(),
    )

    def queue() -> None:
        store.claim(None, row)

    return Requeue(handler, ("fork", position.last), is_first=True, queue=queue)


def _origin_run(store: Store, thread: ThreadRow) -> RunRow | None:
    """Return the run of the thread that this one was forked from, or of its origin, if that has a run."""
    number, seen = thread.position.thread, set[int]()
    while number not in seen:
        seen.add(number)
        first = checkpoint_at(store, number, 1)
        if first is None or first.parent is None or not first.parent[0]:
            return None
        number = first.parent[0]
        if thread_numbered(store, number).name is None:
            return None
        run = store.run(number)
        if run is not None:
            return run
    return None


# -- submitting a run ---------------------------------------------------------------------------------------------

_HIGHEST_PRIORITY: Final = 100


def submit(
    store: Store,
    saver: Saver,
    name: str,
    handler: str,
    start: Any,
    version: str | None,
    at: datetime | None = None,
    priority: int = 0,
) -> None:
    """Queue a run for any worker, at once or at a time.

    Submitted again, the same start changes nothing; another one is a Conflict.
    """
    checked_text("the name of a handler", handler, "; nothing was queued")
    if version is not None:
        checked_text("version", version, "; nothing was queued")
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidArgument("at must be a datetime with a time zone, like datetime.now(UTC) + timedelta(hours=1)")
    if type(priority) is not int or not -_HIGHEST_PRIORITY <= priority <= _HIGHEST_PRIORITY:
        raise InvalidArgument(f"priority must be a whole number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}")
    seconds = 0.0 if at is None else at.timestamp() - time.time()
    status: Status = "waiting" if seconds > 0 else "queued"
    request = saver.request(start, is_of_run=True, trigger="submit", step=0, status=status)
    digest = start_digest(request.state)
    row = RunRow(
        thread=0,
        status=status,
        fence=1,
        branch=0,
        began=1,
        handler=handler,
        version=version,
        start=digest,
        trace=saver.trace,
        created_at=now(),
        updated_at=now(),
        priority=priority,
    )
    if at is not None and seconds > 0:
        until = deadline_in(seconds, store.clock())
        reason = f"starts at {at.isoformat(sep=' ', timespec='seconds')}"
        row = replace(row, reason=reason, clock=until.clock, wake_at=until.at, wake_wall=until.wall)
    try:
        saver.commit(saver.prepare(request, NEW), run=row)
    except Conflict:
        thread = thread_named(store, name)
        known = None if thread is None else store.run(thread.position.thread)
        if known is None or known.start != digest or known.handler != handler:
            raise Conflict(
                f"thread {quoted(name)} exists with another start or handler; nothing was queued. "
                "Submit under another name."
            ) from None
