"""`holdfast export` in its formats: what goes where, what is refused, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from tests.cli import looked
from tests.cli.conftest import Folder
from tests.cli.looked import Say
from tests.exporters.otel_rules import problems
from tests.threads.wholes import change_blob, flip

say = looked.say  # fixtures are found by where they stand
store = looked.store


def test_otel_of_some_and_of_all(say: Say) -> None:
    code, out, err = say("export", "--format", "otel", "shop")
    assert (code, err) == (0, f"1 thread, 1 checkpoint, 2 journal entries: {len(out)} bytes\n")
    assert [problems(json.loads(line)) for line in out.splitlines()] == [[], [], []]
    code, out, err = say("export", "--format", "otel", "--prefix", "notes")
    assert [json.loads(line)["attributes"]["gen_ai.conversation.id"] for line in out.splitlines()] == [
        "notes",
        "notes-fork",
    ]
    code, out, err = say("export", "--format", "otel")
    assert err.startswith("6 threads, 6 checkpoints, 2 journal entries")
    code, out, _ = say("export", "--format", "otel", "notes@good", "shop@0")
    steps = [json.loads(line)["attributes"]["holdfast.step"] for line in out.splitlines()]
    assert (code, steps) == (0, [2, 0])


@pytest.mark.parametrize(("name", "begins"), [("markdown", "# `shop`\n"), ("html", "<!doctype html>\n")])
def test_transcripts(say: Say, name: str, begins: str) -> None:
    code, out, err = say("export", "--format", name, "shop")
    assert code == 0
    assert out.startswith(begins)
    assert "in doubt: it may or may not have happened" in out
    assert err == f"1 thread, 1 checkpoint, 3 journal entries: {len(out.encode())} bytes\n"
    code, out, _ = say("export", "--format", name, "shop@0")
    assert code == 0
    assert "in doubt" not in out


def test_to_a_file(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "shop.md"
    code, out, _ = say("export", "shop", "--format", "markdown", "-o", str(path), "--json")
    told = json.loads(out)
    assert (code, told["ok"], told["target"], told["threads"]) == (0, True, str(path), 1)
    assert told["bytes"] == path.stat().st_size
    code, out, err = say("export", "shop", "--format", "html", "--output", str(path))
    assert (code, out) == (2, "")
    assert "already exists" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--format", "markdown"), 2, "--format markdown exports one thread: name a thread or a reference"),
        (("--format", "html", "shop", "notes"), 2, "--format html exports one thread"),
        (("--format", "html", "--prefix", "shop"), 2, "--format html exports one thread"),
        (("--format", "otel", "shop", "--prefix", "s"), 2, "name threads or pass --prefix, not both"),
        (("--format", "otel", "shop", "--json"), 2, "--json writes the result to stdout"),
        (("--format", "pdf", "shop"), 2, "--format: 'pdf' is not one of 'jsonl'"),
        (
            ("shop", "--redact", "os:fsencode"),
            2,
            "--format jsonl exports stored data unchanged; use --redact with another format",
        ),
        (
            ("--format", "otel", "--redact", "os:sep"),
            2,
            "os:sep is of type str; it must be a function that takes and returns a string",
        ),
        (("notes@good",), 2, "--format jsonl exports whole threads: write 'notes', or choose another --format"),
        (("nots",), 3, "there is no thread 'nots'; did you mean 'notes'?"),
        (("nots@good",), 3, "there is no thread 'nots'; did you mean 'notes'?"),
        (("--format", "otel", "shop", "nots"), 3, "there is no thread 'nots'; did you mean 'notes'?"),
        (("--format", "markdown", "nots"), 3, "there is no thread 'nots'; did you mean 'notes'?"),
        (("--format", "html", "notes@goood"), 3, "thread 'notes' has no checkpoint '@goood'; did you mean '@good'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes_are_answered_and_nothing_is_written(
    say: Say, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    found, out, err = say("export", *words)
    assert (found, out) == (code, "")
    assert err.startswith(f"holdfast export: {message}")
    assert err.count("\n") == 1
    if "--json" not in words:
        assert say("export", *words, "-o", str(tmp_path / "out"))[0] == code
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["otel", "markdown", "html"])
def test_hostile_threads_are_safe_to_write_to_a_terminal(say: Say, name: str) -> None:
    evil = f"evil {looked.HOSTILE}"
    # `say` fails for whatever a terminal would obey.
    code, out, _ = say("export", "--format", name, evil)
    assert code == 0
    assert "owned" in out


def test_what_is_redacted_does_not_leave_the_process(folder: Folder) -> None:
    with folder.open() as hf:
        looked.fill(hf)
    folder.write("hide.py", "def all_of_it(text):\n    return '[hidden]'\n")
    for name in ("otel", "markdown", "html"):
        words = ("export", "--store", "agent.db", "--format", name, "shop", "--redact", "hide:all_of_it")
        code, out, _ = folder.run(*words)
        assert code == 0
        assert "[hidden]" in out
        assert "Dear Sir" not in out


def test_damage_ends_with_1_and_is_told(say: Say, store: Path) -> None:
    with holdfast.open(store, durability="off") as hf:
        hf.thread("long").save({"messages": [{"role": "user", "content": f"message {n} " * 50} for n in range(40)]})
    change_blob(store, "checkpoint", "cells", "cells IS NOT NULL", flip)
    for name, begins in (("markdown", "# `long`"), ("otel", "{")):
        code, out, err = say("export", "--format", name, "long")
        assert code == 1
        assert out.startswith(begins)
        assert "thread 'long', checkpoint 1: " in err


def test_a_file_that_cannot_be_written_or_read_says_what_to_do(say: Say, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "all.jsonl"
    code, _, err = say("export", "-o", str(path))
    reason = "(No such file or directory)"
    assert (code, err) == (
        1,
        f"holdfast export: cannot write {path} {reason}; nothing was exported. Name another file.\n",
    )
    code, _, err = say("verify", "--fingerprint", str(path))
    assert (code, err) == (
        2,
        f"holdfast verify: cannot read {path} {reason}; nothing was checked. Check the path.\n",
    )
