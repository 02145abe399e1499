"""An irreversible call in other words, where a child made the earlier one or makes the new one: a person is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import holdfast
from holdfast import Holdfast, NotDone, Run
from tests.runs.conftest import World
from tests.runs.test_earlier_calls_reworded import Bank, bank, hf, reason

__all__ = ["bank", "hf"]

Work = Callable[[Run, str], None]


def directly(run: Run, *notes: str) -> None:
    for note in notes:
        run.tool("pay", {"invoice": "A-17", "note": note})


def in_child(run: Run, *notes: str, name: str = "c") -> None:
    with run.child(name, start={}) as child:
        if child.status != "completed":
            directly(child, *notes)
            child.finish(None)


def in_another_child(run: Run, *notes: str) -> None:
    in_child(run, *notes, name="other")


def in_grandchild(run: Run, *notes: str) -> None:
    with run.child("c", start={}) as child:
        if child.status != "completed":
            in_child(child, *notes)
            child.finish(None)


PLACES = [(in_child, in_child), (in_child, in_another_child), (in_child, directly), (directly, in_child)]
PLACES += [(in_grandchild, in_grandchild), (in_grandchild, directly), (directly, in_grandchild)]


def rewound(world: World, hf: Holdfast, work: Work) -> None:
    with world.running("t", hf, start={}, turn="1", ends="completed") as run:
        for _ in run.steps():
            work(run, "first")
            run.finish(None)
    hf.thread("t").rewind("@0", past_effects=True)


def cancelled(world: World, hf: Holdfast, work: Work) -> None:
    with world.failing("t", holdfast.Cancelled, hf, start={}, turn="1") as run:
        for step in run.steps():
            if step == 1:
                work(run, "first")
            else:
                hf.cancel("t", "stop")
                run.wait("more")


def asked_in(hf: Holdfast) -> list[tuple[str, int]]:
    names = [thread.name for thread in hf.threads()]
    return [(name, each.number) for name in names for each in hf.effects(name) if each.status == "asked"]


@pytest.mark.parametrize("ends", [rewound, cancelled])
@pytest.mark.parametrize(("first", "second"), PLACES)
def test_a_call_in_other_words_asks_first(
    world: World, hf: Holdfast, bank: Bank, ends: Callable[[World, Holdfast, Work], None], first: Work, second: Work
) -> None:
    ends(world, hf, first)
    for _ in range(2):
        with world.running("t", hf, turn="2", ends="waiting") as run:
            second(run, "second")
    assert bank.paid == ["first"]
    [(thread, number)] = asked_in(hf)
    assert all(note in (hf.run_info(thread).reason or "") for note in ("first", "second"))  # type: ignore[union-attr]
    hf.settle(thread, number, NotDone())
    with world.running("t", hf, turn="2") as run:
        second(run, "second")
    assert bank.paid == ["first", "second"]


@pytest.mark.parametrize("ends", [rewound, cancelled])
def test_a_person_who_has_allowed_a_call_is_not_asked_again(
    world: World, hf: Holdfast, bank: Bank, ends: Callable[[World, Holdfast, Work], None]
) -> None:
    ends(world, hf, in_child)
    with world.running("t", hf, turn="2", ends="waiting") as run:
        in_child(run, "second", "third")
    [(thread, number)] = asked_in(hf)
    hf.settle(thread, number, NotDone())
    with world.running("t", hf, turn="2") as run:
        in_child(run, "second", "third")
        directly(run, "fourth")
    assert bank.paid == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize("ends", [rewound, cancelled])
@pytest.mark.parametrize(("first", "second"), PLACES)
def test_live_says_that_one_means_it(
    world: World, hf: Holdfast, bank: Bank, ends: Callable[[World, Holdfast, Work], None], first: Work, second: Work
) -> None:
    ends(world, hf, first)
    with world.running("t", hf, turn="2", effects="live") as run:
        second(run, "second")
    assert bank.paid == ["first", "second"]


def test_a_call_that_was_answered_from_the_record_is_not_asked_about(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, in_child)
    with world.running("t", hf, turn="2") as run:
        in_child(run, "first")
        run.save()
    with world.running("t", hf, turn="2") as run:
        in_child(run, "second")
        directly(run, "third")
    assert bank.paid == ["first", "second", "third"]
    assert not reason(hf)


def test_a_turn_that_completed_asks_nothing(world: World, hf: Holdfast, bank: Bank) -> None:
    for turn in ("1", "2"):
        with world.running("t", hf, start={}, turn=turn, ends="completed") as run:
            for _ in run.steps():
                in_child(run, turn)
                directly(run, f"{turn} too")
                run.finish(None)
    assert bank.paid == ["1", "1 too", "2", "2 too"]
