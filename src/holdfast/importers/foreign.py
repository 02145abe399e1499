"""Store the threads of other systems: the records that a format yields, in order, with their times and parents.

The metadata of an imported checkpoint has a key `$imported`: the format (`from`), the original id, key and parent, and
the fields that Holdfast has no place for (`rest`). The last one also has `head`, the key of the checkpoint that the
thread resumes from: without it, the import was stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.delta.base import Base
from holdfast.delta.hints import Extended, Kept
from holdfast.delta.load import load_base, state_of
from holdfast.delta.parts import Kind, Map, Series
from holdfast.errors import Damaged, InvalidArgument
from holdfast.handle import MAX_STATE_BYTES, Holdfast
from holdfast.handle import open as open_handle
from holdfast.importers.frame import ImportTally, SourceThread, Unusable
from holdfast.stores.contract import CheckpointRow, Position, Store, ThreadRow
from holdfast.threads import metadata as metas
from holdfast.threads.branches import Placer
from holdfast.threads.metadata import Details, checked_details
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.threads.soundness import Examiner
from holdfast.threads.thread import checked_name
from holdfast.types import Status, Usage

KEY: Final = "$imported"
_MESSAGES: Final = "messages"
_SEED: Final = bytes(32)


# -- what a format yields ---------------------------------------------------------------------------------------------


class ForeignRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint of another system.

    `key` identifies it within its thread; None if `id` does. `parent` is the key of its parent; None means the
    checkpoint before it. `created_at` is None if the source has no valid time; that is reported, and the original value
    belongs into `rest`, with all other fields that have no place here. `remarks` are reported. `is_head` marks the
    checkpoint that the thread resumes from, by default the last one. If it `grows`, the list `messages` of the state
    has only the messages that follow those of the parent. So a long conversation takes time in proportion to its
    length.
    """

    id: str
    step: int
    created_at: datetime | None
    state: Any
    key: str | None = None
    parent: str | None = None
    grows: bool = False
    status: Status = "running"
    reason: str | None = None
    trigger: str = "import"
    label: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    agent: str | None = None
    usage: Usage | None = None
    resume_hint: str | None = None
    rest: dict[str, Any] = {}
    remarks: tuple[str, ...] = ()
    is_head: bool = False


class Unreadable(msgspec.Struct, frozen=True):
    """A part of a thread that is not imported. `item` names it, such as a file or a line; None is the whole thread."""

    item: str | None
    reason: str


class Remark(msgspec.Struct, frozen=True):
    """Something unusual in a thread, by which nothing is lost."""

    item: str | None
    reason: str


Entry = ForeignRecord | Unreadable | Remark


class ForeignThread(Protocol):
    """A thread that a format yields. It must yield `Unreadable` for parts it cannot read, and not raise."""

    @property
    def name(self) -> str: ...

    def records(self) -> Iterator[Entry]:
        """Yield the records, oldest first. A second call yields the same records again."""
        ...


class Aside:
    """Findings in place of a thread: about a thread that cannot be read, or about the source if `thread` is None."""

    def __init__(self, findings: Iterable[Unreadable | Remark], *, thread: str | None = None) -> None:
        self.name: Final = thread or ""
        self._findings = findings
        self._is_thread = thread is not None

    def records(self) -> Iterator[Entry]:
        yield from self._findings

    def move(self, tally: ImportTally) -> None:
        """See `SourceThread`."""
        if not self._is_thread:
            tally.is_no_thread()
        for entry in self._findings:
            _report(tally, entry)

    def check(self, tally: ImportTally) -> None:
        """See `SourceThread`. Nothing was stored."""


class ForeignSource:
    """See `ImportSource`. `kind` is its name in FORMATS, `size` an estimate of the number of records."""

    def __init__(
        self,
        kind: str,
        hf: Holdfast | None,
        threads: Iterable[ForeignThread],
        size: int,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._kind = kind
        self._hf = hf
        self._threads = threads
        self._size = size
        self._close = close

    def size(self) -> int:
        return self._size

    def threads(self) -> Iterator[SourceThread]:
        for thread in self._threads:
            yield thread if isinstance(thread, Aside) else _ForeignThread(self._kind, thread, self._hf)

    def close(self) -> None:
        if self._close is not None:
            self._close()


def _report(tally: ImportTally, entry: Unreadable | Remark) -> None:
    (tally.skip if isinstance(entry, Unreadable) else tally.remark)(entry.item, entry.reason)


# -- threads that exist -----------------------------------------------------------------------------------------------


class _ForeignThread:
    """A thread to import. See `SourceThread`."""

    def __init__(self, kind: str, thread: ForeignThread, hf: Holdfast | None) -> None:
        self.name: Final = thread.name
        self._kind = kind
        self._thread = thread
        self._hf = hf
        self._number: int | None = None  # of the stored thread

    def move(self, tally: ImportTally) -> None:
        checked_name(self.name)
        hf = self._hf
        stored = None if hf is None else thread_named(hf.context.store, self.name)
        if hf is not None and stored is not None and not self._is_part(hf.context.store, stored):
            if not tally.replace:
                self._require_own(hf.context.store, stored)
                tally.exists(stored.count)
                return
            self._require_replaceable(hf, stored)
        if hf is None or tally.dry_run:
            self._rehearse(tally)
            return
        if stored is not None:
            hf.context.drop(stored.position.thread)
        self._number = _Writer(hf, hf, self._kind, self._thread, tally).write()

    def check(self, tally: ImportTally) -> None:
        """Read everything that was stored, and compare it with its digests. `move` compared it with the source."""
        if self._hf is None or self._number is None:
            return
        with Examiner(self._hf.context.store) as examiner:
            for examined in examiner.thread(self._number):
                if examined.problems:
                    tally.differ(f"checkpoint {examined.seq}", "; ".join(examined.problems))
                tally.checked()

    def _is_part(self, store: Store, stored: ThreadRow) -> bool:
        """Whether a stopped import left the thread, and nothing was done with it since."""
        at = stored.position
        newest = checkpoint_at(store, at.thread, at.last)
        if newest is None or newest.deleted or newest.move != at.move or store.run(at.thread) is not None:
            return False
        about = _imported(newest)
        return about.get("from") == self._kind and about.get("head") != about.get("key", about.get("id"))

    def _require_own(self, store: Store, stored: ThreadRow) -> None:
        """Raise Unusable if a thread comes from elsewhere: then what the source has is not in the store."""
        at = stored.position
        for seq in (1, at.head, at.last):
            row = checkpoint_at(store, at.thread, seq)
            if row is not None and not row.deleted and _imported(row).get("from") == self._kind:
                return
        raise Unusable(
            "a different thread with this name exists; nothing was imported. Use replace=True or --replace to replace "
            "it, or import into another store."
        )

    def _require_replaceable(self, hf: Holdfast, stored: ThreadRow) -> None:
        """Raise Unusable if the stored thread has what cannot be read in the source now."""
        rehearsal = ImportTally(dry_run=True)
        keys = self._rehearse(rehearsal)
        skipped = rehearsal.report().skipped
        rows = Placer(hf.context, self.name).rows(stored.position.thread, 0)
        abouts = (_imported(row) for row in rows if not row.deleted)
        is_less = any(about.get("key", about.get("id")) not in keys for about in abouts if about)
        if not keys or (skipped and is_less):
            why = skipped[0].what if skipped else "it has no checkpoints"
            raise Unusable(
                f"the source cannot be read completely ({why}); the stored thread was kept. Drop the thread to import "
                "the rest."
            )

    def _rehearse(self, tally: ImportTally) -> set[str]:
        """Import the thread into memory, to report what an import would do. Returns the keys of its checkpoints."""
        limit = MAX_STATE_BYTES if self._hf is None else self._hf.context.max_state_bytes
        with open_handle("memory:", max_state_bytes=limit) as scratch:
            writer = _Writer(scratch, self._hf or scratch, self._kind, self._thread, tally)
            writer.write()
            return writer.keys


def _imported(row: CheckpointRow) -> dict[str, Any]:
    """The `$imported` of a checkpoint; empty if it was not imported, or is a fork or a labelled copy."""
    meta = metas.decode(row)
    found = msgpack.decode(meta.metadata).get(KEY) if meta.metadata else None
    is_copy = meta.trigger == "label" or (row.parent is not None and row.parent[0] != 0)
    return found if type(found) is dict and not is_copy else {}


# -- records → checkpoints --------------------------------------------------------------------------------------------


class _Prepared(msgspec.Struct, frozen=True):
    """A record in stored form. `key` is unique within its thread."""

    record: ForeignRecord
    key: str
    state: Any
    details: Details


class _Writer:
    """Writes the records of one thread to a store, with the redaction of `settings`."""

    def __init__(self, hf: Holdfast, settings: Holdfast, kind: str, thread: ForeignThread, tally: ImportTally) -> None:
        self._kind = kind
        self._thread = thread
        self._tally = tally
        self._redaction = settings.context.redaction
        self._store = hf.context.store
        self._placer = Placer(hf.context, thread.name)
        self._at: Position | None = None
        self._newest: tuple[str, CheckpointRow, Base, ForeignRecord] | None = None
        self._seqs: dict[str, int] = {}
        self._sums: dict[str, bytes] = {}  # of the messages up to each checkpoint
        self._twins: dict[str, list[bytes]] = {}
        self._head: str | None = None

    @property
    def keys(self) -> set[str]:
        """The keys of the checkpoints that were written."""
        return set(self._seqs)

    def write(self) -> int | None:
        """Write all records. Returns the number of the thread, None if nothing was written."""
        held: _Prepared | None = None
        for entry in self._thread.records():
            if not isinstance(entry, ForeignRecord):
                _report(self._tally, entry)
                continue
            prepared = self._prepared(entry)
            if prepared is not None:
                if held is not None:
                    self._write(held)
                held = prepared
        if held is not None:
            head = self._head if self._head is not None and not held.record.is_head else held.key
            self._write(held, head)
        if self._newest is not None and self._newest[3].grows:
            self._compare()
        if self._at is None:
            return None
        if self._head is not None and self._seqs[self._head] != self._at.head:
            row = checkpoint_at(self._store, self._at.thread, self._seqs[self._head])
            if row is not None:
                with self._placer.lock:
                    self._at = self._placer.point(self._at, row)
        return self._at.thread

    def _prepared(self, record: ForeignRecord) -> _Prepared | None:
        """A record in stored form; None for an exact duplicate of an earlier one, or one that cannot be stored."""
        key = record.id if record.key is None else record.key
        remarks = [*record.remarks]
        if record.created_at is None:
            remarks.append("it has no valid time; the time of the import is used")
        try:
            state = self._redaction.value(record.state)
            msgpack.check(state)  # here, because the last record that can be stored gets the mark of the head
            details = self._details(record, key)
            if not record.grows:
                content = msgpack.encode([state, record.step, record.label, details.meta.status, details.meta.metadata])
                digest = hashlib.sha256(content).digest()
                twins = self._twins.setdefault(key, [])
                if digest in twins:
                    self._remark(record, ["the source contains it twice; it was imported once"])
                    return None
                twins.append(digest)
                if len(twins) > 1:
                    key = f"{key} ({len(twins)})"
                    details = self._details(record, key)
                    remarks.append("the source contains another checkpoint with this id; both were imported")
        except (Unusable, InvalidArgument) as error:
            self._tally.skip_checkpoint(record.id, str(error))
            return None
        self._remark(record, remarks)
        return _Prepared(record, key, state, details)

    def _details(self, record: ForeignRecord, key: str, head: str | None = None) -> Details:
        if KEY in record.metadata:
            raise Unusable(f"its metadata has the key {KEY}, which is reserved for imports")
        details = checked_details(
            self._redaction,
            step=record.step,
            label=record.label,
            tags=record.tags,
            metadata=record.metadata,
            status=record.status,
            reason=record.reason,
            trigger=record.trigger,
            agent=record.agent,
            usage=record.usage,
            resume_hint=record.resume_hint,
        )
        about: dict[str, Any] = {"from": self._kind, "id": record.id}
        about |= {"key": key} if key != record.id else {}
        about |= {"parent": record.parent} if record.parent is not None else {}
        about |= {"rest": self._redaction.value(record.rest)} if record.rest else {}
        about |= {"head": head} if head is not None else {}
        encoded = details.meta.metadata
        metadata = metas.checked_metadata({**(msgpack.decode(encoded) if encoded else {}), KEY: about})
        created_at = details.meta.created_at if record.created_at is None else metas.microseconds(record.created_at)
        return replace(details, meta=replace(details.meta, metadata=metadata, created_at=created_at))

    def _write(self, prepared: _Prepared, head: str | None = None) -> None:
        """Store a checkpoint. With `head` it is the last one."""
        record, key, state = prepared.record, prepared.key, prepared.state
        details = prepared.details if head is None else self._details(record, key, head)
        before = None if self._newest is None else self._newest[0]
        is_known = record.parent is not None and record.parent in self._seqs
        parent = record.parent if is_known else before
        if self._newest is not None and self._newest[3].grows and not (record.grows and parent == before):
            self._compare()
        try:
            if record.grows and not is_known:
                raise Unusable(f"its parent {record.parent} was not imported")
            under, base = self._under(parent)
            grown = state if base is None or not record.grows else _grown(self._store, base, state)
            with self._placer.lock:
                self._at, row, base = self._placer.place(grown, details, expect=self._at, under=under, base=base)
        except (Unusable, InvalidArgument) as error:
            self._tally.skip_checkpoint(record.id, str(error))
            return
        if record.parent is not None and not is_known:
            instead = "" if parent is None else "; the checkpoint before it was used instead"
            self._remark(record, [f"its parent {record.parent} is not in the source{instead}"])
        self._seqs[key] = row.seq
        self._sums[key] = _sum(self._sums[parent] if record.grows and parent is not None else _SEED, state)
        self._newest = key, row, base, record
        if record.is_head:
            self._head = key
        self._tally.moved(0)
        if not record.grows:
            self._compare()

    def _under(self, key: str | None) -> tuple[CheckpointRow | None, Base | None]:
        """The checkpoint to write after, and its parts."""
        if key is None or self._at is None or self._newest is None:
            return None, None
        if self._newest[0] == key:
            return self._newest[1], self._newest[2]
        row = self._placer.row(self._at.thread, self._seqs[key])
        if row is None:
            raise Unusable("its parent was deleted during the import")
        return row, self._placer.base(self._at.thread, row)

    def _compare(self) -> None:
        """Read the newest checkpoint back and compare it with the source.

        A conversation that grows is compared at the end of each branch, where all its messages are.
        """
        if self._newest is None or self._at is None:
            return
        key, row, _, record = self._newest
        item = f"checkpoint {record.id}"
        try:
            stored = checkpoint_at(self._store, self._at.thread, row.seq)
            if stored is None or (stored.meta, stored.step, stored.parent) != (row.meta, row.step, row.parent):
                self._tally.differ(item, "differs from the source: its metadata")
                return
            state = state_of(self._store, load_base(self._store, self._at.thread, stored))
        except Damaged as damage:
            self._tally.differ(item, str(damage))
            return
        if _sum(_SEED, state) != self._sums[key] or _rest(state) != _rest(self._redaction.value(record.state)):
            self._tally.differ(item, "differs from the source: its state")

    def _remark(self, record: ForeignRecord, remarks: Iterable[str]) -> None:
        for remark in remarks:
            self._tally.remark(f"checkpoint {record.id}", remark)


def _grown(store: Store, base: Base, state: dict[str, Any]) -> dict[str, Any]:
    """A state whose messages follow those of the base. A save encodes only the new ones."""
    root, new = base.root, state[_MESSAGES]
    if isinstance(root, Map) and root.keys == list(state):
        part = root.parts[root.keys.index(_MESSAGES)]
        if isinstance(part, Series) and part.kind is Kind.LIST:
            return {**state, _MESSAGES: Extended(part, part.length, new) if new else Kept(part)}
    return {**state, _MESSAGES: [*state_of(store, base)[_MESSAGES], *new]}


def _sum(start: bytes, state: Any) -> bytes:
    """A digest of the messages of a state, which continues that of the messages before them."""
    for message in _messages(state) or ():
        start = hashlib.sha256(start + msgpack.encode(message)).digest()
    return start


def _rest(state: Any) -> bytes:
    """A state without its messages, encoded."""
    return msgpack.encode({**state, _MESSAGES: None} if _messages(state) is not None else state)


def _messages(state: Any) -> list[Any] | None:
    found = state.get(_MESSAGES) if type(state) is dict else None
    return found if type(found) is list else None
