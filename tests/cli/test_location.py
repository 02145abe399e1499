"""Which store a command uses when it is not told, and that it says so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.cli.terminal import Exit


def made(path: Path, name: str, **given: str) -> None:
    with holdfast.open(path, durability="off", **given) as hf:  # type: ignore[arg-type]
        hf.thread(name).save({"n": 1})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, and a data folder."""
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> object:
    def listed(*words: str) -> tuple[int, list[str], str]:
        code = main(["threads", *words])
        out, err = capsys.readouterr()
        return code, [line.split()[0] for line in out.splitlines()[1:]], err

    return listed


def test_the_order(listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    data = tmp_path / "data" / "holdfast" / "holdfast.db"
    code, names, err = listed()
    assert (code, names) == (Exit.NOT_FOUND, [])
    assert err.startswith(f"using {data} (in your data folder)\nholdfast threads: there is no store at {data}; ")
    assert "holdfast demo" in err
    made(data, "in-data")
    assert listed() == (0, ["in-data"], f"using {data} (in your data folder)\n")
    made(Path("agent.db"), "in-folder")
    assert listed() == (0, ["in-folder"], "using agent.db (found in the current folder)\n")
    made(tmp_path / "other.db", "named")
    Path("holdfast.toml").write_text('store = "../other.db"\n')
    assert listed() == (0, ["named"], "using ../other.db (named in holdfast.toml)\n")
    made(tmp_path / "third.db", "set")
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "third.db"))
    assert listed() == (0, ["set"], f"using {tmp_path / 'third.db'} ($HOLDFAST_STORE)\n")
    assert listed("--store", "agent.db") == (0, ["in-folder"], "")


def test_a_command_with_a_store_leaves_no_folder_behind(listed, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    made(tmp_path / "other.db", "named")
    assert main(["inbox", "--store", str(tmp_path / "other.db")]) == 0
    assert not (tmp_path / "data").exists()


def test_only_a_store_counts_and_several_are_a_question(listed) -> None:  # type: ignore[no-untyped-def]
    with closing(sqlite3.connect("other.db")) as other:
        other.execute("CREATE TABLE t (a)")
    Path("text.db").write_text("no database")
    Path("empty.db").touch()
    Path("folder.db").mkdir()
    made(Path("agent.db"), "mine")
    assert listed()[1] == ["mine"]
    made(Path("second.db"), "theirs")
    code, names, err = listed()
    assert (code, names) == (Exit.USAGE, [])
    assert err == (
        "holdfast threads: the current folder has 2 stores: agent.db, second.db; nothing was opened. "
        "Choose one with --store.\n"
    )
    assert listed("--store", "second.db")[1] == ["theirs"]


def test_settings_name_the_namespace_too(listed) -> None:  # type: ignore[no-untyped-def]
    made(Path("agent.db"), "mine", namespace="a")
    Path("holdfast.toml").write_text('store = "agent.db"\nnamespace = "a"\n')
    assert listed()[1] == ["mine"]
    assert listed("--namespace", "b")[1] == []
    assert listed("--store", "agent.db")[1] == [], "settings are of the store that they name"


@pytest.mark.parametrize("text", ["store = 7", "", "store = ", 'store = ""', 'store = "a"\nnamespace = 1'])
def test_settings_that_cannot_be_used_are_reported(listed, text: str) -> None:  # type: ignore[no-untyped-def]
    Path("holdfast.toml").write_text(text)
    code, _, err = listed()
    assert (code, err.count("\n")) == (Exit.USAGE, 1)
    assert err.startswith("holdfast threads: ")
    assert "holdfast.toml" in err


def test_a_worker_makes_the_store_that_settings_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("holdfast.toml").write_text('store = "new.db"\n')
    assert main(["submit", "h", "t", "--start", "{}"]) == 0
    assert Path("new.db").exists()
    capsys.readouterr()
    assert main(["inbox", "--stuck-after", "0"]) == 0
    assert "no worker claims it" in capsys.readouterr().out
