"""A report as people and programs read it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.testing import DrillReport, Finding, Kill

GOOD = Kill(number=1, place="before the claim", final_state="equal", seconds=0.1, in_doubt=("pay: probed",))
BAD = Kill(
    number=2,
    place="after the call of pay, step 1",
    model_calls_repeated=1,
    effects_repeated=1,
    final_state="different",
    findings=(Finding("duplicate", "pay happened twice"), Finding("state", "another \x00 <state>")),
    seconds=0.2,
)


def report(*kills: Kill, points: int = 2, calls: int = 1, **differs: Any) -> DrillReport:
    return DrillReport(handler="clerk", points=points, calls=calls, kills=kills, seconds=1.25, **differs)


def test_the_table() -> None:
    assert report(GOOD, BAD).table().splitlines() == [
        "          killed                         model again  effects again  in doubt     final state",
        "       1  before the claim               -            -              pay: probed  equal",
        "FAILED 2  after the call of pay, step 1  1            1              -            different",
        "",
        "point 2, killed after the call of pay, step 1:",
        "  duplicate: pay happened twice",
        "  state: another \x00 <state>",
        "clerk was killed at all 2 points and resumed: 1 FAILED (1.2 s)",
    ]


def test_the_table_says_how_many_points_were_tried_and_what_differs() -> None:
    lines = report(GOOD, points=60, unsteady=("final state: another result",)).table().splitlines()
    assert lines[-4:] == [
        "Two undisturbed runs differ:",
        "  final state: another result",
        "",
        "clerk was killed at 1 of 60 points and resumed: nothing lost, nothing silently repeated (1.2 s)",
    ]


def test_what_could_not_be_judged_is_no_pass() -> None:
    made = report(GOOD, unjudged=("the tool pay: called 1, then 2 times; mend it",))
    assert (made.passed, made.failures) == (False, ())
    assert made.table().splitlines()[-4:-1] == [
        "Two undisturbed runs differ too much, so this could not be judged:",
        "  the tool pay: called 1, then 2 times; mend it",
        "",
    ]
    assert made.table().endswith(
        "resumed: NOT PASSED: no problem was found, but a repeated call could go unnoticed in what was not judged "
        "(1.2 s)"
    )
    assert report(GOOD, unsteady=("final state: another result; not compared",)).passed


def test_an_agent_that_makes_no_calls_has_nothing_to_repeat() -> None:
    made = report(GOOD, calls=0)
    assert made.passed
    assert "nothing lost; the agent made no calls, so there was nothing to repeat" in made.table()


@pytest.mark.parametrize("kills", [(GOOD,), (GOOD, BAD)])
def test_json(kills: tuple[Kill, ...]) -> None:
    made = json.loads(report(*kills).json())
    assert set(made) == {
        "passed",
        "format",
        "handler",
        "points",
        "calls",
        "kills",
        "further",
        "same_seed",
        "unsteady",
        "unjudged",
        "seconds",
    }
    assert made["passed"] is (len(kills) == 1)
    assert set(made["kills"][0]) == {
        "number",
        "place",
        "model_calls_repeated",
        "reads_repeated",
        "effects_repeated",
        "in_doubt",
        "final_state",
        "findings",
        "seconds",
    }
    assert [finding["kind"] for kill in made["kills"] for finding in kill["findings"]] == (
        ["duplicate", "state"] if len(kills) == 2 else []
    )
