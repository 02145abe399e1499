"""Completion, in a real bash: verbs, options, names of threads of the store that the line names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.terminal import Exit
from tests.cli.given import Said, opened, said, store
from tests.waiting import DEADLINE

__all__ = ["said", "store"]  # fixtures

Offered = Callable[..., list[str]]


@pytest.fixture
def offered(store: Path, said: Said, tmp_path: Path) -> Offered:
    """What bash offers for the end of a line. It has parted the line into words, as it does before it asks."""
    _, script, _ = said("completion", "bash")
    (tmp_path / "script").write_text(script)
    (tmp_path / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    (tmp_path / "holdfast").chmod(0o755)

    def offer(line: str, *words: str) -> list[str]:
        parted = " ".join(f"'{word}'" for word in words)
        code = 'PATH="$PWD:$PATH"; . ./script; '
        code += f"COMP_WORDS=({parted}); COMP_CWORD={len(words) - 1}; _holdfast_completion holdfast; "
        code += 'for each in "${COMPREPLY[@]}"; do printf "%s\\n" "$each"; done'
        done = subprocess.run(
            ["bash", "-c", code, "bash", line],  # noqa: S607 - whichever there is
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        assert not done.stderr
        return done.stdout.splitlines()

    return offer


def test_verbs_options_and_threads(store: Path, offered: Offered, tmp_path: Path) -> None:
    """Names of threads are offered, and never obeyed."""
    with opened(store) as hf:
        hf.thread("n $(touch obeyed) `touch obeyed`").save({})
    assert offered("holdfast rew", "holdfast", "rew") == ["rewind"]
    assert offered("holdfast rewind --past", "holdfast", "rewind", "--past") == ["--past-effects"]
    assert offered("holdfast rewind no", "holdfast", "rewind", "no") == ["notes"]
    assert offered("holdfast drop n", "holdfast", "drop", "n") == [
        "n\\ \\$\\(touch\\ obeyed\\)\\ \\`touch\\ obeyed\\`",
        "notes",
    ]
    assert len(offered("holdfast drop ", "holdfast", "drop", "")) == 2
    assert not (tmp_path / "obeyed").exists()


def test_names_with_what_bash_parts_words_at(store: Path, offered: Offered) -> None:
    with opened(store) as hf:
        for name in ("user:ann", "user:bob", "mail@home"):
            hf.thread(name).save({})
    # bash replaces what comes behind the last of them, and keeps the rest.
    assert offered("holdfast show user:", "holdfast", "show", "user", ":") == ["ann", "bob"]
    assert offered("holdfast show user:b", "holdfast", "show", "user", ":", "b") == ["bob"]
    assert offered("holdfast show mail@h", "holdfast", "show", "mail", "@", "h") == ["home"]
    assert offered("holdfast show us", "holdfast", "show", "us") == ["user:ann", "user:bob"]


def test_the_store_on_the_line_is_asked(store: Path, offered: Offered, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "other.db", durability="off") as hf:
        hf.thread("nobody").save({})
    with holdfast.open(tmp_path / "other.db", durability="off", namespace="b") as hf:
        hf.thread("none").save({})
    words = ("holdfast", "show", "--store", "other.db")
    assert offered("holdfast show --store other.db n", *words, "n") == ["nobody"]
    assert offered("holdfast show --store=other.db n", "holdfast", "show", "--store", "=", "other.db", "n") == [
        "nobody"
    ]
    line = "holdfast show --store other.db --namespace b n"
    assert offered(line, *words, "--namespace", "b", "n") == ["none"]
    assert offered("holdfast show --store n", "holdfast", "show", "--store", "n") == []  # a path, which bash completes


def test_completion_of_other_shells(store: Path, said: Said) -> None:
    for shell in ("bash", "zsh", "fish"):
        code, told = said.json("completion", shell)
        assert (code, told["shell"]) == (Exit.OK, shell)
        assert f"_HOLDFAST_COMPLETE={shell}_complete" in told["script"]
    code, err = said.refused("completion", "tcsh")
    assert code == Exit.USAGE
    assert "fish" in err
    environment = {
        **os.environ,
        "_HOLDFAST_COMPLETE": "zsh_complete",
        "COMP_WORDS": "holdfast show n",
        "COMP_CWORD": "2",
    }
    words = [sys.executable, "-m", "holdfast"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert (done.stdout, done.stderr) == ("plain\nnotes\n_\n", "")
    environment["HOLDFAST_STORE"] = "none.db"
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert (done.stdout.strip(), done.stderr) == ("", "")
