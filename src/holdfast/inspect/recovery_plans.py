"""Recovery: which calls a resume would replay, make again or ask a person about, and the commands to do it."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect import graphs
from holdfast.inspect.call_records import Call, call_of, open_rows
from holdfast.inspect.damage import Readable
from holdfast.inspect.references import existing
from holdfast.inspect.thread_list import ThreadStatus, thread_line
from holdfast.inspect.workers import due_of
from holdfast.runs.lease import on_clock
from holdfast.runs.open_entries import KeptCalls, is_raised_failure, place_of
from holdfast.runs.record import resume_step
from holdfast.runs.status import progress_of, result_in
from holdfast.runs.tools import Tools
from holdfast.runs.waits import SLEEP
from holdfast.stores.abilities import Addressed, BackingUp, Rewrapping
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Clock, Entry, RunRow
from holdfast.text import counted, line, stamp
from holdfast.threads.ancestry import Ancestry
from holdfast.threads.metadata import moment
from holdfast.types import Progress
from holdfast.urls import path_of

Does = Literal["answered", "again", "decide", "wait", "child"]
"""What a resume does with a call: "answered" replays it from the journal, "again" makes it again, "decide" needs a
person to decide, "wait" waits for an answer or a time, "child" resumes the child run."""

_ENDED: Final = ("completed",)
_OUTSIDE: Final = "made outside of steps, for the whole turn: "
_RAISED: Final = "its error is recorded, and raised again"
UNKNOWN: Final = "Outcome unknown. Did it happen?"


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, and what a resume would do with it: of the open step, or one outside of steps of the same turn.

    If a person must decide, `commands` are the shell commands to choose from.
    """

    call: Call
    does: Does
    why: str
    commands: tuple[str, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision for a person: a question of the run, or a call without an outcome.

    `effect` is its number in the journal, 0 for a question of a LangGraph graph, which `node` asks. `payload` is the
    payload of the question, or the arguments of the call. `error` is what the call raised. `commands` are the shell
    commands to choose from.
    """

    about: Literal["wait", "approval", "in doubt"]
    name: str
    effect: int
    payload: Any
    error: str | None
    why: str
    until: datetime | None
    commands: tuple[str, ...]
    node: str | None = None


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a run, and what a resume would do now. `step` is the step of its last checkpoint.

    `can_resume` is False if a process holds the run, if it is completed or a child run, or if its journal is damaged;
    `why_not` is the reason. `answered` and `again` count calls, `needed` the decisions. `command` and `code` resume the
    run; replace APP by the program, as module:attribute. `handler` is that of the workers that can take the run, `due`
    when it continues by itself. `result` is that of a completed run. `lost` are messages about unreadable journal
    entries.
    """

    thread: str
    status: ThreadStatus
    reason: str | None
    step: int
    attempt: int
    since: datetime
    held_by: str | None
    can_resume: bool
    why_not: str | None
    calls: tuple[PlannedCall, ...]
    decisions: tuple[Decision, ...]
    answered: int
    again: int
    needed: int
    progress: Progress | None
    command: str
    code: str
    summary: str
    handler: str | None
    due: datetime | None
    result: Any
    lost: tuple[str, ...] = ()


def recovery(hf: Holdfast, thread: str, default: str | None = None) -> RecoveryPlan | None:
    """Return the recovery plan of a thread's run; None if the thread has no run. Raises NotFound without a thread.

    Raises Damaged if the record of the run is damaged. Damaged journal entries are skipped and reported in `lost`.
    The tools of the handle declare how calls in doubt are settled. For irreversible calls of other tools, the plan
    assumes that a person decides. `default` is as for `Commands`.
    """
    row = existing(hf, thread)
    readable = Readable(hf)
    if row.summary.agent == graphs.AGENT:
        graph = readable.tried(lambda: graphs.graph_state(readable.store, row))
        if graph is not None:
            return _of_graph(hf, row, graph, default)
    run = readable.sound.run(row.position.thread)
    if run is None:
        return None
    line = thread_line(hf, row)
    is_done = run.status in _ENDED
    commands = Commands(hf, default)
    calls, decisions = ((), ()) if is_done else _plan(readable.store, hf.tools, commands, row, run)
    lost = readable.lost
    counts = {does: sum(each.does == does for each in calls) for does in ("answered", "again")}
    return RecoveryPlan(
        thread=row.name,
        status=line.status,
        reason=run.reason,
        step=resume_step(run, row),
        attempt=run.attempt,
        since=moment(run.updated_at),
        held_by=_holder(run) if line.status == "running" else None,
        can_resume=line.status != "running" and not is_done and run.parent is None and not lost,
        why_not=_why_not(run, line.status, lost),
        calls=calls,
        decisions=decisions,
        answered=counts["answered"],
        again=counts["again"],
        needed=len(decisions),
        progress=progress_of(readable.sound, row),
        command=commands.resume(row.name if run.parent is None else run.parent),
        code=_code(run, row.name),
        summary=_summary(
            row, run, _why_not(run, line.status, lost), counts["answered"], counts["again"], len(decisions)
        ),
        handler=run.handler,
        due=due_of(run, readable.sound.clock()),
        result=result_in(run),
        lost=lost,
    )


def _of_graph(hf: Holdfast, row: ThreadRow, graph: graphs.GraphState, default: str | None) -> RecoveryPlan:
    """Return the plan of a LangGraph graph. Its calls are those of its tools whose outcome is unknown."""
    journal = graphs.journal_of(hf, row.name)
    run = hf.context.store.run(row.position.thread)
    of_tools = recovery(hf, journal, default) if journal != row.name else None
    calls = () if of_tools is None else tuple(each for each in of_tools.calls if each.does == "decide")
    commands = Commands(hf, default)
    decisions = tuple(
        Decision(
            about="wait",
            name=question.id or question.node,
            effect=0,
            payload=question.value,
            error=None,
            why="no answer yet",
            until=None,
            commands=(commands.answer_graph(row.name, _name_of(question, graph)),),
            node=question.node,
        )
        for question in graph.questions
        if question.effect is None or of_tools is None
    )
    if of_tools is not None:
        decisions = (*(each for each in of_tools.decisions if each.about != "wait"), *decisions)
    is_held, is_done = graph.status == "running", graph.status in ("completed", "idle")
    holder = None if run is None or not is_held else _holder(run)
    why_not = f"held by {holder}" if is_held else "no node is left to run" if is_done else None
    return RecoveryPlan(
        thread=row.name,
        status=graph.status,
        reason=graph.errors[-1] if graph.errors else None,
        step=row.summary.step,
        attempt=1,
        since=graph.since,
        held_by=holder,
        can_resume=why_not is None and not graph.questions,
        why_not="an answer is missing" if graph.questions else why_not,
        calls=calls,
        decisions=decisions,
        answered=0,
        again=0,
        needed=len(decisions),
        progress=None,
        command=commands.resume(row.name),
        code=f'graph.invoke(None, {{"configurable": {{"thread_id": {graphs.thread_id_of(row.name)!r}}}}})',
        summary=graphs.plan_of(graph) if why_not is None else why_not,
        handler=None,
        due=None,
        result=None,
        lost=() if of_tools is None else of_tools.lost,
    )


def _name_of(question: graphs.Question, graph: graphs.GraphState) -> str:
    """Return the name by which a question can be answered: its node, if that asks nothing else, or its id."""
    is_clear = [each.node for each in graph.questions].count(question.node) == 1
    return question.node if is_clear else question.id or question.node


def _plan(
    store: Store, tools: Tools, commands: Commands, thread: ThreadRow, run: RunRow
) -> tuple[tuple[PlannedCall, ...], tuple[Decision, ...]]:
    rows = open_rows(store, thread, run, resume_step(run, thread))
    final = max((row.number for row in rows), default=0)
    kept = _kept_rows(store, thread, run, rows)
    outside = {row.number for row in kept}
    owner = graphs.owner_of(store, thread.name)
    clock = store.clock()
    planned: list[PlannedCall] = []
    decisions: list[Decision] = []
    for row in [*kept, *rows]:
        does, why = _retried(row, clock) or _does(tools, row, is_last=row.number == final)
        if row.number in outside:
            why = f"{_OUTSIDE}{_RAISED if does == 'answered' and is_raised_failure(row) else why}"
        if does == "decide" or (does == "wait" and row.name != SLEEP):
            decisions.append(decision_about(row, tools, commands, owner))
        needed = decisions[-1].commands if decisions and decisions[-1].effect == row.number else ()
        planned.append(PlannedCall(call=call_of(row), does=does, why=why, commands=needed))
    return tuple(planned), tuple(decisions)


def _kept_rows(store: Store, thread: ThreadRow, run: RunRow, open_calls: list[Entry]) -> list[Entry]:
    """Return the calls outside of steps that are answered although their step is closed, oldest first."""
    if not run.kept:
        return []
    kept = KeptCalls(store, run, lambda: Ancestry.of(store, thread.position))
    for row in open_calls:
        kept.tries.pop(place_of(row), None)
    newest = (rows[-1] for rows in kept.tries.values())
    return sorted((row for row in newest if not kept.is_undone(row)), key=lambda row: row.number)


def decision_about(row: Entry, tools: Tools, commands: Commands, thread: str) -> Decision:
    """Return the decision about a journal entry. `thread` is the one to name in commands."""
    is_question, is_approval = row.kind == "wait", row.status == "asked"
    if is_question:
        given: tuple[str, ...] = (commands.answer(thread, row.name),)
    else:
        given = commands.settle(thread, row.number, is_approval=is_approval)
    return Decision(
        about="wait" if is_question else "approval" if is_approval else "in doubt",
        name=row.name,
        effect=row.number,
        payload=None if row.call is None else msgpack.decode(row.call),
        error=row.error,
        why=_does(tools, row, is_last=False)[1],
        until=None if row.deadline is None or not is_question else moment(row.deadline.wall),
        commands=given,
    )


def _does(tools: Tools, row: Entry, *, is_last: bool) -> tuple[Does, str]:
    match row.status:
        case "done":
            return "answered", "its result is recorded"
        case "given_up":
            return "answered", "the model sees that the outcome is unknown"
        case "unstored":
            return "decide", "It happened, and its result could not be stored. What was the result?"
        case "failed" if row.kind == "wait":
            return "answered", "it was not answered in time, and WaitTimedOut is raised again"
        case "failed" | "not_done" if is_raised_failure(row) and not is_last:
            return "answered", "the program continued after the error, so the error is raised again"
        case "started" | "failed" if row.kind == "child":
            return "child", "the child run is not completed"
        case "failed":
            return "again", "it failed, and the program did not continue after the error"
        case "not_done":
            return "again", "it did not happen"
        case "asked" if row.kind == "wait":
            return "wait", "sleeping" if row.name == SLEEP else "no answer yet"
        case "asked":
            return "decide", "needs approval before it is called"
        case _ if row.kind in ("model", "read"):
            return "again", "its result was not recorded"
        case _:
            return _in_doubt(tools, row)


def _retried(row: Entry, clock: Clock) -> tuple[Does, str] | None:
    """Return what happens to a failed call that its `retry` makes again; None for another call."""
    if row.again is None or row.heard or row.status not in ("failed", "not_done"):
        return None
    again = on_clock(row.again, clock)
    when = "at once" if again.at <= clock.now else f"at {stamp(moment(again.wall))}"
    times = "once" if row.tries == 1 else f"{row.tries} times"
    return "again", f"it failed {times}, and is called again {when}"


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
            return "decide", UNKNOWN
        case _:
            return "decide", f"{UNKNOWN} (Declare a probe to settle this automatically.)"


def _holder(run: RunRow) -> str | None:
    return None if run.owner is None else f"process {run.owner.pid} on {run.owner.host}"


def _why_not(run: RunRow, status: ThreadStatus, lost: tuple[str, ...]) -> str | None:
    if status == "running":
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
    parts = [f"continues after step {resume_step(run, row)}"]
    if answered:
        parts.append(f"{counted(answered, 'call')} replayed")
    if again:
        parts.append(f"{again} called again")
    if needed:
        parts.append(f"{counted(needed, 'decision')} needed first")
    if run.version is not None:
        parts.append(f"needs version {run.version}")
    return "; ".join(parts if why_not is None else [*parts, why_not])


# -- shell commands, with the address of the store and quoted names ---------------------------------------------------


class Commands:
    """Commands for one store. The user replaces VALUE, RESULT, APP and URL.

    --store and --namespace are added only if the command would otherwise open another store. An address that may
    contain a password is written as URL.
    """

    def __init__(self, hf: Holdfast, default: str | None = None) -> None:
        """`default` is the address that a command without --store uses; None means the environment or the default."""
        self._options = [*_store(hf, default), *_namespace(hf.context.namespace)]

    def answer(self, thread: str, name: str) -> str:
        """Return the command that answers a question."""
        return self._written("answer", [thread, name, "VALUE"])

    def answer_graph(self, thread: str, name: str) -> str:
        """Return the command that answers a question of a LangGraph graph and resumes it."""
        return self._written("answer", [thread, name, "VALUE"], "--graph APP")

    def settle(self, thread: str, effect: int, *, is_approval: bool = False) -> tuple[str, str, str]:
        """Return the commands that settle a call in doubt: it happened, it did not, it cannot be found out.

        `is_approval`: the call waits for permission, so the second command allows it.
        """
        words = [thread, str(effect)]
        return (
            self._written("settle", words, "--happened RESULT"),
            self._written("settle", words, "--allow" if is_approval else "--not-done"),
            self._written("settle", words, "--give-up"),
        )

    def resume(self, thread: str) -> str:
        """Return the command that resumes a run."""
        return self._written("resume", ["APP", thread])

    def worker(self) -> str:
        """Return the command that starts a worker."""
        return self._written("worker", ["APP"])

    def _written(self, verb: str, words: list[str], *options: str) -> str:
        given, shown = [*options, *self._options], [shell_quoted(word) for word in words]
        if any(word.startswith("-") for word in words):
            return " ".join(["holdfast", verb, *given, "--", *shown])
        return " ".join(["holdfast", verb, *shown, *given])


def shell_quoted(text: str) -> str:
    """Quote a text as one shell word. Control characters are escaped in the $'…' form of bash and zsh."""
    if line(text) == text:
        return shlex.quote(text)
    spelled = "".join(_spelled(each) for each in text)
    return f"$'{spelled}'"


def option(name: str, value: str) -> str:
    """Return an option with its value, joined by "=" if the value looks like an option."""
    return f"{name}{'=' if value.startswith('-') else ' '}{shell_quoted(value)}"


def _spelled(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if line(character) == character:
        return character
    try:
        coded = character.encode("utf-8", "surrogateescape")  # undecodable bytes, as they were given
    except UnicodeEncodeError:
        coded = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in coded)


def _namespace(name: str) -> list[str]:
    return [] if name == "default" else [option("--namespace", name)]


def _store(hf: Holdfast, default: str | None) -> list[str]:
    store = hf.context.store
    underlying = store.underlying if isinstance(store, Rewrapping) else store
    if isinstance(underlying, BackingUp):
        named = default or os.environ.get("HOLDFAST_STORE") or _default()
        address = f"dir:{underlying.path}" if underlying.kind == "dir" else underlying.path
        return [] if _is_at(named, underlying.kind, underlying.path) else [option("--store", address)]
    is_named = isinstance(underlying, Addressed) and underlying.is_at(os.environ.get("HOLDFAST_STORE", ""))
    return [] if is_named else ["--store URL"]


def _is_at(address: str, kind: str, path: str) -> bool:
    """Whether an address names the store of this kind at this path."""
    with suppress(HoldfastError, OSError):
        named, where = path_of(address)
        return named == kind and os.path.realpath(where) == path
    return False


def _default() -> str:
    """Return the default path, without creating its folder."""
    import platformdirs  # noqa: PLC0415 - rarely needed

    return str(platformdirs.user_data_path("holdfast") / "holdfast.db")
