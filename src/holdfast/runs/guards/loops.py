"""LoopGuard: halt a run that repeats itself."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.runs.guards.replies import answer_of
from holdfast.stores.running import Entry

_ANSWER: Final = ""  # no tool has this name

_Action: TypeAlias = tuple[str, bytes]  # a tool and the digest of its arguments, or a model's answer


class LoopGuard(msgspec.Struct, frozen=True, kw_only=True):
    """Halts a run that does the same `repeats` times within its last `window` calls.

    The same is: the same tool with the same arguments, or the same answer of a model. Answers are compared by their
    text and the tool calls they ask for, without case, white space, ids and timestamps.
    """

    window: int = 10
    repeats: int = 3

    def __post_init__(self) -> None:
        for name in ("window", "repeats"):
            if type(getattr(self, name)) is not int:
                raise InvalidArgument(f"LoopGuard: {name} must be a whole number")
        if not 2 <= self.repeats <= self.window:
            raise InvalidArgument("LoopGuard: repeats must be 2 or more, and window not less than that")


class Recent:
    """The last actions of a run on its current branch."""

    def __init__(self, guard: LoopGuard, branch: int) -> None:
        self._guard = guard
        self._branch = branch
        self._actions: dict[tuple[int, str], _Action] = {}  # by step and key: a retried call is one

    def note(self, entry: Entry) -> None:
        """Add a tool call."""
        if entry.kind != "model" and not entry.matches:
            self._add(entry, (entry.name, entry.arguments))

    def replied(self, entry: Entry, reply: Any) -> None:
        """Add a model's answer."""
        answer = answer_of(reply)
        if answer is not None:
            self._add(entry, (_ANSWER, answer))

    def _add(self, entry: Entry, action: _Action) -> None:
        # To repeat the work of an abandoned branch is not a loop.
        if entry.branch != self._branch:
            return
        place = (entry.step, entry.key)
        if self._actions.get(place) != action:
            self._actions.pop(place, None)
            self._actions[place] = action
        while len(self._actions) > self._guard.window:
            del self._actions[next(iter(self._actions))]

    def repeated(self) -> str | None:
        """The reason why no call may be made; None if there is no loop."""
        actions = list(self._actions.values())
        for action in dict.fromkeys(actions):
            times = actions.count(action)
            if times >= self._guard.repeats:
                name, _ = action
                what = (
                    "the model gave the same answer"
                    if name == _ANSWER
                    else f"{name} was called with the same arguments"
                )
                return f"a loop: {what} {times} times within the last {self._guard.window} calls"
        return None
