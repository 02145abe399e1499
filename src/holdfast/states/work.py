"""What an agent is at: its conversation, and beside it what it did, found out and spent."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.states.calls import ToolCall
from holdfast.states.conversation import Conversation
from holdfast.types import Usage


class Work(Conversation, kw_only=True):
    """A conversation with tool calls and how they went, partial results, usage, and `data` of your own.

    Whether a call may be made again is for the journal of a run to say; this is for agents that keep their own account.
    """

    tool_calls: list[ToolCall] = msgspec.field(default_factory=list)
    partial_results: list[Any] = msgspec.field(default_factory=list)
    usage: Usage = Usage()
    iteration: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    def record(self, *calls: ToolCall) -> None:
        """Note how calls stand: new ones at the end, known ones, by their id, in the place they have."""
        places = {call.id: place for place, call in enumerate(self.tool_calls)}
        for call in calls:
            if call.id in places:
                self.tool_calls[places[call.id]] = call
            else:
                places[call.id] = len(self.tool_calls)
                self.tool_calls.append(call)

    def pending(self) -> list[ToolCall]:
        """The calls that are asked for or begun and of which no end is known."""
        return [call for call in self.tool_calls if call.is_open]

    def spend(self, usage: Usage) -> None:
        """Add to what was spent. InvalidArgument for a cost in another currency than before."""
        if self.usage.cost and usage.cost and self.usage.currency != usage.currency:
            raise InvalidArgument("a sum of two currencies is none; change the cost into the currency of the others")
        self.usage = Usage(
            input=self.usage.input + usage.input,
            output=self.usage.output + usage.output,
            cached=self.usage.cached + usage.cached,
            total=self.usage.total + usage.total,
            cost=float(self.usage.cost + usage.cost),
            currency=self.usage.currency if self.usage.cost else usage.currency,
        )
