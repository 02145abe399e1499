"""Forms for the actions of the web UI. An action that would be refused is not shown."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.looking.recovery import Planned
from holdfast.looking.timeline import Step
from holdfast.threads.audit import ACTIONS
from holdfast.types import Checkpoint
from holdfast.ui import offering
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.values import to_text
from holdfast.ui.view import View

_EDIT_MOST: Final = 2_000_000  # characters that a browser can edit without trouble


def thread_actions(view: View, name: str) -> Html | None:
    """Return the forms for a whole thread, or None if the web UI may not write."""
    if not view.site.may_write or name == ACTIONS:
        return None
    keep = tag("input", type="number", name="keep_last", value=50, min=1, max=1_000_000, required=True)
    prune = view.form(
        "prune", tag("label", "Keep the newest ", keep, " checkpoints"), _button("Show the plan"), thread=name
    )
    actions = [("Prune", prune)]
    if offering.can_be_resumed(view, name):
        actions.append(("Resume", view.form("resume", _button("Queue for a worker"), thread=name)))
    if offering.can_be_cancelled(view, name):
        reason = tag("input", name="reason", required=True, maxlength=500, placeholder="why")
        cancel = view.form("cancel", tag("label", "Reason ", reason), _button("Cancel the run"), thread=name)
        actions.append(("Cancel", cancel))
    return _folded("Actions on this thread", *actions)


def step_actions(view: View, step: Step, state: Any, *, is_whole: bool) -> Html | None:
    """Return the forms for one step, or None if the web UI may not write."""
    checkpoint = step.checkpoint
    if not view.site.may_write or checkpoint.thread == ACTIONS:
        return None
    at: dict[str, str | int] = {"thread": checkpoint.thread, "id": checkpoint.id}
    name = tag(
        "input", name="name", required=True, maxlength=500, value=f"{line(checkpoint.thread)}-fork", autocomplete="off"
    )
    fork = view.form(
        "fork",
        tag("label", "Name of the new thread ", name),
        edited(state, is_whole=is_whole) if view.asked("edit") or not is_whole else _edit(view, step),
        _button("Fork here"),
        **at,
    )
    actions: list[tuple[str, Html]] = [("Fork here", fork)]
    if not step.is_head:
        actions.append(("Rewind", view.form("rewind", _button("Rewind to this step"), **at)))
    if offering.can_be_labelled(view, checkpoint):
        actions.append(("Label", view.form("label", _label(view, checkpoint), _button("Set label"), **at)))
    return _folded("Actions on this step", *actions, is_open=bool(view.asked("edit")))


def _label(view: View, checkpoint: Checkpoint) -> Html:
    known = checkpoint.label or ""
    # A redacted label must not be submitted as the new label.
    is_clear = view.redacted(known) == known
    box = tag("input", name="label", maxlength=200, value=line(known) if is_clear else "", placeholder="a label")
    return tag("label", "Label ", box)


def _edit(view: View, step: Step) -> Html:
    """Return a link that loads the state into the form. It is not loaded earlier, as it may be large."""
    checkpoint = step.checkpoint
    href = view.url("/step", thread=checkpoint.thread, id=checkpoint.id, view=view.asked("view"), edit=1)
    return tag("div", tag("a", "Edit the state first", href=href, data_fetch="edit"), class_="edit")


def edited(state: Any, *, is_whole: bool) -> Html:
    """Return the state as text to edit, or why it cannot be edited: it is redacted, damaged or too large."""
    if not is_whole:
        said = "Parts of this state are redacted or lost, so it cannot be edited here. You can fork it unchanged."
        return tag("p", said, class_="dim")
    try:
        written = to_text(state)
    except HoldfastError:
        return tag("p", "This state cannot be written as JSON. You can fork it unchanged.", class_="dim")
    if len(written) > _EDIT_MOST:
        return tag("p", "This state is too large to edit here. You can fork it unchanged.", class_="dim")
    area = tag("textarea", "\n" + written, name="state", rows=12, spellcheck="false", aria_label="The state, as JSON")
    box = tag("label", tag("input", type="checkbox", name="edited", value="1"), " start from this edited state:")
    return joined(box, area)


def decision(view: View, thread: str, planned: Planned) -> Html | None:
    """Return the form to answer a question or settle a call in doubt, or None if nothing is to decide."""
    if not view.site.may_write or planned.command is None:
        return None
    if planned.does == "wait":
        return answering(view, thread, planned.call.name)
    return settling(view, thread, planned.call.number)


def answering(view: View, thread: str, name: str) -> Html:
    """Return the form to answer a question of a run."""
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
    """Return the form to settle a call in doubt."""
    options = (
        ("happened", "It happened and returned this:"),
        ("not_done", "It did not happen. Make the call on resume."),
        ("give_up", "It cannot be found out. Report that to the model."),
    )
    chosen = [
        tag("label", tag("input", type="radio", name="outcome", value=each, required=True), f" {said}")
        for each, said in options
    ]
    result = tag("textarea", "null", name="value", rows=2, aria_label="The result, as JSON")
    return view.form("settle", chosen[0], result, chosen[1:], _button("Settle"), thread=thread, effect=effect)


def _button(said: str) -> Html:
    return tag("button", said, type="submit")


def _folded(title: str, *actions: tuple[str, Html], is_open: bool = False) -> Html:
    parts: list[Child] = [tag("fieldset", tag("legend", name), form) for name, form in actions]
    inside = tag("div", parts, class_="actions")
    return tag("details", tag("summary", title), inside, class_="panel doing", open=is_open)
