"""The bar: drawn on a terminal when something lasts, and gone when it has ended."""

from __future__ import annotations

import io
import sys

import pytest

from holdfast.cli import terminal as bars
from holdfast.cli.terminal import progress as bar
from tests.waiting import until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, patience: float) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(bars, "_PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return made


def is_wiped(terminal: Terminal, text: str) -> bool:
    """Whether a line was wiped after a text was last written to it."""
    return terminal.getvalue().rindex("\x1b[2K") > terminal.getvalue().rindex(text)


def test_what_lasts_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch, 0.01)
    with bar("looking") as show:
        until(lambda: "looking" in terminal.getvalue())  # though nobody says how far it is
        show("reading", 1234, 5678)
        until(lambda: "1,234 of 5,678" in terminal.getvalue())
    assert is_wiped(terminal, "of 5,678")


def test_what_is_done_soon_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch, 3600.0)
    with bar("looking") as show:
        show("reading", 1, 2)
    assert terminal.getvalue() == ""


def test_where_nobody_looks_on_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr_text = io.StringIO()
    monkeypatch.setattr(bars, "_PATIENCE", 0.0)
    for stderr in (stderr_text, None):
        monkeypatch.setattr(sys, "stderr", stderr)
        with bar("looking") as show:
            show("reading", 1, 2)
    assert stderr_text.getvalue() == ""


def fail(terminal: Terminal) -> None:
    with bar("looking"):
        until(lambda: "looking" in terminal.getvalue())
        raise KeyError


def test_what_fails_leaves_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch, 0.0)
    with pytest.raises(KeyError):
        fail(terminal)
    assert is_wiped(terminal, "looking")
