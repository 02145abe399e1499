"""Turns: a message with tool calls and their results, which must be kept together or providers reject both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.states.calls import ToolCall
from holdfast.states.messages import Message

TurnState: TypeAlias = Literal["whole", "open", "broken"]


class Turn(msgspec.Struct, frozen=True):
    """Messages that belong together: from index `start` up to, not including, `stop`.

    `state` is "whole" if every call has a result. It is "open" if results are missing and no other message follows.
    It is "broken" if a message of the user or the assistant follows before all results, so that providers no longer
    accept them, or if the turn is a result without a call.
    """

    start: int
    stop: int
    state: TurnState


def turns_of(messages: Sequence[Message]) -> Iterator[Turn]:
    """Split messages into turns, in order; every message is in exactly one."""
    start = 0
    while start < len(messages):
        turn = _turn_at(messages, start)
        yield turn
        start = turn.stop


def _turn_at(messages: Sequence[Message], start: int) -> Turn:
    first = messages[start]
    if not first.tool_calls:
        return Turn(start, start + 1, "broken" if first.role == "tool" else "whole")
    stop, asked = start + 1, {call.id for call in first.tool_calls}
    # System messages are sent before all others, so one between a call and its result does no harm.
    while asked and stop < len(messages) and messages[stop].role in ("tool", "system"):
        asked.discard(messages[stop].tool_call_id or "")
        stop += 1
    if not asked:
        return Turn(start, stop, "whole")
    return Turn(start, stop, "open" if stop == len(messages) else "broken")


def sendable(messages: Sequence[Message], turn: Turn) -> list[Message]:
    """The messages of a turn that a provider accepts: of a broken turn, those without tool calls or results."""
    if turn.state == "broken":
        return [each for each in messages[turn.start : turn.stop] if each.role != "tool" and not each.tool_calls]
    asked = {call.id for call in messages[turn.start].tool_calls}
    kept: list[Message] = []
    for each in messages[turn.start : turn.stop]:
        if each.role == "tool":
            if each.tool_call_id not in asked:
                continue
            asked.discard(each.tool_call_id)
        kept.append(each)
    return kept


def unanswered(messages: Sequence[Message]) -> list[ToolCall]:
    """The tool calls without a result in their own turn."""
    missing: list[ToolCall] = []
    for turn in turns_of(messages):
        answers = {each.tool_call_id for each in messages[turn.start : turn.stop] if each.role == "tool"}
        missing += [call for call in messages[turn.start].tool_calls if call.id not in answers]
    return missing


def first_unfit(messages: Sequence[Message]) -> int | None:
    """The index of the first message that providers reject; None if all can be sent."""
    for turn in turns_of(messages):
        if turn.state == "open":
            return turn.start
        kept = {id(each) for each in sendable(messages, turn)}
        for at in range(turn.start, turn.stop):
            if id(messages[at]) not in kept:
                return at
    return None
