"""The page of a thread: its steps on the left, the chosen step on the right; its raw states, and its exports."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.responses import Response

from holdfast.errors import Ambiguous, Damaged, HoldfastError, InvalidArgument, NotFound
from holdfast.exporters import export_html, export_jsonl, export_markdown
from holdfast.inspect import (
    Commands,
    Step,
    Timeline,
    calls_in_words,
    calls_of,
    chat_of,
    existing,
    find,
    is_doubtful,
    is_message,
    message_in,
    messages_of,
    neighbour,
    open_calls,
    parent_of,
    recovery,
    result_words,
    seconds_to_write,
    spending,
    state_of,
    step_of,
    stories,
    thread_line,
    timeline,
    unwrapped,
    waterfall,
    words_of,
)
from holdfast.inspect.graphs import decoded
from holdfast.runs.waits import SLEEP
from holdfast.threads.diff import diff
from holdfast.types import Change, Checkpoint
from holdfast.ui.actions import offers_of_step, offers_of_thread
from holdfast.ui.content import as_json, is_internal, to_text
from holdfast.ui.drawings import call_bars, lane_drawings, spending_plots, thread_plots
from holdfast.ui.lists import with_calls
from holdfast.ui.request import PagePart, View

_ROWS: Final = 100
_AROUND: Final = 40  # newer steps that are listed above a chosen old step
_MESSAGES: Final = 30
_CHANGES_MOST: Final = 200
_EDIT_MOST: Final = 2_000_000  # characters that a browser can edit without trouble
_REASONS: Final = (
    "failed",
    "dead",
    "halted",
    "queued",
    "interrupted",
    "released",
)  # the recovery panel has the others
_EXPORTS: Final = {"markdown": "md", "html": "html", "jsonl": "jsonl"}


def thread_page(view: View) -> Response:
    """Return the page of a thread. Without `at`, the chosen step is the head, also when that moves."""
    name, ref = view.asked("name"), view.asked("at")
    existing(view.hf, name)
    if ref:
        id = _id_of(view, name, ref)
        if ref != id or view.is_packed:
            # Redirect to a permanent URL: "@-1" would name another checkpoint later.
            return view.redirect(view.same(at=id, given=None))
    before = _before(view, name)
    return view.page(
        "thread.html",
        name,
        {
            "head": PagePart("thread_head.html", lambda: _head(view, name), label="Status"),
            "recovery": PagePart("thread_recovery.html", lambda: _recovery(view, name), label="Recovery"),
            "steps": PagePart("thread_steps.html", lambda: _steps(view, name, before), label="Steps"),
            "chosen": PagePart(
                "thread_step.html", lambda: _chosen(view, name), every=0 if ref else 2.0, label="Chosen step"
            ),
            "plots": PagePart(
                "thread_plots.html",
                lambda: _plots(view, name),
                label="Figures",
                link="Show figures",
                every=0,
                is_lazy=True,
            ),
        }
        | _hidden_parts(view, name, before),
        name=name,
        done=view.asked("done"),
    )


def _hidden_parts(view: View, name: str, before: int | None) -> dict[str, PagePart]:
    """Return the parts that only scripts ask for: older steps, and the state to edit."""
    asked = view.asked("part")
    if asked == "more":
        return {"more": PagePart("thread_rows.html", lambda: _steps(view, name, before))}
    if asked == "edit":
        return {"edit": PagePart("state_edit.html", lambda: {"edit": _edit(view, _loaded(view, name))})}
    return {}


def _id_of(view: View, thread: str, ref: str) -> str:
    """Return the id of the checkpoint that a reference names. An id itself is not looked up."""
    return ref if _is_id(ref) else _named(view, thread, ref).id


def _is_id(ref: str) -> bool:
    return len(ref) == 36 and ref.count("-") == 4 and not ref.startswith("@")


def _before(view: View, name: str) -> int | None:
    """Return the seq above the listed steps. The chosen step is among them, with some newer ones."""
    asked = view.number("before", 0, 0, 2**53)
    if asked or not view.asked("at"):
        return asked or None
    with suppress(HoldfastError):
        seq = find(view.hf, f"{name}@{view.asked('at')}").checkpoint.seq
        if seq <= existing(view.hf, name).position.last - _ROWS:
            return seq + _AROUND
    return None


# -- status and recovery ----------------------------------------------------------------------------------------------


def _head(view: View, name: str) -> Mapping[str, Any]:
    line = thread_line(view.hf, existing(view.hf, name))
    found = timeline(view.hf, name, limit=0)
    origin, _, id = (found.forked_from or "").rpartition("@")
    result = None
    with suppress(Damaged):  # the recovery panel reports the damage
        run = view.hf.run_info(name)
        result = None if run is None else view.redacted(run.result)
    return {
        "name": name,
        "line": line,
        "found": found,
        "origin": (origin, id) if found.forked_from else None,
        "agent": view.told(line.agent) if line.agent else "",
        "reason": view.told(line.reason) if line.reason and line.status in _REASONS else "",
        "result": result,
        "offers": offers_of_thread(view, name),
    }


def _recovery(view: View, name: str) -> Mapping[str, Any]:
    try:
        found = recovery(view.hf, name)
    except Damaged as damage:
        return {"recovery": None, "damage": view.told(str(damage))}
    if found is None or found.status == "completed":
        return {"recovery": None, "damage": ""}
    shown = view.redacted(found)
    decisions = with_calls(view, name, shown.decisions)
    return {
        "recovery": shown,
        "decisions": decisions,
        "worker_command": Commands(view.hf).worker(),
        "lost": view.lost(found.lost),
        "damage": "",
    }


# -- steps ------------------------------------------------------------------------------------------------------------


def _steps(view: View, name: str, before: int | None) -> Mapping[str, Any]:
    found = timeline(view.hf, name, before=before, limit=_ROWS)
    told = stories(view.hf, found.steps, redacted=view.redacted, known=view.site.words)
    chosen = view.asked("at")
    return {
        "name": name,
        "found": found,
        "stories": told,
        "drawings": lane_drawings(found),
        "chosen": chosen or next((step.checkpoint.id for step in found.steps if step.is_head), ""),
        "open_step": _open_step(found),
        "spent": {step.checkpoint.seq: _spent(step) for step in found.steps},
        "newer": before is not None,
        "lost": view.lost(found.lost),
    }


def _open_step(found: Timeline) -> Mapping[str, Any] | None:
    """Return the calls after the head in words, or the open nodes of a graph, and their status; None without any."""
    nodes = () if found.graph is None else found.graph.next
    words = calls_in_words(found.open_calls) or ", ".join(nodes)
    if not words:
        return None
    calls = found.open_calls
    if found.interrupted:
        status = "✕ interrupted: the process of these calls died"
    elif any(is_doubtful(call.kind, call.status, is_held=found.is_held) for call in calls):
        status = "in doubt"
    elif any(call.status == "asked" and call.name == SLEEP for call in calls):
        status = "sleeps"
    elif any(call.status == "asked" for call in calls) or (found.graph is not None and found.graph.questions):
        status = "waits for an answer"
    elif found.graph is not None and found.graph.status == "failed":
        status = "failed"
    else:
        status = "under way" if found.is_held else "no checkpoint yet"
    return {
        "words": words,
        "status": status,
        "is_bad": found.interrupted or status == "failed",
        "is_doubtful": status in ("in doubt", "waits for an answer"),
    }


def _spent(step: Step) -> Mapping[str, Any]:
    """Return tokens and cost: totals so far if the checkpoint records them, else those of the step's calls."""
    so_far = step.checkpoint.usage
    used = [so_far] if so_far else [each.usage for each in step.calls if each.usage]
    currency = used[-1].currency if used else "USD"
    return {
        "tokens": sum(each.total or each.input + each.output for each in used),
        "cost": sum(each.cost for each in used if each.currency == currency),
        "currency": currency,
        "is_total": so_far is not None,
    }


# -- the chosen step --------------------------------------------------------------------------------------------------


def _loaded(view: View, name: str) -> Checkpoint:
    return _named(view, name, view.asked("at", "@-1"))


def _chosen(view: View, name: str) -> Mapping[str, Any]:
    stored = _loaded(view, name)
    internal = bool(view.asked("internal"))
    checkpoint = _as_seen(stored, internal=internal)
    shown = view.redacted(checkpoint)
    step = step_of(view.hf, checkpoint)
    calls = calls_of(view.hf, step)
    found = parent_of(view.hf, checkpoint)
    parent = None if found is None else state_of(view.hf, found, raw=internal)
    return {
        "step": step,
        "checkpoint": shown,
        "beside": [neighbour(view.hf, checkpoint, by) for by in (-1, 1)],
        "offers": offers_of_step(view, step),
        "edit": _edit(view, stored) if view.asked("edit") else None,
        "is_whole": _is_whole(checkpoint, shown),
        "internal": internal,
        "changes": _changes(view, shown, parent, internal=internal),
        "against": view.asked("against"),
        "chat": _chat(view, step, shown.state, parent),
        "plain": view.asked("text") == "plain",
        "calls": [view.redacted(each) for each in calls.calls],
        "waterfall": _waterfall(view, name, calls.calls),
        "lost": view.lost(calls.lost),
        "took": seconds_to_write(view.hf, checkpoint),
        "has_internal": _has_internal(stored.state),
        "load": f"hf.thread({checkpoint.thread!r}).load({checkpoint.id!r})",
    }


def _as_seen(checkpoint: Checkpoint, *, internal: bool) -> Checkpoint:
    """Return a checkpoint without the encoding of an adapter, unless that is asked for."""
    return checkpoint if internal else decoded(checkpoint)


def _is_whole(checkpoint: Checkpoint, shown: Checkpoint) -> bool:
    return shown.state is checkpoint.state and not checkpoint.lost


def _has_internal(state: Any) -> bool:
    """Whether a state has data of an adapter: keys of its own, or messages in its encoding."""
    if not isinstance(state, dict):
        return False
    firsts = [value[0] for value in state.values() if isinstance(value, list) and value]
    return any(is_internal(key) for key in state) or any(unwrapped(each) is not each for each in firsts)


def _edit(view: View, checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Return the state as text to edit, or why it cannot be edited: it is redacted, damaged or too large."""
    if not _is_whole(checkpoint, view.redacted(checkpoint)):
        return {"text": "", "why": "Parts of this state are redacted or lost, so it cannot be edited here."}
    try:
        written = to_text(checkpoint.state)
    except HoldfastError:
        return {"text": "", "why": "This state cannot be written as JSON."}
    if len(written) > _EDIT_MOST:
        return {"text": "", "why": "This state is too large to edit here."}
    return {"text": written, "why": ""}


def _changes(view: View, shown: Checkpoint, parent: Checkpoint | None, *, internal: bool) -> Mapping[str, Any] | None:
    """Return the changes since the parent or the chosen other checkpoint; None for a first checkpoint."""
    picked = view.asked("against")
    if not picked and shown.parent is None:
        return None
    other = _as_seen(_picked(view, shown.thread, picked), internal=internal) if picked else parent
    if other is None:
        return {"other": None, "changes": [], "total": 0, "hidden": 0}
    found = diff(view.redacted(other).state, shown.state).changes
    meant = [change for change in found if internal or not _is_hidden(change)]
    return {
        "other": other,
        "changes": [(change, _in_words(change, shown.state)) for change in meant[:_CHANGES_MOST]],
        "total": len(meant),
        "hidden": len(found) - len(meant),
    }


def _in_words(change: Change, state: Any) -> str:
    """Return an added message in words; "" for other changes."""
    found = messages_of(state)
    if found is None or change.kind != "added" or not change.path.startswith(f"{found[0]}["):
        return ""
    if not is_message(change.after):
        return ""
    said = message_in(change.after)
    words = [words_of(said), *(f"calls {name}" for _, name, _ in said.calls), result_words(said)]
    return f"{said.role}: {' · '.join(filter(None, words))}"


def _is_hidden(change: Change) -> bool:
    """Whether a change is of data that an adapter keeps for itself."""
    return '["$' in change.path or ".$" in change.path


def _named(view: View, thread: str, ref: str) -> Checkpoint:
    """Return the checkpoint of a thread that a reference names, as on the command line.

    Raises NotFound or Ambiguous.
    """
    missing: NotFound | None = None
    try:
        found = find(view.hf, f"{thread}@{ref.removeprefix('@')}")
        if found.thread == thread:
            return state_of(view.hf, found, raw=True)
    except Ambiguous:
        raise
    except NotFound as error:
        missing = error
    try:
        # A label may contain "@", and another thread's name may be this thread's name plus "@" and the reference.
        return view.hf.thread(thread).load(f"@{ref.removeprefix('@')}", partial=True)
    except NotFound as error:
        raise missing or error from error


def _picked(view: View, thread: str, ref: str) -> Checkpoint:
    """Return a checkpoint of this thread, or of another thread if the reference names it."""
    try:
        return _named(view, thread, ref)
    except NotFound:
        if "@" not in ref.lstrip("@"):
            raise
        return state_of(view.hf, find(view.hf, ref), raw=True)


def _chat(view: View, step: Step, state: Any, parent: Checkpoint | None) -> Mapping[str, Any] | None:
    """Return a page of messages, by default the newest; None if the state has none."""
    start = view.number("from", -_MESSAGES, -(2**53), 2**53)
    since = open_calls(view.hf, step.checkpoint.thread) if step.is_head else None
    journal = [view.redacted(each.effect) for each in since.calls] if since is not None else []
    is_held = since is not None and since.is_held
    chat = chat_of(state, start=start, limit=_MESSAGES, journal=journal, is_held=is_held)
    if chat is None:
        return None
    end = min(chat.start + _MESSAGES, chat.total)
    before = None if parent is None else messages_of(parent.state)
    known = 0 if before is None else len(before[1])  # the others are new
    new = [message for message in chat.messages if message.index >= known]
    old = [message for message in chat.messages if message.index < known]
    return {"chat": chat, "end": end, "page": _MESSAGES, "old": old, "new": new}


def _waterfall(view: View, name: str, calls: tuple[Any, ...]) -> Mapping[str, Any]:
    found = waterfall(view.hf, name, [each.call for each in calls])
    is_held = any(each.status == "under way" for each in calls)
    return {"bars": call_bars(found, is_held=is_held), "seconds": found.seconds, "left_out": found.left_out}


def _plots(view: View, name: str) -> Mapping[str, Any]:
    spent = view.redacted(spending(view.hf, name))
    return {"plots": [*thread_plots(view.hf, name), *spending_plots(spent)], "spending": spent}


# -- files ------------------------------------------------------------------------------------------------------------


def state_file(view: View) -> Response:
    """Return the state of a checkpoint as JSON text, to read or to download."""
    checkpoint = view.redacted(_named(view, view.asked("name"), view.asked("at", "@-1")))
    body = as_json(checkpoint.state).encode("utf-8", "replace")
    if not view.asked("download"):
        return Response(body, media_type="text/plain; charset=utf-8")
    # A fixed name: stored data must not choose file names on the user's machine.
    return _attachment(body, f"state-{checkpoint.seq}.json")


def export_file(view: View) -> Response:
    """Return a thread as a file: a transcript as Markdown or HTML, or everything as JSON lines."""
    name, kind = view.asked("name"), view.asked("format")
    if kind not in _EXPORTS:
        raise InvalidArgument(f"unknown format; one of {', '.join(_EXPORTS)}")
    existing(view.hf, name)
    if kind == "jsonl" and view.site.redactor.is_active:
        raise InvalidArgument("JSON lines are exported unchanged, so this web UI, which redacts, does not offer them")
    target = io.BytesIO()
    transcripts: dict[str, Callable[..., Any]] = {"markdown": export_markdown, "html": export_html}
    if kind == "jsonl":
        export_jsonl(view.hf, target, threads=[name])
    else:
        head = f"{name}@{find(view.hf, name).checkpoint.id}"
        transcripts[kind](
            view.hf, target, head, redact=view.site.redactor.text if view.site.redactor.is_active else None
        )
    return _attachment(target.getvalue(), f"thread.{_EXPORTS[kind]}")


def _attachment(body: bytes, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(body, media_type="application/octet-stream", headers=headers)
