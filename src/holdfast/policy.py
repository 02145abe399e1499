"""Policies: when a run saves its state.

In a run, the policy is asked at the end of each step. In a loop of your own, ask it with `should_save`. Policies can be
compared, hashed and joined with `|`:

>>> policy = AfterToolCall() | EverySeconds(30)
>>> policy.should_save("tool", 7)
True
>>> policy.should_save("model", 7, saved_step=6, seconds=12.5)
False
>>> policy.should_save("model", 7, saved_step=6, seconds=30.0)
True
>>> policy == EverySeconds(30) | (AfterToolCall() | AfterToolCall())
True
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import msgspec

from holdfast.errors import InvalidArgument

Event = Literal["model", "tool", "step"]
_EVENTS: tuple[str, ...] = get_args(Event)


class Policy(msgspec.Struct, frozen=True):
    """Base class of policies. Override `due` to write your own."""

    def should_save(self, event: Event, step: int, *, saved_step: int = 0, seconds: float = 0.0) -> bool:
        """Return whether to save after `event` in step `step`.

        At the end of a step, a run asks about "step", and about "model" and "tool" if the step made such a call.

        `saved_step` is the step of the last save, and `seconds` the time since. Both come from the run: a policy holds
        no state, so it decides the same after a resume.

        Raises `InvalidArgument` if `event` is not "model", "tool" or "step".
        """
        if event not in _EVENTS:
            raise InvalidArgument('an event is "model", "tool" or "step"; give one of these')
        return self.due(event, step, saved_step=saved_step, seconds=seconds)

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        """Return whether to save. `should_save` has checked `event`."""
        raise NotImplementedError(f"{type(self).__name__} must override due()")

    def __or__(self, other: Policy) -> Policy:
        """Return a policy that saves when either of the two does."""
        if not isinstance(other, Policy):
            return NotImplemented
        members = _members(self) | _members(other)
        return AnyOf(members) if len(members) > 1 else self


class AfterToolCall(Policy, frozen=True):
    """Save at the end of each step in which a tool was called.

    >>> AfterToolCall().should_save("tool", 3), AfterToolCall().should_save("model", 3)
    (True, False)
    """

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return event == "tool"


class AfterModel(Policy, frozen=True):
    """Save at the end of each step in which a model was called.

    >>> AfterModel().should_save("model", 3), AfterModel().should_save("tool", 3)
    (True, False)
    """

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return event == "model"


class EveryN(Policy, frozen=True):
    """Save at the end of a step when `n` steps were completed since the last save.

    Steps are counted from the last save, so a crash does not shift them. Raises `InvalidArgument` unless `n` is a whole
    number, 1 or more.

    >>> EveryN(3).should_save("step", 8, saved_step=6), EveryN(3).should_save("step", 9, saved_step=6)
    (False, True)
    """

    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise InvalidArgument("EveryN needs a whole number of steps, 1 or more")

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return event == "step" and step - saved_step >= self.n


class EverySeconds(Policy, frozen=True):
    """Save at the end of the first step that ends `s` seconds or more after the last save.

    Raises `InvalidArgument` unless the number of seconds, `s`, is a finite number above 0.

    >>> EverySeconds(0.5).should_save("tool", 1, seconds=0.4), EverySeconds(0.5).should_save("tool", 1, seconds=0.5)
    (False, True)
    """

    s: float

    def __post_init__(self) -> None:
        number = isinstance(self.s, int | float) and not isinstance(self.s, bool)
        # Comparing refuses NaN, and accepts an int that is too large for a float.
        if not number or not 0 < self.s < math.inf:
            raise InvalidArgument("EverySeconds needs a finite number of seconds above 0")

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return seconds >= self.s


class Never(Policy, frozen=True):
    """Save only when the program calls `run.save()` or `run.finish()`.

    >>> Never().should_save("step", 1000, seconds=1e9)
    False
    """

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return False


class AnyOf(Policy, frozen=True):
    """Save when any of the members does. Made by `|`; members are never unions themselves.

    >>> AfterModel() | EveryN(10)
    AfterModel() | EveryN(n=10)
    """

    members: frozenset[Policy]

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return any(member.due(event, step, saved_step=saved_step, seconds=seconds) for member in self.members)

    def __repr__(self) -> str:
        # Sorted: the order of a set differs between processes, and reprs are compared in logs.
        return " | ".join(sorted(map(repr, self.members)))


def _members(policy: Policy) -> frozenset[Policy]:
    return policy.members if isinstance(policy, AnyOf) else frozenset((policy,))
