"""A cache of the rows of threads and runs that this process used last, to write without reading first.

The cache is never trusted. A write names the row versions it was made from. If they differ from the stored ones, it
does nothing and is repeated in a transaction.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from holdfast.stores.records import RunColumns
from holdfast.stores.rows import StoredThread
from holdfast.stores.running import RunRow

_THREADS: Final = 4096


class KnownThread(NamedTuple):
    """A thread's row. Callers must not change `row`."""

    row: StoredThread
    checksum: int
    version: int


class KnownRun(NamedTuple):
    """A thread's run; None with version 0 if it has no run."""

    row: RunRow | None
    columns: RunColumns | None
    version: int


NO_RUN: Final = KnownRun(None, None, 0)


class Known:
    """The newest known rows of the threads used last.

    A thread is stored together with its run, a run also alone. Neither is replaced by an older version. Every change of
    a run's status or fence also changes the thread's row. So if the cached version of a thread is current, the cached
    status and fence of its run are current, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[KnownThread | None, KnownRun]] = OrderedDict()

    def get(self, thread: int) -> tuple[KnownThread | None, KnownRun] | None:
        with self._lock:
            found = self._kept.get(thread)
            if found is not None:
                self._kept.move_to_end(thread)
            return found

    def learn(self, number: int, thread: KnownThread | None, run: KnownRun | None) -> None:
        """Store the current rows."""
        with self._lock:
            had_thread, had_run = self._kept.get(number, (None, NO_RUN))
            if thread is None or (had_thread is not None and had_thread.version > thread.version):
                thread = had_thread
            if run is None or had_run.version > run.version:
                run = had_run
            self._kept[number] = thread, run
            self._kept.move_to_end(number)
            if len(self._kept) > _THREADS:
                self._kept.popitem(last=False)

    def forget(self, thread: int) -> None:
        with self._lock:
            self._kept.pop(thread, None)
