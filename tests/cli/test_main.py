"""The entry: verbs, help, exit codes; what a person mistypes is answered without a traceback."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.location import shown
from holdfast.cli.main import GROUPS, VERBS, main
from holdfast.cli.terminal import Exit, exit_code
from tests.cases import for_each
from tests.cli.conftest import Folder
from tests.waiting import DEADLINE

APP = "handlers = {'h': lambda run: 'done'}\n"


def refused(folder: Folder, *words: str) -> tuple[int, str]:
    """The exit code of a command that cannot be done, and its message."""
    code, out, err = folder.run(*words)
    assert out == ""
    assert "Traceback" not in err
    assert err.count("\n") == 1, err
    return code, err.rstrip("\n")


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["-h"], ["help"]):
        assert main(words) == 0
        out, err = capsys.readouterr()
        assert out.startswith("Usage: holdfast COMMAND")
        text = " ".join(out.split())
        assert all(f" {name} {summary}" in text for name, (_, summary) in VERBS.items())
        at = [out.index(f"\n{title}:\n") for title in GROUPS]
        assert at == sorted(at)
        assert "Exit codes: 0 ok, 1 error, 2 usage" in text
        assert err == ""


def test_the_groups() -> None:
    assert {title: " ".join(verbs) for title, verbs in GROUPS.items()} == {
        "Start": "demo ui skill",
        "Look": "threads log show diff effects watch stats",
        "Inbox": "inbox answer settle cancel resume acts release",
        "Edit": "fork rewind label tag prune drop erase",
        "Work": "worker submit result schedules drill",
        "Transfer": "import export",
        "Care": "verify backup repair optimize rekey fingerprint doctor completion",
    }


@for_each("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([verb, "--help"], ["help", verb]):
        assert main(words) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"Usage: holdfast {verb}")
        assert "--json" in out
        assert err == ""


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"holdfast {metadata.version('holdfast')}\n"


def test_help_takes_less_than_80_ms_of_processor_time() -> None:
    def seconds() -> float:
        code = "import time; began = time.process_time(); from holdfast.cli.main import main; main(['--help'])"
        code = f"{code}; print(time.process_time() - began)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE
        )
        return float(done.stdout.splitlines()[-1])

    deadline = time.monotonic() + DEADLINE
    while seconds() >= 0.08:  # the best of several: others use this machine too
        assert time.monotonic() < deadline, "holdfast --help is slow"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from holdfast.cli.main import main; main(['--help']);"
        "heavy = {'asyncio', 'rich', 'sqlite3', 'difflib', 'importlib.metadata', 'holdfast.cli.work'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE)


def test_main_can_be_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "called_by_main.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with holdfast.open("agent.db", durability="off") as hf:
        hf.submit("h", "t", start={})
    code: int = main(["worker", "called_by_main:handlers", "--store", "agent.db", "--until-idle"])
    assert code == 0
    with holdfast.open("agent.db", durability="off") as hf, hf.run("t") as run:
        assert run.result == "done"
    assert capsys.readouterr().out == ""


def test_the_words_of_the_process_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", "nonsense"])
    assert main() == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("wroker",), "holdfast: unknown command 'wroker'; did you mean 'worker'?"),
        (("xyz",), "holdfast: unknown command 'xyz'; `holdfast` lists the commands"),
        (("--store", "a.db", "worker"), "holdfast: the command comes before its options: holdfast COMMAND --store …"),
        (("worker",), "holdfast worker: the argument APP is missing; see holdfast worker --help"),
        (("submit", "h", "t"), "holdfast submit: the option --start is missing; see holdfast submit --help"),
        (
            ("worker", "app:handlers", "--concurency=3"),
            "holdfast worker: unknown option '--concurency'; did you mean '--concurrency'?",
        ),
        (("worker", "app:handlers", "more"), "holdfast worker: unexpected argument 'more'; see"),
        (
            ("show", "book", "@3"),
            "holdfast show: unexpected argument '@3'; write a checkpoint with its thread, like book@3",
        ),
        (
            ("label", "book", "@3", "good"),
            "holdfast label: unexpected argument 'good'; write a checkpoint with its thread, like book@3",
        ),
        (
            ("diff", "book", "@1", "@3"),
            "holdfast diff: unexpected argument '@3'; write a checkpoint with its thread, like book@1",
        ),
        (("fork", "book", "new", "--at", "@3"), "holdfast fork: unknown option '--at'; see holdfast fork --help"),
        (("threads", "--older", "3d"), "holdfast threads: unknown option '--older'; did you mean '--older-than'?"),
        (("worker", "app:handlers", "--lease"), "holdfast worker: option '--lease' requires an argument"),
        (("worker", "app:handlers", "--until"), "holdfast worker: unknown option '--until'"),
        (
            ("worker", "app:handlers", "--concurrency", "many"),
            "holdfast worker: --concurrency: 'many' is not a whole number, 1 or more",
        ),
        (
            ("worker", "app:handlers", "--attempts", "0"),
            "holdfast worker: --attempts: '0' is not a whole number, 1 or more",
        ),
        (("worker", "app:handlers", "--lease", "x"), "holdfast worker: --lease: 'x' is not a number of seconds"),
        (
            ("worker", "app:handlers", "--lease", "0"),
            "holdfast worker: --lease: '0' is not a number of seconds from 0.05",
        ),
        (
            ("worker", "app:handlers", "--store", "mysql://me:secret@host/db"),
            "holdfast worker: there is no store for mysql: URLs",
        ),
        (("worker", "app:handlers", "--store", "memory:"), 'holdfast worker: a "memory:" store ends with its process'),
        (("worker", "app:handlers", "--store", ""), "holdfast worker: a store is named by a path"),
        (
            ("worker", "app:handlers", "--store", "a.db", "--namespace", ""),
            "holdfast worker: a namespace must be a non-empty string",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Folder, words: tuple[str, ...], message: str) -> None:
    folder.write("app.py", APP)
    code, said = refused(folder, *words)
    assert code == 2
    assert said.startswith(message)
    assert "secret" not in said
    assert list(folder.path.rglob("*.db")) == []


def test_a_store_that_cannot_be_opened_is_an_error(folder: Folder) -> None:
    folder.write("app.py", APP)
    code, said = refused(folder, "worker", "app:handlers", "--store", "no/such/agent.db")
    assert code == 1
    assert said.endswith("does not exist; nothing was changed. Create it first.")
    code, said = refused(folder, "worker", "app:handlers", "--store", "app.py")
    assert code == 1
    assert said.endswith("app.py: not a database; it was left unchanged. Name another file.")
    (folder.path / "loop.db").symlink_to("loop.db")
    code, said = refused(folder, "worker", "app:handlers", "--store", "loop.db")
    assert code == 1
    assert said.endswith("permissions (Too many levels of symbolic links).")  # the cause says why


@for_each(
    ("error", "code"),
    [
        (holdfast.HoldfastError("x"), Exit.ERROR),
        (holdfast.Damaged("x"), Exit.ERROR),
        (holdfast.InvalidArgument("x"), Exit.USAGE),
        (holdfast.NotFound("x"), Exit.NOT_FOUND),
        (holdfast.errors.Ambiguous("x"), Exit.NOT_FOUND),
        (holdfast.Conflict("x"), Exit.CONFLICT),
        (holdfast.errors.AlreadyExists("x"), Exit.CONFLICT),
        (holdfast.LeaseHeld("x"), Exit.CONFLICT),
        (holdfast.LeaseLost("x"), Exit.CONFLICT),
    ],
)
def test_the_exit_code_of_each_error(error: holdfast.HoldfastError, code: Exit) -> None:
    assert exit_code(error) is code


def test_the_exit_codes_are_firm() -> None:
    assert [(code.name, int(code)) for code in Exit] == [
        ("OK", 0),
        ("ERROR", 1),
        ("USAGE", 2),
        ("NOT_FOUND", 3),
        ("CONFLICT", 4),
        ("IN_DOUBT", 5),
        ("INTERRUPTED", 130),
        ("UNREAD", 141),
    ]


@for_each(
    ("url", "seen"),
    [
        ("agent.db", "agent.db"),
        ("a@b/agent.db", "a@b/agent.db"),
        ("sqlite:///a@b/agent.db", "sqlite:///a@b/agent.db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me:sec/r@et?@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, seen: str) -> None:
    assert shown(url) == seen
