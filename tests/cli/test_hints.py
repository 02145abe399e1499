"""Hints: each screen and each error names the next thing to do."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.cli.terminal import Exit
from tests.cli.conftest import Folder
from tests.cli.given import Said, asking, in_doubt, opened, said, store

__all__ = ["said", "store"]  # fixtures

ENDLESS = """
import pathlib

def steps(run):
    for step in run.steps():
        run.state["n"] = run.model(lambda: step)
        pathlib.Path("started").touch()  # an interrupt here leaves no open file to warn of
handlers = {"h": steps}
"""


def test_a_checkpoint_without_its_thread_is_one_of_the_newest(said: Said, store: Path) -> None:
    code, out, err = said("show", "@two", "--raw")
    assert (code, out) == (0, '{\n  "n": 2\n}\n')
    assert err == "thread notes (the newest)\n"
    assert said("diff", "@1", "@two")[:2] == (0, "~ $.n  1 → 2\n")
    with opened(store) as hf:
        hf.thread("@two").save({"n": 7})
    assert said("show", "@two", "--raw")[1:] == ('{\n  "n": 7\n}\n', "")


def test_a_store_that_is_not_there(said: Said, store: Path, tmp_path: Path) -> None:
    code, err = said.refused("threads", "--store", "agnet.db")
    assert code == Exit.NOT_FOUND
    assert err == "holdfast threads: there is no store at agnet.db; the current folder has agent.db\n"
    code, err = said.refused("threads", "--store", "other/agent.db")
    assert err == "holdfast threads: there is no store at other/agent.db; the current folder has agent.db\n"
    (tmp_path / "agent.db").rename(tmp_path / "moved")
    code, err = said.refused("threads", "--store", "dir:nothing")
    assert err.endswith("there is no store at nothing; check the path, or try `holdfast demo`\n")


def test_a_thread_that_is_not_there(said: Said, store: Path) -> None:
    assert said.refused("show", "zzz") == (
        Exit.NOT_FOUND,
        "holdfast show: there is no thread 'zzz'; `holdfast threads` lists the threads\n",
    )


def test_erase_says_what_is_missing(said: Said, store: Path) -> None:
    assert said.refused("erase") == (2, "holdfast erase: name a thread, or pass --metadata\n")
    assert said.refused("erase", "notes", "--metadata", "a=1") == (
        2,
        "holdfast erase: name a thread or pass --metadata, not both\n",
    )


def test_commands_to_copy_explain_their_capital_words(said: Said, store: Path) -> None:
    asking(store)
    assert said("inbox")[2] == "VALUE in a command is JSON, like true or '\"text\"'\n"
    in_doubt(store)
    assert said("inbox")[2] == "VALUE and RESULT in a command are JSON, like true or '\"text\"'\n"
    assert said("inbox", "--name", "pay")[2] == "RESULT in a command is JSON, like true or '\"text\"'\n"


def test_show_names_the_command_that_resumes(said: Said, store: Path) -> None:
    with opened(store) as hf, hf.run("left", start={"n": 0}):
        pass
    assert "\n  recovery: continues after step 0\n    holdfast resume APP left\n" in said("show", "left")[1]


def test_submit_says_who_runs_it(said: Said, store: Path) -> None:
    code, out, err = said("submit", "h", "t", "--start", "{}")
    assert (code, out) == (0, "'t' is queued for handler 'h'\n")
    assert err == "`holdfast worker APP` runs it; APP names your handlers, as module:attribute, like app:handlers\n"


def test_a_result_that_waits_for_a_person(said: Said, store: Path) -> None:
    asking(store)
    code, err = said.refused("result", "asks")
    assert code == Exit.CONFLICT
    assert err.endswith("is waiting and has no result yet; `holdfast inbox` shows what it waits for\n")


class Keyboard:
    def __init__(self, typed: str) -> None:
        self._typed = typed

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        if self._typed == "^C":
            raise KeyboardInterrupt
        return ""  # as after Ctrl-D


@pytest.mark.parametrize(("typed", "code"), [("^C", Exit.INTERRUPTED), ("^D", Exit.OK)])
def test_a_question_that_is_interrupted(
    typed: str, code: Exit, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["drop", "notes"]) == code
    assert capsys.readouterr().err.endswith("Continue? [y/N] \nnothing was changed\n")
    with opened(store) as hf:
        assert [info.name for info in hf.threads()] == ["notes"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_resume_that_is_stopped_releases_the_run(folder: Folder, number: signal.Signals) -> None:
    folder.write("app.py", ENDLESS)
    with folder.open() as hf:
        hf.submit("h", "t", start={"n": 0})
    resumed = folder.start("resume", "app:handlers", "t", "--store", "agent.db")
    with folder.open() as hf:
        resumed.wait_until((folder.path / "started").exists)
        resumed.send(number)
        assert resumed.end() == Exit.INTERRUPTED
        assert run_of(hf).status == "queued"  # so that a worker takes it, too
    assert resumed.err == "holdfast resume: stopped; 't' is released. Run the command again to resume it.\n"


def run_of(hf: holdfast.Holdfast) -> holdfast.types.RunInfo:
    found = hf.run_info("t")
    assert found is not None
    return found
