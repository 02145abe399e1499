"""`holdfast worker --health`: what a supervisor sees of a worker, from its first look to its last step."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.cli.conftest import Command, Folder
from tests.waiting import DEADLINE

PATIENT = """
import time
from pathlib import Path

def patient(run):
    for step in run.steps():
        Path("started").touch()
        while not Path("go on").exists():
            time.sleep(0.005)
        run.tool(dict, {})
        run.state["n"] = step

handlers = {"patient": patient}
"""


def address(worker: Command) -> str | None:
    found = re.search(r"health at (http://[^/]+)/ready and /live", worker.err)
    return found[1] if found else None


def ask(worker: Command, path: str) -> tuple[int, Any]:
    worker.wait_until(lambda: address(worker) is not None)
    try:
        with urllib.request.urlopen(f"{address(worker)}{path}", timeout=DEADLINE) as answer:  # noqa: S310 - on loopback
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def test_sigterm_makes_it_unready_until_the_step_has_ended(folder: Folder) -> None:
    folder.write("app.py", PATIENT)
    with folder.open() as hf:
        hf.submit("patient", "t", start={"n": 0})
        worker = folder.start("worker", "app:handlers", "--store", str(folder.store), "--health", "127.0.0.1:0")
        worker.wait_until((folder.path / "started").exists)
        assert ask(worker, "/ready")[0] == 200
        worker.send(signal.SIGTERM)
        worker.wait_until(lambda: ask(worker, "/ready")[0] == 503)
        status, live = ask(worker, "/live")
        assert (status, live["running"]) == (200, 1)
        (folder.path / "go on").touch()
        assert worker.end() == 0, worker.err
        with hf.run("t", start={"n": 0}) as run:
            assert run.state == {"n": 1}


@pytest.mark.parametrize("wrong", ["8080", ":8080", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:99999", "203.0.113.1:0"])
def test_where_nothing_can_listen(folder: Folder, wrong: str) -> None:
    folder.write("app.py", PATIENT)
    code, _, err = folder.run("worker", "app:handlers", "--store", str(folder.store), "--health", wrong)
    assert code == 2
    assert "health" in err
    assert "Traceback" not in err
