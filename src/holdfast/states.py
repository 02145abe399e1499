"""Optional state types: messages, tool calls, and a conversation with a token budget."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from holdfast.errors import InvalidArgument, TooLarge
from holdfast.types import Usage

CallStatus = Literal["pending", "running", "done", "failed", "unknown"]
Role = Literal["system", "user", "assistant", "tool"]

_NEXT: Final[dict[CallStatus, tuple[CallStatus, ...]]] = {
    "pending": ("running", "done", "failed", "unknown"),
    "running": ("done", "failed", "unknown"),
    "unknown": ("running", "done", "failed"),
    "done": (),
    "failed": (),
}
_PER_TOKEN: Final = 4  # characters
_PER_FILE: Final = 1000  # tokens; providers count images by size, which a URL does not contain
_FULL, _COMPACT = 0.8, 0.6  # shares of the budget: above the first, compaction is due; it shrinks to the second
_BOUNDARY: Final = "\n<!-- what follows changes -->\n"
_THOUGHT: Final = re.compile(r"<thinking>(.*?)</thinking>", re.DOTALL)


# -- tool calls and messages ------------------------------------------------------------------------------------------


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call: its arguments, its status, and its result or error.

    In a message it is what the model requested; in `AgentState.tool_calls` it also records the outcome. `started`,
    `done`, `failed` and `in_doubt` return a changed copy. InvalidArgument if the call is already done or failed.
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
        return self.success is None

    def started(self) -> ToolCall:
        return self._to("running")

    def done(self, result: Any) -> ToolCall:
        return replace(self._to("done"), result=result)

    def failed(self, error: str) -> ToolCall:
        return replace(self._to("failed"), error=error)

    def in_doubt(self) -> ToolCall:
        """Return the call with status unknown: it may or may not have happened."""
        return self._to("unknown")

    def _to(self, status: CallStatus) -> ToolCall:
        if status not in _NEXT[self.status]:
            raise InvalidArgument(f"a tool call with status {self.status} cannot become {status}")
        return replace(self, status=status)


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A text part of a message."""

    text: str


class Image(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="image"):
    """An image given by its URL, `data:` or `https:`. `detail` is a value of the provider: "low", "high", "auto"."""

    url: str
    detail: str | None = None


class File(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="file"):
    """An image or a document as bytes. A large one is stored once, however often it is saved."""

    data: bytes
    media_type: str
    name: str | None = None


Part: TypeAlias = Text | Image | File


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation. It is immutable; use `msgspec.structs.replace` to make a changed copy.

    A tool message is the result of the call `tool_call_id`. `data` is for the application.
    """

    role: Role
    content: str | list[Part] = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    reasoning: str | None = None
    data: dict[str, Any] = {}
    id: str = msgspec.field(default_factory=lambda: str(uuid4()))
    at: datetime | None = msgspec.field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    def system(cls, content: str | list[Part], **fields: Any) -> Self:
        return cls(role="system", content=content, **fields)

    @classmethod
    def user(cls, content: str | list[Part], *, images: Iterable[Image] = (), **fields: Any) -> Self:
        """Make a user message; images follow the content."""
        shown = list(images)
        if shown:
            parts: list[Part] = [Text(content)] if isinstance(content, str) else list(content)
            content = [part for part in parts if part != Text("")] + shown
        return cls(role="user", content=content, **fields)

    @classmethod
    def assistant(cls, content: str | list[Part] = "", *, tool_calls: Iterable[ToolCall] = (), **fields: Any) -> Self:
        return cls(role="assistant", content=content, tool_calls=list(tool_calls), **fields)

    @classmethod
    def tool(cls, call: ToolCall | str, content: str | list[Part], *, is_error: bool = False, **fields: Any) -> Self:
        """Make the message with the result of a call, given as the call or its id."""
        if isinstance(call, ToolCall):
            fields = {"tool_name": call.name, **fields}
        given = call.id if isinstance(call, ToolCall) else call
        return cls(role="tool", content=content, tool_call_id=given, is_error=is_error, **fields)

    @property
    def text(self) -> str:
        """The text of the message, without images and files."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def images(self) -> list[Image]:
        return [] if isinstance(self.content, str) else [part for part in self.content if isinstance(part, Image)]


def estimated_tokens(message: Message) -> int:
    """Estimate the tokens of a message: 1 per 4 characters, 1,000 per image or file, and 1 for the message."""
    written = len(message.text) + len(message.reasoning or "")
    for call in message.tool_calls:
        written += len(call.name) + (0 if call.arguments is None else len(str(call.arguments)))
    files = 0 if isinstance(message.content, str) else sum(not isinstance(part, Text) for part in message.content)
    return written // _PER_TOKEN + files * _PER_FILE + 1


class Prompt(msgspec.Struct, frozen=True):
    """A system prompt: `static` first, which a provider may cache, then `dynamic`, which changes from call to call."""

    static: str = ""
    dynamic: str = ""

    @classmethod
    def split(cls, text: str, boundary: str = _BOUNDARY) -> Prompt:
        """Split a text at `boundary`. Without a boundary all of it is dynamic."""
        static, found, dynamic = text.partition(boundary)
        return cls(static, dynamic) if found else cls("", text)

    @property
    def text(self) -> str:
        """Both parts as one text."""
        return self.static + self.dynamic

    @property
    def parts(self) -> list[Part]:
        """Both parts as message parts, for providers with a cache marker after the static part."""
        return [Text(each) for each in (self.static, self.dynamic) if each]

    @property
    def digest(self) -> str:
        """The SHA-256 of the static part."""
        return hashlib.sha256(self.static.encode("utf-8", "surrogatepass")).hexdigest()

    def with_dynamic(self, dynamic: str) -> Prompt:
        """Return a copy with another dynamic part."""
        return Prompt(self.static, dynamic)


# -- turns: a message with tool calls and their results, which providers accept only together -------------------------


class _MessageTurn(NamedTuple):
    """The messages from index `start` up to, not including, `stop`.

    A turn is "open" if results are missing and no other message follows, and "broken" if another message follows, or if
    it is a result without a call.
    """

    start: int
    stop: int
    state: Literal["whole", "open", "broken"]


def _turns_of(messages: Sequence[Message]) -> Iterator[_MessageTurn]:
    """Split messages into turns, in order; every message is in exactly one."""
    start = 0
    while start < len(messages):
        stop, missing = start + 1, {call.id for call in messages[start].tool_calls}
        # System messages are sent before all others, so one between a call and its result does no harm.
        while missing and stop < len(messages) and messages[stop].role in ("tool", "system"):
            missing.discard(messages[stop].tool_call_id or "")
            stop += 1
        is_stray = messages[start].role == "tool" and not messages[start].tool_calls
        is_broken = is_stray or (missing and stop < len(messages))
        yield _MessageTurn(start, stop, "broken" if is_broken else "open" if missing else "whole")
        start = stop


def _sendable(messages: Sequence[Message], turn: _MessageTurn) -> list[Message]:
    """The messages of a turn that a provider accepts: of a broken turn, those without tool calls or results."""
    inside = messages[turn.start : turn.stop]
    if turn.state == "broken":
        return [each for each in inside if each.role != "tool" and not each.tool_calls]
    missing = {call.id for call in inside[0].tool_calls}
    kept: list[Message] = []
    for each in inside:
        if each.role != "tool" or each.tool_call_id in missing:
            missing.discard(each.tool_call_id or "")
            kept.append(each)
    return kept


def _first_rejected(messages: Sequence[Message]) -> int | None:
    """The index of the first message that providers reject; None if all can be sent."""
    for turn in _turns_of(messages):
        kept = set[int]() if turn.state == "open" else {id(each) for each in _sendable(messages, turn)}
        for at in range(turn.start, turn.stop):
            if id(messages[at]) not in kept:
                return at
    return None


# -- compaction -------------------------------------------------------------------------------------------------------


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction: messages removed, shortened and added; tokens before and after."""

    removed: int
    shortened: int
    added: int
    tokens_before: int
    tokens_after: int


class Way(msgspec.Struct, frozen=True):
    """Base class of compaction strategies: override `shorten`. Unchanged messages keep id, time and position."""

    def shorten(self, messages: Sequence[Message], limit: int, count: Callable[[Message], int]) -> list[Message]:
        """Return the shortened messages. `limit` is the token count to reach; `count` gives the tokens of a message."""
        raise NotImplementedError(f"{type(self).__name__} must override shorten()")


class SlidingWindow(Way, frozen=True):
    """Remove the oldest turns until the rest fits. System messages and the newest turn stay."""

    def shorten(self, messages: Sequence[Message], limit: int, count: Callable[[Message], int]) -> list[Message]:
        left = sum(map(count, messages))
        gone: set[int] = set()
        ranges = (range(turn.start, turn.stop) for turn in _turns_of(messages))
        turns = [spoken for each in ranges if (spoken := [at for at in each if messages[at].role != "system"])]
        for turn in turns[:-1]:
            if left <= limit:
                break
            gone.update(turn)
            left -= sum(count(messages[at]) for at in turn)
        return [each for at, each in enumerate(messages) if at not in gone]


class SnipResults(Way, frozen=True, kw_only=True):
    """Replace each tool result by the tool's name and outcome, except in the newest `keep` messages.

    Each result still refers to its call. `data["snipped"]` is the number of characters removed.
    """

    keep: int = 10

    def __post_init__(self) -> None:
        _check_keep(self.keep)

    def shorten(self, messages: Sequence[Message], limit: int, count: Callable[[Message], int]) -> list[Message]:
        names = {call.id: call.name for each in messages for call in each.tool_calls}
        shortened = list(messages)
        for at, each in enumerate(messages[: max(len(messages) - self.keep, 0)]):
            if each.role == "tool":
                name = each.tool_name or names.get(each.tool_call_id or "", "tool")
                data = {**each.data, "snipped": len(each.text)}
                short = replace(each, content=f"[{name}: {'error' if each.is_error else 'ok'}]", data=data)
                shortened[at] = short if count(short) < count(each) else each
        return shortened


class Summarise(Way, frozen=True):
    """Replace all messages older than the newest `keep` by one message with `summary`.

    `summary` may be a function of the messages to be replaced, called only if there are any. If it is empty or None,
    nothing is changed. System messages stay, except an earlier summary. A turn is never split, so more than `keep`
    messages may stay. The new message has the class of those it replaces.
    """

    summary: str | Callable[[list[Message]], str | None] | None
    keep: int = 10

    def __post_init__(self) -> None:
        _check_keep(self.keep)

    def shorten(self, messages: Sequence[Message], limit: int, count: Callable[[Message], int]) -> list[Message]:
        wanted = len(messages) - self.keep
        late = (turn.start for turn in _turns_of(messages) if turn.stop > wanted or turn.state == "open")
        end = next(late, len(messages))
        old = [each for each in messages[:end] if each.role != "system" or "summary" in each.data]
        text = (self.summary(old) if callable(self.summary) else self.summary) if old else None
        if not text:
            return list(messages)
        stay = [each for each in messages[:end] if each.role == "system" and "summary" not in each.data]
        summary = type(old[-1]).system(f"[summary of earlier messages] {text}", data={"summary": len(old)})
        return [*stay, summary, *messages[end:]]


def _check_keep(keep: Any) -> None:
    if type(keep) is not int or keep < 0:
        raise InvalidArgument("keep must be a whole number, 0 or more")


class Breaker(msgspec.Struct):
    """A circuit breaker: counts consecutive failures, to decide when to stop retrying. It can be part of a state."""

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


# -- conversations ----------------------------------------------------------------------------------------------------


class Conversation(msgspec.Struct, kw_only=True):
    """Messages in order, and the number of tokens that may be sent at once. Pass `type=Conversation` to the thread.

    A subclass may add fields, override `tokens_of` to count as the model's provider does, or validate itself in
    `__post_init__`: a conversation for which it raises is neither saved nor loaded.

    >>> talk = Conversation(budget=1000, prompt="You are a librarian.")
    >>> talk.push(Message.user("Have you anything on tides?"))
    >>> [message.role for message in talk.window()]
    ['system', 'user']
    """

    budget: int = 128_000
    prompt: str | Prompt = ""
    messages: list[Message] = []
    id: str = msgspec.field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        if type(self.budget) is not int or self.budget < 1:
            raise InvalidArgument("budget must be a whole number of tokens, 1 or more")

    def push(self, *messages: Message) -> None:
        """Add messages at the end."""
        self.messages += messages

    def tokens_of(self, message: Message) -> int:
        """The number of tokens of a message. By default an estimate; override it to count exactly."""
        return estimated_tokens(message)

    def tokens(self) -> int:
        """The number of tokens of all messages and the prompt."""
        return sum(map(self.tokens_of, [*self._prompt(), *self.messages]))

    def window(self) -> list[Message]:
        """Return the messages to send: the prompt and system messages, then the newest turns that fit, in order.

        A message with tool calls and their results are included or left out together. Results without a call are left
        out, and calls without all results, except in the last turn, which is always included. TooLarge if that turn and
        the system messages alone exceed the budget.
        """
        first = self._prompt() + [each for each in self.messages if each.role == "system"]
        sendable = (_sendable(self.messages, turn) for turn in _turns_of(self.messages))
        spoken = ([each for each in turn if each.role != "system"] for turn in sendable)
        turns = [turn for turn in spoken if turn]
        left = self.budget - sum(map(self.tokens_of, first + (turns[-1] if turns else [])))
        if left < 0:
            over = f"{-left} tokens over the budget of {self.budget}"
            raise TooLarge(f"the system messages and the newest turn are {over}; shorten them, or raise the budget")
        start = len(turns) - 1
        while start > 0 and (left := left - sum(map(self.tokens_of, turns[start - 1]))) >= 0:
            start -= 1
        return first + [each for turn in turns[max(start, 0) :] for each in turn]

    def _prompt(self) -> list[Message]:
        content = self.prompt.parts if isinstance(self.prompt, Prompt) else self.prompt
        # A fixed id and no time, so that the prompt is the same message on every call.
        return [Message.system(content, id=f"prompt of {self.id}", at=None)] if content else []

    def needs_compaction(self) -> bool:
        """Whether the conversation uses more than 80 % of the budget."""
        return self.tokens() > self.budget * _FULL

    def compact(self, *ways: Way, to: float = _COMPACT) -> Compacted:
        """Make the conversation shorter, in place.

        The first strategy in `ways` (by default `SnipResults()`) is always applied, each further one only while more
        than the share `to` of the budget is used. InvalidArgument, and no change, for an invalid strategy or share.
        """
        if type(to) not in (int, float) or not 0 <= to < math.inf:
            raise InvalidArgument(f"to must be a share of the budget, 0 or more; {_COMPACT} by default")
        if not all(isinstance(way, Way) for way in ways):
            raise InvalidArgument("compact() takes instances of Way, such as SlidingWindow(); nothing was changed")
        was, tokens_before = {each.id: each for each in self.messages}, self.tokens()
        limit = int(self.budget * to)
        taken = sum(map(self.tokens_of, self._prompt()))
        for number, way in enumerate(ways or (SnipResults(),)):
            if number == 0 or self.tokens() > limit:
                self.messages = way.shorten(self.messages, limit - taken, self.tokens_of)
        now = {each.id: each for each in self.messages}
        return Compacted(
            removed=len(was.keys() - now.keys()),
            shortened=sum(was[id] != now[id] for id in was.keys() & now.keys()),
            added=len(now.keys() - was.keys()),
            tokens_before=tokens_before,
            tokens_after=self.tokens(),
        )

    def last_answer(self) -> str | None:
        """The text of the assistant's last message, or None."""
        return next((each.text for each in reversed(self.messages) if each.role == "assistant"), None)

    def answers(self) -> int:
        """The number of the assistant's messages."""
        return sum(each.role == "assistant" for each in self.messages)

    def repeats(self, *, last: int = 10, shortest: int = 20, alike: Callable[[str, str], bool] | None = None) -> int:
        """Count how often the newest answer occurs among the newest `last`; 0 if it is shorter than `shortest`.

        Whitespace and case are ignored. `alike` also counts answers that are not equal: it gets two answers, without
        whitespace and in lower case, and returns whether they are alike. `holdfast.LoopGuard` halts a run that repeats
        itself; use this to warn the model before that.
        """
        if type(last) is not int or last < 1:
            raise InvalidArgument("last must be a whole number, 1 or more")
        long = [each.text for each in self.messages if each.role == "assistant" and len(each.text) >= shortest]
        if not long or len(self.last_answer() or "") < shortest:
            return 0
        plain = ["".join(each.split()).casefold() for each in long[-last:]]
        return sum(each == plain[-1] or (alike is not None and alike(each, plain[-1])) for each in plain)

    def unanswered(self) -> list[ToolCall]:
        """The tool calls without a result in their own turn."""
        missing: list[ToolCall] = []
        for turn in _turns_of(self.messages):
            inside = self.messages[turn.start : turn.stop]
            answers = {each.tool_call_id for each in inside if each.role == "tool"}
            missing += [call for call in inside[0].tool_calls if call.id not in answers]
        return missing

    def is_resumable(self) -> bool:
        """Whether a provider accepts the conversation as it is: each call has a result and each result its call."""
        return _first_rejected(self.messages) is None

    def require_resumable(self) -> None:
        """Raise InvalidArgument unless it `is_resumable`. Call it in `__post_init__` to save only such ones."""
        at = _first_rejected(self.messages)
        if at is not None:
            is_result = self.messages[at].role == "tool"
            what = "is a tool result without a call" if is_result else "has calls without results"
            raise InvalidArgument(f"message {at} {what}; providers reject the conversation")


class AgentState(Conversation, kw_only=True):
    """A conversation that also records tool calls, partial results, usage, and the application's own `data`.

    In a run, use its journal to decide whether a call may be repeated.
    """

    tool_calls: list[ToolCall] = msgspec.field(default_factory=list)
    partial_results: list[Any] = msgspec.field(default_factory=list)
    usage: Usage = Usage()
    iteration: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    def record(self, *calls: ToolCall) -> None:
        """Record the status of calls: a new call is appended, a known one (by id) is replaced in its position."""
        known = {call.id: call for call in self.tool_calls}
        known.update((call.id, call) for call in calls)
        self.tool_calls = list(known.values())

    def pending(self) -> list[ToolCall]:
        """The calls without a recorded outcome."""
        return [call for call in self.tool_calls if call.is_open]

    def spend(self, usage: Usage) -> None:
        """Add to the usage. InvalidArgument if the cost is in another currency than before."""
        spent = self.usage
        if spent.cost and usage.cost and spent.currency != usage.currency:
            currencies = f"{usage.currency} to one in {spent.currency}"
            raise InvalidArgument(f"cannot add a cost in {currencies}; nothing was added. Convert it first.")
        self.usage = Usage(
            input=spent.input + usage.input,
            output=spent.output + usage.output,
            cached=spent.cached + usage.cached,
            total=spent.total + usage.total,
            cost=float(spent.cost + usage.cost),
            currency=spent.currency if spent.cost else usage.currency,
        )


# -- another provider -------------------------------------------------------------------------------------------------

Reasoning = Literal["keep", "inline", "extract", "drop"]
C = TypeVar("C", bound=Conversation)


def hand_over(
    conversation: C, *, reasoning: Reasoning = "keep", new_ids: bool = True, placeholder: str = "(continued)"
) -> C:
    """Return a copy of a conversation that another provider accepts. The original is not changed.

    `reasoning` says what happens to the field of that name: "inline" moves it to the start of the content, in
    `<thinking>` tags; "extract" moves such tags from the content to the end of the field; "drop" removes it. With
    `new_ids` tool calls get new, neutral ids. An assistant message without text and calls gets the text `placeholder`.
    """
    handed = deepcopy(conversation)
    calls = [call for message in handed.messages for call in message.tool_calls]
    calls += handed.tool_calls if isinstance(handed, AgentState) else []
    old = dict.fromkeys(call.id for call in calls if new_ids)
    stray = {message.tool_call_id for message in handed.messages} - old.keys()  # no call may get the id of these
    names = dict(zip(old, (name for name in map("call_{}".format, count(1)) if name not in stray), strict=False))

    def renamed(calls: list[ToolCall]) -> list[ToolCall]:
        return [replace(call, id=names.get(call.id, call.id)) for call in calls]

    handed.messages = [_with_reasoning(each, reasoning, placeholder) for each in handed.messages]
    for at, message in enumerate(handed.messages):
        answered = None if message.tool_call_id is None else names.get(message.tool_call_id, message.tool_call_id)
        handed.messages[at] = replace(message, tool_calls=renamed(message.tool_calls), tool_call_id=answered)
    if isinstance(handed, AgentState):
        handed.tool_calls = renamed(handed.tool_calls)
    return handed


def _with_reasoning(message: Message, reasoning: Reasoning, placeholder: str) -> Message:
    if message.role != "assistant":
        return message
    content, thoughts = message.content, message.reasoning
    if reasoning == "inline" and thoughts:
        ahead = f"<thinking>{thoughts}</thinking>"
        content = ahead + content if isinstance(content, str) else [Text(ahead), *content]
    if reasoning == "extract":
        texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, Text)]
        found = [thought for text in texts for thought in _THOUGHT.findall(text)]
        thoughts = "\n".join([thoughts, *found] if thoughts else found) if found else thoughts
        if isinstance(content, str):
            content = _THOUGHT.sub("", content)
        else:
            bare = [Text(_THOUGHT.sub("", part.text)) if isinstance(part, Text) else part for part in content]
            content = [part for part, was in zip(bare, content, strict=True) if part != Text("") or part == was]
    thoughts = thoughts if reasoning in ("keep", "extract") else None
    message = replace(message, content=content, reasoning=thoughts)
    has_files = not isinstance(content, str) and any(not isinstance(part, Text) for part in content)
    is_empty = not has_files and not message.text.strip() and not message.tool_calls
    return replace(message, content=placeholder) if is_empty else message
