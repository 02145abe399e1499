"""References: the ways in which a caller names a checkpoint of a thread."""

from __future__ import annotations

from contextlib import suppress

from holdfast.errors import Ambiguous, Damaged, InvalidArgument, NotFound
from holdfast.ids import from_text, seq_of, to_text
from holdfast.stores.contract import CheckpointRow, Position, Store, ThreadRow
from holdfast.text import quoted
from holdfast.threads.ancestry import ancestor_beyond, first_of_branch, require_older, same_branch
from holdfast.threads.context import MAX_RETRIES
from holdfast.threads.history import listed
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import Checkpoint

_SHORT_MIN = 4
_ENDING = 8  # characters at the end of an id that are unique in its thread
_HEX = frozenset("0123456789abcdef")
_DIGITS_MAX = 19  # a longer number does not fit a step
_BLOCK_MAX = 256  # checkpoints read at once


def find_row(store: Store, thread: ThreadRow, ref: str | Checkpoint) -> CheckpointRow:
    """The checkpoint that a reference names, with its skeleton. Raises NotFound if there is none.

    `@12` is the newest with step 12, `@-1` the head, `@-2` the one before it on its branch, `@label` the newest with
    that label (also a number, if no checkpoint has that step). Anything else is an id, or a unique start or end of one.
    """
    text = ref.id if isinstance(ref, Checkpoint) else ref
    if type(text) is not str or not text:
        raise InvalidArgument('a reference must be an id, "@12" (a step), "@-2" (counted from the head) or "@label"')
    seen: tuple[Position, int | None] | None = None
    for _ in range(MAX_RETRIES):
        seq = _seq_of(store, thread, text)
        row = None if seq is None else checkpoint_at(store, thread.position.thread, seq)
        if row is not None and not row.deleted:
            return row
        # The head may have moved, or the checkpoint may have been deleted, after it was found.
        now = _as_it_is(store, thread)
        if (now.position, seq) == seen or (now.position, seq) == (thread.position, None):
            break
        thread, seen = now, (now.position, seq)
    raise NotFound(f"thread {quoted(thread.name)} has no checkpoint {quoted(text)}; history() lists all checkpoints")


def seq_before(store: Store, thread: ThreadRow, ref: str | Checkpoint) -> int:
    """The seq of the checkpoint before which a page of history starts. It may have been deleted since."""
    text = ref.id if isinstance(ref, Checkpoint) else ref
    id = from_text(text) if type(text) is str else None
    row = None if id is None else checkpoint_at(store, thread.position.thread, seq_of(id))
    if row is not None and row.id == id:
        return row.seq
    return find_row(store, thread, ref).seq


def split_reference(text: str) -> tuple[str, str]:
    """Split `thread@ref` into the name of a thread and a reference. A name alone means the head."""
    if type(text) is not str:
        raise InvalidArgument('a reference to a checkpoint of a thread must be a string like "thread@-1"')
    name, at, ref = text.rpartition("@")
    return (name, f"@{ref}") if at and name else (text, "@-1")


def _as_it_is(store: Store, thread: ThreadRow) -> ThreadRow:
    """The thread, read again; the row given if the thread was dropped or its record cannot be read."""
    with suppress(Damaged):
        now = thread_named(store, thread.name)
        if now is not None and now.position.thread == thread.position.thread:
            return now
    return thread


def _seq_of(store: Store, thread: ThreadRow, text: str) -> int | None:
    if not text.startswith("@"):
        return _seq_of_id(store, thread, text)
    seq = _counted(store, thread, text[1:]) if _is_number(text[1:]) else None
    seq = _first(store, thread, label=text[1:]) if seq is None else seq
    if seq is None and from_text(text[1:]) is not None:  # "thread@id", where the thread was split off
        return _seq_of_id(store, thread, text[1:])
    return seq


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < _DIGITS_MAX


def _counted(store: Store, thread: ThreadRow, text: str) -> int | None:
    number = int(text)
    return _ancestor(store, thread, -number) if text.startswith("-") else _first(store, thread, step=number)


def _first(store: Store, thread: ThreadRow, *, step: int | None = None, label: str | None = None) -> int | None:
    rows = store.checkpoints(thread.position.thread, before=None, limit=1, step=step, label=label)
    return rows[0].seq if rows else None


def _ancestor(store: Store, thread: ThreadRow, back: int) -> int | None:
    """The checkpoint `back` - 1 places before the head among its ancestors. Deleted ones do not count.

    Raises Damaged if it cannot be read, or if an unreadable one hides which it is.
    """
    if back < 1:
        return None
    position = thread.position
    has_deleted = thread.count != position.last
    rows = _Blocks(store, position.thread)
    seq = position.head
    while True:
        try:
            row = rows.get(seq)
        except Damaged:
            # A deleted checkpoint, which does not count, may be among those that cannot be read.
            beyond = None if has_deleted else ancestor_beyond(store, position, seq)
            if beyond is None or back <= seq - beyond:
                raise
            back -= seq - beyond
            seq = beyond
            continue
        if row is None or (row.deleted and seq == position.head):
            return None
        if not has_deleted:
            # Within a branch the parent of each checkpoint is the one before it.
            if same_branch(store, position.thread, row, seq - back + 1):
                return seq - back + 1
            with suppress(Damaged):
                first = first_of_branch(store, position.thread, row)
                if first.seq <= seq - back + 1:
                    return seq - back + 1
                back -= seq - first.seq
                row = first
        back -= not row.deleted
        if not back:
            return row.seq
        if row.parent is None or row.parent[0]:
            return None
        require_older(row)
        seq = row.parent[1]


class _Blocks:
    """Checkpoints of a thread, read many at once: following parents one by one asks the store for each."""

    def __init__(self, store: Store, thread: int) -> None:
        self._store = store
        self._thread = thread
        self._block: dict[int, CheckpointRow | Damaged] = {}
        self._size = 1

    def get(self, seq: int) -> CheckpointRow | None:
        """The checkpoint; None if there is none. Raises Damaged if it cannot be read."""
        if seq not in self._block:
            after = max(seq - self._size, 0)
            found = self._store.walk(self._thread, after=after, limit=seq - after)
            self._block = dict(enumerate(found, after + 1))
            self._size = min(2 * self._size, _BLOCK_MAX)
        row = self._block.get(seq)
        if isinstance(row, Damaged):
            raise row
        return row


def _seq_of_id(store: Store, thread: ThreadRow, text: str) -> int | None:
    id = from_text(text)
    number = thread.position.thread
    if id is not None:
        row = checkpoint_at(store, number, seq_of(id))
        return seq_of(id) if row is not None and row.id == id else None
    wanted = text.lower()
    if len(wanted) < _SHORT_MIN:
        label = quoted(f"@{text}")
        raise NotFound(
            f"{quoted(text)} is too short for an id; give at least {_SHORT_MIN} characters. For a label, write {label}."
        )
    if (seq := _seq_of_ending(store, thread, wanted)) is not None:
        return seq
    matches: list[tuple[int, str]] = []
    lost: Damaged | None = None
    for found in listed(store, thread):
        if isinstance(found, Damaged):
            lost = found
        elif (spelled := to_text(found.id)).startswith(wanted) or spelled.endswith(wanted):
            matches.append((found.seq, spelled))
    if len(matches) > 1:
        raise Ambiguous(
            f"{quoted(text)} matches {len(matches)} ids of thread {quoted(thread.name)}; "
            "give more characters (the last 8 are unique within a thread)"
        )
    if lost is not None:
        raise lost  # its id may be the one
    return matches[0][0] if matches else None


def _seq_of_ending(store: Store, thread: ThreadRow, wanted: str) -> int | None:
    """The checkpoint whose id ends with the last characters of an id. They are its seq, so nothing is searched."""
    ending = wanted[-_ENDING:]
    if len(wanted) < _ENDING or not _HEX.issuperset(ending):
        return None
    row = checkpoint_at(store, thread.position.thread, int(ending, 16))
    return row.seq if row is not None and not row.deleted and to_text(row.id).endswith(wanted) else None
