"""Rewinding and forking do not take back what was done: confirmation, matching, and runs that may not act."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import GiveUp, Happened, Holdfast, InvalidArgument, NotDone, Retention, Run, ToolNotDone
from holdfast.errors import EffectsAhead, NotRecorded
from tests.runs.conftest import World


class Bank:
    """What was charged, and what was read."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.keys: list[str] = []
        self.read = 0
        self.fault: Exception | None = None
        self.charge = holdfast.tool(effect="irreversible", name="charge")(self._charge)
        self.post = holdfast.tool(effect="idempotent", name="post")(self._post)
        self.look = holdfast.tool(effect="read", name="look")(self._look)

    def _charge(self, card: str) -> str:
        self.charged.append(card)
        if self.fault is not None:
            raise self.fault
        return f"receipt {len(self.charged)}"

    def _post(self, text: str, idempotency_key: str) -> str:
        self.keys.append(idempotency_key)
        return f"posted {text}"

    def _look(self) -> int:
        self.read += 1
        return self.read


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def hf(world: World, bank: Bank) -> Holdfast:
    """Two steps, each with a model call, a read and two effects."""
    opened = world.open(bank.charge, bank.post, bank.look)
    with world.running("t", opened, start={"n": 0}) as run:
        for step in run.steps():
            if step == 3:
                break
            step_of(run, step)
    return opened


def step_of(run: Run, step: int) -> tuple[Any, ...]:
    return (
        run.tool("look", {}),
        run.tool("charge", {"card": f"card {step}"}),
        run.tool("post", {"text": f"text {step}"}),
    )


# -- rewinding --------------------------------------------------------------------------------------------------------


def test_rewinding_past_what_cannot_be_undone_must_be_confirmed(hf: Holdfast, bank: Bank) -> None:
    thread = hf.thread("t")
    with pytest.raises(EffectsAhead, match="charge") as refused:
        thread.rewind("@1")
    assert "post" not in str(refused.value), "what is idempotent can be done again"
    assert thread.head() == hf.thread("t").head()
    thread.rewind("@2")
    assert thread.rewind("@1", past_effects=True).step == 1


def test_rewinding_to_after_the_effects_needs_nothing(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge, bank.post, bank.look)
    with world.running("t", hf, start={}) as run:
        run.tool("charge", {"card": "a"})
        run.save()
        run.tool("look", {})
        run.save()
    assert hf.thread("t").rewind("@1").step == 1


def test_what_is_open_lies_ahead_too(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    with world.running("t", hf, start={}) as run:
        run.tool("charge", {"card": "a"})
    with pytest.raises(EffectsAhead):
        hf.thread("t").rewind("@0")


def test_what_was_not_done_is_nothing(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    bank.fault = ToolNotDone("refused")
    with world.running("t", hf, start={}) as run, pytest.raises(ToolNotDone):
        run.tool("charge", {"card": "a"})
    hf.thread("t").rewind("@0")


def test_what_the_abandoned_branch_did_is_given_back_once_each(world: World, hf: Holdfast, bank: Bank) -> None:
    hf.thread("t").rewind("@0", past_effects=True)
    with world.running("t", hf, effects="live") as run:
        for step in run.steps():
            if step == 3:
                break
            read, receipt, posted = step_of(run, step)
            assert (receipt, posted) == (f"receipt {step}", f"posted text {step}")
            assert read == 2 + step, "what was read is read again"
            # The same again is another effect.
            assert run.tool("charge", {"card": f"card {step}"}) == f"receipt {2 + step}"
    assert bank.charged == ["card 1", "card 2", "card 1", "card 2"]
    assert len(set(bank.keys)) == 2


def test_each_is_given_once_also_over_a_crash(world: World, hf: Holdfast, bank: Bank) -> None:
    hf.thread("t").rewind("@0", past_effects=True)
    with world.dying("t", hf, effects="live") as run:
        assert run.tool("charge", {"card": "card 1"}, key="a") == "receipt 1"
        assert run.tool("charge", {"card": "card 1"}, key="b") == "receipt 3"
    with world.running("t", hf, effects="live") as run:
        assert run.tool("charge", {"card": "card 1"}, key="a") == "receipt 1"
        assert run.tool("charge", {"card": "card 1"}, key="b") == "receipt 3"
        run.save()
        assert run.tool("charge", {"card": "card 1"}, key="a") == "receipt 4"


def test_rewound_again_it_is_still_given_once(world: World, hf: Holdfast, bank: Bank) -> None:
    for _ in range(3):
        hf.thread("t").rewind("@0", past_effects=True)
        with world.running("t", hf) as run:
            assert run.tool("charge", {"card": "card 1"}) == "receipt 1"
            run.save()
    assert bank.charged == ["card 1", "card 2"]


def test_what_was_before_the_rewind_is_not_given_again(world: World, hf: Holdfast, bank: Bank) -> None:
    hf.thread("t").rewind("@1", past_effects=True)
    with world.running("t", hf, effects="live") as run:
        assert run.tool("charge", {"card": "card 1"}) == "receipt 3"
        assert run.tool("charge", {"card": "card 2"}) == "receipt 2"


def test_other_arguments_are_another_effect_if_one_means_it(world: World, hf: Holdfast, bank: Bank) -> None:
    hf.thread("t").rewind("@0", past_effects=True)
    with world.running("t", hf, effects="live") as run:
        assert run.tool("charge", {"card": "card 9"}) == "receipt 3"


def test_what_is_in_doubt_there_is_in_doubt_here(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    bank.fault = ConnectionError()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool("charge", {"card": "a"})
    hf.thread("t").rewind("@0", past_effects=True)
    bank.fault = None
    with world.running("t", hf, ends="waiting") as run:
        run.tool("charge", {"card": "a"})
    assert bank.charged == ["a"]
    [question] = hf.waiting()
    hf.settle("t", question.effect, Happened("it was paid"))
    with world.running("t", hf) as run:
        assert run.tool("charge", {"card": "a"}) == "it was paid"


def test_a_call_in_doubt_there_is_asked_about_with_its_own_idempotency_key(world: World) -> None:
    keys: list[str] = []

    def probe(idempotency_key: str) -> Happened:
        keys.append(idempotency_key)
        return Happened("paid")

    @holdfast.tool(effect="irreversible", probe=probe)
    def charge(idempotency_key: str) -> None:
        keys.append(idempotency_key)
        raise KeyboardInterrupt

    hf = world.open(charge)
    with world.dying("t", hf, start={}) as run, pytest.raises(KeyboardInterrupt):
        run.tool(charge, {})
    hf.thread("t").rewind("@0", past_effects=True)
    with world.running("t", hf) as run:
        assert run.tool(charge, {}, key="another") == "paid"
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_what_was_given_back_twice_is_one_effect_still(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    receipts: list[str] = []
    for wanted in (1, 1, 2):
        with world.running("t", hf, start={}) as run:
            receipts = [run.tool("charge", {"card": "a"}, key=str(n)) for n in range(wanted)]
            run.save()
        hf.thread("t").rewind("@0", past_effects=True)
    assert receipts == ["receipt 1", "receipt 2"]


def test_what_was_in_doubt_and_settled_on_another_branch_is_given_as_it_was_settled(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    bank.fault = ConnectionError()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool("charge", {"card": "a"})
    hf.thread("t").rewind("@0", past_effects=True)
    with world.running("t", hf, ends="waiting") as run:
        run.tool("charge", {"card": "a"})
    hf.settle("t", next(iter(hf.waiting())).effect, Happened("it was paid"))
    hf.thread("t").rewind("@0", past_effects=True)
    with world.running("t", hf) as run:
        assert run.tool("charge", {"card": "a"}) == "it was paid"


def test_checkpoints_that_were_pruned_lead_to_the_head_all_the_same(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    with world.running("t", hf, start={}) as run:
        run.tool("charge", {"card": "a"})
        for _ in range(3):
            run.save()
    for _ in range(2):
        hf.thread("t").rewind("@2")
        with world.running("t", hf) as run:
            for _ in range(5):
                run.save()
    assert hf.thread("t").prune(Retention(keep_last=1)).kept == 1
    with world.running("t", hf) as run:
        assert run.tool("charge", {"card": "a"}) == "receipt 2", "the first one counts, so this is another"


def test_a_turn_is_not_done_again_after_a_rewind_and_pruning(world: World) -> None:
    hf = world.open()
    done: list[str] = []

    def turn(name: str) -> None:
        with hf.run("t", start={}, turn=name) as run:
            if run.status != "completed":
                done.append(name)
                run.finish(name)

    for name in "ab":
        turn(name)
    hf.thread("t").rewind("@1", past_effects=True)
    turn("c")
    hf.thread("t").prune(Retention(keep_last=1))
    turn("a")
    assert done == ["a", "b", "c"]


def test_a_rewind_to_another_branch_is_past_what_was_done_on_this_one(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    with world.running("t", hf, start={}) as run:
        run.save()
        run.tool("charge", {"card": "a"})
        charged = run.save()
    hf.thread("t").rewind("@1", past_effects=True)
    with world.running("t", hf) as run:
        other = run.save()
    hf.thread("t").rewind(charged.id)
    with pytest.raises(EffectsAhead, match="charge"):
        hf.thread("t").rewind(other.id)
    assert hf.thread("t").rewind(charged.id).step == 2


def test_what_was_asked_about_before_it_was_started_is_nothing(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    with world.running("t", hf, start={}, effects="ask", ends="waiting") as run:
        run.tool("charge", {"card": "a"})
    assert [effect.status for effect in hf.effects("t")] == ["asked"]
    assert hf.undo("t", to="@0") == []
    hf.thread("t").rewind("@0")


def test_each_turn_has_idempotency_keys_of_its_own(world: World, bank: Bank) -> None:
    hf = world.open(bank.post)
    for turn in "abab":
        with world.running("t", hf, start={}, turn=turn, ends="halted") as run:
            run.tool("post", {"text": turn})
            run.halt("enough")
    assert len(set(bank.keys)) == 4
    with world.dying("t", hf, turn="b") as run:
        assert run.tool("post", {"text": "b"}) == "posted b"
    assert len(bank.keys) == 4


def test_a_call_in_doubt_of_another_turn_keeps_its_key_through_a_rewind(world: World) -> None:
    keys: list[str] = []

    @holdfast.tool(effect="idempotent")
    def post(idempotency_key: str) -> None:
        keys.append(idempotency_key)
        if len(keys) == 2:
            raise KeyboardInterrupt

    hf = world.open(post)
    with world.running("t", hf, start={}, turn="a", ends="halted") as run:
        run.tool("post", {})
        run.halt("enough")
    with world.dying("t", hf, turn="b") as run, pytest.raises(KeyboardInterrupt):
        run.tool("post", {})
    hf.thread("t").rewind("@0")
    with world.running("t", hf, turn="b") as run:
        for key in "xyz":
            run.tool("post", {}, key=key)
    # Given back: the first; made again under its own key: the second; new: the third.
    assert keys[2] == keys[1] != keys[0]
    assert len(set(keys)) == 3


# -- forks ------------------------------------------------------------------------------------------------------------


def test_a_fork_asks_before_it_acts(world: World, hf: Holdfast, bank: Bank) -> None:
    hf.thread("t").fork("f", at="@2")
    with world.running("f", hf, ends="waiting") as run:
        run.tool("look", {})
        run.tool("post", {"text": "new"})
        run.tool("charge", {"card": "new"})
    assert bank.charged == ["card 1", "card 2"]
    [question] = hf.waiting()
    assert (question.thread, question.name, question.about) == ("f", "charge", "in doubt")
    assert question.payload == {"card": "new"}
    hf.settle("f", question.effect, NotDone())
    with world.running("f", hf) as run:
        run.tool("look", {})
        run.tool("post", {"text": "new"})
        assert run.tool("charge", {"card": "new"}) == "receipt 3"


@pytest.mark.parametrize("rule", [{"probe": lambda card: NotDone()}, {"in_doubt": "rerun"}])
def test_a_fork_asks_until_it_is_answered(world: World, rule: Any) -> None:
    """Nothing was started, so what the tool says of calls in doubt is not meant."""
    charged: list[str] = []

    def charge(card: str) -> None:
        charged.append(card)

    hf = world.open(holdfast.tool(effect="irreversible", **rule)(charge))
    hf.thread("t").save({})
    hf.thread("t").fork("f")
    for _ in range(2):
        with world.running("f", hf, ends="waiting") as run:
            run.tool("charge", {"card": "a"}, key="k")
    assert charged == []
    assert [question.about for question in hf.waiting()] == ["in doubt"]
    with world.running("f", hf, effects="recorded") as run, pytest.raises(NotRecorded):
        run.tool("charge", {"card": "a"}, key="k")
    with world.running("f", hf, effects="live") as run:
        run.tool("charge", {"card": "a"}, key="k")
    assert charged == ["a"]
    assert [effect.status for effect in hf.effects("f")] == ["done"]


@pytest.mark.parametrize("effect", ["irreversible", "idempotent"])
def test_what_is_in_doubt_in_its_origin_a_fork_asks_about(world: World, effect: Any) -> None:
    calls: list[str] = []

    def probe(idempotency_key: str) -> NotDone:
        calls.append("probe")
        return NotDone()

    def charge(idempotency_key: str) -> str:
        calls.append(idempotency_key)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "paid"

    hf = world.open(holdfast.tool(effect=effect, probe=None if effect == "idempotent" else probe)(charge))
    with world.dying("t", hf, start={}) as run, pytest.raises(KeyboardInterrupt):
        run.tool("charge", {})
    hf.thread("t").fork("f")
    for _ in range(2):
        with world.running("f", hf, ends="waiting") as run:
            run.tool("charge", {})
    assert len(calls) == 1
    hf.settle("f", next(iter(hf.waiting())).effect, Happened("seen on the statement"))
    with world.running("f", hf) as run:
        assert run.tool("charge", {}) == "seen on the statement"
    with pytest.raises(holdfast.Conflict, match="in doubt"):
        hf.undo("t", to="@0")
    assert hf.undo("f", to="@-1") == [], "it is the origin's"


@pytest.mark.parametrize("outcome", [Happened("pretend"), GiveUp()])
def test_an_answer_can_stand_in_for_the_effect(world: World, hf: Holdfast, bank: Bank, outcome: Any) -> None:
    hf.thread("t").fork("f", at="@2")
    with world.running("f", hf, ends="waiting") as run:
        run.tool("charge", {"card": "new"})
    hf.settle("f", next(iter(hf.waiting())).effect, outcome)
    with world.running("f", hf) as run:
        result = run.tool("charge", {"card": "new"})
        assert result == "pretend" or result["outcome"] == "unknown"
    assert bank.charged == ["card 1", "card 2"]


def test_a_fork_is_given_back_what_its_origin_did_after_it(world: World, hf: Holdfast, bank: Bank) -> None:
    """Debugging by fork never charges a card."""
    hf.thread("t").fork("f", at="@1")
    for effects in ("ask", "recorded"):
        with world.running("f", hf, effects=effects) as run:
            assert step_of(run, 2)[1:] == ("receipt 2", "posted text 2")
    assert bank.charged == ["card 1", "card 2"]


def test_a_run_that_only_replays_executes_nothing_but_reads(world: World, hf: Holdfast, bank: Bank) -> None:
    hf.thread("t").fork("f", at="@1")
    keys = list(bank.keys)
    with world.running("f", hf, effects="recorded") as run:
        assert run.tool("look", {}) == 3
        for name, args in (("charge", {"card": "new"}), ("post", {"text": "new"})):
            with pytest.raises(NotRecorded, match=name):
                run.tool(name, args)
        assert run.tool("charge", {"card": "card 2"}) == "receipt 2"
        with pytest.raises(NotRecorded):
            run.tool("charge", {"card": "card 2"})
    assert (bank.charged, bank.keys) == (["card 1", "card 2"], keys)


@pytest.mark.parametrize("fault", [ToolNotDone("closed"), KeyboardInterrupt()])
def test_a_run_that_only_replays_does_not_take_up_what_failed_or_is_in_doubt(
    world: World, bank: Bank, fault: BaseException
) -> None:
    calls: list[int] = []

    def act() -> None:
        calls.append(1)
        raise fault

    tool = holdfast.tool(effect="idempotent", name="act")(act)
    with world.dying("t", start={}) as run, pytest.raises(type(fault)):
        run.tool(tool, {}, key="k")
    with world.running("t", effects="recorded") as run, pytest.raises(NotRecorded):
        run.tool(tool, {}, key="k")
    assert len(calls) == 1


def test_a_fork_that_is_told_so_acts(world: World, hf: Holdfast, bank: Bank) -> None:
    hf.thread("t").fork("f", at="@1")
    with world.running("f", hf, effects="live") as run:
        assert step_of(run, 2)[1] == "receipt 3"
    assert bank.charged == ["card 1", "card 2", "card 2"]


def test_any_run_can_be_told_to_ask(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    with world.running("t", hf, start={}, effects="ask", ends="waiting") as run:
        run.tool("charge", {"card": "a"})
    assert bank.charged == []


def test_what_effects_can_be(world: World) -> None:
    wrong: Any
    for wrong in ("", "dry", 5, True):
        with pytest.raises(InvalidArgument, match="recorded"):
            world.open().run("t", start={}, effects=wrong)
