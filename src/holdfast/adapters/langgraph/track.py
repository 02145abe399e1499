"""A track: one namespace of a LangGraph thread, stored as one Holdfast thread.

Each row (a Holdfast checkpoint) contains one LangGraph checkpoint and the writes it has so far. If an id has several
rows, the newest one is valid.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.adapters.langgraph.layout import VALUES, WRITE_LISTS, WRITES, Held, is_bookkeeping
from holdfast.adapters.langgraph.naming import track_name
from holdfast.adapters.langgraph.notes import Note, note_of
from holdfast.adapters.langgraph.redacting import redacted
from holdfast.adapters.langgraph.written import Written
from holdfast.delta.hints import Apart, Extended, Kept
from holdfast.delta.load import CellReader, load_base
from holdfast.errors import AlreadyExists, Conflict, Damaged, HoldfastError, InvalidArgument
from holdfast.redaction import Redaction
from holdfast.stores.contract import CheckpointRow, Position, Store, ThreadRow
from holdfast.threads.branches import Placer
from holdfast.threads.context import MAX_RETRIES, Context
from holdfast.threads.save import Details

T = TypeVar("T")

_HELD_MAX: Final = 512  # rows that are cached, because the history of a DeltaChannel is read repeatedly
_SMALL: Final = 32_768  # bytes; larger rows are not cached


class View(msgspec.Struct, frozen=True):
    """The position of a track and its head. All fields are empty if the track does not exist."""

    position: Position | None = None
    row: CheckpointRow | None = None
    note: Note | None = None
    count: int = 0

    @property
    def tip(self) -> str | None:
        return None if self.note is None else self.note.tip

    @property
    def is_newest(self) -> bool:
        """Whether the head is the newest row. After a rewind it is not."""
        return self.position is None or self.position.head == self.position.last


class Track:
    """One namespace of a thread. Call its methods with the thread lock (`line`) held."""

    def __init__(self, context: Context, thread_id: str, namespace: str) -> None:
        self.thread_id: Final = thread_id
        self.namespace: Final = namespace
        self.placer: Final = Placer(context, track_name(thread_id, namespace))
        self.line: Final = self.placer.lock
        self._view: View | None = None
        self._index: dict[str, list[Note]] = {}
        self._indexed = (0, 0)
        self._held: OrderedDict[int, Held] = OrderedDict()
        self._written: tuple[bytes, Written] | None = None

    @property
    def name(self) -> str:
        return self.placer.name

    @property
    def store(self) -> Store:
        return self.placer.context.store

    # -- position ---------------------------------------------------------------------------------------------------

    def look(self) -> View:
        """Read the current view from the store."""
        head = self.placer.head()
        if head is None:
            self._view = View()
            self.reindex()
            return self._view
        known, thread = self._view, head.thread
        now = known
        if now is None or now.position != thread.position:
            row = head.row
            now = View(thread.position, row, self._noted(row))
        if known is None or known.position is None or not _only_grew(known, known.position, thread):
            self.reindex()
        self._view = now = replace(now, count=thread.count)
        return now

    def view(self) -> View:
        """The last view that was read. If it is out of date, a commit raises Conflict."""
        return self._view or self.look()

    def forget(self) -> None:
        self._view = None

    def moved_from(self, view: View) -> View | None:
        """The current view if the track has moved or lost rows since `view`, else None.

        Rows that were deleted while they were read look damaged.
        """
        now = self.look()
        return None if now.position == view.position and now.count == view.count else now

    def _noted(self, row: CheckpointRow) -> Note:
        note = note_of(row)
        if note is None:
            raise InvalidArgument(
                f"thread {self.name} was not written by LangGraph; nothing was changed. Use another thread_id."
            )
        return note

    # -- reading ----------------------------------------------------------------------------------------------------

    def index(self, view: View) -> dict[str, list[Note]]:
        """The notes of all rows by LangGraph id, oldest first. Rows that were deleted meanwhile may still be listed."""
        if view.position is None:
            return {}
        number, to = view.position.thread, view.position.last
        if self._indexed[0] != number:
            self._index, self._indexed = {}, (number, 0)
        if self._indexed[1] < to:
            for row in reversed(list(self.placer.rows(number, self._indexed[1]))):
                note = note_of(row)
                if note is not None and note.id is not None:
                    self._index.setdefault(note.id, []).append(note)
                self._indexed = (number, max(row.seq, self._indexed[1]))
            self._indexed = (number, max(to, self._indexed[1]))
        return self._index

    def reindex(self) -> None:
        """Clear the index and the cached rows, after rows were deleted."""
        self._index, self._indexed = {}, (0, 0)
        self._held.clear()

    def row_of(self, view: View, id: str) -> CheckpointRow | None:
        """The newest row of a LangGraph checkpoint."""
        if view.position is None or view.note is None:
            return None
        if view.note.id == id:
            return view.row
        for note in reversed(self.index(view).get(id, [])):
            held = self._held.get(note.seq)
            is_known = held is not None and held.number == view.position.thread
            row = held.row if held is not None and is_known else self.placer.row(view.position.thread, note.seq)
            if row is not None:
                return row
        return None

    def hold(self, view: View, row: CheckpointRow, store: CellReader | None = None) -> Held:
        """A row with its parts. The base of the head is cached by the handle."""
        if view.position is None:
            raise HoldfastError("a track that does not exist has no rows")
        number = view.position.thread
        if row.seq == view.position.head:
            note = view.note if row is view.row and view.note is not None else self._noted(row)
            return Held(self.store, number, row, note, self.placer.base(number, row))
        held = self._held.pop(row.seq, None)
        if held is None or held.number != number:
            held = Held(self.store, number, row, self._noted(row), load_base(store or self.store, number, row))
        if held.base.footprint <= _SMALL:
            self._held[row.seq] = held
            if len(self._held) > _HELD_MAX:
                self._held.popitem(last=False)
        return held

    def written(self, held: Held) -> Written:
        """The writes of a row, without their values."""
        if self._written is not None and self._written[0] == held.row.id:
            return self._written[1]
        written = Written(held.plain_list(WRITES))
        self.has_written(held, written)
        return written

    def has_written(self, held: Held, written: Written) -> None:
        """Cache the writes of this row, which is likely to be needed next."""
        self._written = held.row.id, written

    # -- writing ----------------------------------------------------------------------------------------------------

    def racing(self, attempt: Callable[[View], T]) -> T:
        """Call `attempt` with the last view, and again with the current one if another writer moved the track.

        Rows that were deleted while they were read look damaged.
        """
        view = self.view()
        for _ in range(MAX_RETRIES):
            try:
                return attempt(view)
            except Overtaken as overtaken:
                raise Conflict(str(overtaken)) from None
            except (Conflict, AlreadyExists):
                view = self.look()
            except Damaged:
                now = self.moved_from(view)
                if now is None:
                    raise
                view = now
        raise Conflict(
            f"thread {self.name} was changed by other writers during each of {MAX_RETRIES} attempts; nothing was done. "
            "Try again."
        )

    def place(self, view: View, state: dict[str, Any], details: Details, under: Held | None) -> Held:
        """Store a row and make it the head. Conflict if the track is not at the position of `view`."""
        redaction = self.placer.context.redaction
        try:
            position, row, base = self.placer.place(
                {key: _redacted(redaction, key, value) for key, value in state.items()},
                details,
                expect=view.position,
                under=None if under is None else under.row,
                base=None if under is None else under.base,
            )
        except BaseException:
            self._view = None
            raise
        note = self._noted(row)
        self._view = View(position, row, note, view.count + 1)
        if self._indexed == (position.thread, position.last - 1) and note.id is not None:
            self._index.setdefault(note.id, []).append(note)
            self._indexed = (position.thread, position.last)
        return Held(self.store, position.thread, row, note, base)

    def point(self, row: CheckpointRow) -> None:
        """Make a row the head again."""
        view = self.view()
        if view.position is None:
            return
        self._view = None
        position = self.placer.point(view.position, row)
        self._view = View(position, row, self._noted(row), view.count)

    def remove(self, number: int, seqs: list[int]) -> None:
        """Delete rows of the thread with this number. The head must not be among them."""
        self.placer.remove(number, seqs)
        self.forget()

    def drop(self) -> None:
        """Delete the track, if it exists."""
        head = self.placer.head()
        if head is not None:
            self.placer.drop(head.thread.position.thread)
        self.forget()
        self.reindex()


def _redacted(redaction: Redaction, key: str, value: Any) -> Any:
    """Redact the value of a state's key, except stored parts and what LangGraph needs unchanged."""
    if isinstance(value, Kept) or is_bookkeeping(key):
        return value
    if key == VALUES and type(value) is dict:
        return {name: _redacted(redaction, name, member) for name, member in value.items()}
    if key in WRITE_LISTS and isinstance(value, Extended):
        return Extended(value.part, value.keep, _redacted(redaction, key, value.items))
    if key in WRITE_LISTS and type(value) is list:
        return [[*write[:-1], redacted(redaction, write[-1])] for write in value]
    if isinstance(value, Extended):
        return Extended(value.part, value.keep, redacted(redaction, value.items))
    if isinstance(value, Apart):
        return Apart(redacted(redaction, value.value), value.beside)
    return redacted(redaction, value)


def _only_grew(known: View, position: Position, thread: ThreadRow) -> bool:
    """Whether rows were only added to a track, so that the index is still correct."""
    now = thread.position
    return now.thread == position.thread and thread.count - known.count == now.last - position.last


class Overtaken(Exception):
    """A checkpoint does not follow the latest one. `Track.racing` turns it into Conflict, without a retry."""
