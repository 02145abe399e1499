"""What errors of runs say: who holds a run, what happened to a call, and what was recorded of it."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

import holdfast
from holdfast import InvalidArgument, LeaseHeld, LeaseLost, ToolNotDone
from holdfast.errors import Busy, Damaged, OutcomeUnknown, Replaced, StoreFull
from holdfast.runs import claim
from holdfast.runs.block_end import Waiting
from holdfast.runs.call_keys import MAIN_CALLER, CallKeys
from holdfast.stores.contract import Store
from holdfast.threads import process
from tests.runs.conftest import World, stop_renewing
from tests.runs.test_unsteady_store import Unsteady

# -- who holds a run --------------------------------------------------------------------------------------------------


def test_a_run_that_this_process_holds_is_not_held_by_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "this_process", process.this_process)
    hf = world.open()
    with world.running("t", hf, start={}):
        with pytest.raises(LeaseHeld, match="this process runs thread 't' already"):
            hf.run("t").__enter__()
        with pytest.raises(LeaseHeld, match="thread 't' was not saved: this process runs"):
            hf.thread("t").save({})
        with pytest.raises(LeaseHeld, match="this process"):
            hf.thread("t").rewind("@0")
        with pytest.raises(LeaseHeld, match="this process"):
            hf.thread("t").drop()


def test_a_run_that_another_process_holds_says_so(world: World) -> None:
    with world.running("t", start={}):
        with pytest.raises(LeaseHeld, match="another process"):
            world.open().run("t").__enter__()
        with pytest.raises(LeaseHeld, match="another process"):
            world.open().thread("t").save({})


# -- suspensions ------------------------------------------------------------------------------------------------------


def test_a_suspension_says_why(world: World) -> None:
    said: list[str] = []
    with world.running("t", start={}, ends="waiting") as run:
        try:
            run.wait("approval")
        except Waiting as suspended:
            said.append(str(suspended))
            raise
    assert said == ["waits for an answer to 'approval'"]


# -- results that could not be recorded -------------------------------------------------------------------------------


def test_a_result_that_comes_after_the_lease_was_lost_is_not_called_recorded(world: World) -> None:
    paid: list[int] = []
    hf = world.open()

    def pay() -> str:
        paid.append(1)
        stop_renewing(run)
        world.pass_time(100)
        with world.running("t", ends="waiting") as other:
            other.tool(pay, {})
        return "receipt 1"

    run = hf.run("t", start={}).__enter__()
    with pytest.raises(LeaseLost) as lost:
        run.tool(pay, {})
    assert "pay was called" in str(lost.value)
    assert "in doubt" in str(lost.value)
    assert "late" in str(lost.value), "its result is kept for the person who settles the call"
    assert "Recorded calls are kept" not in str(lost.value)
    assert "nothing was changed" not in str(lost.value)
    run.core.leave(lost.value)
    assert paid == [1]
    assert [each.status for each in hf.effects("t")] == ["in_doubt", "late"]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (OutcomeUnknown, "Open the store again, then call hf.run again."),
        (Replaced, "Open the store again, then call hf.run again."),
        (Damaged, "Call hf.verify(), then hf.repair()."),
    ],
)
def test_after_a_tool_has_acted_no_error_says_that_nothing_was_changed(
    world: World, kind: type[Exception], advice: str
) -> None:
    refusal = kind("the store is away; nothing was changed")
    hf = world.open(store=lambda store: Unsteady(store, [None, refusal]))

    def pay() -> str:
        return "receipt 1"

    with world.dying("t", hf, start={}) as run:
        with pytest.raises(kind, match="pay was called, and its result could not be recorded") as failed:
            run.tool(pay, {})
        assert failed.value.__cause__ is refusal
        assert str(failed.value).endswith(f"the call is in doubt. {advice}")
        assert "receipt" not in str(failed.value), "a message may be logged, and a result may be secret"


class Unrecording:
    """A store that refuses to write results, and renews leases all the same: its disk has room for little."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def journal(self, thread: int, fence: int, entries: Any, **options: Any) -> None:
        if any(entry.result is not None for entry in entries):
            self.refused += 1
            raise StoreFull("the disk is full; nothing was changed")
        self._store.journal(thread, fence, entries, **options)


def test_a_result_that_the_disk_has_no_room_for_is_not_retried_for_ever(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    stores: list[Unrecording] = []

    def wrapped(store: Store) -> Any:
        stores.append(Unrecording(store))
        return stores[-1]

    def pay() -> str:
        return "receipt 1"

    hf = world.open(store=wrapped)
    with (
        world.dying("t", hf, start={}, lease=0.6) as run,
        caplog.at_level(logging.WARNING, "holdfast"),
        pytest.raises(StoreFull, match="pay was called, and its result could not be recorded"),
    ):
        run.tool(pay, {})
    assert stores[0].refused > 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "pay" in caplog.text
    with world.running("t", ends="waiting") as run:
        run.tool(pay, {})


def test_a_run_whose_results_cannot_be_written_is_not_ready(world: World) -> None:
    failing: list[bool] = []
    refusal = Busy("locked")

    class Watched(Unsteady):
        def journal(self, *args: Any, **options: Any) -> None:
            try:
                super().journal(*args, **options)
            finally:
                failing.append(request.is_failing())

    def pay() -> str:
        return "receipt 1"

    hf = world.open(store=lambda store: Watched(store, [None, refusal, refusal]))
    request = hf.run("t", start={})._request
    core = request.enter(can_await=False)
    run = holdfast.Run(core, request)
    assert run.tool(pay, {}) == "receipt 1"
    assert failing == [False, False, True, True]
    assert not request.is_failing()
    core.leave(None)


# -- errors of tools --------------------------------------------------------------------------------------------------


def test_an_error_that_leaves_a_call_in_doubt_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def look_up(word: str) -> str:
        return {"a": "A"}[word]

    with world.running("t", start={}, ends="waiting") as run, caplog.at_level(logging.WARNING, "holdfast"):
        run.tool(look_up, {"word": "b"})
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert "look_up" in record.getMessage()
    assert "hf.settle" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


def test_an_error_that_the_program_gets_is_not_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    @holdfast.tool(effect="read")
    def look_up(word: str) -> str:
        raise KeyError(word)

    @holdfast.tool(not_done=(KeyError,))
    def pay(card: str) -> str:
        raise KeyError(card)

    with world.running("t", start={}) as run, caplog.at_level(logging.WARNING, "holdfast"):
        with pytest.raises(KeyError):
            run.tool(look_up, {"word": "b"})
        with pytest.raises(KeyError):
            run.tool(pay, {"card": "b"})
    assert caplog.records == []


@pytest.mark.parametrize("effect", ["read", "idempotent", "irreversible"])
def test_a_tools_error_can_be_its_result(world: World, effect: Any) -> None:
    calls: list[int] = []

    @holdfast.tool(effect=effect, errors="result")
    def look_up(word: str) -> str:
        calls.append(1)
        raise KeyError(word)

    for _ in range(2):
        with world.running("t", start={}) as run:
            assert run.tool(look_up, {"word": "b"}) == {"error": "KeyError: 'b'"}
            run.model(lambda: "reply")
    assert calls == [1]
    assert [each.status for each in world.open().effects("t") if each.name == "look_up"] == ["done"]


def test_an_error_after_which_nothing_was_done_is_retried_before_it_is_a_result(world: World) -> None:
    calls: list[int] = []

    @holdfast.tool(effect="idempotent", errors="result", retry=holdfast.Retry(1, first=0))
    def reserve() -> str:
        calls.append(1)
        raise ToolNotDone("sold out")

    with world.running("t", start={}) as run:
        assert run.tool(reserve, {}) == {"error": "holdfast.errors.ToolNotDone: sold out"}
    assert calls == [1, 1]


def test_a_call_that_timed_out_has_no_result_to_give(world: World) -> None:
    @holdfast.tool(errors="result", timeout=0.05)
    def pay() -> None:
        time.sleep(0.3)

    with world.running("t", start={}, ends="waiting") as run:
        run.tool(pay, {})


def test_an_errors_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="errors must be"):
        holdfast.tool(errors="ignore")(print)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="retry"):
        holdfast.tool(errors="result", retry=holdfast.Retry(1, first=0), probe=print)(print)


def test_a_logged_error_is_redacted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def pay(card: str) -> str:
        raise KeyError(card)

    hf = world.open(redact=lambda text: text.replace("4111", "****"))
    with world.running("t", hf, start={}, ends="waiting") as run, caplog.at_level(logging.WARNING, "holdfast"):
        run.tool(pay, {"card": "4111"}, key="k")
    assert "KeyError" in caplog.text
    assert "4111" not in caplog.text


# -- keys -------------------------------------------------------------------------------------------------------------


def _refusal(keys: CallKeys, identity: str, key: str | None, caller: object = MAIN_CALLER) -> str:
    with pytest.raises(InvalidArgument) as refused:
        keys.start(identity, key, b"", b"", caller, can_be_left=False)
    return str(refused.value)


ADVICE = {  # by identity: the name in messages, and what distinguishes two calls
    "run.wait": ("run.wait", "name"),
    "run.child": ("run.child", "name"),
    "model agent.ask": ("agent.ask", "key="),
    "run.stream agent.ask": ("agent.ask", "key="),
    "run.stream final agent.ask": ("agent.ask", "key="),
    "agent.pay": ("agent.pay", "key="),
}


def test_the_advice_about_a_call_with_a_used_key_fits_its_verb() -> None:
    for identity, (shown, what) in ADVICE.items():
        keys = CallKeys({})
        keys.start(identity, "a", b"", b"", MAIN_CALLER, can_be_left=False)
        message = _refusal(keys, identity, "a")
        kind = what.rstrip("=")
        assert message == f"{shown} with the same {kind} is under way; this call was not made. Give it another {what}."


def test_the_advice_about_calls_before_and_after_a_loop_fits_their_verb() -> None:
    for identity, (shown, what) in ADVICE.items():
        keys = CallKeys({})
        keys.leave_loop()
        keys.start(identity, "a", b"", b"", MAIN_CALLER, can_be_left=True)
        keys.enter_loop()
        keys.leave_loop()
        message = _refusal(keys, identity, "a")
        assert message.startswith(
            f"{shown} was called outside of run.steps() before, with the same {what[:4].strip('=')}"
        )
        assert message.endswith(f"nothing was called. Pass another {what}, or make the call inside the loop.")


def test_a_model_between_loops_has_the_name_of_its_function_in_the_message() -> None:
    keys = CallKeys({})
    keys.leave_loop()
    keys.note_model("model agent.ask")
    keys.enter_loop()
    keys.leave_loop()
    keys.note_model("model agent.ask")
    with pytest.raises(InvalidArgument, match=r"^agent\.ask was called without a key before the first loop"):
        keys.enter_loop()


def test_two_sleeps_at_once_are_not_told_to_pass_a_key() -> None:
    keys = CallKeys({})
    keys.start("run.sleep", None, b"", b"", None, can_be_left=False)
    message = _refusal(keys, "run.sleep", None, None)
    assert (
        message
        == "the run sleeps already, in another Python thread or task; this sleep was not started. Sleep once at a time."
    )


def test_a_child_that_is_held_is_not_told_to_pass_wait(world: World) -> None:
    """`run.child` waits by itself, and takes no wait=."""
    with world.running("t", start={}) as run:
        run.child("c", start={}).__enter__()
        with pytest.raises(LeaseHeld) as held:
            claim.ClaimRequest(
                run.request.context,
                "t/c",
                claim.ClaimTerms(lease=30, parent="t"),
                tools=run.request.settings.tools,
            ).claim()
        assert "wait=" not in str(held.value)
