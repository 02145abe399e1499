"""The calls of a step in time, with the calls of child runs nested below the call that started them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.errors import Damaged, NotFound
from holdfast.handle import Holdfast
from holdfast.inspect.calls import Call, call_of, rows_between
from holdfast.inspect.nearest import existing

_DEPTH: Final = 4
_BARS: Final = 200
_END: Final = 1 << 62


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A call: the thread that made it, how deep it is nested, and its start in seconds after the first call."""

    thread: str
    depth: int
    call: Call
    start: float


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """The calls in the order of their starts. `seconds` is from the first start to the last end.

    `left_out` counts the calls beyond a limit.
    """

    bars: tuple[Bar, ...]
    seconds: float
    left_out: int


def waterfall(hf: Holdfast, thread: str, calls: Sequence[Call]) -> Waterfall:
    """Return the calls of a step of a thread, with those of its children."""
    first = min((call.begun_at for call in calls), default=None)
    if first is None:
        return Waterfall(bars=(), seconds=0.0, left_out=0)
    found = [
        Bar(thread=name, depth=depth, call=call, start=(call.begun_at - first).total_seconds())
        for name, depth, call in _nested(hf, thread, calls, 0)
    ]
    ends = [bar.start + (bar.call.seconds or 0.0) for bar in found]
    return Waterfall(bars=tuple(found[:_BARS]), seconds=max(ends), left_out=max(len(found) - _BARS, 0))


def _nested(hf: Holdfast, thread: str, calls: Sequence[Call], depth: int) -> Iterator[tuple[str, int, Call]]:
    for call in sorted(calls, key=lambda each: (each.begun_at, each.number)):
        yield thread, depth, call
        if call.kind == "child" and depth < _DEPTH:
            yield from _nested(hf, call.name, _calls_of(hf, call), depth + 1)


def _calls_of(hf: Holdfast, child: Call) -> list[Call]:
    """Return the calls of a child run, whose thread is the name of the call, since it was started."""
    with suppress(NotFound, Damaged):
        number = existing(hf, child.name).position.thread
        rows = rows_between(hf.context.store, number, (0, -1), (_END, _END), {})
        found = (call_of(row) for row in rows)
        return [call for call in found if call.begun_at >= child.begun_at][: _BARS + 1]
    return []
