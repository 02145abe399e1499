"""`holdfast import` of what other agents left: what a person sees of each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Folder
from tests.importers.claude_source import write_project
from tests.importers.openai_agents_source import write_sessions
from tests.importers.smooth_source import write_files, write_sqlite

FORMATS: dict[str, tuple[Callable[[Path], Path], int, int]] = {
    "smooth-file": (lambda path: write_files(path, "agent-1", "agent-2"), 2, 8),
    "smooth-sqlite": (lambda path: write_sqlite(path, "agent-1", "agent-2"), 2, 8),
    "openai-agents-sqlite": (lambda path: write_sessions(path, "support-1", "support-2"), 2, 18),
    "claude-transcript": (write_project, 4, 19),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_dry_run_then_the_import_then_nothing_new(folder: Folder, tmp_path: Path, kind: str) -> None:
    write, threads, checkpoints = FORMATS[kind]
    source = write(tmp_path / "source")

    code, out, err = folder.run("import", kind, str(source), "--store", str(folder.store), "--dry-run")
    assert (code, err) == (0, "")
    assert f"{threads} threads: {checkpoints} checkpoints and 0 writes would be imported" in out
    assert not folder.store.exists()

    code, out, err = folder.run("import", kind, str(source), "--store", str(folder.store))
    assert (code, err) == (0, "")
    assert out.endswith(
        f"{threads} threads: {checkpoints} checkpoints and 0 writes imported, 0 already present, "
        f"{checkpoints} read back and compared\n"
    )

    code, out, err = folder.run("import", kind, str(source), "--store", str(folder.store), "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["ok"], told["checkpoints"], told["existing"], told["present"]) == (True, 0, threads, checkpoints)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_no_source_is_one_line_and_leaves_no_store(folder: Folder, tmp_path: Path, kind: str) -> None:
    (tmp_path / "notes.txt").write_text("these are notes " * 100)
    for name, code in (("notes.txt", 2), ("nowhere", 3)):
        got, out, err = folder.run("import", kind, str(tmp_path / name), "--store", str(folder.store))
        assert (got, out) == (code, "")
        assert err.startswith("holdfast import: ")
        assert err.count("\n") == 1
        assert not folder.store.exists()


def test_what_was_skipped_is_told_and_is_an_error(folder: Folder, tmp_path: Path) -> None:
    source = write_project(tmp_path / "source")
    [path] = source.rglob("0ld*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"type": "user", "uuid": "\x1b[2J')
    code, out, err = folder.run("import", "claude-transcript", str(source), "--store", str(folder.store))
    assert (code, err) == (1, "")
    assert "skipped: thread '0ld0ld0l-0000-4000-8000-000000000002': line 7: it is " in out
    assert out.endswith(", 1 skipped, 0 differ\n")
    assert "\x1b" not in out
