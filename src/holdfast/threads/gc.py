"""Find dead cells and blobs, remove them, and apply retention in the background."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from holdfast import forksafe
from holdfast.delta.load import reachable
from holdfast.errors import Damaged
from holdfast.intervals import Intervals
from holdfast.stores.contract import Live, Span, Store
from holdfast.threads.scan import roots
from holdfast.types import OptimizeResult

# -- what is in use ---------------------------------------------------------------------------------------------------


def live_cells(store: Store, thread: int) -> Live:
    """The cells of a thread that checkpoints of the thread or of its forks use.

    Safe with concurrent writers. The horizon is read first. A later commit builds on a checkpoint that exists at that
    time: its cells were found when its thread was read, or it is in a fork made since. So forks are asked for until
    there are no new ones, after the thread itself was read.
    """
    horizon = store.last(thread)
    used: defaultdict[int, Intervals] = defaultdict(Intervals)
    read: set[int] = set()
    waiting = [thread]
    while waiting:
        for number in waiting:
            for span, _ in reachable(store, number, roots(store, number), nodes_only=True):
                if span.thread == thread:
                    used[span.log].add(span.start, span.start + span.count)
        read.update(waiting)
        waiting = [number for number in store.forks(thread) if number not in read]
    last = max(horizon, 1)
    spans = (
        Span(thread, log, start, end - start, 1, last)
        for log, intervals in sorted(used.items())
        for start, end in intervals.ranges()
    )
    return Live(tuple(spans), horizon)


def live_values(store: Store) -> set[bytes]:
    """The digests of all blobs of the namespace that checkpoints use. Safe with concurrent forks, as above."""
    values: set[bytes] = set()
    read: set[int] = set()
    while waiting := [number for number in store.thread_numbers() if number not in read]:
        for number in waiting:
            values |= values_of(store, number)
        read.update(waiting)
    return values


def values_of(store: Store, thread: int) -> set[bytes]:
    """The digests of the blobs that the checkpoints of a thread use."""
    named = list(roots(store, thread))
    values = {digest for refs in named for digest in refs.blobs}
    for _, cells in reachable(store, thread, named, nodes_only=True):
        for refs in cells.refs:
            values.update(refs.blobs)
    return values


# -- hf.optimize() ----------------------------------------------------------------------------------------------------


def optimize(store: Store) -> OptimizeResult:
    """Merge small segments, remove what nothing uses, and free the space. Readers and writers continue meanwhile."""
    merged = damaged = 0
    epoch = store.start_epoch()
    for number in store.thread_numbers():
        try:
            live = live_cells(store, number)
        except Damaged:
            damaged += 1  # it is not known which cells the thread or a fork needs: all stay
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
        store.sweep_blobs(values, epoch)
    store.reclaim()
    return OptimizeResult(merged, damaged)


# -- retention in the background --------------------------------------------------------------------------------------

QUIET_SECONDS = 1.0  # a thread is pruned this long after a save; saves in between share one pruning


class Maintenance:
    """Applies a retention to the threads that were saved, in a background thread that ends when there is no work.

    `run_now()`, which `hf.close()` calls, raises a failure of the background thread. No save fails because of it.
    """

    def __init__(self, prune: Callable[[str], None], quiet_seconds: float = QUIET_SECONDS) -> None:
        self._prune = prune
        self._quiet_seconds = quiet_seconds
        self._lock = threading.Lock()
        self._due: set[str] = set()
        self._worker: threading.Thread | None = None
        self._stop = threading.Event()
        self._failure: Exception | None = None
        forksafe.renew_in_child(self)

    def renew(self) -> None:
        """Replace the lock and the background thread in a forked child: both are the parent's."""
        self._lock = threading.Lock()
        self._worker = None

    def note(self, name: str) -> None:
        """Record that a thread was saved, so it is due."""
        with self._lock:
            self._due.add(name)
            if self._stop.is_set() or self._worker is not None:
                return
            self._worker = threading.Thread(target=self._work, name="holdfast-maintenance", daemon=True)
            self._worker.start()

    def run_now(self) -> None:
        """Prune what is due, in the calling thread. Raises an error of its own or of the background thread."""
        while (name := self._next()) is not None:
            self._prune(name)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Let the background thread end, then prune what is left."""
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
                except Exception as failure:  # noqa: BLE001 - run_now() raises it
                    self._failure = failure
            with self._lock:
                if not self._due:
                    self._worker = None
                    return

    def _next(self) -> str | None:
        with self._lock:
            return self._due.pop() if self._due else None
