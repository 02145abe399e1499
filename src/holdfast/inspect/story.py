"""The steps of a thread in words: the calls of each step, and the first words of the message that it added."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect.calls import Call
from holdfast.inspect.chat import messages_of
from holdfast.inspect.dialects import Said, said_by
from holdfast.inspect.timeline import Step
from holdfast.inspect.tree import shown
from holdfast.types import Checkpoint

_WORDS: Final = 140  # characters of a message
_SIGNS: Final = re.compile(r"(?m)^[#>*\-\s]+|[*`]+|```\w*")
_NAMES: Final = 4  # tools that are named
_MEANINGLESS: Final = ("manual", "step", "save", "start", "submit", "page", "label")  # triggers that say nothing new


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
    """The last message with a text in a state, and the number of messages."""

    total: int
    role: str
    words: str


def stories(
    hf: Holdfast,
    steps: Sequence[Step],
    *,
    seconds: float = 0.1,
    redacted: Callable[[Any], Any] = lambda value: value,
    known: MutableMapping[str, LastMessage] | None = None,
) -> dict[int, StepStory]:
    """Return the stories of steps, given newest first, by their seqs. States are read for so many seconds.

    `redacted` is applied to each message, and to other texts of users, before they are cut. `known` are the messages
    of earlier calls by the ids of their checkpoints, which never change. The next call adds those that are missing.
    """
    deadline = time.monotonic() + seconds
    known = {} if known is None else known
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
    return " ".join((_SIGNS.sub(" ", start).strip() or start).split())[:_WORDS]


def _last_message(hf: Holdfast, checkpoint: Checkpoint, redacted: Callable[[Any], Any]) -> LastMessage:
    try:
        state = hf.thread(checkpoint.thread).load(checkpoint, partial=True).state
    except HoldfastError:
        return LastMessage(0, "", "")  # the page of the step reports the error
    found = messages_of(state)
    items = found[1] if found else []
    for item in reversed(items[-2:]):
        said = said_by(redacted(item))
        if words := words_of(said):
            return LastMessage(len(items), said.role, words)
    return LastMessage(len(items), "", "")


def words_of(said: Said) -> str:
    """Return the first words of a message, or its data in short; "" if it has neither."""
    for kind, value in said.parts:
        if kind == "text" and type(value) is str and value.strip():
            return first_words(value)
    return next((shown(value)[:_WORDS] for kind, value in said.parts if kind == "data"), "")
