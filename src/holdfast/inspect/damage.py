"""Damage, in one place: every view shows the readable part of a store, and a message about each record it skipped.

The record that was asked for by name is not skipped: if it is unreadable, `Damaged` is raised. `holdfast verify` lists
all damage, and `holdfast repair` copies the readable part into a new store. A resume must not use this view of a store:
it has to fail on damage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.stores.contract import CheckpointRow, Head, NumberedThread, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.history import listed
from holdfast.threads.metadata import Meta, decode
from holdfast.threads.scan import checkpoint_at, numbered, thread_named

T = TypeVar("T")

_PAGE: Final = 500


class Readable:
    """The readable part of a store. `store` has its verbs; those that list records skip the damaged ones."""

    def __init__(self, hf: Holdfast) -> None:
        """Raises Closed if the handle is closed."""
        hf.context.check_open()
        self.sound: Store = hf.context.store
        self._lost: dict[str, None] = {}
        self.store = cast("Store", _Skipping(self.sound, self._lost))

    @property
    def lost(self) -> tuple[str, ...]:
        """The messages about what could not be read so far, each once, in order."""
        return tuple(self._lost)

    def tried(self, read: Callable[[], T]) -> T | None:
        """Return what a function returns; None, with a message, if it raises Damaged."""
        try:
            return read()
        except Damaged as damage:
            self._lost[str(damage)] = None
            return None

    def meta(self, row: CheckpointRow) -> Meta | None:
        """Return the metadata of a checkpoint; None if it is damaged."""
        return self.tried(lambda: decode(row))

    def checkpoint(self, thread: int, seq: int) -> CheckpointRow | None:
        """Return one checkpoint, which may be deleted; None if it was never assigned, or is damaged."""
        return checkpoint_at(self.store, thread, seq)

    def checkpoints(
        self, thread: ThreadRow, *, before: int | None = None, page: int = _PAGE
    ) -> Iterator[tuple[CheckpointRow, Meta]]:
        """Yield the checkpoints of a thread below a seq with their metadata, newest first."""
        for row in listed(self.sound, thread, before=before, page=min(page, _PAGE)):
            if isinstance(row, Damaged):
                self._lost[str(row)] = None
            elif (meta := self.meta(row)) is not None:
                yield row, meta


class _Skipping:
    """A store whose lists skip damaged records. Verbs that are not defined here are the store's own."""

    def __init__(self, store: Store, lost: dict[str, None]) -> None:
        self._store = store
        self._lost = lost
        self._runs: list[tuple[str, RunRow]] | None = None
        self._threads: list[ThreadRow] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def head(self, name: str) -> Head | None:
        return self._tried(lambda: self._store.head(name), None)

    def run(self, thread: int) -> RunRow | None:
        return self._tried(lambda: self._store.run(thread), None)

    def last_entry(self, thread: int) -> int:
        return self._tried(lambda: self._store.last_entry(thread), 0)

    def numbered(self, *, after: int | None, limit: int) -> list[NumberedThread]:
        return self._tried(lambda: self._store.numbered(after=after, limit=limit), [])

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None
    ) -> list[CheckpointRow]:
        return self._tried(lambda: self._store.checkpoints(thread, before=before, limit=limit, label=label), [])

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

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        """Halve the page until each damaged entry is alone. The numbers of a journal have no gaps."""
        try:
            return self._store.entries(thread, after=after, limit=limit, topic=topic)
        except Damaged as damage:
            if topic is not None:
                raise
            if limit == 1:
                self._lose(damage)
                return []
        half = limit // 2
        rest = self.entries(thread, after=after + half, limit=limit - half)
        return [*self.entries(thread, after=after, limit=half), *rest]

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        if self._runs is None:
            try:
                return self._store.runs(statuses=statuses, after=after, limit=limit)
            except Damaged as damage:
                self._lose(damage)
                self._runs = sorted(self._each_run(), key=lambda each: _place(each[1]))
        found = [(name, run) for name, run in self._runs if run.status in statuses and _place(run) > after]
        return found[:limit]

    def threads(
        self, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
    ) -> list[ThreadRow]:
        if self._threads is None:
            try:
                return self._store.threads(prefix=prefix, after=after, limit=limit, contains=contains, newest=newest)
            except Damaged as damage:
                self._lose(damage)
                self._threads = list(self._each_thread())
        rows = [each for each in self._threads if each.name.startswith(prefix) and _has(each.name, contains)]
        if newest is None:
            rows = [each for each in rows if after is None or name_bytes(each.name) > name_bytes(after)]
            return sorted(rows, key=lambda each: name_bytes(each.name))[:limit]
        rows = [each for each in rows if _age(each) > (-newest, name_bytes(after or ""))]
        return sorted(rows, key=_age)[:limit]

    # One by one, because a damaged record makes a whole page unreadable.

    def _each_name(self) -> Iterator[tuple[int, str]]:
        for each in numbered(cast("Store", self)):
            if isinstance(each.name, str):
                yield each.number, each.name

    def _each_run(self) -> Iterator[tuple[str, RunRow]]:
        for number, name in self._each_name():
            with suppress(Damaged):
                run = self._store.run(number)
                if run is not None:
                    yield name, run

    def _each_thread(self) -> Iterator[ThreadRow]:
        for _, name in self._each_name():
            with suppress(Damaged):
                row = thread_named(self._store, name)
                if row is not None:
                    yield row

    def _tried(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Damaged as damage:
            self._lose(damage)
            return otherwise

    def _lose(self, damage: Damaged) -> None:
        self._lost[str(damage)] = None


def name_bytes(name: str) -> bytes:
    """Return the bytes by which stores order names."""
    return name.encode("utf-8", "surrogatepass")


def _place(run: RunRow) -> tuple[int, int]:
    return run.updated_at, run.thread


def _age(row: ThreadRow) -> tuple[int, bytes]:
    return -row.summary.updated_at, name_bytes(row.name)


def _has(name: str, contained: str) -> bool:
    return contained.casefold() in name.casefold()
