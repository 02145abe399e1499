"""What this process last saw of threads and runs: enough to write to one without reading it first.

Nothing is believed of it. A write names the versions it was made from, and where they are not those that are stored,
it does nothing, and is done again the long way.
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
    """A thread's row. Nobody changes the row that is kept here."""

    row: StoredThread
    checksum: int
    version: int


class KnownRun(NamedTuple):
    """A thread's run, None with version 0 if it has none."""

    row: RunRow | None
    columns: RunColumns | None
    version: int


NO_RUN: Final = KnownRun(None, None, 0)


class Known:
    """The rows seen last, of the threads used last.

    A thread is learned together with its run, a run also alone, and neither is ever replaced by an older one. As
    whatever changes the status or the fence of a run also changes its thread's row, a thread whose version is the one
    known has a run whose status and fence are those known, too.
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
        """Remember what is stored now."""
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
