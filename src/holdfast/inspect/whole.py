"""A view of a store that skips damaged runs and journal entries, and collects messages about them.

For read-only views. A resume must not use it, because it has to fail on damage.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

from holdfast.errors import Damaged
from holdfast.inspect.calls import readable
from holdfast.stores.contract import CheckpointRow, Head, Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.scan import numbered

Lost = dict[str, None]
"""Messages about unreadable records, each once, in order."""


def whole(store: Store, lost: Lost) -> Store:
    """Return a view of the store without damaged records. A message about each skipped one is added to `lost`."""
    return cast("Store", _Whole(store, lost))


class _Whole:
    """The view. Methods that are not defined here are the store's own."""

    def __init__(self, store: Store, lost: Lost) -> None:
        self._store = store
        self._lost = lost
        self._one_by_one: list[tuple[str, RunRow]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def head(self, name: str) -> Head | None:
        try:
            return self._store.head(name)
        except Damaged as damage:
            self._lose(damage)
            return None

    def walk(self, thread: int, *, after: int, limit: int, refs_only: bool = False) -> list[CheckpointRow | Damaged]:
        found: list[CheckpointRow | Damaged] = []
        try:
            for row in self._store.walk(thread, after=after, limit=limit, refs_only=refs_only):
                if isinstance(row, Damaged):
                    raise row
                found.append(row)
        except Damaged as damage:
            self._lose(damage)
        return found

    def run(self, thread: int) -> RunRow | None:
        try:
            return self._store.run(thread)
        except Damaged as damage:
            self._lose(damage)
            return None

    def last_entry(self, thread: int) -> int:
        try:
            return self._store.last_entry(thread)
        except Damaged as damage:
            self._lose(damage)
            return 0

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        if topic is not None:
            return self._store.entries(thread, after=after, limit=limit, topic=topic)
        return readable(self._store, thread, after, limit, self._lost)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        if self._one_by_one is None:
            try:
                return self._store.runs(statuses=statuses, after=after, limit=limit)
            except Damaged as damage:
                self._lose(damage)
                self._one_by_one = self._each_run()
        found = [(name, run) for name, run in self._one_by_one if run.status in statuses and _place(run) > after]
        return found[:limit]

    def _each_run(self) -> list[tuple[str, RunRow]]:
        """Return all readable runs, oldest first, one by one: a damaged run makes a whole page unreadable."""
        found: list[tuple[str, RunRow]] = []
        try:
            for each in numbered(self._store):
                with suppress(Damaged):
                    run = self._store.run(each.number)
                    if run is not None and isinstance(each.name, str):
                        found.append((each.name, run))
        except Damaged as damage:
            self._lose(damage)
        return sorted(found, key=lambda each: _place(each[1]))

    def _lose(self, damage: Damaged) -> None:
        self._lost[str(damage)] = None


def _place(run: RunRow) -> tuple[int, int]:
    return run.updated_at, run.thread
