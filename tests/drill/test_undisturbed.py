"""Agents that are not the same in each run, and agents that come to no end by themselves."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast import AsyncRun, HoldfastError, InvalidArgument, Run
from holdfast.testing import DrillReport, crash_everywhere
from tests import small
from tests.drill.agents import START, ask, lines, note, one_call, post, punctual
from tests.drill.short import POINTS, kills_only
from tests.waiting import DEADLINE

pytestmark = small.process(kills_only)


def texts(report: DrillReport) -> list[str]:
    return [finding.text for kill in report.kills for finding in kill.findings]


def at(report: DrillReport, place: str) -> Any:
    """The only kill at a place."""
    [kill] = [kill for kill in report.kills if kill.place.startswith(place)]
    return kill


# -- agents that differ ------------------------------------------------------------------------------------------------


def test_the_time_in_a_prompt_is_no_hindrance() -> None:
    report = crash_everywhere(punctual, START, fakes=[post], watch=["ledger"])
    assert report.passed, texts(report)
    assert report.unsteady == ("the model function ask: called with other arguments each time; judged by counts",)
    assert at(report, "after the model call ask").model_calls_repeated == 1
    assert {kill.final_state for kill in report.kills} == {"equal"}


def test_a_repeated_tool_is_found_beside_a_prompt_with_the_time_in_it() -> None:
    @holdfast.tool(name="post", in_doubt="rerun")
    def post_again(letter: str) -> None:
        pass

    report = crash_everywhere(punctual, START, fakes=[post_again])
    assert [kill.place.partition(",")[0] for kill in report.kills if not kill.passed] == [
        "after the call of post",
        "before the checkpoint of step 1",  # it takes the result along
    ]


def test_an_effect_hidden_in_a_model_function_that_notes_the_time_is_found() -> None:
    def leaky(prompt: str) -> str:
        note("bill", f"{time.time_ns()}")
        return "thanks"

    def work(run: Run) -> Any:
        return run.model(leaky, f"It is {time.time_ns()}")

    report = crash_everywhere(work, START, watch=["bill"])
    assert [
        kill.place.partition(",")[0].replace(leaky.__qualname__, "leaky") for kill in report.kills if not kill.passed
    ] == [
        "after the model call leaky",
        "before the checkpoint of step 1",  # it takes the reply along
    ]
    assert texts(report)[0] == (
        f"bill: 2 lines, 1 in the undisturbed run; called again after this kill: the model function "
        f"{leaky.__qualname__}"
    )


def test_a_random_argument_is_no_hindrance() -> None:
    def work(run: Run) -> None:
        run.state["ordered"] = run.tool("order", {"item": run.model(lambda: uuid.uuid4().hex)})

    def order(item: str) -> str:
        note("ledger", item)
        return item

    report = crash_everywhere(work, START, fakes=[order], watch=["ledger"], points=POINTS)
    assert report.passed, texts(report)
    assert [text.partition(":")[0] for text in report.unsteady] == ["the tool order", "final state", "ledger"]
    assert {kill.final_state for kill in report.kills} == {"not compared"}


def test_a_duplicate_is_found_in_an_agent_that_differs_by_itself() -> None:
    @holdfast.tool(in_doubt="rerun")
    def order(item: str) -> str:
        return item

    def work(run: Run) -> Any:
        return run.tool("order", {"item": run.model(lambda: uuid.uuid4().hex)})

    report = crash_everywhere(work, START, fakes=[order])
    assert [kill.place for kill in report.kills if not kill.passed] == [
        "after the call of order, step 1",
        "before the checkpoint of step 1",  # it takes the result along
    ]


def test_an_agent_that_makes_another_number_of_calls_each_time_does_not_pass(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")

    def work(run: Run) -> str:
        note(runs, "one more")
        run.model(ask, "What now?")
        for number, _ in enumerate(lines(runs)):
            run.tool("post", {"letter": str(number)})
        return "done"

    report = crash_everywhere(work, START, fakes=[post], points=2)
    assert report.failures == (), texts(report)
    assert not report.passed
    [text] = report.unjudged
    assert text.startswith("the tool post: called 1, then 2 times; make the agent call the same things in each run")


# -- agents that come to no end ----------------------------------------------------------------------------------------


def test_an_agent_that_fails_undisturbed_is_not_drilled() -> None:
    def work(run: Run) -> None:
        raise ZeroDivisionError("it never worked")

    async def work_async(run: AsyncRun) -> None:
        work(cast(Run, run))

    for handler in (work, work_async):
        with pytest.raises(HoldfastError) as raised:
            crash_everywhere(handler, START)
        text = str(raised.value)
        assert f"{handler.__qualname__} failed in an undisturbed run:\n" in text
        assert "Traceback (most recent call last):\n" in text
        assert text.endswith("ZeroDivisionError: it never worked")
        assert str(raised.value).endswith("ZeroDivisionError: it never worked")
        frames = [line for line in str(raised.value).splitlines() if line.startswith("  File ")]
        assert all(__file__ in frame for frame in frames), "its own code, and not the drill's"


def test_an_error_of_ours_says_where_it_was_made() -> None:
    with pytest.raises(HoldfastError, match=r"work failed in an undisturbed run: NotFound: there is no tool"):
        crash_everywhere(one_call("nothing", {}), START)
    with pytest.raises(InvalidArgument, match=r"post does not take these .* \(in .*agents\.py, line \d+\)$"):
        crash_everywhere(one_call("post", {"to": "mill"}), START, fakes=[post])


def test_a_result_that_cannot_be_stored() -> None:
    with pytest.raises(InvalidArgument, match=r"the value that object returns cannot be the result of a run: \$: type"):
        crash_everywhere(returning(object()), START)


def returning(result: object) -> Callable[[Run], object]:
    def work(run: Run) -> object:
        return result

    work.__qualname__ = "object"
    return work


def hang(run: Run) -> None:
    threading.Event().wait()


def leave(run: Run) -> None:
    os._exit(3)


def crash(run: Run) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (hang, "it did not end within 0.5 seconds; if it needs longer, give timeout="),
        (leave, "its process ended by itself, with status 3"),
        (crash, "its process ended by itself, by signal 9"),
    ],
)
def test_a_process_that_leaves_no_word(handler: Callable[[Run], None], says: str) -> None:
    with pytest.raises(HoldfastError) as raised:
        crash_everywhere(handler, START, timeout=0.5 if handler is hang else 60.0)
    assert str(raised.value) == f"{handler.__name__} failed in an undisturbed run: {says}"


def test_what_an_agent_forks_does_not_keep_the_drill_waiting() -> None:
    def work(run: Run) -> None:
        if not os.fork():
            signal.pause()

    began = time.monotonic()
    assert crash_everywhere(work, START, points=1, timeout=DEADLINE).passed
    assert time.monotonic() - began < DEADLINE, "it waited for processes that nobody ends"


def test_a_tool_that_leaves_its_call_in_doubt_each_time() -> None:
    @holdfast.tool(in_doubt="ask")
    def order(item: str) -> None:
        raise ConnectionResetError("a secret")

    with pytest.raises(InvalidArgument) as raised:
        crash_everywhere(one_call("order", {"item": "ink"}), START, fakes=[order])
    assert str(raised.value).startswith(
        "the call of order in step 1 was made 4 times and is still in doubt: it raised ConnectionResetError each time, "
        "so the drill cannot tell whether it happened. Let the function return, or let it raise holdfast.ToolNotDone"
    )
    assert "secret" not in str(raised.value)


def test_a_tool_that_raises_once_is_called_again() -> None:
    @holdfast.tool(in_doubt="ask")
    def order(item: str) -> str:
        note("tries", item)
        if len(lines("tries")) == 1:
            raise ConnectionResetError
        return item

    report = crash_everywhere(one_call("order", {"item": "ink"}), START, fakes=[order], points=POINTS)
    assert report.passed, texts(report)


def test_an_agent_that_waits_without_end() -> None:
    def work(run: Run) -> None:
        for _ in run.steps():
            run.wait("again?")

    with pytest.raises(InvalidArgument, match=r"the run waited 100 times and did not end, the last time 'again\?'"):
        crash_everywhere(work, START, answers={"again?": True})


def test_a_call_that_cannot_be_played_back() -> None:
    with pytest.raises(InvalidArgument, match=r"ask cannot be played back: .*; drill this agent without recorded=True"):
        crash_everywhere(punctual, START, fakes=[post], recorded=True)
