"""What a source has in places where it is not looked for is told, and so are times that are none."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidArgument, NotFound
from holdfast.importers import Report, import_from
from tests.importers import claude_source, continuum_source, openai_agents_source, smooth_source
from tests.importers.sources import edit

LINK = "it is a link, and links are not followed"
NO_TIME = "it has no valid time; the time of the import is used"


def told(report: Report) -> dict[str | None, str]:
    """What was skipped and remarked, by the place."""
    return {finding.item or finding.thread: finding.reason for finding in (*report.skipped, *report.remarks)}


# -- links and files ---------------------------------------------------------------------------------------------------


def test_smooth_an_agent_that_is_a_link(hf: Holdfast, tmp_path: Path) -> None:
    smooth_source.write_files(tmp_path / "elsewhere", "linked", "deep")
    smooth_source.write_files(tmp_path / "smooth", "agent")
    (tmp_path / "smooth" / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
    (tmp_path / "smooth" / "agent" / "deep").symlink_to(tmp_path / "elsewhere" / "deep")
    report = import_from(hf, "smooth-file", str(tmp_path / "smooth"))
    assert (report.threads, report.checkpoints, report.ok) == (1, 4, False)
    assert told(report) == {"agent/deep": LINK, "linked": LINK}


def test_smooth_files_that_are_in_no_agents_folder(hf: Holdfast, tmp_path: Path) -> None:
    smooth_source.write_files(tmp_path, "agent")
    (tmp_path / "stray.json").write_text(json.dumps(smooth_source.checkpoints("")[0]))
    (tmp_path / "settings.json").write_text("{}")
    report = import_from(hf, "smooth-file", str(tmp_path))
    assert [finding.what for finding in report.skipped] == ["file stray.json: it is not in the folder of an agent"]
    assert [finding.what for finding in report.remarks] == ["file settings.json: it is not a checkpoint"]


def test_claude_a_project_that_is_a_link(hf: Holdfast, tmp_path: Path) -> None:
    transcript = claude_source.Transcript()
    transcript.prompt("Hello")
    for folder in ("projects/one", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        text = "".join(json.dumps(line) + "\n" for line in transcript.lines)
        (tmp_path / folder / f"{folder[:3]}.jsonl").write_text(text)
    (tmp_path / "projects" / "two").symlink_to(tmp_path / "elsewhere")
    report = import_from(hf, "claude-transcript", str(tmp_path / "projects"))
    assert (report.threads, report.ok) == (1, False)
    assert [(finding.thread, finding.what) for finding in report.skipped] == [
        (None, f"folder {tmp_path / 'projects' / 'two'}: {LINK}")
    ]


def test_continuum_what_is_no_session(hf: Holdfast, tmp_path: Path) -> None:
    folder = tmp_path / "continuum"
    continuum_source.play(folder, "5f3a9c01")
    (folder / "odd").mkdir()
    (folder / "odd" / "checkpoints").write_text("")
    (folder / "dangling").mkdir()
    (folder / "dangling" / "checkpoints").symlink_to(tmp_path / "nowhere")
    (folder / "empty").mkdir()
    (folder / "cp_20240501_120000_0badc0de.json").write_text("{}")
    report = import_from(hf, "continuum", str(folder))
    assert {finding.item: finding.reason for finding in report.skipped} == {
        "odd/checkpoints": "it is not a folder",
        "dangling/checkpoints": LINK,
    }
    assert {finding.item: finding.reason for finding in report.remarks} == {
        "empty": "it is a folder without checkpoints",
        "cp_20240501_120000_0badc0de.json": "it is not in a session folder",
    }


def test_openai_a_session_without_items(hf: Holdfast, tmp_path: Path) -> None:
    path = openai_agents_source.write_sessions(tmp_path / "sessions.db", "s")
    with closing(openai_agents_source.connect(path)) as connection:
        openai_agents_source.add_items(connection, "silent", [], 0)
    report = import_from(hf, "openai-agents-sqlite", str(path))
    assert (report.threads, report.ok) == (1, True)
    assert [finding.what for finding in report.remarks] == ["session silent: it has no items"]


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ["not a time", 5, "0001-01-01 00:00:00", None, b"\xff"])
def test_openai_a_time_that_is_none(hf: Holdfast, tmp_path: Path, odd: Any) -> None:
    path = openai_agents_source.write_sessions(tmp_path / "sessions.db", "s")
    edit(path, "UPDATE agent_messages SET created_at = ? WHERE id = 2", odd)
    report = import_from(hf, "openai-agents-sqlite", str(path))
    assert [finding.what for finding in report.remarks] == [f"checkpoint 2: {NO_TIME}"]
    assert hf.thread("s").load("@2").metadata["$imported"]["rest"] == {"created_at": odd}
    assert import_from(hf, "openai-agents-sqlite", str(path)).ok


def test_openai_a_time_that_is_no_text_costs_no_item(hf: Holdfast, tmp_path: Path) -> None:
    path = openai_agents_source.write_sessions(tmp_path / "sessions.db", "s")
    edit(path, "UPDATE agent_messages SET created_at = CAST(x'ff41' AS TEXT) WHERE id = 2")
    report = import_from(hf, "openai-agents-sqlite", str(path))
    assert report.ok
    assert hf.thread("s").load("@2").metadata["$imported"]["rest"] == {"created_at": "\udcffA"}


@pytest.mark.parametrize("odd", ["not a time", 5, None])
def test_claude_a_time_that_is_none(hf: Holdfast, tmp_path: Path, odd: Any) -> None:
    transcript = claude_source.Transcript()
    uuid = transcript.prompt("Hello", timestamp=odd)
    (tmp_path / "s.jsonl").write_text(json.dumps(transcript.lines[0]) + "\n")
    report = import_from(hf, "claude-transcript", str(tmp_path / "s.jsonl"))
    assert [finding.what for finding in report.remarks] == [f"checkpoint {uuid}: {NO_TIME}"]


def test_smooth_a_time_that_is_none_is_kept(hf: Holdfast, tmp_path: Path) -> None:
    path = smooth_source.write_sqlite(tmp_path / "smooth.db", "agent")
    edit(path, "UPDATE checkpoints SET created_at = 'x' WHERE rowid = 1")
    report = import_from(hf, "smooth-sqlite", str(path))
    assert [finding.reason for finding in report.remarks] == [NO_TIME]
    assert [*hf.thread("agent").history()][-1].metadata["$imported"]["rest"] == {"created_at": "x"}


def test_smooth_files_are_in_the_order_of_their_nanoseconds(hf: Holdfast, tmp_path: Path) -> None:
    """Zeros at the end are left away there."""
    for iteration, fraction in enumerate(["", ".000000001", ".1", ".123", ".123456", ".123456789"], 1):
        said = {**smooth_source.checkpoints("agent")[0], "iteration": iteration, "id": f"id-{9 - iteration}"}
        said["created_at"] = f"2026-03-01T10:00:00{fraction}Z"
        (tmp_path / "agent").mkdir(exist_ok=True)
        (tmp_path / "agent" / f"{said['id']}.json").write_text(json.dumps(said))
    assert import_from(hf, "smooth-file", str(tmp_path)).ok
    assert [found.step for found in hf.thread("agent").history()][::-1] == [1, 2, 3, 4, 5, 6]


def test_checkpoints_of_continuum_are_in_the_order_of_their_nanoseconds(hf: Holdfast, tmp_path: Path) -> None:
    fractions = ["", ".000000001", ".25", ".250001", ".250001001"]
    for number, fraction in enumerate(fractions):
        said = continuum_source.checkpoint(
            "s", 9 - number, iteration=number, created_at=f"2024-05-01T12:00:01{fraction}Z"
        )
        continuum_source.save(tmp_path, said)
    assert import_from(hf, "continuum", str(tmp_path)).checkpoints == len(fractions)
    assert [found.step for found in hf.thread("s").history()][::-1] == [0, 1, 2, 3, 4]


# -- what is no database -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["smooth-sqlite", "openai-agents-sqlite"])
def test_a_database_that_is_cut_off_or_a_folder(kind: str, tmp_path: Path) -> None:
    path = smooth_source.write_sqlite(tmp_path / "smooth.db", "agent")
    shutil.copy(path, tmp_path / "cut.db")
    (tmp_path / "cut.db").write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InvalidArgument, match=r"sqlite3 FILE \.recover"):
        import_from(None, kind, str(tmp_path / "cut.db"), dry_run=True)
    with pytest.raises(InvalidArgument, match="is a folder"):
        import_from(None, kind, str(tmp_path), dry_run=True)
    with pytest.raises(NotFound):
        import_from(None, kind, str(tmp_path / "nowhere"), dry_run=True)
