"""The recovery panel: what a resume would do now, and the command and code to resume."""

from __future__ import annotations

from typing import Final

from holdfast.errors import Damaged
from holdfast.looking.recovery import Planned, Recovery, recovery
from holdfast.ui import acting
from holdfast.ui.html import Html, joined, line, tag
from holdfast.ui.view import View
from holdfast.ui.words import ago, chip, plural

_DOES: Final = {
    "answered": "replayed",
    "again": "called again",
    "decide": "needs a decision",
    "wait": "waits",
    "child": "resumes the child run",
}
_SHOWN: Final = 60


def panel(view: View, name: str) -> Html:
    """Return what a resume would do with the run of a thread, or one line if there is nothing to resume."""
    try:
        found = recovery(view.hf, name)
    except Damaged as damage:
        return tag("p", view.told(str(damage)), class_="bad")
    if found is None:
        return tag("p", "This thread has no run.", class_="dim")
    if found.standing == "completed":
        return tag("p", "The run is completed.", class_="dim")
    found = view.redacted(found)
    held = tag("p", f"Held by {line(found.held_by)}.", class_="dim") if found.held_by else None
    return tag(
        "details",
        tag(
            "summary",
            tag("h2", "What a resume would do now"),
            tag("span", line(found.summary), class_="why"),
            tag("span", f"{plural(found.needed, 'decision')} needed", class_="chip in-doubt") if found.needed else None,
        ),
        tag(
            "p",
            chip(found.standing),
            " · last active ",
            ago(found.since),
            f" ago · attempt {found.attempt} · last checkpoint at step {found.step}",
            class_="dim",
        ),
        held,
        [tag("p", view.told(each), class_="bad") for each in found.lost],
        _progress(found),
        _calls(view, found),
        _commands(found),
        class_="panel",
        open=found.standing in ("interrupted", "released", "waiting", "in doubt", "failed", "dead", "halted"),
    )


def _progress(found: Recovery) -> Html | None:
    if found.progress is None:
        return None
    said = line(found.progress.note or "")
    return tag(
        "p",
        tag("progress", value=found.progress.done, max=found.progress.total, aria_label="Progress"),
        f" {found.progress.done:g}" + (f" of {found.progress.total:g}" if found.progress.total else "") + f" {said}",
    )


def _calls(view: View, found: Recovery) -> Html | None:
    if not found.calls:
        return tag("p", "No calls were recorded after that checkpoint, so the whole step runs again.", class_="dim")
    head = tag("tr", [tag("th", each, scope="col") for each in ("Call", "On resume", "Why")])
    rows = [_planned(view, found.thread, each) for each in found.calls[:_SHOWN]]
    more = len(found.calls) - _SHOWN
    return joined(
        tag("table", tag("thead", head), tag("tbody", rows), class_="plan"),
        tag("p", f"… {plural(more, 'more call')}", class_="cut") if more > 0 else None,
    )


def _planned(view: View, thread: str, each: Planned) -> Html:
    decided = acting.decision(view, thread, each)
    return tag(
        "tr",
        tag(
            "td", tag("b", line(each.call.name)), f" call {each.call.number}", tag("span", each.call.kind, class_="dim")
        ),
        tag("td", tag("span", _DOES[each.does], class_=f"does {each.does}")),
        tag("td", line(each.why), [tag("code", line(said), class_="copy") for said in each.commands], decided),
    )


def _commands(found: Recovery) -> Html | None:
    if not found.can_resume:
        return tag("p", line(found.why_not), class_="dim") if found.why_not else None
    return tag(
        "dl",
        tag("dt", "In a shell"),
        tag("dd", tag("code", line(found.command), class_="copy")),
        tag("dt", "In Python"),
        tag("dd", tag("code", line(found.code), class_="copy")),
        class_="about",
    )
