"""The Effects tab: the calls of a step with arguments and results; calls in doubt are amber."""

from __future__ import annotations

from typing import Final

from holdfast.looking.calls import DOUBTFUL, effects
from holdfast.looking.nearest import existing
from holdfast.looking.timeline import Step
from holdfast.looking.whole import Lost, whole
from holdfast.runs.record import is_free
from holdfast.types import Effect
from holdfast.ui.html import Html, joined, line, tag
from holdfast.ui.seen import Seen, data
from holdfast.ui.view import View
from holdfast.ui.words import chip, duration

_LOOKED_AT: Final = 60  # newest journal entries to search for calls after the head
_NO_CALLS: Final = ("answer", "cancel", "turn", "undo")


def effects_view(seen: Seen) -> Html:
    """Return the calls of a step; for the head, also the calls made after it."""
    view, step = seen.view, seen.step
    lost: Lost = {}
    journal = _of_step(view, step, lost)
    known = {each.number for each in journal}
    journal += [each for each in calls_since(view, step, lost) if each.number not in known]
    hurt = [tag("p", view.told(each), class_="bad") for each in lost]
    if not journal:
        return joined(hurt, tag("p", "No calls are recorded for this step.", class_="dim"))
    return joined(hurt, shown(view, step, journal))


def shown(view: View, step: Step, journal: list[Effect]) -> Html:
    """Return calls with all their fields."""
    held = _is_held(view, step)
    return joined(_effect(view.redacted(each), is_held=held) for each in journal)


def recent(view: View, step: Step, lost: Lost) -> list[Effect]:
    """Return the newest entries of the journal. Unreadable ones are added to `lost`."""
    store = whole(view.hf.context.store, lost)
    number = existing(view.hf, step.checkpoint.thread).position.thread
    return effects(store, number, after=max(store.last_entry(number) - _LOOKED_AT, 0))


def calls_since(view: View, step: Step, lost: Lost) -> list[Effect]:
    """Return the calls made after a step's checkpoint, if that is the head."""
    if not step.is_head:
        return []
    made = recent(view, step, lost)
    return [each for each in made if each.step > step.checkpoint.step and each.effect not in _NO_CALLS]


def _of_step(view: View, step: Step, lost: Lost) -> list[Effect]:
    wanted = {call.number for call in step.calls}
    if not wanted:
        return []
    store = whole(view.hf.context.store, lost)
    number = existing(view.hf, step.checkpoint.thread).position.thread
    found = effects(store, number, after=min(wanted) - 1, limit=max(wanted) - min(wanted) + 1)
    return [each for each in found if each.number in wanted]


def _is_held(view: View, step: Step) -> bool:
    """Whether a process holds the run: then a started call of the open step is under way, not in doubt."""
    store = whole(view.hf.context.store, {})
    run = store.run(existing(view.hf, step.checkpoint.thread).position.thread)
    return step.is_head and run is not None and run.status == "running" and not is_free(store, run)


def _effect(effect: Effect, *, is_held: bool) -> Html:
    took = "" if effect.ended_at is None else duration((effect.ended_at - effect.begun_at).total_seconds())
    is_under_way = is_held and effect.status == "begun"
    is_doubtful = effect.status in DOUBTFUL and not is_under_way
    status = "under way" if is_under_way else effect.status.replace("_", " ")
    facts = [chip(status), tag("span", effect.effect), tag("span", took)]
    facts += [tag("span", f"by {line(effect.by)}")] if effect.by else []
    return tag(
        "article",
        tag("header", tag("b", line(effect.name)), tag("span", f"call {effect.number}", class_="dim"), facts),
        tag("p", line(effect.error), class_="bad") if effect.error else None,
        tag("h3", "Arguments") if effect.arguments is not None else None,
        tag("pre", data(effect.arguments), class_="data") if effect.arguments is not None else None,
        tag("h3", "Result") if effect.result is not None else None,
        tag("pre", data(effect.result), class_="data") if effect.result is not None else None,
        tag("code", line(effect.key), class_="dim"),
        class_="effect" + (" doubt" if is_doubtful else ""),
    )
