"""A call that was started and whose end nobody recorded: it is never silently repeated."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, GiveUp, Happened, InvalidArgument, NotDone, NotFound, Run, ToolNotDone
from holdfast.errors import EffectMismatch
from tests.covers import covers
from tests.runs.conftest import Crash, World
from tests.waiting import DEADLINE, until

UNKNOWN = "unknown"


class Ledger:
    """A tool's world: what happened in it, and how the next call goes wrong."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.keys: list[str] = []
        self.fault: BaseException | None = None

    def write(self, entry: Any) -> str:
        """The effect happens; then, perhaps, something goes wrong."""
        self.entries.append(entry)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return f"entry {len(self.entries)}"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def declared(ledger: Ledger, **declaration: Any) -> Any:
    @holdfast.tool(name="act", **declaration)
    def act(what: str) -> str:
        return ledger.write(what)

    return act


def keyed(ledger: Ledger, **declaration: Any) -> Any:
    @holdfast.tool(name="act", **declaration)
    def act(what: str, idempotency_key: str) -> str:
        ledger.keys.append(idempotency_key)
        return ledger.write(what)

    return act


def crash_in(world: World, ledger: Ledger, tool: Any, what: str = "pay") -> None:
    """The process dies when the effect has happened and nothing of it is recorded."""
    ledger.fault = Crash()
    with world.dying("t", start={}) as run:
        run.tool(tool, {"what": what}, key="k")


def statuses(world: World) -> list[str]:
    return [effect.status for effect in world.open().effects("t")]


# -- the defaults -----------------------------------------------------------------------------------------------------


def test_a_read_is_made_again(world: World, ledger: Ledger) -> None:
    tool = declared(ledger, effect="read")
    crash_in(world, ledger, tool)
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k") == "entry 2"


def test_an_idempotent_tool_is_called_again_with_the_same_key(world: World, ledger: Ledger) -> None:
    tool = keyed(ledger, effect="idempotent")
    crash_in(world, ledger, tool)
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k") == "entry 2"
    assert len(ledger.keys) == 2
    assert ledger.keys[0] == ledger.keys[1] != ""
    assert statuses(world) == ["done"]


@covers("E5", "E13", "continuum/ErrorRecovery.set_user_callback", "continuum/ErrorRecovery.new")
@covers("continuum/ErrorRecovery.execute_with_recovery")
@pytest.mark.parametrize("declaration", [{}, {"effect": "irreversible"}])
def test_an_irreversible_tool_is_asked_about(world: World, ledger: Ledger, declaration: Any) -> None:
    tool = declared(ledger, **declaration)
    crash_in(world, ledger, tool)
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {"what": "pay"}, key="k")
        pytest.fail("the run went on without an answer")
    assert ledger.entries == ["pay"]


def test_a_function_that_nobody_declared_is_irreversible(world: World, ledger: Ledger) -> None:
    def act(what: str) -> str:
        return ledger.write(what)

    crash_in(world, ledger, act)
    with world.running("t", ends="waiting") as run:
        run.tool(act, {"what": "pay"}, key="k")
    assert world.open().effects("t")[0].effect == "irreversible"
    assert ledger.entries == ["pay"]


def test_an_irreversible_tool_with_a_probe_is_probed(world: World, ledger: Ledger) -> None:
    def find(what: str) -> Any:
        return Happened(f"found {what}") if what in ledger.entries else NotDone()

    tool = declared(ledger, probe=find)
    crash_in(world, ledger, tool)
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k") == "found pay"
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k") == "found pay"
    assert ledger.entries == ["pay"]


# -- what may be declared instead -------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
def test_give_up_tells_the_model_that_the_outcome_is_unknown(world: World, ledger: Ledger, effect: Any) -> None:
    tool = declared(ledger, effect=effect, in_doubt="give_up")
    crash_in(world, ledger, tool)
    for _ in range(2):
        with world.running("t") as run:
            told = run.tool(tool, {"what": "pay"}, key="k")
            assert told["outcome"] == UNKNOWN
            assert told["tool"] == "act"
    assert ledger.entries == ["pay"]
    assert statuses(world) == ["given_up"]


def test_rerun_may_be_declared_for_what_is_irreversible(world: World, ledger: Ledger) -> None:
    tool = keyed(ledger, in_doubt="rerun")
    crash_in(world, ledger, tool)
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k") == "entry 2"
    assert ledger.keys[0] == ledger.keys[1]


def test_ask_may_be_declared_for_what_is_idempotent(world: World, ledger: Ledger) -> None:
    tool = declared(ledger, effect="idempotent", in_doubt="ask")
    crash_in(world, ledger, tool)
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {"what": "pay"}, key="k")
    assert ledger.entries == ["pay"]


@pytest.mark.parametrize("answer", [NotDone(), NotDone])
def test_a_probe_that_says_not_done_lets_the_tool_be_called(world: World, ledger: Ledger, answer: Any) -> None:
    tool = keyed(ledger, probe=lambda what: answer, timeout=5)
    crash_in(world, ledger, tool)
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k") == "entry 2"
    assert ledger.keys[0] == ledger.keys[1]
    assert statuses(world) == ["not_done", "done"]


@pytest.mark.parametrize("answer", [GiveUp(), GiveUp])
def test_a_probe_may_give_up(world: World, ledger: Ledger, answer: Any) -> None:
    tool = declared(ledger, probe=lambda what: answer)
    crash_in(world, ledger, tool)
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k")["outcome"] == UNKNOWN


def test_a_probe_that_does_not_know_leads_to_a_question(world: World, ledger: Ledger) -> None:
    tool = declared(ledger, probe=lambda what: None)
    crash_in(world, ledger, tool)
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {"what": "pay"}, key="k")
    assert ledger.entries == ["pay"]


def test_a_probe_that_raises_decides_nothing(world: World, ledger: Ledger) -> None:
    def find(what: str) -> Any:
        raise ConnectionError("the bank is closed")

    tool = declared(ledger, probe=find)
    crash_in(world, ledger, tool)
    with pytest.raises(ConnectionError), world.open().run("t") as run:
        run.tool(tool, {"what": "pay"}, key="k")
    assert statuses(world)[-1] in ("started", "in_doubt")
    assert ledger.entries == ["pay"]


def test_a_probe_is_given_the_idempotency_key(world: World, ledger: Ledger) -> None:
    found: list[str] = []

    def find(what: str, idempotency_key: str) -> Any:
        found.append(idempotency_key)
        return Happened("found")

    tool = keyed(ledger, probe=find)
    crash_in(world, ledger, tool)
    with world.running("t") as run:
        run.tool(tool, {"what": "pay"}, key="k")
    assert found == ledger.keys


@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
def test_doubt_is_about_the_call_that_was_made_not_about_its_new_wording(
    world: World, ledger: Ledger, effect: Any
) -> None:
    """The model words its arguments anew: a probe for the new words would find nothing, and pay a second time."""
    asked: list[str] = []

    def find(what: str) -> Any:
        asked.append(what)
        return Happened("found") if what in ledger.entries else NotDone()

    tool = declared(ledger, effect=effect, in_doubt="probe", probe=find)
    crash_in(world, ledger, tool, "pay Ada")
    with world.failing("t", EffectMismatch) as run:
        run.tool(tool, {"what": "pay Ada, please"}, key="k")
    assert asked == []
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay Ada"}, key="k") == "found"
    assert asked == ["pay Ada"]
    assert ledger.entries == ["pay Ada"]


def test_a_rerun_with_other_arguments_is_refused(world: World, ledger: Ledger) -> None:
    """One idempotency key with two sets of arguments is refused by those who honour it, or worse."""
    tool = keyed(ledger, effect="idempotent")
    crash_in(world, ledger, tool, "pay Ada")
    with world.failing("t", EffectMismatch) as run:
        run.tool(tool, {"what": "pay Ada, please"}, key="k")
    assert ledger.entries == ["pay Ada"]


# -- live as after a crash --------------------------------------------------------------------------------------------


@covers("E13")
def test_an_irreversible_tool_that_raises_is_in_doubt(world: World, ledger: Ledger) -> None:
    tool = declared(ledger)
    ledger.fault = ConnectionError("lost after the request was sent")
    with world.running("t", ends="waiting", start={}) as run:
        run.tool(tool, {"what": "pay"}, key="k")
        pytest.fail("the run went on without an answer")
    [effect] = world.open().effects("t")
    assert effect.status == "in_doubt"
    assert effect.arguments == {"what": "pay"}
    assert effect.error is not None
    assert effect.error.startswith("ConnectionError")
    with world.running("t", ends="waiting") as run:  # as after a crash
        run.tool(tool, {"what": "pay"}, key="k")
    assert ledger.entries == ["pay"]


@covers("cortex/GraphConfig.node_timeout_ms")
def test_an_irreversible_tool_that_takes_too_long_is_in_doubt(world: World, ledger: Ledger) -> None:
    end = threading.Event()

    @holdfast.tool(timeout=0.05)
    def act() -> str:
        end.wait(DEADLINE)
        return ledger.write("late")

    try:
        with world.running("t", ends="waiting", start={}) as run:
            run.tool(act, {}, key="k")
        assert statuses(world) == ["in_doubt"]
        with world.running("t", ends="waiting") as run:
            run.tool(act, {}, key="k")
    finally:
        end.set()
    until(lambda: statuses(world) == ["done"], "the late result is recorded")
    with world.running("t") as run:
        assert run.tool(act, {}, key="k") == "entry 1"


def test_a_tool_within_its_time_gives_its_result_or_its_error(world: World) -> None:
    @holdfast.tool(effect="idempotent", timeout=DEADLINE)
    def act(fail: bool) -> str:
        if fail:
            raise KeyError("fail")
        return "done"

    with world.running("t", start={}) as run:
        assert run.tool(act, {"fail": False}) == "done"
        with pytest.raises(KeyError):
            run.tool(act, {"fail": True})


def test_the_probe_decides_live_as_well(world: World, ledger: Ledger) -> None:
    tool = declared(ledger, probe=lambda what: Happened(f"found {what}"))
    ledger.fault = ConnectionError()
    with world.running("t", start={}) as run:
        assert run.tool(tool, {"what": "pay"}) == "found pay"
    assert ledger.entries == ["pay"]
    assert statuses(world) == ["done"]


def test_give_up_decides_live_as_well(world: World, ledger: Ledger) -> None:
    tool = declared(ledger, in_doubt="give_up")
    ledger.fault = ConnectionError()
    with world.running("t", start={}) as run:
        assert run.tool(tool, {"what": "pay"})["outcome"] == UNKNOWN
    assert ledger.entries == ["pay"]


def test_nobody_can_go_on_past_a_question(world: World, ledger: Ledger) -> None:
    """Not even a program that catches everything, or that called the tool in a thread and did not look."""
    tool = declared(ledger)
    ledger.fault = ConnectionError()
    after: list[str] = []
    with world.running("t", ends="waiting", start={}) as run:
        try:
            run.tool(tool, {"what": "pay"}, key="k")
        except BaseException:  # noqa: BLE001 - what the test is about
            after.append("caught")
        run.finish("done")
        after.append("finished")
    assert after == ["caught"]
    with world.running("t") as run:
        assert run.status == "running"


def test_a_question_swallowed_at_the_end_is_still_asked(world: World, ledger: Ledger) -> None:
    tool = declared(ledger)
    ledger.fault = ConnectionError()
    with world.running("t", ends="waiting", start={}) as run:
        thread = threading.Thread(target=_quietly, args=(run, tool))
        thread.start()
        thread.join()


def _quietly(run: Run, tool: Any) -> None:
    try:
        run.tool(tool, {"what": "pay"}, key="k")
    except BaseException:  # noqa: BLE001 - as a thread does whose result nobody reads
        return


# -- errors that say that nothing happened ----------------------------------------------------------------------------


def test_not_done_says_that_nothing_happened(world: World, ledger: Ledger) -> None:
    @holdfast.tool
    def act() -> str:
        if not ledger.entries:
            ledger.entries.append("refused")
            raise ToolNotDone("no money on the account")
        return "paid"

    with world.running("t", start={}) as run:
        with pytest.raises(ToolNotDone, match="no money"):
            run.tool(act, {}, key="k")
        assert run.tool(act, {}, key="k") == "paid"
    assert statuses(world) == ["not_done", "done"]


@covers("E13", "continuum/RetryPolicy by category", "continuum/ErrorCategory.from_error_message")
def test_declared_errors_say_that_nothing_happened(world: World, ledger: Ledger) -> None:
    @holdfast.tool(not_done=(ConnectionRefusedError,))
    def act(error: str) -> str:
        raise {"refused": ConnectionRefusedError, "reset": ConnectionResetError}[error]

    with world.running("t", ends="waiting", start={}) as run:
        with pytest.raises(ConnectionRefusedError):
            run.tool(act, {"error": "refused"}, key="a")
        run.tool(act, {"error": "reset"}, key="b")
        pytest.fail("the run went on without an answer")
    assert statuses(world) == ["not_done", "in_doubt"]


@covers("continuum/ErrorCategory.Logic")
def test_arguments_that_do_not_fit_the_tool_are_refused_before_anything_begins(world: World, ledger: Ledger) -> None:
    """Models do send such arguments. Nothing happened, and nobody should have to be asked."""
    tool = keyed(ledger)
    with world.running("t", start={}) as run:
        for wrong in ({}, {"what": "pay", "more": 1}, {"waht": "pay"}):
            with pytest.raises(InvalidArgument, match="act"):
                run.tool(tool, wrong, key="k")
        assert run.tool(tool, {"what": "pay"}, key="k") == "entry 1"
    assert statuses(world) == ["done"]


def test_an_idempotent_tool_that_raises_failed_and_may_be_called_again(world: World, ledger: Ledger) -> None:
    tool = keyed(ledger, effect="idempotent")
    ledger.fault = ConnectionError("try again")
    with world.running("t", start={}) as run:
        with pytest.raises(ConnectionError):
            run.tool(tool, {"what": "pay"}, key="k")
        assert run.tool(tool, {"what": "pay"}, key="k") == "entry 2"
    assert ledger.keys[0] == ledger.keys[1]


# -- retry ------------------------------------------------------------------------------------------------------------


@covers("continuum/ErrorRecovery.new", "continuum/ErrorRecovery.execute_with_recovery", "cortex/test_step_with_retries")
def test_retry_makes_the_call_again_with_the_same_key(world: World) -> None:
    keys: list[str] = []

    @holdfast.tool(effect="idempotent", retry=holdfast.Retry(2, first=0))
    def act(idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError
        return "done"

    with world.running("t", start={}) as run:
        assert run.tool(act, {}) == "done"
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_a_probe_that_always_says_not_done_does_not_call_for_ever(world: World, ledger: Ledger) -> None:
    """Nothing happened and no retry is left: the caller hears of it, as of any error that did nothing."""
    calls: list[int] = []

    @holdfast.tool(probe=NotDone, retry=holdfast.Retry(2, first=0), probe_after=5)
    def act() -> str:
        calls.append(1)
        raise ConnectionError

    for _ in range(3):
        with world.running("t", start={}, ends="waiting") as run:
            run.tool(act, {})
        world.pass_time(6)
    with world.running("t", start={}) as run, pytest.raises(ConnectionError):
        run.tool(act, {})
    assert len(calls) == 3
    assert set(statuses(world)) == {"not_done"}


@covers("continuum/RetryPolicy.max_retries", "cortex/DurableError.MaxRetriesExceeded")
def test_retry_ends(world: World) -> None:
    calls: list[int] = []

    @holdfast.tool(effect="read", retry=holdfast.Retry(2, first=0))
    def act() -> str:
        calls.append(1)
        raise ConnectionError

    with pytest.raises(ConnectionError), world.open().run("t", start={}) as run:
        run.tool(act, {})
    assert len(calls) == 3


def test_retry_of_an_irreversible_tool_probes_first(world: World, ledger: Ledger) -> None:
    answers: list[Any] = [NotDone(), Happened("found")]
    answers.insert(0, NotDone())
    tool = declared(ledger, probe=lambda what: answers.pop(0), retry=holdfast.Retry(3, first=0), probe_after=5)
    ledger.fault = ConnectionError()
    with world.running("t", start={}, ends="waiting") as run:
        run.tool(tool, {"what": "pay"})
    world.pass_time(6)
    with world.running("t", start={}) as run:
        assert run.tool(tool, {"what": "pay"}) == "entry 2"
    assert len(answers) == 1


def test_what_was_retried_is_not_in_doubt_any_more(world: World) -> None:
    calls: list[int] = []

    retried = threading.Event()

    @holdfast.tool(effect="idempotent", retry=holdfast.Retry(1, first=0), timeout=2.0)
    def act() -> str:
        calls.append(1)
        if len(calls) == 1:
            assert retried.wait(DEADLINE)
        retried.set()
        return "done"

    with world.running("t", start={}) as run:
        assert run.tool(act, {}) == "done"
    assert "in_doubt" not in statuses(world)


# -- idempotency keys -------------------------------------------------------------------------------------------------


def test_an_idempotency_key_names_one_call_of_one_run(world: World, ledger: Ledger) -> None:
    tool = keyed(ledger, effect="idempotent")
    hf = world.open()
    for thread in ("a", "b"):
        with hf.run(thread, start={}) as run:
            run.tool(tool, {"what": "1"}, key="k")
            run.tool(tool, {"what": "1"}, key="l")
            run.save()
            run.tool(tool, {"what": "1"}, key="k")
    hf.thread("a").rewind("@0")
    with hf.run("a") as run:
        run.tool(tool, {"what": "2"}, key="k")
    assert len(ledger.keys) == len(set(ledger.keys)) == 7


# -- settling ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(world: World, ledger: Ledger) -> Any:
    """The tool of a run that waits to hear about its effect 1."""
    tool = declared(ledger)
    ledger.fault = ConnectionError()
    with world.running("t", ends="waiting", start={}) as run:
        run.tool(tool, {"what": "pay"}, key="k")
    return tool


@covers("E5", "E13")
@pytest.mark.parametrize("by", ["record", "number"])
def test_happened_gives_the_tool_its_result(world: World, ledger: Ledger, waiting: Any, by: str) -> None:
    hf = world.open()
    hf.settle("t", hf.effects("t")[0] if by == "record" else 1, Happened({"receipt": 7}))
    with world.running("t", hf) as run:
        assert run.tool(waiting, {"what": "pay"}, key="k") == {"receipt": 7}
    assert ledger.entries == ["pay"]


@covers("E13", "continuum/RecoveryAction.retry")
@pytest.mark.parametrize("outcome", [NotDone(), NotDone])
def test_not_done_lets_the_tool_be_called(world: World, ledger: Ledger, waiting: Any, outcome: Any) -> None:
    world.open().settle("t", 1, outcome)
    with world.running("t") as run:
        assert run.tool(waiting, {"what": "pay"}, key="k") == "entry 2"


@covers("E13", "continuum/RecoveryAction.skip")
@pytest.mark.parametrize("outcome", [GiveUp(), GiveUp])
def test_give_up_tells_the_model(world: World, ledger: Ledger, waiting: Any, outcome: Any) -> None:
    world.open().settle("t", 1, outcome)
    with world.running("t") as run:
        assert run.tool(waiting, {"what": "pay"}, key="k")["outcome"] == UNKNOWN
    assert ledger.entries == ["pay"]


def test_the_first_answer_stands(world: World, waiting: Any) -> None:
    hf = world.open()
    hf.settle("t", 1, Happened("a"))
    with pytest.raises(Conflict):
        hf.settle("t", 1, Happened("b"))
    with pytest.raises(Conflict):
        hf.settle("t", 1, NotDone())
    assert hf.effects("t")[0].result == "a"


def test_a_result_that_cannot_be_recorded_settles_nothing(world: World, waiting: Any) -> None:
    hf = world.open()
    with pytest.raises(holdfast.Unsupported):
        hf.settle("t", 1, Happened({"a": object()}))
    assert statuses(world) == ["in_doubt"]


@pytest.mark.parametrize("outcome", [None, "done", 5, {"result": 1}, ValueError()])
def test_an_outcome_is_one_of_three(world: World, waiting: Any, outcome: Any) -> None:
    with pytest.raises(InvalidArgument):
        world.open().settle("t", 1, outcome)
    assert statuses(world) == ["in_doubt"]


def test_the_person_who_settles_a_call_is_recorded(world: World, waiting: Any) -> None:
    hf = world.open()
    hf.settle("t", 1, Happened("by hand"), by="ann")
    assert hf.effects("t")[0].by == "ann"
    wrong: Any
    for wrong in ("", 7):
        with pytest.raises(InvalidArgument, match="by must be"):
            hf.settle("t", 1, Happened("by hand"), by=wrong)


def test_only_what_is_in_doubt_can_be_settled(world: World, waiting: Any) -> None:
    hf = world.open()
    with pytest.raises(NotFound):
        hf.settle("other", 1, NotDone())
    for number in (0, -1, 2, 10**30):
        with pytest.raises(NotFound):
            hf.settle("t", number, NotDone())
    anything: list[Any] = ["1", None, 1.0, True]
    for wrong in anything:
        with pytest.raises(InvalidArgument):
            hf.settle("t", wrong, NotDone())
    with hf.run("u", start={}) as run:
        run.model(lambda: "reply")
    with pytest.raises(Conflict):
        hf.settle("u", 1, NotDone())


def test_what_is_under_way_cannot_be_settled(world: World, ledger: Ledger) -> None:
    hf = world.open()
    refused: list[Exception] = []

    def act() -> str:
        try:
            hf.settle("t", 1, NotDone())
        except Conflict as error:
            refused.append(error)
        return "done"

    with world.running("t", hf, start={}) as run:
        assert run.tool(act, {}) == "done"
    assert len(refused) == 1


def test_what_a_dead_process_left_behind_can_be_settled_before_anybody_resumes(world: World, ledger: Ledger) -> None:
    tool = declared(ledger)
    crash_in(world, ledger, tool)
    world.open().settle("t", 1, Happened("by hand"))
    with world.running("t") as run:
        assert run.tool(tool, {"what": "pay"}, key="k") == "by hand"
    assert ledger.entries == ["pay"]


def test_a_question_is_asked_again_as_long_as_nobody_answers(world: World, ledger: Ledger, waiting: Any) -> None:
    for _ in range(7):
        with world.running("t", ends="waiting") as run:
            run.tool(waiting, {"what": "pay"}, key="k")
        assert (run.status, run.attempt) == ("waiting", 1)  # who waits does not fail
    assert ledger.entries == ["pay"]


def test_a_question_after_what_a_checkpoint_carried_waits(world: World, ledger: Ledger) -> None:
    """Results of reads ride with the checkpoint: they are nothing that was told from outside."""

    @holdfast.tool(effect="read")
    def look_up(item: str) -> str:
        return item

    act = declared(ledger, effect="irreversible", in_doubt="ask")
    ledger.fault = ConnectionError()
    with world.running("t", start={}, tools=[act, look_up], ends="waiting") as run:
        for step in run.steps():
            if step == 1:
                run.tool("look_up", {"item": "price"})
            else:
                run.tool("act", {"what": "pay"})
