"""Killed at each commit in turn: what is left is whole, holds what led to it, and ends where it would have ended."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.langgraph.children import (
    CONFIG,
    processes,
    start_work,
    work_until,
    working,
)
from tests.adapters.langgraph.conftest import Savers, savers_on
from tests.selection import IN_FULL, every_store
from tests.waiting import DEADLINE

MANY = 60  # commits; a run makes far fewer


def state_by_step(graph: Any) -> dict[int, Any]:
    return {one.metadata["step"]: (one.values, one.next) for one in graph.get_state_history(CONFIG)}


def writes_by_step(saver: Any) -> dict[int, list[tuple[str, Any]]]:
    """What the tasks of each checkpoint wrote; ids of tasks are of their run."""
    return {
        one.metadata["step"]: sorted(((channel, value) for _, channel, value in one.pending_writes), key=repr)
        for one in saver.list(CONFIG)
    }


class Whole:
    """A run that nobody killed."""

    def __init__(self, savers: Savers, journal: Path) -> None:
        saver = savers.open()
        graph = working(saver, journal)
        self.end = start_work(graph, is_async=False)
        self.states = state_by_step(graph)
        self.writes = writes_by_step(saver)


def look(savers: Savers, journal: Path, whole: Whole) -> list[str]:
    """Check what a killed run left, and tell which nodes need not run again."""
    saver: Any = savers.open()
    graph = working(saver, journal)
    found = [*saver.list(CONFIG)]
    latest = saver.get_tuple(CONFIG)
    if latest is None:
        assert found == []
        return []
    assert found[0] == latest
    states = state_by_step(graph)
    assert states == {step: whole.states[step] for step in states}
    assert sorted(states) == [*range(-1, len(states) - 1)]
    writes = writes_by_step(saver)
    # All but those of the latest were used for a checkpoint that is there: so they are there too.
    before = {step: these for step, these in writes.items() if step < max(states)}
    assert before == {step: whole.writes[step] for step in before}
    return [task.name for task in graph.get_state(CONFIG).tasks if task.result is not None]


@pytest.fixture(params=["sqlite-sync", "sqlite-async", "directory-sync", "postgres-async"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, bool, Path]:
    kind, _, way = request.param.partition("-")
    return kind, way == "async", tmp_path


@every_store("a killed process leaves something else in each store")
def test_a_run_killed_at_any_commit_goes_on_to_its_end(scene: tuple[str, bool, Path]) -> None:
    kind, is_async, folder = scene
    context = processes()
    whole = Whole(savers_on("memory", folder), folder / "whole")
    lengths = []
    for commit in range(1, MANY, 1 if IN_FULL else 2):
        journal = folder / f"journal-{commit}"
        (folder / f"{commit}").mkdir()
        savers = savers_on(kind, folder / f"{commit}")
        worker = context.Process(
            target=work_until, args=(savers.url, savers.namespace, journal, commit, is_async), daemon=True
        )
        worker.start()
        worker.join(DEADLINE)
        assert worker.exitcode in (0, -signal.SIGKILL)

        done = look(savers, journal, whole)
        before = journal.read_text().split() if journal.exists() else []
        lengths.append(len(state_by_step(working(savers.open(), journal))))
        saver = savers.open()
        end = start_work(working(saver, journal), is_async=is_async)

        assert end == whole.end
        assert state_by_step(working(savers.open(), journal)) == whole.states
        again = journal.read_text().split()[len(before) :]
        assert [name for name in done if name in again] == [], "a node that had finished was run again"
        assert set(before + again) == {"first", "left", "right", "last"}
        savers.close()
        if worker.exitcode == 0:
            assert again == []
            break
    else:
        pytest.fail("the run was killed each time")
    # The places were not all the same one.
    assert lengths[0] == 0
    assert len(set(lengths)) > 3
