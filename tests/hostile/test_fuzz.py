"""Forged records: each verb gives what it can, or an error of Holdfast's own, in bounded time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.ledger import note
from tests.selection import every_store

ROOT = Path(__file__).resolve().parents[2]
FAST = {"sqlite": 10, "directory": 8, "decoders": 2000}
FULL = {"sqlite": 3000, "directory": 2000, "decoders": 200_000}


@every_store("each part forges the records of one store")
@pytest.mark.parametrize("part", FAST)
def test_no_forged_record_is_more_than_an_error(part: str) -> None:
    full = os.environ.get("HOLDFAST_LAB") == "full"
    count = (FULL if full else FAST)[part]
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.fuzz", part, "0", str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=7200 if full else 280,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    note("hostile", part, forged=count)
