"""The verbs that look, where somebody mistypes, or what is stored is hostile; colours, pipes, every kind of store."""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.main import main
from tests.cli import looked
from tests.cli.conftest import Folder
from tests.cli.looked import HOSTILE, OBEYED, VERBS, Say, fill, infos
from tests.threads import wholes
from tests.waiting import DEADLINE

say = looked.say  # fixtures are found by where they stand
store = looked.store


def evil(store: Path) -> str:
    return next(info.name for info in infos(store) if info.name.startswith("evil"))


def test_nothing_that_is_stored_reaches_the_terminal_raw(say: Say, store: Path) -> None:
    """The fixture looks at all that is written."""
    name = evil(store)
    for words in (
        ("threads",),
        ("log", name),
        ("show", name),
        ("show", name, "--tree"),
        ("show", name, "--raw"),
        ("show", name, "--json"),
        ("diff", name, "notes"),
        ("diff", "notes", name),
        ("effects", name),
        ("stats", name),
        ("inbox", "--stuck-after", "0"),
        ("watch", name, "--until-idle"),
        ("show", f"{name}x"),
        ("show", f"{name}@nothing{HOSTILE}"),
    ):
        say(*words)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "ntoes"), 3, "holdfast show: there is no thread 'ntoes'; did you mean 'notes'?"),
        (("log", "shopp"), 3, "holdfast log: there is no thread 'shopp'; did you mean 'shop'?"),
        (("effects", "shp"), 3, "holdfast effects: there is no thread 'shp'; did you mean 'shop'?"),
        (("watch", "invoic"), 3, "holdfast watch: there is no thread 'invoic'; did you mean 'invoice'?"),
        (("stats", "nots"), 3, "holdfast stats: there is no thread 'nots'; did you mean 'notes'?"),
        (("show", "notes@goood"), 3, "holdfast show: thread 'notes' has no checkpoint '@goood'; did you mean '@good'?"),
        (("diff", "notes", "@77"), 3, "holdfast diff: thread 'notes' has no checkpoint '@77'"),
        (("thread",), 2, "holdfast: unknown command 'thread'; did you mean 'threads'?"),
        (("threads", "--limit", "x"), 2, "holdfast threads: --limit: 'x' is not a whole number, 0 or more"),
        (("threads", "--older-than", "x"), 2, "holdfast threads: --older-than: 'x' is not a duration"),
        (("threads", "--status", "busy"), 2, "holdfast threads: --status: 'busy' is not one of 'queued'"),
        (("settle", "notes"), 2, "holdfast settle: the argument EFFECT is missing; see holdfast settle --help"),
        (("show", ""), 2, "holdfast show: a reference must be a string like"),
        (("show", "notes", "--raw", "--tree"), 2, "holdfast show: --raw and --tree exclude each other"),
        (("watch", "notes", "--interval", "0"), 2, "holdfast watch: --interval: '0' is not a number of seconds"),
        (("threads", "--store", "no/such.db"), 3, "holdfast threads: there is no store at no/such.db"),
        (("threads", "--store", "memory:"), 2, 'holdfast threads: a "memory:" store ends with its process'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes_are_answered(say: Say, words: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = say(*words)
    assert (found, out) == (code, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
    ids=str,
)
def test_colours_on_a_terminal(
    store: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_coloured: bool
) -> None:
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["threads", "notes"]) == 0
    assert ("\x1b[" in terminal.getvalue()) == is_coloured
    plain = re.sub(r"\x1b\[\d+m", "", terminal.getvalue())
    assert not OBEYED.search(plain)


def test_coloured_lines_are_cut_too(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for words in (["log", "notes"], ["log", "shop", "--calls"], ["threads"], ["effects", "shop"]):
        for width in (80, 30, 17):
            monkeypatch.setenv("COLUMNS", str(width))
            terminal = Terminal()
            monkeypatch.setattr(sys, "stdout", terminal)
            main(words)
            for line in terminal.getvalue().splitlines():
                assert len(re.sub(r"\x1b\[\d+m", "", line)) <= width
                assert line.count("\x1b[0m") * 2 == line.count("\x1b[")  # what is coloured ends where it is cut


def test_into_a_pipe_there_are_no_colours(folder: Folder) -> None:
    with folder.open() as hf:
        fill(hf)
    code, out, err = folder.run("threads", "--store", "agent.db", COLUMNS="80")
    assert (code, err) == (0, "")
    assert "\x1b" not in out


def test_every_kind_of_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    address = f"dir:{tmp_path / 'folder'}"
    with holdfast.open(address, durability="off") as hf:
        fill(hf)
    for words in VERBS:
        code = main([*words, "--store", address, "--json"])
        out, _ = capsys.readouterr()
        assert code in (0, 5)
        parsed: Any = json.loads(out)
        assert parsed


def test_who_closes_the_pipe_sees_no_traceback(store: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "threads", "--store", str(store)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    os.close(writer)
    assert done.returncode == 141  # as of a program that the system ends for it
    assert done.stderr == ""


def test_a_damaged_journal_hides_nothing_else(say: Say, store: Path) -> None:
    """One entry of the open step is hurt: the state is whole, and so are the other entries, and other threads."""
    with closing(sqlite3.connect(store)) as connection:
        [(number,)] = connection.execute("SELECT thread_no FROM thread WHERE name = ?", (b"shop",)).fetchall()
    wholes.change_blob(store, "entry", "record", f"row_key >> 32 = {number} AND row_key & 4294967295 = 4", wholes.flip)
    said = "cannot be read: "
    whole = say("show", "shop", "--raw")
    assert (whole[0], whole[2]) == (0, "")  # the state alone needs no journal
    assert json.loads(whole[1])["messages"]
    for words, shown in (
        (("show", "shop"), "turn 1"),
        (("show", "shop", "--json"), '"state"'),
        (("effects", "shop"), "irreversible"),
        (("log", "shop"), "step 1"),
    ):
        code, out, err = say(*words)
        assert (code, shown in out) == (1, True)
        assert err.startswith(said)
        assert "`holdfast verify` lists the damage" in err
        assert err.count("\n") == 2 + ("--json" not in words and words[0] != "log")  # a hint, too
    assert [line.split()[0] for line in say("effects", "shop")[1].splitlines()] == ["NO", "5", "3", "2", "1"]
    code, out, _ = say("inbox")
    assert (code, 'post(letter="Dear Sir")' in out) == (5, True)  # the call in doubt is whole
    wholes.change_blob(store, "entry", "record", f"row_key >> 32 = {number} AND row_key & 4294967295 = 5", wholes.flip)
    code, out, err = say("inbox")
    assert (code, "asks approve" in out) == (1, True)
    assert err.startswith(said)
    code, _, err = say("inbox", "--name", "post")
    assert (code, "nothing" in err) == (1, False)


def test_an_int_of_very_many_digits_is_shown(say: Say, store: Path) -> None:
    with holdfast.open(store, durability="off") as hf:
        hf.thread("large").save({"n": 1})
        hf.thread("large").save({"n": 10**5000, 10**5000: 1})
    for words in (("show",), ("show", "--tree"), ("show", "--raw"), ("show", "--json"), ("diff",), ("diff", "--json")):
        code, out, _ = say(words[0], "large", *words[1:])
        assert code == 0
        assert f"{hex(10**5000)[:30]}" in out


def test_what_is_damaged_is_said_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    with wholes.opened("sqlite", tmp_path) as hf:
        wholes.fill(hf)
    path = tmp_path / "store.db"
    monkeypatch.setenv("HOLDFAST_STORE", str(path))
    wholes.change_blob(path, "checkpoint", "meta", "row_key & 4294967295 = 8", wholes.flip)
    for words in (["log", "t"], ["stats"]):
        assert main(words) == 1
        out, err = capsys.readouterr()
        assert "cannot be read: " in err
        assert out
    assert main(["log", "t"]) == 1
    assert "step 7" in capsys.readouterr().out  # what is newer and older than what is lost
    assert main(["threads"]) == 0
    assert "orphan" in capsys.readouterr().out
    assert main(["show", "t@00000004", "--raw"]) == 0
