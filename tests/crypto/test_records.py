"""Sealed records without a store: their bytes, and that each opens only as, and where, it was sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import Damaged
from holdfast.crypto import records
from holdfast.crypto.records import ThreadKey
from holdfast.crypto.seal import Seal, is_sealed
from holdfast.errors import NotEncrypted
from holdfast.stores.contract import NO_REFS, Append, Blob, CheckpointRow, Refs, Span, Summary
from holdfast.stores.contract_runs import Entry, Progress, RunRow
from tests.crypto.forging import changed

KEY = bytes(range(32))
SEAL = Seal(b"thread-1", KEY, b"default")
OTHERS = [
    Seal(b"thread-1", bytes(32), b"default"),
    Seal(b"thread-2", KEY, b"default"),
    Seal(b"thread-1", KEY, b"other"),
]
OWNER = ThreadKey(b"thread-1", "thread")
REFS = Refs((Span(0, 16, 0, 2, 1, 1), Span(3, 17, 5, 1, 2, 2)), (b"b" * 32,))

ROW = CheckpointRow(
    seq=2,
    id=b"i" * 16,
    parent=(0, 1),
    step=4,
    move=3,
    digest=b"d" * 32,
    label="label",
    meta=b"meta",
    refs=REFS,
    skeleton=b"skeleton",
)
ENTRY = Entry(
    branch=1,
    step=1,
    key="k#1",
    name="k",
    kind="model",
    status="done",
    arguments=b"a",
    fence=1,
    started_at=1,
    result=b"r",
)
RUN = RunRow(thread=1, status="running", fence=3, turn="turn", lease_until=5, progress=Progress(0.5, 1.0, "half", 6))
SUMMARY = Summary(step=1, status="running", agent="agent", size=2, updated_at=3)
CELLS = Append(16, 5, (b"one", b"two"), (NO_REFS, REFS))
LARGE = bytes(range(251)) * 40_000  # two pieces
BLOB = Blob(b"", (LARGE,))


def sealed_checkpoint(seal: Seal = SEAL) -> CheckpointRow:
    return records.seal_checkpoint(ROW, "token", OWNER, ((3, b"thread-3"),), seal)


def sealed_run(seal: Seal = SEAL) -> RunRow:
    return records.seal_run(RUN, OWNER, seal, None)


def sealed_entry(seal: Seal = SEAL) -> Entry:
    return records.ENTRY.seal(ENTRY, seal, topic="token")


def sealed_summary(seal: Seal = SEAL) -> Summary:
    return records.seal_summary(SUMMARY, OWNER, seal)


def sealed_pieces(seal: Seal = SEAL) -> tuple[bytes, ...]:
    return records._sealed_pieces(LARGE, seal)


def require_damaged(read: Callable[[], object], what: object) -> None:
    try:
        read()
    except Damaged:
        return
    pytest.fail(f"{what} was believed")


# -- bytes -----------------------------------------------------------------------------------------------------------

# What format 1 writes. If one of these changes, so does the format.
GOLDEN = {
    "checkpoint": "e2f0a4d650c0729b",
    "cells": "8983c494663cf0d8",
    "run": "1f9c8a4a04f279f8",
    "entry": "43052c88b56887db",
    "thread": "d3c26c2690a53569",
}


def test_the_bytes_of_format_1() -> None:
    checkpoint, run, entry = sealed_checkpoint(), sealed_run(), sealed_entry()
    note = run.progress and run.progress.note
    written = {
        "checkpoint": checkpoint.meta + checkpoint.skeleton,
        "cells": b"".join(records.seal_cells(CELLS, SEAL).cells),
        "run": run.sealed + str(note).encode(),
        "entry": entry.sealed,
        "thread": str(sealed_summary().agent).encode(),
    }
    assert {kind: hashlib.sha256(data).hexdigest()[:16] for kind, data in written.items()} == GOLDEN


# Seals and lines leave out default values. So a default never changes, and a new field comes last.
FIELDS: dict[type[msgspec.Struct], str] = {
    RunRow: (
        "thread status fence attempt=0 tried_at=0 reason=None owner=None clock='' lease_until=0 "
        "lease_first=0 held=0 wake_at=0 wake_wall=0 question=0 turn=None began=0 closed=0 closed_at=0 "
        "doubts=() boundary=None trace=None parent=None progress=None claims=() resumed=0 crashed=0 "
        "handler=None version=None agent=None branch=1 start=b'' result=None created_at=0 updated_at=0 "
        "replayed=(0,0) nonce=b'' sealed=b'' "
    ),
    Entry: (
        "branch step key name kind status arguments fence started_at ended_at=None call=None result=None "
        "error=None heard=True matches=0 matches_thread=0 valid_after=0 by=None topic=None deadline=None "
        "owner=None usage=None spent=None held=0 replayed=(0,0) settled=None redacted=0 sealed=b'' "
        "number=0 type=None "
    ),
}


def test_fields_and_defaults_of_format_1_stay() -> None:
    for row, frozen in FIELDS.items():
        fields = [
            field.name if field.required else f"{field.name}={field.default!r}".replace(" ", "")
            for field in msgspec.structs.fields(row)
        ]
        assert fields[: len(frozen.split())] == frozen.split()


def test_equal_records_are_sealed_to_equal_bytes() -> None:
    again = Seal(SEAL.id, KEY, b"default")
    assert sealed_checkpoint() == sealed_checkpoint(again)
    assert sealed_run() == sealed_run(again)
    assert sealed_entry() == sealed_entry(again)
    assert sealed_summary() == sealed_summary(again)
    assert sealed_pieces() == sealed_pieces(again)


def test_equal_contents_in_two_places_differ() -> None:
    [one, other] = records.seal_cells(Append(16, 5, (b"same", b"same")), SEAL).cells
    assert one[10:26] != other[10:26]
    assert one[26:] != other[26:]
    assert records.ENTRY.seal(replace(ENTRY, number=8), SEAL, topic="token").sealed != sealed_entry().sealed


# -- what is returned ------------------------------------------------------------------------------------------------


def test_records_are_returned_as_they_were_sealed() -> None:
    assert records.open_checkpoint(sealed_checkpoint(), SEAL) == (ROW, "thread", ((3, b"thread-3"),))
    assert records.open_run(sealed_run(), SEAL) == (RUN, OWNER)
    assert records.ENTRY.open(sealed_entry(), SEAL) == (ENTRY,)
    assert records.open_summary(sealed_summary(), "thread", SEAL) == (SUMMARY, OWNER)
    assert b"".join(records.open_blob(sealed_pieces(), SEAL)) == LARGE


def test_texts_that_utf_8_cannot_express_are_returned() -> None:
    strange = "half a pair \ud800"
    owner = ThreadKey(b"thread-1", strange)
    run = replace(RUN, turn=strange, progress=Progress(0.5, 1.0, strange, 6))
    assert records.open_run(records.seal_run(run, owner, SEAL, None), SEAL) == (run, owner)
    entry = replace(ENTRY, error=strange, topic=strange)
    assert records.ENTRY.open(records.ENTRY.seal(entry, SEAL, topic="token"), SEAL) == (entry,)
    row = replace(ROW, label=strange)
    opened = records.open_checkpoint(records.seal_checkpoint(row, "token", owner, (), SEAL), SEAL)
    assert opened == (row, strange, ())
    summary = replace(SUMMARY, agent=strange)
    assert records.open_summary(records.seal_summary(summary, owner, SEAL), strange, SEAL) == (summary, owner)


def test_no_content_is_in_a_stored_record() -> None:
    stored = [sealed_checkpoint(), sealed_run(), sealed_entry(), sealed_summary()]
    written = msgspec.msgpack.encode([msgspec.structs.astuple(row) for row in stored])
    for secret in (b"label", b"meta", b"skeleton", b"turn", b"half", b"k#1", b"agent"):
        assert secret not in written


# -- what is not believed --------------------------------------------------------------------------------------------


def test_another_key_id_or_namespace_opens_nothing() -> None:
    for other in OTHERS:
        require_damaged(lambda: records.open_checkpoint(sealed_checkpoint(), other), other)  # noqa: B023
        require_damaged(lambda: records.open_run(sealed_run(), other), other)  # noqa: B023
        require_damaged(lambda: records.ENTRY.open(sealed_entry(), other), other)  # noqa: B023
        require_damaged(lambda: records.open_summary(sealed_summary(), "thread", other), other)  # noqa: B023
        require_damaged(lambda: records.open_blob(sealed_pieces(), other), other)  # noqa: B023
        require_damaged(lambda: records.seal_blob(blob_of(sealed_pieces()), other), other)  # noqa: B023


def blob_of(pieces: tuple[bytes, ...]) -> Blob:
    return Blob(hashlib.sha256(b"".join(pieces)).digest(), pieces)


def test_every_field_of_a_checkpoint_is_authenticated() -> None:
    stored = sealed_checkpoint()
    values: dict[str, list[Any]] = {
        "parent": [None, (0, 2), (1, 1), (1 << 70, 1)],
        "label": [None, "other"],
        "refs": [NO_REFS, Refs(REFS.spans[:1], REFS.blobs), Refs(REFS.spans, ()), Refs(REFS.spans[::-1], REFS.blobs)],
    }
    for name in ("seq", "id", "parent", "step", "move", "digest", "label", "meta", "refs", "skeleton"):
        for value in values.get(name) or [changed(getattr(stored, name))]:
            forged = replace(stored, **{name: value})
            require_damaged(lambda: records.open_checkpoint(forged, SEAL), (name, value))  # noqa: B023


def test_every_field_of_a_run_and_of_an_entry_is_authenticated() -> None:
    sealed: list[tuple[Any, records.SealedFields[Any], set[str]]] = [
        (sealed_run(), records.RUN, {"thread", "lease_until", "progress"}),
        (sealed_entry(), records.ENTRY, {"number"}),
    ]
    for row, kind, unbound in sealed:
        for field in msgspec.structs.fields(type(row)):
            value = getattr(row, field.name)
            forged = replace(row, **{field.name: "forged" if value is None else other(value)})
            if field.name not in unbound:
                require_damaged(lambda: kind.open(forged, SEAL), field.name)  # noqa: B023


def other(value: Any) -> Any:
    return (*value, 1) if isinstance(value, tuple) else changed(value)


def test_the_progress_of_a_run_is_authenticated_with_its_thread() -> None:
    stored = sealed_run()
    elsewhere = records.seal_run(RUN, ThreadKey(b"thread-2", "other"), SEAL, None)
    assert stored.progress is not None
    for progress in (
        replace(stored.progress, done=0.6),
        replace(stored.progress, total=None),
        replace(stored.progress, at=7),
        elsewhere.progress,
    ):
        forged = replace(stored, progress=progress)
        require_damaged(lambda: records.open_run(forged, SEAL), progress)  # noqa: B023
    with pytest.raises(NotEncrypted):
        records.open_run(replace(stored, progress=replace(stored.progress, note="forged")), SEAL)


def test_a_lease_is_extended_and_not_shortened() -> None:
    stored = sealed_run()
    assert records.open_run(replace(stored, lease_until=6), SEAL)[0].lease_until == 6
    require_damaged(lambda: records.open_run(replace(stored, lease_until=4), SEAL), "a shorter lease")
    idle = records.seal_run(replace(RUN, status="idle"), OWNER, SEAL, None)
    require_damaged(lambda: records.open_run(replace(idle, lease_until=6), SEAL), "a lease of an idle run")


def test_a_thread_is_bound_to_its_name() -> None:
    require_damaged(lambda: records.open_summary(sealed_summary(), "other", SEAL), "another name")


def test_a_cell_is_bound_to_its_log_position_and_references() -> None:
    cell = records.seal_cells(CELLS, SEAL).cells[1]
    assert SEAL.open(cell, records.cell_place(16, 6, REFS)) == b"two"
    for place in ((17, 6, REFS), (16, 5, REFS), (16, 7, REFS), (16, 6, NO_REFS), (16, 6, Refs(REFS.spans, ()))):
        require_damaged(lambda: SEAL.open(cell, records.cell_place(*place)), place)  # noqa: B023


def test_the_pieces_of_a_blob_are_all_there_in_their_order() -> None:
    one, two = sealed_pieces()
    for pieces in ((two, one), (one,), (two,), (one, one), (one, two, two), (one, two[:-1])):
        require_damaged(lambda: records.open_blob(pieces, SEAL), len(pieces))  # noqa: B023


def test_a_record_of_one_kind_is_not_taken_for_another() -> None:
    checkpoint, run, entry = sealed_checkpoint(), sealed_run(), sealed_entry()
    [cell, _] = records.seal_cells(CELLS, SEAL).cells
    contents = [
        checkpoint.meta,
        checkpoint.skeleton,
        run.sealed,
        entry.sealed,
        cell,
        *(piece[4:] for piece in sealed_pieces()),
    ]
    assert all(map(is_sealed, contents))
    for content in contents:
        text = records.to_text(content)
        opens: list[Callable[[], object]] = [
            lambda: records.open_checkpoint(replace(checkpoint, meta=content), SEAL),  # noqa: B023
            lambda: records.open_checkpoint(replace(checkpoint, skeleton=content), SEAL),  # noqa: B023
            lambda: records.open_run(replace(run, sealed=content), SEAL),  # noqa: B023
            lambda: records.ENTRY.open(replace(entry, sealed=content), SEAL),  # noqa: B023
            lambda: records.open_summary(replace(SUMMARY, agent=text), "thread", SEAL),  # noqa: B023
            lambda: records.open_blob([len(content).to_bytes(4) + content], SEAL),  # noqa: B023
        ]
        believed = 0
        for read in opens:
            try:
                read()
                believed += 1
            except Damaged:
                pass
        assert believed <= 1, "a record opens only in its own place"
