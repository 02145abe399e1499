"""`holdfast import` of what other systems left: options, findings, exit codes."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.importers import FORMATS
from tests.cli.conftest import Folder
from tests.importers import ares_source, continuum_source


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> list[str]:
    return ["--store", str(tmp_path / "agent.db")]


def test_a_source_is_imported_and_again_is_nothing_new(folder: Folder, store: list[str]) -> None:
    ares_source.play(folder.path / "ares", "sess1")
    code, out, err = folder.run("import", "ares", "ares", *store)
    assert (code, err) == (0, "")
    assert out == "1 thread: 3 checkpoints and 0 writes imported, 0 already present, 3 read back and compared\n"
    code, out, err = folder.run("import", "ares", "ares", *store)
    assert (code, err) == (0, "")
    assert out == (
        "1 thread: 0 checkpoints and 0 writes imported, 3 already present, 0 read back and compared\n"
        "1 thread exists and was skipped; use --replace to import again\n"
    )
    code, out, err = folder.run("import", "ares", "ares", "--replace", *store)
    assert (code, err) == (0, "")
    assert out == "1 thread: 3 checkpoints and 0 writes imported, 0 already present, 3 read back and compared\n"
    code, out, err = folder.run("log", "sess1", *store)
    assert (code, err) == (0, "")
    assert "completed" in out


def test_what_was_skipped_is_told_with_the_reason(
    tmp_path: Path, store: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ares_source.play(tmp_path / "ares", "sess1")
    path = tmp_path / "ares" / "sess1_1.json"
    path.write_bytes(path.read_bytes()[:300])
    (tmp_path / "ares" / "sess1_latest.json").write_text("")
    assert main(["import", "ares", str(tmp_path / "ares"), *store]) == 1
    skipped, remark, summary = capsys.readouterr().out.splitlines()
    assert skipped == "skipped: thread 'sess1': file sess1_1.json: it is cut off in the middle"
    assert remark.startswith("remark: thread 'sess1': the pointer to the last checkpoint is empty")
    assert summary.endswith("2 read back and compared, 1 skipped, 0 differ")


def test_a_finding_about_the_source_names_no_thread(
    tmp_path: Path, store: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ares_source.play(tmp_path / "ares", "sess1")
    (tmp_path / "ares" / "notes.txt").write_text("")
    assert main(["import", "ares", str(tmp_path / "ares"), *store]) == 0
    assert capsys.readouterr().out.startswith("remark: notes.txt: it is not a checkpoint\n")

    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert main(["export", "-o", str(whole), *store]) == 0
    cut.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:-1]))
    capsys.readouterr()
    assert main(["import", "jsonl", str(cut), "--store", str(tmp_path / "new.db")]) == 1
    assert capsys.readouterr().out.startswith(f"skipped: file {cut}: the file is cut off; the complete threads were")


def test_a_dry_run_leaves_no_store(tmp_path: Path, store: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    ares_source.play(tmp_path / "ares", "sess1")
    assert main(["import", "ares", str(tmp_path / "ares"), "--dry-run", *store]) == 0
    assert capsys.readouterr().out.startswith("1 thread: 3 checkpoints and 0 writes would be imported")
    assert not (tmp_path / "agent.db").exists()


def test_a_mismatch_is_taken_by_choice(tmp_path: Path, store: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    paths = continuum_source.play(tmp_path / "continuum", "5f3a9c01")
    paths[0].write_bytes(paths[0].read_bytes().replace(b"Frage 0", b"Frage 9"))
    words = ["import", "continuum", str(tmp_path / "continuum"), "--json", *store]
    assert main(words) == 1
    told = json.loads(capsys.readouterr().out)
    assert "--accept-mismatch" in told["skipped"][0]["reason"]
    assert main([*words, "--accept-mismatch", "--replace"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["checkpoints"], told["existing"], told["skipped"]) == (3, 0, [])
    assert "It was imported nevertheless, as accept_mismatch says" in told["remarks"][0]["reason"]


def test_large_files_are_skipped(tmp_path: Path, store: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    ares_source.play(tmp_path / "ares", "sess1", 30)
    assert main(["import", "ares", str(tmp_path / "ares"), "--max-file-bytes", "2000", *store]) == 1
    assert "the limit is 2000; raise it with max_file_bytes= or --max-file-bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ares", "x", "--accept-mismatch"], 2, "accept_mismatch is not an option of ares; it is one of continuum"),
        (
            ["langgraph-sqlite", "x", "--replace"],
            2,
            "replace is not an option of langgraph-sqlite; it is one of ",
        ),
        (["jsonl", "x", "--max-file-bytes", "5"], 2, "max_file_bytes is not an option of jsonl; it is one of ares, "),
        (["ares", "x", "--max-file-bytes", "many"], 2, "'many' is not a whole number"),
        (["ares", "x", "--max-file-bytes", "0"], 2, "max_file_bytes must be a whole number, 1 or more"),
        (["ares", "nowhere"], 3, "there is no folder nowhere"),
        (["continuum", "."], 2, ". contains no Continuum session: it has no folder SESSION/checkpoints"),
        (["smooth-sqlite", "nowhere"], 3, "there is no file nowhere"),
        (["aress", "x"], 2, "unknown format 'aress'; did you mean 'ares'?"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_no_store(
    tmp_path: Path,
    store: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", *words, *store]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("holdfast import: ")
    assert message in told.err
    assert told.err.count("\n") == 1
    assert not (tmp_path / "agent.db").exists()


def test_a_source_that_cannot_be_imported_says_what_to_do(
    tmp_path: Path, store: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder" / "empty").mkdir(parents=True)
    (tmp_path / "text").write_text("text")
    (tmp_path / "none").touch()
    with closing(sqlite3.connect(tmp_path / "database")) as connection:
        connection.execute("CREATE TABLE other (id)")
    said = {}
    for name, each in FORMATS.items():
        for source in ("nowhere", "folder", "text", "none", "database") if each.source != "URL" else ():
            assert main(["import", name, str(tmp_path / source), *store]) in (2, 3), (name, source)
            [said[name, source]] = capsys.readouterr().err.splitlines()
    assert len(said) == 5 * (len(FORMATS) - 1)
    wrong = {key: text for key, text in said.items() if not re.search(r"; nothing was imported\. [A-Z].+\.$", text)}
    assert wrong == {}


def test_help_names_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name, each in FORMATS.items():
        assert f"{name} {each.source}: " in out
