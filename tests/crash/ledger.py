"""The ledger of a crash lab: what each test has tried, and which tests have passed. `tests.crash.report` adds it up.

It is also a pytest plugin (`-p tests.crash.ledger`): tests that have passed according to the ledger are not repeated,
and what a failed or interrupted test noted is removed before it runs again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def note(part: str, store: str, **counts: int) -> None:
    """Append what a part of the lab tried on a store to the file that $HOLDFAST_LAB_LEDGER names, if it names one."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    _append({"part": part, "store": store, "counts": counts, "test": test})


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The notes of tests that have passed."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    passed = {line["passed"] for line in lines if "passed" in line}
    return [line for line in lines if line.get("test") in passed]


def _append(line: dict[str, Any]) -> None:
    path = os.environ.get("HOLDFAST_LAB_LEDGER")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


# -- the plugin -------------------------------------------------------------------------------------------------------

_succeeded: set[str] = set()  # tests whose own part has passed, and whose fixtures are still to end


def _passed() -> set[str]:
    lines = Path(os.environ["HOLDFAST_LAB_LEDGER"]).read_text(encoding="utf-8").splitlines()
    return {line["passed"] for line in map(json.loads, lines) if "passed" in line}


def pytest_configure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        path = Path(os.environ["HOLDFAST_LAB_LEDGER"])
        path.touch()
        kept = [*lines_of(path), *({"passed": test} for test in sorted(_passed()))]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = _passed()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or not report.passed:
        return
    if report.when == "call":
        _succeeded.add(report.nodeid)
    elif report.when == "teardown" and report.nodeid in _succeeded:
        _append({"passed": report.nodeid})
