"""What a resume of a run would do now: which calls are answered from the journal, made again, or need somebody."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.handle import Holdfast
from holdfast.looking.calls import Call, call_of
from holdfast.looking.commands import Commands
from holdfast.looking.nearest import existing
from holdfast.looking.threads import Standing, thread_line
from holdfast.looking.whole import Lost, whole
from holdfast.runs.journal import open_entries
from holdfast.runs.status import progress_of
from holdfast.runs.tools import Tools
from holdfast.runs.waits import SLEEP
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.running import EffectRow, RunRow
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import moment
from holdfast.types import Progress

Does = Literal["answered", "again", "decide", "wait", "child"]
"""What a resume does with a call: it is answered from the journal, made again, needs somebody to decide what became of
it, waits for an answer or a time, or goes on with a child."""

_ENDED: Final = ("completed",)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the open step, and what a resume would do with it.

    `commands` are those of which a person has to give one, where somebody is needed; `command` is the first of them.
    """

    call: Call
    does: Does
    why: str
    command: str | None
    commands: tuple[str, ...]


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands, and what a resume would do now. `step` is that of its last checkpoint.

    `can_resume` is False where somebody holds it, it is completed, or its journal is damaged; `why_not` says so.
    `answered`, `again` and `needed` count its calls. `command` and `code` are what goes on with it; APP stands for the
    program, as module:attribute. `lost` are sentences about entries of the journal that cannot be read.
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
    lost: tuple[str, ...] = ()


def recovery(hf: Holdfast, thread: str) -> Recovery | None:
    """What a resume of a thread's run would do now; None if the thread has no run. NotFound if there is no thread.

    Damaged if the record of the run is; of the journal, what is whole is told, and what is `lost`.
    The tools of the handle say what is done with calls in doubt; of others that are irreversible it is assumed that
    somebody is asked.
    """
    row = existing(hf, thread)
    store = hf._session.store
    run = store.run(row.position.thread)
    if run is None:
        return None
    line = thread_line(hf, row)
    is_done = run.status in _ENDED
    lost: Lost = {}
    commands = Commands(hf)
    calls = () if is_done else tuple(_plan(whole(store, lost), hf._tools, commands, row, run))
    counts = {does: sum(each.does == does for each in calls) for does in ("answered", "again", "decide", "wait")}
    needed = counts["decide"] + sum(each.does == "wait" and each.command is not None for each in calls)
    return Recovery(
        thread=row.name,
        standing=line.standing,
        reason=run.reason,
        step=row.summary.step,
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
        lost=tuple(lost),
    )


def _plan(store: Store, tools: Tools, commands: Commands, thread: ThreadRow, run: RunRow) -> list[Planned]:
    last = store.last_effect(run.thread)
    branch = branch_of(thread.position)
    rows = open_entries(store, run.thread, run.closed, last, thread.summary.step, branch)
    newest = {(row.step, row.key): row for row in rows}
    final = max((row.number for row in rows), default=0)
    planned: list[Planned] = []
    for row in sorted(newest.values(), key=lambda each: each.number):
        does, why = _does(tools, row, is_last=row.number == final)
        needed = _needed(commands, thread.name, row) if _asks(row, does) else ()
        planned.append(
            Planned(call=call_of(row), does=does, why=why, command=needed[0] if needed else None, commands=needed)
        )
    return planned


def _does(tools: Tools, row: EffectRow, *, is_last: bool) -> tuple[Does, str]:
    match row.status:
        case "done":
            return "answered", "its result is recorded"
        case "given_up":
            return "answered", "the model is told that the outcome is unknown"
        case "not_done":
            return "again", "nothing had happened"
        case "failed":
            if is_last or row.kind == "wait":
                return "again", "it failed, and nothing was recorded after it"
            return "answered", "the program went on from its failure, which is raised again"
        case "asked" if row.kind == "wait":
            return "wait", "sleeps until its time has come" if row.name == SLEEP else "nobody has answered"
        case "asked":
            return "decide", "somebody is asked before it is called"
        case _ if row.kind == "child":
            return "child", "its child goes on"
        case _ if row.kind in ("model", "read"):
            return "again", "its result was not recorded"
        case _:
            return _in_doubt(tools, row)


def _in_doubt(tools: Tools, row: EffectRow) -> tuple[Does, str]:
    tool = tools.get(row.name)
    policy = tool.in_doubt if tool is not None else "rerun" if row.kind == "idempotent" else "unknown"
    match policy:
        case "rerun":
            return "again", "in doubt; called again, with the same idempotency key"
        case "probe":
            return "again", "in doubt; its probe is asked whether it happened, and it is called if not"
        case "give_up":
            return "answered", "in doubt; given up, the model is told that the outcome is unknown"
        case "ask":
            return "decide", "in doubt; somebody has to say what became of it"
        case _:
            return "decide", "in doubt; somebody has to say what became of it, unless its tool declares a probe"


def _asks(row: EffectRow, does: Does) -> bool:
    return does == "decide" or (does == "wait" and row.name != SLEEP)


def _needed(commands: Commands, thread: str, row: EffectRow) -> tuple[str, ...]:
    if row.kind == "wait":
        return (commands.answer(thread, row.name),)
    return commands.settle(thread, row.number)


def _holder(run: RunRow) -> str | None:
    return None if run.owner is None else f"process {run.owner.pid} on {run.owner.host}"


def _why_not(run: RunRow, standing: Standing, lost: Lost) -> str | None:
    if standing == "running":
        return f"it is being run by {_holder(run)}"
    if run.status in _ENDED:
        return "it is completed"
    if lost:
        return "its journal is damaged: `holdfast repair` makes a store of what is whole"
    if run.parent is not None:
        return f"it is a child, and goes on with its parent, {run.parent}"
    return None


def _code(run: RunRow, thread: str) -> str:
    version = "" if run.version is None else f", version={run.version!r}"
    turn = "" if run.turn is None else f", turn={run.turn!r}"
    return f"with hf.run({(thread if run.parent is None else run.parent)!r}{version}{turn}) as run:"


def _summary(row: ThreadRow, run: RunRow, why_not: str | None, answered: int, again: int, needed: int) -> str:
    if why_not is not None and run.parent is None:
        return why_not
    parts = [f"goes on after step {row.summary.step}"]
    if answered:
        parts.append(f"{answered} call{'' if answered == 1 else 's'} answered from the journal")
    if again:
        parts.append(f"{again} made again")
    if needed:
        parts.append(f"{needed} need{'s' if needed == 1 else ''} somebody's answer first")
    if run.version is not None:
        parts.append(f"needs version {run.version}")
    return "; ".join(parts if why_not is None else [*parts, why_not])
