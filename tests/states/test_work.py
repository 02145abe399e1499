"""What an agent is at."""

from __future__ import annotations

import pytest

from holdfast import InvalidArgument, Usage
from holdfast.states import AgentState, ToolCall
from tests.covers import covers


def test_a_call_is_recorded_once_and_has_its_place() -> None:
    work = AgentState()
    first, second = ToolCall("read", id="1"), ToolCall("write", id="2")
    work.record(first, second)
    work.record(first.started().done("x"))
    assert [(call.id, call.status) for call in work.tool_calls] == [("1", "done"), ("2", "pending")]
    assert work.pending() == [second]


@covers("continuum/CheckpointData.tool_calls_pending")
def test_what_is_asked_for_started_or_in_doubt_is_pending() -> None:
    work = AgentState()
    call = ToolCall("pay")
    work.record(ToolCall("a", id="a"), ToolCall("b", id="b").started(), ToolCall("c", id="c").in_doubt())
    work.record(ToolCall("d", id="d").done(1), ToolCall("e", id="e").failed("no"), call.started())
    assert [each.name for each in work.pending()] == ["a", "b", "c", "pay"]


@covers("continuum/CheckpointData.tokens_used")
def test_what_is_spent_adds_up() -> None:
    work = AgentState()
    work.spend(Usage(input=10, output=5, cached=2, total=15))
    work.spend(Usage(input=1, output=1, total=2, cost=0.5, currency="EUR"))
    work.spend(Usage(cost=0.25, currency="EUR"))
    assert work.usage == Usage(input=11, output=6, cached=2, total=17, cost=0.75, currency="EUR")


def test_two_currencies_are_no_sum() -> None:
    work = AgentState(usage=Usage(cost=1.0))
    with pytest.raises(InvalidArgument, match="cannot add a cost in EUR to one in USD; nothing was added"):
        work.spend(Usage(cost=1.0, currency="EUR"))
    assert work.usage == Usage(cost=1.0)
