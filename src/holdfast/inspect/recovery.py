"""The recovery plan of a run: which calls a resume would replay, make again, or ask a person about."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from holdfast.handle import Holdfast
from holdfast.inspect import graphs
from holdfast.inspect.calls import Call, call_of
from holdfast.inspect.commands import Commands
from holdfast.inspect.nearest import existing
from holdfast.inspect.threads import Standing, thread_line
from holdfast.inspect.whole import Lost, whole
from holdfast.runs.open_entries import open_entries
from holdfast.runs.record import resume_step
from holdfast.runs.status import progress_of, result_in
from holdfast.runs.tools import Tools
from holdfast.runs.waits import SLEEP
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import moment
from holdfast.types import Progress

Does = Literal["answered", "again", "decide", "wait", "child"]
"""What a resume does with a call: "answered" replays it from the journal, "again" makes it again, "decide" needs a
person to decide, "wait" waits for an answer or a time, "child" resumes the child run."""

_ENDED: Final = ("completed",)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the open step, and what a resume would do with it.

    If a person must decide, `commands` are the shell commands to choose from, and `command` is the first of them.
    """

    call: Call
    does: Does
    why: str
    command: str | None
    commands: tuple[str, ...]


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a run, and what a resume would do now. `step` is the step of its last checkpoint.

    `can_resume` is False if a process holds the run, if it is completed or a child run, or if its journal is damaged;
    `why_not` is the reason. `answered`, `again` and `needed` count calls. `command` and `code` resume the run; replace
    APP by the program, as module:attribute. `result` is that of a completed run. `lost` are messages
    about unreadable journal entries.
    """

    thread: str
    standing: Standing
    reason: str | None
    step: int
    attempt: int
    since: datetime
    held_by: str | None
    can_resume: bool
    why_not: str | None
    calls: tuple[Planned, ...]
    answered: int
    again: int
    needed: int
    progress: Progress | None
    command: str
    code: str
    summary: str
    result: Any
    lost: tuple[str, ...] = ()


def recovery(hf: Holdfast, thread: str, default: str | None = None) -> Recovery | None:
    """Return the recovery plan of a thread's run; None if the thread has no run. Raises NotFound without a thread.

    Raises Damaged if the record of the run is damaged. Damaged journal entries are skipped and reported in `lost`.
    The tools of the handle declare how calls in doubt are settled. For irreversible calls of other tools, the plan
    assumes that a person decides. `default` is as for `Commands`.
    """
    row = existing(hf, thread)
    store = hf.context.store
    if row.summary.agent == graphs.AGENT and (graph := graphs.graph_state(store, row)) is not None:
        return _of_graph(hf, row, graph, default)
    run = store.run(row.position.thread)
    if run is None:
        return None
    line = thread_line(hf, row)
    is_done = run.status in _ENDED
    lost: Lost = {}
    commands = Commands(hf, default)
    calls = () if is_done else tuple(_plan(whole(store, lost), hf.tools, commands, row, run))
    counts = {does: sum(each.does == does for each in calls) for does in ("answered", "again", "decide", "wait")}
    needed = counts["decide"] + sum(each.does == "wait" and each.command is not None for each in calls)
    return Recovery(
        thread=row.name,
        standing=line.standing,
        reason=run.reason,
        step=resume_step(run, row),
        attempt=run.attempt,
        since=moment(run.updated_at),
        held_by=_holder(run) if line.standing == "running" else None,
        can_resume=line.standing != "running" and not is_done and run.parent is None and not lost,
        why_not=_why_not(run, line.standing, lost),
        calls=calls,
        answered=counts["answered"],
        again=counts["again"],
        needed=needed,
        progress=progress_of(store, row),
        command=commands.resume(row.name if run.parent is None else run.parent),
        code=_code(run, row.name),
        summary=_summary(row, run, _why_not(run, line.standing, lost), counts["answered"], counts["again"], needed),
        result=result_in(run),
        lost=tuple(lost),
    )


def _of_graph(hf: Holdfast, row: ThreadRow, graph: graphs.GraphState, default: str | None) -> Recovery:
    """Return the plan of a LangGraph graph. Its calls are those of its tools whose outcome is unknown."""
    journal = graphs.journal_of(hf, row.name)
    run = hf.context.store.run(row.position.thread)
    of_tools = recovery(hf, journal, default) if journal != row.name else None
    calls = () if of_tools is None else tuple(each for each in of_tools.calls if each.does == "decide")
    is_held, is_done = graph.status == "running", graph.status in ("completed", "idle")
    holder = None if run is None or not is_held else _holder(run)
    why_not = f"held by {holder}" if is_held else "no node is left to run" if is_done else None
    return Recovery(
        thread=row.name,
        standing=graph.status,
        reason=graph.errors[-1] if graph.errors else None,
        step=row.summary.step,
        attempt=1,
        since=graph.since,
        held_by=holder,
        can_resume=why_not is None and not graph.questions,
        why_not="an answer is missing" if graph.questions else why_not,
        calls=calls,
        answered=0,
        again=0,
        needed=len(graph.questions),
        progress=None,
        command=Commands(hf, default).resume(row.name),
        code=f'graph.invoke(None, {{"configurable": {{"thread_id": {graphs.thread_id_of(row.name)!r}}}}})',
        summary=graphs.plan_of(graph) if why_not is None else why_not,
        result=None,
        lost=() if of_tools is None else of_tools.lost,
    )


def _plan(store: Store, tools: Tools, commands: Commands, thread: ThreadRow, run: RunRow) -> list[Planned]:
    last = store.last_entry(run.thread)
    branch = branch_of(thread.position)
    rows = open_entries(store, run.thread, run.closed, last, resume_step(run, thread), branch)
    newest = {(row.step, row.key): row for row in rows}
    final = max((row.number for row in rows), default=0)
    planned: list[Planned] = []
    for row in sorted(newest.values(), key=lambda each: each.number):
        does, why = _does(tools, row, is_last=row.number == final)
        needed = _needed(commands, graphs.owner_of(store, thread.name), row) if _asks(row, does) else ()
        planned.append(
            Planned(call=call_of(row), does=does, why=why, command=needed[0] if needed else None, commands=needed)
        )
    return planned


def _does(tools: Tools, row: Entry, *, is_last: bool) -> tuple[Does, str]:
    match row.status:
        case "done":
            return "answered", "its result is recorded"
        case "given_up":
            return "answered", "the model sees that the outcome is unknown"
        case "not_done":
            return "again", "it did not happen"
        case "failed":
            if is_last or row.kind == "wait":
                return "again", "it failed, and nothing was recorded after it"
            return "answered", "the program continued after the error, so the error is raised again"
        case "asked" if row.kind == "wait":
            return "wait", "sleeping" if row.name == SLEEP else "no answer yet"
        case "asked":
            return "decide", "needs approval before it is called"
        case _ if row.kind == "child":
            return "child", "the child run is not completed"
        case _ if row.kind in ("model", "read"):
            return "again", "its result was not recorded"
        case _:
            return _in_doubt(tools, row)


def _in_doubt(tools: Tools, row: Entry) -> tuple[Does, str]:
    tool = tools.of(row.name, row.key)
    policy = tool.in_doubt if tool is not None else "rerun" if row.kind == "idempotent" else "unknown"
    match policy:
        case "rerun":
            return "again", "outcome unknown; called again with the same idempotency key"
        case "probe":
            return "again", "outcome unknown; the probe checks whether it happened, and it is called if not"
        case "give_up":
            return "answered", "outcome unknown; given up, and the model sees that"
        case "ask":
            return "decide", "Outcome unknown. Did it happen?"
        case _:
            return "decide", "Outcome unknown. Did it happen? (Declare a probe to settle this automatically.)"


def _asks(row: Entry, does: Does) -> bool:
    return does == "decide" or (does == "wait" and row.name != SLEEP)


def _needed(commands: Commands, thread: str, row: Entry) -> tuple[str, ...]:
    if row.kind == "wait":
        return (commands.answer(thread, row.name),)
    return commands.settle(thread, row.number, is_approval=row.status == "asked")


def _holder(run: RunRow) -> str | None:
    return None if run.owner is None else f"process {run.owner.pid} on {run.owner.host}"


def _why_not(run: RunRow, standing: Standing, lost: Lost) -> str | None:
    if standing == "running":
        return f"held by {_holder(run)}"
    if run.status in _ENDED:
        return "the run is completed"
    if lost:
        return "the journal is damaged; `holdfast repair` copies the readable part into a new store"
    if run.parent is not None:
        return f"a child run is resumed by its parent, {run.parent}"
    return None


def _code(run: RunRow, thread: str) -> str:
    version = "" if run.version is None else f", version={run.version!r}"
    turn = "" if run.turn is None else f", turn={run.turn!r}"
    return f"with hf.run({(thread if run.parent is None else run.parent)!r}{version}{turn}) as run:"


def _summary(row: ThreadRow, run: RunRow, why_not: str | None, answered: int, again: int, needed: int) -> str:
    if why_not is not None and run.parent is None:
        return why_not
    parts = [f"resumes after step {resume_step(run, row)}"]
    if answered:
        parts.append(f"{answered} call{'' if answered == 1 else 's'} replayed")
    if again:
        parts.append(f"{again} called again")
    if needed:
        parts.append(f"{needed} decision{'' if needed == 1 else 's'} needed first")
    if run.version is not None:
        parts.append(f"needs version {run.version}")
    return "; ".join(parts if why_not is None else [*parts, why_not])
