"""Strategies that make a conversation shorter. Messages that a strategy does not change keep id, time and position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import InvalidArgument
from holdfast.states.messages import Message
from holdfast.states.turns import Turn, turns_of

_SUMMARY: Final = "summary"
_SNIPPED: Final = "snipped"

Count = Callable[[Message], int]


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction: messages removed, shortened and added; tokens before and after."""

    removed: int
    shortened: int
    added: int
    tokens_before: int
    tokens_after: int


class Way(msgspec.Struct, frozen=True):
    """Base class of compaction strategies. Subclass it and override `shorten`."""

    def shorten(self, messages: Sequence[Message], limit: int, count: Count) -> list[Message]:
        """Return the shortened messages. `limit` is the token count to reach; `count` gives the tokens of a message."""
        raise NotImplementedError(f"{type(self).__name__} must override shorten()")


class SlidingWindow(Way, frozen=True):
    """Remove the oldest turns until the rest fits. System messages and the newest turn stay."""

    def shorten(self, messages: Sequence[Message], limit: int, count: Count) -> list[Message]:
        left = sum(map(count, messages))
        gone: set[int] = set()
        spoken = [others for turn in turns_of(messages) if (others := _others(messages, turn))]
        for turn in spoken[:-1]:
            if left <= limit:
                break
            for at in turn:
                gone.add(at)
                left -= count(messages[at])
        return [each for at, each in enumerate(messages) if at not in gone]


class SnipResults(Way, frozen=True, kw_only=True):
    """Replace each tool result by a short line with the tool's name and outcome, except in the newest `keep` messages.

    The calls stay, and each result still refers to its call. `data["snipped"]` is the number of characters removed.
    """

    keep: int = 10

    def __post_init__(self) -> None:
        _check_keep(self.keep)

    def shorten(self, messages: Sequence[Message], limit: int, count: Count) -> list[Message]:
        names = {call.id: call.name for each in messages for call in each.tool_calls}
        end = len(messages) - self.keep
        return [_snipped(each, names, count) if at < end else each for at, each in enumerate(messages)]


class Summarise(Way, frozen=True):
    """Replace all messages older than the newest `keep` by one message with `summary`.

    `summary` may be a function of the messages to be replaced; it is called only if there are any. If the summary is
    empty or None, nothing is changed. System messages stay, except an earlier summary, which is replaced too. A turn
    is never split, so more than `keep` messages may stay. The new message has the class of those it replaces.
    """

    summary: str | Callable[[list[Message]], str | None] | None
    keep: int = 10

    def __post_init__(self) -> None:
        _check_keep(self.keep)

    def shorten(self, messages: Sequence[Message], limit: int, count: Count) -> list[Message]:
        end = self._end(messages)
        old = [each for each in messages[:end] if each.role != "system" or _SUMMARY in each.data]
        text = self._text(old) if old else None
        if not text:
            return list(messages)
        stay = [each for each in messages[:end] if each.role == "system" and _SUMMARY not in each.data]
        told = type(old[-1]).system(f"[summary of earlier messages] {text}", data={_SUMMARY: len(old)})
        return [*stay, told, *messages[end:]]

    def _end(self, messages: Sequence[Message]) -> int:
        wanted = len(messages) - self.keep
        for turn in turns_of(messages):
            if turn.stop > wanted or turn.state == "open":
                return turn.start
        return len(messages)

    def _text(self, old: list[Message]) -> str | None:
        return self.summary(old) if callable(self.summary) else self.summary


class Breaker(msgspec.Struct):
    """A circuit breaker: counts consecutive failures, to decide when to stop retrying. It can be part of a state.

    >>> breaker = Breaker()
    >>> breaker.failed(); breaker.failed(); breaker.is_open
    False
    >>> breaker.failed(); breaker.is_open
    True
    """

    limit: int = 3
    successes: int = 0
    failures: int = 0
    in_a_row: int = 0

    @property
    def is_open(self) -> bool:
        """Whether `limit` attempts have failed in a row."""
        return self.in_a_row >= self.limit

    def succeeded(self) -> None:
        """Count a success; it ends the row of failures."""
        self.successes += 1
        self.in_a_row = 0

    def failed(self) -> None:
        """Count a failure."""
        self.failures += 1
        self.in_a_row += 1


def difference(before: Sequence[Message], after: Sequence[Message]) -> dict[str, int]:
    """Count the messages removed, shortened and added, matched by their ids."""
    was = {each.id: each for each in before}
    now = {each.id: each for each in after}
    return {
        "removed": len(was.keys() - now.keys()),
        "shortened": sum(was[id] != now[id] for id in was.keys() & now.keys()),
        "added": len(now.keys() - was.keys()),
    }


def _others(messages: Sequence[Message], turn: Turn) -> list[int]:
    return [at for at in range(turn.start, turn.stop) if messages[at].role != "system"]


def _snipped(message: Message, names: dict[str, str], count: Count) -> Message:
    if message.role != "tool":
        return message
    name = message.tool_name or names.get(message.tool_call_id or "", "tool")
    data = {**message.data, _SNIPPED: len(message.text)}
    short = replace(message, content=f"[{name}: {'error' if message.is_error else 'ok'}]", data=data)
    return short if count(short) < count(message) else message


def _check_keep(keep: Any) -> None:
    if type(keep) is not int or keep < 0:
        raise InvalidArgument("keep must be a whole number, 0 or more")
