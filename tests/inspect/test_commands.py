"""The commands that are shown reach the store they are shown for, and a shell takes them as they are."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.inspect import Commands, recovery, shell_quoted
from tests.cases import for_each
from tests.cli.looked import post
from tests.stores.postgres.server import address_at


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOLDFAST_KEY", "HOLDFAST_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def doubtful(store: str, thread: str, namespace: str = "default") -> tuple[str, ...]:
    """A run with a call in doubt, and the commands that are told for it."""
    with holdfast.open(store, durability="off", namespace=namespace, tools=[post]) as hf:
        with hf.run(thread, start={}) as run:
            run.tool(post, {"letter": "Dear Sir"})
        plan = recovery(hf, thread)
        assert plan is not None
        return plan.calls[0].commands


@pytest.mark.parametrize("thread", ["shop", "a b's", "-dash", "-a b", "-\x07", "--raw", "$(x) `y`", "new\nline"])
@pytest.mark.parametrize("namespace", ["default", "tenant 7", "-n", "-n 2"])
def test_each_choice_is_a_command_that_does_it(tmp_path: Path, thread: str, namespace: str) -> None:
    store = str(tmp_path / "my agent.db")
    commands = doubtful(store, thread, namespace)
    assert len(commands) == 3
    assert not any("|" in each for each in commands)
    happened, not_done, give_up = (words(each) for each in commands)
    assert happened.index("--happened") + 1 == happened.index("RESULT")
    assert "--give-up" in give_up
    assert main(not_done[1:]) == 0
    with holdfast.open(store, durability="off", namespace=namespace) as hf:
        assert [effect.status for effect in hf.effects(thread)] == ["not_done"]


def words(command: str) -> list[str]:
    """What a shell makes of a command."""
    shown = 'for each in "$@"; do printf \'%s\\0\' "$each"; done'
    done = subprocess.run(["bash", "-c", f"set -- {command}\n{shown}"], capture_output=True, check=True)  # noqa: S607 - whichever there is
    return [os.fsdecode(each) for each in done.stdout.split(b"\0")[:-1]]


@for_each("text", ["a", "a b", "it's", "\x1b[31m\n\t", "\u202eabc", "grün 漢", "\\'\x07", "\udcff"])
def test_a_text_is_one_word(text: str) -> None:
    assert words(shell_quoted(text)) == [text]
    assert shell_quoted(text).isprintable()


def test_what_is_the_default_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        assert Commands(hf).resume("t") == f"holdfast resume APP t --store {shlex.quote(str(path))}"
        monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "other.db"))
        assert "--store" in Commands(hf).resume("t")
        monkeypatch.chdir(tmp_path)
        for named in ("agent.db", str(path), "sqlite:///agent.db"):
            monkeypatch.setenv("HOLDFAST_STORE", named)
            assert Commands(hf).resume("t") == "holdfast resume APP t"
        monkeypatch.setenv("HOLDFAST_STORE", f"dir:{path}")
        assert "--store" in Commands(hf).resume("t")
    monkeypatch.delenv("HOLDFAST_STORE")
    assert not (tmp_path / "data").exists()  # who looks makes no folder
    with holdfast.open(durability="off") as hf:
        assert Commands(hf).resume("t") == "holdfast resume APP t"


def test_a_folder(tmp_path: Path) -> None:
    address = f"dir:{tmp_path / 'folder'}"
    with holdfast.open(address, durability="off") as hf:
        assert Commands(hf).answer("t", "ok?") == f"holdfast answer t 'ok?' VALUE --store {address}"


def test_an_address_that_may_hold_a_password_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = address_at(tmp_path / "store")
    with holdfast.open(address, durability="off") as hf:
        assert Commands(hf).resume("t") == "holdfast resume APP t --store URL"
        monkeypatch.setenv("HOLDFAST_STORE", address)
        assert Commands(hf).resume("t") == "holdfast resume APP t"
        monkeypatch.setenv("HOLDFAST_STORE", address_at(tmp_path / "other"))
        assert Commands(hf).resume("t") == "holdfast resume APP t --store URL"
