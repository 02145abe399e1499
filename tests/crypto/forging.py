"""What somebody does who can write a store and has no key: records are changed behind the cipher, checksums and all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, contextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace

from holdfast import Cipher
from holdfast.crypto.sealed_store import SealedStore
from holdfast.errors import Damaged
from holdfast.stores import segments
from holdfast.stores.abilities import Scanned, Scanning
from holdfast.stores.contract import Cells, CheckpointRow, Head, Span, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.scan import thread_named
from holdfast.urls import open_store

KEY = bytes(range(32))
CIPHER = Cipher(keys={"2026": KEY}, current="2026")


class Forger:
    """Stands between the cipher and a store, and gives back what the test wants to have been written there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.of_entry: Callable[[int, Entry], Entry] = lambda thread, row: row
        self.of_run: Callable[[RunRow], RunRow] = lambda row: row
        self.of_thread: Callable[[ThreadRow], ThreadRow] = lambda row: row
        self.of_checkpoint: Callable[[int, CheckpointRow], CheckpointRow] = lambda thread, row: row
        self.of_span: Callable[[Span], Span] = lambda span: span
        self.of_cells: Callable[[Cells], Cells] = lambda cells: cells

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def head(self, name: str) -> Head | None:
        head = self._store.head(name)
        if head is None:
            return None
        return Head(self.of_thread(head.thread), self.of_checkpoint(head.thread.position.thread, head.row))

    def threads(self, **which: Any) -> list[ThreadRow]:
        return [self.of_thread(row) for row in self._store.threads(**which)]

    def walk(self, thread: int, **which: Any) -> list[CheckpointRow | Damaged]:
        found = self._store.walk(thread, **which)
        return [row if isinstance(row, Damaged) else self.of_checkpoint(thread, row) for row in found]

    def checkpoints(self, thread: int, **which: Any) -> list[CheckpointRow]:
        return [self.of_checkpoint(thread, row) for row in self._store.checkpoints(thread, **which)]

    def cells(self, spans: list[Span]) -> list[Cells]:
        return [self.of_cells(read) for read in self._store.cells([self.of_span(span) for span in spans])]

    def run(self, thread: int) -> RunRow | None:
        row = self._store.run(thread)
        return None if row is None else self.of_run(row)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        found = self._store.runs(statuses=statuses, after=after, limit=limit)
        return [(name, self.of_run(row)) for name, row in found]

    def queue(self, **which: Any) -> list[tuple[str, RunRow]]:
        return [(name, self.of_run(row)) for name, row in self._store.queue(**which)]

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return [(name, self.of_run(row)) for name, row in self._store.due(limit=limit)]

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        page = self._store.entries(thread, after=after, limit=limit, topic=topic)
        return [self.of_entry(thread, row) for row in page]

    def scan(self, numbers: Sequence[int]) -> dict[int, Scanned]:
        assert isinstance(self._store, Scanning)
        return {
            number: Scanned(
                [self.of_checkpoint(number, row) for row in one.checkpoints],
                None if one.run is None else self.of_run(one.run),
                [self.of_entry(number, row) for row in one.entries],
                one.has_forks,
            )
            for number, one in self._store.scan(numbers).items()
        }


@contextmanager
def forged(address: str, cipher: Cipher = CIPHER) -> Generator[tuple[SealedStore, Forger]]:
    """A store that has read nothing yet, behind a cipher, and who forges what it reads."""
    with closing(opened(address, cipher)) as store:
        forger = Forger(store.underlying)
        yield SealedStore(cast(Store, forger), store._keyring), forger


def opened(address: str, cipher: Cipher = CIPHER) -> SealedStore:
    store = open_store(address, namespace="default", durability="full", cipher=cipher)
    assert isinstance(store, SealedStore)
    return store


def other_compressor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another release of zstd may be: it makes other bytes of the same content."""
    monkeypatch.setattr(segments, "compress", lambda *_, **__: None)


def number_of(store: Store, name: str) -> int:
    row = thread_named(store, name)
    assert row is not None
    return row.position.thread


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case None:
            return None
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return value + b"x"
        case _:
            name = value.__struct_fields__[0]
            return replace(value, **{name: changed(getattr(value, name))})
