"""Undoing: taking back, by what the tools themselves offer, what a thread did after a checkpoint. Never by itself."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Conflict, NotFound, ToolNotDone
from holdfast.redaction import Redaction
from holdfast.runs.claiming import is_free
from holdfast.runs.journal import CALL_REDACTED, RESULT_REDACTED, now, text_of
from holdfast.runs.recovery import effect_of
from holdfast.runs.tools import Tool, Tools, takes, takes_key
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.running import EffectRow, EffectStatus, RunRow
from holdfast.text import shown
from holdfast.threads.effects import Deed, Ended, deeds_ahead
from holdfast.types import Effect

_DOUBTFUL = ("begun", "in_doubt", "unstored")


def undo(
    store: Store, tools: Tools, thread: ThreadRow, to: CheckpointRow, namespace: str, redaction: Redaction
) -> list[Effect]:
    """Undo what a thread and its children did after a checkpoint, newest first; the entries of the undoing.

    Conflict, with nothing undone, if something irreversible has no `undo`, is in doubt, or the thread is being run.
    What is idempotent and has none is left as it is, and so is what was given up: nobody knows whether it happened.
    Called again after a crash, it goes on where it stopped.
    """
    run = store.run(thread.position.thread)
    if run is None:
        raise NotFound(f"thread {shown(thread.name)} never had a run; there is nothing to undo")
    ahead = deeds_ahead(store, thread, to)
    plan: list[tuple[Deed, Tool]] = []
    for deed in reversed(ahead):
        if isinstance(deed, Deed) and deed.outcome.status != "given_up":
            tool = _tool_of(tools, deed)
            if tool is not None:
                _run_to_undo(store, deed.thread)
                plan.append((deed, tool))
    planned = [deed for deed, _ in plan]
    undone = [_undo(store, deed, tool, namespace, redaction) for deed, tool in plan]
    for ended in ahead:
        if isinstance(ended, Ended) and (ended.is_undone_in_part or any(deed in planned for deed in ended.below)):
            _forget(store, ended)
    return undone


def _tool_of(tools: Tools, deed: Deed) -> Tool | None:
    thread, row = deed.thread, deed.outcome
    if row.status in _DOUBTFUL:
        raise Conflict(
            f"thread {shown(thread.name)}: effect {row.number}, {row.name}, is in doubt; hf.settle it before undoing"
        )
    tool = tools.get(row.name)
    if tool is not None and tool.undo is not None:
        needed = CALL_REDACTED | (RESULT_REDACTED if takes(tool.undo, "result") else 0)
        if row.redacted & needed:
            raise Conflict(
                f"thread {shown(thread.name)}: what was recorded of effect {row.number}, {row.name}, was redacted, and "
                "its undo= would need it as it was; take it back by hand"
            )
        return tool
    if row.kind == "irreversible":
        missing = "is not among the tools" if tool is None else "has no undo="
        raise Conflict(f"thread {shown(thread.name)}: {row.name} {missing}, so effect {row.number} cannot be undone")
    return None


def _undo(store: Store, deed: Deed, tool: Tool, namespace: str, redaction: Redaction) -> Effect:
    thread, row = deed.thread, deed.outcome
    run, entry = _begin(store, deed)
    identity = msgspec.msgpack.encode((namespace, thread.name, run.created_at))
    given: dict[str, Any] = {} if row.call is None else msgpack.decode(row.call)
    function = tool.undo or tool.function
    if takes(function, "result"):
        given["result"] = None if row.result is None else msgpack.decode(row.result)
    if takes_key(function):
        given["idempotency_key"] = hashlib.sha256(identity + entry.key.encode()).hexdigest()
    try:
        result = function(**given)
        msgpack.check(result)
        ended = replace(entry, status="done", result=msgpack.encode(redaction.value(result)))
    except BaseException as error:
        is_undone: EffectStatus = "not_done" if isinstance(error, (ToolNotDone, *tool.not_done)) else "in_doubt"
        _end(store, thread, replace(entry, status=is_undone, error=text_of(error, redaction)))
        raise
    return effect_of(_end(store, thread, ended))


def _begin(store: Store, deed: Deed) -> tuple[RunRow, EffectRow]:
    """Write the intent. Conflict if the thread is being run, or is undone by somebody else, or was and nobody knows."""
    thread, row = deed.thread, deed.entry
    number = thread.position.thread
    last = store.last_effect(number)
    run = _run_to_undo(store, thread)
    if any(known.status in _DOUBTFUL for known in store.marked(number, deed.mark)):
        raise Conflict(
            f"thread {shown(thread.name)}: nobody knows whether effect {row.number}, {row.name}, was undone; "
            "hf.settle that, then undo again"
        )
    entry = _undoing(row, deed.mark, "begun")
    # By `last` and `run`: whoever wrote or claimed since then may be doing the same.
    return run, replace(entry, number=store.tell(number, entry, last=last, run=run))


def _forget(store: Store, ended: Ended) -> None:
    """A child's effects were undone: the result that speaks of them is not given to its parent again."""
    number = ended.thread.position.thread
    entry = replace(_undoing(ended.entry, ended.mark, "done"), ended_at=now())
    store.tell(number, entry, last=store.last_effect(number), run=_run_to_undo(store, ended.thread))


def _run_to_undo(store: Store, thread: ThreadRow) -> RunRow:
    run = store.run(thread.position.thread)
    if run is None or not is_free(store, run):
        raise Conflict(f"thread {shown(thread.name)} is being run; undo when that has ended, or hf.cancel it")
    return run


def _undoing(row: EffectRow, mark: str, status: EffectStatus) -> EffectRow:
    return EffectRow(
        branch=row.branch,
        step=row.step,
        key=mark,
        name=row.name,
        kind="undo",
        status=status,
        arguments=row.arguments,
        fence=0,
        begun_at=now(),
        call=row.call,
        redacted=row.redacted & CALL_REDACTED,
        matches=row.number,
        mark=mark,
    )


def _end(store: Store, thread: ThreadRow, ended: EffectRow) -> EffectRow:
    ended = replace(ended, ended_at=now())
    store.settle(thread.position.thread, ended.number, "begun", ended)
    return ended
