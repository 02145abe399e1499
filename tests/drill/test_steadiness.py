"""Each model function, each tool and each watched thing is judged by itself: by contents, by counts, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.drill.world import Kind, Line, Settled
from holdfast.testing import Finding
from tests.drill.court import KILL, Court, call

PAY = call(9, "irreversible", "pay")


def calls(kind: Kind, name: str, arguments: str) -> list[Line]:
    """A call for each letter, with that for its arguments."""
    return [
        line
        for number, letter in enumerate(arguments, 1)
        for line in call(number, kind, name, f"key of {letter}" if kind == "idempotent" else None, arguments=letter)
    ]


@pytest.fixture
def court(tmp_path: Path) -> Court:
    return Court(tmp_path)


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_steady_agent_has_nothing_to_tell(court: Court) -> None:
    judge = court.of_calls(PAY, PAY)
    assert (judge.unsteady, judge.unjudged) == ([], [])


def test_other_arguments_are_judged_by_how_often_a_name_is_called(court: Court) -> None:
    judge = court.of_calls(calls("model", "ask", "ab"), calls("model", "ask", "cd"))
    assert judge.unsteady == ["the model function ask: called with other arguments each time; judged by counts"]
    assert judge.unjudged == []

    def repeated(killed: str) -> int:
        return judge.judge(1, "here", court.trial(calls("model", "ask", killed)), 0.1).model_calls_repeated

    assert [repeated(killed) for killed in ("ef", "efg", "efgh")] == [0, 1, 2]
    kill = judge.judge(1, "here", court.trial(calls("model", "ask", "efgh")), 0.1)
    assert kill.findings == (Finding("model", "2 model calls were repeated; one can be in flight"),)


def test_an_unsteady_name_leaves_the_others_to_be_judged_by_contents(court: Court) -> None:
    judge = court.of_calls([*calls("model", "ask", "a"), *PAY], [*calls("model", "ask", "b"), *PAY])
    other = call(9, "irreversible", "pay", arguments="another")
    kill = judge.judge(1, "here", court.trial([*calls("model", "ask", "c"), *other]), 0.1)
    assert [finding.kind for finding in kill.findings] == ["duplicate", "lost"]


@pytest.mark.parametrize(
    ("killed", "findings"),
    [
        ("xy", ()),
        ("xyz", (Finding("duplicate", "pay happened 3 times, 2 in the undisturbed run"),)),
        ("x", (Finding("lost", "pay happened once, 2 in the undisturbed run"),)),
    ],
)
def test_effects_with_other_arguments_are_counted(court: Court, killed: str, findings: tuple[Finding, ...]) -> None:
    judge = court.of_calls(calls("irreversible", "pay", "ab"), calls("irreversible", "pay", "cd"))
    assert judge.unjudged == []
    assert judge.judge(1, "here", court.trial(calls("irreversible", "pay", killed)), 0.1).findings == findings


@pytest.mark.parametrize("asked", [[], [Settled("pay", "x", happened=False)]])
def test_an_effect_started_again_with_other_arguments_needs_somebody_asked(court: Court, asked: list[Line]) -> None:
    judge = court.of_calls(calls("irreversible", "pay", "a"), calls("irreversible", "pay", "b"))
    killed = [calls("irreversible", "pay", "x")[0], *KILL, *asked, *calls("irreversible", "pay", "x")]
    assert judge.judge(1, "here", court.trial(killed), 0.1).passed is bool(asked)


def test_idempotent_effects_with_other_arguments_are_counted_by_their_keys(court: Court) -> None:
    judge = court.of_calls(calls("idempotent", "reserve", "a"), calls("idempotent", "reserve", "b"))

    def kinds(killed: str) -> list[str]:
        kill = judge.judge(1, "here", court.trial(calls("idempotent", "reserve", killed)), 0.1)
        return [finding.kind for finding in kill.findings]

    assert (kinds("c"), kinds("cc"), kinds("cd"), kinds("")) == ([], [], ["duplicate"], ["lost"])


def test_what_differs_in_number_cannot_be_judged_and_is_named(court: Court) -> None:
    judge = court.of_calls([*calls("irreversible", "pay", "ab"), *call(9, "model", "ask")], call(9, "model", "ask"))
    assert judge.unsteady == []
    [text] = judge.unjudged
    assert text == (
        "the tool pay: called 2, then 0 times; make the agent call the same things in each run: script its model or "
        "fix its seed, or play the first run back with recorded=True"
    )
    made = call(9, "model", "ask")
    kill = judge.judge(1, "here", court.trial([*calls("irreversible", "post", "a"), *made]), 0.1)
    assert kill.passed, "an agent that picks other tools by itself may pick another one"


def test_one_call_made_twice_is_found_whatever_differs(court: Court) -> None:
    judge = court.of_calls(calls("irreversible", "pay", "a"), [])
    kill = judge.judge(1, "here", court.trial([*PAY, *KILL, *PAY]), 0.1)
    assert [finding.kind for finding in kill.findings] == ["duplicate"]


def test_reads_may_differ(court: Court) -> None:
    judge = court.of_calls(calls("read", "look_up", "ab"), calls("read", "look_up", "c"))
    assert (judge.unsteady, judge.unjudged) == ([], [])
    kill = judge.judge(1, "here", court.trial(PAY), 0.1)
    assert [finding.kind for finding in kill.findings] == ["duplicate"], "they excuse no effect"


# -- what is watched ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "same", "other", "says"),
    [
        (b"1\n2\n", b"3\n4\n", b"5\n6\n", b"5\n6\n7\n", "3 lines, 2 in the undisturbed run"),
        ("1\n2", "3\n4", "5\n6", "5\n6\n7", "3 lines, 2 in the undisturbed run"),
        ([1, 2], [3, 4], [5, 6], [5], "1 entry, 2 in the undisturbed run"),
        ({"n": [1]}, {"n": [2]}, {"n": [3]}, {"n": [3, 3]}, "changed $.n"),
        ({"a": b"1"}, {"b": b"2"}, {"c": b"3"}, {"c": b"3", "d": b"3"}, "2 entries, 1 in the undisturbed run"),
        ({"a": b"1"}, {"b": b"2"}, {"c": b"3"}, {"c": b"3\n4"}, "entries with other sizes than in the undisturbed run"),
        (b"1", b"2", b"3", None, "missing"),
    ],
)
def test_watched_contents_that_differ_are_counted(
    court: Court, first: Any, second: Any, same: Any, other: Any, says: str
) -> None:
    judge = court.of_watched([first], [second])
    assert judge.unjudged == []
    assert [text.endswith("; judged by counts") for text in judge.unsteady] == [True]
    assert court.seen(judge, same).passed
    assert court.seen(judge, other).findings == (Finding("watch", f"0: {says}"),)


def test_each_watched_thing_is_judged_by_itself(court: Court) -> None:
    judge = court.of_watched([b"1", b"same"], [b"2", b"same"])
    assert judge.unsteady == ["0: line 1 differs from the undisturbed run; judged by counts"]
    kill = court.seen(judge, b"3", b"another")
    assert kill.findings == (Finding("watch", "1: line 1 differs from the undisturbed run"),)


@pytest.mark.parametrize(("first", "second"), [(b"1", b"1\n2"), (1.5, 2.5), ({"at": 1}, {"at": 2}), ("a", "b")])
def test_what_cannot_even_be_counted_is_named(court: Court, first: Any, second: Any) -> None:
    judge = court.of_watched([b"same", first], [b"same", second])
    [text] = judge.unjudged
    assert text.startswith("1: ")
    assert text.endswith("; watch a function that leaves out what differs, or returns a count")
    assert court.seen(judge, b"same", first).passed
    assert [finding.kind for finding in court.seen(judge, b"other", first).findings] == ["watch"]
