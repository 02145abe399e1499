"""The drill passes agents that keep to the rules, and finds those that do not."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import InvalidArgument, Run
from holdfast.drill import lab
from holdfast.testing import Drill, DrillReport, Finding, crash_everywhere, drill_passes
from tests import small
from tests.cases import for_each
from tests.drill.agents import (
    EVERY_CLASS,
    START,
    TOOLS,
    agent,
    async_agent,
    note,
    notify,
    one_call,
    pay,
    post,
    scripted,
    was_paid,
)
from tests.drill.short import POINTS, few_further, kills_only

pytestmark = small.process(kills_only)


def findings(report: DrillReport) -> list[Finding]:
    return [finding for kill in report.kills for finding in kill.findings]


def kinds(report: DrillReport) -> set[str]:
    return {finding.kind for finding in findings(report)}


def at(report: DrillReport, place: str) -> Any:
    """The only kill at a place."""
    [kill] = [kill for kill in report.kills if kill.place == place]
    return kill


# -- agents that keep to the rules -------------------------------------------------------------------------------------


def drill_every_class() -> DrillReport:
    return crash_everywhere(agent(*EVERY_CLASS), START, fakes=TOOLS, watch=["ledger"])


@pytest.fixture(scope="module")
def survived() -> DrillReport:
    """An agent that calls a tool of every class."""
    report: DrillReport = small.call(drill_every_class, functools.partial(few_further, 1))
    return report


def test_an_agent_that_keeps_to_the_rules_passes(survived: DrillReport) -> None:
    assert survived.passed, findings(survived)
    assert survived.unsteady == ()
    assert len(survived.kills) == survived.points == 32
    assert {kill.final_state for kill in survived.kills} == {"equal"}
    assert {kill.effects_repeated for kill in survived.kills} == {0}


def test_a_kill_repeats_at_most_the_model_call_in_flight(survived: DrillReport) -> None:
    assert at(survived, "before the model call scripted.<locals>.model, step 2").model_calls_repeated == 0
    assert at(survived, "after the model call scripted.<locals>.model, step 2").model_calls_repeated == 1
    assert at(survived, "after the intent of pay, step 2").model_calls_repeated == 0  # it takes the reply along
    assert sum(kill.model_calls_repeated for kill in survived.kills) == 2 * 3  # after each call, before its reply


def test_a_call_in_doubt_is_decided_by_the_truth(survived: DrillReport) -> None:
    assert at(survived, "before the intent of post, step 2").in_doubt == ("pay: probed",)  # it takes the result along
    assert at(survived, "before the call of post, step 2").in_doubt == ("post: asked, had not happened",)
    assert at(survived, "after the call of post, step 2").in_doubt == ("post: asked, had happened",)
    assert at(survived, "after the call of pay, step 2").in_doubt == ("pay: probed",)
    assert at(survived, "after the call of reserve, step 1").in_doubt == ("reserve: again, same key",)
    assert at(survived, "after the result of post, step 2").in_doubt == ()


def test_a_call_that_is_given_up_as_declared_is_no_failure() -> None:
    report = crash_everywhere(one_call("notify", {"whom": "mill"}), START, fakes=[notify])
    assert report.passed, findings(report)
    kill = at(report, "before the call of notify, step 1")
    assert kill.in_doubt == ("notify: given up",)
    assert kill.final_state == "not compared"


def test_an_async_agent() -> None:
    report = crash_everywhere(async_agent("post", {"letter": "thanks"}), START, fakes=[post], watch=["ledger"])
    assert report.passed, findings(report)
    assert at(report, "after the call of post, step 1").in_doubt == ("post: asked, had happened",)
    assert [kill.model_calls_repeated for kill in report.kills if kill.place.startswith("after the model call")] == [1]


def test_a_tool_that_said_that_nothing_was_done_may_be_called_again() -> None:
    refusals: list[type[Exception]] = [ConnectionRefusedError, holdfast.ToolNotDone]  # of each process

    # A resume continues the tries, and each process is refused twice.
    @holdfast.tool(probe=was_paid, retry=holdfast.Retry(4, first=0), not_done=(ConnectionRefusedError,))
    def pay(to: str) -> dict[str, Any]:
        if refusals:
            raise refusals.pop()
        note("ledger", f"pay {to}")
        return {"paid": to}

    report = crash_everywhere(one_call("pay", {"to": "mill"}), START, fakes=[pay], watch=["ledger"], points=POINTS)
    assert report.passed, findings(report)


def test_an_agent_that_streams() -> None:
    def ask() -> list[str]:
        return ["a", "b"]

    def work(run: Run) -> str:
        return "".join(run.stream(ask))

    report = crash_everywhere(work, START)
    assert report.passed, findings(report)
    assert [kill.model_calls_repeated for kill in report.kills if kill.place.startswith("after the model call")] == [1]


def test_an_agent_that_waits_is_given_its_answers() -> None:
    def work(run: Run) -> Any:
        return run.tool("post", {"letter": "asked"}) if run.wait("may I?") else None

    report = crash_everywhere(work, START, fakes=[post], answers={"may I?": True}, watch=["ledger"])
    assert report.passed, findings(report)
    assert at(report, "after the run is suspended").final_state == "equal"
    with pytest.raises(InvalidArgument, match=r"waits for an answer to 'may I\?'; pass one: answers="):
        crash_everywhere(work, START, fakes=[post])


def test_an_agent_that_sleeps_is_woken() -> None:
    def work(run: Run) -> str:
        run.sleep(run.state["seconds"])
        return "awake"

    report = crash_everywhere(work, {"seconds": 0.05})
    assert report.passed, findings(report)
    assert at(report, "before the run is suspended").final_state == "equal"
    report = crash_everywhere(work, {"seconds": 3600}, points=3)
    assert report.passed, findings(report)


def test_the_calls_of_child_runs_are_points_too() -> None:
    def work(run: Run) -> Any:
        with run.child("letters", start={}) as child:
            if child.status == "running":
                child.finish(child.tool("post", {"letter": "from a child"}))
        return child.result

    report = crash_everywhere(work, START, fakes=[post], watch=["ledger"])
    assert report.passed, findings(report)
    assert at(report, "after the call of post, step 1").in_doubt == ("post: asked, had happened",)


# -- agents that do not ------------------------------------------------------------------------------------------------


def test_an_effect_hidden_in_the_model_function_is_found() -> None:
    reply_to = scripted([("post", {"letter": "thanks"})])

    def leaky(*, messages: list[dict[str, Any]]) -> dict[str, Any]:
        note("bill", "one request")
        return reply_to(messages=messages)

    work = agent(model=leaky)
    report = crash_everywhere(work, START, fakes=[post], watch=["ledger", "bill"])
    assert not report.passed
    assert [
        kill.place.partition(",")[0].replace(leaky.__qualname__, "leaky") for kill in report.kills if not kill.passed
    ] == [
        "after the model call leaky",
        "before the intent of post",  # it takes the reply along
        "after the model call leaky",
        "before the checkpoint of step 2",
    ]
    assert findings(report)[0] == Finding(
        "watch",
        "bill: 3 lines, 2 in the undisturbed run; called again after this kill: the model function "
        + leaky.__qualname__,
    )
    assert crash_everywhere(work, START, fakes=[post], watch=["ledger"], points=7).passed, "nobody looked at the bill"


def test_an_irreversible_tool_declared_as_a_read_is_found() -> None:
    @holdfast.tool(effect="read")
    def post(letter: str) -> None:
        note("ledger", letter)

    report = crash_everywhere(one_call("post", {"letter": "a"}), START, fakes=[post], watch=["ledger"])
    assert kinds(report) == {"watch"}
    assert findings(report)[0].text == (
        "ledger: 2 lines, 1 in the undisturbed run; called again after this kill: the read post"
    )
    assert report.failures[0].reads_repeated == 1


def test_an_irreversible_tool_that_is_called_again_unasked_is_found() -> None:
    @holdfast.tool(in_doubt="rerun")
    def order(item: str) -> str:
        return item

    report = crash_everywhere(one_call("order", {"item": "ink"}), START, fakes=[order])
    assert [kill.place for kill in report.kills if not kill.passed] == [
        "after the call of order, step 1",
        "before the checkpoint of step 1",  # it takes the result along
    ]
    assert findings(report)[0] == Finding("duplicate", "order happened twice, 1 in the undisturbed run")
    assert report.failures[0].effects_repeated == 1


@pytest.mark.parametrize(
    ("lie", "kind", "text"),
    [
        (holdfast.NotDone(), "duplicate", "pay happened twice, 1 in the undisturbed run"),
        (holdfast.Happened({"paid": "mill"}), "lost", "pay happened not at all, 1 in the undisturbed run"),
    ],
)
def test_a_probe_that_lies_is_found(lie: object, kind: str, text: str) -> None:
    @holdfast.tool(probe=lambda to: lie, probe_after=0.01)
    def pay(to: str) -> dict[str, str]:
        return {"paid": to}

    report = crash_everywhere(one_call("pay", {"to": "mill"}), START, fakes=[pay])
    assert kinds(report) == {kind}
    assert findings(report)[0].text == text


def test_an_idempotent_call_that_is_made_again_with_another_key_is_found() -> None:
    def work(run: Run) -> Any:
        return run.tool("reserve", {"item": "ink"}, key=uuid.uuid4().hex)

    report = crash_everywhere(work, START, fakes=TOOLS, points=POINTS)
    assert kinds(report) == {"failed"}
    assert all("the agent did not ask for the same calls" in finding.text for finding in findings(report))


def test_more_than_one_model_call_repeated_is_found() -> None:
    def work(run: Run) -> str:
        for question in ("who?", "what?"):
            run.model(str, question, key=uuid.uuid4().hex)  # a key that no other process finds again
        return "done"

    report = crash_everywhere(work, START)
    assert kinds(report) == {"model"}
    assert findings(report)[0].text == "2 model calls were repeated; one can be in flight"


def test_another_final_state_is_found() -> None:
    def work(run: Run) -> None:
        run.state["was resumed"] = run.resumed

    report = crash_everywhere(work, START)
    assert kinds(report) == {"state"}
    assert findings(report)[0].text == 'another state: changed $["was resumed"]'
    assert report.failures[0].final_state == "different"


def test_an_agent_that_cannot_be_resumed_is_found() -> None:
    def work(run: Run) -> str:
        if run.resumed:
            raise KeyError("a secret")
        return "done"

    report = crash_everywhere(work, START)
    assert kinds(report) == {"failed"}
    assert "KeyError in " in findings(report)[0].text
    assert "secret" not in findings(report)[0].text
    assert report.failures[0].final_state == "none"


def test_an_agent_that_hangs_when_it_is_resumed_is_found() -> None:
    def work(run: Run) -> str:
        if run.resumed:
            threading.Event().wait()
        return "done"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab, "further_of", lambda _: 0)  # each would wait for the timeout too
        report = crash_everywhere(work, START, timeout=5.0, points=1)
    assert [kill.place for kill in report.kills] == ["after the first checkpoint"]
    assert findings(report)[0].text == (
        "the resumed run did not end: it did not end within 5 seconds; if it needs longer, give timeout="
    )


# -- what is called, and what is looked at -----------------------------------------------------------------------------


def test_the_agents_own_tools_are_not_called() -> None:
    def forbidden(to: str) -> None:
        raise AssertionError("called")

    def by_function(run: Run) -> Any:
        return run.tool(forbidden, {"to": "mill"})

    for handler in (by_function, one_call("forbidden", {"to": "mill"})):
        with pytest.raises(InvalidArgument, match="forbidden was not called: it is the agent's own tool"):
            crash_everywhere(handler, START, tools=[forbidden])


def test_a_stand_in_is_called_under_the_declaration_of_the_tool() -> None:
    @holdfast.tool(probe=lambda to: pytest.fail("the service itself is asked"))
    def transfer(to: str) -> None:
        raise AssertionError("called")

    def by_function(run: Run) -> Any:
        return run.tool(transfer, {"to": "mill"})

    report = crash_everywhere(by_function, START, fakes={"transfer": lambda to: f"to {to}"})
    assert report.passed, findings(report)
    assert at(report, "after the call of transfer, step 1").in_doubt == ("transfer: probed",)


def test_recorded_calls_everything_once(tmp_path: Path) -> None:
    count = tmp_path / "count"

    @holdfast.tool(effect="irreversible")
    def order(item: str) -> str:
        note(str(count), "order")
        return item

    reply_to = scripted([("order", {"item": "ink"})])

    def ask(*, messages: list[dict[str, Any]]) -> dict[str, Any]:
        note(str(count), "model")
        return reply_to(messages=messages)

    report = crash_everywhere(agent(model=ask), START, tools=[order], live=True, recorded=True)
    assert report.passed, findings(report)
    assert count.read_text().split() == ["model", "order", "model"]
    assert at(report, "after the call of order, step 1").in_doubt == ("order: asked, had happened",)


def test_recorded_finds_a_call_that_is_made_again() -> None:
    @holdfast.tool(in_doubt="rerun")
    def order(item: str) -> str:
        return item

    report = crash_everywhere(one_call("order", {"item": "ink"}), START, fakes=[order], recorded=True)
    assert kinds(report) == {"duplicate"}


def test_what_is_watched_must_begin_as_it_began(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"

    def order(item: str) -> None:
        note(str(ledger), item)

    def seen() -> list[str]:
        return ledger.read_text().splitlines() if ledger.exists() else []

    work = one_call("order", {"item": "ink"})
    for watch in (ledger, seen):
        with pytest.raises(InvalidArgument, match="it still has changes of the first run"):
            crash_everywhere(work, START, fakes=[order], watch=[watch])
        ledger.unlink()

    def put_back() -> None:
        ledger.unlink(missing_ok=True)

    report = crash_everywhere(work, START, fakes=[order], watch=[ledger, seen], setup=put_back, points=6)
    assert report.passed, findings(report)


def test_a_share_of_the_points(survived: DrillReport) -> None:
    report = crash_everywhere(agent(*EVERY_CLASS), START, fakes=TOOLS, points=3)
    assert [kill.number for kill in report.kills] == [1, 17, 32]
    assert report.points == survived.points


def generator(run: Run) -> Iterator[Run]:
    yield run


# -- as an assertion ---------------------------------------------------------------------------------------------------


def test_drill_passes_gives_the_report() -> None:
    assert drill_passes(one_call("pay", {"to": "mill"}), START, fakes=[pay], points=2).passed


def test_drill_passes_fails_with_the_table() -> None:
    def work(run: Run) -> bool:
        return run.resumed

    with pytest.raises(AssertionError) as failed:
        drill_passes(Drill(handler=work, start=START))
    assert "FAILED 2  after the first checkpoint" in str(failed.value)
    assert "point 2, killed after the first checkpoint:\n  state: another result\n" in str(failed.value)


def test_a_partial_handler_goes_by_the_name_of_its_function() -> None:
    assert Drill(handler=functools.partial(numbered, 7), start=START).name == "numbered"


def numbered(number: int, run: Run) -> int:
    return number


@for_each(
    ("wrong", "says"),
    [
        ({"handler": 7}, "a function that takes a run"),
        ({"handler": lambda: None}, r"<lambda> takes \(\), but a handler is called with one argument, the run"),
        ({"handler": generator}, "generator yields, but a handler must not"),
        ({"start": None}, "needs start="),
        ({"tools": "buy"}, "tools must be a list"),
        ({"fakes": [7]}, "fakes must be functions"),
        ({"fakes": {"buy": 7}}, "fakes must be functions"),
        ({"watch": [7]}, "watch must be paths, or functions"),
        ({"setup": 7}, "setup must be a function"),
        ({"answers": [7]}, "answers must be a dict"),
        ({"points": 0}, "points must be a whole number"),
        ({"timeout": 0}, "timeout must be a number of seconds"),
    ],
)
def test_a_drill_that_cannot_be_done(wrong: dict[str, Any], says: str) -> None:
    handler: Callable[[Run], Any] = agent()
    with pytest.raises(InvalidArgument, match=says):
        Drill(**{"handler": handler, "start": START, **wrong})
