"""The page of a thread: a row per step with its branch, calls, crashes and resumes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.responses import Response

from holdfast.errors import Damaged
from holdfast.looking.calls import DOUBTFUL, Call
from holdfast.looking.nearest import existing
from holdfast.looking.threads import thread_line
from holdfast.looking.timeline import Resumption, Step, Timeline, timeline
from holdfast.ui import acting, recovering
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.plots import plots
from holdfast.ui.values import brief
from holdfast.ui.view import View, live
from holdfast.ui.words import ago, count, duration, money, plural, short, size, standing

_ROWS: Final = 100
_HEIGHT: Final = 36  # pixels of a row
_DOWN: Final = 2000  # lanes are drawn this far down and clipped by the row, whose height is not known here
_LANE: Final = 14
_LANES_MOST: Final = 12
_BAR: Final = 220
_CALLS_SHOWN: Final = 40


def timeline_page(view: View) -> Response:
    """Return the page of a thread: its status, the recovery panel, actions, plots and steps."""
    name = view.asked("name")
    before = view.number("before", 0, 0, 2**53) or None
    part = view.asked("part")
    if part == "plots":
        return view.part("plots", plots(view, name))
    if part == "recovery":
        return view.part("recovery", recovering.panel(view, name))
    found = timeline(view.hf, name, before=before, limit=_ROWS)
    if part == "more":
        return view.part("more", joined(_rows(view, found), _next(view, found)))
    if part == "steps":
        return view.part("steps", _steps(view, found))
    if part == "head":
        return view.part("head", _head(view, name, found))
    return view.page(
        name,
        tag("nav", tag("a", "Threads", href=view.url("/")), " / ", tag("b", line(name)), class_="crumbs"),
        live("head", _head(view, name, found)),
        live("recovery", recovering.panel(view, name), element="section", aria_label="Recovery"),
        acting.thread_actions(view, name),
        _plots(view, name),
        live("steps", _steps(view, found)),
    )


def _plots(view: View, name: str) -> Html:
    if view.asked("with") == "plots":
        return tag("section", plots(view, name), class_="plots", aria_label="Plots")
    href = view.url("/thread", name=name, before=view.asked("before"), **{"with": "plots"})
    return view.later("plots", "Show plots of size, tokens and cost", href, class_="plots", aria_label="Plots")


def _head(view: View, name: str, found: Timeline) -> Html:
    thread = thread_line(view.hf, existing(view.hf, name))
    facts: list[Child] = [
        standing(thread.standing, has_run=thread.has_run),
        tag("span", plural(found.count, "checkpoint")),
        tag("span", f"step {count(thread.step)}"),
        tag("span", size(thread.size)),
        tag("span", f"{short(thread.tokens)} tokens") if thread.tokens else None,
        tag("span", money(thread.cost, thread.currency)) if thread.cost else None,
        tag("span", f"{count(found.crashed)} crash{'es' if found.crashed != 1 else ''}", class_="crash")
        if found.crashed
        else None,
        tag("span", plural(found.resumed, "resume")) if found.resumed else None,
        tag("span", "changed ", ago(thread.updated_at), " ago"),
    ]
    if found.forked_from:
        origin, _, id = found.forked_from.rpartition("@")
        link = tag("a", line(origin) or "a deleted thread", href=view.step(origin, id) if origin else None)
        facts.append(tag("span", "forked from ", link))
    reason = view.told(thread.reason) if thread.reason else None
    result = None
    with suppress(Damaged):  # the recovery panel reports the damage
        run = view.hf.run_info(name)
        result = None if run is None else run.result
    return joined(
        tag("h1", line(name), dir="auto"),
        tag("p", facts, class_="facts"),
        tag("p", reason, class_="why") if reason and thread.standing != "completed" else None,
        tag("p", "Result: ", tag("code", brief(view.redacted(result))), class_="why") if result is not None else None,
    )


# -- rows --------------------------------------------------------------------------------------------------------------


def _steps(view: View, found: Timeline) -> Html:
    lost = [tag("p", view.told(each), class_="bad") for each in found.lost]
    legend = tag(
        "p",
        tag("i", class_="swatch model"),
        "model ",
        tag("i", class_="swatch tool"),
        "tool ",
        tag("i", class_="swatch doubt"),
        "in doubt ",
        tag("span", "✕ crash  ↻ resume and its replayed calls", class_="dim"),
        class_="legend",
    )
    newer = tag("p", tag("a", "Newest steps", href=view.thread(found.thread))) if view.asked("before") else None
    rows = tag("ol", _open(view, found), _rows(view, found), _next(view, found), class_="steps list")
    return joined(lost, tag("div", tag("h2", "Steps"), legend, class_="between"), newer, rows)


def _rows(view: View, found: Timeline) -> Html:
    longest = max((_seconds(step.calls) for step in found.steps), default=0.0)
    longest = max(longest, _seconds(found.open_calls))
    lanes = min(max((_lanes(step) for step in found.steps), default=1), _LANES_MOST)
    left = {branch.parent for branch in found.branches}
    tips = {branch.last for branch in found.branches if branch.last not in left}
    return joined([_step(view, found.thread, step, longest, lanes, tips) for step in found.steps])


def _step(view: View, thread: str, step: Step, longest: float, lanes: int, tips: set[int]) -> Html:
    checkpoint = step.checkpoint
    marks: list[Child] = [_resumed(each) for each in step.resumptions]
    marks += [tag("a", f"↳ {line(name)}", href=view.thread(name), class_="mark") for name in step.forks]
    if checkpoint.label:
        marks.append(tag("span", view.told(checkpoint.label), class_="label"))
    marks += [tag("span", view.told(each), class_="tag") for each in checkpoint.tags]
    return tag(
        "li",
        _graph(step, lanes, is_tip=checkpoint.seq in tips),
        tag(
            "a",
            f"step {checkpoint.step}",
            href=view.step(thread, checkpoint.id),
            class_="name",
            data_key=checkpoint.id,
            aria_label=f"step {checkpoint.step}, checkpoint {checkpoint.seq}"
            + ("" if step.is_current else ", abandoned"),
        ),
        tag("span", tag("b", "head", class_="headmark") if step.is_head else None, marks, class_="marks"),
        _bars(step.calls, longest, view.step(thread, checkpoint.id, "effects")),
        _spent(step),
        tag("span", size(checkpoint.size), class_="num wide"),
        tag("span", ago(checkpoint.created_at), class_="num"),
        class_=None if step.is_current else "abandoned",
    )


def _open(view: View, found: Timeline) -> Html | None:
    """Return the row of the open step: calls that no checkpoint includes yet."""
    if not found.open_calls:
        return None
    who = "interrupted: the process of these calls died" if found.interrupted else "no checkpoint yet"
    return tag(
        "li",
        tag("span", class_="graph"),
        tag("span", "open step", class_="name"),
        tag("span", tag("span", who, class_="mark crash" if found.interrupted else "mark"), class_="marks"),
        _bars(
            found.open_calls,
            max(_seconds(found.open_calls), 0.001),
            view.step(found.thread, "@-1", "effects"),
            is_held=_is_held(view, found),
        ),
        class_="open" + (" interrupted" if found.interrupted else ""),
        id="open",
    )


def _resumed(each: Resumption) -> Html:
    answered = f"{plural(each.answered, 'call')} replayed from the journal" if each.answered else "resumed"
    known = f"{count(each.answered)} replayed" if each.answered else "resumed"
    if each.after == "crash":
        return tag("span", f"✕ crash ↻ {known}", class_="mark crash", title=answered)
    return tag("span", f"↻ was {each.after}, {known}", class_="mark", title=answered)


def _next(view: View, found: Timeline) -> Html | None:
    if found.before is None:
        return None
    href = view.url("/thread", name=found.thread, before=found.before)
    return tag(
        "li",
        tag("a", f"Older steps, before checkpoint {found.before}", href=href, data_more=True),
        class_="more",
        id="more",
    )


def _spent(step: Step) -> Html:
    """Return tokens and cost: totals so far if the checkpoint records them, else those of the step's calls."""
    so_far = step.checkpoint.usage
    used = [so_far] if so_far else [each.usage for each in step.calls if each.usage]
    tokens = sum(each.total or each.input + each.output for each in used)
    currency = used[-1].currency if used else "USD"
    cost = sum(each.cost for each in used if each.currency == currency)
    sign, title = ("Σ ", "total so far, recorded with the checkpoint") if so_far else ("", "of this step's calls")
    return joined(
        tag("span", f"{sign}{short(tokens)} tok" if tokens else "", class_="num wide", title=title),
        tag("span", f"{sign}{money(cost, currency)}" if cost else "", class_="num wide", title=title),
    )


# -- drawings ----------------------------------------------------------------------------------------------------------


def _lanes(step: Step) -> int:
    return 1 + max((step.lane, *step.passing, *step.joining))


def _graph(step: Step, lanes: int, *, is_tip: bool) -> Html:
    """Draw the branches that pass or join a row."""
    middle = _HEIGHT / 2
    at = _x(step.lane)
    parts = [tag("path", d=f"M{_x(lane)} 0V{_DOWN}", class_=_tone(lane)) for lane in step.passing]
    parts += [
        tag("path", d=f"M{_x(lane)} 0C{_x(lane)} {middle},{at} 4,{at} {middle}", class_=_tone(lane))
        for lane in step.joining
    ]
    top = None if is_tip else tag("path", d=f"M{at} 0V{middle}", class_=_tone(step.lane))
    below = tag("path", d=f"M{at} {middle}V{_DOWN}", class_=_tone(step.lane)) if step.parent else None
    dot = tag("circle", cx=at, cy=middle, r=5 if step.is_head else 4, class_=f"{_tone(step.lane)} dot")
    crash = any(each.after == "crash" for each in step.resumptions)
    ring = tag("circle", cx=at, cy=middle, r=8, class_="ring") if crash else None
    width = lanes * _LANE + 8
    return tag("svg", parts, top, below, dot, ring, width=width, height=_HEIGHT, class_="graph", aria_hidden="true")


def _x(lane: int) -> int:
    return 11 + min(lane, _LANES_MOST) * _LANE


def _tone(lane: int) -> str:
    return f"lane{lane % 6}"


def _is_held(view: View, found: Timeline) -> bool:
    """Whether a process holds the run: then a started call of the open step is under way, not in doubt."""
    return not found.interrupted and thread_line(view.hf, existing(view.hf, found.thread)).standing == "running"


def _bars(calls: tuple[Call, ...], longest: float, href: str, *, is_held: bool = False) -> Html:
    """Draw the calls of a step as bars, each as wide as its duration, linked to the list of calls."""
    if not calls:
        return tag("span", class_="calls")
    shown, at = [], 0.0
    scale = (_BAR - 2 * min(len(calls), _CALLS_SHOWN)) / longest if longest > 0 else 0.0
    for call in calls[:_CALLS_SHOWN]:
        width = max((call.seconds or 0.0) * scale, 2.0)
        shown.append(
            tag(
                "rect",
                tag("title", _said(call)),
                x=f"{at:.1f}",
                y=3,
                width=f"{max(min(width, _BAR - at), 1):.1f}",
                height=14,
                rx=2,
                class_=_kind(call, is_held=is_held),
            )
        )
        at = min(at + width + 1, _BAR - 2)
    said = ", ".join(_said(call) for call in calls[:8]) + (f" and {len(calls) - 8} more" if len(calls) > 8 else "")
    drawn = tag("svg", shown, viewBox=f"0 0 {_BAR} 20", preserveAspectRatio="none", class_="bars", aria_hidden="true")
    return tag("a", drawn, href=href, class_="calls", aria_label=f"Calls: {said}")


def _kind(call: Call, *, is_held: bool) -> str:
    if call.status in DOUBTFUL and not (is_held and call.status == "begun"):
        return "doubt"
    if call.status in ("failed", "not_done"):
        return "failed"
    return "model" if call.kind == "model" else "tool" if call.kind != "wait" else "wait"


def _said(call: Call) -> str:
    took = "" if call.seconds is None else f", {duration(call.seconds)}"
    status = "" if call.status == "done" else f", {call.status.replace('_', ' ')}"
    return f"{line(call.name)}{status}{took}"


def _seconds(calls: tuple[Call, ...]) -> float:
    return sum(call.seconds or 0.0 for call in calls)
