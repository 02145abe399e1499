"""Drills of agents whose tools return classes."""

from __future__ import annotations

from holdfast.drill.runner import crash_everywhere
from tests import small
from tests.drill.short import POINTS, kills_only
from tests.drill.typed import Receipt, agent, pay, typed_agent

pytestmark = small.process(kills_only)


def test_a_handler_with_a_typed_state_is_drilled() -> None:
    for start in (Receipt(3), {"number": 3}):
        report = crash_everywhere(typed_agent, start, tools=[pay], live=True, points=4)
        assert report.passed, report


def test_typed_results_survive_every_kill() -> None:
    for recorded in (False, True):
        report = crash_everywhere(agent, {}, tools=[pay], live=True, recorded=recorded, points=POINTS)
        assert report.passed, report
