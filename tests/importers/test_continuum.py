"""Session folders of Continuum: checksums as it wrote them, links, backups, and what is damaged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidArgument, NotFound, Usage
from holdfast.importers import Report, import_from
from tests.crash.lab import spread
from tests.importers.continuum_source import checkpoint, play, save, sealed, written
from tests.selection import tries

S = "5f3a9c01"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A folder with one session of three checkpoints."""
    play(tmp_path / "continuum", S)
    return tmp_path / "continuum"


@pytest.fixture
def checkpoints(storage: Path) -> Path:
    return storage / S / "checkpoints"


def bring(hf: Holdfast | None, storage: Path, **given: Any) -> Report:
    return import_from(hf, "continuum", str(storage), **given)


def steps(hf: Holdfast, name: str = S) -> list[int]:
    return [found.step for found in hf.thread(name).history()][::-1]


def whats(report: Report) -> list[str]:
    return [finding.what for finding in report.remarks]


def file_of(checkpoints: Path, number: int) -> Path:
    [found] = checkpoints.glob(f"cp_*_{number:08x}.json")
    return found


def test_a_session_becomes_a_thread(hf: Holdfast, storage: Path) -> None:
    report = bring(hf, storage)
    assert report.ok
    assert not report.remarks
    assert (report.threads, report.checkpoints, report.checked) == (1, 3, 3)
    said, found = checkpoint(S, 1), hf.thread(S).load("@1")
    assert found.state == {name: said[name] for name in ("messages", "tool_calls_pending", "tool_results")}
    assert found.created_at == datetime(2024, 5, 1, 12, 1, 0, 123456, tzinfo=UTC)
    assert (found.trigger, found.resume_hint) == ("after_tool", "ask again")
    assert found.usage == Usage(total=200, cost=0.03125)
    assert found.metadata == {"$imported": {"from": "continuum", "id": "00000001"}}
    assert steps(hf) == [0, 1, 2]
    assert hf.thread(S).step() == 2
    again = bring(hf, storage)
    assert (again.checkpoints, again.present, again.ok) == (0, 3, True)


def test_a_dry_run_needs_no_store(storage: Path) -> None:
    report = bring(None, storage, dry_run=True)
    assert (report.threads, report.checkpoints, report.ok) == (1, 3, True)


def test_times_of_nanoseconds_are_kept(hf: Holdfast, tmp_path: Path) -> None:
    given = "2024-05-01T12:00:00.123456789Z"
    save(tmp_path / "c", checkpoint(S, 0, created_at=given))
    assert bring(hf, tmp_path / "c").ok
    found = hf.thread(S).load("@0")
    assert found.created_at == datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
    assert found.metadata["$imported"]["rest"] == {"created_at": given}


def test_those_of_one_second_are_in_the_order_of_their_times(hf: Holdfast, tmp_path: Path) -> None:
    """File names have seconds only, and ids are random."""
    for number, id in enumerate(("ffff0000", "0000ffff", "aaaa1111")):
        moment = f"2024-05-01T12:00:00.{number}Z"
        save(tmp_path / "c", checkpoint(S, number, checkpoint_id=id, created_at=moment), second="20240501_120001")
    assert bring(hf, tmp_path / "c").ok
    assert steps(hf) == [0, 1, 2]


def test_a_session_that_was_resumed_at_an_earlier_iteration(hf: Holdfast, storage: Path) -> None:
    """The order is that of saving, not of iterations."""
    save(storage, checkpoint(S, 3, iteration=1))
    assert bring(hf, storage).ok
    assert steps(hf) == [0, 1, 2, 1]
    assert hf.thread(S).step() == 1


# -- checksums -------------------------------------------------------------------------------------------------------


def edited(path: Path, change: Callable[[bytes], bytes]) -> None:
    data = path.read_bytes()
    path.write_bytes(change(data))
    assert path.read_bytes() != data


def test_what_was_changed_is_told_and_taken_by_choice(hf: Holdfast, storage: Path, checkpoints: Path) -> None:
    edited(file_of(checkpoints, 1), lambda data: data.replace(b"Frage 1", b"Frage 7"))
    (checkpoints / "latest.json.backup").unlink()
    report = bring(hf, storage)
    [skipped] = report.skipped
    assert skipped.reason.startswith(
        "its checksum does not match: the file was changed after it was written. Use accept_mismatch=True or "
    )
    assert steps(hf) == [0, 2]
    accepted = bring(hf, storage, accept_mismatch=True, replace=True)
    assert (accepted.checkpoints, accepted.ok) == (3, True)
    [told] = whats(accepted)
    problem = "its checksum does not match: the file was changed after it was written"
    assert told == f"checkpoint 00000001: {problem}. It was imported nevertheless, as accept_mismatch says."
    taken = hf.thread(S).load("@1")
    assert taken.state["messages"][1]["content"].startswith("Frage 7")
    assert taken.metadata["$imported"]["rest"] == {"checksum": "mismatch"}
    assert hf.thread(S).step() == 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"_checksum": "0" * 64, "_version": "1.0"}, "its checksum does not match"),
        ({"_checksum": 7, "_version": "1.0"}, "it has no checksum"),
        ({"_version": "1.0"}, "it has no checksum"),
        ({}, "it has no checksum"),
    ],
)
def test_no_checksum_is_a_mismatch_too(hf: Holdfast, storage: Path, said: dict[str, Any], reason: str) -> None:
    path = save(storage, checkpoint(S, 3))
    path.write_text(json.dumps({**checkpoint(S, 3), **said}))
    report = bring(hf, storage)
    assert report.skipped[0].reason.startswith(reason)
    assert bring(hf, storage, accept_mismatch=True, replace=True).ok
    assert steps(hf) == [0, 1, 2, 3]


@pytest.mark.parametrize("version", ["2.0", 1.0, None])
def test_a_version_that_is_not_known_is_not_taken(hf: Holdfast, storage: Path, version: object) -> None:
    path = save(storage, checkpoint(S, 3))
    path.write_text(written({**sealed(checkpoint(S, 3)), "_version": version}))
    report = bring(hf, storage, accept_mismatch=True)
    assert [finding.reason for finding in report.skipped] == [
        "it has an unknown version of Continuum's format; only 1.0 is supported"
    ]


def test_numbers_are_compared_as_they_were_written(hf: Holdfast, storage: Path) -> None:
    """Continuum reads some of these as others, and then refuses what it wrote itself."""
    numbers = [5e-324, 1e-7, 1.5e-5, 0.00001, 0.1 + 0.2, 1e15, 1e16, 1.7976931348623157e308, -0.0, -2.5e-9, 123456.789]
    save(storage, checkpoint(S, 3, tool_results={"numbers": numbers, "big": 2**70}))
    report = bring(hf, storage)
    assert report.ok
    assert hf.thread(S).load("@3").state["tool_results"]["numbers"] == numbers
    assert hf.thread(S).load("@3").state["tool_results"]["big"] == 2**70


@pytest.mark.parametrize("text", ["\x00\x1f\x7f\u2028", '"\\/\b\f\n\r\t', "é☃😀", "__mark__1.5"])
def test_texts_are_escaped_as_it_does(hf: Holdfast, storage: Path, text: str) -> None:
    save(storage, checkpoint(S, 3, messages=[{"role": "user", text: text}]))
    assert bring(hf, storage).ok
    assert hf.thread(S).load("@3").state["messages"] == [{"role": "user", text: text}]


# -- links and backups -----------------------------------------------------------------------------------------------


def test_a_backup_stands_in_for_a_file_that_is_torn(hf: Holdfast, storage: Path, checkpoints: Path) -> None:
    torn = file_of(checkpoints, 1)
    edited(torn, lambda data: data[:200])
    report = bring(hf, storage)
    assert (report.checkpoints, report.ok) == (3, True)
    assert whats(report) == [
        f"checkpoint 00000001: file {torn.name}: it is cut off in the middle; the copy latest.json.backup was used"
    ]
    assert steps(hf) == [0, 1, 2]
    assert bring(hf, storage).present == 3


def test_and_for_one_that_is_gone(hf: Holdfast, storage: Path, checkpoints: Path) -> None:
    file_of(checkpoints, 1).unlink()
    report = bring(hf, storage)
    assert (report.checkpoints, report.ok) == (3, True)
    assert whats(report) == ["checkpoint 00000001: its file is missing; the copy latest.json.backup was used"]
    assert steps(hf) == [0, 1, 2]


@pytest.mark.parametrize("accept_mismatch", [False, True])
def test_a_backup_that_fits_is_better_than_what_does_not(
    hf: Holdfast, storage: Path, checkpoints: Path, accept_mismatch: bool
) -> None:
    edited(file_of(checkpoints, 1), lambda data: data.replace(b"Frage 1", b"Frage 7"))
    report = bring(hf, storage, accept_mismatch=accept_mismatch)
    assert report.ok
    assert whats(report)[0].endswith("the copy latest.json.backup was used")
    assert hf.thread(S).load("@1").state == {
        name: checkpoint(S, 1)[name] for name in ("messages", "tool_calls_pending", "tool_results")
    }


def test_a_backup_that_is_damaged_too(hf: Holdfast, storage: Path, checkpoints: Path) -> None:
    edited(file_of(checkpoints, 1), lambda data: data[:200])
    edited(checkpoints / "latest.json.backup", lambda data: data[:300])
    report = bring(hf, storage)
    assert [finding.reason for finding in report.skipped] == ["it is cut off in the middle"]
    assert whats(report) == ["file latest.json.backup: it is a backup that cannot be read"]
    assert steps(hf) == [0, 2]


def test_a_copy_for_latest_as_on_windows(hf: Holdfast, storage: Path, checkpoints: Path) -> None:
    newest = file_of(checkpoints, 2)
    (checkpoints / "latest.json").unlink()
    shutil.copy(newest, checkpoints / "latest.json")
    report = bring(hf, storage)
    assert (report.checkpoints, report.ok, report.remarks) == (3, True, ())
    newest.unlink()
    assert bring(hf, storage).present == 3


@pytest.mark.parametrize(
    ("target", "remark"),
    [
        (None, "the file is missing; the thread resumes from the newest checkpoint"),
        ("cp_20240501_120900_0badc0de.json", "it does not name the newest readable checkpoint"),
        ("/etc/passwd", "it does not name the newest readable checkpoint"),
        ("../../../secret.json", "it does not name the newest readable checkpoint"),
        ("cp_20240501_120000_00000000.json", "it does not name the newest readable checkpoint"),
    ],
)
def test_a_latest_that_is_wrong(
    hf: Holdfast, storage: Path, checkpoints: Path, target: str | None, remark: str
) -> None:
    (checkpoints / "latest.json").unlink()
    if target is not None:
        (checkpoints / "latest.json").symlink_to(target)
    report = bring(hf, storage)
    assert (report.checkpoints, report.ok) == (3, True)
    assert len(report.remarks) == 1
    assert whats(report)[0].startswith(f"latest.json: {remark}")
    assert hf.thread(S).step() == 2


def test_links_are_not_followed(hf: Holdfast, storage: Path, checkpoints: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    play(elsewhere, "other")
    outside = file_of(elsewhere / "other" / "checkpoints", 2)
    (storage / "linked").symlink_to(elsewhere / "other")
    (storage / "half").mkdir()
    (storage / "half" / "checkpoints").symlink_to(elsewhere / "other" / "checkpoints")
    (checkpoints / "cp_20240501_130000_11111111.json").symlink_to(outside)
    (checkpoints / "old.backup").symlink_to(outside)
    report = bring(hf, storage)
    assert {(finding.thread, finding.what) for finding in report.skipped} == {
        (None, "linked: it is a link, and links are not followed"),
        (None, "half/checkpoints: it is a link, and links are not followed"),
        (S, "file cp_20240501_130000_11111111.json: it is a link, and links are not followed"),
    }
    assert [thread.name for thread in hf.threads()] == [S]
    assert steps(hf) == [0, 1, 2]


def test_what_killed_writers_leave_is_named(hf: Holdfast, storage: Path, checkpoints: Path) -> None:
    (checkpoints / ".tmp_latest_1234").symlink_to("cp_x.json")
    (checkpoints / ".tmp_5678").write_bytes(b"{")
    (storage / S / "session_meta.json").write_text("{}")
    report = bring(hf, storage)
    assert report.ok
    assert whats(report) == [
        f"file {name}: it is not a checkpoint; a killed writer leaves such files"
        for name in (".tmp_5678", ".tmp_latest_1234")
    ]


# -- damaged and hostile ---------------------------------------------------------------------------------------------


DAMAGE: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: data[: len(data) // 2], "it is cut off in the middle"),
    (lambda _: b"", "it is empty"),
    (lambda data: data.replace(b"Frage", b"\xff\xfe"), "it is not UTF-8"),
    (lambda data: data.replace(b'"iteration": 1', b'"iteration": NaN'), "it contains NaN"),
    (lambda data: data.replace(b'"iteration": 1', b'"iteration": 1e999'), "it contains a number that is too large"),
    (lambda data: data.replace(b'"iteration": 1', b'"iteration": "1"'), "its checksum does not match"),
    (lambda _: b"[" * 100_000, "it is nested too deeply"),
    (lambda _: b"[]", "it is not a JSON object"),
]


@pytest.mark.parametrize(("change", "reason"), DAMAGE)
def test_a_damaged_file_is_skipped_and_the_others_come(
    hf: Holdfast, storage: Path, checkpoints: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    (checkpoints / "latest.json.backup").unlink()
    edited(file_of(checkpoints, 1), change)
    report = bring(hf, storage)
    assert (report.checkpoints, report.ok, len(report.skipped)) == (2, False, 1)
    assert report.skipped[0].reason.startswith(reason)
    assert steps(hf) == [0, 2]


@pytest.mark.parametrize(
    ("change", "rest", "usage"),
    [
        ({"cost_estimate": None}, {"cost_estimate": None}, Usage(total=400)),
        ({"cost_estimate": -1.0}, {"cost_estimate": -1.0}, Usage(total=400)),
        ({"cost_estimate": 10**400}, {"cost_estimate": 10**400}, Usage(total=400)),
        ({"tokens_used": -7}, {"tokens_used": -7}, Usage(cost=0.0625)),
        ({"session_id": "other"}, {"session_id": "other"}, Usage(total=400, cost=0.0625)),
        ({"iteration": -1}, {"iteration": -1}, Usage(total=400, cost=0.0625)),
        ({"created_at": "soon"}, {"created_at": "soon"}, Usage(total=400, cost=0.0625)),
        ({"extra": [1]}, {"extra": [1]}, Usage(total=400, cost=0.0625)),
    ],
)
def test_what_has_no_place_here_is_kept_and_said(
    hf: Holdfast, storage: Path, checkpoints: Path, change: dict[str, Any], rest: dict[str, Any], usage: Usage
) -> None:
    path = checkpoints / "cp_20240501_120300_00000003.json"
    path.write_text(written(sealed({**checkpoint(S, 3), **change})))
    report = bring(hf, storage)
    assert report.ok
    found = next(hf.thread(S).history())
    assert found.metadata["$imported"]["rest"] == rest
    assert found.usage == usage
    remarks = [finding for finding in report.remarks if finding.item == "checkpoint 00000003"]
    assert len(remarks) == ("extra" not in change)


def test_an_id_that_is_there_twice(hf: Holdfast, storage: Path) -> None:
    """Saved again a second later, the same or with something new."""
    save(storage, checkpoint(S, 2), second="20240501_120201")
    save(storage, checkpoint(S, 2, tokens_used=999, messages=[]), second="20240501_120202")
    report = bring(hf, storage)
    assert (report.checkpoints, report.ok) == (4, True)
    assert bring(hf, storage).present == 4
    found = hf.thread(S).latest()
    assert found is not None
    assert found.state["messages"] == []


def test_any_byte_may_be_wrong(storage: Path, checkpoints: Path) -> None:
    """The checksum tells what JSON does not; a blank more or less is no damage."""
    (checkpoints / "latest.json.backup").unlink()
    path = file_of(checkpoints, 1)
    data = path.read_bytes()
    for place in spread(range(len(data)), tries(len(data), 60)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x04]) + data[place + 1 :])
        report = bring(None, storage, dry_run=True)
        assert (report.checkpoints, len(report.skipped)) == (2, 1), data[place - 20 : place + 5]


def test_a_large_file_is_not_read(hf: Holdfast, storage: Path) -> None:
    save(storage, checkpoint(S, 3, messages=["x" * 20_000]))
    report = bring(hf, storage, max_file_bytes=10_000)
    assert (report.checkpoints, len(report.skipped)) == (3, 1)
    assert "the limit is 10000" in report.skipped[0].reason


def test_what_is_no_folder_of_continuum(hf: Holdfast, storage: Path, checkpoints: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        bring(hf, storage / "nowhere")
    with pytest.raises(InvalidArgument, match="is not a folder"):
        bring(hf, file_of(checkpoints, 1))
    with pytest.raises(InvalidArgument, match="contains no Continuum session"):
        bring(hf, storage / S)
    with pytest.raises(InvalidArgument, match="Give the folder that contains the session folders"):
        bring(hf, checkpoints)
    os.mkdir(storage / "new")
    assert bring(hf, storage).ok
