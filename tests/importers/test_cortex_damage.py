"""Damaged files of cortex whose states hold what looks like checkpoints: none is made of what is in a state."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidArgument
from holdfast.importers.cortex_file import open_pieces
from tests.importers.cortex_source import checkpoint, line, write
from tests.importers.test_cortex import Writer, bring, steps, write_behind_each_other, write_pretty, write_table
from tests.selection import tries

WHOLE: list[Writer] = [write, write_pretty, write_table, write_behind_each_other]
NESTED = [checkpoint("t", step, id=f"nested-{step}") for step in (97, 98)]


def with_nested(spoilt: object = "SPOIL") -> list[dict[str, Any]]:
    """Four, of which the second holds two others in its state, and something that is spoilt behind them."""
    said = line("t", 4)
    said[1]["state"] = {"found": NESTED, "then": spoilt, "more": {"also": NESTED}}
    return said


SPOILERS: dict[str, Callable[[str], str]] = {
    "a word that is none": lambda text: text.replace('"SPOIL"', "nul"),
    "a quote that is gone": lambda text: text.replace('"SPOIL"', '"SPOIL'),
    "a brace too many": lambda text: text.replace('"SPOIL"', "{"),
    "a brace too few": lambda text: text.replace('"SPOIL"', "}"),
    "a number that is none": lambda text: text.replace('"SPOIL"', "NaN"),
    "two of one name": lambda text: text.replace('"then"', '"found"'),
    "nothing": lambda text: text.replace('"SPOIL"', ""),
}


@pytest.mark.parametrize("writer", WHOLE)
@pytest.mark.parametrize("spoiler", SPOILERS)
def test_what_is_in_a_state_is_no_checkpoint(hf: Holdfast, tmp_path: Path, writer: Writer, spoiler: str) -> None:
    path = writer(tmp_path / "a", with_nested())
    text = path.read_text()
    path.write_text(SPOILERS[spoiler](text))
    assert path.read_text() != text
    report = bring(hf, path)
    assert steps(hf, "t") == [1, 3, 4]
    assert not report.ok


@pytest.mark.parametrize("writer", WHOLE)
def test_wherever_it_is_damaged_what_is_in_a_state_is_no_checkpoint(tmp_path: Path, writer: Writer) -> None:
    data = writer(tmp_path / "a", with_nested()).read_bytes()
    choose = random.Random(9)
    for _ in range(tries(300, 60)):
        place, hole = choose.randrange(1, len(data)), choose.randrange(100)
        for damaged in (
            data[:place] + bytes([data[place] ^ choose.choice([0x15, 0x20, 0x01])]) + data[place + 1 :],
            data[:place] + bytes([choose.choice(b'{}[]",:')]) + data[place:],
            data[:place] + data[place + hole :],
            data[:place],
        ):
            (tmp_path / "a").write_bytes(damaged)
            with closing(open_pieces(str(tmp_path / "a"), len(data) + 1)) as pieces:
                found = [piece.said for piece in pieces.all()]
            assert not any(str(said.get("metadata")).count("nested") for said in found if isinstance(said, dict))


def test_what_cannot_be_told_apart_is_said(hf: Holdfast, tmp_path: Path) -> None:
    """Cut off behind a list in a state: what is in it is no checkpoint, though nothing follows."""
    path = write(tmp_path / "a", with_nested())
    path.write_text(path.read_text().partition(', "then"')[0])
    report = bring(hf, path)
    assert steps(hf, "t") == [1]
    assert [finding.what for finding in report.skipped] == [
        "item 2: it is cut off in the middle",
        "behind item 2: what looks like checkpoints cannot be told from what is in a state, and was left out",
    ]


def test_a_file_that_is_damaged_and_cut_off_within_the_same_state(hf: Holdfast, tmp_path: Path) -> None:
    path = write(tmp_path / "a", with_nested())
    text = SPOILERS["a brace too many"](path.read_text())
    path.write_text(text[: text.rindex('"nested-98"')])
    report = bring(hf, path)
    assert steps(hf, "t") == [1]
    assert [finding.item for finding in report.skipped] == ["item 2", "behind item 2"]


def test_two_places_may_be_damaged(hf: Holdfast, tmp_path: Path) -> None:
    said = line("t", 6)
    said[1]["state"], said[3]["state"] = {"x": "SPOIL"}, {"y": NESTED, "x": "SPOIL"}
    path = write(tmp_path / "a", said)
    path.write_text(path.read_text().replace('"SPOIL"', "nul"))
    report = bring(hf, path)
    assert [finding.item for finding in report.skipped] == ["item 2", "item 4"]
    assert steps(hf, "t") == [1, 3, 5, 6]


def test_the_end_of_a_list_is_the_end_of_the_file(hf: Holdfast, tmp_path: Path) -> None:
    path = write(tmp_path / "a", line("t", 3))
    path.write_text(path.read_text().replace('}, {"metadata"', '}] {"metadata"', 1))
    report = bring(hf, path)
    assert steps(hf, "t") == [1, 2, 3]
    assert [finding.what for finding in report.skipped] == ["item 2: the list ends before the file does"]


@pytest.mark.parametrize("piece", ['{"metadata":', '[{"metadata":', '{"metadata":{}},', '{"metadata":{"x":', '"', "[{"])
def test_a_file_that_was_made_to_be_slow(tmp_path: Path, piece: str) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidArgument, match="holds no checkpoint of cortex"):
        bring(None, write_text(tmp_path / "a", "[" + piece * (tries(2_400_000, 600_000) // len(piece))), dry_run=True)
    assert time.process_time() - begun < 60


def write_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_two_members_of_one_name_are_refused(hf: Holdfast, tmp_path: Path) -> None:
    """One of them would be lost. serde, which wrote these, refuses it too."""
    good, bad = (json.dumps(each) for each in line("t", 2))
    path = write_text(tmp_path / "a.jsonl", f'{good}\n{bad[:-1]}, "state": 5}}\n')
    report = bring(hf, path)
    assert [finding.what for finding in report.skipped] == ["line 2: it has two members of one name"]
    assert steps(hf, "t") == [1]
