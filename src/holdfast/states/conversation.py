"""A conversation with a system prompt and a budget of tokens, which knows what of it to send to the model."""

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

_FULL: Final = 0.8  # of the budget: time to make it shorter
_COMPACT: Final = 0.6  # of the budget: short enough


class Conversation(msgspec.Struct, kw_only=True):
    """Messages, in order, and how many tokens of them may be sent at once. Say `type=Conversation` to the thread.

    A subclass may add fields, override `tokens_of` to count as the model's provider does, or check itself in
    `__post_init__`: what raises there is neither saved nor loaded.

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
            raise InvalidArgument("budget must be a whole number of tokens, at least 1")

    def push(self, *messages: Message) -> None:
        """Add messages at the end."""
        self.messages += messages

    # -- what fits --------------------------------------------------------------------------------------------------

    def tokens_of(self, message: Message) -> int:
        """How many tokens a message is. By default an estimate; override it to count exactly."""
        return estimated_tokens(message)

    def tokens(self) -> int:
        """How many tokens all of it is, with the prompt."""
        return sum(map(self.tokens_of, [*self._prompt(), *self.messages]))

    def window(self) -> list[Message]:
        """What to send: the prompt and system messages first, then the newest turns that fit, in their order.

        A tool call and its answers are in it together or not at all. Calls that were not all answered before the user
        or the assistant went on, and answers to no call, are left out; the last turn is in it, also while it is open.
        TooLarge if that and the system messages alone are over the budget.
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
        """What can be sent, in pieces that belong together, without system messages."""
        turns = (sendable(self.messages, turn) for turn in turns_of(self.messages))
        spoken = ([each for each in turn if each.role != "system"] for turn in turns)
        return [turn for turn in spoken if turn]

    def _prompt(self) -> list[Message]:
        content = self.prompt.parts if isinstance(self.prompt, Prompt) else self.prompt
        # The same each time, with an id and without a time: it is the same prompt.
        return [Message.system(content, id=f"prompt of {self.id}", at=None)] if content else []

    # -- making it shorter ------------------------------------------------------------------------------------------

    def needs_compaction(self) -> bool:
        """Whether it is over 80 % of the budget."""
        return self.tokens() > self.budget * _FULL

    def compact(self, *ways: Way, to: float = _COMPACT) -> Compacted:
        """Make it shorter, in place: the first way always, each further one if it is over `to` of the budget still.

        Without a way, old tool results are snipped. Messages that stay as they are keep their ids.
        InvalidArgument, with nothing changed, for what is no way, or no share.
        """
        if type(to) not in (int, float) or not 0 <= to < math.inf:
            raise InvalidArgument(f"to must be a share of the budget, 0 or more; {_COMPACT} by default")
        if not all(isinstance(way, Way) for way in ways):
            raise InvalidArgument("a way to make it shorter is a value such as SlidingWindow(), of a class of Way")
        before, tokens_before = self.messages, self.tokens()
        limit = int(self.budget * to)
        taken = sum(map(self.tokens_of, self._prompt()))
        for number, way in enumerate(ways or (SnipResults(),)):
            if number == 0 or self.tokens() > limit:
                self.messages = way.shorten(self.messages, limit - taken, self.tokens_of)
        changes = difference(before, self.messages)
        return Compacted(**changes, tokens_before=tokens_before, tokens_after=self.tokens())

    # -- what was said ----------------------------------------------------------------------------------------------

    def last_answer(self) -> str | None:
        """What the assistant said last, or None."""
        return next((each.text for each in reversed(self.messages) if each.role == "assistant"), None)

    def answers(self) -> int:
        """How many messages are the assistant's."""
        return sum(each.role == "assistant" for each in self.messages)

    def repeats(self, *, last: int = 10, shortest: int = 20, alike: Callable[[str, str], bool] | None = None) -> int:
        """How often the newest answer was given among the `last` ones; 0 if it is shorter than `shortest`.

        White space and case make no difference. `alike` may say that two answers, without them, are the same.
        InvalidArgument if `last` is no number of answers.
        `holdfast.LoopGuard` halts a run that repeats itself; this is for telling the model before it comes to that.
        """
        if type(last) is not int or last < 1:
            raise InvalidArgument("last must be a whole number of answers, 1 or more")
        said = [each.text for each in self.messages if each.role == "assistant" and len(each.text) >= shortest]
        if not said or len(self.last_answer() or "") < shortest:
            return 0
        plain = ["".join(each.split()).casefold() for each in said[-last:]]
        return sum(each == plain[-1] or (alike is not None and alike(each, plain[-1])) for each in plain)

    # -- whether it can go on ---------------------------------------------------------------------------------------

    def unanswered(self) -> list[ToolCall]:
        """The tool calls that have no answer where one belongs."""
        return unanswered(self.messages)

    def is_resumable(self) -> bool:
        """Whether a provider would take it as it is: each call is answered, each answer has its call."""
        return first_unfit(self.messages) is None

    def require_resumable(self) -> None:
        """InvalidArgument if a provider would not take it as it is.

        A subclass that calls it in `__post_init__` cannot be saved then.
        """
        at = first_unfit(self.messages)
        if at is not None:
            what = "answers no tool call" if self.messages[at].role == "tool" else "asks for tools that did not answer"
            raise InvalidArgument(f"message {at} {what}; no provider goes on from there")
