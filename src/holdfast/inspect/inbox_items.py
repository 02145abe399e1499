"""The inbox: runs that need a person, because they ask, are in doubt, were interrupted, failed or are stuck."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.handle import Holdfast
from holdfast.inspect.damage import Readable
from holdfast.inspect.graphs import GraphState, owner_of, unfinished
from holdfast.inspect.recovery_plans import Commands, Decision, RecoveryPlan, decision_about, recovery
from holdfast.runs import status, waits
from holdfast.threads.scan import thread_named
from holdfast.types import InterruptedRun, PendingQuestion, StuckRun

Need = Literal["question", "approval", "in doubt", "interrupted", "failed", "stuck"]
"""Why a run needs a person. "approval": a call is made only if a person allows it. "interrupted": its process died, or
its block was left unfinished."""

_ENDED: Final = ("failed", "dead")


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """A run that needs a person, with the decisions to make. `why` says what is known.

    `command` resumes the run; None if a decision has to be made first, or if the run continues by itself then.
    `plan` is what a resume would do, for interrupted and failed runs.
    """

    need: Need
    thread: str
    since: datetime
    why: str
    decisions: tuple[Decision, ...]
    command: str | None
    plan: RecoveryPlan | None


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """Items with decisions come first, then the others; the newest first in both. `lost` is about damaged records."""

    items: tuple[InboxItem, ...]
    lost: tuple[str, ...]


def inbox(hf: Holdfast, *, stuck_after: float = 300.0, default: str | None = None) -> Inbox:
    """Return the runs that need a person. A run is stuck if it made no progress for `stuck_after` seconds.

    `default` is the address of the store that a command without --store uses, for the commands in the items.
    """
    reader = _InboxItems(hf, default)
    questions, lost = waiting(hf)
    found: dict[str, InboxItem] = {}
    for question in questions:
        thread = owner_of(hf.context.store, question.thread)
        item = reader.asked(question, thread)
        known = found.get(thread)
        if item is not None and known is not None:
            decisions = (*known.decisions, *item.decisions)
            item = replace(known, decisions=decisions, since=max(known.since, item.since))
        if item is not None:
            found[thread] = item
    plans, lost_plans = interrupted(hf, default)
    for run, plan in plans:
        if owner_of(hf.context.store, run.thread) == run.thread:
            found.setdefault(run.thread, reader.interrupted(run, plan))
    readable = Readable(hf)
    for graph in unfinished(readable):
        found[graph.thread] = reader.graph(graph, found.get(graph.thread))
    stuck, lost_stuck = stuck_for(hf, 0.0)
    oldest = time.time() - stuck_after
    for each in stuck:
        is_known = owner_of(hf.context.store, each.thread) in found
        if not is_known and (each.status in _ENDED or each.since.timestamp() <= oldest):
            found[each.thread] = reader.stuck(each)
    items = sorted(found.values(), key=lambda item: (not item.decisions, -item.since.timestamp()))
    return Inbox(items=tuple(items), lost=tuple(dict.fromkeys((*lost, *lost_plans, *readable.lost, *lost_stuck))))


class _InboxItems:
    """Makes the items of an inbox."""

    def __init__(self, hf: Holdfast, default: str | None) -> None:
        self._hf = hf
        self._default = default
        self._commands = Commands(hf, default)

    def asked(self, question: PendingQuestion, thread: str) -> InboxItem | None:
        """Return the item of a question or of a call in doubt; None if its thread was dropped meanwhile."""
        store = self._hf.context.store
        asking = thread_named(store, question.thread)
        number = 0 if asking is None else asking.position.thread
        row = next(iter(store.entries(number, after=question.effect - 1, limit=1)), None)
        if row is None:
            return None
        decision = decision_about(row, self._hf.tools, self._commands, thread)
        return InboxItem(
            need="question" if decision.about == "wait" else decision.about,
            thread=thread,
            since=question.since,
            why=decision.why,
            decisions=(decision,),
            command=None,
            plan=None,
        )

    def interrupted(self, run: InterruptedRun, plan: RecoveryPlan) -> InboxItem:
        left = "its process died" if run.status == "running" else "its block was left unfinished"
        return InboxItem(
            need="failed" if run.status == "failed" else "interrupted",
            thread=run.thread,
            since=run.since,
            why=left if run.reason is None else run.reason,
            decisions=plan.decisions,
            command=plan.command if plan.can_resume else None,
            plan=plan,
        )

    def graph(self, graph: GraphState, known: InboxItem | None) -> InboxItem:
        """Return the item of a LangGraph graph. `known` has the decisions about its tool calls, if there are any."""
        plan = recovery(self._hf, graph.thread, self._default)
        decisions = () if plan is None else plan.decisions
        if known is not None:
            numbers = {each.effect for each in decisions}
            decisions = (*(each for each in known.decisions if each.effect not in numbers), *decisions)
        need: Need = "question" if graph.questions else "failed" if graph.status == "failed" else "interrupted"
        why = graph.errors[-1] if graph.errors else "its process died" if graph.is_dead else "nodes are left to run"
        return InboxItem(
            need=known.need if known is not None else need,
            thread=graph.thread,
            since=graph.since,
            why="no answer yet" if graph.questions else why,
            decisions=decisions,
            command=None if graph.questions else self._commands.resume(graph.thread),
            plan=plan,
        )

    def stuck(self, run: StuckRun) -> InboxItem:
        has_ended = run.status in _ENDED
        return InboxItem(
            need="failed" if has_ended else "stuck",
            thread=run.thread,
            since=run.since,
            why=run.why,
            decisions=(),
            command=self._commands.resume(run.thread) if has_ended or run.status == "queued" else None,
            plan=None,
        )


# -- its sources ------------------------------------------------------------------------------------------------------


def waiting(hf: Holdfast, name: str | None = None) -> tuple[list[PendingQuestion], tuple[str, ...]]:
    """Return what runs wait for, of one name or all, oldest first, and messages about unreadable records."""
    readable = Readable(hf)
    return list(waits.waiting(readable.store, name)), readable.lost


def interrupted(
    hf: Holdfast, default: str | None = None
) -> tuple[list[tuple[InterruptedRun, RecoveryPlan]], tuple[str, ...]]:
    """Return the runs that were left unfinished, each with its recovery plan, and messages about unreadable records."""
    readable = Readable(hf)
    found: list[tuple[InterruptedRun, RecoveryPlan]] = []
    for each in status.interrupted(readable.store, hf.tools):
        plan = readable.tried(partial(recovery, hf, each.thread, default))
        if plan is not None:
            found.append((each, plan))
    plans = (each for _, plan in found for each in plan.lost)
    return found, tuple(dict.fromkeys((*readable.lost, *plans)))


def stuck_for(hf: Holdfast, seconds: float) -> tuple[list[StuckRun], tuple[str, ...]]:
    """Return the runs without progress for `seconds`, oldest first, and messages about unreadable records."""
    readable = Readable(hf)
    return list(status.stuck(readable.store, seconds)), readable.lost
