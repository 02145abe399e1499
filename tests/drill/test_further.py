"""The drill finds what one kill in one process does not show: other hash seeds, times, second kills, interrupts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.testing import DrillReport, crash_everywhere, drill_passes
from tests import small
from tests.drill import wayward
from tests.drill.short import few_further, one_seed
from tests.drill.wayward import INVOICES
from tests.waiting import DEADLINE

pytestmark = small.process()
short = small.process(one_seed)
seeds = small.process(partial(few_further, 1))


def drilled(handler: Callable[..., Any], start: Any = None, **how: Any) -> DrillReport:
    return crash_everywhere(handler, start or {"n": 0}, fakes=[wayward.pay, wayward.book, wayward.wire], **how)


def found(report: DrillReport) -> str:
    return "\n".join(finding.text for kill in report.failures for finding in kill.findings)


@seeds
@pytest.mark.parametrize("handler", [wayward.by_place, wayward.without_keys])
def test_an_agent_that_follows_the_order_of_a_set_is_found(handler: Callable[..., Any]) -> None:
    report = drilled(handler, INVOICES, points=8)
    assert report.same_seed is None
    assert not report.passed
    assert "pay" in found(report)


@seeds
def test_keys_make_the_order_of_a_set_harmless() -> None:
    report = drill_passes(wayward.by_invoice, INVOICES, fakes=[wayward.pay], points=8)
    assert report.same_seed is None


@seeds
def test_an_agent_that_cannot_be_imported_is_resumed_with_the_same_seed() -> None:
    report = drilled(lambda run: wayward.by_invoice(run), INVOICES, points=2)  # noqa: PLW0108 - it has no name
    assert report.passed
    assert report.same_seed is not None
    assert "same hash seed" in report.table()


@short
def test_a_key_made_of_the_time_of_day_is_found() -> None:
    for handler in (wayward.by_the_minute, lambda run: wayward.by_the_minute(run)):  # noqa: PLW0108
        report = drilled(handler, points=5)
        assert not report.passed
        assert "another key" in found(report)


@short
def test_a_day_in_a_prompt_is_no_hindrance() -> None:
    report = drill_passes(wayward.dated, {"n": 0}, fakes=[wayward.pay], points=6)
    assert "judged by counts" in report.unsteady[0]


@short
def test_a_bug_that_needs_two_kills_is_found() -> None:
    report = drilled(wayward.third_time)
    assert all(kill.passed for kill in report.kills)
    assert report.failures
    assert "then" in report.failures[0].place


@short
def test_a_bug_that_needs_an_interrupt_is_found() -> None:
    report = drilled(wayward.cleans_up, watch=["cleaned.txt"])
    assert not report.passed
    assert all(kill.place.startswith("interrupted") for kill in report.failures)


@short
def test_a_call_that_acts_after_its_time_out_is_tried() -> None:
    report = drilled(wayward.impatient, points=2)
    assert not report.passed
    assert {kill.place for kill in report.failures} == {"the call of book, step 1, acts after its timeout"}
    passed = drill_passes(wayward.patient, {"n": 0}, fakes=[wayward.book, wayward.wire], points=2)
    assert sum("timeout" in kill.place for kill in passed.further) == 2


@short
def test_long_sleeps_are_skipped() -> None:
    assert drilled(wayward.sleeper, timeout=DEADLINE, points=6).passed


def test_as_many_second_kills_and_interrupts_as_points_are_tried() -> None:
    report = drilled(wayward.by_invoice, INVOICES, points=12)
    assert report.passed
    assert report.points > 12
    for kind in ("killed", "interrupted"):
        assert sum(kill.place.startswith(kind) for kill in report.further) == 12
