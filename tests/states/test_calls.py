"""A tool call and how it went."""

from __future__ import annotations

import pytest

from holdfast import InvalidArgument
from holdfast.states import ToolCall
from tests.covers import covers


@covers("ares/ToolCallRecord.tool_name", "ares/ToolCallRecord.arguments", "smooth/ToolCall", "continuum/ToolCall")
def test_a_call_begins_as_asked_for() -> None:
    call = ToolCall("search", {"query": "tides"}, id="call_1")
    assert (call.status, call.success, call.is_open) == ("pending", None, True)
    assert (call.result, call.error) == (None, None)


def test_every_call_has_an_id_of_its_own() -> None:
    assert ToolCall("search").id != ToolCall("search").id


@covers("ares/ToolCallRecord.result", "ares/ToolCallRecord.success", "continuum/ToolResult")
def test_a_call_that_is_done_has_its_result() -> None:
    call = ToolCall("search").started().done(["a", "b"])
    assert (call.status, call.success, call.is_open, call.result) == ("done", True, False, ["a", "b"])


@covers("ares/ToolCallRecord.success", "continuum/ToolResult")
def test_a_call_that_failed_has_its_error() -> None:
    call = ToolCall("search").started().failed("no network")
    assert (call.status, call.success, call.is_open, call.error) == ("failed", False, False, "no network")


def test_a_call_in_doubt_is_neither_success_nor_failure_and_can_be_decided() -> None:
    call = ToolCall("pay").started().in_doubt()
    assert (call.status, call.success, call.is_open) == ("unknown", None, True)
    assert call.done("paid").success is True
    assert call.failed("refused").success is False
    assert call.started().status == "running"


def test_pending_running_and_failed_are_told_apart() -> None:
    call = ToolCall("pay")
    assert [each.status for each in (call, call.started(), call.failed("no"))] == ["pending", "running", "failed"]


def test_a_call_never_changes() -> None:
    call = ToolCall("search")
    call.started()
    assert call.status == "pending"


@pytest.mark.parametrize("end", [ToolCall("pay").done(1), ToolCall("pay").failed("no")])
def test_what_has_ended_stays_so(end: ToolCall) -> None:
    for change in (end.started, end.in_doubt, lambda: end.done(2), lambda: end.failed("later")):
        with pytest.raises(InvalidArgument, match=f"a tool call with status {end.status} cannot become"):
            change()


def test_a_running_call_is_not_started_again() -> None:
    with pytest.raises(InvalidArgument, match="running cannot become running"):
        ToolCall("pay").started().started()
