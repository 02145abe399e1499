"""The number of threads by shown status, of the whole store, on every store."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.inspect import Filter, ThreadStatus, tally, threads
from tests.ui import scene


def test_every_status_counts_what_its_list_has(hf: Holdfast) -> None:
    scene.fill(hf)
    hf.submit("clerk", "job", start={})
    found = tally(hf)
    assert found.threads == len(threads(hf, limit=1000).threads)
    for status in get_args(ThreadStatus):
        listed = threads(hf, Filter(status=status, has_run=True), limit=1000).threads
        assert found.statuses.get(status, 0) == len(listed), status
    assert found.statuses["saved"] == len(threads(hf, Filter(has_run=False), limit=1000).threads)
    assert found.lost == ()


def test_an_interrupted_run_is_not_running(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        scene.letters(hf)
        scene.interrupted(hf)
        found = tally(hf).statuses
    assert found == {"interrupted": 1, "in doubt": 2}


def test_an_empty_store_has_no_threads(hf: Holdfast) -> None:
    assert tally(hf).statuses == {}


@pytest.mark.parametrize(("which", "names"), [(Filter(tag="draft"), ["b"]), (Filter(has_run=False), ["a", "b"])])
def test_threads_are_filtered_by_tag_and_by_run(which: Filter, names: list[str]) -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("a").save({})
        hf.thread("b").save({}, tags=("draft",))
        with hf.run("c", start={}) as run:
            run.finish(1)
        for order in ("name", "oldest"):
            assert [line.name for line in threads(hf, which, order=order, limit=2).threads] == names
