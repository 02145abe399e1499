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
    for wrong in ("agnet.db", "other/agent.db"):
        code, err = said.refused("threads", "--store", wrong)
        assert code == Exit.NOT_FOUND
        hint = "the current folder has agent.db: name it with --store"
        assert err == f"holdfast threads: there is no store at {wrong}; {hint}\n"
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
    _, out, err = said("show", "left")
    assert "\n  recovery: continues after step 0\n    holdfast resume APP left\n" in out
    assert err == "APP in a command names your handlers, as module:attribute, like app:handlers\n"


def test_submit_says_who_runs_it(said: Said, store: Path) -> None:
    code, out, err = said("submit", "h", "t", "--start", "{}")
    assert (code, out) == (0, "'t' is queued for handler 'h'\n")
    assert err == "`holdfast worker APP` runs it; APP names your handlers, as module:attribute, like app:handlers\n"


def test_a_result_that_waits_for_a_person(said: Said, store: Path) -> None:
    asking(store)
    code, err = said.refused("result", "asks")
    assert code == Exit.CONFLICT
    assert err.endswith("is waiting and has no result yet; `holdfast inbox` shows what it waits for\n")


def test_show_has_what_the_inbox_has_to_decide(said: Said, store: Path) -> None:
    in_doubt(store)
    asking(store)
    for thread in ("shop", "asks"):
        decision = said("inbox")[1].partition(f"{thread}  ")[2].partition("\n\n")[0].splitlines()[1:]
        assert "\n".join(decision) in said("show", thread)[1], thread


def test_effects_say_what_to_do_about_a_doubt(said: Said, store: Path) -> None:
    in_doubt(store)
    assert said("effects", "shop")[2] == "1 call in doubt: `holdfast inbox` shows how to settle it\n"
    assert said("effects", "notes")[2] == "no recorded calls\n"


def test_the_newest_thread_is_one_of_the_users(said: Said, store: Path) -> None:
    with opened(store) as hf:
        hf.schedule("nightly", "h", start={}, every=3600)
    assert said("log")[2] == "thread notes (the newest)\n"
    assert said("log", "schedules/nightly")[0] == Exit.OK


def test_a_store_of_schedules_alone(said: Said, store: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "timed") as hf:
        hf.schedule("nightly", "h", start={}, every=3600)
    assert said("log", "--store", "timed")[2] == "thread schedules/nightly (the newest)\n"


def test_a_folder_may_be_a_directory_store(said: Said, store: Path) -> None:
    with holdfast.open("dir:folder", durability="off") as hf:
        hf.thread("t").save({})
    assert said.refused("threads", "--store", "folder") == (
        Exit.NOT_FOUND,
        "holdfast threads: there is no store at folder: it is a folder; write a directory store as dir:folder\n",
    )
    assert said("threads", "--store", "dir:folder")[0] == Exit.OK


def test_a_thread_without_a_run_has_no_result(said: Said, store: Path) -> None:
    code, err = said.refused("result", "notes")
    assert code == Exit.NOT_FOUND
    assert err == (
        "holdfast result: thread 'notes' has no run, so there is no result; "
        "`holdfast show` shows its state, `holdfast submit` starts a run in a new thread\n"
    )


def test_fork_says_how_to_run_it(said: Said, store: Path) -> None:
    with opened(store) as hf, hf.run("left", start={"n": 0}):
        pass
    assert said("fork", "left", "other")[2] == "run the fork: holdfast resume APP other\n"
    assert said("fork", "notes", "copy")[2] == ""


def test_a_run_that_fails_again_says_where_its_error_is(said: Said, store: Path, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def h(run):\n    raise ValueError('secret')\nhandlers = {'h': h}\n")
    said("submit", "h", "t", "--start", "{}")
    code, out, err = said("resume", "failing:handlers", "t")
    assert code == Exit.ERROR
    assert "secret" not in err
    assert out == "'t' is failed: holdfast inbox shows why\n"


def test_another_namespace_is_named(said: Said, store: Path) -> None:
    assert said("threads", "--namespace", "other")[2] == "no threads in namespace 'other'\n"
    assert said("threads", "zzz")[2] == "no matching threads\n"


def test_a_drill_that_refuses_names_the_options(said: Said, store: Path, tmp_path: Path) -> None:
    (tmp_path / "drilled.py").write_text(
        "import holdfast\n@holdfast.tool(effect='irreversible')\ndef pay():\n    pass\ndef h(run):\n    run.tool(pay)\n"
    )
    code, err = said.refused("drill", "drilled:h", "--start", "{}")
    assert code == Exit.USAGE
    assert "pass a function that replaces it (--fakes), or allow it with --live" in err


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
