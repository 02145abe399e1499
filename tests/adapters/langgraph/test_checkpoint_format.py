"""Notes: what a row says of its LangGraph checkpoint comes back exactly, versions and ids of any make included."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import ANY
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from holdfast import Damaged, InvalidArgument
from holdfast.adapters.langgraph.checkpoint_format import (
    NOTE,
    Note,
    metadata_of,
    new_note,
    note_of,
    packed,
    plain_metadata,
    stored_metadata,
    unpacked,
    without_parent,
)
from holdfast.codec import msgpack
from holdfast.redaction import Redaction
from holdfast.stores.contract import CheckpointRow
from holdfast.threads import metadata as metas
from holdfast.threads.metadata import checked_details
from tests.cases import for_each
from tests.codec.strategies import identical
from tests.selection import tries


def stored(note: Note, metadata: dict[str, Any]) -> dict[str, Any]:
    return stored_metadata(replace(note, metadata=plain_metadata(metadata, Redaction(None))))


def row_with(metadata: dict[str, Any]) -> CheckpointRow:
    meta = checked_details(Redaction(None), metadata=metadata).meta
    return cast(CheckpointRow, _Row(7, metas.encode(meta)))


class _Row:
    """As much of a row as a note is read from."""

    def __init__(self, seq: int, meta: bytes) -> None:
        self.seq = seq
        self.meta = meta


# -- versions --------------------------------------------------------------------------------------------------------

USUAL = f"{3:032}.{0.123456:016}"
ODD: list[Any] = [
    0,
    1,
    -1,
    1.0,
    0.5,
    -0.0,
    2**62,
    "",
    "3",
    "abc",
    "é",
    f"{3:032}",
    f"{3:032}.",
    f"{3:032}.a.b",
    f"{3:032}.\n",
    f"{3:032}.x\n",
    f"{3:033}.x",
    f"{3:031}.x",
    f" {3:031}.x",
    f"+{3:031}.x",
    f"{2**63 - 1:032}.x",
    f"{2**63:032}.x",
    f"{10**31:032}.x",
    "\u0663" * 32 + ".x",
    "\u0660" * 31 + "\u0663.x",
    "0" * 31 + "\uff13.x",
    "1_000" + "0" * 27 + ".x",
    USUAL,
]

versions = st.sampled_from(ODD) | st.builds(
    "{:032}.{}".format, st.integers(0, 2**65), st.text(max_size=6) | st.floats(0, 1)
)
names = st.sampled_from(["messages", "__start__", "branch:to:a", "", "$x", "é"])


def checkpoint(channels: dict[str, Any], seen: dict[str, dict[str, Any]], **more: Any) -> Any:
    return {
        "v": 4,
        "ts": "2026-11-15T16:00:00+00:00",
        "id": "1f0",
        "channel_values": {},
        "channel_versions": channels,
        "versions_seen": seen,
        "updated_channels": None,
        "pending_sends": [],
        **more,
    }


def came_back(given: Any) -> Any:
    """As it is read from what was stored."""
    stored = msgpack.decode(msgpack.encode(packed(given)))
    return unpacked(stored, given["id"], given["channel_values"])


def ordered(given: Any) -> Any:
    return {key: given[key] for key in sorted(given)}


@given(st.dictionaries(names, versions), st.dictionaries(names, st.dictionaries(names, versions)))
@settings(max_examples=tries(300, 100), deadline=None)
def test_versions_come_back_as_they_were(channels: dict[str, Any], seen: dict[str, dict[str, Any]]) -> None:
    given = checkpoint(channels, seen)
    found = came_back(given)
    assert identical(ordered(found), ordered(given))


@for_each("version", ODD)
def test_a_version_that_a_node_saw_last_is_not_written_twice(version: Any) -> None:
    given = checkpoint({"a": version}, {"node": {"a": version}, "other": {"a": USUAL, "gone": version}})
    stored = packed(given)
    assert stored["seen"]["node"] == {"a": None}
    assert identical(ordered(came_back(given)), ordered(given))


def test_versions_that_are_equal_and_not_the_same_are_kept_apart() -> None:
    given = checkpoint({"a": 1, "b": 1.0, "c": 0.0}, {"node": {"a": 1.0, "b": 1, "c": 0}})
    assert identical(ordered(came_back(given)), ordered(given))


def test_the_usual_version_takes_few_bytes() -> None:
    assert len(msgpack.encode(packed(checkpoint({"a": USUAL}, {"n": {"a": USUAL}})))) < 110


# -- the rest of a checkpoint ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"updated_channels": ["b", "a"]},
        {"updated_channels": []},
        {"v": 1},
        {"pending_sends": ["x", {"a": b"b"}]},
        {"channel_blobs": {"k": [1, None]}, "other": UUID(int=5)},
        {"pending_sends": [], "more": None},
    ],
    ids=repr,
)
def test_all_that_a_checkpoint_says_comes_back(more: dict[str, Any]) -> None:
    given = checkpoint({"a": USUAL}, {}, **more)
    assert ordered(came_back(given)) == ordered(given)


@pytest.mark.parametrize("missing", ["updated_channels", "pending_sends", "v", "ts"])
def test_what_a_checkpoint_does_not_say_does_not_come_back(missing: str) -> None:
    given = checkpoint({"a": USUAL}, {})
    del given[missing]
    assert ordered(came_back(given)) == ordered(given)


def test_what_is_given_for_all_checkpoints_is_new_for_each() -> None:
    stored = packed(checkpoint({}, {}))
    first: Any = unpacked(stored, "1", {})
    first["pending_sends"].append("mine")
    second: Any = unpacked(stored, "2", {})
    assert second["pending_sends"] == []


@for_each(
    "stored",
    [
        None,
        [],
        {},
        {"versions": {}},
        {"versions": {}, "seen": {"n": {"a": None}}},
        {"versions": {"a": [1]}, "seen": {}},
        {"versions": [], "seen": {}},
        {"versions": {}, "seen": {"n": 1}},
        {"versions": {}, "seen": {}, "others": 1},
    ],
)
def test_what_cannot_be_read_is_damage(stored: Any) -> None:
    with pytest.raises(Damaged):
        unpacked(stored, "1", {})


# -- notes -----------------------------------------------------------------------------------------------------------

IDS = [
    None,
    "1f0d5a10-1111-6abc-8000-0123456789ab",
    "1F0D5A10-1111-6ABC-8000-0123456789AB",
    "{1f0d5a10-1111-6abc-8000-0123456789ab}",
    "1f0d5a1011116abc80000123456789ab",
    "urn:uuid:1f0d5a10-1111-6abc-8000-0123456789ab",
    "checkpoint 1",
    "é" * 40,
]
ids = st.sampled_from(IDS)


@given(ids, ids, st.lists(st.text(max_size=4)))
@settings(max_examples=tries(400, 130), deadline=None)
def test_ids_come_back_as_they_were(id: str | None, parent: str | None, absent: list[str]) -> None:
    row = row_with(stored(new_note(id, parent, ["node"], absent), {"step": 3}))
    note = note_of(row)
    assert note is not None
    assert (note.seq, note.id, note.parent, note.absent) == (7, id, parent, tuple(absent))
    assert note.row is row
    assert metadata_of(note) == {"step": 3}


@for_each("before", IDS)
def test_a_checkpoint_without_a_parent_has_the_one_before_it(before: str | None) -> None:
    note = note_of(row_with(stored(without_parent(new_note("1", before)), {})))
    assert note is not None
    assert (note.id, note.parent, note.before) == ("1", None, before)
    assert note_of(row_with(stored(without_parent(note), {}))) == replace(note, row=ANY)


def test_a_row_of_somebody_else_has_no_note() -> None:
    assert note_of(row_with({})) is None
    assert note_of(row_with({"step": 1})) is None


@pytest.mark.parametrize("said", [1, {}, [], ["a"], ["a", 1], [{}, None]], ids=repr)
def test_a_note_that_cannot_be_read_is_damage(said: Any) -> None:
    with pytest.raises(Damaged):
        note_of(row_with({NOTE: said}))


def test_metadata_has_any_keys_but_our_own() -> None:
    odd: Any = {"source": "loop", "": 1, "a.b": [1, [2]], "$x": {"deep": None}, "writes": {"n": b"x"}}
    note = note_of(row_with(stored(new_note("1"), odd)))
    assert note is not None
    assert metadata_of(note) == odd
    with pytest.raises(InvalidArgument, match=r"\$langgraph"):
        plain_metadata({NOTE: 1}, Redaction(None))
