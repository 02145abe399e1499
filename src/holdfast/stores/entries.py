"""Number and encode journal entries as database rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.errors import Damaged, TooLarge
from holdfast.stores import leases, records, rows
from holdfast.stores.rows import MAX_SEQ
from holdfast.stores.running import Entry

EffectColumns = tuple[int, bytes, bytes | None]
# row_key, record, mark


class Entries(NamedTuple):
    """Encoded journal entries: new rows, changed rows, the number of each entry, and the newest number afterwards."""

    new: list[EffectColumns]
    changed: list[EffectColumns]
    numbers: list[int]
    last: int


def encode(thread: int, known: int, entries: Sequence[Entry]) -> Entries:
    """Number and encode journal entries. All are checked before any is written, so an error leaves nothing behind."""
    last = known
    new: list[EffectColumns] = []
    changed: list[EffectColumns] = []
    numbers: list[int] = []
    for entry in entries:
        if entry.number:
            if not 1 <= entry.number <= known:
                raise leases.no_effect(thread, entry.number)
            row_key = rows.key(thread, entry.number)
            changed.append((row_key, records.store_effect(row_key, entry), records.stored_mark(entry)))
            numbers.append(entry.number)
        else:
            last += 1
            if last > MAX_SEQ:
                raise TooLarge("a journal has at most 2**32 - 1 entries; nothing was stored")
            row_key = rows.key(thread, last)
            record = records.store_effect(row_key, msgspec.structs.replace(entry, number=last))
            new.append((row_key, record, records.stored_mark(entry)))
            numbers.append(last)
    return Entries(new, changed, numbers, last)


def missing(thread: int, number: int) -> Damaged:
    return Damaged(f"journal entry {number} of the thread with number {thread} is missing")
