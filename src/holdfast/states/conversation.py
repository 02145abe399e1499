"""A conversation with a system prompt and a token budget; it selects the messages to send to the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import msgspec

from holdfast.errors import InvalidArgument, TooLarge
from holdfast.states.calls import ToolCall
from holdfast.states.compaction import Compacted, SnipResults, Way, difference
from holdfast.states.messages import Message, estimated_tokens
from holdfast.states.prompt import Prompt
from holdfast.states.turns import first_unfit, sendable, turns_of, unanswered

_FULL: Final = 0.8  # share of the budget above which compaction is due
_COMPACT: Final = 0.6  # share of the budget that compaction aims for


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

    # -- tokens and the window --------------------------------------------------------------------------------------

    def tokens_of(self, message: Message) -> int:
        """The number of tokens of a message. By default an estimate; override it to count exactly."""
        return estimated_tokens(message)

    def tokens(self) -> int:
        """The number of tokens of all messages and the prompt."""
        return sum(map(self.tokens_of, [*self._prompt(), *self.messages]))

    def window(self) -> list[Message]:
        """Return the messages to send: the prompt and system messages, then the newest turns that fit, in order.

        A message with tool calls and the results of these calls are both included or both left out. Left out are
        results without a call, and calls that did not all get a result before the next message of the user or the
        assistant. The last turn is always included, even if results are still missing. TooLarge if the last turn
        and the system messages alone exceed the budget.
        """
        first = self._prompt() + [each for each in self.messages if each.role == "system"]
        turns = self._turns()
        left = self.budget - sum(map(self.tokens_of, first + (turns[-1] if turns else [])))
        if left < 0:
            raise TooLarge(
                f"the system messages and the newest turn are {-left} tokens over the budget of {self.budget}; "
                "shorten them, or raise the budget"
            )
        start = len(turns) - 1
        while start > 0 and (left := left - sum(map(self.tokens_of, turns[start - 1]))) >= 0:
            start -= 1
        return first + [each for turn in turns[max(start, 0) :] for each in turn]

    def _turns(self) -> list[list[Message]]:
        """The turns that can be sent, without system messages."""
        turns = (sendable(self.messages, turn) for turn in turns_of(self.messages))
        spoken = ([each for each in turn if each.role != "system"] for turn in turns)
        return [turn for turn in spoken if turn]

    def _prompt(self) -> list[Message]:
        content = self.prompt.parts if isinstance(self.prompt, Prompt) else self.prompt
        # A fixed id and no time, so that the prompt is the same message on every call.
        return [Message.system(content, id=f"prompt of {self.id}", at=None)] if content else []

    # -- compaction -------------------------------------------------------------------------------------------------

    def needs_compaction(self) -> bool:
        """Whether the conversation uses more than 80 % of the budget."""
        return self.tokens() > self.budget * _FULL

    def compact(self, *ways: Way, to: float = _COMPACT) -> Compacted:
        """Make the conversation shorter, in place.

        The first strategy in `ways` is always applied, each further one only while the conversation uses more than
        the share `to` of the budget. The default strategy is `SnipResults()`. Messages that are not changed keep
        their ids. InvalidArgument for an invalid strategy or share; nothing is changed then.
        """
        if type(to) not in (int, float) or not 0 <= to < math.inf:
            raise InvalidArgument(f"to must be a share of the budget, 0 or more; {_COMPACT} by default")
        if not all(isinstance(way, Way) for way in ways):
            raise InvalidArgument("compact() takes instances of Way, such as SlidingWindow(); nothing was changed")
        before, tokens_before = self.messages, self.tokens()
        limit = int(self.budget * to)
        taken = sum(map(self.tokens_of, self._prompt()))
        for number, way in enumerate(ways or (SnipResults(),)):
            if number == 0 or self.tokens() > limit:
                self.messages = way.shorten(self.messages, limit - taken, self.tokens_of)
        changes = difference(before, self.messages)
        return Compacted(**changes, tokens_before=tokens_before, tokens_after=self.tokens())

    # -- answers ----------------------------------------------------------------------------------------------------

    def last_answer(self) -> str | None:
        """The text of the assistant's last message, or None."""
        return next((each.text for each in reversed(self.messages) if each.role == "assistant"), None)

    def answers(self) -> int:
        """The number of the assistant's messages."""
        return sum(each.role == "assistant" for each in self.messages)

    def repeats(self, *, last: int = 10, shortest: int = 20, alike: Callable[[str, str], bool] | None = None) -> int:
        """Count how often the newest answer occurs among the newest `last`; 0 if it is shorter than `shortest`.

        Whitespace and case are ignored. `alike` compares two answers after both were removed.
        InvalidArgument if `last` is not a whole number, 1 or more.
        `holdfast.LoopGuard` halts a run that repeats itself; use this to warn the model before that.
        """
        if type(last) is not int or last < 1:
            raise InvalidArgument("last must be a whole number, 1 or more")
        said = [each.text for each in self.messages if each.role == "assistant" and len(each.text) >= shortest]
        if not said or len(self.last_answer() or "") < shortest:
            return 0
        plain = ["".join(each.split()).casefold() for each in said[-last:]]
        return sum(each == plain[-1] or (alike is not None and alike(each, plain[-1])) for each in plain)

    # -- missing results --------------------------------------------------------------------------------------------

    def unanswered(self) -> list[ToolCall]:
        """The tool calls without a result in their own turn."""
        return unanswered(self.messages)

    def is_resumable(self) -> bool:
        """Whether a provider accepts the conversation as it is: each call has a result and each result its call."""
        return first_unfit(self.messages) is None

    def require_resumable(self) -> None:
        """Raise InvalidArgument if a provider would not accept the conversation as it is.

        A subclass that calls it in `__post_init__` can be saved only while the conversation is resumable.
        """
        at = first_unfit(self.messages)
        if at is not None:
            what = (
                "is a tool result without a call" if self.messages[at].role == "tool" else "has calls without results"
            )
            raise InvalidArgument(f"message {at} {what}; providers reject the conversation")
