"""The crash of a LangGraph agent: what was done is judged by the world that the tools write to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.selection import in_full
from tests.waiting import DEADLINE

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "langgraph_crash.py"


def run(folder: Path, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folder)}
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
    assert list(folder.iterdir()) == []
    return [line.strip() for line in done.stdout.splitlines()]


def test_what_was_finished_is_not_repeated_and_what_was_in_flight_goes_by_its_policy(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert sum(line.startswith("killed in") for line in said) == 3
    world = said[said.index("in the world") + 1 : said.index("in the journal") - 1]
    assert world == [
        "5 model calls, for 5 turns",
        "find_flight called 1x: its result was recorded",
        "book_flight called 1x: the airline confirmed the booking",
        "reserve_room called 2x: with 1 key, so the hotel has one reservation",
        "send_letter called 1x: a person was asked",
    ]
    assert "the agent says: You fly on Friday." in said
    assert sum(line.startswith("a person is asked: send_letter") for line in said) == 1


@in_full("it shows what LangGraph does without Holdfast's journal")
def test_without_the_journal_each_tool_that_was_cut_off_is_called_again(tmp_path: Path) -> None:
    said = run(tmp_path, "--plain")
    called = {line.split()[0]: int(line.split()[-1].removesuffix("x")) for line in said if " called " in line}
    # Twice, or more often: a step that ended is stored in the background, and may not be when the next kill strikes.
    assert all(called[name] >= 2 for name in ("book_flight", "reserve_room", "send_letter")), called
