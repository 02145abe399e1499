"""Runs that need attention: waiting, interrupted or stuck.

Unlike the handle's methods, these skip damaged records. They also return one message per record they skipped.
"""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.looking.recovery import Recovery, recovery
from holdfast.looking.whole import Lost, whole
from holdfast.runs import interruption, status, waits
from holdfast.types import InterruptedRun, PendingQuestion, StuckRun


def waiting(hf: Holdfast, name: str | None = None) -> tuple[list[PendingQuestion], tuple[str, ...]]:
    """Return what runs wait for, of one name or all, oldest first, and messages about unreadable records."""
    hf.context.check_open()
    lost: Lost = {}
    return list(waits.waiting(whole(hf.context.store, lost), name)), tuple(lost)


def interrupted(hf: Holdfast) -> tuple[list[tuple[InterruptedRun, Recovery]], tuple[str, ...]]:
    """Return the runs that were left unfinished, each with its recovery plan, and messages about unreadable records."""
    hf.context.check_open()
    lost: Lost = {}
    found: list[tuple[InterruptedRun, Recovery]] = []
    for each in interruption.interrupted(whole(hf.context.store, lost), hf.tools):
        try:
            plan = recovery(hf, each.thread)
        except Damaged as damage:
            lost[str(damage)] = None
            continue
        if plan is not None:
            lost.update(dict.fromkeys(plan.lost))
            found.append((each, plan))
    return found, tuple(lost)


def stuck_for(hf: Holdfast, seconds: float) -> tuple[list[StuckRun], tuple[str, ...]]:
    """Return the runs without progress for `seconds`, oldest first, and messages about unreadable records."""
    hf.context.check_open()
    lost: Lost = {}
    return list(status.stuck(whole(hf.context.store, lost), seconds)), tuple(lost)
