"""The demo, run once for all tests of all workers."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples import demo
from tests.waiting import DEADLINE

EXAMPLES = Path(demo.__file__).resolve().parent
INVOICES = 6


class Left(demo.Papers):
    """The papers that a demo left in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


def run(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONWARNINGS": "error",
        "TMPDIR": str(folder),
    }
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
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
            done = run("demo.py", folder, "--invoices", str(INVOICES), "--seed", "3", "--keep", str(kept))
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stderr == ""
            assert list(folder.iterdir()) == [], "the demo leaves nothing behind, except in the folder to keep"
            output.write_text(done.stdout, "utf-8")
    return kept
