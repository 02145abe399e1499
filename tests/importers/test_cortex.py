"""Files of cortex checkpoints: arrays, lines, tables, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidArgument, NotFound
from holdfast.importers import Report, import_from
from tests.crash.lab import spread
from tests.importers.cortex_source import BEGUN, checkpoint, checkpoint_id, line, write, write_lines
from tests.selection import tries

Writer = Callable[[Path, list[Any]], Path]


def write_pretty(path: Path, said: list[Any]) -> Path:
    return write(path, said, indent=2)


def write_table(path: Path, said: list[Any]) -> Path:
    """A list for each thread."""
    table: dict[str, list[Any]] = {}
    for each in said:
        table.setdefault(each["metadata"]["thread_id"], []).append(each)
    return write(path, table)


def write_behind_each_other(path: Path, said: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(each, indent=1) for each in said))
    return path


ALL: list[Writer] = [write, write_pretty, write_lines, write_table, write_behind_each_other]


def bring(hf: Holdfast | None, path: Path, **given: Any) -> Report:
    return import_from(hf, "cortex", str(path), **given)


def steps(hf: Holdfast, name: str) -> list[int]:
    return [found.step for found in hf.thread(name).history()][::-1]


def whats(report: Report) -> list[str]:
    return [finding.what for finding in report.remarks]


@pytest.mark.parametrize("writer", ALL)
def test_each_thread_becomes_one(hf: Holdfast, tmp_path: Path, writer: Writer) -> None:
    one, two = line("t1"), line("t2", 2)
    path = writer(tmp_path / "export", [one[0], two[0], one[1], two[1], one[2]])
    assert bring(None, path, dry_run=True).checkpoints == 5
    report = bring(hf, path)
    assert report.ok
    assert not report.remarks
    assert (report.threads, report.checkpoints, report.checked) == (2, 5, 5)
    assert (steps(hf, "t1"), steps(hf, "t2")) == ([1, 2, 3], [1, 2])
    again = bring(hf, path)
    assert (again.checkpoints, again.present, again.ok) == (0, 5, True)


def test_all_that_a_checkpoint_says_is_kept(hf: Holdfast, tmp_path: Path) -> None:
    state = {"counter": 1.5, "é": [None]}
    said = checkpoint("t", 1, label="best", tags=["x", "y"], custom={"owner": "ann"}, state=state, state_size=28)
    assert bring(hf, write(tmp_path / "one.json", said)).ok
    found = hf.thread("t").latest()
    assert found is not None
    assert found.state == state
    assert (found.label, found.tags, found.step) == ("best", ("x", "y"), 1)
    assert found.created_at == datetime.fromtimestamp(BEGUN + 1, UTC)
    assert found.metadata == {
        "owner": "ann",
        "$imported": {"from": "cortex", "id": checkpoint_id("t", 1), "rest": {"state_size": 28}},
    }


@pytest.mark.parametrize("state", [[1, 2], "text", 7, None, {}, {"messages": []}])
def test_a_state_may_be_any_value(hf: Holdfast, tmp_path: Path, state: object) -> None:
    assert bring(hf, write(tmp_path / "a.json", [checkpoint("t", 1, state=state)])).ok
    found = hf.thread("t").latest()
    assert found is not None
    assert found.state == state


def test_parents_are_kept_and_come_first(hf: Holdfast, tmp_path: Path) -> None:
    branch = checkpoint("t", 9, parent_id=checkpoint_id("t", 1))
    said = [branch, *reversed(line("t"))]
    report = bring(hf, write(tmp_path / "a.json", said))
    assert report.ok
    assert not report.remarks
    assert steps(hf, "t") == [1, 9, 2, 3]
    first, ninth, second, third = reversed([*hf.thread("t").history()])
    assert (ninth.parent, second.parent, third.parent) == (first.id, first.id, second.id)


def test_the_oldest_ones_were_deleted(hf: Holdfast, tmp_path: Path) -> None:
    """It keeps a hundred of each thread, and forgets the others without a word."""
    report = bring(hf, write_lines(tmp_path / "a.jsonl", line("t", 5)[3:]))
    assert report.ok
    assert whats(report) == [
        f"checkpoint {checkpoint_id('t', 4)}: its parent {checkpoint_id('t', 3)} is not in the source"
    ]
    assert steps(hf, "t") == [4, 5]


def test_parents_in_a_circle(hf: Holdfast, tmp_path: Path) -> None:
    said = [checkpoint("t", 1, parent_id=checkpoint_id("t", 2)), checkpoint("t", 2), checkpoint("t", 3)]
    said[1]["metadata"]["parent_id"] = checkpoint_id("t", 1)
    own = checkpoint("t", 4, parent_id=checkpoint_id("t", 4))
    report = bring(hf, write(tmp_path / "a.json", [*said, own]))
    assert report.ok
    assert [finding.reason for finding in report.remarks] == [
        "it is an ancestor of its own parent; it stands behind the one before it"
    ] * 2
    assert steps(hf, "t") == [2, 1, 3, 4]
    assert bring(hf, tmp_path / "a.json").present == 4


def test_an_export_that_went_on_is_added(hf: Holdfast, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    bring(hf, write_lines(path, line("t", 2)))
    report = bring(hf, write_lines(path, line("t", 4)))
    assert (report.present, report.checkpoints, report.ok) == (2, 2, True)
    assert steps(hf, "t") == [1, 2, 3, 4]


def test_an_id_that_is_there_twice(hf: Holdfast, tmp_path: Path) -> None:
    """Its memory store keeps both of one id."""
    other = checkpoint("t", 2, state={"counter": -1})
    report = bring(hf, write(tmp_path / "a.json", [*line("t", 2), *line("t", 2), other]))
    assert (report.checkpoints, report.ok) == (3, True)
    assert len([what for what in whats(report) if what.endswith("the source has it twice; it was taken once")]) == 2
    assert bring(hf, tmp_path / "a.json").present == 3


def test_one_id_in_two_threads(hf: Holdfast, tmp_path: Path) -> None:
    said = [checkpoint("a", 1, id="same"), checkpoint("b", 1, id="same")]
    assert bring(hf, write(tmp_path / "a.json", said)).ok
    assert {thread.name for thread in hf.threads()} == {"a", "b"}


# -- damaged and hostile ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", [write, write_pretty, write_lines, write_behind_each_other])
def test_a_file_may_be_cut_off(hf: Holdfast, tmp_path: Path, writer: Writer) -> None:
    path = writer(tmp_path / "a", line("t", 5))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 7 // 10])
    report = bring(hf, path)
    assert (report.checkpoints, report.ok, len(report.skipped)) == (3, False, 1)
    assert report.skipped[0].thread == str(path)
    assert report.skipped[0].what in (
        "item 4: it is cut off in the middle",
        "line 4: it is cut off in the middle",
    )
    assert steps(hf, "t") == [1, 2, 3]
    path.write_bytes(data)
    assert bring(hf, path).ok
    assert steps(hf, "t") == [1, 2, 3, 4, 5]


def test_an_array_without_its_end(hf: Holdfast, tmp_path: Path) -> None:
    path = write(tmp_path / "a", line("t", 2))
    path.write_bytes(path.read_bytes()[:-1])
    report = bring(hf, path)
    assert (report.checkpoints, [finding.what for finding in report.skipped]) == (2, ["item 3: the file is cut off"])


@pytest.mark.parametrize("writer", ALL)
@pytest.mark.parametrize("flipped", [b'"created_at":', b'"message 0"'])
def test_behind_damage_it_goes_on(hf: Holdfast, tmp_path: Path, writer: Writer, flipped: bytes) -> None:
    path = writer(tmp_path / "a", line("t", 5))
    before, found, after = path.read_bytes().partition(b'"step": 3')
    assert found
    place = after.index(flipped) if flipped in after else 0
    spoilt = after[:place] + after[place:].replace(b'"', b"\x00", 1)
    path.write_bytes(before + found + spoilt)
    report = bring(hf, path)
    assert report.checkpoints >= 3
    assert not report.ok
    assert 5 in steps(hf, "t")


@pytest.mark.parametrize("writer", ALL)
def test_bytes_that_are_no_text(hf: Holdfast, tmp_path: Path, writer: Writer) -> None:
    said = line("t", 3)
    said[1]["state"] = "spoilt"
    path = writer(tmp_path / "a", said)
    path.write_bytes(path.read_bytes().replace(b"spoilt", b"\xff\xfe"))
    if writer is write_table:
        with pytest.raises(InvalidArgument, match="it is not UTF-8"):
            bring(hf, path)
        return
    report = bring(hf, path)
    assert [finding.reason for finding in report.skipped] == ["it is not UTF-8"]
    assert steps(hf, "t") == [1, 3]


DAMAGE: list[tuple[Callable[[Any], object], str]] = [
    (lambda said: said["metadata"].pop("id"), "it has no id"),
    (lambda said: said["metadata"].pop("thread_id"), "it has no thread_id"),
    (lambda said: said["metadata"].update(thread_id=""), "it has no thread_id"),
    (lambda said: said["metadata"].update(thread_id=5), "its thread_id is no text"),
    (lambda said: said["metadata"].update(parent_id=5), "its parent_id is no text"),
    (lambda said: said["metadata"].update(step="x"), "its step is no whole number"),
    (lambda said: said["metadata"].update(step=-1), "step must be a whole number, 0 or more"),
    (lambda said: said["metadata"].update(step=True), "its step is no whole number"),
    (lambda said: said["metadata"].update(label=5), "its label is no text"),
    (lambda said: said["metadata"].update(tags="x"), "its tags is no list"),
    (lambda said: said["metadata"].update(tags=[5]), "tags must be a list or tuple of str"),
    (lambda said: said["metadata"].update(custom=[5]), "its custom is no JSON object"),
    (lambda said: said["metadata"].update(custom={"$imported": "x"}), "its metadata has a key $imported"),
    (lambda said: said.update(metadata=[]), "its metadata is no JSON object"),
    (lambda said: said.pop("state"), "it has no state"),
]


@pytest.mark.parametrize(("change", "reason"), DAMAGE)
@pytest.mark.parametrize("writer", [write, write_lines])
def test_a_checkpoint_that_is_none_is_skipped(
    hf: Holdfast, tmp_path: Path, writer: Writer, change: Callable[[Any], object], reason: str
) -> None:
    said = line("t", 3)
    change(said[1])
    report = bring(hf, writer(tmp_path / "a", said))
    assert [finding.reason.partition(",")[0] for finding in report.skipped] == [reason.partition(",")[0]]
    assert report.checkpoints == 2
    assert steps(hf, "t") == [1, 3]


def test_numbers_that_are_none(hf: Holdfast, tmp_path: Path) -> None:
    good = json.dumps(checkpoint("t", 1))
    spoilt = [json.dumps(checkpoint("t", 2, state="#")).replace('"#"', each) for each in ("NaN", "-Infinity", "1e400")]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([good, *spoilt, '{"metadata": 5}', "7", "", good.replace('"t"', '"u"')]))
    report = bring(hf, path)
    assert [finding.what for finding in report.skipped] == [
        "line 2: it holds NaN, which is no JSON",
        "line 3: it holds -Infinity, which is no JSON",
        "line 4: it holds a number that is too large for any float",
        "line 5: its metadata is no JSON object",
        "line 6: it is no JSON object",
    ]
    assert report.checkpoints == 2


def test_a_time_that_is_none(hf: Holdfast, tmp_path: Path) -> None:
    report = bring(hf, write(tmp_path / "a", [checkpoint("t", 1, created_at=2**64 - 1)]))
    assert report.ok
    assert whats(report)[0].endswith("it has no time that is one; it has that of the import")
    assert hf.thread("t").load("@1").metadata["$imported"]["rest"]["created_at"] == 2**64 - 1


def test_what_is_too_large_is_not_read(hf: Holdfast, tmp_path: Path) -> None:
    said = [*line("t", 2), checkpoint("t", 3, state="x" * 20_000), checkpoint("t", 4, state="end")]
    report = bring(hf, write_lines(tmp_path / "a.jsonl", said), max_file_bytes=10_000)
    assert [finding.item for finding in report.skipped] == ["line 3"]
    assert "and the limit is 10000; raise it with max_file_bytes=" in report.skipped[0].reason
    assert steps(hf, "t") == [1, 2, 4]
    with pytest.raises(InvalidArgument, match="the limit is 10000"):
        bring(hf, write(tmp_path / "a.json", said), max_file_bytes=10_000)


@pytest.mark.parametrize("writer", ALL)
def test_any_byte_may_be_wrong(tmp_path: Path, writer: Writer) -> None:
    """Whatever is flipped, there is a report, or one error that says that there is nothing."""
    path = writer(tmp_path / "a", line("t", 2))
    data = path.read_bytes()
    for place in spread(range(0, len(data), 2), tries(len(data), 100)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :])
        try:
            report = bring(None, path, dry_run=True)
        except InvalidArgument:
            continue
        assert report.checkpoints + len(report.skipped) >= 1


@pytest.mark.parametrize("content", [b"", b"\n", b"[]", b"{}", b"[", b"7", b"\x00" * 50, b"\xff" * 50, b"[" * 200_000])
def test_what_is_no_file_of_cortex(hf: Holdfast, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InvalidArgument, match="holds no checkpoint of cortex"):
        bring(hf, tmp_path / "a")


def test_no_file(hf: Holdfast, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        bring(hf, tmp_path / "nowhere")
    with pytest.raises(InvalidArgument, match="it is no file"):
        bring(hf, tmp_path)


def test_a_link_that_was_named_is_followed(hf: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path / "a.json", line("t")))
    assert bring(hf, tmp_path / "link").ok
