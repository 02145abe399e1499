"""How often a resume asks the store, from entering the block to the first replayed call."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import holdfast
from holdfast import Run
from holdfast.runs import journal
from holdfast.stores.contract import Store
from tests.runs.conftest import World


class Counting:
    """A store that notes the verbs that are called in a block, except renewals of the lease."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self.called.append(name)
            return found(*args, **options)

        return call


@pytest.fixture
def counting(world: World) -> tuple[holdfast.Holdfast, Counting]:
    made: list[Counting] = []

    def between(store: Store) -> Any:
        made.append(Counting(store))
        return made[0]

    hf = world.open(store=between)
    return hf, made[0]


def reply() -> str:
    return "reply"


def die_after_two_calls(world: World, **options: Any) -> None:
    with world.dying("t", world.open(), start={"n": 1}, **options) as run:
        run.model(reply, key="first")
        run.model(lambda: "more", key="second")


def test_a_resume_reads_each_record_once(
    world: World, counting: tuple[holdfast.Holdfast, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_POLL_SECONDS", 600.0)  # a call on a slow machine looks for new entries, too
    die_after_two_calls(world)
    hf, store = counting
    store.called.clear()
    with world.running("t", hf, lease=600) as run:
        assert run.model(reply, key="first") == "reply"
        called = list(store.called)
    assert called == ["head", "run", "claim", "entries"]


def test_a_worker_does_not_read_a_record_that_it_was_given(
    world: World, counting: tuple[holdfast.Holdfast, Counting]
) -> None:
    world.open().submit("h", "t", start={"n": 1})
    hf, store = counting
    seen: list[Counter[str]] = []

    def handler(run: Run) -> str:
        seen.append(Counter(store.called))
        return "done"

    hf.worker({"h": handler}, lease=600).run(until_idle=True)
    [called] = seen
    assert (called["run"], called["head"], called["claim"], called["last_entry"]) == (0, 1, 1, 0)
