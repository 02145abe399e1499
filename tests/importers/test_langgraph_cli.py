"""`holdfast import`: what a person sees, and what a script relies on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.cli.main import main
from tests.cli.conftest import Folder
from tests.importers.sources import edit, play, postgres_saver, postgres_schema, sqlite_saver, tuples
from tests.waiting import DEADLINE


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()


def test_a_file_is_imported_and_again_is_nothing_new(folder: Folder, small: Path) -> None:
    code, out, err = folder.run("import", "langgraph-sqlite", str(small), "--store", str(folder.store))

    assert (code, err) == (0, "")
    assert out.startswith("3 threads: 16 checkpoints and ")
    assert out.endswith(" writes imported, 0 already present, 16 read back and compared\n")
    with folder.open() as hf, sqlite_saver(small) as theirs:
        assert tuples(HoldfastSaver(hf), "chat") == tuples(theirs, "chat")
    code, out, err = folder.run("import", "langgraph-sqlite", str(small), "--store", str(folder.store))
    assert (code, err) == (0, "")
    assert "0 checkpoints and 0 writes imported, 16 already present, 16 read back" in out


def test_a_database_in_postgresql_is_imported(folder: Folder) -> None:
    with postgres_schema() as url:
        with postgres_saver(url) as saver:
            play(saver, "chat")
        code, out, err = folder.run("import", "langgraph-postgres", url, "--store", str(folder.store))
    assert (code, err) == (0, "")
    assert out.startswith("1 thread: 9 checkpoints and ")


def test_a_dry_run_leaves_no_store(folder: Folder, small: Path) -> None:
    code, out, err = folder.run("import", "langgraph-sqlite", str(small), "--store", str(folder.store), "--dry-run")
    assert (code, err) == (0, "")
    assert "16 checkpoints and " in out
    assert out.endswith(" writes would be imported, 0 already present, nothing was stored\n")
    assert not folder.store.exists()

    with folder.open():
        pass
    code, *_ = folder.run("import", "langgraph-sqlite", str(small), "--store", str(folder.store), "--dry-run")
    assert code == 0
    with folder.open() as hf:
        assert not [*hf.threads()]


def test_what_differs_is_an_error(folder: Folder, small: Path) -> None:
    folder.run("import", "langgraph-sqlite", str(small), "--store", str(folder.store))
    edit(small, "UPDATE checkpoints SET metadata = '{}' WHERE rowid = 1")
    code, out, err = folder.run("import", "langgraph-sqlite", str(small), "--store", str(folder.store), "--json")
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert not told["ok"]
    assert [each["reason"] for each in told["differing"]] == ["differs from the source: its metadata"]
    assert (told["threads"], told["checkpoints"], told["present"], told["skipped"]) == (3, 0, 16, [])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["langraph-sqlite", "x"], 2, "unknown format 'langraph-sqlite'; did you mean 'langgraph-sqlite'?"),
        (["csv", "x"], 2, "unknown format 'csv'; formats: "),
        (["langgraph-sqlite", "nowhere.db"], 3, "there is no file nowhere.db"),
        (["langgraph-sqlite", "notes.txt"], 2, "notes.txt cannot be read as a SQLite database"),
        (["langgraph-postgres", "postgresql://u:secret@127.0.0.1:1/x"], 1, "the database to import from cannot be"),
        (["langgraph-postgres", "secret"], 2, "this is not a database URL"),
        (["langgraph-sqlite"], 2, "the argument SOURCE is missing"),
        (["langgraph-sqlite", "x", "--dry-rum"], 2, "did you mean '--dry-run'?"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_no_store(
    folder: Folder, words: list[str], code: int, message: str
) -> None:
    folder.write("notes.txt", "these are notes " * 100)
    got, out, err = folder.run("import", *words, "--store", str(folder.store))
    assert (got, out) == (code, "")
    assert err.startswith("holdfast import: ")
    assert message in err
    assert err.count("\n") == 1
    assert "secret" not in err
    assert not folder.store.exists()


def test_help_names_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--help"]) == 0
    out = capsys.readouterr().out
    assert "langgraph-sqlite FILE" in " ".join(out.split())
    assert "--dry-run" in out


@pytest.mark.parametrize(
    ("kind", "missing", "extra"),
    [("langgraph-sqlite", "langgraph", "langgraph"), ("langgraph-postgres", "psycopg", "postgres")],
)
def test_without_its_extra_the_message_names_it(tmp_path: Path, kind: str, missing: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from holdfast.cli.main import main\n"
        f"sys.exit(main(['import', {kind!r}, 'x', '--store', {str(tmp_path / 'agent.db')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert done.returncode == 1
    assert f'pip install "holdfast[{extra}]"' in done.stderr
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.iterdir()]
