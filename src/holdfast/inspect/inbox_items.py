"""The inbox: runs that need a person, because they ask, are in doubt, were interrupted, failed or are stuck."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import msgspec

from holdfast.handle import Holdfast
from holdfast.inspect.damage import Readable
from holdfast.inspect.graphs import GraphState, owner_of, unfinished
from holdfast.inspect.recovery_plans import UNKNOWN, Commands, PlannedCall, RecoveryPlan, recovery
from holdfast.runs import status, waits
from holdfast.types import InterruptedRun, PendingQuestion, StuckRun

Need = Literal["question", "approval", "in doubt", "interrupted", "failed", "stuck"]
"""Why a run needs a person. "approval": a call is made only if a person allows it. "interrupted": its process died, or
its block was left unfinished."""

_ENDED: Final = ("failed", "dead")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision for a person: a question of the run, or a call without an outcome.

    `effect` is its number in the journal. `payload` is the payload of the question, or the arguments of the call.
    `error` is what the call raised. `commands` are the shell commands to choose from.
    """

    about: Literal["wait", "approval", "in doubt"]
    name: str
    effect: int
    payload: Any
    error: str | None
    why: str
    until: datetime | None
    commands: tuple[str, ...]


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
        item = reader.asked(question)
        item = msgspec.structs.replace(item, thread=owner_of(hf.context.store, item.thread))
        known = found.get(item.thread)
        if known is not None:
            decisions = (*known.decisions, *item.decisions)
            item = msgspec.structs.replace(known, decisions=decisions, since=max(known.since, item.since))
        found[item.thread] = item
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
        self._commands = Commands(hf, default)

    def asked(self, question: PendingQuestion) -> InboxItem:
        is_question = question.about == "wait"
        planned = None if is_question else self._planned(question)
        is_approval = planned is not None and planned.call.status == "asked"
        why = "no answer yet" if is_question else UNKNOWN if planned is None else planned.why
        if is_question:
            commands: tuple[str, ...] = (self._commands.answer(question.thread, question.name),)
        else:
            name = owner_of(self._hf.context.store, question.thread)
            commands = self._commands.settle(name, question.effect, is_approval=is_approval)
        decision = Decision(
            about="approval" if is_approval else question.about,
            name=question.name,
            effect=question.effect,
            payload=question.payload,
            error=None if planned is None else planned.call.error,
            why=why,
            until=question.until,
            commands=commands,
        )
        return InboxItem(
            need="question" if is_question else "approval" if is_approval else "in doubt",
            thread=question.thread,
            since=question.since,
            why=why,
            decisions=(decision,),
            command=None,
            plan=None,
        )

    def _planned(self, question: PendingQuestion) -> PlannedCall | None:
        plan = Readable(self._hf).tried(lambda: recovery(self._hf, question.thread))
        calls = () if plan is None else plan.calls
        return next((each for each in calls if each.call.number == question.effect), None)

    def interrupted(self, run: InterruptedRun, plan: RecoveryPlan) -> InboxItem:
        payloads = {effect.number: effect.arguments for effect in run.in_doubt}
        decisions = tuple(
            Decision(
                about="in doubt" if each.does == "decide" else "wait",
                name=each.call.name,
                effect=each.call.number,
                payload=payloads.get(each.call.number),
                error=each.call.error,
                why=each.why,
                until=None,
                commands=each.commands,
            )
            for each in plan.calls
            if each.commands
        )
        left = "its process died" if run.status == "running" else "its block was left unfinished"
        return InboxItem(
            need="failed" if run.status == "failed" else "interrupted",
            thread=run.thread,
            since=run.since,
            why=left if run.reason is None else run.reason,
            decisions=decisions,
            command=plan.command if plan.can_resume else None,
            plan=plan,
        )

    def graph(self, graph: GraphState, known: InboxItem | None) -> InboxItem:
        """Return the item of a LangGraph graph. `known` has the decisions about its tool calls, if there are any."""
        decisions = tuple(
            Decision(
                about="wait",
                name=question.id or question.node,
                effect=0,
                payload=question.value,
                error=None,
                why="no answer yet",
                until=None,
                commands=(self._commands.answer_graph(graph.thread, question.id or question.node),),
            )
            for question in graph.questions
            if question.effect is None or known is None
        )
        need: Need = "question" if graph.questions else "failed" if graph.status == "failed" else "interrupted"
        why = graph.errors[-1] if graph.errors else "its process died" if graph.is_dead else "nodes are left to run"
        return InboxItem(
            need=known.need if known is not None else need,
            thread=graph.thread,
            since=graph.since,
            why="no answer yet" if graph.questions else why,
            decisions=(*(() if known is None else known.decisions), *decisions),
            command=None if decisions else self._commands.resume(graph.thread),
            plan=recovery(self._hf, graph.thread),
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
