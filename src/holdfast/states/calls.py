"""A tool call and how it went: asked for, begun, done, failed, or nobody knows."""

from __future__ import annotations

from typing import Any, Final, Literal
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from holdfast.errors import InvalidArgument

CallStatus = Literal["pending", "running", "done", "failed", "unknown"]

_NEXT: Final[dict[CallStatus, tuple[CallStatus, ...]]] = {
    "pending": ("running", "done", "failed", "unknown"),
    "running": ("done", "failed", "unknown"),
    "unknown": ("running", "done", "failed"),
    "done": (),
    "failed": (),
}


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool is to be called with, and what became of it.

    In a message it is as the model asked for it. In `Work.tool_calls` it says how it went: a call never changes, each
    of `begun`, `done`, `failed` and `in_doubt` gives another. InvalidArgument for what cannot come next: a call that is
    done or failed stays so.

    >>> call = ToolCall("search", {"query": "tides"}, id="call_1")
    >>> call.status, call.success
    ('pending', None)
    >>> call.begun().done("two a day").success
    True
    """

    name: str
    arguments: Any = None
    id: str = msgspec.field(default_factory=lambda: f"call_{uuid4().hex}")
    status: CallStatus = "pending"
    result: Any = None
    error: str | None = None

    @property
    def success(self) -> bool | None:
        """True if it is done, False if it failed, None as long as that is open."""
        return {"done": True, "failed": False}.get(self.status)

    @property
    def is_open(self) -> bool:
        """Whether it may still have to be made: asked for or begun, and nobody has said how it ended."""
        return self.status in ("pending", "running", "unknown")

    def begun(self) -> ToolCall:
        """The call, now running."""
        return self._to("running")

    def done(self, result: Any) -> ToolCall:
        """The call with its result."""
        return replace(self._to("done"), result=result)

    def failed(self, error: str) -> ToolCall:
        """The call with what went wrong."""
        return replace(self._to("failed"), error=error)

    def in_doubt(self) -> ToolCall:
        """The call of which nobody knows whether it happened."""
        return self._to("unknown")

    def _to(self, status: CallStatus) -> ToolCall:
        if status not in _NEXT[self.status]:
            raise InvalidArgument(f"a tool call that is {self.status} cannot become {status}")
        return replace(self, status=status)
