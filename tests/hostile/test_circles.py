"""Journals and runs that contradict themselves: nobody goes round in circles, or tries for ever."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import Conflict
from holdfast.runs import waits
from holdfast.stores.contract import Claimed, Store
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.sqlite.memory import MemoryStore


class ContradictingStore(MemoryStore):
    """Always another than it was."""

    is_another = False

    def post(self, *args: Any, **options: Any) -> None:
        if self.is_another:
            raise Conflict("another")
        super().post(*args, **options)

    def claim(self, expect: RunRow | None, row: RunRow) -> Claimed:
        if self.is_another:
            raise Conflict("another")
        return super().claim(expect, row)


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


def test_an_answer_is_not_tried_for_ever(hf: Holdfast) -> None:
    with pytest.raises(Conflict, match="changed on every attempt"):
        hf.answer("main", "approve", True)


def test_a_cancellation_is_not_tried_for_ever(hf: Holdfast) -> None:
    with pytest.raises(Conflict, match="changed on every attempt"):
        hf.cancel("main", "enough")


def test_a_claim_is_not_tried_for_ever(hf: Holdfast) -> None:
    with pytest.raises(Conflict), hf.run("main"):
        pass


def test_a_child_of_itself_is_cancelled_once(
    hf: Holdfast, store: ContradictingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.is_another = False

    def children(_store: Store, _thread: int) -> list[str]:
        return ["main"]

    monkeypatch.setattr(waits, "open_children", children)
    hf.cancel("main", "enough")
    assert [info.status for info in hf.threads()] == ["halted"]
