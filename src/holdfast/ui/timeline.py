"""The timeline of a thread: a row for each step with its branch, its calls as bars, its crashes and resumes."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from holdfast.looking.calls import DOUBTFUL, Call
from holdfast.looking.nearest import existing
from holdfast.looking.threads import thread_line
from holdfast.looking.timeline import Resumption, Step, Timeline, timeline
from holdfast.ui import acting, recovering
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.plots import plots
from holdfast.ui.view import View, live
from holdfast.ui.words import ago, chip, count, duration, money, plural, short, size

_ROWS: Final = 100
_HEIGHT: Final = 36  # of a row, in pixels: what the lanes are drawn for
_LANE: Final = 14
_LANES_MOST: Final = 12
_BAR: Final = 220
_CALLS_SHOWN: Final = 40


def timeline_page(view: View) -> Response:
    """The thread, what a resume would do, what can be done with it, and its steps."""
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
        tag("section", data_lazy="plots", id="part-plots", class_="plots", aria_label="Over the steps"),
        live("steps", _steps(view, found)),
    )


def _head(view: View, name: str, found: Timeline) -> Html:
    thread = thread_line(view.hf, existing(view.hf, name))
    facts: list[Child] = [
        chip(thread.standing),
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
        link = tag("a", line(origin) or "a thread that is gone", href=view.step(origin, id) if origin else None)
        facts.append(tag("span", "forked from ", link))
    reason = view.told(thread.reason) if thread.reason else None
    return joined(
        tag("h1", line(name), dir="auto"),
        tag("p", facts, class_="facts"),
        tag("p", reason, class_="why") if reason and thread.standing != "completed" else None,
    )


# -- rows --------------------------------------------------------------------------------------------------------------


def _steps(view: View, found: Timeline) -> Html:
    lost = [tag("p", each, class_="bad") for each in found.lost]
    legend = tag(
        "p",
        tag("i", class_="swatch model"),
        "model ",
        tag("i", class_="swatch tool"),
        "tool ",
        tag("i", class_="swatch doubt"),
        "in doubt ",
        tag("span", "✕ crash  ↻ resume", class_="dim"),
        class_="legend",
    )
    newer = tag("p", tag("a", "Newest steps", href=view.thread(found.thread))) if view.asked("before") else None
    rows = tag("ol", _open(found), _rows(view, found), _next(view, found), class_="steps list")
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
    tokens = _tokens(step)
    cost = checkpoint.usage.cost if checkpoint.usage else sum(each.usage.cost for each in step.calls if each.usage)
    return tag(
        "li",
        _graph(step, lanes, is_tip=checkpoint.seq in tips),
        tag(
            "a",
            f"step {checkpoint.step}",
            href=view.step(thread, checkpoint.id),
            class_="name",
            data_key=checkpoint.id,
            aria_label=f"step {checkpoint.step}, checkpoint {checkpoint.seq}, {checkpoint.status}",
        ),
        tag("span", tag("b", "head", class_="headmark") if step.is_head else None, marks, class_="marks"),
        _bars(step.calls, longest),
        tag("span", f"{short(tokens)} tok" if tokens else "", class_="num wide"),
        tag("span", money(cost), class_="num wide"),
        tag("span", size(checkpoint.size), class_="num wide"),
        tag("span", ago(checkpoint.created_at), class_="num"),
        class_=None if step.is_current else "abandoned",
    )


def _open(found: Timeline) -> Html | None:
    """The step that no checkpoint has closed."""
    if not found.open_calls:
        return None
    who = "whoever made these calls is gone" if found.interrupted else "not closed by a checkpoint yet"
    return tag(
        "li",
        tag("span", class_="graph"),
        tag("span", "open step", class_="name"),
        tag("span", tag("span", who, class_="mark crash" if found.interrupted else "mark"), class_="marks"),
        _bars(found.open_calls, max(_seconds(found.open_calls), 0.001)),
        class_="open" + (" interrupted" if found.interrupted else ""),
    )


def _resumed(each: Resumption) -> Html:
    answered = f", {plural(each.answered, 'call')} answered from the journal" if each.answered else ""
    if each.after == "crash":
        said = f"crash, then resumed{answered}"
        return tag("span", "✕ ↻", class_="mark crash", title=said, role="img", aria_label=said)
    said = f"resumed, was {each.after}{answered}"
    return tag("span", "↻", class_="mark", title=said, role="img", aria_label=said)


def _next(view: View, found: Timeline) -> Html | None:
    if found.before is None:
        return None
    href = view.url("/thread", name=found.thread, before=found.before)
    return tag("li", tag("a", f"Older steps, below {found.before}", href=href, data_more=True), class_="more")


def _tokens(step: Step) -> int:
    used = [each.usage for each in step.calls if each.usage]
    return sum(each.total or each.input + each.output for each in used)


# -- drawings ----------------------------------------------------------------------------------------------------------


def _lanes(step: Step) -> int:
    return 1 + max((step.lane, *step.passing, *step.joining))


def _graph(step: Step, lanes: int, *, is_tip: bool) -> Html:
    """The branches that pass, join and go through a row."""
    middle = _HEIGHT / 2
    at = _x(step.lane)
    parts = [tag("path", d=f"M{_x(lane)} 0V{_HEIGHT}", class_=_tone(lane)) for lane in step.passing]
    parts += [
        tag("path", d=f"M{_x(lane)} 0C{_x(lane)} {middle},{at} 4,{at} {middle}", class_=_tone(lane))
        for lane in step.joining
    ]
    top = None if is_tip else tag("path", d=f"M{at} 0V{middle}", class_=_tone(step.lane))
    below = tag("path", d=f"M{at} {middle}V{_HEIGHT}", class_=_tone(step.lane)) if step.parent else None
    dot = tag("circle", cx=at, cy=middle, r=5 if step.is_head else 4, class_=f"{_tone(step.lane)} dot")
    crash = any(each.after == "crash" for each in step.resumptions)
    ring = tag("circle", cx=at, cy=middle, r=8, class_="ring") if crash else None
    width = lanes * _LANE + 8
    return tag("svg", parts, top, below, dot, ring, width=width, height=_HEIGHT, class_="graph", aria_hidden="true")


def _x(lane: int) -> int:
    return 11 + min(lane, _LANES_MOST) * _LANE


def _tone(lane: int) -> str:
    return f"lane{lane % 6}"


def _bars(calls: tuple[Call, ...], longest: float) -> Html:
    """The calls of a step one after the other, each as wide as it took long."""
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
                class_=_kind(call),
            )
        )
        at = min(at + width + 1, _BAR - 2)
    said = ", ".join(_said(call) for call in calls[:8]) + (f" and {len(calls) - 8} more" if len(calls) > 8 else "")
    return tag(
        "svg",
        shown,
        viewBox=f"0 0 {_BAR} 20",
        preserveAspectRatio="none",
        class_="bars",
        role="img",
        aria_label=said or "no calls",
    )


def _kind(call: Call) -> str:
    if call.status in DOUBTFUL:
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
