"""Seal and open the records of runs and journal entries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.crypto.keyring import Ring
from holdfast.crypto.records import ThreadKey, clear, clear_fields, encode, hidden, packed, shown, unpacked
from holdfast.crypto.seal import Seal, key_id
from holdfast.crypto.thread_keys import Owners
from holdfast.errors import Damaged, NotEncrypted
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry, Progress, RunRow
from holdfast.types import Usage

R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_KEPT: Final = 1_000


class Passed(Generic[K]):
    """The keys of records that a listing skipped."""

    def __init__(self) -> None:
        self._keys: dict[K, None] = {}

    def each(
        self,
        rows: Iterable[R],
        key: Callable[[R], K],
        read: Callable[[R], T],
        salvage: Callable[[R], T | None] = lambda _: None,
    ) -> list[T]:
        """Read each row. A row that cannot be read is skipped, unless `salvage` returns a part of it."""
        told = [self._one(row, key(row), read, salvage) for row in rows]
        return [each for each in told if each is not None]

    def _one(self, row: R, key: K, read: Callable[[R], T], salvage: Callable[[R], T | None]) -> T | None:
        try:
            return read(row)
        except (Damaged, NotEncrypted):
            if len(self._keys) < _KEPT:
                self._keys[key] = None
            return salvage(row)

    def require_none(self, read: Callable[[K], object]) -> None:
        """Raise the error of the first skipped record that still cannot be read."""
        for key in list(self._keys):
            read(key)
            self._keys.pop(key, None)


_ENTRY_FIELDS: Final = clear_fields(Entry, "number", "sealed")
_RUN_FIELDS: Final = clear_fields(RunRow, "thread", "lease_until", "progress", "sealed")

# -- the journal -----------------------------------------------------------------------------------------------------


class _EntrySaid(msgspec.Struct, frozen=True, array_like=True):
    due: int
    key: str
    name: str
    arguments: bytes
    call: bytes | None
    result: bytes | None
    error: str | None
    by: str | None
    topic: str | None
    usage: Usage | None
    spent: Usage | None = None


_decode_entry = msgspec.msgpack.Decoder(_EntrySaid).decode


class OpenedEntry(NamedTuple):
    """A journal entry, and the number for which it was sealed."""

    row: Entry
    due: int


def seal_entry(row: Entry, due: int, token: str | None, seal: Seal) -> Entry:
    said = _EntrySaid(
        due, row.key, row.name, row.arguments, row.call, row.result, row.error, row.by, row.topic, row.usage, row.spent
    )
    bare = replace(
        row,
        key="",
        name="",
        arguments=b"",
        call=None,
        result=None,
        error=None,
        by=None,
        topic=token,
        usage=None,
        spent=None,
    )
    return replace(bare, sealed=seal.seal(packed(said), _entry_place(bare)))


def open_entry(row: Entry, seal: Seal) -> OpenedEntry:
    said = unpacked(seal.open(row.sealed, _entry_place(row)), _decode_entry)
    fields = msgspec.structs.asdict(said)
    due = fields.pop("due")
    return OpenedEntry(replace(row, **fields, sealed=b""), due)


def _entry_place(row: Entry) -> bytes:
    """All unencrypted fields. The number is not among them: the store assigns it after sealing (`numbering.py`)."""
    return b"entry\0" + clear(row, _ENTRY_FIELDS)


# -- runs ------------------------------------------------------------------------------------------------------------


class _RunSaid(msgspec.Struct, frozen=True, array_like=True):
    owner: bytes
    thread: str
    lease_until: int
    reason: str | None
    turn: str | None
    trace: str | None
    parent: str | None
    handler: str | None
    version: str | None
    agent: str | None
    start: bytes
    result: bytes | None


_decode_run = msgspec.msgpack.Decoder(_RunSaid).decode


def seal_run(row: RunRow, owner: ThreadKey, seal: Seal) -> RunRow:
    """Seal a run. The store may extend its lease but not shorten it; the thread is identified by its key."""
    said = _RunSaid(
        owner.key,
        owner.name,
        row.lease_until,
        row.reason,
        row.turn,
        row.trace,
        row.parent,
        row.handler,
        row.version,
        row.agent,
        row.start,
        row.result,
    )
    bare = replace(
        row,
        reason=None,
        turn=None,
        trace=None,
        parent=None,
        handler=None,
        version=None,
        agent=None,
        start=b"",
        result=None,
        progress=None if row.progress is None else seal_progress(row.progress, owner, seal),
    )
    return replace(bare, sealed=seal.seal(packed(said), _run_place(bare)))


def open_run(row: RunRow, seal: Seal) -> tuple[RunRow, ThreadKey]:
    said = unpacked(seal.open(row.sealed, _run_place(row)), _decode_run)
    # The lease is extended only while the run is held, and never shortened.
    if row.lease_until < said.lease_until or (row.status != "running" and row.lease_until != said.lease_until):
        raise Damaged(f"the lease of thread number {row.thread} ends earlier than when it was sealed")
    owner = ThreadKey(said.owner, said.thread)
    opened = replace(
        row,
        reason=said.reason,
        turn=said.turn,
        trace=said.trace,
        parent=said.parent,
        handler=said.handler,
        version=said.version,
        agent=said.agent,
        start=said.start,
        result=said.result,
        progress=None if row.progress is None else _open_progress(row.progress, owner, seal),
        sealed=b"",
    )
    return opened, owner


def _run_place(row: RunRow) -> bytes:
    return b"run\0" + clear(row, _RUN_FIELDS)


class _NoteSaid(msgspec.Struct, frozen=True, array_like=True):
    note: str | None


_decode_note = msgspec.msgpack.Decoder(_NoteSaid).decode


def seal_progress(progress: Progress, owner: ThreadKey, seal: Seal) -> Progress:
    """Seal the note of a progress report separately, because renewals store it; authenticate its numbers and times."""
    said = packed(_NoteSaid(progress.note))
    return replace(progress, note=shown(seal.seal(said, _note_place(progress, owner))))


def _open_progress(progress: Progress, owner: ThreadKey, seal: Seal) -> Progress:
    said = unpacked(hidden(progress.note or "", seal, _note_place(progress, owner)), _decode_note)
    return replace(progress, note=said.note)


def _note_place(progress: Progress, owner: ThreadKey) -> bytes:
    total = None if progress.total is None else float(progress.total)
    return b"note\0" + encode((owner.key, float(progress.done), total, progress.at))


# The owner of a missing thread. The store rejects the write itself.
_NOBODY: Final = ThreadKey(b"", "")


class SealedRuns:
    """Seals and opens the runs of one store."""

    def __init__(self, store: Store, ring: Ring, owners: Owners) -> None:
        self._store = store
        self._ring = ring
        self._owners = owners
        self._untold: Passed[int] = Passed()

    def seal(self, row: RunRow, owner: ThreadKey | None = None) -> RunRow:
        return seal_run(row, owner or self.owner(row.thread), self._ring.records)

    def seal_progress(self, thread: int, progress: Progress | None) -> Progress | None:
        return progress and seal_progress(progress, self.owner(thread), self._ring.records)

    def owner(self, thread: int) -> ThreadKey:
        return self._owners.owner(thread) or _NOBODY

    def as_stored(self, expect: RunRow | None) -> RunRow | None:
        """The stored form of an expected run. Another handle may have sealed the same content to other bytes."""
        if expect is None:
            return None
        stored = self._store.run(expect.thread)
        if stored is not None and self.open(expect.thread, stored) == expect:
            return stored
        return self.seal(expect)

    def open(self, thread: int, row: RunRow) -> RunRow:
        """The run of a thread. `Damaged` if it belongs to another thread."""
        opened, owner = self._opened(row)
        self._owners.check(thread, owner)
        return opened

    def open_page(self, page: list[tuple[str, RunRow]]) -> list[tuple[str, RunRow]]:
        """The readable runs of a page, with the names of their threads."""
        return self._untold.each(page, lambda one: one[1].thread, self._named)

    def require_told(self) -> None:
        """`Damaged` if a page skipped a run that still cannot be read."""
        self._untold.require_none(self._read)

    def _read(self, thread: int) -> None:
        row = self._store.run(thread)
        if row is not None:
            self.open(thread, row)

    def _named(self, one: tuple[str, RunRow]) -> tuple[str, RunRow]:
        name, row = one
        opened, owner = self._opened(row)
        if owner.name != name:
            raise Damaged(f"the run of thread number {row.thread} belongs to another thread")
        self._owners.learn(row.thread, owner.key, owner.name)
        return name, opened

    def _opened(self, row: RunRow) -> tuple[RunRow, ThreadKey]:
        if key_id(row.sealed) != self._ring.records.id:
            raise Damaged(f"the run of thread number {row.thread} is sealed by another key")
        return open_run(row, self._ring.records)
