"""A thread whose worker was killed is free at once: nobody waits for the lease of a process that is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.waiting import DEADLINE

PROGRAM = """
import os, sys, signal
import holdfast
hf = holdfast.open(sys.argv[1])
with hf.run("t", start={"n": 0}, lease=3600) as run:
    run.state["n"] = 1
    run.save()
    print("held", flush=True)
    if len(sys.argv) > 2:
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_worker_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    subprocess.run([sys.executable, "-c", PROGRAM, path], check=False, timeout=DEADLINE)
    with holdfast.open(path) as hf:
        thread = hf.thread("t")
        thread.latest()
        thread.save({"n": 2})
        thread.rewind("@1")
        [found] = hf.interrupted()
        assert (found.thread, found.attempt) == ("t", 1)
        with hf.run("t") as run:
            assert (run.state, run.resumed) == ({"n": 1}, True)
        thread.drop()


def test_a_worker_that_lives_does(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with holdfast.open(path) as hf:
            thread = hf.thread("t")
            thread.latest()
            with pytest.raises(holdfast.LeaseHeld):
                thread.save({"n": 2})
            with pytest.raises(holdfast.LeaseHeld):
                thread.rewind("@0")
            with pytest.raises(holdfast.LeaseHeld):
                thread.drop()
    finally:
        child.kill()
        child.communicate()
