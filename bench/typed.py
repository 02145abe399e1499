"""Number 9: a save of a long conversation of the user's own classes, in which one message changed (processor time)."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pydantic

import holdfast
from bench.plan import Plan
from bench.report import Number
from bench.timing import spread
from bench.workload import Agent


@dataclasses.dataclass
class Message:
    role: str
    content: str
    id: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@dataclasses.dataclass
class Conversation:
    messages: list[Message]
    step: int


class MessageModel(pydantic.BaseModel):
    role: str
    content: str
    id: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ConversationModel(pydantic.BaseModel):
    messages: list[MessageModel]
    step: int


def measure(plan: Plan) -> list[Number]:
    return [
        _measured(plan, "9a", "dataclasses", Conversation, Message),
        _measured(plan, "9b", "pydantic models", ConversationModel, MessageModel),
    ]


def _measured(plan: Plan, number: str, kind: str, conversation: Any, message: Any) -> Number:
    count = plan.sizes.messages
    given = Agent(3, count).state["messages"]
    state = conversation(messages=[message(**each) for each in given], step=0)
    times: list[float] = []
    with holdfast.open(plan.folder / f"typed-{number}.db", durability="off") as hf:
        thread = hf.thread("typed", type=conversation)
        thread.save(state)
        for step in range(plan.sizes.loads):
            state.step += 1
            state.messages[step % len(given)].content += "."
            begin = time.process_time()
            thread.save(state)
            times.append((time.process_time() - begin) * 1e3)
    found = spread(times)
    return Number(
        number=number,
        what=f"a save of {count:,} messages as {kind}, one of them changed",
        measured=found.median,
        unit="ms",
        at_most=20,
        low=found.low,
        high=found.high,
    )
