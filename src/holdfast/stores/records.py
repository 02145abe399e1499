"""Encode runs and journal entries as database rows: one blob each, with a checksum that includes the row's key."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar
from zlib import crc32

import msgspec

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores.leases import is_timed
from holdfast.stores.rows import MAX_SEQ, SEQ_BITS, to_bytes
from holdfast.stores.running import Entry, RunRow
from holdfast.text import escaped, unescaped
from holdfast.types import UNREADABLE

S = TypeVar("S", bound=msgspec.Struct)

RunColumns = tuple[int, bytes, bytes, int, bytes, int, int, int, bytes, int]
# thread_no, namespace, status, updated_at, wake_clock, wake_at, wake_wall, entries, record, checksum
RUN_COLUMNS: Final = 10
ENTRIES: Final = 7

_BOUND: Final = struct.Struct("<qqqqqIII")
_KEY: Final = struct.Struct("<q")
_CHECKSUM: Final = struct.Struct("<I")

_PLAIN: Final = b"\0"
_ESCAPED: Final = b"\1"

_encode = msgspec.msgpack.Encoder().encode
_decode_run = msgspec.msgpack.Decoder(RunRow).decode
_decode_effect = msgspec.msgpack.Decoder(Entry).decode


def store_run(
    namespace: bytes, row: RunRow, entries: int
) -> tuple[int, bytes, str, int, bytes, int, int, int, bytes, int]:
    """The columns of a run. `InvalidArgument` if a number does not fit its column."""
    record = _packed(row)
    wake = _wake(row)
    try:
        checksum = _run_checksum(row.thread, namespace, row.status.encode(), row.updated_at, *wake, entries, record)
    except struct.error as error:
        raise _too_large() from error
    return row.thread, namespace, row.status, row.updated_at, *wake, entries, record, checksum


def recount(columns: RunColumns, entries: int) -> int:
    """The new checksum of a run whose number of journal entries changed."""
    thread_no, namespace, status, updated_at, wake_clock, wake_at, wake_wall, _, record, _ = columns
    return _run_checksum(thread_no, namespace, status, updated_at, wake_clock, wake_at, wake_wall, entries, record)


def read_run(columns: RunColumns) -> RunRow:
    """The run of a selected row, verified. `Damaged` if the row is not what was written."""
    thread_no, namespace, status, updated_at, wake_clock, wake_at, wake_wall, entries, record, checksum = columns
    try:
        if checksum != _run_checksum(
            thread_no, namespace, status, updated_at, wake_clock, wake_at, wake_wall, entries, record
        ):
            raise Damaged(f"the run of the thread with number {thread_no} does not match its checksum")
        run = _unpacked(record, _decode_run)
    except (TypeError, struct.error, *UNREADABLE) as error:
        # Column types match the schema unless the type codes in the row itself are damaged.
        raise Damaged(f"the run of the thread with number {thread_no} cannot be read") from error
    if not repeats(columns, run):
        # Listings page by the record's fields but are ordered by the columns, so the two must agree.
        raise Damaged(f"the run of the thread with number {thread_no} does not match its index columns")
    return run


def repeats(columns: RunColumns, run: RunRow) -> bool:
    """Whether the index columns of a run match its record."""
    thread_no, _, status, updated_at, *wake, _, _, _ = columns
    return (thread_no, status, updated_at, *wake) == (run.thread, run.status.encode(), run.updated_at, *_wake(run))


def store_effect(row_key: int, row: Entry) -> bytes:
    """The record of a journal entry. `InvalidArgument` if a number does not fit."""
    packed = _packed(row)
    return packed + _CHECKSUM.pack(crc32(packed, crc32(_KEY.pack(row_key))))


def stored_mark(row: Entry) -> bytes | None:
    """The topic of a journal entry as stored in its column."""
    return None if row.topic is None else to_bytes(row.topic)


def read_effect(row_key: int, record: bytes) -> Entry:
    """The journal entry of a selected row, verified. `Damaged` if the row is not what was written."""
    what = f"journal entry {row_key & MAX_SEQ} of the thread with number {row_key >> SEQ_BITS}"
    try:
        packed = record[: -_CHECKSUM.size]
        if _CHECKSUM.pack(crc32(packed, crc32(_KEY.pack(row_key)))) != record[-_CHECKSUM.size :]:
            raise Damaged(f"{what} does not match its checksum")
        entry = _unpacked(packed, _decode_effect)
    except (TypeError, *UNREADABLE) as error:
        raise Damaged(f"{what} cannot be read") from error
    if entry.number != row_key & MAX_SEQ:
        # A caller that reads on after this number might never reach the end.
        raise Damaged(f"{what} is recorded with the number {entry.number}")
    return entry


def _wake(row: RunRow) -> tuple[bytes, int, int]:
    """The index columns for the wake time: clock, time on that clock, time on the wall clock."""
    return (to_bytes(row.clock), row.wake_at, row.wake_wall) if is_timed(row) else (b"", 0, 0)


def _run_checksum(
    thread_no: int,
    namespace: bytes,
    status: bytes,
    updated_at: int,
    wake_clock: bytes,
    wake_at: int,
    wake_wall: int,
    entries: int,
    record: bytes,
) -> int:
    bound = _BOUND.pack(
        thread_no, updated_at, wake_at, wake_wall, entries, len(namespace), len(status), len(wake_clock)
    )
    return crc32(record, crc32(bound + namespace + status + wake_clock))


def _too_large() -> InvalidArgument:
    return InvalidArgument("a number in a run or journal entry does not fit 64 bits; nothing was stored")


def _packed(row: msgspec.Struct) -> bytes:
    try:
        return _PLAIN + _encode(row)
    except UnicodeEncodeError:
        # Lone surrogates, for example from a file name in an error message. They are rare; other records skip this.
        return _ESCAPED + _encode(escaped(row))
    except OverflowError as error:
        raise _too_large() from error


def _unpacked(packed: bytes, decode: Callable[[bytes], S]) -> S:
    row = decode(packed[1:])
    return unescaped(row) if packed[:1] == _ESCAPED else row
