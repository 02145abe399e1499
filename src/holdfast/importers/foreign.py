"""Store the checkpoints of other systems: in order, with their times and parents.

A format yields `ForeignThread`s; this module stores them. The original id and fields of a checkpoint are kept in its
metadata under `$imported`. A repeated import recognises them there and stores only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from holdfast.codec import msgpack
from holdfast.delta.base import Base
from holdfast.errors import Damaged, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers.foreign_record import Entry, Record, Remark, Unreadable
from holdfast.importers.foreign_stored import Prepared, Preparing, key_of
from holdfast.importers.frame import SourceThread, Tally, Unusable
from holdfast.importers.reading_back import ReadBack, extending
from holdfast.redaction import AS_IS
from holdfast.stores.contract import CheckpointRow, Position
from holdfast.threads import metadata as metas
from holdfast.threads.branches import Placer
from holdfast.threads.save import save_of
from holdfast.threads.thread import checked_name

_WENT_ON: Final = "the thread was continued in this store after the import; nothing was added"
_OTHER: Final = (
    "a different thread with this name exists, or the source has changed; nothing was imported. Drop that thread, or "
    "import into another store."
)
_CHANGED: Final = (
    "the source has changed since the import; nothing was added. Drop the thread and import again, or import into "
    "another store."
)
_LATE: Final = (
    "the checkpoint before it was imported later and is on a branch of its own; drop the thread and import again to "
    "have both on one branch"
)


class ForeignThread(Protocol):
    """A thread that a format yields. It must yield `Unreadable` for parts it cannot read, and not raise.

    A class whose records all have different keys sets `has_unique_keys`; duplicates are then not looked for.
    """

    @property
    def name(self) -> str: ...

    def records(self) -> Iterator[Entry]:
        """Yield the records, oldest first. It is called several times and must yield the same records each time."""
        ...


class Aside:
    """Findings about the source itself, not about a thread. `name` is the name of the source."""

    def __init__(self, name: str, told: Iterable[Entry]) -> None:
        self.name: Final = name
        self._told = told

    def records(self) -> Iterator[Entry]:
        yield from self._told


class ForeignSource:
    """See `Source`. `kind` is its name in FORMATS, `size` an estimate of the number of records."""

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
            yield _Told(thread) if isinstance(thread, Aside) else _Arriving(self._kind, thread, self._hf)

    def close(self) -> None:
        if self._close is not None:
            self._close()


class _Told:
    """Reports an `Aside` in the form of a `SourceThread`."""

    def __init__(self, aside: Aside) -> None:
        self.name = aside.name
        self._aside = aside

    def move(self, tally: Tally) -> None:
        tally.is_no_thread()
        for entry in self._aside.records():
            if not isinstance(entry, Record):
                _tell(tally, entry)

    def check(self, tally: Tally) -> None:
        pass


def _tell(tally: Tally, entry: Unreadable | Remark) -> None:
    (tally.skip if isinstance(entry, Unreadable) else tally.remark)(entry.item, entry.reason)


class _Stored(msgspec.Struct):
    """The stored thread: its position, and the checkpoint of each key. It is updated during the import.

    `compared` are the keys that were compared with the source. `closed` says why nothing may be added, or is None.
    """

    position: Position | None = None
    head: CheckpointRow | None = None
    seqs: dict[str, int] = {}
    compared: set[str] = set()
    closed: str | None = None


class _Arriving:
    """A thread that is being imported. See `SourceThread`."""

    def __init__(self, kind: str, thread: ForeignThread, hf: Holdfast | None) -> None:
        self._kind = kind
        self._thread = thread
        self._placer = None if hf is None else Placer(hf.context, thread.name)
        self._redaction = AS_IS if hf is None else hf.context.redaction
        self._known = _Stored()
        self._base: Base | None = None
        self._reader: ReadBack | None = None

    @property
    def name(self) -> str:
        return self._thread.name

    # -- moving -----------------------------------------------------------------------------------------------------

    def move(self, tally: Tally) -> None:
        checked_name(self.name)
        known = self._known = self._look()
        self._compare(tally, known)
        before: str | None = None
        head: str | None = None
        for found in self._prepared(tally):
            key = found.key
            if key in known.compared:
                self._mind_late(tally, found, before)
            elif known.closed is not None:
                tally.skip_checkpoint(found.record.id, known.closed)
                continue
            else:
                try:
                    self._place(tally, found, before)
                except (Unusable, InvalidArgument) as error:
                    tally.skip_checkpoint(found.record.id, str(error))
                    continue
            before = key
            if found.record.is_head:
                head = key
        if not tally.dry_run and known.closed is None:
            self._point(known, head or before)

    def _compare(self, tally: Tally, known: _Stored) -> None:
        """Compare what is stored with the source before anything is added, so that two sources are never mixed.

        Unusable if no checkpoint is equal: then the stored thread comes from another source.
        """
        if known.position is None or self._placer is None:
            return
        differing: list[tuple[str, str]] = []
        has_same = False
        for found in self._prepared(None):
            if found.key not in known.seqs:
                continue
            known.compared.add(found.key)
            new = [*self._differences(self._placer, known.position.thread, found)]
            differing += ((f"checkpoint {found.record.id}", what) for what in new)
            has_same = has_same or not new
        if not has_same:
            raise Unusable(_OTHER)
        for item, what in differing:
            tally.differ(item, what)
        if differing:
            known.closed = _CHANGED
        for _ in known.compared:
            tally.present()

    def _mind_late(self, tally: Tally, found: Prepared, before: str | None) -> None:
        """Report a stored checkpoint whose parent was not stored before it."""
        parent = found.record.parent
        if parent in self._known.seqs and parent not in self._known.compared:
            tally.differ(f"checkpoint {found.record.id}", "differs from the source: its parent")
        elif parent is None and before is not None and before not in self._known.compared:
            tally.remark(f"checkpoint {found.record.id}", _LATE)

    def _place(self, tally: Tally, found: Prepared, before: str | None) -> None:
        """Store a checkpoint, or in a dry run check that it can be stored."""
        record, known, placer = found.record, self._known, self._placer
        parent = record.parent if record.parent is not None and record.parent in known.seqs else before
        if tally.dry_run or placer is None:
            self._rehearse(found)
            seq = 0
        else:
            with placer.lock:
                under, base = self._under(placer, known, parent)
                state = found.state
                if base is not None and parent == record.parent:
                    state = extending(state, base, record.new_messages) or state
                position, row, self._base = placer.place(
                    state, found.details, expect=known.position, under=under, base=base
                )
            known.position, known.head, seq = position, row, row.seq
        if record.parent is not None and parent != record.parent:
            behind = "" if parent is None else "; the checkpoint before it was used instead"
            tally.remark(f"checkpoint {record.id}", f"its parent {record.parent} is not in the source{behind}")
        known.seqs[found.key] = seq
        tally.moved(0)

    def _rehearse(self, found: Prepared) -> None:
        """Raise Unsupported or TooLarge if storing the record would."""
        if self._placer is None:
            msgpack.check(found.state)
            return
        context = self._placer.context
        save_of(
            self.name,
            found.state,
            found.details,
            expect=None,
            parent=None,
            base=None,
            size_limit=context.max_state_bytes,
            hashing=context.store.hashing,
        )

    def _under(self, placer: Placer, known: _Stored, key: str | None) -> tuple[CheckpointRow | None, Base | None]:
        if key is None or known.position is None:
            return None, None
        seq, number = known.seqs[key], known.position.thread
        row = known.head if known.head is not None and known.head.seq == seq else placer.row(number, seq)
        if row is None:
            raise Unusable("its parent was deleted in this store")
        base = self._base if self._base is not None and self._base.seq == seq else placer.base(number, row)
        return row, base

    def _point(self, known: _Stored, key: str | None) -> None:
        """Make the head of the source the head of the thread, unless the head was moved in this store."""
        placer, position = self._placer, known.position
        if placer is None or position is None or known.head is None or key is None:
            return
        if position.head == position.last and key_of(known.head, self._kind) != key:
            row = placer.row(position.thread, known.seqs[key])
            if row is not None:
                with placer.lock:
                    known.position, known.head = placer.point(position, row), row

    # -- checking ---------------------------------------------------------------------------------------------------

    def check(self, tally: Tally) -> None:
        """See `SourceThread`. What was stored before was already compared by `move`."""
        known, placer = self._known, self._placer
        if placer is None or known.position is None:
            return
        for _ in known.compared:
            tally.checked()
        if known.compared.issuperset(known.seqs):
            return
        for found in self._prepared(None):
            if found.key in known.seqs and found.key not in known.compared:
                for what in self._differences(placer, known.position.thread, found):
                    tally.differ(f"checkpoint {found.record.id}", what)
                tally.checked()

    def _differences(self, placer: Placer, number: int, found: Prepared) -> Iterator[str]:
        row = placer.row(number, self._known.seqs[found.key])
        if row is None:
            yield "it is missing in the store"
            return
        try:
            stored, expected = metas.decode(row), found.details.meta
            reader, record = self._read_back(placer, number), found.record
            above = None if record.parent is None else self._known.seqs.get(record.parent)
            is_same = reader.holds(row, found.state, above, record.new_messages)
        except Damaged as damage:
            yield str(damage)
            return
        pairs = {
            "its state": (is_same, True),
            "its step": (row.step, found.details.step),
            "its label": (row.label, found.details.label),
            **{
                f"its {name}": (getattr(stored, name), getattr(expected, name))
                for name in ("status", "reason", "tags", "metadata", "agent", "trigger", "usage", "resume_hint")
            },
        }
        if found.record.created_at is not None:
            pairs["its time"] = stored.created_at, expected.created_at
        parent = None if found.record.parent is None else self._known.seqs.get(found.record.parent)
        if parent is not None:
            pairs["its parent"] = row.parent, (0, parent)
        yield from (f"differs from the source: {what}" for what, (one, other) in pairs.items() if one != other)

    def _read_back(self, placer: Placer, number: int) -> ReadBack:
        if self._reader is None:
            self._reader = ReadBack(placer.context.store, number)
        return self._reader

    # -- the store --------------------------------------------------------------------------------------------------

    def _look(self) -> _Stored:
        placer = self._placer
        head = None if placer is None else placer.head()
        if placer is None or head is None:
            return _Stored()
        number = head.thread.position.thread
        known = _Stored(head.thread.position, head.row)
        if placer.context.store.run(number) is not None:
            known.closed = _WENT_ON
        for row in placer.rows(number, 0):
            key = None if row.deleted else key_of(row, self._kind)
            if key is not None:
                known.seqs[key] = row.seq  # rows come newest first, so the original wins over its labelled copies
            elif not row.deleted:
                known.closed = _WENT_ON
        if not known.seqs:
            raise Unusable(_OTHER)
        return known

    # -- records ----------------------------------------------------------------------------------------------------

    def _prepared(self, tally: Tally | None) -> Iterator[Prepared]:
        """The records in stored form, without duplicates. Findings are reported if `tally` is given."""
        preparing = Preparing(self._kind, self._redaction, is_unique=getattr(self._thread, "has_unique_keys", False))
        for entry in self._thread.records():
            if not isinstance(entry, Record):
                if tally is not None:
                    _tell(tally, entry)
                continue
            try:
                found, remarks = preparing.prepare(entry)
            except (Unusable, InvalidArgument) as error:
                if tally is not None:
                    tally.skip_checkpoint(entry.id, str(error))
                continue
            if tally is not None:
                for remark in remarks:
                    tally.remark(f"checkpoint {entry.id}", remark)
            if found is not None:
                yield found
