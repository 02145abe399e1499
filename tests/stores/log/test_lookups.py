"""Looking a checkpoint up where some are damaged: an older one is never given in the place of one that is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import Damaged, NotFound
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import saved
from holdfast.threads.scan import checkpoint_at
from tests.stores.log.conftest import Open, damage_line, log_of


@pytest.fixture
def hf(path: Path) -> Iterator[Holdfast]:
    """Four checkpoints; the first and the third have the label, the tag and the step that are looked for."""
    with holdfast.open(f"dir:{path}", durability="off") as made:
        for n in range(1, 5):
            given: dict[str, Any] = {"label": "good", "tags": ["good"], "status": "idle"} if n % 2 else {}
            made.thread("t").save({"n": n}, step=n % 2, **given)
    with holdfast.open(f"dir:{path}", durability="off") as opened:
        yield opened


def test_the_newest_that_matches_is_damaged(hf: Holdfast, path: Path) -> None:
    thread = hf.thread("t")
    offset = damage_line(log_of(path, "t"), "checkpoint", 2)
    for ref in ("@good", "@1"):
        with pytest.raises(Damaged, match=str(offset)):
            thread.load(ref)
    for filters in ({"label": "good"}, {"tag": "good"}, {"status": "idle"}):
        with pytest.raises(Damaged, match=str(offset)):
            thread.find(**filters)
    assert thread.load("@0").state == {"n": 4}


def test_a_newer_one_that_matches_needs_no_look_at_what_is_damaged(hf: Holdfast, path: Path) -> None:
    damage_line(log_of(path, "t"), "checkpoint", 0)
    thread = hf.thread("t")
    assert thread.load("@good").state == {"n": 3}
    assert thread.load("@1").state == {"n": 3}
    found = thread.find(tag="good")
    assert found is not None
    assert found.seq == 3


@pytest.mark.parametrize("lost", [0, 2, 3])
def test_a_history_lists_what_it_can_and_then_says_what_it_cannot(hf: Holdfast, path: Path, lost: int) -> None:
    offset = damage_line(log_of(path, "t"), "checkpoint", lost)
    seen = deque[int]()
    with pytest.raises(Damaged, match=str(offset)):
        seen.extend(checkpoint.seq for checkpoint in hf.thread("t").history())
    assert list(seen) == [seq for seq in (4, 3, 2, 1) if seq != lost + 1]


def test_what_was_deleted_is_not_back_when_the_record_of_that_is_damaged(hf: Holdfast, path: Path) -> None:
    thread = hf.thread("t")
    ids = {checkpoint.seq: checkpoint.id for checkpoint in thread.history()}
    thread.delete(ids[1])
    with pytest.raises(NotFound):
        thread.load(ids[1])
    hf.close()
    offset = damage_line(log_of(path, "t"), "delete")
    with holdfast.open(f"dir:{path}", durability="off") as opened:
        thread = opened.thread("t")
        with pytest.raises(Damaged, match=str(offset)):
            thread.load(ids[1])
        with pytest.raises(Damaged, match=str(offset)):
            list(thread.history())
        latest = thread.latest()
        assert latest is not None
        assert latest.state == {"n": 4}
        thread.save({"n": 5})
        opened.optimize()
        with pytest.raises(Damaged):
            thread.load(ids[1])
        latest = thread.latest()
        assert latest is not None
        assert latest.state == {"n": 5}
        thread.delete(latest.parent or "")
        assert [checkpoint.seq for checkpoint in thread.history(1)] == [5]


def test_what_is_in_doubt_can_be_deleted_again(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line = saved(store, "a", "x", "y", "z")
    store.delete(line.number, [1])
    damage_line(log_of(path, "a"), "delete")
    other = open_store()
    with pytest.raises(Damaged):
        checkpoint_at(other, line.number, 2)
    other.delete(line.number, [1, 2])
    for seq in (1, 2):
        stone = checkpoint_at(other, line.number, seq)
        assert stone is not None
        assert stone.deleted
