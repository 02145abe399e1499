"""Continuum's error recovery, agent states and hooks: by tools that declare themselves, the journal and telemetry."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

import holdfast
from holdfast import GiveUp, Happened, Holdfast, InvalidArgument, NotDone, Run, StoreFull, Unsupported
from holdfast.stores.directory import files
from holdfast.telemetry import instrument
from tests.parity.covering import covers
from tests.runs.conftest import World


class Refused(Exception):
    """The other side did nothing."""


class Flaky:
    """Fails so often, and then gives something."""

    def __init__(self, failures: int, error: Exception, gives: Any = "at last") -> None:
        self.tries = 0
        self._failures = failures
        self._error = error
        self._gives = gives

    def __call__(self) -> Any:
        self.tries += 1
        if self.tries <= self._failures:
            raise self._error
        return self._gives


def failing(error: Exception) -> Callable[[], NoReturn]:
    def fail() -> NoReturn:
        raise error

    return fail


# -- trying again -----------------------------------------------------------------------------------------------------


@covers(
    "continuum",
    "ErrorRecovery.with_retry_policy",
    "RetryPolicy.max_retries",
    "ErrorCategory.Transient",
    "RecoveryResult of a call",
)
@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (2, 3), (3, 4), (9, 4)])
def test_a_tool_is_tried_as_often_as_it_declares_and_then_its_error_is_the_callers(
    world: World, failures: int, tries: int
) -> None:
    fetch = Flaky(failures, TimeoutError("no answer"))
    tool = holdfast.tool(effect="idempotent", retry=3, name="fetch")(fetch)
    hf = world.open()
    if failures < 4:
        with world.running("t", hf, start={}) as run:
            assert run.tool(tool) == "at last"
    else:
        with world.failing("t", TimeoutError, hf, start={}) as run:
            run.tool(tool)
    assert fetch.tries == tries
    effects = hf.effects("t")
    assert [effect.status for effect in effects] == ["failed"] * min(failures, 4) + ["done"] * (failures < 4)
    if failures < 4:
        assert [effect.error for effect in effects] == ["TimeoutError: no answer"] * failures + [None]
        assert effects[-1].result == "at last"
    else:
        [found] = hf.stuck(older_than=0)
        assert "TimeoutError: no answer" in found.why


@covers("continuum", "RetryPolicy delays")
@covers("cortex", "DurableConfig.retry_delay")
def test_a_worker_waits_longer_before_each_try(world: World) -> None:
    tries: list[int] = []

    def handler(run: Run) -> None:
        tries.append(run.attempt)
        raise ConnectionError("down")

    def drain() -> None:
        world.open().worker({"h": handler}, attempts=6).run(until_idle=True)

    world.open().submit("h", "t", start={})
    drain()
    for number, seconds in enumerate((1, 5, 30, 120, 120), start=1):
        world.pass_time(seconds - 0.5)
        drain()
        assert len(tries) == number
        world.pass_time(1)
        drain()
        assert len(tries) == number + 1
    assert [info.status for info in world.open().threads()] == ["dead"]


@covers("continuum", "RetryPolicy jitter")
def test_a_loop_of_the_programs_own_pauses_as_it_likes_and_is_one_call(world: World) -> None:
    model, paused = Flaky(3, ConnectionError("busy")), list[float]()

    def patient(run: Run, *pauses: float) -> Any:
        for pause in pauses:
            try:
                return run.model(model, key="answer")
            except ConnectionError:
                paused.append(pause)  # here a program sleeps
        return pytest.fail("given up")

    hf = world.open()
    with world.dying("t", hf, start={}) as run:
        assert patient(run, 0.7, 2.4, 3.9, 8.0) == "at last"
    with world.running("t") as run:
        assert patient(run, 1.3, 1.6, 4.2, 8.0) == "at last"
    assert paused == [0.7, 2.4, 3.9, 1.3, 1.6, 4.2]
    assert model.tries == 4  # resumed it fails and answers as it did, however long the pauses, and nobody is asked
    assert {effect.key for effect in hf.effects("t")} == {"model/answer"}
    assert [effect.status for effect in hf.effects("t")] == ["failed"] * 3 + ["done"]


@covers("continuum", "RetryPolicy by category", "ErrorCategory.from_error_message")
def test_which_errors_may_be_tried_again_is_declared_by_class_whatever_they_say(world: World) -> None:
    tries: list[str] = []

    def pay(how: str) -> str:
        tries.append(how)
        if how == "refused" and tries.count(how) == 1:
            raise Refused("invalid api key: timeout on disk")
        if how == "broken":
            raise OSError("timeout")
        return "paid"

    tool = holdfast.tool(effect="irreversible", not_done=(Refused,))(pay)
    hf = world.open()
    with world.running("t", hf, ends="waiting", start={}) as run:
        with pytest.raises(Refused):
            run.tool(tool, {"how": "refused"}, key="a")
        assert run.tool(tool, {"how": "refused"}, key="a") == "paid"
        run.tool(tool, {"how": "broken"}, key="b")
        pytest.fail("nobody knows whether that was paid")
    assert tries == ["refused", "refused", "broken"]
    [question] = hf.waiting()
    assert (question.name, question.about, question.payload) == ("pay", "in doubt", {"how": "broken"})


# -- doing it otherwise -----------------------------------------------------------------------------------------------


@covers("continuum", "ErrorRecovery.with_fallback", "FallbackStrategy")
def test_what_was_done_instead_is_what_was_done_after_a_crash_too(world: World) -> None:
    good = Flaky(99, ConnectionError("busy"))
    cheap: list[str] = []

    def cheaper() -> str:
        cheap.append("asked")
        return "a simpler answer"

    def answer(run: Run) -> Any:
        try:
            return run.model(good)
        except ConnectionError:
            return run.model(cheaper)

    with world.dying("t", start={}) as run:
        assert answer(run) == "a simpler answer"
    with world.running("t") as run:
        assert answer(run) == "a simpler answer"
    assert (good.tries, cheap) == (1, ["asked"])


# -- asking somebody --------------------------------------------------------------------------------------------------


@covers(
    "continuum",
    "ErrorRecovery.set_user_callback",
    "RecoveryAction.retry",
    "RecoveryAction.skip",
    "RecoveryAction.abort",
)
@pytest.mark.parametrize("action", ["retry", "skip", "done by hand", "abort"])
def test_somebody_is_asked_and_says_how_it_goes_on(world: World, action: str) -> None:
    send = Flaky(1, OSError("connection reset"), "sent")
    tool = holdfast.tool(effect="irreversible", name="send")(send)
    hf = world.open()
    with world.running("t", hf, ends="waiting", start={}) as run:
        run.tool(tool, key="k")
        pytest.fail("nobody was asked")
    [question] = hf.waiting()
    assert (question.thread, question.name) == ("t", "send")
    if action == "abort":
        hf.cancel("t", "never mind")
        info = hf.run_info("t")
        assert info is not None
        assert (info.status, info.reason) == ("halted", "never mind")
        assert send.tries == 1
        return
    hf.settle("t", question.effect, {"retry": NotDone(), "skip": GiveUp()}.get(action) or Happened("by hand"))
    with world.running("t", hf, ends="completed") as run:
        result = run.tool(tool, key="k")
        run.finish(result)
    assert send.tries == (2 if action == "retry" else 1)
    assert (run.result == "sent") == (action == "retry")
    assert (run.result == "by hand") == (action == "done by hand")


@covers(
    "continuum",
    "ErrorRecovery.new",
    "ErrorRecovery.execute_with_recovery",
    "ErrorRecovery.get_stats",
    "RecoveryStats",
    "RecoveryLayer",
)
def test_three_lines_of_defence_and_the_journal_tells_which_one_helped(world: World) -> None:
    lookup = Flaky(1, ConnectionError("busy"), 7)
    search = Flaky(99, ConnectionError("down"))
    send = Flaky(1, OSError("reset"))
    tries_again = holdfast.tool(effect="idempotent", retry=2, name="lookup")(lookup)
    does_otherwise = holdfast.tool(effect="idempotent", name="search")(search)
    asks = holdfast.tool(effect="irreversible", name="send")(send)

    def agent(run: Run) -> None:
        run.tool(tries_again)
        try:
            run.tool(does_otherwise)
        except ConnectionError:
            run.model(lambda: "from memory")
        run.tool(asks)
        run.finish()

    hf = world.open()
    with world.running("t", hf, ends="waiting", start={}) as run:
        agent(run)
    [question] = hf.waiting()
    hf.settle("t", question.effect, Happened("sent"))
    with world.running("t", hf, ends="completed") as run:
        agent(run)
    assert [(effect.key.partition("#")[0], effect.status) for effect in hf.effects("t")] == [
        ("lookup", "failed"),
        ("lookup", "done"),
        ("search", "failed"),
        ("model", "done"),
        ("send", "done"),
    ]


# -- kinds of errors --------------------------------------------------------------------------------------------------


@covers("continuum", "ErrorCategory.Resource")
def test_no_room_on_the_disk_has_a_class_and_the_save_can_be_made_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with holdfast.open(f"dir:{tmp_path}/agents", durability="off", max_state_bytes=1000) as hf:
        thread = hf.thread("t")
        thread.save({"n": 1})
        with monkeypatch.context() as patched:
            patched.setattr(files, "write_all", full)
            with pytest.raises(StoreFull):
                thread.save({"n": 2})
        with pytest.raises(holdfast.TooLarge):
            thread.save({"text": "x" * 2000})
        assert thread.save({"n": 2}).seq == 2


@covers("continuum", "ErrorCategory.Configuration", "ErrorCategory.Logic")
def test_wrong_settings_and_wrong_arguments_are_told_before_anything_is_done(world: World) -> None:
    called: list[int] = []

    def buy(amount: int) -> None:
        called.append(amount)

    with pytest.raises(InvalidArgument, match="no store for mysql"):
        holdfast.open("mysql://host/db")
    with pytest.raises(InvalidArgument, match="needs probe="):
        holdfast.tool(effect="irreversible", retry=3)(buy)
    hf = world.open()
    with world.failing("t", InvalidArgument, hf, start={}) as run:
        run.tool(buy, {"number": 3})
    with pytest.raises(Unsupported, match=r"\$\.when"):
        hf.thread("other").save({"when": object()})
    assert called == []
    assert [(effect.name, effect.status) for effect in hf.effects("t")] == []


@covers("continuum", "ErrorCategory.System", "AgentState.error")
def test_any_other_error_ends_the_run_as_failed_with_what_it_was(world: World) -> None:
    hf = world.open()
    with world.failing("t", ZeroDivisionError, hf, start={}) as run:
        run.model(failing(ZeroDivisionError("division by zero")))
    assert [info.status for info in hf.threads()] == ["failed"]
    [found] = hf.stuck(older_than=0)
    assert "ZeroDivisionError: division by zero" in found.why


@covers("continuum", "ErrorCategory.UserInterrupt", "AgentState.idle")
def test_who_presses_ctrl_c_gives_the_run_back_and_it_goes_on_later(world: World) -> None:
    hf = world.open()
    with world.failing("t", KeyboardInterrupt, hf, start={}) as run:
        run.model(lambda: "a reply")
        raise KeyboardInterrupt
    assert [info.status for info in hf.threads()] == ["idle"]
    with world.running("t") as run:
        assert run.model(lambda: "paid for twice") == "a reply"


# -- states of an agent -----------------------------------------------------------------------------------------------


@covers("continuum", "AgentState.running", "AgentState.tool_calling", "AgentState.completed")
def test_from_outside_it_is_seen_that_an_agent_works_calls_a_tool_and_is_done(world: World) -> None:
    hf = world.open()
    seen: list[tuple[str, list[tuple[str, str]]]] = []

    def look(how: str) -> str:
        outside = world.open()
        [info] = outside.threads()
        seen.append((info.status, [(effect.name, effect.status) for effect in outside.effects("t")]))
        return how

    with world.running("t", hf, ends="completed", start={}) as run:
        look("before")
        run.tool(look, {"how": "inside"})
        run.finish()
    assert seen == [("running", []), ("running", [("look", "begun")])]
    assert [info.status for info in hf.threads()] == ["completed"]


@covers("continuum", "AgentState.waiting_tool", "AgentState.stopped")
def test_from_outside_it_is_seen_that_an_agent_waits_or_was_stopped(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, ends="waiting", start={}) as run:
        run.wait("approve", {"amount": 3})
    assert [info.status for info in hf.threads()] == ["waiting"]
    hf.answer("t", "approve", value=True)
    with world.running("t", hf, ends="halted") as run:
        assert run.wait("approve", {"amount": 3}) is True
        run.halt("the shop is closed")
    assert [info.status for info in hf.threads()] == ["halted"]


# -- hooks ------------------------------------------------------------------------------------------------------------


class Hooks(SpanProcessor):
    """Functions of the caller that hear when a checkpoint is about to be written, and when it was."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._before = before
        self._after = after

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name == "holdfast.save":
            self._before()

    def on_end(self, span: ReadableSpan) -> None:
        if span.name == "holdfast.save":
            self._after()


@covers("continuum", "HookEvent.BeforeCheckpoint", "HookEvent.AfterCheckpoint")
def test_functions_of_the_caller_hear_of_a_save_before_it_is_made_and_when_it_is(hf: Holdfast) -> None:
    heard: list[tuple[str, int]] = []
    tracers = TracerProvider()
    tracers.add_span_processor(
        Hooks(
            lambda: heard.append(("before", hf.thread("t").count())),
            lambda: heard.append(("after", hf.thread("t").count())),
        )
    )
    instrument(hf, tracer_provider=tracers)
    hf.thread("t").save({"n": 1})
    hf.thread("t").save({"n": 2}, expect=holdfast.ANY)
    with hf.run("other", start={}) as run:
        run.finish()
    assert heard[:4] == [("before", 0), ("after", 1), ("before", 1), ("after", 2)]
    assert heard[4:] == [("before", 2), ("after", 2)] * 2
