"""Policies: what each answers, what each refuses, and unions as values."""

from __future__ import annotations

import doctest
import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import policy as policy_module
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.policy import AfterModel, AfterToolCall, AnyOf, Event, EveryN, EverySeconds, Never, Policy
from tests.cases import for_each
from tests.covers import covers

EVENTS: tuple[Event, ...] = ("model", "tool", "step")

simple = st.one_of(
    st.just(AfterToolCall()),
    st.just(AfterModel()),
    st.just(Never()),
    st.integers(1, 5).map(EveryN),
    st.integers(1, 5).map(EverySeconds),
)
policies = st.recursive(simple, lambda inner: st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]), max_leaves=6)


def test_examples_in_docstrings() -> None:
    result = doctest.testmod(policy_module)
    assert result.attempted >= 9
    assert result.failed == 0


@covers("E9", "smooth/CheckpointStrategy.AfterToolCall", "smooth/CheckpointStrategy.AfterLlmResponse")
@covers("smooth/CheckpointStrategy.Never", "smooth/CheckpointEvent.ToolCallComplete")
@covers("smooth/CheckpointEvent.LlmResponse", "smooth/CheckpointStrategy.should_checkpoint")
@pytest.mark.parametrize(
    ("policy", "events"), [(AfterToolCall(), {"tool"}), (AfterModel(), {"model"}), (Never(), set[str]())]
)
def test_event_policies(policy: Policy, events: set[str]) -> None:
    assert {event for event in EVENTS if policy.should_save(event, 4, saved_step=1, seconds=1e9)} == events


def saved_by(policy: Policy, first: int, last: int, saved: int) -> list[tuple[int, str]]:
    """Run the steps first..last as a run does, asking after each event; what was saved, and by which event."""
    saves: list[tuple[int, str]] = []
    for step, event in itertools.product(range(first, last + 1), EVENTS):
        if policy.should_save(event, step, saved_step=saved):
            saved = step
            saves.append((step, event))
    return saves


@covers("E9", "smooth/CheckpointStrategy.EveryN", "smooth/CheckpointEvent.Iteration")
@covers("smooth/CheckpointStrategy.should_checkpoint")
def test_every_n_saves_a_step_once_at_its_end() -> None:
    assert saved_by(EveryN(3), 1, 10, saved=0) == [(3, "step"), (6, "step"), (9, "step")]
    assert saved_by(EveryN(1), 1, 3, saved=0) == [(1, "step"), (2, "step"), (3, "step")]


@covers("E12")
def test_every_n_is_not_shifted_by_a_crash() -> None:
    # The run died in step 5; what it saved last is step 3, and steps 4 and 5 are run again.
    assert saved_by(EveryN(3), 4, 9, saved=3) == [(6, "step"), (9, "step")]


def test_every_n_catches_up_when_a_boundary_was_missed() -> None:
    assert saved_by(EveryN(3), 8, 10, saved=3) == [(8, "step")]


@pytest.mark.parametrize("event", EVENTS)
def test_every_seconds_answers_at_any_event(event: Event) -> None:
    policy = EverySeconds(30)
    assert not policy.should_save(event, 9, seconds=29.999)
    assert policy.should_save(event, 9, seconds=30.0)
    assert policy.should_save(event, 9, seconds=1e6)


@covers("E9")
@for_each("n", [0, -1, True, False, 1.0, "3", None, math.nan])
def test_every_n_refuses(n: Any) -> None:
    with pytest.raises(InvalidArgument):
        EveryN(n)


@for_each("s", [0, 0.0, -0.0, -1, math.inf, -math.inf, math.nan, True, "30", None, 1j])
def test_every_seconds_refuses(s: Any) -> None:
    with pytest.raises(InvalidArgument):
        EverySeconds(s)


def test_every_seconds_takes_any_finite_time() -> None:
    assert EverySeconds(5e-324).should_save("step", 1, seconds=1e-9)
    assert not EverySeconds(10**400).should_save("step", 1, seconds=1e300)


@for_each("policy", [AfterToolCall(), AfterModel(), EveryN(1), EverySeconds(1), Never(), Never() | EveryN(2)])
@for_each("event", ["", "Tool", "tools", None, 1, ["tool"]])
def test_unknown_events_are_refused(policy: Policy, event: Any) -> None:
    with pytest.raises(InvalidArgument, match=r'"model", "tool" or "step"'):
        policy.should_save(event, 1)


@covers("E9")
def test_union_saves_when_a_member_does() -> None:
    policy = AfterToolCall() | EveryN(2)
    assert saved_by(policy, 1, 4, saved=0) == [(1, "tool"), (2, "tool"), (3, "tool"), (4, "tool")]
    assert not policy.should_save("step", 3, saved_step=2)
    assert policy.should_save("step", 4, saved_step=2)


@given(policies, policies, policies)
def test_unions_are_equal_regardless_of_nesting_and_order(a: Policy, b: Policy, c: Policy) -> None:
    left, right = (a | b) | c, b | (c | a)
    assert left == right
    assert hash(left) == hash(right)
    assert repr(left) == repr(right)
    assert a | a == a
    if isinstance(left, AnyOf):
        assert not any(isinstance(member, AnyOf) for member in left.members)


@given(policies, policies, st.sampled_from(EVENTS), st.integers(1, 20), st.integers(0, 20), st.floats(0, 10))
def test_union_is_or(a: Policy, b: Policy, event: Event, step: int, saved: int, seconds: float) -> None:
    def ask(policy: Policy) -> bool:
        return policy.should_save(event, step, saved_step=saved, seconds=seconds)

    assert ask(a | b) == (ask(a) or ask(b))


def test_different_policies_are_different_values() -> None:
    values = [AfterToolCall(), AfterModel(), Never(), EveryN(1), EveryN(2), EverySeconds(1), EveryN(1) | Never()]
    assert len(set(values)) == len(values)


def test_policies_cannot_be_changed() -> None:
    policy: Any = EveryN(3)
    with pytest.raises(AttributeError):
        policy.n = 0


@pytest.mark.parametrize("other", [None, 30, "tool", AfterToolCall])
def test_a_union_takes_policies_only(other: Any) -> None:
    with pytest.raises(TypeError):
        AfterToolCall() | other


def test_a_policy_of_ones_own_joins_in() -> None:
    class OnRoundSteps(Policy, frozen=True):
        def due(self, event: Event, step: int, *, saved_step: int, seconds: float) -> bool:
            return step % 100 == 0

    policy = OnRoundSteps() | AfterToolCall()
    assert policy.should_save("model", 200)
    assert policy.should_save("tool", 201)
    assert not policy.should_save("model", 201)


def test_a_policy_without_an_answer_says_so() -> None:
    class Silent(Policy, frozen=True):
        pass

    with pytest.raises(NotImplementedError, match="Silent must override due"):
        Silent().should_save("tool", 1)


def test_errors_are_ours() -> None:
    with pytest.raises(HoldfastError):
        EveryN(0)
