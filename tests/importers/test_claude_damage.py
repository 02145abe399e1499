"""Damaged and hostile transcripts: a line that cannot be read is skipped with its number, and the others go on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, InvalidArgument, NotFound
from holdfast.importers import ImportFinding, import_from
from tests.importers.claude_source import SESSION, Transcript, parallel_turn, said, whole, write_project
from tests.importers.claude_threads import KIND, lineage, steps, taken, texts, written
from tests.selection import IN_FULL


@pytest.fixture
def hf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path_factory.mktemp("store") / "agent.db", durability="off") as handle:
        yield handle


def talk_of_birds() -> Transcript:
    talk = Transcript()
    talk.prompt("Name a bird.")
    talk.reply(said("Wren."))
    talk.prompt("Another.")
    talk.reply(said("Rook."))
    return talk


def encoded(talk: Transcript) -> list[bytes]:
    return [json.dumps(line).encode() for line in talk.lines]


def put(folder: Path, lines: list[bytes], end: bytes = b"\n") -> Path:
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(b"\n".join(lines) + end)
    return path


DEEP = b'{"type":"user","uuid":"user-3","message":{"role":"user","content":' + b"[" * 300 + b"]" * 300 + b"}}"

DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda line: line[: len(line) // 2], "it is cut off in the middle"),
    "no json": (lambda line: b"oops " + line, "it is not JSON"),
    "no text": (lambda line: line.replace(b"Another", b"\xff\xfe"), "it is not UTF-8"),
    "a list": (lambda line: b"[" + line + b"]", "it is not a JSON object"),
    "no message": (lambda line: line.replace(b'"message"', b'"massage"'), "its message is not a JSON object"),
    "no uuid": (lambda line: line.replace(b'"uuid"', b'"guid"'), "it has no uuid"),
    "deep": (lambda _: DEEP, "nested more than 200 deep"),
    "deeper": (lambda _: b"[" * 200_000, "it is nested too deeply"),
    "NaN": (lambda line: line.replace(b'"external"', b"NaN"), "it contains NaN"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_line_is_skipped_and_the_others_keep_their_history(tmp_path: Path, hf: Holdfast, damage: str) -> None:
    change, reason = DAMAGES[damage]
    lines = encoded(talk_of_birds())
    lines[2] = change(lines[2])
    path = put(tmp_path, lines)

    told = import_from(hf, KIND, str(path), dry_run=True)
    report = taken(hf, path)

    assert told.skipped == report.skipped
    [skipped] = report.skipped
    assert (skipped.thread, skipped.item) == (SESSION, "line 3")
    assert reason in skipped.reason
    assert not report.differing
    assert texts(steps(hf)["assistant-4"]) == ["Name a bird.", "Wren.", "Rook."]
    assert lineage(hf)["assistant-4"] == "assistant-2"
    again = import_from(hf, KIND, str(path), replace=True)
    assert (again.checkpoints, again.skipped) == (report.checkpoints, report.skipped)


def test_what_hangs_on_a_bad_line_hangs_where_that_did(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    bad = talk.prompt("Rewound.", parent="assistant-2")
    last = talk.prompt("And on.", parent=bad)
    talk.lines[4]["message"] = "lost"
    report = taken(hf, written(talk, tmp_path))
    assert [each.item for each in report.skipped] == ["line 5"]
    assert not report.remarks
    assert lineage(hf)[last] == "assistant-2"
    assert texts(steps(hf)[last]) == ["Name a bird.", "Wren.", "And on."]


def test_a_torn_last_line_costs_that_line(tmp_path: Path, hf: Holdfast) -> None:
    """As a machine that lost its power leaves it."""
    lines = encoded(talk_of_birds())
    path = put(tmp_path, lines[:3], b"\n" + lines[3][:100])
    report = taken(hf, path)
    [skipped] = report.skipped
    assert skipped == ImportFinding(SESSION, "line 4", "it is cut off in the middle")
    assert texts(steps(hf)["user-3"]) == ["Name a bird.", "Wren.", "Another."]

    put(tmp_path, lines)
    assert import_from(hf, KIND, str(path), replace=True).ok
    assert texts(steps(hf)["assistant-4"])[-1] == "Rook."


def test_a_file_at_every_length_gives_what_is_whole_in_it(tmp_path: Path) -> None:
    data = b"\n".join(encoded(talk_of_birds())) + b"\n"
    for length in range(1, len(data), 97):
        path = tmp_path / f"{SESSION}.jsonl"
        path.write_bytes(data[:length])
        with holdfast.open("memory:") as hf:
            whole_lines = data[:length].count(b"\n")
            if not whole_lines:
                with pytest.raises(InvalidArgument):
                    taken(hf, path)
                continue
            report = taken(hf, path)
            assert len(report.skipped) == (
                0 if data[:length].endswith(b"\n") or data[length : length + 1] == b"\n" else 1
            )
            assert report.checkpoints >= whole_lines
            assert not report.differing


def test_lines_of_zeros_are_passed_over(tmp_path: Path, hf: Holdfast) -> None:
    """As a file system leaves them that lost its power."""
    lines = encoded(talk_of_birds())
    assert taken(hf, put(tmp_path, [*lines, b"\0" * 4096])).ok


def test_a_line_over_the_limit_is_skipped(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    talk.lines[2]["message"]["content"] = "x" * 10_000
    path = written(talk, tmp_path)
    report = import_from(hf, KIND, str(path), max_file_bytes=5000)
    [skipped] = report.skipped
    assert skipped.item == "line 3"
    assert "--max-file-bytes" in skipped.reason
    assert texts(steps(hf)["assistant-4"]) == ["Name a bird.", "Wren.", "Rook."]


def test_a_line_whose_parent_is_missing_stands_behind_the_one_before_it(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    talk.lines[2]["parentUuid"] = "nobody"
    report = taken(hf, written(talk, tmp_path))
    assert report.ok
    [remark] = report.remarks
    assert remark.reason == "its parent nobody is not in the file before it; it was placed after the previous line"
    assert lineage(hf)["user-3"] == "assistant-2"


def test_a_line_that_says_nothing_of_a_parent_follows_the_one_before_it(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    del talk.lines[2]["parentUuid"]
    assert taken(hf, written(talk, tmp_path)).ok
    assert texts(steps(hf)["assistant-4"]) == ["Name a bird.", "Wren.", "Another.", "Rook."]


def test_a_line_that_says_that_it_has_no_parent_begins_another_conversation(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    talk.lines[2]["parentUuid"] = None
    assert taken(hf, written(talk, tmp_path)).ok
    assert texts(steps(hf)["assistant-4"]) == ["Another.", "Rook."]
    assert lineage(hf)["user-3"] == "assistant-2"


def test_a_first_line_whose_parent_is_in_no_file_says_that_something_is_missing(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    talk.lines[0]["parentUuid"] = "nobody"
    report = taken(hf, written(talk, tmp_path))
    assert [each.reason for each in report.remarks] == [
        "its parent nobody is in no file of the folder; the earlier messages are missing"
    ]
    assert report.checkpoints == 4


def test_a_compaction_whose_boundary_was_lost_is_one_all_the_same(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    talk.prompt("A long story.")
    talk.boundary()
    summary = talk.prompt("It was long.", isCompactSummary=True)
    del talk.lines[1]
    taken(hf, written(talk, tmp_path))
    assert texts(steps(hf)[summary]) == ["It was long."]


@pytest.mark.parametrize(
    "segment",
    [
        {"headUuid": "user-1", "tailUuid": "nobody", "anchorUuid": "x"},
        {"headUuid": "nobody", "tailUuid": "user-1", "anchorUuid": "x"},
        {"headUuid": 1, "tailUuid": [], "anchorUuid": {}},
        [],
        "all",
    ],
)
def test_a_compaction_that_kept_what_is_not_there_keeps_its_summary(
    tmp_path: Path, hf: Holdfast, segment: object
) -> None:
    talk = Transcript()
    talk.prompt("A long story.")
    talk.boundary(preservedSegment=segment)
    summary = talk.prompt("It was long.", isCompactSummary=True)
    assert taken(hf, written(talk, tmp_path)).ok
    assert texts(steps(hf)[summary]) == ["It was long."]


def test_a_line_that_is_there_twice_is_taken_once(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    talk.lines.append(talk.lines[1])
    report = taken(hf, written(talk, tmp_path))
    assert report.ok
    assert [each.what for each in report.remarks] == ["line 5: the file contains it twice; it was imported once"]
    assert report.checkpoints == 4


def test_another_line_of_the_same_uuid_is_skipped(tmp_path: Path, hf: Holdfast) -> None:
    talk = talk_of_birds()
    talk.lines.append({**talk.lines[1], "message": {"role": "assistant", "content": "Forged."}})
    report = taken(hf, written(talk, tmp_path))
    assert [each.what for each in report.skipped] == ["line 5: an earlier line has the same uuid"]
    assert texts(steps(hf)["assistant-2"]) == ["Name a bird.", "Wren."]


@pytest.mark.parametrize("parent", ["user-1", "assistant-4", "user-3"])
def test_lines_in_a_circle_come_to_an_end(tmp_path: Path, hf: Holdfast, parent: str) -> None:
    talk = talk_of_birds()
    talk.lines[0]["parentUuid"] = parent
    talk.lines[2]["parentUuid"] = "user-3"
    report = taken(hf, written(talk, tmp_path))
    assert report.checkpoints == 4


def test_members_of_other_types_than_they_should_be_harm_nobody(tmp_path: Path) -> None:
    """Each member of each line, in turn, is something else."""
    strange: list[object] = [None, 7, -1.5, [], {}, [[1]], {"a": []}, "", "#1", True]
    original = whole()
    for number, line in enumerate(original.lines):
        for at, name in enumerate(line):
            if not IN_FULL and (number + at) % 3:
                continue
            start = (number + at) % len(strange)
            for value in strange[start::3] if IN_FULL else strange[start : start + 1]:
                talk = whole()
                talk.lines[number][name] = value
                with holdfast.open("memory:") as hf:
                    report = taken(hf, written(talk, tmp_path))
                    assert not report.differing
                    assert report.checked == report.checkpoints


def test_blocks_of_other_types_than_they_should_be_harm_nobody(tmp_path: Path, hf: Holdfast) -> None:
    talk = Transcript()
    parallel_turn(talk)
    for line, content in zip(
        talk.lines, [7, None, [7], [{"type": "tool_use", "id": []}], [None], {"a": 1}], strict=False
    ):
        if "message" in line:
            line["message"]["content"] = content
            line["message"]["id"] = content
            line["message"]["usage"] = {"input_tokens": content}
    report = taken(hf, written(talk, tmp_path))
    assert report.ok
    assert report.checkpoints


def test_one_bad_file_does_not_hinder_the_others(tmp_path: Path, hf: Holdfast) -> None:
    write_project(tmp_path)
    project = tmp_path / "-home-somebody-project"
    (project / "broken.jsonl").write_bytes(b"\x00\xff" * 1000)
    (project / "other.jsonl").write_text('{"display": "a history of prompts"}\n')
    (project / "empty.jsonl").touch()
    (project / "folder.jsonl").mkdir()
    (project / "link.jsonl").symlink_to(project / f"{SESSION}.jsonl")
    os.mkfifo(project / "pipe.jsonl")

    report = taken(hf, tmp_path)

    assert {each.thread: each.reason for each in report.skipped} == {
        "broken": "no line belongs to a Claude Code session",
        "other": "no line belongs to a Claude Code session",
        "link": "it is a link, and links are not followed",
        "pipe": "it is not a regular file",
    }
    assert ("empty", "it is empty") in [(each.thread, each.reason) for each in report.remarks]
    assert report.checkpoints == 19


def test_a_folder_that_leads_back_to_itself_is_not_followed(tmp_path: Path, hf: Holdfast) -> None:
    write_project(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    report = taken(hf, tmp_path)
    assert report.ok
    assert report.threads == 4
    assert "it is a link to a folder that was read" in [each.reason for each in report.remarks]


def test_a_name_of_a_file_that_is_no_text_is_one_in_the_end(tmp_path: Path, hf: Holdfast) -> None:
    talk_of_birds().write(tmp_path / f"{SESSION}.jsonl")
    data = (tmp_path / f"{SESSION}.jsonl").read_bytes()
    with open(os.fsencode(tmp_path) + b"/\xff\xfe.jsonl", "wb") as file:
        file.write(data)
    report = taken(hf, tmp_path)
    assert report.ok
    assert {row.name for row in hf.threads()} == {SESSION, "\N{REPLACEMENT CHARACTER}" * 2}


def test_a_thread_of_that_name_that_came_from_elsewhere_is_left_alone(tmp_path: Path, hf: Holdfast) -> None:
    hf.thread(SESSION).save({"mine": 1})
    report = taken(hf, written(talk_of_birds(), tmp_path))
    [skipped] = report.skipped
    assert "a different thread with this name exists" in skipped.reason
    latest = hf.thread(SESSION).latest()
    assert latest is not None
    assert latest.state == {"mine": 1}


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("nowhere.jsonl", None, NotFound),
        ("notes.jsonl", b"these are notes\n", InvalidArgument),
        ("empty.jsonl", b"", InvalidArgument),
        ("export.jsonl", b'{"holdfast":1}\n', InvalidArgument),
    ],
)
def test_what_is_no_transcript_is_refused(
    tmp_path: Path, hf: Holdfast, name: str, data: bytes | None, error: type[Exception]
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error):
        taken(hf, tmp_path / name)


def test_a_folder_without_transcripts_is_refused(tmp_path: Path, hf: Holdfast) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InvalidArgument, match="contains no Claude Code transcripts"):
        taken(hf, tmp_path)
