"""The same act once: a claim on (tool, identity) across rewinds, turns, forks, threads and processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Cipher, GiveUp, Happened, Holdfast, InvalidArgument, NotDone, Run, ToolNotDone
from holdfast.errors import ActUnderWay, Conflict, NotFound
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.runs import acts
from holdfast.stores.contract import PLAIN
from holdfast.threads.effects import act_key
from tests.crypto.keyed import CIPHER
from tests.runs.conftest import Crash, World
from tests.selection import every_store


class Bank:
    """What was paid. The identity of a payment is its invoice: a model words the rest differently each time."""

    def __init__(self, **declared: Any) -> None:
        self.paid: list[tuple[str, str]] = []
        self.fault: BaseException | None = None
        self.receipt: Any = None
        self.before: Callable[[], None] = lambda: None
        declared = {"effect": "irreversible", "name": "pay", "identity": ("invoice",)} | declared
        self.pay = holdfast.tool(**declared)(self._pay)

    def _pay(self, invoice: str, note: str = "") -> Any:
        self.before()
        self.paid.append((invoice, note))
        if self.fault is not None:
            raise self.fault
        return self.receipt or f"receipt {len(self.paid)}"


@pytest.fixture
def bank() -> Bank:
    return Bank()


def pay(world: World, hf: Holdfast, thread: str, invoice: str = "A-17", note: str = "", **how: Any) -> Any:
    """Run a thread with one step that pays, to its end."""
    with world.running(thread, hf, start={"n": 0}, **how) as run:
        return pay_once(run, note, invoice)


def pay_once(run: Run, note: str = "", invoice: str = "A-17") -> Any:
    for _ in run.steps():
        return run.tool("pay", {"invoice": invoice, "note": note})
    return None


# -- declaring --------------------------------------------------------------------------------------------------------


def test_an_identity_that_cannot_be_is_refused_when_it_is_declared() -> None:
    def pay(invoice: str, amount: int = 0) -> None: ...

    async def later(invoice: str) -> str:
        return invoice

    def nothing(invoice: str) -> None: ...

    def unstorable(invoice: str) -> threading.Thread:
        return threading.Thread()

    def typed(invoice: str) -> Path:
        return Path(invoice)

    wrong: list[Any] = [("invoce",), (), ("invoice", "invoice"), "invoice", 7, ("invoice", 3), lambda amoun: amoun]
    wrong += [later, nothing, unstorable, typed]
    for identity in wrong:
        with pytest.raises(InvalidArgument, match="identity"):
            holdfast.tool(effect="irreversible", identity=identity)(pay)
    effects: list[Any] = ["read", "idempotent"]
    for effect in effects:
        with pytest.raises(InvalidArgument, match="identity"):
            holdfast.tool(effect=effect, identity=("invoice",))(pay)
    holdfast.tool(identity=("invoice", "amount"))(pay)
    holdfast.tool(identity=lambda invoice, **_: invoice)(pay)
    holdfast.tool(identity=lambda amount: amount)(pay)


def test_an_identity_that_cannot_be_read_calls_nothing(world: World) -> None:
    def broken(**_: Any) -> Any:
        raise KeyError("card 4711")

    async def later() -> None: ...

    circle: list[Any] = []
    circle.append(circle)
    unusual: list[Any] = [
        lambda **_: circle,
        broken,
        lambda **_: None,
        lambda **_: object(),
        lambda **_: {1: object()},
        lambda **_: later,
    ]
    for number, identity in enumerate(unusual):
        bank = Bank(identity=identity)
        hf = world.open(bank.pay)
        with pytest.raises(InvalidArgument, match=r"pay: its identity .*it was not called") as refused:
            pay(world, hf, f"t{number}")
        assert "4711" not in str(refused.value), "the message of an error may contain an argument"
        assert not bank.paid
        assert not list(hf.effects(f"t{number}"))


def test_none_is_no_identity(world: World) -> None:
    paid: list[int] = []

    @holdfast.tool(effect="irreversible", identity=("invoice", "line"), name="pay")
    def pay(amount: int, invoice: str | None = None, line: int = 0) -> None:
        paid.append(amount)

    hf = world.open(pay)
    with world.failing("a", InvalidArgument, hf, start={"n": 0}) as run:
        run.tool("pay", {"amount": 1})
    with pytest.raises(InvalidArgument, match="invoice is None; it was not called"), hf.run("b", start={}) as run:
        run.tool("pay", {"amount": 2, "invoice": None, "line": 3})
    assert not paid
    assert not list(hf.acts())


def test_a_tool_without_parameters_has_no_identity() -> None:
    with pytest.raises(InvalidArgument, match="identity= names invoice"):
        holdfast.tool(effect="irreversible", identity=("invoice",))(lambda: None)


# -- the same act is done once ----------------------------------------------------------------------------------------


def test_a_second_thread_is_answered_with_the_recorded_result(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    assert pay(world, hf, "a", note="first") == "receipt 1"
    assert pay(world, hf, "b", note="second") == "receipt 1"
    assert pay(world, hf, "c", "A-18") == "receipt 2"
    assert bank.paid == [("A-17", "first"), ("A-18", "")]
    [answered] = [each for each in hf.effects("b") if each.name == "pay"]
    assert (answered.status, answered.result) == ("done", "receipt 1")


def test_the_answer_is_recorded_and_replayed(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    with world.dying("b", hf, start={"n": 0}) as run:
        assert pay_once(run, "b") == "receipt 1"
    hf.thread("a").drop()
    with world.running("b", hf) as run:
        assert pay_once(run, "b") == "receipt 1"
    assert len(bank.paid) == 1


def test_a_rewind_does_not_pay_again_whatever_the_words(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a", note="first")
    hf.thread("a").rewind("@0", past_effects=True)
    with world.running("a", hf) as run:
        assert pay_once(run, "second") == "receipt 1"
    assert len(bank.paid) == 1


def test_a_fork_does_not_pay_again(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a", note="first")
    hf.thread("a").fork("b", at="@0")
    for effects in (None, "live"):
        with world.running("b", hf, effects=effects) as run:
            assert pay_once(run, "second") == "receipt 1"
    assert len(bank.paid) == 1


def test_a_new_turn_after_a_cancelled_one_does_not_pay_again(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    with world.failing("a", holdfast.Cancelled, hf, start={"n": 0}, turn="1") as run:
        pay_once(run, "first")
        hf.cancel("a", "stop")
        run.tool("pay", {"invoice": "A-18"})
    with world.running("a", hf, start={"n": 1}, turn="2") as run:
        assert pay_once(run, "second") == "receipt 1"
    assert len(bank.paid) == 1


def test_calls_of_one_step_and_of_a_loop(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    with world.running("a", hf, start={"n": 0}) as run:
        for step in run.steps():
            notes = [run.tool("pay", {"invoice": "A-17", "note": f"{step} {n}"}, key=f"{n}") for n in range(3)]
            assert notes == ["receipt 1"] * 3
            if step == 2:
                break
    assert len(bank.paid) == 1


def test_an_identity_is_of_its_values(world: World) -> None:
    bank = Bank(identity=lambda invoice, **_: {"b": invoice.strip().lower(), "a": 1.0})
    hf = world.open(bank.pay)
    assert pay(world, hf, "a", "A-17") == pay(world, hf, "b", " a-17 ") == "receipt 1"
    again = Bank(identity=lambda invoice, **_: {"a": 1, "b": "a-17"})
    assert pay(world, world.open(again.pay), "c", "another") == "receipt 1"
    assert pay(world, hf, "d", "A-18") == "receipt 2"
    other = Bank(name="refund", identity=lambda invoice, **_: {"a": 1, "b": "a-17"})
    with world.running("e", world.open(other.pay), start={"n": 0}) as run:
        run.tool("refund", {"invoice": "A-17"})
    assert len(other.paid) == 1, "another tool does another act"


def test_a_default_counts_as_given(world: World) -> None:
    bank = Bank(identity=("invoice", "note"))
    hf = world.open(bank.pay)
    with world.running("a", hf, start={"n": 0}) as run:
        assert run.tool("pay", {"invoice": "A"}) == run.tool("pay", {"invoice": "A", "note": ""}) == "receipt 1"
        assert run.tool("pay", {"invoice": "A", "note": "x"}) == "receipt 2"


def test_a_resumed_run_asks_in_other_words(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    for key in (None, "key"):
        with world.dying(f"t {key}", hf, start={"n": 0}) as run:
            for _ in run.steps():
                run.tool("pay", {"invoice": f"A {key}", "note": "first"}, key=key)
                break
        with world.running(f"t {key}", hf) as run:
            for _ in run.steps():
                paid = run.tool("pay", {"invoice": f"A {key}", "note": "second"}, key=key)
                assert paid == f"receipt {len(bank.paid)}"
                assert run.tool("pay", {"invoice": f"B {key}"}) == f"receipt {len(bank.paid)}"
                break
    assert [invoice for invoice, _ in bank.paid] == ["A None", "B None", "A key", "B key"]


# -- not done ---------------------------------------------------------------------------------------------------------


def test_an_act_that_was_not_done_is_free(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    bank.fault = ToolNotDone("declined")
    for thread in ("a", "b"):
        with world.failing(thread, ToolNotDone, hf, start={"n": 0}) as run:
            pay_once(run)
    bank.fault = None
    assert pay(world, hf, "c") == "receipt 3"
    with world.running("a", hf) as run:
        assert pay_once(run) == "receipt 3"


def test_an_error_as_result_is_an_answer_unless_nothing_was_done(world: World) -> None:
    bank = Bank(errors="result")
    hf = world.open(bank.pay)
    bank.fault = ToolNotDone("declined")
    assert "declined" in pay(world, hf, "a")["error"]
    bank.fault = ValueError("strange")
    strange = pay(world, hf, "b")
    assert "strange" in strange["error"]
    bank.fault = None
    assert pay(world, hf, "c") == strange
    assert len(bank.paid) == 2


def test_an_act_that_was_undone_is_free(world: World) -> None:
    bank = Bank(undo=lambda invoice, note="": "refunded")
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    assert len(hf.undo("a", to="@0")) == 1
    assert [act.status for act in hf.acts()] == ["undone"]
    assert pay(world, hf, "b") == "receipt 2"


def test_an_act_of_another_thread_is_undone_there(world: World) -> None:
    refunded: list[str] = []
    bank = Bank(undo=lambda invoice, note="": refunded.append(invoice))
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    pay(world, hf, "b")
    assert hf.undo("b", to="@0") == []
    hf.thread("b").rewind("@0")
    assert not refunded
    assert len(hf.undo("a", to="@0")) == 1
    assert refunded == ["A-17"]


# -- in doubt ---------------------------------------------------------------------------------------------------------


def left_in_doubt(world: World, hf: Holdfast, bank: Bank, thread: str = "a") -> None:
    bank.fault = Crash()
    with world.dying(thread, hf, start={"n": 0}) as run:
        pay_once(run, "first")
    bank.fault = None


def test_an_act_in_doubt_asks_a_person_in_the_second_thread(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    with world.running("b", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run, "second")
    assert hf.run_info("b").status == "waiting"  # type: ignore[union-attr]
    assert len(bank.paid) == 1
    [doubt] = [each for each in hf.effects("b") if each.status == "in_doubt"]
    hf.settle("b", doubt, Happened("receipt 1"))
    with world.running("b", hf) as run:
        assert pay_once(run, "second") == "receipt 1"
    assert len(bank.paid) == 1


def test_a_person_says_that_it_did_not_happen(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    with world.running("b", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run, "second")
    [doubt] = [each for each in hf.effects("b") if each.status == "in_doubt"]
    hf.settle("b", doubt, NotDone())
    with world.running("b", hf) as run:
        assert pay_once(run, "second") == "receipt 2"
    assert bank.paid == [("A-17", "first"), ("A-17", "second")]
    assert pay(world, hf, "c") == "receipt 2"
    # The first thread cannot act on a claim that it has lost, whatever a person says there.
    [doubt] = [each for each in hf.effects("a") if each.status == "started"]
    hf.settle("a", doubt, NotDone())
    with world.running("a", hf) as run:
        assert pay_once(run, "first") == "receipt 2"
    assert len(bank.paid) == 2


def test_the_first_thread_is_settled_and_the_second_resumes(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    with world.running("b", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run, "second")
    [doubt] = [each for each in hf.effects("a") if each.status == "started"]
    hf.settle("a", doubt, Happened("receipt 1"))
    with world.running("b", hf) as run:
        assert pay_once(run, "second") == "receipt 1"
    assert len(bank.paid) == 1


def test_a_probe_of_the_second_thread_decides(world: World) -> None:
    answers: list[Any] = [Happened("found")]
    bank = Bank(probe=lambda invoice, note="": answers[0], timeout=0.05)
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    world.pass_time(60)
    assert pay(world, hf, "b") == "found"
    answers[0] = NotDone()
    assert pay(world, hf, "c") == "found"
    with world.running("a", hf) as run:
        assert pay_once(run, "first") == "found"
    assert len(bank.paid) == 1


def test_a_probe_of_the_second_thread_says_that_it_did_not_happen(world: World) -> None:
    bank = Bank(probe=lambda invoice, note="": NotDone(), timeout=0.05)
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    world.pass_time(60)
    assert pay(world, hf, "b") == pay(world, hf, "c") == "receipt 2"
    with world.running("a", hf) as run:
        assert pay_once(run, "first") == "receipt 2"
    assert len(bank.paid) == 2


def test_rerun_and_give_up_are_policies_of_the_second_thread_too(world: World) -> None:
    bank = Bank(in_doubt="give_up")
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    assert pay(world, hf, "b")["outcome"] == "unknown"
    assert len(bank.paid) == 1
    again = Bank(in_doubt="rerun")
    hf = world.open(again.pay)
    assert pay(world, hf, "c") == "receipt 1"
    assert pay(world, hf, "d") == "receipt 1"
    with world.running("a", hf) as run:
        assert pay_once(run, "first") == "receipt 1", "its claim was taken over"
    assert len(again.paid) == 1


def test_given_up_is_free(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    [doubt] = [each for each in hf.effects("a") if each.status == "started"]
    hf.settle("a", doubt, GiveUp())
    assert pay(world, hf, "b") == "receipt 2"


def test_the_same_act_under_another_key_of_the_same_step_waits_for_the_first(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    with world.running("a", hf, ends="waiting") as run:
        for _ in run.steps():
            run.tool("pay", {"invoice": "A-17", "note": "again"}, key="other")
    [doubt] = [each for each in hf.effects("a") if each.status in ("started", "in_doubt")]
    assert doubt.number == 1
    assert len(bank.paid) == 1
    hf.settle("a", doubt, Happened("receipt 1"))
    with world.running("a", hf) as run:
        for _ in run.steps():
            assert run.tool("pay", {"invoice": "A-17", "note": "again"}, key="other") == "receipt 1"
            break
    assert run.status == "idle", "the call of the first process was asked for, although with another key"


# -- under way --------------------------------------------------------------------------------------------------------


def test_a_call_under_way_elsewhere_is_waited_for(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        leave.wait(60)

    bank.before = hold
    first = threading.Thread(target=pay, args=(world, hf, "a"))
    first.start()
    assert inside.wait(60)
    assert [act.status for act in hf.acts()] == ["under_way"]
    second: list[Any] = []
    other = threading.Thread(target=lambda: second.append(pay(world, hf, "b")))
    other.start()
    leave.set()
    first.join(60)
    other.join(60)
    assert second == ["receipt 1"]
    assert len(bank.paid) == 1


def test_a_call_that_stays_under_way_is_an_error(world: World, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "WAIT_SECONDS", 0.1)
    hf = world.open(bank.pay)
    with world.running("a", hf, start={"n": 0}) as run:

        def second() -> None:
            with pytest.raises(ActUnderWay) as error, world.running("b", hf, start={"n": 0}) as other:
                pay_once(other)
            assert (error.value.thread, error.value.number) == ("a", 1)
            [act] = hf.acts()
            with pytest.raises(Conflict, match="under way"):
                hf.release(act, by="anna", reason="impatient")

        bank.before = second
        assert pay_once(run) == "receipt 1"
    bank.before = lambda: None
    with world.running("b", hf) as run:
        assert pay_once(run) == "receipt 1"
    assert len(bank.paid) == 1


# -- acts and releases ------------------------------------------------------------------------------------------------


def test_acts_are_listed(world: World, bank: Bank) -> None:
    mail = Bank(name="mail", identity=lambda invoice, **_: invoice)
    hf = world.open(bank.pay, mail.pay)
    for number in range(3):
        pay(world, hf, f"t{number}", f"A-{number}")
    with world.running("m", hf, start={"n": 0}) as run:
        run.tool("mail", {"invoice": "x"})
    assert {(act.tool, act.identity, act.thread, act.number, act.status, act.result) for act in hf.acts("pay")} == {
        ("pay", f'{{"invoice":"A-{number}"}}', f"t{number}", 1, "done", f"receipt {number + 1}") for number in range(3)
    }
    assert [act.identity for act in hf.acts(mail.pay)] == ['"x"']
    assert len(list(hf.acts())) == 4
    assert list(hf.acts("other")) == []


def test_a_released_act_can_be_done_again(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    [act] = hf.acts("pay")
    for by, reason in (("", "x"), ("anna", ""), (7, "x")):
        with pytest.raises(InvalidArgument):
            hf.release(act, by=by, reason=reason)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        hf.release("ab" * 32, by="anna", reason="x")
    hf.release(act.id, by="anna", reason="it bounced")
    hf.release(act, by="bert", reason="again")
    [released] = hf.acts("pay")
    assert (released.status, released.by, released.reason) == ("released", "anna", "it bounced")
    assert released.result == "receipt 1"
    assert pay(world, hf, "b") == "receipt 2"
    [again] = hf.acts("pay")
    assert (again.thread, again.status, again.by) == ("b", "done", None)
    hf.thread("a").rewind("@0", past_effects=True)
    with world.running("a", hf) as run:
        assert pay_once(run) == "receipt 2"


def test_a_released_act_is_done_again_after_a_rewind_with_the_same_arguments(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a", note="same")
    hf.thread("a").rewind("@0", past_effects=True)
    [act] = hf.acts("pay")
    hf.release(act, by="anna", reason="it bounced")
    with world.running("a", hf) as run:
        assert pay_once(run, "same") == "receipt 2"


def test_an_act_in_doubt_can_be_released(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    [act] = hf.acts()
    assert act.status == "in_doubt"
    hf.release(act, by="anna", reason="the bank says no")
    assert pay(world, hf, "b") == "receipt 2"


def test_an_act_of_a_deleted_thread_is_asked_about(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a", note="first")
    hf.thread("a").drop()
    [act] = hf.acts()
    assert (act.status, act.thread, act.identity, act.result) == ("deleted", None, None, None)
    assert list(hf.acts("pay")) == [act]
    for _ in range(2):
        with world.running("b", hf, start={"n": 0}, ends="waiting") as run:
            pay_once(run, "second")
        assert hf.run_info("b").status == "waiting"  # type: ignore[union-attr]
    assert len(bank.paid) == 1
    [asked] = [each for each in hf.effects("b") if each.status == "asked"]
    hf.settle("b", asked, NotDone())
    with world.running("b", hf) as run:
        assert pay_once(run, "second") == "receipt 2"
    assert [each.thread for each in hf.acts()] == ["b"]


def test_an_act_of_a_deleted_thread_can_be_released(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    hf.thread("a").drop()
    [act] = hf.acts()
    hf.release(act, by="anna", reason="it was a test")
    assert list(hf.acts()) == []
    assert pay(world, hf, "b") == "receipt 2"
    recorded = hf.thread("holdfast/actions").latest()
    assert recorded is not None
    [decision] = recorded.state["actions"]
    assert (decision["who"], decision["action"], decision["reason"]) == ("anna", "release", "it was a test")
    assert decision["act"] == act.id


def test_the_release_of_an_act_of_a_deleted_thread_is_recorded_before_it_counts(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    hf.thread("a").drop()
    hf.thread("holdfast/actions").save({"something": "else"})
    [act] = hf.acts()
    with pytest.raises(InvalidArgument, match="nothing was done"):
        hf.release(act, by="anna", reason="it was a test")
    assert list(hf.acts()) == [act]


# -- maintenance ------------------------------------------------------------------------------------------------------


def test_verify_finds_a_claim_that_is_lost(world: World, bank: Bank) -> None:
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    pay(world, hf, "b")
    assert hf.verify().ok
    [act] = hf.context.store.acts(limit=2)
    hf.context.store.put_act(act.key, act, None)
    [problem] = hf.verify().problems
    assert (problem.thread, "act" in problem.what) == ("a", True)


@pytest.fixture(params=[None, "cipher"])
def cipher(request: pytest.FixtureRequest) -> Cipher | None:
    return None if request.param is None else CIPHER


@every_store("copies of stores are written by each store in its own way")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_copies_keep_claims(tmp_path: Path, kind: str, cipher: Cipher | None) -> None:
    def url(name: str) -> str:
        return str(tmp_path / f"{name}.db") if kind == "sqlite" else f"dir:{tmp_path / name}"

    bank = Bank()
    with holdfast.open(url("one"), tools=[bank.pay], cipher=cipher) as hf:
        for thread, invoice in (("a", "A-17"), ("b", "A-18"), ("c", "A-19")):
            with hf.run(thread, start={"n": 0}) as run:
                pay_once(run, "first", invoice)
        hf.thread("c").drop()
        hf.repair(url("repaired"))
        hf.backup(url("copy"))
        assert export_jsonl(hf, tmp_path / "threads.jsonl").ok
    for place, key, known in ((url("repaired"), cipher, 3), (url("copy"), cipher, 3), (url("new"), None, 2)):
        with holdfast.open(place, tools=[bank.pay], cipher=key) as hf:
            if known == 2:
                assert import_from(hf, "jsonl", str(tmp_path / "threads.jsonl")).ok
            assert sorted(act.status for act in hf.acts("pay")) == ["deleted", "done", "done"][3 - known :]
            with hf.run("d", start={"n": 0}) as run:
                assert pay_once(run, "second", "A-18") == "receipt 2"
            with hf.run("e", start={"n": 0}) as run:
                pay_once(run, "third", "A-19")
            assert run.status == ("waiting" if known == 3 else "idle")
            assert hf.verify().ok
    assert len(bank.paid) == 4


@pytest.mark.parametrize("url", ["{}/a.db", "dir:{}/a"])
def test_an_encrypted_store_shows_no_identity(tmp_path: Path, url: str) -> None:
    bank = Bank()
    with holdfast.open(url.format(tmp_path), tools=[bank.pay], cipher=CIPHER) as hf:
        with hf.run("a", start={"n": 0}) as run:
            pay_once(run, "first", "invoice of Jane Doe")
        [act] = hf.acts("pay")
        hf.release(act, by="the clerk", reason="the reason why")
        [act] = hf.acts("pay")
        identity = '{"invoice":"invoice of Jane Doe"}'
        assert (act.identity, act.by) == (identity, "the clerk")
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    data = b"".join(path.read_bytes() + bytes(path) for path in paths)
    guess = act_key(PLAIN, "pay", identity)  # a digest that could be found by guessing
    for text in (b"Jane Doe", b"the clerk", b"reason why", guess, guess.hex().encode()):
        assert text not in data
    assert act.id.encode() in data or bytes.fromhex(act.id) in data


def test_a_secret_in_an_identity_is_not_recorded(world: World) -> None:
    bank = Bank()
    hf = world.open(bank.pay, redact=holdfast.redaction.api_keys)
    token = "sk_live_abcdefghijklmnop123"  # noqa: S105 - not a secret
    assert pay(world, hf, "a", token) == pay(world, hf, "b", token) == "receipt 1"
    assert pay(world, hf, "c", f"{token}4") == "receipt 2", "another secret is another act"
    assert all(token not in (act.identity or "") for act in hf.acts())
