"""One step of a thread: its calls with arguments and results, in words, and in time."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import HoldfastError, NotFound
from holdfast.handle import Holdfast
from holdfast.ids import to_text
from holdfast.inspect.call_records import (
    END,
    Call,
    RecordedCall,
    call_of,
    is_held,
    is_shown,
    open_rows,
    recorded_call,
    rows_between,
)
from holdfast.inspect.chat import Piece, Said, message_in, messages_of
from holdfast.inspect.damage import Readable
from holdfast.inspect.graphs import AGENT, journal_of, tool_entries
from holdfast.inspect.references import existing
from holdfast.inspect.timelines import Step
from holdfast.inspect.values import data_of
from holdfast.types import Checkpoint

_WORDS: Final = 140  # characters of a message
_BEFORE_LINES: Final = re.compile(r"(?m)^(?:[#>*\-\s]+|```.*$)")  # signs of Markdown at the start of a line
_AROUND_WORDS: Final = re.compile(r"(?<!\w)[*`]+(?=\S)|(?<=\S)[*`]+(?!\w)")  # "2*3" keeps its sign
_NAMES: Final = 4  # tools that are named
_MEANINGLESS: Final = ("manual", "step", "save", "start", "submit", "page", "label")  # triggers that say nothing new
_DEPTH: Final = 4
_BARS: Final = 200

# -- calls ------------------------------------------------------------------------------------------------------------


class StepCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a step; for the head, also those after it. `lost` are messages about unreadable entries.

    `is_held` is whether a process holds the run, so that calls without an outcome are under way.
    """

    calls: tuple[RecordedCall, ...]
    is_held: bool
    lost: tuple[str, ...]


def calls_of(hf: Holdfast, step: Step) -> StepCalls:
    """Return the calls of a step, oldest first."""
    readable = Readable(hf)
    number = existing(hf, journal_of(hf, step.checkpoint.thread)).position.thread
    wanted = {call.number for call in step.calls}
    after = min(wanted, default=1) - 1
    rows = readable.store.entries(number, after=after, limit=max(wanted) - after) if wanted else []
    since = open_calls(hf, step.checkpoint.thread) if step.is_head else None
    held = since is not None and since.is_held
    calls = [recorded_call(row, is_held=held) for row in rows if row.number in wanted]
    if since is not None:
        calls += [each for each in since.calls if each.call.number not in wanted]
    lost = (*readable.lost, *(() if since is None else since.lost))
    return StepCalls(calls=tuple(calls), is_held=held, lost=tuple(dict.fromkeys(lost)))


def open_calls(hf: Holdfast, thread: str) -> StepCalls:
    """Return the calls after the head, which no checkpoint includes yet, oldest first."""
    readable = Readable(hf)
    store, row = readable.store, existing(hf, thread)
    run = store.run(existing(hf, journal_of(hf, thread)).position.thread)
    held = is_held(store, run)
    is_graph = row.summary.agent == AGENT
    rows = tool_entries(store, thread, row.summary.updated_at) if is_graph else open_rows(store, row, run)
    calls = (recorded_call(each, is_held=held, is_open=True) for each in rows if is_shown(each.kind, each.status))
    return StepCalls(calls=tuple(calls), is_held=held, lost=readable.lost)


def call_numbered(hf: Holdfast, thread: str, number: int) -> RecordedCall | None:
    """Return the call with a number in a thread's journal; None if it cannot be read."""
    store = Readable(hf).store
    at = existing(hf, journal_of(hf, thread)).position.thread
    for row in store.entries(at, after=number - 1, limit=1):
        if row.number == number:
            return recorded_call(row, is_held=is_held(store, store.run(at)), is_open=True)
    return None


# -- in words ---------------------------------------------------------------------------------------------------------


class StepStory(msgspec.Struct, frozen=True, kw_only=True):
    """A step in words. `calls` names its tools and how often each was called.

    `role` and `words` are the last message that the step added. `seconds` is the sum of the durations of its calls,
    `tokens` those that the replies of its models report.
    """

    calls: str
    role: str
    words: str
    seconds: float
    tokens: int


class LastMessage(NamedTuple):
    """The last message with a text in a state, and the number of messages.

    `result` is the result of a tool, if that is all that the very last message has.
    """

    total: int
    role: str
    words: str
    result: str = ""


def stories(
    hf: Holdfast,
    steps: Sequence[Step],
    *,
    seconds: float = 0.1,
    redacted: Callable[[Any], Any] | None = None,
    known: MutableMapping[str, LastMessage] | None = None,
) -> dict[int, StepStory]:
    """Return the stories of steps, given newest first, by their seqs. States are read for so many seconds.

    `redacted` is applied to each message, and to other texts of users, before they are cut. `known` has the
    messages found so far, by the ids of their checkpoints, which never change. Messages that are found now are added.
    """
    deadline = time.monotonic() + seconds
    known = {} if known is None else known
    redacted = redacted or (lambda value: value)
    messages: dict[int, LastMessage] = {}
    for step in steps:
        found = known.get(step.checkpoint.id)
        if found is None and time.monotonic() < deadline:
            found = known[step.checkpoint.id] = _last_message(hf, step.checkpoint, redacted)
        if found is not None:
            messages[step.checkpoint.seq] = found
    return {step.checkpoint.seq: _story(step, messages, redacted) for step in steps}


def _story(step: Step, messages: dict[int, LastMessage], redacted: Callable[[Any], Any]) -> StepStory:
    own, before = messages.get(step.checkpoint.seq), messages.get(step.parent)
    is_new = own is not None and (before is None or own.total != before.total)
    if own is not None and before is not None and own.result and own.total == before.total + 1:
        own = own._replace(role="tool", words=own.result)  # the text is of an earlier step
    trigger = step.checkpoint.trigger
    return StepStory(
        calls=calls_in_words(step.calls) or ("" if trigger in _MEANINGLESS else redacted(trigger)),
        role=own.role if own is not None and is_new else "",
        words=own.words if own is not None and is_new else "",
        seconds=sum(call.seconds or 0.0 for call in step.calls),
        tokens=sum(call.usage.total or call.usage.input + call.usage.output for call in step.calls if call.usage),
    )


def calls_in_words(calls: Iterable[Call]) -> str:
    """Return the names of tools, children and questions, each once with its number; the model's, if there are none."""
    listed = list(calls)
    names = Counter(_short(call) for call in listed if call.kind not in ("model", "undo"))
    if not names:
        names = Counter(call.name for call in listed)
    shown = [name if count == 1 else f"{name} \u00d7{count}" for name, count in names.items()]
    more = [f"{len(shown) - _NAMES} more"] if len(shown) > _NAMES else []
    return ", ".join([*shown[:_NAMES], *more])


def _short(call: Call) -> str:
    """Return the name of a call; of a child run, the last part of its thread's name."""
    return call.name.rpartition("/")[2] if call.kind == "child" else call.name


def first_words(text: str) -> str:
    """Return the first words of a text in one line, without the signs of Markdown."""
    start = text[: _WORDS * 4]
    told = _AROUND_WORDS.sub("", _BEFORE_LINES.sub(" ", start)).strip() or start
    return _cut(" ".join(told.split()))


def _cut(text: str) -> str:
    return text if len(text) <= _WORDS else f"{text[:_WORDS].rstrip()}\u2026"


def _last_message(hf: Holdfast, checkpoint: Checkpoint, redacted: Callable[[Any], Any]) -> LastMessage:
    try:
        state = hf.thread(checkpoint.thread).load(checkpoint, partial=True).state
    except HoldfastError:
        return LastMessage(0, "", "")  # the page of the step reports the error
    found = messages_of(state)
    items = found[1] if found else []
    last = [message_in(redacted(item)) for item in reversed(items[-2:])]
    result = result_words(last[0]) if last and not words_of(last[0]) else ""
    for said in last:
        if words := words_of(said):
            return LastMessage(len(items), said.role, words, result)
    return LastMessage(len(items), "", "", result)


def words_of(said: Said) -> str:
    """Return the first words of a message, or its data in short; "" if it has neither."""
    return _first_words(said.parts)


def result_words(said: Said) -> str:
    """Return the first words of the first result of a tool in a message; "" if it has none."""
    return _first_words(said.results[0][2]) if said.results else ""


def _first_words(parts: Sequence[Piece]) -> str:
    for kind, value in parts:
        if kind == "text" and type(value) is str and value.strip():
            return first_words(value)
    data = (value for kind, value in parts if kind == "data" and value is not None)
    return next((_cut(json.dumps(data_of(value), ensure_ascii=False)) for value in data), "")


# -- in time ----------------------------------------------------------------------------------------------------------


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
    first = min((call.started_at for call in calls), default=None)
    if first is None:
        return Waterfall(bars=(), seconds=0.0, left_out=0)
    found = [
        Bar(thread=name, depth=depth, call=call, start=(call.started_at - first).total_seconds())
        for name, depth, call in _nested(hf, thread, calls, 0)
    ]
    ends = [bar.start + (bar.call.seconds or 0.0) for bar in found]
    return Waterfall(bars=tuple(found[:_BARS]), seconds=max(ends), left_out=max(len(found) - _BARS, 0))


def _nested(hf: Holdfast, thread: str, calls: Sequence[Call], depth: int) -> Iterator[tuple[str, int, Call]]:
    for call in sorted(calls, key=lambda each: (each.started_at, each.number)):
        yield thread, depth, call
        if call.kind == "child" and depth < _DEPTH:
            yield from _nested(hf, call.name, _calls_of(hf, call), depth + 1)


def _calls_of(hf: Holdfast, child: Call) -> list[Call]:
    """Return the calls of a child run, whose thread is the name of the call, since it was started."""
    with suppress(NotFound):
        number = existing(hf, child.name).position.thread
        rows = rows_between(Readable(hf).store, number, (0, -1), (END, END))
        found = (call_of(row) for row in rows)
        return [call for call in found if call.started_at >= child.started_at][: _BARS + 1]
    return []


def seconds_to_write(hf: Holdfast, checkpoint: Checkpoint) -> float | None:
    """Return the time from the call of `save` to its return. None if it was not recorded.

    The time is known only after the write, so the next checkpoint records it, if the same handle wrote both in a row.
    The newest checkpoint therefore has none.
    """
    readable = Readable(hf)
    after = readable.checkpoint(existing(hf, checkpoint.thread).position.thread, checkpoint.seq + 1)
    meta = None if after is None or after.deleted else readable.meta(after)
    if meta is None or meta.parent is None or to_text(meta.parent) != checkpoint.id or not meta.parent_write_micros:
        return None
    return meta.parent_write_micros / 1_000_000
