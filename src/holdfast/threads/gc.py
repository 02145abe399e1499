"""Find dead cells and blobs, remove them, and apply retention in the background."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator

import msgspec

from holdfast.delta.load import reachable
from holdfast.errors import Damaged
from holdfast.stores.contract import Live, Refs, Span, Store

_PAGE = 500


def live_cells(store: Store, thread: int) -> Live:
    """The cells of a thread that must stay: those its own checkpoints name, and those its forks' checkpoints name.

    Safe beside writers. The horizon is read first. A later commit builds on a checkpoint that is there at the time: it
    was marked when its thread was read, or it is a fork's that was made since, and forks are asked for until there are
    no new ones, the thread itself having been read before.
    """
    horizon = store.last(thread)
    spans: set[Span] = set()
    read: set[int] = set()
    waiting = [thread]
    while waiting:
        for number in waiting:
            for span, _ in reachable(store, number, _roots(store, number), nodes_only=True):
                if span.thread == thread:
                    spans.add(span)
        read.update(waiting)
        waiting = [number for number in store.forks(thread) if number not in read]
    return Live(tuple(_merged(spans)), horizon)


def live_values(store: Store) -> set[bytes]:
    """The digests of all shared values of the namespace that some checkpoint names. Safe beside forks, as above."""
    values: set[bytes] = set()
    read: set[int] = set()
    while waiting := [number for number in store.thread_numbers() if number not in read]:
        for number in waiting:
            values |= values_of(store, number)
        read.update(waiting)
    return values


def values_of(store: Store, thread: int) -> set[bytes]:
    """The digests of the shared values that the checkpoints of a thread name."""
    roots = list(_roots(store, thread))
    values = {digest for refs in roots for digest in refs.values}
    for _, cells in reachable(store, thread, roots, nodes_only=True):
        for refs in cells.refs:
            values.update(refs.values)
    return values


def _roots(store: Store, thread: int) -> Iterator[Refs]:
    after = 0
    while page := store.refs(thread, after=after, limit=_PAGE):
        yield from (row.refs for row in page)
        after = page[-1].seq


def _merged(spans: set[Span]) -> Iterator[Span]:
    """Overlapping and touching spans as one."""
    current: Span | None = None
    for span in sorted(spans, key=lambda span: (span.log, span.start)):
        if current is None or span.log != current.log or span.start > current.start + current.count:
            if current is not None:
                yield current
            current = span
        else:
            end = max(current.start + current.count, span.start + span.count)
            first, last = min(current.first, span.first), max(current.last, span.last)
            current = Span(current.thread, current.log, current.start, end - current.start, first, last)
    if current is not None:
        yield current


QUIET_SECONDS = 1.0  # how long after a save its thread is pruned; saves in between share one pruning


class Optimized(msgspec.Struct, frozen=True):
    """What `hf.optimize()` did. `damaged` segments were left as they are; `hf.verify()` says what they hurt."""

    merged: int
    damaged: int


def optimize(store: Store) -> Optimized:
    """Merge small segments, drop what nothing names, give space back. Readers and writers go on meanwhile."""
    merged = damaged = 0
    epoch = store.mark_values()
    for number in store.thread_numbers():
        try:
            live = live_cells(store, number)
        except Damaged:
            damaged += 1  # what it or a fork needs cannot be known: its cells stay
            continue
        store.sweep(number, live)
        done = store.compact(number, live)
        merged += done.merged
        damaged += done.damaged
    try:
        values = live_values(store)
    except Damaged:
        damaged += not damaged
    else:
        store.sweep_values(values, epoch)
    store.reclaim()
    return Optimized(merged, damaged)


class Maintenance:
    """Applies a retention to the threads that were saved to, on a thread of its own that ends when there is no work.

    A failure is kept and raised by the next `run_now()`, which `hf.close()` calls: nothing is swallowed, and no save
    fails because tidying up did.
    """

    def __init__(self, prune: Callable[[str], None], quiet_seconds: float = QUIET_SECONDS) -> None:
        self._prune = prune
        self._quiet_seconds = quiet_seconds
        self._lock = threading.Lock()
        self._due: set[str] = set()
        self._worker: threading.Thread | None = None
        self._stop = threading.Event()
        self._failure: Exception | None = None
        _all.add(self)

    def renew(self) -> None:
        """After fork(), in the child: the background thread is not here, nor is whoever held the lock."""
        self._lock = threading.Lock()
        self._worker = None

    def note(self, name: str) -> None:
        """A thread was saved to: it is due."""
        with self._lock:
            self._due.add(name)
            if self._stop.is_set() or self._worker is not None:
                return
            self._worker = threading.Thread(target=self._work, name="holdfast-maintenance", daemon=True)
            self._worker.start()

    def run_now(self) -> None:
        """Prune what is due, here and now. Raises what went wrong, here or earlier in the background."""
        while (name := self._next()) is not None:
            self._prune(name)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Let the background thread end, then do what is left."""
        self._stop.set()
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.join()
        self.run_now()

    def _work(self) -> None:
        while not self._stop.wait(self._quiet_seconds):
            while not self._stop.is_set() and (name := self._next()) is not None:
                try:
                    self._prune(name)
                except Exception as failure:  # noqa: BLE001 - kept for the next run_now(), whatever it is
                    self._failure = failure
            with self._lock:
                if not self._due:
                    self._worker = None
                    return

    def _next(self) -> str | None:
        with self._lock:
            return self._due.pop() if self._due else None


_all: weakref.WeakSet[Maintenance] = weakref.WeakSet()


def _renew_all() -> None:
    for maintenance in list(_all):
        maintenance.renew()


os.register_at_fork(after_in_child=_renew_all)
