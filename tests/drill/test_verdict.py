"""The verdict on a killed run, from its world log."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Happened, NotDone
from holdfast.drill.points import spread
from holdfast.drill.world import EndedCall, Line, Settled, WorldLog
from holdfast.testing import Finding
from tests.drill.court import KILL, Court, call, refused


@pytest.fixture
def log(tmp_path: Path) -> WorldLog:
    return WorldLog(tmp_path / "world.jsonl")


@pytest.fixture
def court(tmp_path: Path) -> Court:
    return Court(tmp_path)


def test_a_call_started_again_although_nobody_was_asked(court: Court) -> None:
    started = call(1, "irreversible", "pay")[:1]
    kill = court.judge(call(1, "irreversible", "pay"), [*started, *KILL, *call(1, "irreversible", "pay")])
    assert kill.findings == (Finding("duplicate", "pay was started twice, without a question in between"),)


@pytest.mark.parametrize("asked", [call(1, "probe", "pay"), [Settled("pay", "a", happened=False)]])
def test_a_call_started_again_after_somebody_said_that_it_did_not_happen(court: Court, asked: list[Line]) -> None:
    started = call(1, "irreversible", "pay")[:1]
    kill = court.judge(call(1, "irreversible", "pay"), [*started, *KILL, *asked, *call(2, "irreversible", "pay")])
    assert kill.passed


def test_a_call_that_ended_twice_is_a_duplicate_whoever_was_asked(court: Court) -> None:
    asked = [Settled("pay", "a", happened=False)]
    made = call(1, "irreversible", "pay")
    kill = court.judge(made, [*made, *KILL, *asked, *made])
    assert kill.findings == (Finding("duplicate", "pay happened twice, 1 in the undisturbed run"),)


def test_a_call_that_said_that_nothing_was_done_may_be_made_again(court: Court) -> None:
    made = call(2, "irreversible", "pay")
    assert court.judge(made, [*refused(1, "irreversible", "pay"), *KILL, *made]).passed
    assert court.judge([*refused(1, "irreversible", "pay"), *made], made).passed
    kill = court.judge(made, [*refused(1, "irreversible", "pay"), *made[:1], *KILL, *made])
    assert kill.findings == (Finding("duplicate", "pay was started twice, without a question in between"),)


def test_what_the_undisturbed_run_does_twice_may_be_done_twice(court: Court) -> None:
    twice = [*call(1, "irreversible", "pay"), *call(2, "irreversible", "pay")]
    assert court.judge(twice, twice).passed


def test_an_effect_that_the_undisturbed_run_does_not_have(court: Court) -> None:
    other = call(1, "irreversible", "pay", arguments="b")
    kill = court.judge(call(1, "irreversible", "pay"), other)
    assert [finding.kind for finding in kill.findings] == ["duplicate", "lost"]
    assert kill.findings[0].text == "pay happened, but never with these arguments in the undisturbed run"
    kill = court.judge([], call(1, "idempotent", "reserve", "key"))
    assert [finding.kind for finding in kill.findings] == ["duplicate"]


def test_an_idempotent_call_may_be_repeated_with_its_key_only(court: Court) -> None:
    made = call(1, "idempotent", "reserve", "key")
    assert court.judge(made, [*made, *KILL, *made]).passed
    other = call(1, "idempotent", "reserve", "another")
    assert [finding.kind for finding in court.judge(made, [*made, *KILL, *other]).findings] == ["duplicate"]
    assert [finding.kind for finding in court.judge(made, []).findings] == ["lost"]


def test_reads_may_be_repeated(court: Court) -> None:
    made = call(1, "read", "look_up")
    kill = court.judge(made, [*made, *KILL, *made])
    assert kill.passed
    assert kill.reads_repeated == 1


def test_one_model_call_may_be_repeated(court: Court) -> None:
    made = [*call(1, "model", "ask"), *call(2, "model", "ask", arguments="b")]
    assert court.judge(made, [*made[:2], *KILL, *made]).passed
    kill = court.judge(made, [*made, *KILL, *made])
    assert kill.findings == (Finding("model", "2 model calls were repeated; one can be in flight"),)


def test_as_many_model_calls_may_be_repeated_as_are_made_beside_each_other(court: Court) -> None:
    (first, first_end), (second, second_end) = call(1, "model", "ask"), call(2, "model", "ask", arguments="b")
    made = [first, second, first_end, second_end]
    assert court.judge(made, [*made, *KILL, *made]).passed
    assert not court.judge([first, first_end, second, second_end], [*made, *KILL, *made]).passed


# -- the world log -----------------------------------------------------------------------------------------------------


def test_the_truth_about_a_call(log: WorldLog) -> None:
    assert isinstance(log.truth(1, 1, "pay"), NotDone)
    started, ended = call(7, "irreversible", "pay")
    log.write(started)
    assert isinstance(log.truth(1, 1, "pay"), NotDone)
    log.write(ended)
    assert log.truth(1, 1, "pay") == Happened(7)
    for other in ((2, 1, "pay"), (1, 2, "pay"), (1, 1, "post")):
        assert isinstance(log.truth(*other), NotDone)


def test_a_call_whose_result_cannot_be_stored_happened(log: WorldLog) -> None:
    log.write(call(1, "irreversible", "pay")[0])
    log.write(EndedCall(call=1))
    assert log.truth(1, 1, "pay") == Happened()


def test_a_call_that_raised_did_not_happen(log: WorldLog) -> None:
    log.write(call(1, "irreversible", "pay")[0])
    log.write(EndedCall(call=1, error="ValueError: no"))
    assert isinstance(log.truth(1, 1, "pay"), NotDone)


def test_an_end_belongs_to_the_process_that_began(log: WorldLog) -> None:
    started, ended = call(1, "irreversible", "pay")
    for line in (started, *KILL, started, ended):
        log.write(line)
    assert [(called.returned, called.before) for called in log.calls()] == [(False, True), (True, False)]


@pytest.mark.parametrize(
    ("count", "most", "numbers"),
    [
        (3, None, [1, 2, 3]),
        (3, 5, [1, 2, 3]),
        (9, 3, [1, 5, 9]),
        (9, 1, [5]),
        (0, None, []),
    ],
)
def test_points_are_spread_evenly(count: int, most: int | None, numbers: list[int]) -> None:
    assert spread(count, most) == numbers
