"""The line of a thread: which steps of which branches lead to a checkpoint, however many were pruned."""

from __future__ import annotations

import random
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Retention
from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Store
from holdfast.threads.ancestry import Ancestry, branch_of
from holdfast.threads.scan import checkpoint_at, last_of, thread_named
from tests.cases import for_each


def rewound(hf: Holdfast, seed: int) -> int:
    """A thread with many branches, long and short; its number."""
    chance = random.Random(seed)
    for _ in range(12):
        for _ in range(chance.choice([0, 1, 2, 30])):
            hf.thread("t").save({})
        seqs = [checkpoint.seq for checkpoint in hf.thread("t").history()]
        if seqs:
            hf.thread("t").rewind(_id(hf, chance.choice(seqs)))
    row = thread_named(hf.context.store, "t")
    assert row is not None
    return row.position.thread


def _id(hf: Holdfast, seq: int) -> str:
    return next(checkpoint.id for checkpoint in hf.thread("t").history() if checkpoint.seq == seq)


def walked(store: Store, thread: int, row: CheckpointRow) -> dict[int, int]:
    """The same, one checkpoint after the other."""
    steps: dict[int, int] = {}
    found: CheckpointRow | None = row
    while found is not None:
        steps.setdefault(branch_of(found), found.step)
        found = None if found.parent is None else checkpoint_at(store, thread, found.parent[1])
    return steps


@for_each("seed", range(5))
@for_each("kept", [None, 1])
def test_it_is_what_a_walk_through_all_parents_finds(seed: int, kept: int | None) -> None:
    hf = holdfast.open("memory:")
    number = rewound(hf, seed)
    store = hf.context.store
    if kept is not None:
        hf.thread("t").prune(Retention(keep_last=kept))
    for seq in range(1, last_of(store, number) + 1):
        row = checkpoint_at(store, number, seq)
        assert row is not None
        wanted = walked(store, number, row)
        line = Ancestry.to(store, number, row)
        for branch in range(15):
            for step in range(row.step + 3):
                assert line.holds(branch, step) == (step <= wanted.get(branch, -1))


def test_what_is_open_is_on_the_line_of_the_head_only() -> None:
    hf = holdfast.open("memory:")
    for _ in range(3):
        hf.thread("t").save({})
    hf.thread("t").rewind(_id(hf, 2))
    store = hf.context.store
    thread = thread_named(store, "t")
    assert thread is not None
    row = checkpoint_at(store, thread.position.thread, 2)
    assert row is not None
    assert Ancestry.of(store, thread.position).holds(1, row.step + 1)
    assert not Ancestry.of(store, thread.position).holds(0, row.step + 1)
    assert not Ancestry.to(store, thread.position.thread, row).holds(1, row.step + 1)


def test_a_long_branch_costs_a_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    hf = holdfast.open("memory:")
    hf.thread("t").save({})
    hf.thread("t").save({})
    hf.thread("t").rewind(_id(hf, 1))
    thread = hf.thread("t")
    for _ in range(1000):
        thread.save({})
    store = hf.context.store
    row = thread_named(store, "t")
    assert row is not None
    reads: list[int] = []
    read = store.walk

    def counted(number: int, **which: Any) -> list[CheckpointRow | Damaged]:
        reads.append(number)
        return read(number, **which)

    monkeypatch.setattr(store, "walk", counted)
    assert Ancestry.of(store, row.position).holds(0, 0)
    assert len(reads) < 40
