"""When to save, as a value: a policy is asked after each event of a run and answers yes or no.

A policy decides whether a boundary is written; it never adds one. Policies are compared, hashed and joined by `|`:

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
    """Base of all policies. One of your own overrides `due`."""

    def should_save(self, event: Event, step: int, *, saved_step: int = 0, seconds: float = 0.0) -> bool:
        """Whether to save now that `event` is complete, in step `step`.

        `saved_step` is the step of the last save and `seconds` the time since; both come from the run, so a policy
        holds no state and a resumed run answers as the one that died would have.

        Raises `InvalidArgument` if `event` is none of "model", "tool", "step".
        """
        if event not in _EVENTS:
            raise InvalidArgument('an event is "model", "tool" or "step"; give one of these')
        return self.due(event, step, saved_step=saved_step, seconds=seconds)

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        """The answer of this policy; `event` is a known one."""
        raise NotImplementedError(f"{type(self).__name__} must override due()")

    def __or__(self, other: Policy) -> Policy:
        """A policy that saves when either does."""
        if not isinstance(other, Policy):
            return NotImplemented
        members = _members(self) | _members(other)
        return AnyOf(members) if len(members) > 1 else self


class AfterToolCall(Policy, frozen=True):
    """Save after every tool call.

    >>> AfterToolCall().should_save("tool", 3), AfterToolCall().should_save("model", 3)
    (True, False)
    """

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return event == "tool"


class AfterModel(Policy, frozen=True):
    """Save after every model call.

    >>> AfterModel().should_save("model", 3), AfterModel().should_save("tool", 3)
    (True, False)
    """

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return event == "model"


class EveryN(Policy, frozen=True):
    """Save when `n` steps were completed since the last save.

    Only the end of a step counts, so a step is saved once and not once per event; and the count begins at the last
    save, so a crash in between does not shift it. Raises `InvalidArgument` unless `n` is an int of at least 1.

    >>> EveryN(3).should_save("step", 8, saved_step=6), EveryN(3).should_save("step", 9, saved_step=6)
    (False, True)
    """

    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise InvalidArgument("EveryN counts steps: give a whole number of at least 1")

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return event == "step" and step - saved_step >= self.n


class EverySeconds(Policy, frozen=True):
    """Save after the first event that completes `s` seconds or more after the last save.

    Raises `InvalidArgument` unless `s` is a finite number above 0.

    >>> EverySeconds(0.5).should_save("tool", 1, seconds=0.4), EverySeconds(0.5).should_save("tool", 1, seconds=0.5)
    (False, True)
    """

    s: float

    def __post_init__(self) -> None:
        number = isinstance(self.s, int | float) and not isinstance(self.s, bool)
        # The order refuses NaN, and compares an int too large for a float without converting it.
        if not number or not 0 < self.s < math.inf:
            raise InvalidArgument("EverySeconds waits for a time: give a finite number above 0")

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return seconds >= self.s


class Never(Policy, frozen=True):
    """Save only where the program says so.

    >>> Never().should_save("step", 1000, seconds=1e9)
    False
    """

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return False


class AnyOf(Policy, frozen=True):
    """Save when any of the members does. Written with `|`, which leaves no union inside a union.

    >>> AfterModel() | EveryN(10)
    AfterModel() | EveryN(n=10)
    """

    members: frozenset[Policy]

    def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
        return any(member.due(event, step, saved_step=saved_step, seconds=seconds) for member in self.members)

    def __repr__(self) -> str:
        # A set has no order; a repr that changes from one process to the next cannot be compared in logs.
        return " | ".join(sorted(map(repr, self.members)))


def _members(policy: Policy) -> frozenset[Policy]:
    return policy.members if isinstance(policy, AnyOf) else frozenset((policy,))
