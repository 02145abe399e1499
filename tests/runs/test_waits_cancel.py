"""A run is cancelled from another process: it hears of it at a call soon after, and is halted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import holdfast
from tests.waiting import DEADLINE

PROGRAM = """
import sys, threading
import holdfast

hf = holdfast.open(sys.argv[1])
try:
    with hf.run("t", start={"n": 0}) as run:
        print("running", flush=True)
        for step in run.steps():
            run.model(lambda: threading.Event().wait(0.01))
except holdfast.Cancelled as error:
    print(error, flush=True)
"""


def test_another_process_cancels_a_run(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, path], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        with holdfast.open(path) as hf:
            hf.cancel("t", "enough")
            assert child.stdout.readline().startswith("the run of thread 't' was cancelled: enough.")
            assert child.wait(DEADLINE) == 0
            assert [info.status for info in hf.threads()] == ["halted"]
    finally:
        child.kill()
        child.communicate()
