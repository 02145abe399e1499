"""What forms ask for: said once more in full before it is done, done, and recorded with who did it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec.structs import replace
from starlette.responses import Response

from holdfast.errors import Conflict, HoldfastError, InvalidArgument, NotFound
from holdfast.looking.ahead import Ahead, effects_ahead
from holdfast.looking.nearest import existing
from holdfast.runs.claiming import is_free
from holdfast.runs.outcome import GiveUp, Happened, NotDone, Outcome
from holdfast.runs.recovery import queued
from holdfast.threads.labelling import named
from holdfast.threads.retention import Retention
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.values import brief, from_text
from holdfast.ui.view import View
from holdfast.ui.words import plural

ACTIONS: Final = "holdfast/actions"
"""The thread in which what was done by the page is kept."""

_TRIES: Final = 20
_SHOWN: Final = 50

Form = dict[str, str]
Doing = Callable[[View, Form], tuple[Child, Callable[[], str]]]
"""Looks at a form; what would be done, in words, and what does it and gives the address to go on at."""


def act(view: View, action: str, body: bytes) -> Response:
    """Ask once more, or do it. NotFound for an action that there is not, or where the page may not write."""
    form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
    doing = _DOINGS.get(action)
    if doing is None or not view.site.may_write:
        raise NotFound("there is no such action here; `holdfast ui --allow-write` lets the page change the store")
    said, carry_out = doing(view, form)
    if form.get("confirmed") != "yes":
        return _confirm(view, action, form, said)
    # Before it is done: then there is nothing that was done and not recorded, whatever happens in between.
    _record(view, action, form)
    try:
        there = carry_out()
    except HoldfastError as error:
        _record(view, action, form, error)
        raise
    return Response(status_code=303, headers={"Location": there})


def _confirm(view: View, action: str, form: Form, said: Child) -> Response:
    kept: dict[str, str | int] = {name: value for name, value in form.items() if name != "seal"}
    kept["confirmed"] = "yes"
    sure = view.form(action, tag("button", "Do it", type="submit", class_="sure", autofocus=True), **kept)
    back = tag("a", "Back", href=view.thread(form.get("thread", "")))
    return view.page(
        "Are you sure?",
        tag("h1", "Are you sure?"),
        tag("div", said, class_="panel said"),
        tag("div", sure, back, class_="between"),
    )


def _record(view: View, action: str, form: Form, failed: HoldfastError | None = None) -> None:
    """Keep who did what, and when; without what was given: that is where it was given to."""
    about: dict[str, Any] = {
        name: form[name] for name in ("thread", "id", "name", "effect", "outcome", "keep_last") if name in form
    }
    deed: dict[str, Any] = {"at": datetime.now(UTC), "who": view.who, "action": action, **about}
    if failed is not None:
        deed["failed"] = type(failed).__name__
    for _ in range(_TRIES):
        thread = view.hf.thread(ACTIONS)
        known = thread.latest()
        done = [] if known is None else known.state["actions"]
        try:
            thread.save({"actions": [*done, deed]}, trigger="page", status="idle", agent="holdfast ui")
            return
        except Conflict:
            continue  # somebody else did something in that moment


# -- each action -------------------------------------------------------------------------------------------------------


def _fork(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
    origin, id, name = _given(form, "thread"), _given(form, "id"), _given(form, "name")
    state: Any = from_text(form.get("state", "")) if form.get("edited") else None
    if form.get("edited") and state is None:
        raise InvalidArgument("a thread cannot begin with null; give it a state")
    checkpoint = view.hf.thread(origin).load(id, partial=True)
    how = "with the state that you edited" if state is not None else "with its state as it is"
    said = tag(
        "p",
        "A new thread ",
        tag("b", line(name)),
        f" begins at step {checkpoint.step} of ",
        tag("b", line(origin)),
        f", {how}.",
    )

    def do() -> str:
        view.hf.thread(origin).fork(name, at=id, state=state)
        return view.thread(name)

    return said, do


def _rewind(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
    name, id = _given(form, "thread"), _given(form, "id")
    thread = view.hf.thread(name)
    checkpoint = thread.load(id, partial=True)
    ahead = effects_ahead(view.hf, name, id)
    said = joined(
        tag("p", "The head of ", tag("b", line(name)), f" becomes step {checkpoint.step}. Nothing is deleted."),
        _effects_ahead(ahead),
    )

    def do() -> str:
        thread.latest(fallback=True)
        thread.rewind(id, past_effects=any(each.must_confirm for each in ahead))
        return view.thread(name)

    return said, do


def _effects_ahead(ahead: list[Ahead]) -> Html:
    if not ahead:
        return tag("p", "It passes no effects.", class_="dim")
    items = [
        tag("li", tag("b", line(each.name)), f" call {each.number}, {each.effect}, {each.status.replace('_', ' ')}")
        for each in ahead[:_SHOWN]
    ]
    more = tag("li", f"… {len(ahead) - _SHOWN} more") if ahead[_SHOWN:] else None
    title = f"It passes {plural(len(ahead), 'effect')}. The world does not rewind with the thread:"
    return tag("div", tag("p", title, class_="bad"), tag("ul", items, more))


def _answer(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
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

    return said, do


def _settle(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
    thread, word = _given(form, "thread"), _given(form, "effect")
    if not (word.isascii() and word.isdecimal() and len(word) < 16):
        raise InvalidArgument("an effect is named by its number")
    outcomes: dict[str, Callable[[], Outcome]] = {
        "happened": lambda: Happened(from_text(form.get("value", "null"))),
        "not_done": NotDone,
        "give_up": GiveUp,
    }
    chosen = outcomes.get(form.get("outcome", ""))
    if chosen is None:
        raise InvalidArgument("say whether it happened, did not happen, or nobody will find out")
    outcome = chosen()
    existing(view.hf, thread)
    words = {"happened": "it happened", "not_done": "it did not happen", "give_up": "nobody will find out"}
    result = joined(" Its result: ", tag("code", brief(outcome.result))) if isinstance(outcome, Happened) else None
    said = tag("p", f"Call {word} of ", tag("b", line(thread)), f" is settled: {words[form['outcome']]}.", result)

    def do() -> str:
        view.hf.settle(thread, int(word), outcome)
        return view.thread(thread)

    return said, do


def _cancel(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
    thread, reason = _given(form, "thread"), _given(form, "reason")
    existing(view.hf, thread)
    said = tag(
        "p", "The run of ", tag("b", line(thread)), " is halted: at once if nobody holds it, else at its next call."
    )

    def do() -> str:
        view.hf.cancel(thread, f"{reason} ({view.who})")
        return view.thread(thread)

    return said, do


def _resume(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
    thread = _given(form, "thread")
    store = view.hf._session.store
    run = store.run(existing(view.hf, thread).position.thread)
    if run is None:
        raise NotFound("no run was begun on this thread: there is nothing to resume")
    if run.handler is None:
        raise InvalidArgument(
            "its run names no handler, so no worker can take it; go on with it by the line of code shown"
        )
    if run.status in ("completed", "queued", "waiting") or (run.status == "running" and not is_free(store, run)):
        raise Conflict(f"its run is {run.status}: there is nothing to resume")
    said = tag("p", "The run of ", tag("b", line(thread)), f" is queued for any worker that has {line(run.handler)}.")

    def do() -> str:
        # Whoever asks for it has seen why the attempts before failed: they do not count.
        store.claim(run, replace(queued(run), attempt=0, owner=None, lease_until=0))
        return view.thread(thread)

    return said, do


def _label(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
    thread, id, label = _given(form, "thread"), _given(form, "id"), _given(form, "label")
    checkpoint = view.hf.thread(thread).load(id, partial=True)
    said = joined(
        tag("p", f"Step {checkpoint.step} of ", tag("b", line(thread)), " is labelled ", tag("b", line(label)), "."),
        tag("p", "Checkpoints do not change: a new one with the same state has the label.", class_="dim"),
    )

    def do() -> str:
        made = named(view.hf._session, thread, checkpoint, label=label)
        return view.step(thread, made.id)

    return said, do


def _prune(view: View, form: Form) -> tuple[Child, Callable[[], str]]:
    thread, word = _given(form, "thread"), _given(form, "keep_last")
    if not (word.isascii() and word.isdecimal() and len(word) < 10):
        raise InvalidArgument("how many are kept is a whole number")
    retention = Retention(keep_last=int(word))
    plan = view.hf.thread(thread).prune(retention, dry_run=True)
    steps = ", ".join(str(each.step) for each in plan.removed[:_SHOWN]) + (" …" if plan.removed[_SHOWN:] else "")
    said = joined(
        tag(
            "p",
            f"{plural(len(plan.removed), 'checkpoint')} of ",
            tag("b", line(thread)),
            f" deleted for good, {plan.kept} kept.",
        ),
        tag("p", f"Steps that go: {steps}") if plan.removed else None,
        tag("p", "Labelled ones, the newest completed one, the head and what forks began at stay.", class_="dim"),
    )

    def do() -> str:
        view.hf.thread(thread).prune(retention)
        return view.thread(thread)

    return said, do


def _given(form: Form, name: str) -> str:
    value = form.get(name, "")
    if not value:
        raise InvalidArgument(f"the form lacks {name}")
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
