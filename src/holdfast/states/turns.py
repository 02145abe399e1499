"""Where a conversation can be cut: what asks for tools and what answers belong together, or providers refuse both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.states.calls import ToolCall
from holdfast.states.messages import Message

TurnState: TypeAlias = Literal["whole", "open", "broken"]


class Turn(msgspec.Struct, frozen=True):
    """Messages that belong together: those from `start` on, before `stop`.

    *Open*: the last one, and not all of its calls are answered yet. *Broken*: the user or the assistant spoke before
    all were answered, so that no provider takes an answer any more; or a result that answers nothing.
    """

    start: int
    stop: int
    state: TurnState


def turns_of(messages: Sequence[Message]) -> Iterator[Turn]:
    """The turns of a conversation, in order; every message is in one."""
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
    # System messages are sent ahead of all others, so that they are in nobody's way.
    while asked and stop < len(messages) and messages[stop].role in ("tool", "system"):
        asked.discard(messages[stop].tool_call_id or "")
        stop += 1
    if not asked:
        return Turn(start, stop, "whole")
    return Turn(start, stop, "open" if stop == len(messages) else "broken")


def sendable(messages: Sequence[Message], turn: Turn) -> list[Message]:
    """What of a turn a provider takes: of a broken one only what neither asks nor answers."""
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
    """The calls that were asked for and have no answer where it belongs."""
    missing: list[ToolCall] = []
    for turn in turns_of(messages):
        answers = {each.tool_call_id for each in messages[turn.start : turn.stop] if each.role == "tool"}
        missing += [call for call in messages[turn.start].tool_calls if call.id not in answers]
    return missing


def first_unfit(messages: Sequence[Message]) -> int | None:
    """Where the first message stands that no provider takes as it is; None if all can be sent."""
    for turn in turns_of(messages):
        if turn.state == "open":
            return turn.start
        kept = {id(each) for each in sendable(messages, turn)}
        for at in range(turn.start, turn.stop):
            if id(messages[at]) not in kept:
                return at
    return None
