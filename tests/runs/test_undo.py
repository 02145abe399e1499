"""Undoing: what tools can take back is taken back, newest first, each once, and only when it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Happened, Holdfast, InvalidArgument, NotDone, NotFound, Run, ToolNotDone
from holdfast.errors import EffectsAhead
from tests.runs.conftest import Crash, World
from tests.selection import every_store


class Shop:
    """Orders, and what was cancelled of them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fault: BaseException | None = None
        self.keys: list[str] = []
        self.order = holdfast.tool(effect="irreversible", undo=self._cancel, name="order")(self._order)
        self.note = holdfast.tool(effect="idempotent", name="note")(self._note)
        self.ship = holdfast.tool(effect="irreversible", name="ship")(self._note)

    def _order(self, item: str) -> str:
        self.log.append(f"+{item}")
        return f"order of {item}"

    def _cancel(self, item: str, result: str, idempotency_key: str) -> str:
        if self.fault is not None:
            raise self.fault
        self.log.append(f"-{item}")
        self.keys.append(idempotency_key)
        return f"cancelled {result}"

    def _note(self, item: str) -> None:
        self.log.append(f"note {item}")


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def hf(world: World, shop: Shop) -> Holdfast:
    opened = world.open(shop.order, shop.note, shop.ship)
    with world.running("t", opened, start={}) as run:
        for step in run.steps():
            if step == 4:
                break
            run.tool("order", {"item": str(step)})
            run.tool("note", {"item": str(step)})
    shop.log.clear()
    return opened


def test_what_was_done_is_taken_back_newest_first(hf: Holdfast, shop: Shop) -> None:
    undone = hf.undo("t", to="@1")
    assert shop.log == ["-3", "-2"]
    assert [(effect.effect, effect.name, effect.result) for effect in undone] == [
        ("undo", "order", "cancelled order of 3"),
        ("undo", "order", "cancelled order of 2"),
    ]
    assert len(set(shop.keys)) == 2
    assert hf.thread("t").step() == 3, "nothing is rewound by it"


@every_store("each store compares the record that an entry from outside expects")
def test_each_is_undone_once(hf: Holdfast, shop: Shop) -> None:
    hf.undo("t", to="@1")
    assert hf.undo("t", to="@1") == []
    assert [effect.name for effect in hf.undo("t", to="@0")] == ["order"]
    assert shop.log == ["-3", "-2", "-1"]


def test_what_was_undone_does_not_stand_in_the_way_of_a_rewind_and_is_not_given_back(
    world: World, hf: Holdfast, shop: Shop
) -> None:
    with pytest.raises(EffectsAhead):
        hf.thread("t").rewind("@1")
    hf.undo("t", to="@1")
    hf.thread("t").rewind("@1")
    with world.running("t", hf) as run:
        run.tool("order", {"item": "2"})
    assert shop.log == ["-3", "-2", "+2"]


def test_what_was_given_back_and_then_undone_is_not_given_back_again(world: World, shop: Shop) -> None:
    hf = world.open(shop.order)
    for wanted in (["+1"], ["+1"], ["+1", "-1", "+1"]):
        with world.running("t", hf, start={}) as run:
            run.tool("order", {"item": "1"})
            run.save()
        assert shop.log == wanted
        if len(hf.effects("t")) == 2:
            assert len(hf.undo("t", to="@0")) == 1
        hf.thread("t").rewind("@0", past_effects=True)


def test_what_was_undone_in_an_open_step_is_done_anew(world: World) -> None:
    keys: list[str] = []

    def charge(idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) == 2:
            raise KeyboardInterrupt
        return f"receipt {len(keys)}"

    tool = holdfast.tool(effect="irreversible", undo=lambda: None, in_doubt="rerun")(charge)
    hf = world.open(tool)
    with world.failing("t", ValueError, hf, start={}) as run:
        run.tool("charge", {})
        raise ValueError
    hf.undo("t", to="@0")
    with world.dying("t", hf) as run, pytest.raises(KeyboardInterrupt):
        run.tool("charge", {})
    with world.running("t", hf) as run:
        assert run.tool("charge", {}) == "receipt 3"
    assert keys[0] != keys[1], "the service would answer with what was taken back"
    assert keys[1] == keys[2], "the same call, made again"


def test_an_undoing_does_not_hide_what_was_recorded_before_it(world: World, shop: Shop) -> None:
    asked: list[int] = []
    hf = world.open(shop.order)

    def program(run: Run) -> None:
        run.tool("order", {"item": "1"})
        run.save()
        for _ in range(600):
            run.model(asked.append, 1)

    with world.dying("t", hf, start={}) as run:
        program(run)
    hf.undo("t", to="@0")
    with world.running("t", hf) as run:
        program(run)
    assert shop.log == ["+1", "-1", "+1"]
    assert len(asked) == 600


def test_what_was_given_up_is_left_as_it_is(world: World, shop: Shop) -> None:
    def fail(item: str) -> None:
        raise ConnectionError

    hf = world.open(holdfast.tool(effect="irreversible", undo=shop._cancel, in_doubt="give_up", name="order")(fail))
    with world.running("t", hf, start={}) as run:
        run.tool("order", {"item": "1"})
    assert hf.undo("t", to="@0") == []


def test_nothing_is_undone_if_something_cannot_be(world: World, hf: Holdfast, shop: Shop) -> None:
    with world.running("t", hf) as run:
        run.tool("ship", {"item": "4"})
    with pytest.raises(Conflict, match="ship has no undo"):
        hf.undo("t", to="@1")
    with pytest.raises(Conflict, match="not among the tools"):
        world.open().undo("t", to="@1")
    assert "-3" not in shop.log


def test_what_is_in_doubt_has_to_be_settled_first(world: World, shop: Shop) -> None:
    def fail(item: str) -> None:
        raise ConnectionError

    order = holdfast.tool(effect="irreversible", undo=shop._cancel, name="order")(fail)
    hf = world.open(order)
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool("order", {"item": "1"})
    with pytest.raises(Conflict, match="in doubt"):
        hf.undo("t", to="@0")
    hf.settle("t", 1, Happened("order of 1"))
    assert len(hf.undo("t", to="@0")) == 1


@pytest.mark.parametrize("fault", [ConnectionError("cut"), Crash()])
def test_an_undoing_in_doubt_is_not_repeated_silently(hf: Holdfast, shop: Shop, fault: BaseException) -> None:
    shop.fault = fault
    with pytest.raises(type(fault)):
        hf.undo("t", to="@2")
    shop.fault = None
    with pytest.raises(Conflict, match="has no recorded outcome"):
        hf.undo("t", to="@2")
    [entry] = [effect for effect in hf.effects("t") if effect.effect == "undo"]
    assert entry.status == "in_doubt"
    hf.settle("t", entry, Happened("by hand"))
    assert hf.undo("t", to="@2") == []
    assert shop.log == []


def test_an_undoing_that_was_not_done_can_be_tried_again(hf: Holdfast, shop: Shop) -> None:
    shop.fault = ToolNotDone("closed")
    with pytest.raises(ToolNotDone):
        hf.undo("t", to="@1")
    shop.fault = None
    hf.undo("t", to="@1")
    assert shop.log == ["-3", "-2"]


def test_a_process_that_dies_in_an_undoing_leaves_it_in_doubt(
    hf: Holdfast, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = hf.context.store.post

    def die(*args: Any, **options: Any) -> None:
        if "status" in options:
            raise Crash
        post(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(hf.context.store, "post", die)
        with pytest.raises(Crash):
            hf.undo("t", to="@1")
    assert shop.log == ["-3"]
    with pytest.raises(Conflict, match="has no recorded outcome"):
        hf.undo("t", to="@1")
    hf.settle("t", next(effect for effect in hf.effects("t") if effect.effect == "undo"), Happened())
    hf.undo("t", to="@1")
    assert shop.log == ["-3", "-2"]


def test_a_thread_that_is_being_run_is_not_undone(world: World, hf: Holdfast, shop: Shop) -> None:
    with world.running("t", hf), pytest.raises(Conflict, match="being run"):
        hf.undo("t", to="@1")
    assert shop.log == []


def test_what_cannot_be_undone(world: World, hf: Holdfast) -> None:
    with pytest.raises(NotFound):
        hf.undo("nobody", to="@1")
    with pytest.raises(NotFound):
        hf.undo("t", to="@99")
    hf.thread("plain").save({})
    with pytest.raises(NotFound, match="never had a run"):
        hf.undo("plain", to="@1")

    async def later() -> None: ...

    wrong: Any
    for wrong in (5, later):
        with pytest.raises(InvalidArgument, match="undo"):
            holdfast.tool(undo=wrong)(print)
    with pytest.raises(InvalidArgument, match="undo"):
        holdfast.tool(effect="read", undo=print)(print)


# -- runs that are resumed while an effect is being undone ------------------------------------------------------------


def ordering(world: World, hf: Holdfast, run_ends: str) -> str | None:
    """Run the program that orders ink, and return the receipt that it went on with."""
    receipt: str | None = None
    with world.running("t", hf, ends=run_ends) as run:
        receipt = run.tool("order", {"item": "ink"})
        run.finish(receipt)
    return receipt


def test_a_run_does_not_go_on_with_the_result_of_a_call_that_is_being_undone(world: World) -> None:
    log: list[str] = []
    resumed: list[str | None] = []

    def cancel(item: str) -> None:
        if not resumed:
            resumed.append(ordering(world, opened, "waiting"))
        log.append(f"-{item}")

    @holdfast.tool(undo=cancel)
    def order(item: str) -> str:
        log.append(f"+{item}")
        return f"order {len(log)}"

    opened = world.open(order)
    with world.dying("t", opened, start={}) as run:
        run.tool("order", {"item": "ink"})
    [undone] = opened.undo("t", to="@0")
    assert undone.status == "done"
    assert resumed == [None]
    assert log == ["+ink", "-ink"]
    info = opened.run_info("t")
    assert info is not None
    assert info.status == "queued", "the end of the undo wakes the run"
    assert ordering(world, opened, "completed") == "order 3"


@pytest.mark.parametrize("settled", [Happened(), NotDone()])
def test_a_run_waits_while_it_is_unknown_whether_a_call_was_undone(
    world: World, shop: Shop, settled: Happened | NotDone
) -> None:
    hf = world.open(shop.order)
    with world.dying("t", hf, start={}) as run:
        run.tool("order", {"item": "ink"})
    shop.fault = TimeoutError()
    with pytest.raises(TimeoutError):
        hf.undo("t", to="@0")
    assert ordering(world, hf, "waiting") is None
    [question] = hf.waiting()
    assert (question.about, question.name) == ("in doubt", "order")
    hf.settle("t", question.effect, settled)
    assert ordering(world, hf, "completed") == "order of ink"
    assert shop.log == (["+ink"] if settled == NotDone() else ["+ink", "+ink"])


def test_a_run_waits_for_an_undo_of_a_closed_step_too(world: World, shop: Shop) -> None:
    hf = world.open(shop.order)
    with world.running("t", hf, start={}) as run:
        for step in run.steps():
            if step == 2:
                break
            run.state["receipt"] = run.tool("order", {"item": "ink"})
    shop.fault = TimeoutError()
    with pytest.raises(TimeoutError):
        hf.undo("t", to="@0")
    with world.running("t", hf, ends="waiting") as run:
        run.finish(run.state["receipt"])


def test_a_parent_does_not_go_on_with_the_result_of_a_child_that_is_being_undone(world: World, shop: Shop) -> None:
    hf = world.open(shop.order)
    with world.running("t", hf, start={}) as run, run.child("c", start={}) as child:
        child.finish(child.tool("order", {"item": "ink"}))
    shop.fault = TimeoutError()
    with pytest.raises(TimeoutError):
        hf.undo("t", to="@0")
    with world.running("t", hf, ends="waiting") as run:
        with run.child("c", start={}) as child:
            pass
        run.finish(child.result)
    shop.fault = None
    [question] = [each for each in hf.effects("t/c") if each.status == "in_doubt"]
    hf.settle("t/c", question, NotDone())
    assert [each.name for each in hf.undo("t", to="@0")] == ["order"]
    with world.running("t", hf, ends="completed") as run:
        with run.child("c", start={}) as child:
            child.finish(child.tool("order", {"item": "ink"}))
        run.finish(child.result)
    assert shop.log == ["+ink", "-ink", "+ink"]


def test_an_act_is_undone_with_the_arguments_that_it_was_done_with(world: World) -> None:
    refunded: list[int] = []

    @holdfast.tool(effect="irreversible", identity=("invoice",), undo=lambda invoice, amount: refunded.append(amount))
    def pay(invoice: str, amount: int) -> str:
        return f"paid {amount}"

    hf = world.open(pay)
    for amount in (10, 12, 15):
        with world.running("t", hf, start={}) as run:
            assert run.tool(pay, {"invoice": "A-17", "amount": amount}) == "paid 10"
        hf.thread("t").rewind("@0", past_effects=True)
    with world.running("t", hf) as run:
        assert run.tool(pay, {"invoice": "A-17", "amount": 20}) == "paid 10", "the same act, in other words"
    [undone] = hf.undo("t", to="@0")
    assert refunded == [10]
    assert undone.arguments == {"invoice": "A-17", "amount": 10}
