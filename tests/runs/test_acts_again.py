"""Acts that are tried again: reruns, releases, idempotency keys, and calls that take over the act of another."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import holdfast
from holdfast import Happened, Holdfast, NotDone
from holdfast.errors import ActUnderWay
from holdfast.runs import acts
from holdfast.runs.acts import ClaimedAct, claim_of
from holdfast.threads.scan import thread_named
from tests.runs.conftest import Crash, World
from tests.runs.test_acts import Bank, left_in_doubt, pay, pay_once


class Service:
    """Pays once per idempotency key, as a payment service does."""

    def __init__(self, **declared: Any) -> None:
        self.keys: list[str] = []
        self.fault: BaseException | None = None
        declared = {"effect": "irreversible", "name": "pay", "identity": ("invoice",), "in_doubt": "rerun"} | declared
        self.pay = holdfast.tool(**declared)(self._pay)

    def _pay(self, invoice: str, idempotency_key: str, note: str = "") -> str:
        self.keys.append(idempotency_key)
        if self.fault is not None:
            raise self.fault
        return f"receipt {len(set(self.keys))}"


@pytest.fixture
def bank() -> Bank:
    return Bank()


# -- a rerun ----------------------------------------------------------------------------------------------------------


def test_a_call_that_has_read_the_claim_before_a_rerun_does_not_act(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "WAIT_SECONDS", 0.1)
    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        leave.wait(60)

    def resume() -> None:
        with world.running("a", hf) as run:
            pay_once(run, "first")

    first = threading.Thread(target=resume)

    def read_then_resume(*given: Any) -> ClaimedAct | None:
        monkeypatch.setattr(acts, "claim_of", claim_of)
        held = claim_of(*given)
        bank.before = hold
        first.start()
        assert inside.wait(60)
        return held

    monkeypatch.setattr(acts, "claim_of", read_then_resume)
    with pytest.raises(ActUnderWay), world.running("b", hf, start={"n": 0}) as run:
        pay_once(run, "second")
    leave.set()
    first.join(60)
    assert [note for _, note in bank.paid] == ["first", "first"]


def test_a_released_act_that_its_own_run_does_again_is_done(world: World) -> None:
    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    [act] = hf.acts()
    hf.release(act, by="anna", reason="nothing there")
    bank.before = lambda: statuses.extend(act.status for act in hf.acts())
    statuses: list[str] = []
    with world.running("a", hf) as run:
        assert pay_once(run, "first") == "receipt 2"
    assert statuses == ["under_way"]
    assert [act.status for act in hf.acts()] == ["done"]
    assert pay(world, hf, "b") == "receipt 2"
    assert len(bank.paid) == 2


def test_a_released_act_that_is_settled_as_happened_is_done(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    [act] = hf.acts()
    hf.release(act, by="anna", reason="nothing there")
    hf.settle("a", 1, Happened("found"))
    assert [act.status for act in hf.acts()] == ["done"]
    assert pay(world, hf, "b") == "found"


@pytest.mark.parametrize("kills", [1, 3])
def test_a_rerun_that_is_killed_is_rerun_again(world: World, kills: int) -> None:
    service = Service()
    hf = world.open(service.pay)
    service.fault = Crash()
    starts: list[dict[str, Any]] = [{"start": {"n": 0}}, *[{}] * (kills - 1)]
    for start in starts:
        with world.dying("a", hf, **start) as run:
            pay_once(run)
    service.fault = None
    with world.running("a", hf) as run:
        assert pay_once(run) == "receipt 1"
    assert len(service.keys) == kills + 1
    assert len(set(service.keys)) == 1
    assert matches_of(hf, "a") == [0] + [1] * kills
    assert hf.verify().ok
    assert len(list(hf.effects("a"))) == kills + 1


def matches_of(hf: Holdfast, thread: str) -> list[int]:
    found = thread_named(hf.context.store, thread)
    assert found is not None
    return [each.matches for each in hf.context.store.entries(found.position.thread, after=0, limit=100)]


def test_calls_of_one_thread_do_not_match_each_other(world: World) -> None:
    undone: list[str] = []
    bank = Bank(in_doubt="rerun", undo=lambda invoice, note="": undone.append(invoice))
    hf = world.open(bank.pay)
    bank.fault = Crash()
    with world.dying("a", hf, start={"n": 0}) as run:
        for _ in run.steps():
            run.tool("pay", {"invoice": "A-17"}, key="k1")
    bank.fault = None
    with world.running("a", hf) as run:
        for _ in run.steps():
            assert [run.tool("pay", {"invoice": "A-17"}, key=key) for key in ("k2", "k1")] == ["receipt 2"] * 2
            break
    numbers = matches_of(hf, "a")
    assert all(matches < number for number, matches in enumerate(numbers, 1)), numbers
    assert hf.verify().ok
    assert len(hf.undo("a", to="@0")) == 1
    assert undone == ["A-17"]
    assert [act.status for act in hf.acts()] == ["undone"]
    assert pay(world, hf, "b") == "receipt 3"


def test_a_takeover_that_is_killed_is_in_doubt_itself(world: World) -> None:
    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank, "a")
    left_in_doubt(world, hf, bank, "b")
    for thread in ("b", "a"):
        with world.running(thread, hf) as run:
            assert pay_once(run) == "receipt 3"
    numbers = matches_of(hf, "b")
    assert all(matches < number for number, matches in enumerate(numbers, 1)), numbers
    assert hf.verify().ok


# -- idempotency keys -------------------------------------------------------------------------------------------------


def test_a_rerun_of_another_thread_has_the_same_idempotency_key(world: World) -> None:
    service = Service()
    hf = world.open(service.pay)
    service.fault = Crash()
    for thread in ("a", "b"):
        with world.dying(thread, hf, start={"n": 0}) as run:
            pay_once(run, thread)
    service.fault = None
    assert pay(world, hf, "c") == "receipt 1"
    assert len(service.keys) == 3
    with world.running("a", hf) as run:
        assert pay_once(run, "a") == "receipt 1"
    assert len(set(service.keys)) == 1


def test_the_act_has_another_idempotency_key_after_a_release(world: World) -> None:
    service = Service()
    hf = world.open(service.pay)
    with world.running("a", hf, start={"n": 0}) as run:
        for step in run.steps():
            assert run.tool("pay", {"invoice": "A-17"}, key=f"{step}") == f"receipt {step}"
            if step == 2:
                break
            [act] = hf.acts()
            hf.release(act, by="anna", reason="it bounced")
    assert len(service.keys) == 2


def test_a_probe_of_another_thread_gets_the_idempotency_key_of_the_call(world: World) -> None:
    asked: list[str] = []

    def probe(invoice: str, idempotency_key: str, note: str = "") -> NotDone:
        asked.append(idempotency_key)
        return NotDone()

    service = Service(in_doubt="probe", probe=probe, timeout=0.05)
    hf = world.open(service.pay)
    service.fault = Crash()
    with world.dying("a", hf, start={"n": 0}) as run:
        pay_once(run)
    service.fault = None
    world.pass_time(60)
    assert pay(world, hf, "b") == "receipt 1"
    assert asked == service.keys[:1] == service.keys[1:]


# -- a changed identity rule ------------------------------------------------------------------------------------------


def changed(bank: Bank, **declared: Any) -> Any:
    """The same tool with another rule, as of a new version of the program."""
    bank.pay = holdfast.tool(
        effect="irreversible", name="pay", identity=lambda invoice, **_: invoice.upper(), **declared
    )(bank._pay)
    return bank.pay


@pytest.mark.parametrize("key", [None, "key"])
def test_a_changed_rule_does_not_repeat_a_call_of_the_open_step(world: World, bank: Bank, key: str | None) -> None:
    hf = world.open(bank.pay)
    with world.dying("a", hf, start={"n": 0}) as run:
        for _ in run.steps():
            run.tool("pay", {"invoice": "A-17"}, key=key)
            break
    hf = world.open(changed(bank))
    with world.running("a", hf, ends="waiting" if key is None else "idle") as run:
        for _ in run.steps():
            assert run.tool("pay", {"invoice": "A-17"}, key=key) == "receipt 1"
            break
    assert len(bank.paid) == 1


def test_a_changed_rule_does_not_repeat_a_call_after_a_rewind(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    hf.thread("a").rewind("@0", past_effects=True)
    with world.running("a", world.open(changed(bank))) as run:
        assert pay_once(run) == "receipt 1"
    assert len(bank.paid) == 1


def test_a_call_in_doubt_is_rerun_under_a_changed_rule(world: World) -> None:
    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    bank.fault = Crash()
    with world.dying("a", hf, start={"n": 0}) as run:
        for _ in run.steps():
            run.tool("pay", {"invoice": "A-17"}, key="key")
    bank.fault = None
    hf = world.open(changed(bank, in_doubt="rerun"))
    with world.running("a", hf) as run:
        for _ in run.steps():
            assert run.tool("pay", {"invoice": "A-17"}, key="key") == "receipt 2"
            break
    assert pay(world, hf, "b") == "receipt 2"
    assert hf.verify().ok
