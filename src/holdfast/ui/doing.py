"""Actions of the web UI: show a plan, ask for confirmation, record the action, carry it out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.looking.ahead import Ahead, effects_ahead
from holdfast.looking.nearest import existing
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome
from holdfast.threads.branches import named
from holdfast.threads.retention import Retention
from holdfast.ui import offering
from holdfast.ui.addresses import GIVEN, opened
from holdfast.ui.guard import SEAL
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.recording import record, require_not_the_record
from holdfast.ui.values import brief, from_text
from holdfast.ui.view import View, hidden
from holdfast.ui.words import plural

_SHOWN: Final = 50
_AS_SHOWN: Final = "shown"  # the form field with the digest of the plan that the user saw

Form = dict[str, str]


class Plan(NamedTuple):
    """The plan of an action: a description, and `do`, which carries it out and returns the URL to redirect to.

    `depends` is the data the plan was made from, besides the description. `given` are parameters to send again so that
    the same plan is made after the confirmation.
    """

    said: Child
    do: Callable[[], str]
    depends: object = ()
    given: Mapping[str, str | int] = MappingProxyType({})

    @property
    def mark(self) -> str:
        told = f"{joined(self.said)}\n{self.depends!r}"
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]


Doing = Callable[[View, Form], Plan]
"""Makes a plan from a form."""


def act(view: View, action: str) -> Response:
    """Ask for confirmation, or carry out the confirmed plan. Ask again if the plan has changed since.

    Raises NotFound for an unknown action, or if the web UI may not write.
    """
    form = opened(view.typed)
    doing = _DOINGS.get(action)
    if doing is None or not view.site.may_write:
        raise NotFound(
            "this web UI does not offer that action; nothing was done. `holdfast ui --allow-write` lets it change the "
            "store."
        )
    require_not_the_record(form.get("thread"), form.get("name") if action == "fork" else None)
    plan = doing(view, form)
    confirmed = form.get(_AS_SHOWN)
    if confirmed != plan.mark:
        return _confirm(view, action, plan, is_changed=confirmed is not None)
    # Recorded before it is done, so that no action is unrecorded if the process dies in between.
    record(view.hf, view.who, action, form)
    try:
        there = plan.do()
    except HoldfastError as error:
        record(view.hf, view.who, action, form, error)
        raise
    return Response(status_code=303, headers={"Location": there})


def _confirm(view: View, action: str, plan: Plan, *, is_changed: bool) -> Response:
    typed = {name: value for name, value in view.typed.items() if name not in (SEAL, GIVEN, _AS_SHOWN)}
    given: dict[str, str | int] = {**opened({GIVEN: view.typed.get(GIVEN, "")}), **plan.given, _AS_SHOWN: plan.mark}
    button = tag("button", "Confirm", type="submit", class_="sure", autofocus=True)
    sure = view.form(action, [hidden(name, value) for name, value in typed.items()], button, **given)
    back = tag("a", "Back", href=view.thread(opened(view.typed).get("thread", "")))
    changed = "The thread has changed since you were asked, so nothing was done. This is the new plan:"
    return view.page(
        "Confirm",
        tag("h1", "Confirm"),
        tag("p", changed, class_="bad", role="alert") if is_changed else None,
        tag("div", plan.said, class_="panel said"),
        tag("div", sure, back, class_="between"),
        status=409 if is_changed else 200,
    )


# -- each action -------------------------------------------------------------------------------------------------------


def _fork(view: View, form: Form) -> Plan:
    origin, id, name = _given(form, "thread"), _given(form, "id"), _given(form, "name")
    state: Any = from_text(form.get("state", "")) if form.get("edited") else None
    if form.get("edited") and state is None:
        raise InvalidArgument("the state is null; nothing was forked. Enter a state other than null.")
    checkpoint = view.hf.thread(origin).load(id, partial=True)
    how = "with your edited state" if state is not None else "with its state unchanged"
    said = tag(
        "p",
        "A new thread ",
        tag("b", line(name)),
        f" is forked from step {checkpoint.step} of ",
        tag("b", line(origin)),
        f", {how}.",
    )

    def do() -> str:
        view.hf.thread(origin).fork(name, at=checkpoint.id, state=state)
        return view.thread(name)

    return Plan(said, do, checkpoint.id)


def _rewind(view: View, form: Form) -> Plan:
    name, id = _given(form, "thread"), _given(form, "id")
    thread = view.hf.thread(name)
    checkpoint = thread.load(id, partial=True)
    # Read the head before the effects: if it moves after that, the rewind raises Conflict.
    head = thread.saver.refresh()
    ahead = effects_ahead(view.hf, name, checkpoint.id)
    come_from = "" if head is None else f" from step {head.as_parent.step}"
    said = joined(
        tag("p", "The head of ", tag("b", line(name)), f" moves{come_from} to step {checkpoint.step}."),
        tag("p", "Nothing is deleted.", class_="dim"),
        _effects_ahead(ahead),
    )

    def do() -> str:
        thread.rewind(checkpoint.id, past_effects=any(each.must_confirm for each in ahead))
        return view.thread(name)

    return Plan(said, do, (checkpoint.id, None if head is None else head.position, ahead))


def _effects_ahead(ahead: list[Ahead]) -> Html:
    if not ahead:
        return tag("p", "No effects were recorded after that step.", class_="dim")
    items = [
        tag("li", tag("b", line(each.name)), f" call {each.number}, {each.effect}, {each.status.replace('_', ' ')}")
        for each in ahead[:_SHOWN]
    ]
    more = tag("li", f"… {len(ahead) - _SHOWN} more") if ahead[_SHOWN:] else None
    title = f"{plural(len(ahead), 'effect')} recorded after that step. The rewind does not undo:"
    return tag("div", tag("p", title, class_="bad"), tag("ul", items, more))


def _answer(view: View, form: Form) -> Plan:
    thread, name = _given(form, "thread"), _given(form, "name")
    value = from_text(form.get("value", ""))
    existing(view.hf, thread)
    said = tag(
        "p",
        "The question ",
        tag("b", line(name)),
        " of ",
        tag("b", line(thread)),
        " is answered: ",
        tag("code", brief(value)),
    )

    def do() -> str:
        view.hf.answer(thread, name, value, by=view.who)
        return view.thread(thread)

    return Plan(said, do)


def _settle(view: View, form: Form) -> Plan:
    thread, word = _given(form, "thread"), _given(form, "effect")
    if not (word.isascii() and word.isdecimal() and len(word) < 16):
        raise InvalidArgument("effect must be the number of a call")
    outcomes: dict[str, Callable[[], Outcome]] = {
        "happened": lambda: Happened(from_text(form.get("value", "null"))),
        "not_done": NotDone,
        "give_up": GiveUp,
    }
    chosen = outcomes.get(form.get("outcome", ""))
    if chosen is None:
        raise InvalidArgument("choose an outcome: it happened, it did not happen, or it cannot be found out")
    outcome = chosen()
    existing(view.hf, thread)
    words = {
        "happened": "it happened",
        "not_done": "it did not happen, and is called on resume",
        "give_up": "it cannot be found out, and the model sees that",
    }
    result = joined(" Its result: ", tag("code", brief(outcome.result))) if isinstance(outcome, Happened) else None
    said = tag("p", f"Call {word} of ", tag("b", line(thread)), f" is settled: {words[form['outcome']]}.", result)

    def do() -> str:
        view.hf.settle(thread, int(word), outcome)
        return view.thread(thread)

    return Plan(said, do)


def _cancel(view: View, form: Form) -> Plan:
    thread, reason = _given(form, "thread"), _given(form, "reason")
    offering.cancellable(view, thread)
    said = tag(
        "p",
        "The run of ",
        tag("b", line(thread)),
        " is halted: at once if no process holds it, otherwise at its next call.",
    )

    def do() -> str:
        view.hf.cancel(thread, f"{reason} ({view.who})")
        return view.thread(thread)

    return Plan(said, do)


def _resume(view: View, form: Form) -> Plan:
    thread = _given(form, "thread")
    run = offering.resumable(view, thread)
    said = tag(
        "p", "The run of ", tag("b", line(thread)), f" is queued for any worker with the handler {line(run.handler)}."
    )

    def do() -> str:
        run.queue()
        return view.thread(thread)

    return Plan(said, do, run.stands)


def _label(view: View, form: Form) -> Plan:
    thread, id, label = _given(form, "thread"), _given(form, "id"), _given(form, "label")
    checkpoint = view.hf.thread(thread).load(id, partial=True)
    offering.labellable(view, checkpoint)
    said = joined(
        tag("p", f"Step {checkpoint.step} of ", tag("b", line(thread)), " is labelled ", tag("b", line(label)), "."),
        tag("p", "Checkpoints are immutable, so the label goes to a new checkpoint with the same state.", class_="dim"),
    )

    def do() -> str:
        made = named(view.hf.context, thread, checkpoint, label=label)
        return view.step(thread, made.id)

    return Plan(said, do, checkpoint.id)


def _prune(view: View, form: Form) -> Plan:
    thread, word = _given(form, "thread"), _given(form, "keep_last")
    if not (word.isascii() and word.isdecimal() and len(word) < 10):
        raise InvalidArgument("the number of checkpoints to keep must be a whole number")
    last = existing(view.hf, thread).position.last
    newest = form.get("newest", "")
    newest = newest if newest.isascii() and newest.isdecimal() and len(newest) < 18 else str(last)
    # Checkpoints saved since the plan was shown are kept in addition, so that exactly the shown ones are deleted.
    retention = Retention(keep_last=int(word) + max(last - int(newest), 0))
    plan = view.hf.thread(thread).prune(retention, dry_run=True)
    steps = ", ".join(str(each.step) for each in plan.removed[:_SHOWN]) + (" …" if plan.removed[_SHOWN:] else "")
    said = joined(
        tag(
            "p",
            f"{plural(len(plan.removed), 'checkpoint')} of ",
            tag("b", line(thread)),
            f" to delete permanently. The newest {int(word)} are kept.",
        ),
        tag("p", f"Steps to delete: {steps}") if plan.removed else None,
        tag(
            "p",
            "Also kept: the head, labelled checkpoints, the newest completed one and the starting points of forks.",
            class_="dim",
        ),
    )

    def do() -> str:
        view.hf.thread(thread).prune(retention)
        return view.thread(thread)

    return Plan(said, do, [each.id for each in plan.removed], {"newest": newest})


def _given(form: Form, name: str) -> str:
    value = form.get(name, "")
    if not value:
        raise InvalidArgument(f"the form has no {name}")
    return value


_DOINGS: Final[dict[str, Doing]] = {
    "fork": _fork,
    "rewind": _rewind,
    "answer": _answer,
    "settle": _settle,
    "cancel": _cancel,
    "prune": _prune,
    "resume": _resume,
    "label": _label,
}
