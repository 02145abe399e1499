"""The tables of tool calls: the decision about each call, and about each call in doubt."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from holdfast.runs import acts, doubt
from holdfast.runs.doubt import CanAct, ProbeAnswer, can_act_of, decide_doubt
from holdfast.runs.tool_calls import decision_for
from holdfast.runs.tools import EffectKind, InDoubt, NotDone, tool, tool_of
from holdfast.stores.contract_runs import Clock, Deadline, Entry, EntryStatus, Owner
from holdfast.types import ActStatus

STATUSES: tuple[EntryStatus | None, ...] = (None, *get_args(EntryStatus))
EFFECTS: tuple[EffectKind, ...] = get_args(EffectKind)
IN_DOUBT: tuple[InDoubt, ...] = get_args(InDoubt)
ANSWERS: tuple[ProbeAnswer | None, ...] = (None, *get_args(ProbeAnswer))
ACTING: tuple[CanAct, ...] = get_args(CanAct)


def test_every_combination_has_one_decision() -> None:
    for status, effect in product(STATUSES, EFFECTS):
        decision = decision_for(status, effect)
        match status:
            case "started" | "in_doubt":
                assert decision == "doubt", "its outcome is unknown"
            case None | "failed" | "not_done":
                assert decision == ("read" if effect == "read" else "act")
            case "asked":
                assert decision == "confirm", "nothing is called before a person has answered"
            case _:
                assert decision == "replay", "a recorded result is never made again"


def test_every_doubt_has_one_decision() -> None:
    for effect, in_doubt, answer, acting in product(EFFECTS, IN_DOUBT, ANSWERS, ACTING):
        if answer is not None and in_doubt != "probe":
            continue
        decision = decide_doubt(effect, in_doubt, answer, acting)
        match (in_doubt, answer):
            case ("give_up" | "ask", _):
                assert decision == in_doubt
            case ("probe", None):
                assert decision == "probe", "what happened is believed at once, so it is asked at once"
            case ("probe", "happened" | "give_up"):
                assert decision == answer
            case ("probe", "not_yet" | "unknown"):
                assert decision == ("wait" if answer == "not_yet" else "ask")
            case _ if effect != "irreversible":
                assert decision == "rerun", "its idempotency key makes both calls one"
            case ("probe", _):
                expected = {"before_deadline": "wait", "cannot_act": "rerun"}
                assert decision == expected.get(acting, "ask"), "not done counts only if the call cannot act any more"
            case _:
                assert decision == {"before_deadline": "wait", "maybe_running": "ask"}.get(acting, "rerun")


def test_every_status_of_an_act_has_one_decision() -> None:
    for status, is_own, was_started in product((None, *get_args(ActStatus)), (True, False), (True, False)):
        decision = acts.decision_for(status, is_own=is_own, was_started=was_started)
        has_other = status in ("done", "under_way") and not is_own
        if was_started and not has_other:
            assert decision == "doubt", "the outcome of this call decides"
        elif status is None or status in acts.FREE:
            assert decision == "free", "only an act that did not happen, or may happen again, is done"
        else:
            expected = {"done": "result", "under_way": "wait", "deleted": "ask", "in_doubt": "claim_in_doubt"}
            assert decision == expected[status]


# -- whether a call can still act -------------------------------------------------------------------------------------

CLOCK = Clock("clock", 1000)
AHEAD, PASSED = Deadline("clock", 1001, 0), Deadline("clock", 1000, 0)
EARLIER_BOOT = Deadline("another", 5000, 0)
DEAD, ALIVE, UNKNOWN = (Owner("host", "boot", 1, pid, 1) for pid in (1, 2, 3))


def sync(n: int) -> None:
    """A function whose thread cannot be stopped."""


async def coroutine(n: int) -> None:
    """A function that is cancelled at its timeout."""


@pytest.mark.parametrize(
    ("deadline", "owner", "plain", "bounded"),
    [
        (AHEAD, None, "before_deadline", "before_deadline"),
        (AHEAD, DEAD, "before_deadline", "before_deadline"),
        (AHEAD, ALIVE, "before_deadline", "before_deadline"),
        (PASSED, None, "cannot_act", "cannot_act"),
        (PASSED, DEAD, "cannot_act", "cannot_act"),
        (PASSED, UNKNOWN, "process_unknown", "cannot_act"),
        (PASSED, ALIVE, "maybe_running", "cannot_act"),
        (EARLIER_BOOT, UNKNOWN, "cannot_act", "cannot_act"),
        (None, None, "function_ended", "function_ended"),
        (None, DEAD, "function_ended", "function_ended"),
        (None, UNKNOWN, "maybe_running", "maybe_running"),
        (None, ALIVE, "maybe_running", "maybe_running"),
    ],
)
def test_whether_a_call_can_still_act(
    monkeypatch: pytest.MonkeyPatch, deadline: Deadline | None, owner: Owner | None, plain: CanAct, bounded: CanAct
) -> None:
    monkeypatch.setattr(doubt, "is_dead", lambda owner: owner == DEAD)
    monkeypatch.setattr(doubt, "is_alive", lambda owner: owner == ALIVE)
    fields: dict[str, Any] = {"branch": 0, "step": 1, "key": "k", "name": "act", "arguments": b"", "started_at": 0}
    entry = Entry(**fields, kind="irreversible", status="started", fence=1, deadline=deadline, owner=owner)
    declared = tool_of(tool(probe=NotDone, timeout=5)(sync))
    assert can_act_of(entry, CLOCK, declared) == plain
    assert can_act_of(entry, CLOCK, tool_of(tool(probe=NotDone, timeout=5)(coroutine))) == bounded
    assert can_act_of(entry, CLOCK, tool_of(tool(probe=NotDone, timeout=4.0, probe_after=5.0)(sync))) == bounded
