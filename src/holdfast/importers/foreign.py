"""Checkpoints of other systems, as they become ours: in order, with the ids, times and parents they had.

A format gives `ForeignThread`s; this moves them. What a checkpoint was there is kept in its metadata, under
`$imported`, by which it is known again: an import that is started anew stores what is not there yet.
"""

# ruff: noqa: PLC0414 - formats take the records from here, too

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from holdfast.codec import packed
from holdfast.errors import Damaged, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers.foreign_record import Entry as Entry
from holdfast.importers.foreign_record import Record as Record
from holdfast.importers.foreign_record import Remark as Remark
from holdfast.importers.foreign_record import Unreadable as Unreadable
from holdfast.importers.foreign_stored import Prepared, Preparing, key_of
from holdfast.importers.frame import SourceThread, Tally, Unusable
from holdfast.importers.reading_back import ReadBack
from holdfast.redaction import AS_IS
from holdfast.state.base import Base
from holdfast.stores.contract import CheckpointRow, Position
from holdfast.threads import meta as metas
from holdfast.threads.placing import Placer
from holdfast.threads.thread import checked_name

_WENT_ON: Final = "the thread has gone on here since it was imported; it is not mixed with it"
_OTHER: Final = (
    "there is another thread of that name, or the source was changed since; drop that one, or import to another store"
)


class ForeignThread(Protocol):
    """What a format gives. Hostile files must not end the import: what cannot be read is an `Unreadable`.

    One that makes sure that no two records have the same key says so by `has_unique_keys`: it saves looking at each.
    """

    @property
    def name(self) -> str: ...

    def records(self) -> Iterator[Entry]:
        """Oldest first, one at a time in memory. It is asked for more than once, and gives the same each time."""
        ...


class Aside:
    """What is to be said of a source, and of no thread of it. `name` is that of the source."""

    def __init__(self, name: str, told: Iterable[Entry]) -> None:
        self.name: Final = name
        self._told = told

    def records(self) -> Iterator[Entry]:
        yield from self._told


class ForeignSource:
    """See `Source`. `kind` is its name in FORMATS, `size` how many records there are, as far as is known."""

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
    """See `SourceThread`; it is none."""

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
    """What a store has of a thread: where it stands, and which checkpoint each key is. It follows what is moved."""

    position: Position | None = None
    head: CheckpointRow | None = None
    seqs: dict[str, int] = {}
    went_on: bool = False


class _Arriving:
    """A thread on its way into a store. See `SourceThread`."""

    def __init__(self, kind: str, thread: ForeignThread, hf: Holdfast | None) -> None:
        self._kind = kind
        self._thread = thread
        self._placer = None if hf is None else Placer(hf._session, thread.name)
        self._redaction = AS_IS if hf is None else hf._session.redaction
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
        self._require_same(known)
        before: str | None = None
        head: str | None = None
        for found in self._prepared(tally):
            key = found.key
            if key in known.seqs:
                tally.present()
            elif known.went_on:
                tally.skip_checkpoint(found.record.id, _WENT_ON)
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
        if not tally.dry_run and not known.went_on:
            self._point(known, head or before)

    def _place(self, tally: Tally, found: Prepared, before: str | None) -> None:
        """Store a checkpoint, or see whether it could be."""
        record, known, placer = found.record, self._known, self._placer
        parent = record.parent if record.parent is not None and record.parent in known.seqs else before
        if tally.dry_run or placer is None:
            packed.check(found.state)
            seq = 0
        else:
            with placer.line:
                under, base = self._under(placer, known, parent)
                position, row, self._base = placer.place(
                    found.state, found.details, expect=known.position, under=under, base=base
                )
            known.position, known.head, seq = position, row, row.seq
        if record.parent is not None and parent != record.parent:
            behind = "" if parent is None else "; it stands behind the one before it"
            tally.remark(f"checkpoint {record.id}", f"its parent {record.parent} is not in the source{behind}")
        known.seqs[found.key] = seq
        tally.moved(0)

    def _under(self, placer: Placer, known: _Stored, key: str | None) -> tuple[CheckpointRow | None, Base | None]:
        if key is None or known.position is None:
            return None, None
        seq, number = known.seqs[key], known.position.thread
        row = known.head if known.head is not None and known.head.seq == seq else placer.row(number, seq)
        if row is None:
            raise Unusable("its parent was deleted here")
        base = self._base if self._base is not None and self._base.seq == seq else placer.base(number, row)
        return row, base

    def _point(self, known: _Stored, key: str | None) -> None:
        """Make what the source goes on from the head, unless somebody chose another since."""
        placer, position = self._placer, known.position
        if placer is None or position is None or known.head is None or key is None:
            return
        if position.head == position.last and key_of(known.head, self._kind) != key:
            row = placer.row(position.thread, known.seqs[key])
            if row is not None:
                with placer.line:
                    known.position, known.head = placer.point(position, row), row

    # -- checking ---------------------------------------------------------------------------------------------------

    def check(self, tally: Tally) -> None:
        known, placer = self._known, self._placer
        if placer is None or known.position is None:
            return
        for found in self._prepared(None):
            seq = known.seqs.get(found.key)
            if seq is None:
                continue
            row = placer.row(known.position.thread, seq)
            for what in ["it is not there"] if row is None else self._differences(known.position.thread, row, found):
                tally.differ(f"checkpoint {found.record.id}", what)
            tally.checked()

    def _differences(self, number: int, row: CheckpointRow, found: Prepared) -> Iterator[str]:
        if self._placer is None:
            return
        try:
            stored, expected = metas.decode(row), found.details.meta
            is_same = self._read_back(self._placer, number).holds(row, found.state)
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
        yield from (f"stored otherwise: {what}" for what, (one, other) in pairs.items() if one != other)

    def _read_back(self, placer: Placer, number: int) -> ReadBack:
        if self._reader is None:
            self._reader = ReadBack(placer.session.store, number)
        return self._reader

    # -- what is there ----------------------------------------------------------------------------------------------

    def _look(self) -> _Stored:
        placer = self._placer
        thread = None if placer is None else placer.thread()
        if placer is None or thread is None:
            return _Stored()
        number = thread.position.thread
        known = _Stored(thread.position, placer.row(number, thread.position.head), {})
        if known.head is None:
            raise Damaged(f"thread {thread.name}: checkpoint {thread.position.head}, its head, is missing")
        known.went_on = placer.session.store.run(number) is not None
        for row in placer.rows(number, 0):
            key = None if row.deleted else key_of(row, self._kind)
            if key is not None:
                known.seqs[key] = row.seq  # the oldest: others were made of it, to be labelled
            elif not row.deleted:
                known.went_on = True
        if not known.seqs:
            raise Unusable(_OTHER)
        return known

    def _require_same(self, known: _Stored) -> None:
        """Unusable if what is there under this name came from elsewhere: the two must not be mixed."""
        if known.position is None or self._placer is None:
            return
        for found in self._prepared(None):
            seq = known.seqs.get(found.key)
            row = None if seq is None else self._placer.row(known.position.thread, seq)
            if row is not None:
                if any("its state" in what for what in self._differences(known.position.thread, row, found)):
                    raise Unusable(_OTHER)
                return
        raise Unusable(_OTHER)

    # -- records ----------------------------------------------------------------------------------------------------

    def _prepared(self, tally: Tally | None) -> Iterator[Prepared]:
        """The records as they are stored, each once; what is bad among them is told if there is a tally."""
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
