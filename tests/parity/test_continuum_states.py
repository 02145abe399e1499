"""Continuum's messages, tool calls and results: as classes of the caller's own, ready-made, and in the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from holdfast import Holdfast, Usage
from holdfast.states import Message as ReadyMessage
from holdfast.states import ToolCall, Work
from tests.parity.covering import covers
from tests.runs.conftest import World

SESSION = "a1b2c3d4"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass
class Call:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Result:
    id: str
    success: bool
    output: Any = None
    error: str | None = None


@dataclass
class Message:
    role: Role
    content: str | None = None
    tool_calls: list[Call] = field(default_factory=list)
    tool_call_id: str | None = None


@dataclass
class Session:
    messages: list[Message]
    results: list[Result]


@covers("continuum", "Message", "MessageRole", "ToolCall", "ToolResult")
def test_messages_calls_and_results_come_back_as_what_they_were(hf: Holdfast) -> None:
    state = Session(
        messages=[
            Message(Role.SYSTEM, "You buy paper."),
            Message(Role.USER, "Buy some."),
            Message(Role.ASSISTANT, tool_calls=[Call("c1", "buy", {"item": "paper"}), Call("c2", "buy", {"item": 3})]),
            Message(Role.TOOL, "bought", tool_call_id="c1"),
        ],
        results=[Result("c1", success=True, output={"paid": 4}), Result("c2", success=False, error="no such item")],
    )
    hf.thread(SESSION, type=Session).save(state)
    latest = hf.thread(SESSION, type=Session).latest()
    assert latest is not None
    assert latest.state == state
    assert [type(message.role) for message in latest.state.messages] == [Role] * 4


@covers(
    "continuum",
    "CheckpointData.messages",
    "CheckpointData.tool_calls_pending",
    "CheckpointData.tool_results",
    "CheckpointData.tokens_used",
    "CheckpointData.cost_estimate",
    "CheckpointData.iteration",
    "Message",
    "MessageRole",
    "ToolCall",
    "ToolResult",
)
def test_the_ready_made_state_keeps_calls_with_how_they_went_and_what_was_spent(hf: Holdfast) -> None:
    done, failed, begun, asked = (ToolCall("buy", {"n": n}, id=f"call_{n}") for n in range(4))
    work = Work()
    work.push(ReadyMessage.user("Buy four things."))
    work.push(ReadyMessage.assistant(tool_calls=[done, failed, begun, asked]))
    work.record(done.begun().done({"paid": 4}), failed.begun().failed("no such thing"), begun.begun(), asked)
    work.spend(Usage(input=90, output=10, total=100, cost=0.01))
    work.iteration = 7
    hf.thread(SESSION, type=Work).save(work, step=7)
    latest = hf.thread(SESSION, type=Work).latest()
    assert latest is not None
    found: Work = latest.state
    assert [message.role for message in found.messages] == ["user", "assistant"]
    assert [call.id for call in found.pending()] == ["call_2", "call_3"]
    assert [(call.success, call.result, call.error) for call in found.tool_calls[:2]] == [
        (True, {"paid": 4}, None),
        (False, None, "no such thing"),
    ]
    assert (found.usage.total, found.usage.cost, found.iteration) == (100, 0.01, 7)


@covers("continuum", "CheckpointData.tool_calls_pending", "CheckpointData.tool_results")
def test_in_a_run_the_journal_knows_which_calls_have_no_end_and_what_the_others_gave(world: World) -> None:
    hf = world.open()

    def look_up(item: str) -> int:
        return len(item)

    def order(item: str) -> None:
        world.kill(run)

    with world.dying("t", hf, start={}) as run:
        assert run.tool(look_up, {"item": "ink"}, key="call_0") == 3
        run.tool(order, {"item": "ink"}, key="call_1")
    [found] = hf.interrupted()
    assert [(effect.name, effect.arguments) for effect in found.in_doubt] == [("order", {"item": "ink"})]
    assert [(effect.name, effect.status, effect.result) for effect in hf.effects("t")] == [
        ("look_up", "done", 3),
        ("order", "begun", None),
    ]
