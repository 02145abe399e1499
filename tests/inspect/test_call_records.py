"""The two rules for calls: which entries of a journal people see, and which calls are in doubt."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.inspect import CallHistory, call_status, chat_of, is_doubtful, is_shown, open_calls
from tests.runs.conftest import Crash, World


@holdfast.tool(effect="irreversible", in_doubt="ask")
def pay() -> None:
    raise Crash


@pytest.mark.parametrize(
    ("kind", "status", "held", "free"),
    [
        ("irreversible", "started", "under way", "in doubt"),
        ("idempotent", "started", "under way", "in doubt"),
        ("irreversible", "in_doubt", "in doubt", "in doubt"),
        ("irreversible", "unstored", "in doubt", "in doubt"),
        ("read", "started", "under way", "cut off"),
        ("model", "started", "under way", "cut off"),
        ("irreversible", "done", "done", "done"),
        ("irreversible", "not_done", "not done", "not done"),
        ("irreversible", "asked", "asked", "asked"),
    ],
)
def test_the_status_of_a_call_depends_on_whether_a_process_holds_its_run(
    kind: str, status: str, held: str, free: str
) -> None:
    for words, is_held in ((held, True), (free, False)):
        assert call_status(kind, status, is_held=is_held) == words
        assert is_doubtful(kind, status, is_held=is_held) == (words == "in doubt")


def test_what_people_see_of_a_journal() -> None:
    calls = ("model", "read", "idempotent", "irreversible", "wait", "child", "undo")
    assert all(is_shown(kind, "done") for kind in calls)
    assert not any(is_shown(kind, "done", posted=True) for kind in ("turn", "write"))
    assert not is_shown("model", "late", posted=True)
    assert [is_shown("answer", "done", posted=posted) for posted in (False, True)] == [False, True]


def test_a_call_of_a_dead_process_is_in_doubt_in_every_view(world: World) -> None:
    asked = {"role": "assistant", "calls": [{"id": "1", "name": "pay", "args": {}}]}
    with world.dying("t", start={"messages": [asked]}) as run:
        run.tool(pay, {}, key="1")
    hf = world.open()
    [call] = CallHistory(hf, "t").newest_first()
    assert (call.status, call.is_doubtful, call.own_key) == ("in doubt", True, "1")
    since = open_calls(hf, "t")
    assert ([each.status for each in since.calls], since.is_held) == (["in doubt"], False)
    state = hf.thread("t").load("@-1").state
    chat = chat_of(state, journal=[each.effect for each in since.calls], is_held=since.is_held)
    assert chat is not None
    assert [each.status for each in chat.messages[0].calls] == ["in doubt"]
