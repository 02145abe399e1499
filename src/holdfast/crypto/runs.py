"""The records of runs in a store behind a cipher: sealed for their thread, opened, compared as they are stored."""

from __future__ import annotations

from typing import Final

from holdfast.crypto import running
from holdfast.crypto.owners import Owners
from holdfast.crypto.passing import Passed
from holdfast.crypto.records import Owner
from holdfast.crypto.ring import Ring
from holdfast.crypto.sealing import key_id
from holdfast.errors import Damaged
from holdfast.stores.contract import Store
from holdfast.stores.running import Progress, RunRow

# Of a thread that is not there: nothing will be stored for it, the store says so in its own way.
_NOBODY: Final = Owner(b"", "")


class SealedRuns:
    """Seals and opens the runs of one store."""

    def __init__(self, store: Store, ring: Ring, owners: Owners) -> None:
        self._store = store
        self._ring = ring
        self._owners = owners
        self._untold: Passed[int] = Passed()

    def seal(self, row: RunRow, owner: Owner | None = None) -> RunRow:
        return running.seal_run(row, owner or self.owner(row.thread), self._ring.records)

    def seal_progress(self, thread: int, progress: Progress | None) -> Progress | None:
        return progress and running.seal_progress(progress, self.owner(thread), self._ring.records)

    def owner(self, thread: int) -> Owner:
        return self._owners.owner(thread) or _NOBODY

    def as_stored(self, expect: RunRow | None) -> RunRow | None:
        """A run as it is stored, if that says what is expected: another handle may have sealed the same otherwise."""
        if expect is None:
            return None
        stored = self._store.run(expect.thread)
        if stored is not None and self.open(expect.thread, stored) == expect:
            return stored
        return self.seal(expect)

    def open(self, thread: int, row: RunRow) -> RunRow:
        """The run of a thread. `Damaged` if it is that of another."""
        opened, owner = self._opened(row)
        self._owners.check(thread, owner)
        return opened

    def open_page(self, page: list[tuple[str, RunRow]]) -> list[tuple[str, RunRow]]:
        """Runs with their threads' names, but for those that cannot be told."""
        return self._untold.each(page, lambda one: one[1].thread, self._named)

    def require_told(self) -> None:
        """`Damaged` if there are some that pages are without."""
        self._untold.require_none(self._read)

    def _read(self, thread: int) -> None:
        row = self._store.run(thread)
        if row is not None:
            self.open(thread, row)

    def _named(self, one: tuple[str, RunRow]) -> tuple[str, RunRow]:
        name, row = one
        opened, owner = self._opened(row)
        if owner.name != name:
            raise Damaged(f"the run of thread number {row.thread} is that of another thread")
        self._owners.learn(row.thread, owner.key, owner.name)
        return name, opened

    def _opened(self, row: RunRow) -> tuple[RunRow, Owner]:
        if key_id(row.sealed) != self._ring.records.id:
            raise Damaged(f"the run of thread number {row.thread} is sealed by the key of something else")
        return running.open_run(row, self._ring.records)
