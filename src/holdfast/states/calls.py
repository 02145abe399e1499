"""A tool call and its status: pending, running, done, failed or unknown."""

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
    """A tool call: its arguments, its status, and its result or error.

    In a message it is the call that the model requested. In `Work.tool_calls` it also records the outcome.
    A call is immutable: `begun`, `done`, `failed` and `in_doubt` each return a new one. They raise InvalidArgument
    for a transition that is not allowed: a call that is done or failed keeps that status.

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
        """True if the call is done, False if it failed, None while the outcome is open."""
        return {"done": True, "failed": False}.get(self.status)

    @property
    def is_open(self) -> bool:
        """Whether the outcome is not recorded yet: the call is pending, running or unknown."""
        return self.status in ("pending", "running", "unknown")

    def begun(self) -> ToolCall:
        """Return the call with status running."""
        return self._to("running")

    def done(self, result: Any) -> ToolCall:
        """Return the call with status done and its result."""
        return replace(self._to("done"), result=result)

    def failed(self, error: str) -> ToolCall:
        """Return the call with status failed and its error."""
        return replace(self._to("failed"), error=error)

    def in_doubt(self) -> ToolCall:
        """Return the call with status unknown: it may or may not have happened."""
        return self._to("unknown")

    def _to(self, status: CallStatus) -> ToolCall:
        if status not in _NEXT[self.status]:
            raise InvalidArgument(f"a tool call with status {self.status} cannot become {status}")
        return replace(self, status=status)
