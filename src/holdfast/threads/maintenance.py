"""Maintenance: what keeps a store small, in short pieces and never on the path of a save."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import Store
from holdfast.threads.liveness import live_cells, live_values

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
