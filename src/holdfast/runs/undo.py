"""Undo the effects of a thread's calls after a checkpoint, for `hf.undo`."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Conflict, NotFound, ToolNotDone
from holdfast.redaction import Redaction
from holdfast.runs.journal import CALL_REDACTED, RESULT_REDACTED
from holdfast.runs.lease import now
from holdfast.runs.record import DOUBTFUL, MAX_RACES, awaited_entries, effect_of, is_free, queued, text_of
from holdfast.runs.results import restored_result
from holdfast.runs.tools import Tool, Tools, takes, takes_key
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, EntryStatus, RunRow
from holdfast.text import quoted
from holdfast.threads import scan
from holdfast.threads.effects import Action, Ended, actions_ahead
from holdfast.types import Effect


def undo(
    store: Store, tools: Tools, thread: ThreadRow, to: CheckpointRow, namespace: str, redaction: Redaction
) -> list[Effect]:
    """Undo the calls of a thread and its children after a checkpoint, newest first; return the entries that record it.

    Conflict, with nothing undone, if an irreversible call has no `undo` or is in doubt, or if a process holds the run.
    Idempotent calls without `undo`, and calls that were given up, stay as they are. After a crash, call it again to
    undo the rest.
    """
    run = store.run(thread.position.thread)
    if run is None:
        raise NotFound(
            f"thread {quoted(thread.name)} never had a run; there is nothing to undo, and nothing was changed"
        )
    ahead = actions_ahead(store, thread, to)
    plan: list[tuple[Action, Tool]] = []
    for action in reversed(ahead):
        if isinstance(action, Action) and action.outcome.status != "given_up":
            tool = _tool_of(store, tools, action)
            if tool is not None:
                _free_run(store, action.thread, is_first=True)
                plan.append((action, tool))
    planned = [action for action, _ in plan]
    # The results of children first: until these entries have ended, no parent resumes with such a result.
    forgotten = [
        (ended.thread, _intent(store, ended))
        for ended in ahead
        if isinstance(ended, Ended) and (ended.is_undone_in_part or any(action in planned for action in ended.below))
    ]
    undone = [_undo(store, action, tool, namespace, redaction) for action, tool in plan]
    for parent, entry in forgotten:
        _end(store, parent, replace(entry, status="done"))
    return undone


def _tool_of(store: Store, tools: Tools, action: Action) -> Tool | None:
    thread, row = action.thread, action.outcome
    if row.status in DOUBTFUL:
        raise Conflict(
            f"thread {quoted(thread.name)}: {row.name} (call {row.number}) is in doubt; nothing was undone. "
            "Settle it with hf.settle first."
        )
    tool = tools.of(row.name, row.key)
    if tool is not None and tool.undo is not None:
        needed = CALL_REDACTED | (RESULT_REDACTED if takes(tool.undo, "result") else 0)
        redacted = _made(store, action).redacted & CALL_REDACTED | row.redacted & RESULT_REDACTED
        if redacted & needed:
            raise Conflict(
                f"thread {quoted(thread.name)}: the record of {row.name} (call {row.number}) was redacted, and its "
                "undo= needs the original; nothing was undone. Undo it by hand."
            )
        return tool
    if row.kind == "irreversible":
        missing = "is not among the tools" if tool is None else "has no undo="
        raise Conflict(
            f"thread {quoted(thread.name)}: {row.name} {missing}, so call {row.number} cannot be undone; nothing was "
            "undone. Declare undo= for the tool and pass it in tools= of holdfast.open, or undo the call by hand."
        )
    return None


def _made(store: Store, action: Action) -> Entry:
    """The entry of the call that acted. The outcome may be of a later call of the same act, which got its result."""
    row = action.outcome
    while row.act is not None and row.status == "done" and 0 < row.matches < row.number and not row.matches_thread:
        [earlier] = store.entries(action.thread.position.thread, after=row.matches - 1, limit=1)
        if earlier.act != row.act or earlier.status != "done":
            break  # a call in doubt, which this one has repeated
        row = earlier
    return row


def _undo(store: Store, action: Action, tool: Tool, namespace: str, redaction: Redaction) -> Effect:
    thread, row, made = action.thread, action.outcome, _made(store, action)
    run, entry = _start(store, action, made)
    run_id = msgspec.msgpack.encode((namespace, thread.name, run.created_at))
    given: dict[str, Any] = {} if made.call is None else msgpack.decode(made.call)
    function = tool.undo or tool.function
    if takes(function, "result"):
        result = None if row.result is None else msgpack.decode(row.result)
        given["result"] = result if row.result is None else restored_result(row, result, tool.resolved().result)
    if takes_key(function):
        given["idempotency_key"] = hashlib.sha256(run_id + entry.key.encode()).hexdigest()
    try:
        result = function(**given)
        msgpack.check(result, is_state=False)
        ended = replace(entry, status="done", result=msgpack.encode(redaction.copy(result)))
    except BaseException as error:
        is_not_done = isinstance(error, (ToolNotDone, *tool.not_done))
        status: EntryStatus = "not_done" if is_not_done else "in_doubt"
        _end(store, thread, replace(entry, status=status, error=text_of(error, redaction)))
        raise
    return effect_of(_end(store, thread, ended))


def _start(store: Store, action: Action, made: Entry) -> tuple[RunRow, Entry]:
    """Write the intent. Conflict if the thread is being run, or if it is unknown whether the call was undone."""
    thread, row = action.thread, action.entry
    number = thread.position.thread
    last = store.last_entry(number)
    run = _free_run(store, thread)
    if any(known.status in DOUBTFUL for known in scan.entries(store, number, topic=action.topic)):
        raise Conflict(
            f"thread {quoted(thread.name)}: an earlier hf.undo of {row.name} (call {row.number}) has no recorded "
            "outcome; nothing more was undone. Settle that undo with hf.settle, then call hf.undo again."
        )
    entry = replace(_entry(row, action.topic, "started"), number=last + 1)
    entry = replace(entry, arguments=made.arguments, call=made.call, redacted=made.redacted & CALL_REDACTED)
    # With its number and `run`, the store refuses the entry if another process wrote or claimed meanwhile.
    store.post(number, entry, run=run)
    return run, entry


def _intent(store: Store, ended: Ended) -> Entry:
    """The entry which says that the result of a child is being undone. An earlier call may have left one."""
    number = ended.thread.position.thread
    for known in scan.entries(store, number, topic=ended.topic):
        if known.status in DOUBTFUL:
            return known
    entry = _entry(ended.entry, ended.topic, "started")
    entry = replace(entry, number=store.last_entry(number) + 1)
    store.post(number, entry, run=_free_run(store, ended.thread))
    return entry


def _free_run(store: Store, thread: ThreadRow, *, is_first: bool = False) -> RunRow:
    """The run of a thread. Conflict if a process holds it; the error says whether calls may have been undone."""
    run = store.run(thread.position.thread)
    if run is None or not is_free(store, run):
        nothing = "nothing" if is_first else "nothing more"
        raise Conflict(
            f"thread {quoted(thread.name)} is being run; {nothing} was undone. Call hf.undo when the run has ended, "
            "or end it with hf.cancel."
        )
    return run


def _entry(row: Entry, topic: str, status: EntryStatus) -> Entry:
    return Entry(
        branch=row.branch,
        step=row.step,
        key=topic,
        name=row.name,
        kind="undo",
        status=status,
        arguments=row.arguments,
        fence=0,
        started_at=now(),
        call=row.call,
        redacted=row.redacted & CALL_REDACTED,
        matches=row.number,
        topic=topic,
    )


def _end(store: Store, thread: ThreadRow, ended: Entry) -> Entry:
    """Record the outcome of an undo. A run that waits for it is queued."""
    number, ended = thread.position.thread, replace(ended, ended_at=now())
    for _ in range(MAX_RACES):
        run = store.run(number)
        [known] = store.entries(number, after=ended.number - 1, limit=1)
        is_awaited = run is not None and ended.number in awaited_entries(run)
        then = queued(run) if run is not None and is_awaited and ended.status not in DOUBTFUL else None
        try:
            store.post(
                number, ended, status="in_doubt" if known.status == "in_doubt" else "started", run=run, then=then
            )
        except Conflict:
            if known.status not in DOUBTFUL:
                raise
            continue  # the run was claimed, renewed or ended meanwhile
        return ended
    raise Conflict(
        f"the run of thread {quoted(thread.name)} changed on every attempt, so the outcome of the undo of "
        f"{ended.name} was not recorded. Settle call {ended.number} with hf.settle, then call hf.undo again."
    )
