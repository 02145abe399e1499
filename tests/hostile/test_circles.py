"""Journals and runs that contradict themselves: nobody goes round in circles, or tries for ever."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Holdfast
from holdfast.errors import Conflict, EffectsAhead
from holdfast.runs import waits
from holdfast.stores.contract import Claimed, Store
from holdfast.stores.contract_runs import ClaimLimit, RunRow
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.threads.scan import numbered


class ContradictingStore(MemoryStore):
    """Always another than it was."""

    is_another = False

    def post(self, *args: Any, **options: Any) -> None:
        if self.is_another:
            raise Conflict("another")
        super().post(*args, **options)

    def claim(self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> Claimed:
        if self.is_another:
            raise Conflict("another")
        return super().claim(expect, row, limit)


@pytest.fixture
def store() -> ContradictingStore:
    return ContradictingStore(namespace="default")


@pytest.fixture
def hf(store: ContradictingStore) -> Holdfast:
    """A run that waits, in a store that contradicts itself from now on."""
    hf = Holdfast(store)
    with hf.run("main", start={"n": 0}) as run:
        run.wait("approve")
    store.is_another = True
    return hf


@pytest.mark.parametrize("number", [1 << 31, (1 << 63) - 1])
def test_a_listing_ends_at_a_thread_with_an_impossible_number(tmp_path: Path, number: int) -> None:
    with holdfast.open(tmp_path / "a.db") as hf:
        hf.thread("a").save({})
        hf.thread("b").save({})
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        file.execute("UPDATE thread SET thread_no = ? WHERE name = ?", (number, b"b"))
    with holdfast.open(tmp_path / "a.db") as hf:
        names = (each.name for each in numbered(hf.context.store))
        assert [name if isinstance(name, str) else str(name) for name in islice(names, 5)] == [
            "a",
            f"a thread has the number {number}, which no store assigns",
        ]
        assert not hf.verify().ok


def test_an_answer_is_not_tried_for_ever(hf: Holdfast) -> None:
    with pytest.raises(Conflict, match="changed on every attempt"):
        hf.answer("main", "approve", True)


def test_a_cancellation_is_not_tried_for_ever(hf: Holdfast) -> None:
    with pytest.raises(Conflict, match="changed on every attempt"):
        hf.cancel("main", "enough")


def test_a_claim_is_not_tried_for_ever(hf: Holdfast) -> None:
    with pytest.raises(Conflict), hf.run("main"):
        pass


def test_calls_that_repeat_each_other_are_read_once(tmp_path: Path) -> None:
    @holdfast.tool(effect="irreversible")
    def pay(n: int) -> int:
        return n

    with holdfast.open(tmp_path / "a.db") as hf:
        store = hf.context.store
        with hf.run("main", start={}) as run:
            run.tool(pay, {"n": 1})
            run.tool(pay, {"n": 2})
            first, second = store.entries(1, after=0, limit=2)
            forged = [replace(first, matches=second.number), replace(second, matches=first.number)]
            store.journal(1, second.fence, forged, last=None)
            run.wait("approve")
        with pytest.raises(EffectsAhead):
            hf.thread("main").save({"n": 1})
        assert not hf.verify().ok


def test_a_child_of_itself_is_cancelled_once(
    hf: Holdfast, store: ContradictingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.is_another = False

    def children(_store: Store, _thread: int) -> list[str]:
        return ["main"]

    monkeypatch.setattr(waits, "open_children", children)
    hf.cancel("main", "enough")
    assert [info.status for info in hf.threads()] == ["halted"]
