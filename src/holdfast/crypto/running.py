"""Runs and journal entries ⇄ what of them an encrypted store is given.

What a store changes by itself is not authenticated: the number of a thread, and how far a lease was moved.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.crypto.packing import clear, clear_fields, encode, hidden, packed, shown, unpacked
from holdfast.crypto.records import Owner
from holdfast.crypto.sealing import Seal
from holdfast.errors import Damaged
from holdfast.records import Usage
from holdfast.stores.running import EffectRow, Progress, RunRow

_ENTRY_FIELDS: Final = clear_fields(EffectRow, "number", "sealed")
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
    mark: str | None
    usage: Usage | None
    spent: Usage | None = None


_decode_entry = msgspec.msgpack.Decoder(_EntrySaid).decode


class OpenedEntry(NamedTuple):
    """A journal entry, and the number that it was to have when it was sealed."""

    row: EffectRow
    due: int


def seal_entry(row: EffectRow, due: int, token: str | None, seal: Seal) -> EffectRow:
    said = _EntrySaid(
        due, row.key, row.name, row.arguments, row.call, row.result, row.error, row.by, row.mark, row.usage, row.spent
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
        mark=token,
        usage=None,
        spent=None,
    )
    return replace(bare, sealed=seal.seal(packed(said), _entry_place(bare)))


def open_entry(row: EffectRow, seal: Seal) -> OpenedEntry:
    said = unpacked(seal.open(row.sealed, _entry_place(row)), _decode_entry)
    fields = msgspec.structs.asdict(said)
    due = fields.pop("due")
    return OpenedEntry(replace(row, **fields, sealed=b""), due)


def _entry_place(row: EffectRow) -> bytes:
    """All that is in clear. The number is not known before the store has given it out: `numbering.py`."""
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


def seal_run(row: RunRow, owner: Owner, seal: Seal) -> RunRow:
    """Beside the number of the thread, which its key stands for, a store moves the end of a lease, but not back."""
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


def open_run(row: RunRow, seal: Seal) -> tuple[RunRow, Owner]:
    said = unpacked(seal.open(row.sealed, _run_place(row)), _decode_run)
    # It is moved while the run is held, and only forwards.
    if row.lease_until < said.lease_until or (row.status != "running" and row.lease_until != said.lease_until):
        raise Damaged(f"the lease of thread number {row.thread} ends earlier than its run was given it for")
    owner = Owner(said.owner, said.thread)
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


def seal_progress(progress: Progress, owner: Owner, seal: Seal) -> Progress:
    """By itself, as it is stored with renewals: what it says of numbers and times goes with the note."""
    said = packed(_NoteSaid(progress.note))
    return replace(progress, note=shown(seal.seal(said, _note_place(progress, owner))))


def _open_progress(progress: Progress, owner: Owner, seal: Seal) -> Progress:
    said = unpacked(hidden(progress.note or "", seal, _note_place(progress, owner)), _decode_note)
    return replace(progress, note=said.note)


def _note_place(progress: Progress, owner: Owner) -> bytes:
    total = None if progress.total is None else float(progress.total)
    return b"note\0" + encode((owner.key, float(progress.done), total, progress.at))
