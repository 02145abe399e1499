"""Folders of ares-server: sound ones, and what its crashes leave."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidArgument, NotFound
from holdfast.importers import Report, import_from
from tests.crash.lab import spread
from tests.importers.ares_source import STARTED, checkpoint, play, save
from tests.selection import tries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one session of three steps."""
    play(tmp_path / "ares", "sess1")
    return tmp_path / "ares"


def bring(hf: Holdfast | None, folder: Path, **given: Any) -> Report:
    return import_from(hf, "ares", str(folder), **given)


def steps(hf: Holdfast, name: str = "sess1") -> list[int]:
    return [found.step for found in hf.thread(name).history()][::-1]


def whats(report: Report) -> list[str]:
    return [finding.what for finding in report.remarks]


def test_a_session_becomes_a_thread(hf: Holdfast, folder: Path) -> None:
    report = bring(hf, folder)
    assert report.ok
    assert not report.remarks
    assert (report.threads, report.checkpoints, report.checked) == (1, 3, 3)
    said, found = checkpoint("sess1", 2), hf.thread("sess1").latest()
    assert found is not None
    assert found.state == {name: said[name] for name in ("messages", "tool_calls", "partial_results")}
    assert (found.step, found.agent, found.status, found.trigger) == (2, "researcher", "completed", "import")
    assert found.created_at == datetime.fromtimestamp(STARTED + 120, UTC)
    assert found.metadata == {"$imported": {"from": "ares", "id": "sess1-2", "key": "2", "head": "2"}}
    assert steps(hf) == [0, 1, 2]
    again = bring(hf, folder)
    assert (again.checkpoints, again.present, again.ok) == (0, 3, True)


def test_a_dry_run_needs_no_store(folder: Path) -> None:
    report = bring(None, folder, dry_run=True)
    assert (report.threads, report.checkpoints, report.ok) == (1, 3, True)


@pytest.mark.parametrize(
    ("written", "status", "reason"),
    [
        ("InProgress", "running", None),
        ("Completed", "completed", None),
        ({"Failed": "out of memory"}, "failed", "out of memory"),
        ({"Halted": "loop detected"}, "halted", "loop detected"),
    ],
)
def test_a_status_is_kept_with_its_reason(
    hf: Holdfast, tmp_path: Path, written: object, status: str, reason: str | None
) -> None:
    save(tmp_path / "ares", checkpoint("s", 0, status=written))
    assert bring(hf, tmp_path / "ares").ok
    found = hf.thread("s").head()
    assert found is not None
    assert (found.status, found.reason) == (status, reason)


@pytest.mark.parametrize("written", ["Paused", {"Failed": 7}, {"Waiting": "x"}, {"Failed": "a", "Halted": "b"}, 3])
def test_a_status_of_another_version_costs_nothing(hf: Holdfast, tmp_path: Path, written: object) -> None:
    save(tmp_path / "ares", checkpoint("s", 0, status=written))
    report = bring(hf, tmp_path / "ares")
    assert report.ok
    found = hf.thread("s").head()
    assert found is not None
    assert found.status == "running"
    assert found.metadata["$imported"]["rest"] == {"status": written}


def test_members_of_a_later_version_are_kept(hf: Holdfast, tmp_path: Path) -> None:
    save(tmp_path / "ares", checkpoint("s", 0, ttl_secs=3600))
    bring(hf, tmp_path / "ares")
    assert hf.thread("s").load("@0").metadata["$imported"]["rest"] == {"ttl_secs": 3600}


@pytest.mark.parametrize(
    "names",
    [["a", "a_2", "a_2_3"], ["latest", "latest-run", "x_latest", "my_latest_run"], ["weird name ☃", "-", "s_", "0"]],
)
def test_whatever_a_session_is_called(hf: Holdfast, tmp_path: Path, names: list[str]) -> None:
    """Its own list mixes the first, and does not show the second."""
    for name in names:
        play(tmp_path / "ares", name, 2)
    report = bring(hf, tmp_path / "ares")
    assert report.ok
    assert not report.remarks
    assert sorted(thread.name for thread in hf.threads()) == sorted(names)
    for name in names:
        assert steps(hf, name) == [0, 1]
        assert hf.thread(name).load("@0").metadata["$imported"]["id"] == f"{name}-0"


def test_steps_are_in_the_order_of_numbers(hf: Holdfast, tmp_path: Path) -> None:
    play(tmp_path / "ares", "s", 12)
    bring(hf, tmp_path / "ares")
    assert steps(hf, "s") == [*range(12)]


def test_one_id_for_all_steps_is_no_loss(hf: Holdfast, tmp_path: Path) -> None:
    for step in range(3):
        save(tmp_path / "ares", checkpoint("s", step, id="s"))
    report = bring(hf, tmp_path / "ares")
    assert (report.checkpoints, report.ok, report.remarks) == (3, True, ())
    assert bring(hf, tmp_path / "ares").present == 3


# -- what crashes leave ----------------------------------------------------------------------------------------------


def damaged(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


DAMAGE: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: data[: len(data) // 2], "it is cut off in the middle"),
    (lambda _: b"", "it is empty"),
    (lambda data: b"\0" * len(data), "it contains no JSON"),
    (lambda data: data.replace(b"Answer", b"\xff\xfe"), "it is not UTF-8"),
    (lambda data: data.replace(b'"step": 1', b'"step": 1,,'), "it is not JSON"),
    (lambda data: data.replace(b'"timestamp": 1', b'"x": NaN, "timestamp": 1'), "it contains NaN"),
    (lambda data: data.replace(b'"timestamp": 1', b'"x": 1e999, "timestamp": 1'), "it contains a number that is too"),
    (lambda data: data.replace(b'"timestamp": 1', b'"x": ' + b"9" * 5000 + b', "timestamp": 1'), "it contains a num"),
    (lambda data: data.replace(b'"timestamp": 1', b'"x": ' + b"[" * 200_000 + b', "y": 1'), "it is nested too"),
    (lambda data: data.replace(b'"timestamp": 1', b'"x": ' + b"[" * 300 + b"]" * 300 + b', "y": 1'), "metadata"),
    (lambda data: data.replace(b'"step": 1', b'"step": 1, "step": 2'), "it has two members with the same name"),
    (lambda _: b"[1, 2]", "it is not a JSON object"),
    (lambda _: b"{}", "it has no session_id"),
    (lambda data: data.replace(b'"step": 1', b'"step": "1"'), "its step is not a whole number"),
    (lambda data: data.replace(b'"step": 1', b'"step": -1'), "step must be a whole number"),
    (lambda data: data.replace(b'"step": 1', b'"step": 18446744073709551615'), "step must be a whole number"),
    (lambda data: data.replace(b'"sess1-1"', b"17"), "its id is not a string"),
    (lambda data: data.replace(b'"messages": [', b'"messages": 3, "others": ['), "its messages is not a list"),
    (
        lambda data: data.replace(b'"agent_name": "researcher"', b'"agent_name": ["x"]'),
        "its agent_name is not a string",
    ),
]


@pytest.mark.parametrize(("change", "reason"), DAMAGE)
def test_a_damaged_file_is_skipped_and_the_others_come(
    hf: Holdfast, folder: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    damaged(folder / "sess1_1.json", change)
    report = bring(hf, folder)
    assert (report.checkpoints, report.ok) == (2, False)
    assert len(report.skipped) == 1
    assert reason in report.skipped[0].what
    assert report.skipped[0].thread == "sess1"
    assert "1" in (report.skipped[0].item or "")
    assert steps(hf) == [0, 2]
    rehearsed = bring(None, folder, dry_run=True)
    assert (rehearsed.checkpoints, rehearsed.skipped) == (2, report.skipped)


def test_a_torn_file_that_was_mended_replaces_the_thread(hf: Holdfast, folder: Path) -> None:
    whole = (folder / "sess1_2.json").read_bytes()
    damaged(folder / "sess1_2.json", lambda data: data[:-100])
    bring(hf, folder)
    assert hf.thread("sess1").step() == 1
    (folder / "sess1_2.json").write_bytes(whole)
    assert bring(hf, folder).existing == 1
    assert hf.thread("sess1").step() == 1
    assert bring(hf, folder, replace=True).ok
    assert hf.thread("sess1").step() == 2


def test_a_session_of_which_nothing_can_be_read(hf: Holdfast, folder: Path) -> None:
    (folder / "other_0.json").write_bytes(b'{"id": "o')
    report = bring(hf, folder)
    assert [(finding.thread, finding.what) for finding in report.skipped] == [
        ("other", "file other_0.json: it is cut off in the middle")
    ]
    assert [thread.name for thread in hf.threads()] == ["sess1"]


@pytest.mark.parametrize(
    ("pointer", "remark"),
    [
        (
            b"",
            "the pointer to the last checkpoint is empty, as after a crash; the thread resumes from the last",
        ),
        (b"sess1_7.json", "the pointer to the last checkpoint names a file that does not exist"),
        (b"../../../etc/passwd", "the pointer to the last checkpoint names a file that does not exist"),
        (b"/etc/passwd", "the pointer to the last checkpoint names a file that does not exist"),
        (b"\xff\xff", "the pointer to the last checkpoint names a file that does not exist"),
        (b"x" * 10_000, "the pointer to the last checkpoint: it has 10000 bytes, and the limit is 4096"),
        (b"sess1_1.json", "the pointer names step 1, but step 2 was written later"),
        (None, "the pointer to the last checkpoint is missing; the thread resumes from step 2"),
    ],
)
def test_a_bad_pointer_is_said_and_costs_nothing(
    hf: Holdfast, folder: Path, pointer: bytes | None, remark: str
) -> None:
    if pointer is None:
        (folder / "sess1_latest.json").unlink()
    else:
        (folder / "sess1_latest.json").write_bytes(pointer)
    report = bring(hf, folder)
    assert (report.checkpoints, report.ok) == (3, True)
    assert len(report.remarks) == 1
    assert whats(report)[0].startswith(remark)
    assert hf.thread("sess1").step() == 2


def test_a_session_that_went_back_is_gone_on_from_there(hf: Holdfast, folder: Path) -> None:
    """It was started anew at step 1, and killed before step 2."""
    save(folder, checkpoint("sess1", 1, timestamp=STARTED + 9000, messages=[]))
    report = bring(hf, folder)
    assert report.ok
    assert whats(report) == ["the session was last at step 1; higher steps are from an earlier attempt"]
    found = hf.thread("sess1").latest()
    assert found is not None
    assert (found.step, found.state["messages"]) == (1, [])
    assert steps(hf) == [0, 1, 2]


def test_a_pointer_without_checkpoints(hf: Holdfast, folder: Path) -> None:
    (folder / "gone_latest.json").write_text("gone_3.json")
    report = bring(hf, folder)
    assert report.ok
    assert [(finding.thread, finding.what) for finding in report.remarks] == [
        ("gone", "there is a pointer to the last checkpoint, but no checkpoint")
    ]


def test_a_file_under_another_name_is_of_the_session_that_it_says(hf: Holdfast, folder: Path) -> None:
    os.rename(folder / "sess1_2.json", folder / "copy_9.json")
    report = bring(hf, folder)
    assert report.ok
    assert steps(hf) == [0, 1, 2]
    assert "checkpoint sess1-2: it is in file copy_9.json, whose name does not match its session and step" in whats(
        report
    )


def test_two_files_of_one_step(hf: Holdfast, folder: Path) -> None:
    """A copy is taken once; one that differs is taken as well."""
    (folder / "backup_1.json").write_bytes((folder / "sess1_1.json").read_bytes())
    (folder / "old_1.json").write_text(json.dumps(checkpoint("sess1", 1, messages=[])))
    report = bring(hf, folder)
    assert (report.checkpoints, report.ok) == (4, True)
    assert sorted(steps(hf)) == [0, 1, 1, 2]
    assert bring(hf, folder).present == 4


def test_other_files_are_named(hf: Holdfast, folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / "sess1_2.json.tmp").write_text("{")
    (folder / "user").mkdir()
    report = bring(hf, folder)
    assert report.ok
    assert report.threads == 1
    assert [(finding.thread, finding.what) for finding in report.remarks] == [
        (None, "notes.txt: it is not a checkpoint"),
        (None, "sess1_2.json.tmp: it is not a checkpoint"),
        (None, "user: it is a folder, and was not read"),
    ]


# -- hostile sources -------------------------------------------------------------------------------------------------


def test_links_are_not_followed(hf: Holdfast, folder: Path, tmp_path: Path) -> None:
    elsewhere = save(tmp_path / "elsewhere", checkpoint("sess1", 3))
    (folder / "sess1_3.json").symlink_to(elsewhere)
    (folder / "sess1_latest.json").unlink()
    (folder / "sess1_latest.json").symlink_to("/etc/passwd")
    report = bring(hf, folder)
    assert [finding.what for finding in report.skipped] == [
        "file sess1_3.json: it is a link, and links are not followed"
    ]
    assert whats(report) == ["the pointer to the last checkpoint: it is a link, and links are not followed"]
    assert steps(hf) == [0, 1, 2]


def test_what_is_no_file_does_not_hold_it_up(hf: Holdfast, folder: Path) -> None:
    os.mkfifo(folder / "sess1_3.json")
    (folder / "sess1_4.json").mkdir()
    report = bring(hf, folder)
    assert [finding.what for finding in report.skipped] == [
        "file sess1_3.json: it is not a regular file",
        "file sess1_4.json: it is not a regular file",
    ]


def test_a_large_file_is_not_read(hf: Holdfast, folder: Path) -> None:
    save(folder, checkpoint("sess1", 3, partial_results=["x" * 20_000]))
    report = bring(hf, folder, max_file_bytes=10_000)
    assert (report.checkpoints, len(report.skipped)) == (3, 1)
    assert "bytes, and the limit is 10000; raise it with max_file_bytes=" in report.skipped[0].reason
    assert bring(hf, folder).ok


@pytest.mark.parametrize("session", ["", 7, None, "\ud800", "a\0b", "../../up", "x" * 5000])
def test_whatever_a_file_says_that_its_session_is(hf: Holdfast, folder: Path, session: object) -> None:
    (folder / "odd_0.json").write_text(json.dumps(checkpoint("odd", 0, session_id=session)))
    report = bring(hf, folder)
    assert steps(hf) == [0, 1, 2]
    assert report.checkpoints + len(report.skipped) == 4


def test_names_that_are_no_text(hf: Holdfast, folder: Path) -> None:
    with open(os.fsencode(folder) + b"/\xff\xfe_0.json", "wb") as file:
        file.write(b"{")
    report = bring(hf, folder)
    assert [(finding.thread, finding.reason) for finding in report.skipped] == [("��", "it is cut off in the middle")]


@pytest.mark.parametrize("timestamp", [2**64 - 1, -5, "now", None, 1e300])
def test_a_time_that_is_none(hf: Holdfast, tmp_path: Path, timestamp: object) -> None:
    save(tmp_path / "ares", checkpoint("s", 0, timestamp=timestamp))
    report = bring(hf, tmp_path / "ares")
    assert report.ok
    assert whats(report) == ["checkpoint s-0: it has no valid time; the time of the import is used"]
    assert hf.thread("s").load("@0").metadata["$imported"]["rest"] == {"timestamp": timestamp}


def test_any_byte_may_be_wrong(folder: Path) -> None:
    """Whatever is flipped, there is a report, and each file is moved or told."""
    path = folder / "sess1_0.json"
    data = path.read_bytes()
    for place in spread(range(len(data)), tries(len(data), 60)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :])
        report = bring(None, folder, dry_run=True)
        assert report.checkpoints + len(report.skipped) == 3, place


def test_a_file_may_end_anywhere(folder: Path) -> None:
    path = folder / "sess1_0.json"
    data = path.read_bytes()
    for length in spread(range(len(data)), tries(len(data), 60)):
        path.write_bytes(data[:length])
        report = bring(None, folder, dry_run=True)
        assert (report.checkpoints, len(report.skipped)) == (2, 1), length


def test_what_is_no_folder_of_ares(hf: Holdfast, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        bring(hf, tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidArgument, match="is not a folder"):
        bring(hf, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="contains no ares checkpoints"):
        bring(hf, tmp_path / "empty")
