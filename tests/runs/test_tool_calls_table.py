"""The table of tool calls: the decision about each call."""

from __future__ import annotations

from itertools import product
from typing import get_args

from holdfast.runs.tool_calls import decision_for
from holdfast.runs.tools import Effect, InDoubt
from holdfast.stores.contract_runs import EntryStatus

STATUSES: tuple[EntryStatus | None, ...] = (None, *get_args(EntryStatus))
EFFECTS: tuple[Effect, ...] = get_args(Effect)
IN_DOUBT: tuple[InDoubt, ...] = get_args(InDoubt)


def test_every_combination_has_one_decision() -> None:
    for status, effect, in_doubt in product(STATUSES, EFFECTS, IN_DOUBT):
        decision = decision_for(status, effect, in_doubt)
        match status:
            case "begun" | "in_doubt":
                assert decision == in_doubt, "a call with an unknown outcome is decided by its tool"
            case None | "failed" | "not_done":
                assert decision == ("read" if effect == "read" else "act")
            case "asked":
                assert decision == "confirm", "nothing is called before a person has answered"
            case _:
                assert decision == "replay", "a recorded result is never made again"
