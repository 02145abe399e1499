"""Faults besides kills: each class finds an agent that handles it wrongly, and passes one that handles it right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import InvalidArgument, Run
from holdfast.drill.faults import truncated
from holdfast.testing import Drill, DrillReport, crash_everywhere
from tests import small
from tests.drill.agents import lines, note
from tests.drill.short import no_seeds

pytestmark = small.process(no_seeds)

TEXT = "Dear Sir, the invoice is paid. Yours, the clerk"


def ask(prompt: str) -> dict[str, Any]:
    return {"role": "assistant", "content": TEXT, "finish_reason": "stop"}


@holdfast.tool(effect="irreversible", in_doubt="ask")
def pay(to: str) -> str:
    note("ledger", f"pay {to}")
    return f"paid {to}"


@holdfast.tool(effect="irreversible", not_done=(TimeoutError,))
def hasty_pay(to: str) -> str:
    """Wrong: a call that timed out may have been made."""
    return pay(to)


@holdfast.tool(effect="idempotent")
def reserve(item: str, idempotency_key: str) -> str:
    note("ledger", f"reserve {item} {idempotency_key}")
    return f"reserved {item}"


def paying(run: Run) -> Any:
    return run.tool(pay, {"to": "ann"})


def paying_hastily(run: Run) -> Any:
    try:
        return run.tool(hasty_pay, {"to": "ann"})
    except (TimeoutError, holdfast.ToolNotDone):
        return run.tool(hasty_pay, {"to": "ann"}, key="again")


def reserving(run: Run) -> Any:
    return run.tool(reserve, {"item": "room"}, key="room")


def reserving_anew(run: Run) -> Any:
    """Wrong: after an error it reserves under another key."""
    try:
        return run.tool(reserve, {"item": "room"}, key="room")
    except ConnectionError:
        return run.tool(reserve, {"item": "room"}, key="room, second try")


def answering(run: Run) -> Any:
    return run.model(ask, "write")["content"]


def counting(prompt: str) -> int:
    note("prompts", str(prompt))
    return len(lines("prompts"))


def retrying(run: Run) -> Any:
    return run.model(counting, "write", retry=holdfast.Retry(times=2, first=0.01))


def apologizing(run: Run) -> Any:
    """Wrong: it takes a refused request for an answer."""
    try:
        return run.model(ask, "write")["content"]
    except Exception:  # noqa: BLE001 - the bug
        return "I cannot help with that"


def checking(run: Run) -> Any:
    reply = run.model(ask, "write")
    while reply["finish_reason"] == "length":
        reply = run.model(ask, "write")
    return reply["content"]


def drilled(handler: Callable[..., Any], *faults: Any, **how: Any) -> DrillReport:
    return crash_everywhere(handler, {"n": 0}, fakes=[pay, hasty_pay, reserve], points=1, faults=faults, **how)


def faulted(report: DrillReport) -> list[Any]:
    return [kill for kill in report.further if "killed" not in kill.place and "interrupted" not in kill.place]


@pytest.mark.parametrize(
    ("fault", "wrong", "right", "kind", "place"),
    [
        ("timeout", paying_hastily, paying, "duplicate", "acts, then times out"),
        ("connection-cut", reserving_anew, reserving, "duplicate", "acts, then its connection is cut"),
        ("rate-limit", apologizing, answering, "state", "is refused by a rate limit"),
        ("truncated-reply", answering, checking, "state", "returns a truncated reply"),
    ],
)
def test_each_class_finds_its_bug(
    fault: str, wrong: Callable[..., Any], right: Callable[..., Any], kind: str, place: str
) -> None:
    report = drilled(wrong, fault)
    assert not report.passed
    [failed] = report.failures
    assert failed.place.endswith(place)
    assert kind in {finding.kind for finding in failed.findings}
    report = drilled(right, fault)
    assert report.passed, report.table()
    assert [kill.place.endswith(place) for kill in faulted(report)] == [True]


def test_a_model_call_is_made_again_after_the_pause_of_its_retry() -> None:
    [kill] = faulted(drilled(retrying, "rate-limit"))
    assert (kill.passed, kill.final_state) == (True, "equal")


def test_a_run_that_a_fault_ends_is_resumed_by_another_process() -> None:
    [kill] = faulted(drilled(answering, "rate-limit"))
    assert (kill.passed, kill.model_calls_repeated, kill.final_state) == (True, 0, "equal")


def test_a_call_in_doubt_after_a_time_out_is_settled() -> None:
    [kill] = faulted(drilled(paying, "timeout"))
    assert kill.in_doubt == ("pay: asked, had happened",)


@pytest.mark.parametrize(
    ("reply", "cut"),
    [
        ("abcd", "ab"),
        ({"content": "abcd", "stop_reason": "end_turn"}, {"content": "ab", "stop_reason": "max_tokens"}),
        ({"content": [{"type": "text", "text": "abcd"}]}, {"content": [{"type": "text", "text": "ab"}]}),
        (
            {"choices": [{"finish_reason": "stop", "message": {"content": "abcd"}}]},
            {"choices": [{"finish_reason": "length", "message": {"content": "ab"}}]},
        ),
        (
            {"content": "", "tool_calls": [{"function": {"name": "pay", "arguments": '{"to": 1}'}}]},
            {"content": "", "tool_calls": [{"function": {"name": "pay", "arguments": '{"to'}}]},
        ),
        ({"content": "abcd", "calls": [{"name": "pay", "args": {}}]}, {"content": "abcd", "calls": []}),
        (42, 42),
        ({"content": None}, {"content": None}),
    ],
)
def test_how_a_reply_is_truncated(reply: Any, cut: Any) -> None:
    assert truncated(reply) == cut


async def asking(run: Any) -> Any:
    async def reply() -> str:
        return TEXT

    return await run.model(reply)


def test_an_async_agent_meets_the_same_faults() -> None:
    assert not drilled(asking, "truncated-reply").passed
    assert drilled(asking, "rate-limit").passed


def test_a_played_back_run_meets_the_same_faults() -> None:
    assert not drilled(answering, "truncated-reply", recorded=True).passed


def numbering(run: Run) -> int:
    return len(run.model(lambda: [1, 2]))


def test_a_reply_without_text_cannot_be_truncated() -> None:
    report = drilled(numbering, "truncated-reply")
    assert report.passed
    assert ["(without effect), returns a truncated reply" in kill.place for kill in faulted(report)] == [True]


def test_without_faults_none_are_injected() -> None:
    assert faulted(drilled(answering)) == []


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="faults must be a list of timeout, connection-cut"):
        Drill(handler=answering, start={}, faults=("earthquake",))  # type: ignore[arg-type]
