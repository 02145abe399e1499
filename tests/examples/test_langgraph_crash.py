"""The crash of a LangGraph agent: what was done is judged by the file that its model and its tool write to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.selection import in_full
from tests.waiting import DEADLINE

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "langgraph_crash.py"


def run(folder: Path, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_what_was_done_is_not_repeated(tmp_path: Path) -> None:
    shown = ["killed after the booking", "You fly on Friday.", "model asked 0", "booked HF 7", "model asked 1", ""]
    assert run(tmp_path) == shown


@in_full("it shows what LangGraph does without Holdfast's journal")
def test_without_the_journal_the_tool_that_was_cut_off_is_called_again(tmp_path: Path) -> None:
    assert run(tmp_path, "--plain").count("booked HF 7") >= 2
