"""The state of an agent: its conversation, tool calls, partial results and usage."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.states.calls import ToolCall
from holdfast.states.conversation import Conversation
from holdfast.types import Usage


class Work(Conversation, kw_only=True):
    """A conversation with the status of its tool calls, partial results, usage, and the application's own `data`.

    For agents that record their tool calls in the state. In a run, use its journal to decide whether a call may be
    repeated.
    """

    tool_calls: list[ToolCall] = msgspec.field(default_factory=list)
    partial_results: list[Any] = msgspec.field(default_factory=list)
    usage: Usage = Usage()
    iteration: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    def record(self, *calls: ToolCall) -> None:
        """Record the status of calls: a new call is appended, a known one (by id) is replaced in its position."""
        places = {call.id: place for place, call in enumerate(self.tool_calls)}
        for call in calls:
            if call.id in places:
                self.tool_calls[places[call.id]] = call
            else:
                places[call.id] = len(self.tool_calls)
                self.tool_calls.append(call)

    def pending(self) -> list[ToolCall]:
        """The calls without a recorded outcome."""
        return [call for call in self.tool_calls if call.is_open]

    def spend(self, usage: Usage) -> None:
        """Add to the usage. InvalidArgument if the cost is in another currency than before."""
        if self.usage.cost and usage.cost and self.usage.currency != usage.currency:
            raise InvalidArgument(
                f"cannot add a cost in {usage.currency} to one in {self.usage.currency}; nothing was added. "
                "Convert it first."
            )
        self.usage = Usage(
            input=self.usage.input + usage.input,
            output=self.usage.output + usage.output,
            cached=self.usage.cached + usage.cached,
            total=self.usage.total + usage.total,
            cost=float(self.usage.cost + usage.cost),
            currency=self.usage.currency if self.usage.cost else usage.currency,
        )
