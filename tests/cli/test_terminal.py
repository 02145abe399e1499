"""Output: where stdout takes no more, or cannot show something, that is said and not a traceback."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from holdfast.cli.main import main
from holdfast.cli.terminal import Exit, put, styled, wrapped
from tests.cli.looked import without_store
from tests.threads.wholes import fill, opened
from tests.waiting import DEADLINE

VERBS = (
    ("fingerprint",),
    ("verify",),
    ("verify", "--json"),
    ("--help",),
    ("--version",),
    ("log", "--help"),
    ("threads",),
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store.db"))
    return tmp_path / "store.db"


def command(*words: str, stdout: int) -> tuple[int, str]:
    """A command of its own; its exit code, and what it says."""
    # As where stdout is a file: what is written waits in a buffer, unless it is written through.
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
        timeout=DEADLINE,
    )
    return done.returncode, without_store(done.stderr.decode())


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("words", VERBS)
def test_a_full_disk_is_an_error(words: tuple[str, ...]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        code, said = command(*words, stdout=full)
    finally:
        os.close(full)
    assert code == Exit.ERROR
    assert said.endswith("cannot write to stdout (No space left on device); the output is incomplete\n")
    assert said.count("\n") == 1


@pytest.mark.usefixtures("store")
def test_a_pipe_that_nobody_reads_any_more_ends_it_without_a_word() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        code, said = command("fingerprint", stdout=writes)
    finally:
        os.close(writes)
    assert (code, said) == (Exit.UNREAD, "")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("threads >&-", Exit.ERROR),
        ("export >&-", Exit.ERROR),
        ("log --help >&-", Exit.ERROR),
        ("threads 2>&-", Exit.OK),
        ("show nothing 2>&-", Exit.NOT_FOUND),
        ("prune --all --keep-last 1 2>&-", Exit.USAGE),
        ("threads >&- 2>&-", Exit.ERROR),
        ("threads <&-", Exit.OK),
    ],
)
def test_what_was_closed_before_it_began(line: str, code: Exit) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{shlex.quote(sys.executable)} -m holdfast {line}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if ">&- 2" not in line and code == Exit.ERROR:
        assert done.stderr.endswith("stdout is closed; nothing was written\n")


@pytest.mark.usefixtures("store")
def test_a_line_of_one_style_is_coloured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    put(styled("a title", "bold"))
    assert capsys.readouterr().out == "\x1b[1ma title\x1b[0m\n"


@pytest.mark.parametrize("width", [30, 60, 200])
def test_wrapped_texts_fit_however_wide_their_characters_are(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for text in ("日本語のテキスト " * 40, "語" * 300, "one two three " * 40, "x" * 500):
        for found in (wrapped(text, "    "), wrapped(text, "  > ", "    ")):
            assert max(map(cell_len, found)) <= min(width, 120)
            assert "".join("".join(found).split()).replace(">", "") == "".join(text.split())
    assert wrapped("a\nb", "  ") == ["  a", "  b"]
    assert wrapped("", "  ") == [""]


@pytest.mark.parametrize("verb", ["prune", "fork", "label", "rewind", "tag"])
def test_help_is_shown_where_the_encoding_does_not_have_it(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    assert main([verb, "--help"]) == Exit.OK
    assert written.getvalue().startswith(b"Usage: ")


def test_what_the_encoding_does_not_have_is_escaped(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, name in (("ascii", "größe.db"), ("utf-8", os.fsdecode(b"odd\xff.db"))):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
        assert main(["backup", str(store.with_name(name))]) == Exit.OK
        assert b"4 threads, verified" in written.getvalue()
