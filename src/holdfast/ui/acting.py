"""Actions as forms: fork, rewind, answer, settle, cancel, prune. They are there only where the page may write."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.looking.recovery import Planned
from holdfast.looking.timeline import Step
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.values import to_text
from holdfast.ui.view import View

_EDIT_MOST: Final = 2_000_000  # characters of a state that a browser edits without trouble


def thread_actions(view: View, name: str) -> Html | None:
    """What can be done with a thread as a whole."""
    if not view.site.may_write:
        return None
    keep = tag("input", type="number", name="keep_last", value=50, min=1, max=1_000_000, required=True)
    prune = view.form(
        "prune", tag("label", "Keep the newest ", keep, " checkpoints"), _button("Show the plan"), thread=name
    )
    reason = tag("input", name="reason", required=True, maxlength=500, placeholder="why")
    cancel = view.form("cancel", tag("label", "Reason ", reason), _button("Cancel the run"), thread=name)
    resume = view.form("resume", _button("Queue it for a worker"), thread=name)
    return _folded("Do something with this thread", ("Prune", prune), ("Resume", resume), ("Cancel", cancel))


def step_actions(view: View, step: Step, state: Any, *, is_whole: bool) -> Html | None:
    """What can be done from a step. A state that is not whole, because it was redacted or lost, cannot be edited."""
    if not view.site.may_write:
        return None
    checkpoint = step.checkpoint
    at: dict[str, str | int] = {"thread": checkpoint.thread, "id": checkpoint.id}
    name = tag(
        "input", name="name", required=True, maxlength=500, value=f"{line(checkpoint.thread)}-fork", autocomplete="off"
    )
    fork = view.form(
        "fork",
        tag("label", "Name of the new thread ", name),
        _edited(state, is_whole=is_whole),
        _button("Fork here"),
        **at,
    )
    actions: list[tuple[str, Html]] = [("Fork here", fork)]
    if not step.is_head:
        actions.append(("Rewind", view.form("rewind", _button("Make this the head"), **at)))
    label = tag("input", name="label", maxlength=200, value=view.told(checkpoint.label or ""), placeholder="a label")
    actions.append(("Label", view.form("label", tag("label", "Label ", label), _button("Label it"), **at)))
    return _folded("Do something from this step", *actions)


def _edited(state: Any, *, is_whole: bool) -> Html | None:
    """The state as text to edit."""
    if not is_whole:
        said = "Parts of this state are redacted here, or lost: it can be forked as it is and not edited."
        return tag("p", said, class_="dim")
    try:
        written = to_text(state)
    except HoldfastError:
        return None
    if len(written) > _EDIT_MOST:
        return tag("p", "This state is too large to be edited here; it can be forked as it is.", class_="dim")
    area = tag("textarea", "\n" + written, name="state", rows=12, spellcheck="false", aria_label="The state, as JSON")
    box = tag("label", tag("input", type="checkbox", name="edited", value="1"), " begin with this state instead:")
    return joined(box, area)


def decision(view: View, thread: str, planned: Planned) -> Html | None:
    """The form by which somebody answers a question, or says what became of a call."""
    if not view.site.may_write or planned.command is None:
        return None
    if planned.does == "wait":
        return answering(view, thread, planned.call.name)
    return settling(view, thread, planned.call.number)


def answering(view: View, thread: str, name: str) -> Html:
    """The form that answers a question of a run."""
    value = tag(
        "textarea",
        name="value",
        rows=2,
        required=True,
        aria_label="The answer, as JSON",
        placeholder='true, "text", {…}',
    )
    return view.form("answer", value, _button("Answer"), thread=thread, name=name)


def settling(view: View, thread: str, effect: int) -> Html:
    """The form that says what became of a call in doubt."""
    options = (
        ("happened", "it happened, with this result:"),
        ("not_done", "it did not happen"),
        ("give_up", "nobody will find out"),
    )
    chosen = [
        tag("label", tag("input", type="radio", name="outcome", value=each, required=True), f" {said}")
        for each, said in options
    ]
    result = tag("textarea", "null", name="value", rows=2, aria_label="Its result, as JSON")
    return view.form("settle", chosen[0], result, chosen[1:], _button("Settle"), thread=thread, effect=effect)


def _button(said: str) -> Html:
    return tag("button", said, type="submit")


def _folded(title: str, *actions: tuple[str, Html]) -> Html:
    parts: list[Child] = [tag("fieldset", tag("legend", name), form) for name, form in actions]
    return tag("details", tag("summary", title), tag("div", parts, class_="actions"), class_="panel doing")
