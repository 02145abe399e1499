"""Commands given in a folder with a store, and runs that wait in it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.cli.main import main
from tests.cli.looked import without_store


class Said:
    """Gives commands, and keeps what they say apart."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(words)
        out, err = self._capfd.readouterr()
        assert "Traceback" not in err
        return code, out, without_store(err)

    def json(self, *words: str) -> tuple[int, Any]:
        code, out, _ = self(*words, "--json")
        return code, json.loads(out)

    def refused(self, *words: str) -> tuple[int, str]:
        """The code of a command that cannot be done, and the one line that says so."""
        code, out, err = self(*words)
        assert out == ""
        assert err.count("\n") == 1, err
        return code, err


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    return Said(capfd)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOLDFAST_KEY", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    path = tmp_path / "agent.db"
    monkeypatch.setenv("HOLDFAST_STORE", str(path))
    with opened(path) as hf:
        for n in range(1, 4):
            hf.thread("notes").save({"n": n}, label="two" if n == 2 else None)
    return path


def opened(path: Path, **given: Any) -> Holdfast:
    return holdfast.open(path, durability="off", **given)


def state_of(path: Path, thread: str, ref: str = "@-1") -> Any:
    with opened(path) as hf:
        return hf.thread(thread).load(ref).state


def in_doubt(path: Path) -> None:
    @holdfast.tool(effect="irreversible", name="pay")
    def pay(amount: int) -> None:
        raise TimeoutError

    with opened(path, tools=[pay]) as hf, hf.run("shop", start={"n": 0}) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 3})


def asking(path: Path) -> None:
    with opened(path) as hf, hf.run("asks", start={"n": 0}) as run:
        for _ in run.steps():
            run.wait("ok?")
