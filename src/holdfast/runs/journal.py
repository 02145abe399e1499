"""The journal of the steps that no checkpoint has closed: what was called, and what came of it."""

from __future__ import annotations

import threading
import time

from msgspec.structs import replace

from holdfast.errors import LeaseLost
from holdfast.runs.lease import Lease
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectClass, EffectRow, EffectStatus

_PAGE = 500


class Journal:
    """Finds and writes entries of the open steps of one branch. Entries that a checkpoint closed never match again.

    Results of reads need no commit of their own: they wait for the next one, and are read again if a crash comes first.
    """

    def __init__(self, store: Store, lease: Lease, branch: int, closed_step: int) -> None:
        self._store = store
        self._lease = lease
        self._thread = lease.row.thread
        self._branch = branch
        self._lock = threading.Lock()
        self._entries: dict[tuple[int, str], EffectRow] = {}
        self._waiting: list[EffectRow] = []
        for row in _entries_after(store, self._thread, closed_step, branch):
            self._entries[row.step, row.key] = row

    def find(self, step: int, key: str) -> EffectRow | None:
        with self._lock:
            return self._entries.get((step, key))

    def has_begun(self, step: int) -> bool:
        """Whether anything but model calls and reads happened in a step, or in one after it."""
        with self._lock:
            return any(
                row.step >= step and row.kind not in ("model", "read") and row.status != "not_done"
                for row in self._entries.values()
            )

    def has_after(self, number: int) -> bool:
        """Whether anything was recorded after an entry."""
        with self._lock:
            return any(row.number > number for row in self._entries.values())

    def write(self, row: EffectRow) -> EffectRow:
        """Record an entry durably, with the results that wait; LeaseLost if another worker has the run."""
        with self._lock:
            rows = [*self._waiting, row]
            try:
                numbers = self._store.journal(self._thread, self._lease.fence, rows)
            except LeaseLost:
                self._lease.lose()
                raise
            self._waiting.clear()
            for written, number in zip(rows, numbers, strict=True):
                self._entries[written.step, written.key] = replace(written, number=number)
            return self._entries[row.step, row.key]

    def write_with_next(self, row: EffectRow) -> EffectRow:
        """Record an entry together with whatever is written next."""
        with self._lock:
            self._waiting.append(row)
            self._entries[row.step, row.key] = row
            return row

    def take_waiting(self) -> tuple[EffectRow, ...]:
        """The results that wait, for a checkpoint to carry. They are closed by it."""
        with self._lock:
            waiting, self._waiting = tuple(self._waiting), []
            return waiting

    def forget(self, closed_step: int) -> None:
        """A checkpoint closed this step and those before it: their entries are not looked for again."""
        with self._lock:
            self._entries = {at: row for at, row in self._entries.items() if at[0] > closed_step}

    def put_back(self, waiting: tuple[EffectRow, ...]) -> None:
        """Results that a checkpoint took and could not carry wait again."""
        with self._lock:
            self._waiting[:0] = waiting

    def write_late(self, row: EffectRow) -> None:
        """Keep what a call gave although the run is lost: evidence for whoever has to settle it."""
        self._store.journal_late(self._thread, replace(row, status="late", number=0))

    def new(
        self, step: int, key: str, name: str, kind: EffectClass, status: EffectStatus, arguments: bytes
    ) -> EffectRow:
        """An entry of this branch, not yet written."""
        return EffectRow(
            branch=self._branch,
            step=step,
            key=key,
            name=name,
            kind=kind,
            status=status,
            arguments=arguments,
            fence=self._lease.fence,
            begun_at=now(),
        )


def now() -> int:
    """Microseconds since 1970: information for people, never order."""
    return time.time_ns() // 1000


def _entries_after(store: Store, thread: int, step: int, branch: int) -> list[EffectRow]:
    """The entries of a branch above a step."""
    entries: list[EffectRow] = []
    after = 0
    while page := store.effects(thread, after=after, limit=_PAGE):
        entries += [row for row in page if row.branch == branch and row.step > step and row.status != "late"]
        after = page[-1].number
    return entries
