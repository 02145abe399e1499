"""Faults besides kills: a tool that times out, a cut connection, a rate limit, and a truncated reply of a model."""

from __future__ import annotations

import threading
from typing import Any, Final, Literal, get_args

Fault = Literal["timeout", "connection-cut", "rate-limit", "truncated-reply"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
PLACES: Final[dict[Fault, str]] = {
    "timeout": "acts, then times out",
    "connection-cut": "acts, then its connection is cut",
    "rate-limit": "is refused by a rate limit",
    "truncated-reply": "returns a truncated reply",
}
_OF_MODELS: Final = ("rate-limit", "truncated-reply")
_CALLS: Final = ("tool_calls", "calls")
# Where providers put calls and texts, the last part of a reply first.
_PARTS: Final = (
    *_CALLS,
    *("choices", "candidates", "message", "output", "content", "parts", "function", "arguments", "text", "output_text"),
)
_ENDS: Final = {"finish_reason": "length", "stop_reason": "max_tokens", "finishReason": "MAX_TOKENS"}


class RateLimited(Exception):
    """A request that the provider of a model refused for now. `status_code` is as in the errors of their clients."""

    status_code: Final = 429

    def __init__(self) -> None:
        super().__init__("429: too many requests (a fault of the drill)")


def concerns(fault: Fault, kind: str) -> bool:
    """Whether a fault can happen to calls of a kind."""
    return kind != "probe" and (kind == "model") == (fault in _OF_MODELS)


class Injector:
    """Injects one fault into one call: the call of this number among those that it concerns.

    A fault of a tool comes after the call has acted: its reply is lost. A rate limit comes instead of the call.
    """

    def __init__(self, fault: Fault | None = None, at: int = 0) -> None:
        self._fault: Fault | None = fault
        self._at = at
        self._lock = threading.Lock()
        self.places: dict[Fault, list[str]] = {each: [] for each in FAULTS}
        self.was_injected = False

    def meets(self, kind: str, place: str) -> bool:
        """Note a call that starts; return whether the fault happens to it."""
        with self._lock:
            for each in FAULTS:
                if concerns(each, kind):
                    self.places[each].append(place)
            fault = self._fault
            return fault is not None and concerns(fault, kind) and len(self.places[fault]) == self._at

    def before(self) -> None:
        """Raise the fault if it comes instead of the call."""
        if self._fault == "rate-limit":
            self.was_injected = True
            raise RateLimited

    def after(self, reply: Any) -> Any:
        """Raise the fault after the call has returned, or return the truncated reply."""
        if self._fault == "truncated-reply":
            cut = truncated(reply)
            self.was_injected = cut is not reply
            return cut
        self.was_injected = True
        if self._fault == "timeout":
            raise TimeoutError("no reply in time (a fault of the drill)")
        raise ConnectionResetError("the connection was cut (a fault of the drill)")


def truncated(reply: Any) -> Any:
    """Return a reply of a model that ends in the middle of its text, as at a limit of tokens.

    Known are texts, and the dicts and lists of the usual providers. Other replies are returned unchanged.
    """
    if type(reply) is str and len(reply) > 1:
        return reply[: len(reply) // 2]
    if type(reply) is list and reply:
        last = truncated(reply[-1])
        return reply if last is reply[-1] else [*reply[:-1], last]
    if type(reply) is not dict:
        return reply
    for key in _PARTS:
        value: Any = reply.get(key)
        cut = truncated(value)
        if key in _CALLS and type(value) is list and value and cut is value:
            cut = value[:-1]  # the reply ended before its last call was complete
        if cut is not value:
            ends = {name: word for name, word in _ENDS.items() if name in reply}
            return {**reply, key: cut, **ends}
    return reply
