"""The context that the threads of one open handle share: the store, the bases, and one lock per thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Final

from holdfast import forksafe
from holdfast.delta.base import Bases
from holdfast.errors import Closed, LeaseHeld
from holdfast.observer import Interceptor, Observer
from holdfast.redaction import Redaction
from holdfast.stores.contract import Commit, Position, Store, Summary
from holdfast.threads.migration import Migrations
from holdfast.threads.process import free_if_dead

MAX_RETRIES: Final = 50  # times a verb tries again after another writer was faster
UNOBSERVED: Final = nullcontext()  # in the place of an observation, for a handle without an observer


class ThreadLock:
    """Lets one writer of this process at a time change a thread. Its owner may enter it again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        forksafe.renew_in_child(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it."""
        self._lock = threading.RLock()


class Context:
    """Shared by the threads of one handle."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str,
        base_bytes: int,
        max_state_bytes: int,
        saved: Callable[[str], None] | None,
        redaction: Redaction,
    ) -> None:
        """`saved` is called with the name of a thread after each save, if it is given."""
        self.store = store
        self.namespace = namespace
        self.bases = Bases(base_bytes)
        self.migrations = Migrations()
        self.max_state_bytes = max_state_bytes
        self.saved = saved
        self.redaction = redaction
        self.observer: Observer | None = None
        self.interceptor: Interceptor | None = None
        self.at_close: list[Callable[[], None]] = []  # called before the store is closed
        self._locks: weakref.WeakValueDictionary[str, ThreadLock] = weakref.WeakValueDictionary()
        self._closed = False
        forksafe.renew_in_child(self.bases)

    def check_open(self) -> None:
        """Raise Closed if the handle was closed."""
        if self._closed:
            raise Closed("this handle was closed; open the store again")

    def close(self) -> None:
        for function in [*self.at_close]:
            function()
        self._closed = True
        self.bases.clear()
        self.store.close()

    def lock(self, name: str) -> ThreadLock:
        """The lock of a thread."""
        lock = self._locks.get(name)
        # Two callers at the same moment may get two locks. Then the store's compare-and-set decides between them.
        return self._locks.setdefault(name, ThreadLock()) if lock is None else lock

    # -- writes: they also succeed on a thread whose process died before its lease ended -------------------------------

    def commit(self, *commits: Commit) -> list[Position]:
        """Store commits of different threads: all of them, or none."""
        store = self.store
        try:
            return [store.commit(commits[0])] if len(commits) == 1 else store.commit(commits)
        except LeaseHeld as held:
            threads = [commit.expect.thread for commit in commits if commit.expect is not None]
            if len(commits) > 1:  # find the threads that are held
                runs, clock = [store.run(thread) for thread in threads], store.clock()
                owned = [run for run in runs if run is not None and run.owner is not None and run.clock == clock.id]
                threads = [run.thread for run in owned if not clock.has_reached(run.lease_until)]
            if not threads:
                raise
            for thread in threads:
                free_if_dead(store, thread, held)
            return [store.commit(commits[0])] if len(commits) == 1 else store.commit(commits)

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        """Make a checkpoint of a thread its head."""
        try:
            return self.store.rewind(expect, to=to, summary=summary)
        except LeaseHeld as held:
            free_if_dead(self.store, expect.thread, held)
            return self.store.rewind(expect, to=to, summary=summary)

    def drop(self, number: int) -> None:
        """Delete a thread with all its checkpoints."""
        try:
            self.store.drop(number)
        except LeaseHeld as held:
            free_if_dead(self.store, number, held)
            self.store.drop(number)
        finally:
            self.bases.forget(number)
