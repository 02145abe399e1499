"""Threads and checkpoints by name: THREAD, THREAD@-2, THREAD@label, THREAD@12, THREAD@id, THREAD@2026-11-15T10:00.

A mistyped name is reported with a suggestion.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from holdfast.errors import Ambiguous, Damaged, InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.ids import to_text
from holdfast.inspect.graphs import decoded
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.text import nearest, quoted
from holdfast.threads.history import listed
from holdfast.threads.metadata import checkpoint_of, decode, microseconds
from holdfast.threads.refs import find_row
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.threads.thread import checked_name
from holdfast.types import Checkpoint

_PAGE: Final = 500
_HEAD: Final = "@-1"
_SHORT: Final = re.compile(r"[0-9a-f][0-9a-f-]{3,35}", re.IGNORECASE)
_ENDING: Final = re.compile(r"[0-9a-f]{8}", re.IGNORECASE)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_LOOKED_AT: Final = 1000  # names to compare; more would be slow
_CUT: Final = (1, 2, 3)  # characters to drop at the end of a name: names differ there, so most mistakes are there
_PREFIXES: Final = (6, 3, 1, 0)


class FoundCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The thread and the checkpoint, without its state, that a reference names."""

    thread: str
    checkpoint: Checkpoint
    is_head: bool


def find(hf: Holdfast, text: str) -> FoundCheckpoint:
    """Return the checkpoint that a reference names; a thread alone means its head.

    Raises NotFound, with a suggestion, if there is no such thread or checkpoint, and Ambiguous if an id is too short.
    """
    thread, ref = split(hf, text)
    store = hf.context.store
    row = _row(store, thread, ref)
    checkpoint = checkpoint_of(thread.name, row)
    return FoundCheckpoint(thread=thread.name, checkpoint=checkpoint, is_head=row.seq == thread.position.head)


def split(hf: Holdfast, text: str) -> tuple[ThreadRow, str]:
    """Return the thread of a reference and the rest from "@" on, "@-1" if there is none.

    A thread whose name is the whole text takes precedence, because names may contain "@".
    """
    if type(text) is not str or not text:
        raise InvalidArgument('a reference must be a string like "thread", "thread@-2" or "thread@label"')
    name, at, ref = text.rpartition("@")
    if not at or not name:
        return existing(hf, text), _HEAD
    whole = thread_named(hf.context.store, text)
    return (whole, _HEAD) if whole is not None else (existing(hf, name), f"@{ref}" if ref else _HEAD)


def state_of(hf: Holdfast, found: FoundCheckpoint, *, partial: bool = True, raw: bool = False) -> Checkpoint:
    """Load a found checkpoint with its state. If `partial`, lost values are replaced by placeholders.

    The state of a LangGraph graph has its channels; if `raw`, it is as it is stored.
    """
    loaded = hf.thread(found.thread).load(found.checkpoint, partial=partial)
    return loaded if raw else decoded(loaded)


def moment_of(text: str) -> datetime | None:
    """Parse a date or time. A day means its end; a time without a zone is in UTC. None if it is not a date."""
    if not _DAY.match(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if _DAY.fullmatch(text):
        found += timedelta(days=1, microseconds=-1)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _row(store: Store, thread: ThreadRow, ref: str) -> CheckpointRow:
    named = _by_ending(store, thread, ref.removeprefix("@"))
    if named is not None:
        return named
    missing: NotFound | None = None
    try:
        return find_row(store, thread, ref)
    except Ambiguous:
        raise
    except NotFound as error:
        missing = error
    word = ref.removeprefix("@")
    moment = moment_of(word)
    if moment is not None:
        return _at(store, thread, moment, word)
    if _SHORT.fullmatch(word):
        with suppress(NotFound):
            return find_row(store, thread, word)
    hint = nearest(word, _labels(store, thread))
    if hint:
        raise NotFound(
            f"thread {quoted(thread.name)} has no checkpoint {quoted(ref)}; did you mean {quoted(f'@{hint[0]}')}?"
        )
    raise missing


def _by_ending(store: Store, thread: ThreadRow, word: str) -> CheckpointRow | None:
    """Return the checkpoint whose id ends with `word`, as `log` shows it. It may look like a step number."""
    if not _ENDING.fullmatch(word):
        return None
    row = checkpoint_at(store, thread.position.thread, int(word, 16))
    return None if row is None or row.deleted or not to_text(row.id).endswith(word.lower()) else row


def _at(store: Store, thread: ThreadRow, moment: datetime, word: str) -> CheckpointRow:
    """Return the newest checkpoint at a time."""
    until = microseconds(moment)
    for row in listed(store, thread, page=_PAGE):
        if isinstance(row, Damaged):
            raise row
        if decode(row).created_at <= until:
            found = checkpoint_at(store, thread.position.thread, row.seq)
            if found is not None and not found.deleted:
                return found
    raise NotFound(f"thread {quoted(thread.name)} has no checkpoint from {quoted(word)} or earlier")


def _labels(store: Store, thread: ThreadRow) -> list[str]:
    rows = store.checkpoints(thread.position.thread, before=None, limit=_PAGE)
    return [row.label for row in rows if row.label]


# -- threads, and suggestions for mistyped names ----------------------------------------------------------------------


def nearest_threads(hf: Holdfast, name: str, most: int = 3) -> list[str]:
    """Return thread names similar to a name, searched among those with a common prefix."""
    store = hf.context.store
    for length in (*(len(name) - cut for cut in _CUT), *_PREFIXES):
        if 0 <= length < len(name):
            rows = store.threads(prefix=name[:length], after=None, limit=_LOOKED_AT)
            found = nearest(name, (row.name for row in rows), most)
            if found:
                return found
    return []


def existing(hf: Holdfast, name: str) -> ThreadRow:
    """Return the thread of this name. Raises NotFound, with a suggestion, if there is none."""
    hf.context.check_open()
    checked_name(name)
    row = thread_named(hf.context.store, name)
    if row is None:
        raise NotFound(f"there is no thread {quoted(name)}{_did_you_mean(hf, name)}")
    return row


def _did_you_mean(hf: Holdfast, name: str) -> str:
    found = nearest_threads(hf, name, most=1)
    return f"; did you mean {quoted(found[0])}?" if found else ""
