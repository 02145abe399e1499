"""The simulated disk keeps what was synced, may lose all the rest, and sees that a program forgot to sync."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.crash.power_disk import (
    SECTOR,
    Disk,
    Event,
    FolderMade,
    Image,
    Model,
    Opened,
    Removed,
    Renamed,
    Resized,
    Synced,
    Written,
    read_image,
    write_image,
)

REPLACED: list[Event] = [Opened("new"), Written("new", b"new"), Synced("new"), Renamed("new", "file"), Synced("")]


def after(events: list[Event], model: Model, image: Image | None = None, draw: int = 0) -> Image:
    disk = Disk(image)
    for event in events:
        disk.do(event)
    return disk.after_cut(model, Random(draw))


def outcomes(events: list[Event], image: Image | None = None) -> list[Image]:
    """What chance makes of it."""
    found: list[Image] = []
    for draw in range(300):
        made = after(events, "torn", image, draw)
        found += [made] if made not in found else []
    return found


@pytest.mark.parametrize("model", ["dropped", "hollow", "zeros", "nameless", "torn"])
def test_what_was_synced_is_there(model: Model) -> None:
    events: list[Event] = [
        FolderMade("a"),
        Synced(""),
        Opened("a/f"),
        Written("a/f", b"xyz"),
        Synced("a/f"),
        Synced("a"),
    ]
    assert after(events, model) == {"a": None, "a/f": b"xyz"}


def test_bytes_that_were_not_synced_are_gone_or_zeros() -> None:
    events: list[Event] = [Written("f", b"more")]
    assert after(events, "dropped", {"f": b"old"}) == {"f": b"old"}
    assert after(events, "zeros", {"f": b"old"}) == {"f": b"old\0\0\0\0"}
    assert after(events, "kept", {"f": b"old"}) == {"f": b"oldmore"}


def test_a_name_needs_its_folder_synced_and_not_its_file() -> None:
    events: list[Event] = [Opened("f"), Written("f", b"x"), Synced("f")]
    assert after(events, "dropped") == {}
    assert after(events, "hollow") == {"f": b"x"}
    assert after([*events, Synced("")], "dropped") == {"f": b"x"}


def test_a_folder_that_is_lost_takes_all_in_it() -> None:
    assert after([FolderMade("a"), Opened("a/f"), Synced("a/f"), Synced("a")], "nameless") == {}


def test_a_removal_that_was_not_synced_is_undone() -> None:
    assert after([Removed("f")], "dropped", {"f": b"x"}) == {"f": b"x"}
    assert after([Removed("f"), Synced("")], "dropped", {"f": b"x"}) == {}


def test_a_file_is_replaced_whole_or_not_at_all() -> None:
    for length in range(len(REPLACED) + 1):
        for draw in range(30):
            left = after(REPLACED[:length], "torn", {"file": b"old"}, draw)
            assert left["file"] == b"new" or (left["file"] == b"old" and length < len(REPLACED))
    assert {left["file"] for left in outcomes(REPLACED[:4], {"file": b"old"})} == {b"old", b"new"}


def test_a_file_that_is_renamed_before_it_is_synced_may_be_empty() -> None:
    forgotten = [event for event in REPLACED if event != Synced("new")]
    assert after(forgotten, "hollow", {"file": b"old"}) == {"file": b""}


def test_a_rename_between_folders_is_safe_when_both_are_synced() -> None:
    image: Image = {"a": None, "a/f": b"x", "b": None}
    moved, back = {"a": None, "b": None, "b/f": b"x"}, image
    assert after([Renamed("a/f", "b/f"), Synced("b")], "dropped", image) == back
    assert after([Renamed("a/f", "b/f"), Synced("b"), Synced("a")], "dropped", image) == moved
    assert all(left in (moved, back) for left in outcomes([Renamed("a/f", "b/f"), Synced("b")], image))


def test_each_sector_is_there_or_not() -> None:
    data = b"a" * SECTOR + b"b" * SECTOR
    found = {left["f"] for left in outcomes([Written("f", data, 0)], {"f": b"-" * 2 * SECTOR})}
    halves = {(part[:SECTOR][:1], part[SECTOR:][:1]) for part in found if isinstance(part, bytes)}
    assert halves == {(b"a", b"b"), (b"a", b"-"), (b"-", b"b"), (b"-", b"-")}


def test_a_sector_is_as_it_was_after_any_write_to_it() -> None:
    events: list[Event] = [Written("f", b"1"), Written("f", b"2")]
    found = {left["f"] for left in outcomes(events, {"f": b"0"})}
    assert found == {b"0", b"01", b"012", b"0\0", b"0\0\0", b"01\0"}


def test_a_length_that_was_not_synced_may_be_any_that_there_was() -> None:
    found = {left["f"] for left in outcomes([Resized("f", 1)], {"f": b"abc"})}
    assert found == {b"abc", b"a"}
    data = b"x" * 3 * SECTOR
    assert {left["f"] for left in outcomes([Resized("f", 0)], {"f": data})} == {data, b""}
    assert after([Resized("f", 1), Synced("f")], "dropped", {"f": b"abc"}) == {"f": b"a"}


def test_an_image_is_what_a_folder_holds(tmp_path: Path) -> None:
    image: Image = {"a": None, "a/b": None, "a/b/f": b"x\0", "g": b""}
    write_image(tmp_path, image)
    assert read_image(tmp_path) == image
