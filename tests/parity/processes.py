"""Processes that the suites start, to find what another one saved, or to be killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.nursery import Child, Nursery

Start = Callable[..., Child]


@pytest.fixture
def start(nursery: Nursery, tmp_path: Path) -> Iterator[Start]:
    """Starts programs of `tests.parity.children`; none of them outlives the test."""
    children: list[Child] = []

    def started(program: str, **told: Any) -> Child:
        task = tmp_path / f"task-{len(children)}"
        task.write_text(json.dumps(told))
        children.append(nursery.start(f"tests.parity.children:{program}", task))
        return children[-1]

    yield started
    for child in children:
        child.close()


def told_by(child: Child) -> Any:
    """The one thing that a process says before it ends."""
    child.wait_for_end()
    assert child.failure is None, child.failure
    [line] = child.lines
    return json.loads(line)
