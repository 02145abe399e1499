"""Workers that go for the same runs get out of each other's way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.runs import worker as working


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Iterator[working.Worker]:
    """A worker that finds ten runs queued."""
    with holdfast.open("memory:") as hf:
        for n in range(10):
            hf.submit("handler", f"t{n}", start={})
        worker = hf.worker({"handler": lambda _run: None})
        monkeypatch.setattr("random.randrange", lambda size: size - 3)
        yield worker


def names_tried(worker: working.Worker, monkeypatch: pytest.MonkeyPatch, *, lost: int) -> list[str]:
    """What one look of the worker goes for, if it comes too late for the first few."""
    tried: list[str] = []

    def handle(name: str, _row: object) -> bool:
        tried.append(name)
        return len(tried) > lost

    monkeypatch.setattr(worker, "_handle", handle)
    worker._one()
    return tried


def test_a_worker_alone_takes_the_oldest(crowded: working.Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        assert names_tried(crowded, monkeypatch, lost=0) == ["t0"]


def test_a_worker_that_was_outrun_begins_elsewhere(crowded: working.Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_tried(crowded, monkeypatch, lost=2) == ["t0", "t1", "t2"]
    assert names_tried(crowded, monkeypatch, lost=0) == ["t7"]


def test_nothing_is_passed_over(crowded: working.Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    names_tried(crowded, monkeypatch, lost=1)
    order = ["t7", "t8", "t9", "t0", "t1", "t2", "t3", "t4", "t5", "t6"]
    assert names_tried(crowded, monkeypatch, lost=10) == order
    assert names_tried(crowded, monkeypatch, lost=0) == ["t0"]
