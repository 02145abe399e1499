"""The runs that somebody should look at: they wait for an answer, were interrupted, or get nowhere.

As the handle tells them, but one damaged record does not hide the others: each comes with sentences about what is lost.
"""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.looking.recovery import Recovery, recovery
from holdfast.looking.whole import Lost, whole
from holdfast.runs import status, waits
from holdfast.types import Interrupted, Question, Stuck


def waiting(hf: Holdfast, name: str | None = None) -> tuple[list[Question], tuple[str, ...]]:
    """What runs wait for, of one name or all, longest first, and what cannot be read."""
    hf._session.check_open()
    lost: Lost = {}
    return list(waits.waiting(whole(hf._session.store, lost), name)), tuple(lost)


def interrupted(hf: Holdfast) -> tuple[list[tuple[Interrupted, Recovery]], tuple[str, ...]]:
    """The runs whose owner is gone, each with what a resume would do, and what cannot be read."""
    hf._session.check_open()
    lost: Lost = {}
    found: list[tuple[Interrupted, Recovery]] = []
    for each in status.interrupted(whole(hf._session.store, lost), hf._tools):
        try:
            plan = recovery(hf, each.thread)
        except Damaged as damage:
            lost[str(damage)] = None
            continue
        if plan is not None:
            lost.update(dict.fromkeys(plan.lost))
            found.append((each, plan))
    return found, tuple(lost)


def stuck_for(hf: Holdfast, seconds: float) -> tuple[list[Stuck], tuple[str, ...]]:
    """The runs that have got nowhere for so long, those longest untouched first, and what cannot be read."""
    hf._session.check_open()
    lost: Lost = {}
    return list(status.stuck(whole(hf._session.store, lost), seconds)), tuple(lost)
