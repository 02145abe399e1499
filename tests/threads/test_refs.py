"""References find the checkpoint they name, and ask the store for a few checkpoints, however long the thread is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast, NotFound, Thread
from holdfast.errors import Ambiguous
from holdfast.stores.contract import CheckpointRow, Store

MOVES = st.lists(st.one_of(st.just("save"), st.integers(1, 12)))


def _line(thread: Thread) -> list[str]:
    """The ids of the head and its ancestors, by following each parent."""
    parents = {checkpoint.id: checkpoint.parent for checkpoint in thread.history()}
    head = thread.latest()
    line = [] if head is None else [head.id]
    while (parent := parents[line[-1]]) is not None:
        line.append(parent)
    return line


@given(MOVES)
def test_counting_back_follows_the_branch_of_the_head(moves: list[Any]) -> None:
    with holdfast.open("memory:") as hf:
        thread = hf.thread("t")
        thread.save({"n": 0})
        for n, move in enumerate(moves):
            known = list(thread.history())
            if move == "save":
                thread.save({"n": n})
            elif isinstance(move, int):
                thread.rewind(known[move % len(known)])
        line = _line(thread)
        assert [thread.load(f"@-{back}").id for back in range(1, len(line) + 1)] == line
        with pytest.raises(NotFound):
            thread.load(f"@-{len(line) + 1}")


def test_deleted_checkpoints_do_not_count() -> None:
    with holdfast.open("memory:") as hf:
        thread = hf.thread("t")
        made = [thread.save({"n": n}) for n in range(600)]
        for checkpoint in made[100:500:3]:
            thread.delete(checkpoint.id)
        left = [checkpoint.id for checkpoint in reversed(made) if checkpoint not in made[100:500:3]]
        for back in (1, 2, 99, 101, 150, 300, len(left)):
            assert thread.load(f"@-{back}").id == left[back - 1]
        with pytest.raises(NotFound):
            thread.load(f"@-{len(left) + 1}")


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A thread of 2,000 checkpoints on several branches, and how often each verb of its store is called."""
    with holdfast.open("memory:") as hf:
        thread = hf.thread("t")
        made = [thread.save({"n": n}) for n in range(1_000)]
        thread.rewind(made[899])
        made = made[:900] + [thread.save({"n": n}) for n in range(1_000)]
        yield thread, made, _counted(hf, monkeypatch)


def _counted(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    calls: Counter[str] = Counter()
    store: Store = hf.context.store
    for verb in ("checkpoint", "checkpoints", "walk", "head"):
        if (real := getattr(store, verb, None)) is not None:

            def counting(*arguments: Any, _real: Any = real, _verb: str = verb, **named: Any) -> CheckpointRow | None:
                calls[_verb] += 1
                result: CheckpointRow | None = _real(*arguments, **named)
                return result

            monkeypatch.setattr(store, verb, counting)
    return calls


@pytest.mark.parametrize("back", [1, 2, 900, 1_001, 1_500, 1_900])
def test_counting_back_does_not_read_what_lies_between(long: Any, back: int) -> None:
    thread, made, calls = long
    assert thread.load(f"@-{back}").id == made[-back].id
    assert sum(calls.values()) < 60, calls


def test_the_end_of_an_id_is_found_without_a_search(long: Any) -> None:
    thread, made, calls = long
    for checkpoint in (made[0], made[450], made[-1]):
        assert thread.load(checkpoint.id[-8:]).id == checkpoint.id
        assert thread.load(checkpoint.id[-12:].upper()).id == checkpoint.id
    assert sum(calls.values()) < 30, calls


def test_the_end_of_an_id_that_is_not_stored_is_not_found(long: Any) -> None:
    thread, made, _ = long
    for text in ("ffffffff", "0" * 8, f"x{made[0].id[-8:]}"):
        with pytest.raises(NotFound):
            thread.load(text)
    with pytest.raises(Ambiguous):
        thread.load(made[0].id[:4])
