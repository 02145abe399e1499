"""The demo, run once for all tests of all workers."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.demo import play
from tests.waiting import DEADLINE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
INVOICES = 6


class Left(play.Papers):
    """The papers that a demo left in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


def run(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder."""
    return run_python(folder, str(EXAMPLES / name), *arguments)


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONWARNINGS": "error",
        "TMPDIR": str(folder),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def played_demo(factory: pytest.TempPathFactory) -> Path:
    """The folder that a run of the demo kept, with what it printed in `output.txt`. The first caller runs the demo."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # that of all workers
    kept, output = shared / "the demo", shared / "the demo" / "output.txt"
    with (shared / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            folder = factory.mktemp("demo")
            words = ("--full", "--invoices", str(INVOICES), "--seed", "3", "--keep", str(kept))
            done = run_python(folder, "-m", "holdfast", "demo", *words)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stderr == ""
            assert list(folder.iterdir()) == [], "the demo leaves nothing behind, except in the folder to keep"
            output.write_text(done.stdout, "utf-8")
    return kept
