"""A call in doubt is known in every status of its run: it is listed, and a later turn does not repeat it silently."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

import holdfast
from holdfast import GiveUp, Happened, Holdfast, NotDone
from holdfast.runs.tools import Outcome
from tests.runs.conftest import World
from tests.runs.till import Till


@pytest.fixture
def till() -> Till:
    return Till(fault=TimeoutError("no answer"))


@pytest.fixture
def hf(world: World, till: Till) -> Holdfast:
    return world.open(till.pay)


def listed(hf: Holdfast) -> list[tuple[str, str, int]]:
    return [(each.thread, each.name, each.effect) for each in hf.waiting() if each.about == "in doubt"]


def waits(world: World, hf: Holdfast, till: Till) -> None:
    with world.running("t", hf, start={}, turn="1", ends="waiting") as run:
        run.tool("pay", {"card": "a"})


def is_cancelled(world: World, hf: Holdfast, till: Till) -> None:
    waits(world, hf, till)
    hf.cancel("t", "enough")


def dies_and_is_cancelled(world: World, hf: Holdfast, till: Till) -> None:
    till.fault = KeyboardInterrupt()
    with world.dying("t", hf, start={}, turn="1") as run, suppress(KeyboardInterrupt):
        run.tool("pay", {"card": "a"})
    hf.cancel("t", "enough")


def is_interrupted(world: World, hf: Holdfast, till: Till) -> None:
    till.fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), hf.run("t", start={}, turn="1") as run:
        run.tool("pay", {"card": "a"})
    assert run.status == "released"


def fails(world: World, hf: Holdfast, till: Till) -> None:
    till.fault = KeyboardInterrupt()
    with world.failing("t", ValueError, hf, start={}, turn="1") as run:
        with suppress(KeyboardInterrupt):
            run.tool("pay", {"card": "a"})
        raise ValueError


def is_halted(world: World, hf: Holdfast, till: Till) -> None:
    till.fault = KeyboardInterrupt()
    with world.running("t", hf, start={}, turn="1", ends="halted") as run:
        with suppress(KeyboardInterrupt):
            run.tool("pay", {"card": "a"})
        run.halt("enough")


WAYS = [waits, is_cancelled, dies_and_is_cancelled, is_interrupted, fails, is_halted]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_call_in_doubt_is_listed_in_every_status(
    world: World, hf: Holdfast, till: Till, way: Callable[[World, Holdfast, Till], None]
) -> None:
    way(world, hf, till)
    assert listed(hf) == [("t", "pay", 1)]
    hf.settle("t", 1, Happened("by hand"))
    assert listed(hf) == []


@pytest.mark.parametrize("outcome", [Happened("by hand"), NotDone(), GiveUp()], ids=lambda outcome: str(outcome)[:6])
@pytest.mark.parametrize("way", [is_cancelled, dies_and_is_cancelled, is_halted], ids=lambda way: way.__name__)
def test_a_new_turn_that_would_repeat_it_is_asked(
    world: World, hf: Holdfast, till: Till, way: Callable[[World, Holdfast, Till], None], outcome: Outcome
) -> None:
    way(world, hf, till)
    with world.running("t", hf, turn="2", ends="waiting") as run:
        run.tool("pay", {"card": "a"})
    assert till.paid == ["a"]
    [(_, name, number)] = listed(hf)
    assert name == "pay"
    hf.settle("t", number, outcome)
    with world.running("t", hf, turn="2", ends="completed") as run:
        result = run.tool("pay", {"card": "a"})
        run.finish()
    if isinstance(outcome, Happened):
        assert (result, till.paid) == ("by hand", ["a"])
    elif isinstance(outcome, NotDone):
        assert (result, till.paid) == ("receipt 2", ["a", "a"])
        assert len(set(till.keys)) == 1, "the call that was asked about is made again"
    else:
        assert (result["outcome"], till.paid) == ("unknown", ["a"])
    assert listed(hf) == []
    assert list(hf.stuck(0)) == []


@pytest.mark.parametrize("way", [is_cancelled, dies_and_is_cancelled, is_halted], ids=lambda way: way.__name__)
def test_a_new_turn_that_repeats_it_in_other_words_is_asked(
    world: World, hf: Holdfast, till: Till, way: Callable[[World, Holdfast, Till], None]
) -> None:
    way(world, hf, till)
    with world.running("t", hf, turn="2", ends="waiting") as run:
        run.tool("pay", {"card": "A"})
    assert till.paid == ["a"]
    info = hf.run_info("t")
    assert info is not None
    assert '{"card":"a"} (call 1)' in (info.reason or "")
    assert ("t", "pay", 1) in listed(hf), "the call in doubt is still to be settled"
    hf.settle("t", 1, Happened("by hand"))
    with world.running("t", hf, turn="2", ends="waiting") as run:
        run.tool("pay", {"card": "A"})
    [asked] = [each for each in hf.effects("t") if each.status == "asked"]
    hf.settle("t", asked, NotDone())
    with world.running("t", hf, turn="2", ends="completed") as run:
        assert run.tool("pay", {"card": "A"}) == "receipt 2"
        run.finish()
    assert till.paid == ["a", "A"]


def test_a_new_turn_that_does_something_else_leaves_it_listed(world: World, hf: Holdfast, till: Till) -> None:
    is_cancelled(world, hf, till)
    for turn in ("2", "3"):
        with world.running("t", hf, turn=turn, effects="live", ends="completed") as run:
            assert run.tool("pay", {"card": f"b{turn}"}) == f"receipt {turn}"
            run.finish()
    [found] = hf.stuck(0)
    assert (found.thread, found.status) == ("t", "completed")
    assert "pay (call 1)" in found.why
    with world.running("t", hf, turn="4", ends="waiting") as run:
        run.tool("pay", {"card": "a"})
    assert till.paid == ["a", "b2", "b3"]
    [(_, _, number)] = listed(hf)
    hf.settle("t", number, Happened("by hand"))
    with world.running("t", hf, turn="4", ends="completed") as run:
        assert run.tool("pay", {"card": "a"}) == "by hand"
        run.finish()
    assert list(hf.stuck(0)) == []


def test_a_doubt_that_was_settled_before_the_new_turn_is_over(world: World, hf: Holdfast, till: Till) -> None:
    is_cancelled(world, hf, till)
    hf.settle("t", 1, Happened("by hand"))
    with world.running("t", hf, turn="2", effects="live", ends="completed") as run:
        assert run.tool("pay", {"card": "a"}) == "receipt 2", "the user asks for another payment"
        run.finish()


def test_a_new_turn_probes_the_call_of_the_old_one(world: World) -> None:
    probed: list[str] = []
    keys: list[str] = []

    def probe(idempotency_key: str) -> Happened | None:
        probed.append(idempotency_key)
        return Happened("paid") if len(probed) > 1 else None

    @holdfast.tool(probe=probe)
    def pay(idempotency_key: str) -> None:
        keys.append(idempotency_key)
        raise TimeoutError

    hf = world.open(pay)
    with world.running("t", hf, start={}, turn="1", ends="waiting") as run:
        run.tool(pay, {})
    hf.cancel("t", "enough")
    with world.running("t", hf, turn="2", ends="completed") as run:
        assert run.tool(pay, {}) == "paid"
        run.finish()
    assert len(keys) == 1
    assert set(probed) == set(keys)


def test_a_run_that_a_worker_gave_up_lists_its_doubt(world: World, till: Till) -> None:
    hf = world.open(till.pay)
    hf.submit("h", "t", start={})
    till.fault = KeyboardInterrupt()
    with world.dying("t", hf, start={}) as run, suppress(KeyboardInterrupt):
        run.tool("pay", {"card": "a"})
    worker = hf.worker({"h": lambda run: run.finish()}, attempts=1)
    worker.run(until_idle=True)
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "dead"
    assert listed(hf) == [("t", "pay", 1)]
