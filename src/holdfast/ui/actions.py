"""Actions: which are possible now, and for each its plan, its confirmation, its record and its execution."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from holdfast.errors import Conflict, Damaged, HoldfastError, InvalidArgument, NotFound
from holdfast.inspect import Step, call_numbered, effects_ahead, existing, graph_actions
from holdfast.inspect.graphs import is_graph, journal_of
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome
from holdfast.runs.work_queue import requeue_of
from holdfast.threads import branches
from holdfast.threads.audit import ACTIONS, record_action
from holdfast.threads.refs import find_row
from holdfast.threads.retention import Retention
from holdfast.types import Checkpoint
from holdfast.ui.content import brief, from_text
from holdfast.ui.request import GIVEN, SEAL, View, opened, packed

_SHOWN: Final = 50
_KEEP: Final = 50
_LONG: Final = 100
_AS_SHOWN: Final = "shown"  # the form field with the digest of the plan that the user saw
_RECORDED: Final = ("thread", "id", "name", "effect", "outcome", "keep_last")  # answers and results are not

Form = dict[str, str]


# -- what is possible now ---------------------------------------------------------------------------------------------


def may_act(view: View, thread: str) -> bool:
    """Whether the web UI may change a thread. The audit log is never changed: a user could remove the evidence."""
    return view.site.may_write and thread != ACTIONS


def offers_of_thread(view: View, name: str) -> Mapping[str, Any] | None:
    """Return the actions on a whole thread, or None if the web UI may not write."""
    if not may_act(view, name):
        return None
    count = existing(view.hf, name).count
    return {
        "resume": _resumable(view, name),
        "cancel": _can_cancel(view, name),
        "prune": _can_prune(view, name, count),
        "keep": _KEEP if count > _KEEP else max(count // 2, 1),
    }


def offers_of_step(view: View, step: Step) -> Mapping[str, Any] | None:
    """Return the actions on one step, or None if the web UI may not write."""
    checkpoint = step.checkpoint
    if not may_act(view, checkpoint.thread):
        return None
    label = checkpoint.label or ""
    return {
        "rewind": not step.is_head,
        "label": _can_label(view, checkpoint),
        # A redacted label must not be submitted as the new label.
        "known_label": label if view.redacted(label) == label else "",
    }


def _can_prune(view: View, name: str, count: int) -> bool:
    """Whether a prune could delete something. For a long thread that is assumed, because the plan reads all of it."""
    with suppress(HoldfastError):
        return count > _LONG or bool(view.hf.thread(name).prune(Retention(keep_last=1), dry_run=True).removed)
    return False


class ResumePlan(NamedTuple):
    """A way to resume a run: `handler` is that of the workers that take it, `nodes` are those of a graph that run here.

    `found` is what the decision is based on. `is_first` is True for a fork, which gets its first run.
    """

    handler: str
    nodes: tuple[str, ...]
    found: object
    is_first: bool
    do: Callable[[], object]


def can_resume(view: View, thread: str) -> bool:
    return may_act(view, thread) and _resumable(view, thread) is not None


def _resumable(view: View, thread: str) -> ResumePlan | None:
    with suppress(NotFound, InvalidArgument, Conflict, Damaged):
        return _resume_plan(view, thread)
    return None


def _resume_plan(view: View, thread: str) -> ResumePlan:
    """Return how to resume the run of a thread. Raises an error that says why that is not possible."""
    graph = view.site.graph
    if graph is not None and is_graph(view.hf, thread):
        nodes = graph_actions.open_nodes(view.hf, thread)
        do = partial(graph_actions.resume_later, graph, view.hf, thread)
        return ResumePlan("", nodes, nodes, is_first=False, do=do)
    run = requeue_of(view.hf.context.store, existing(view.hf, thread))
    return ResumePlan(run.handler, (), run.found, run.is_first, run.queue)


def _can_cancel(view: View, thread: str) -> bool:
    with suppress(NotFound, Conflict, Damaged):
        _require_cancellable(view, thread)
        return True
    return False


def _require_cancellable(view: View, thread: str) -> None:
    """Raise NotFound if a thread has no run, Conflict if the run has ended."""
    run = view.hf.run_info(thread)
    if run is None:
        raise NotFound("this thread has no run to cancel")
    if run.status in ("completed", "halted"):
        raise Conflict(f"the run is {run.status}, so it cannot be cancelled")


def _can_label(view: View, checkpoint: Checkpoint) -> bool:
    with suppress(HoldfastError):
        _require_labellable(view, checkpoint)
        return True
    return False


def _require_labellable(view: View, checkpoint: Checkpoint) -> None:
    """Raise Conflict if a checkpoint cannot be labelled because its thread has a run."""
    store = view.hf.context.store
    row = existing(view.hf, checkpoint.thread)
    branches.require_run_unaffected(store, row, find_row(store, row, checkpoint))


# -- plans and their confirmation -------------------------------------------------------------------------------------


class ActionPlan(NamedTuple):
    """The plan of an action: facts for its template, and `do`, which carries it out. `thread` is shown afterwards.

    `depends` is the data the plan was made from, besides the facts. `given` are parameters to send again so that the
    same plan is made after the confirmation. `nothing` says why there is nothing to do.
    """

    thread: str
    facts: Mapping[str, Any]
    do: Callable[[], object]
    depends: object = ()
    given: Mapping[str, str | int] = MappingProxyType({})
    nothing: str = ""

    @property
    def digest(self) -> str:
        told = f"{dict(self.facts)!r}\n{self.depends!r}"
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def act(view: View, action: str) -> Response:
    """Ask for confirmation, or carry out the confirmed plan. Ask again if the plan has changed since.

    Raises NotFound for an unknown action, or if the web UI may not write.
    """
    form = opened(view.typed)
    make = _PLANS.get(action)
    if make is None or not view.site.may_write:
        raise NotFound(
            "this web UI does not offer that action; nothing was done. `holdfast ui --allow-write` lets it change the "
            "store."
        )
    if ACTIONS in (form.get("thread"), form.get("name") if action == "fork" else None):
        raise InvalidArgument(f"{ACTIONS!r} is the audit log of the web UI, which cannot change it; nothing was done")
    plan = make(view, form)
    confirmed = form.get(_AS_SHOWN)
    if confirmed != plan.digest or plan.nothing:
        return _confirmation(view, action, plan, is_changed=confirmed is not None)
    # Recorded before it is done, so that no action is unrecorded if the process dies in between.
    _record(view, action, form)
    try:
        plan.do()
    except HoldfastError as error:
        _record(view, action, form, error)
        raise
    view.site.inbox_count.expire()
    if form.get("back") == "inbox":
        return view.redirect(view.url("/", done=action))
    return view.redirect(view.url("/thread", name=plan.thread, done=action))


def _record(view: View, action: str, form: Form, failed: HoldfastError | None = None) -> None:
    """Record who did what. As `record_action`, which raises if the action must not be carried out."""
    details: dict[str, Any] = {name: form[name] for name in _RECORDED if name in form}
    if failed is not None:
        details["failed"] = type(failed).__name__
    record_action(view.hf.context, view.who, action, details, agent="holdfast ui")


def _confirmation(view: View, action: str, plan: ActionPlan, *, is_changed: bool) -> Response:
    typed = {name: value for name, value in view.typed.items() if name not in (SEAL, GIVEN, _AS_SHOWN)}
    given = {**opened({GIVEN: view.typed.get(GIVEN, "")}), **plan.given, _AS_SHOWN: plan.digest}
    form = opened(view.typed)
    return view.page(
        "plan.html",
        "Confirm",
        status=409 if is_changed else 200,
        action=action,
        plan=plan,
        is_changed=is_changed,
        typed=typed,
        given=packed(given),
        back=view.url("/") if form.get("back") == "inbox" else view.thread(form.get("thread", "")),
    )


# -- each action ------------------------------------------------------------------------------------------------------


def _fork(view: View, form: Form) -> ActionPlan:
    origin, id, name = _given(form, "thread"), _given(form, "id"), _given(form, "name")
    state: Any = from_text(form.get("state", "")) if form.get("edited") else None
    if form.get("edited") and state is None:
        raise InvalidArgument("the state is null; nothing was forked. Enter a state other than null.")
    checkpoint = view.hf.thread(origin).load(id, partial=True)

    do: Callable[[], object] = partial(view.hf.thread(origin).fork, name, at=checkpoint.id, state=state)
    if state is None and is_graph(view.hf, origin):
        do = partial(graph_actions.fork, view.hf, checkpoint, name)
    facts = {"name": name, "origin": origin, "step": checkpoint.step, "is_edited": state is not None}
    return ActionPlan(name, facts, do, checkpoint.id)


def _rewind(view: View, form: Form) -> ActionPlan:
    name, id = _given(form, "thread"), _given(form, "id")
    thread = view.hf.thread(name)
    checkpoint = thread.load(id, partial=True)
    # Read the head before the effects: if it moves after that, the rewind raises Conflict.
    head = thread.saver.refresh()
    ahead = effects_ahead(view.hf, name, checkpoint.id)

    past_effects = any(each.must_confirm for each in ahead)
    do: Callable[[], object] = partial(thread.rewind, checkpoint.id, past_effects=past_effects)
    if is_graph(view.hf, name):
        do = partial(graph_actions.rewind, view.hf, checkpoint, past_effects=past_effects)
    come_from = None if head is None else head.as_parent.step
    facts = {"thread": name, "step": checkpoint.step, "from": come_from, "ahead": ahead[:_SHOWN], "count": len(ahead)}
    return ActionPlan(name, facts, do, (checkpoint.id, None if head is None else head.position, ahead))


def _answer(view: View, form: Form) -> ActionPlan:
    thread, name = _given(form, "thread"), _given(form, "name")
    value: Any = form["text"] if "text" in form else from_text(form.get("value", ""))
    existing(view.hf, thread)
    do: Callable[[], object] = partial(view.hf.answer, thread, name, value, by=view.who)
    if is_graph(view.hf, thread):
        graph_actions.asked(view.hf, thread, name)
        do = partial(graph_actions.answer_later, view.site.graph, view.hf, thread, name, value)
    return ActionPlan(thread, {"thread": thread, "name": name, "value": brief(value)}, do)


def _settle(view: View, form: Form) -> ActionPlan:
    thread, word = _given(form, "thread"), _given(form, "effect")
    if not (word.isascii() and word.isdecimal() and len(word) < 16):
        raise InvalidArgument("effect must be the number of a call")
    outcomes: dict[str, Callable[[], Outcome]] = {
        "happened": lambda: Happened(from_text(form.get("value") or "null")),
        "not_done": NotDone,
        "give_up": GiveUp,
    }
    chosen = outcomes.get(form.get("outcome", ""))
    if chosen is None:
        raise InvalidArgument("choose an outcome: it happened, it did not happen, or it cannot be found out")
    outcome = chosen()
    existing(view.hf, thread)
    call = call_numbered(view.hf, thread, int(word))

    do = partial(view.hf.settle, journal_of(view.hf, thread), int(word), outcome, view.who)
    facts = {
        "thread": thread,
        "number": word,
        "tool": "" if call is None else call.call.name,
        "is_permission": call is not None and call.effect.status == "asked",
        "outcome": form["outcome"],
        "result": brief(outcome.result) if isinstance(outcome, Happened) else "",
    }
    return ActionPlan(thread, facts, do)


def _cancel(view: View, form: Form) -> ActionPlan:
    thread, reason = _given(form, "thread"), _given(form, "reason")
    _require_cancellable(view, thread)
    do = partial(view.hf.cancel, thread, f"{reason} ({view.who})")
    return ActionPlan(thread, {"thread": thread, "reason": reason}, do)


def _resume(view: View, form: Form) -> ActionPlan:
    thread = _given(form, "thread")
    run = _resume_plan(view, thread)
    facts = {"thread": thread, "handler": run.handler, "nodes": ", ".join(run.nodes), "is_first": run.is_first}
    return ActionPlan(thread, facts, run.do, run.found)


def _label(view: View, form: Form) -> ActionPlan:
    thread, id, label = _given(form, "thread"), _given(form, "id"), _given(form, "label")
    checkpoint = view.hf.thread(thread).load(id, partial=True)
    _require_labellable(view, checkpoint)
    do = partial(branches.named, view.hf.context, thread, checkpoint, label=label)
    nothing = "The step already has this label." if label == checkpoint.label else ""
    facts = {"thread": thread, "step": checkpoint.step, "label": label}
    return ActionPlan(thread, facts, do, checkpoint.id, nothing=nothing)


def _prune(view: View, form: Form) -> ActionPlan:
    thread, word = _given(form, "thread"), _given(form, "keep_last")
    if not (word.isascii() and word.isdecimal() and len(word) < 10):
        raise InvalidArgument("the number of checkpoints to keep must be a whole number")
    last = existing(view.hf, thread).position.last
    newest = form.get("newest", "")
    newest = newest if newest.isascii() and newest.isdecimal() and len(newest) < 18 else str(last)
    # Checkpoints saved since the plan was shown are kept in addition, so that exactly the shown ones are deleted.
    retention = Retention(keep_last=int(word) + max(last - int(newest), 0))
    removed = view.hf.thread(thread).prune(retention, dry_run=True).removed
    do = partial(view.hf.thread(thread).prune, retention)
    steps = ", ".join(str(each.step) for each in removed[:_SHOWN]) + (" …" if removed[_SHOWN:] else "")
    facts = {"thread": thread, "keep": int(word), "count": len(removed), "steps": steps}
    nothing = "" if removed else "No checkpoint would be deleted."
    return ActionPlan(thread, facts, do, [each.id for each in removed], {"newest": newest}, nothing)


def _given(form: Form, name: str) -> str:
    value = form.get(name, "")
    if not value:
        raise InvalidArgument(f"the field “{name.replace('_', ' ')}” is empty; nothing was done")
    return value


_PLANS: Final[dict[str, Callable[[View, Form], ActionPlan]]] = {
    "fork": _fork,
    "rewind": _rewind,
    "answer": _answer,
    "settle": _settle,
    "cancel": _cancel,
    "prune": _prune,
    "resume": _resume,
    "label": _label,
}
