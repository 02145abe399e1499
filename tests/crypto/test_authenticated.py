"""The bytes that are authenticated with each sealed record: pinned, because a change makes every store unreadable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.crypto import records, run_records
from holdfast.crypto.records import ThreadKey
from holdfast.stores.contract import CheckpointRow, Refs, Span
from holdfast.stores.running import Deadline, Entry, Owner, PastClaim, Progress, RunRow
from holdfast.types import Usage

ENTRY = Entry(
    branch=1,
    step=2,
    key="k",
    name="pay",
    kind="irreversible",
    status="done",
    arguments=b"digest",
    fence=3,
    begun_at=4,
    ended_at=5,
    call=b"call",
    result=b"result",
    error="error",
    heard=False,
    matches=6,
    matches_thread=7,
    counted_after=8,
    by="ann",
    topic="wait/ok",
    deadline=Deadline("boot", 9, 10),
    usage=Usage(input=11),
    spent=Usage(output=12),
    held=13,
    replayed=(14, 15),
    settled="person",
    redacted=3,
    sealed=b"sealed",
    number=16,
)
ENTRY_CLEAR = [
    ["branch", 1],
    ["step", 2],
    ["key", b"k"],
    ["name", b"pay"],
    ["kind", b"irreversible"],
    ["status", b"done"],
    ["arguments", b"digest"],
    ["fence", 3],
    ["begun_at", 4],
    ["ended_at", 5],
    ["call", b"call"],
    ["result", b"result"],
    ["error", b"error"],
    ["heard", False],
    ["matches", 6],
    ["of", 7],
    ["since", 8],
    ["by", b"ann"],
    ["mark", b"wait/ok"],
    ["deadline", [b"boot", 9, 10]],
    ["usage", [11, 0, 0, 0, 0.0, b"USD"]],
    ["spent", [0, 12, 0, 0, 0.0, b"USD"]],
    ["held", 13],
    ["known", [14, 15]],
    ["settled", b"person"],
    ["redacted", 3],
]

RUN = RunRow(
    thread=1,
    status="running",
    fence=2,
    attempt=3,
    tried_at=4,
    reason="reason",
    owner=Owner("host", "boot", 5, 6, 7),
    clock="boot",
    lease_until=8,
    lease_first=9,
    held=10,
    wake_at=11,
    wake_wall=12,
    presumed_until=13,
    question=14,
    turn="turn",
    began=15,
    closed=16,
    closed_at=17,
    trace="trace",
    parent="parent",
    progress=Progress(0.5, 1.0, "note", 18),
    claims=(PastClaim(19, 20, 21, 22, "idle"),),
    resumed=23,
    crashed=24,
    handler="handler",
    version="version",
    agent="agent",
    branch=25,
    start=b"start",
    result=b"result",
    created_at=26,
    updated_at=27,
    replayed=(28, 29),
    nonce=b"nonce",
    sealed=b"sealed",
)
RUN_CLEAR = [
    ["status", b"running"],
    ["fence", 2],
    ["attempt", 3],
    ["tried_at", 4],
    ["reason", b"reason"],
    ["owner", [b"host", b"boot", 5, 6, 7]],
    ["clock", b"boot"],
    ["lease_first", 9],
    ["held", 10],
    ["wake_at", 11],
    ["wake_wall", 12],
    ["presumed_until", 13],
    ["question", 14],
    ["turn", b"turn"],
    ["began", 15],
    ["closed", 16],
    ["closed_at", 17],
    ["trace", b"trace"],
    ["parent", b"parent"],
    ["claims", [[19, 20, 21, 22, "idle"]]],
    ["resumed", 23],
    ["crashed", 24],
    ["handler", b"handler"],
    ["version", b"version"],
    ["agent", b"agent"],
    ["branch", 25],
    ["start", b"start"],
    ["result", b"result"],
    ["created_at", 26],
    ["updated_at", 27],
    ["known", [28, 29]],
    ["nonce", b"nonce"],
]

CHECKPOINT = CheckpointRow(
    seq=1,
    id=b"id",
    parent=(2, 3),
    step=4,
    move=5,
    digest=b"digest",
    label="token",
    meta=b"meta",
    refs=Refs((Span(6, 7, 8, 9, 10, 11),), (b"blob",)),
    skeleton=b"skeleton",
)
OWNER = ThreadKey(b"key", "name")


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize("row", [ENTRY, RUN])
def test_every_field_of_the_pinned_records_is_set(row: Entry | RunRow) -> None:
    for field in msgspec.structs.fields(row):
        assert getattr(row, field.name) != field.default, field.name


def test_the_clear_fields_of_an_entry() -> None:
    assert run_records._entry_place(ENTRY) == b"entry\0" + packed(ENTRY_CLEAR)


def test_the_clear_fields_of_a_run() -> None:
    assert run_records._run_place(RUN) == b"run\0" + packed(RUN_CLEAR)


def test_the_clear_fields_of_the_progress_of_a_run() -> None:
    progress = Progress(1, None, "note", 2)
    assert run_records._note_place(progress, OWNER) == b"note\0" + packed((b"key", 1.0, None, 2))


def test_the_clear_fields_of_a_checkpoint() -> None:
    meta = packed((b"id", 1, (2, 3), 4, 5, b"digest", "token"))
    assert records._checkpoint_place(CHECKPOINT) == b"meta\0" + meta
    refs = packed((((6, 7, 8, 9, 10, 11),), (b"blob",)))
    assert records._skeleton_place(CHECKPOINT) == b"skeleton\0id" + refs


def test_the_place_of_a_cell_a_blob_and_a_thread() -> None:
    assert records.cell_place(1, 2) == b"cell\0" + (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    refs = packed((((6, 7, 8, 9, 10, 11),), (b"blob",)))
    assert records.cell_place(1, 2, CHECKPOINT.refs) == records.cell_place(1, 2) + refs
    assert records.blob_place(3, 4) == b"value\x003/4"
    assert records._thread_place("näme") == b"thread\0" + "näme".encode()


def test_fields_with_their_default_are_left_out() -> None:
    bare = replace(ENTRY, **{each.name: each.default for each in msgspec.structs.fields(Entry) if not each.required})
    assert run_records._entry_place(bare) == b"entry\0" + packed(ENTRY_CLEAR[:9])
