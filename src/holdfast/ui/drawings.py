"""The geometry of drawings: lanes of branches, calls in time, curves and bars. Templates write them as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.handle import Holdfast
from holdfast.inspect import Call, Step, ThreadSpending, Timeline, Waterfall, is_doubtful, sampled
from holdfast.text import sized
from holdfast.ui.templates import money, short

ROW: Final = 44  # pixels of a row of steps
_DOWN: Final = 2000  # lanes are drawn this far down and clipped by the row, whose height is not known here
_LANE: Final = 14
_LANES_MOST: Final = 8
_TONES: Final = 6
_POINTS: Final = 160
_WIDTH, _HEIGHT = 320, 56
_TRACK: Final = 1000  # units of the time axis of a waterfall
_CHART, _BAR_HEIGHT, _GAP = 720, 90, 2


# -- branches ---------------------------------------------------------------------------------------------------------


class LaneDrawing(NamedTuple):
    """The lanes at a row: paths with their tones, the place of the dot, and whether a crash rings it."""

    width: int
    paths: list[tuple[str, int]]
    x: int
    tone: int
    is_head: bool
    is_crash: bool


def lane_drawings(found: Timeline) -> dict[int, LaneDrawing]:
    """Return the drawings of the steps of a page by their seqs."""
    lanes = min(
        max((1 + max(step.lane, *step.passing, *step.joining, 0) for step in found.steps), default=1), _LANES_MOST
    )
    left = {branch.parent for branch in found.branches}
    tips = {branch.last for branch in found.branches if branch.last not in left}
    return {step.checkpoint.seq: _lanes(step, lanes, is_tip=step.checkpoint.seq in tips) for step in found.steps}


def _lanes(step: Step, lanes: int, *, is_tip: bool) -> LaneDrawing:
    middle, at = ROW // 2, _x(step.lane)
    paths = [(f"M{_x(lane)} 0V{_DOWN}", lane % _TONES) for lane in step.passing]
    paths += [(f"M{_x(lane)} 0C{_x(lane)} {middle},{at} 4,{at} {middle}", lane % _TONES) for lane in step.joining]
    if not is_tip:
        paths.append((f"M{at} 0V{middle}", step.lane % _TONES))
    if step.parent:
        paths.append((f"M{at} {middle}V{_DOWN}", step.lane % _TONES))
    is_crash = any(each.after == "crash" for each in step.resumptions)
    return LaneDrawing(lanes * _LANE + 8, paths, at, step.lane % _TONES, step.is_head, is_crash)


def _x(lane: int) -> int:
    return 11 + min(lane, _LANES_MOST) * _LANE


# -- calls in time ----------------------------------------------------------------------------------------------------


class CallBar(NamedTuple):
    """A call in a waterfall: its place and width on the axis, in thousandths, and its tone."""

    thread: str
    depth: int
    call: Call
    x: float
    width: float
    tone: str


def call_bars(found: Waterfall, *, is_held: bool) -> list[CallBar]:
    """Return the bars of a waterfall."""
    scale = _TRACK / found.seconds if found.seconds > 0 else 0.0
    return [
        CallBar(
            bar.thread,
            bar.depth,
            bar.call,
            round(min(bar.start * scale, _TRACK - 4), 1),
            round(max((bar.call.seconds or 0.0) * scale, 4.0), 1),
            tone_of(bar.call, is_held=is_held),
        )
        for bar in found.bars
    ]


def tone_of(call: Call, *, is_held: bool) -> str:
    """Return the colour of a call. A started call of a run that a process holds is under way, not in doubt."""
    if is_doubtful(call.kind, call.status, is_held=is_held):
        return "doubt"
    if call.status in ("failed", "not_done") or (call.status == "started" and not is_held):
        return "failed"
    return "model" if call.kind == "model" else "tool" if call.kind != "wait" else "wait"


# -- curves and bars --------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """One line of a plot: its name, its points as SVG writes them, and its last value in words."""

    name: str
    points: str
    last: str
    tone: int


class Plot(NamedTuple):
    """Curves in one drawing. `area` is the polygon below the first curve."""

    title: str
    about: str
    curves: list[Curve]
    area: str
    width: int = _WIDTH
    height: int = _HEIGHT


def thread_plots(hf: Holdfast, thread: str) -> list[Plot]:
    """Return plots of size, tokens and cost over the ancestors of the head. Long threads are sampled."""
    found = sampled(hf, thread, _POINTS)
    if len(found) < 2:
        return []
    currency = next((each.usage.currency for each in reversed(found) if each.usage), "USD")
    used = [(each.seq, each.usage) for each in found if each.usage]
    series: list[tuple[str, str, list[tuple[float, float]], Callable[[float], str]]] = [
        ("Size of the state", "per step", [(each.seq, each.size) for each in found], lambda y: sized(int(y))),
        ("Tokens so far", "as saved", [(seq, usage.total or usage.input + usage.output) for seq, usage in used], short),
        (
            "Cost so far",
            "as saved",
            [(seq, usage.cost) for seq, usage in used if usage.currency == currency],
            lambda y: money(y, currency),
        ),
    ]
    return [
        _plot(title, about, [("", points)], words)
        for title, about, points, words in series
        if len(points) > 1 and any(y for _, y in points)
    ]


def spending_plots(found: ThreadSpending) -> list[Plot]:
    """Return plots of tokens and cost per model over time."""
    tokens = [
        (use.model, [(at.timestamp(), float(tokens)) for at, tokens, _ in use.points])
        for use in found.models[:_TONES]
        if use.tokens
    ]
    costs = [
        (use.model, [(at.timestamp(), cost) for at, _, cost in use.points])
        for use in found.models[:_TONES]
        if use.cost and use.currency == found.models[0].currency
    ]
    currency = found.models[0].currency if found.models else "USD"
    plots = [_plot("Tokens", "per model over time", tokens, short)] if any(len(p) > 1 for _, p in tokens) else []
    if any(len(points) > 1 for _, points in costs):
        plots.append(_plot("Cost", "per model over time", costs, lambda y: money(y, currency)))
    return plots


def _plot(
    title: str, about: str, series: list[tuple[str, list[tuple[float, float]]]], words: Callable[[float], str]
) -> Plot:
    every = [point for _, points in series for point in points]
    low, high = min(x for x, _ in every), max(x for x, _ in every)
    most = max(y for _, y in every) or 1.0

    def at(x: float, y: float) -> str:
        across = 4 + (x - low) / ((high - low) or 1.0) * (_WIDTH - 8)
        return f"{across:.1f},{_HEIGHT - 4 - y / most * (_HEIGHT - 10):.1f}"

    curves = [
        Curve(name, " ".join(at(*point) for point in points), words(points[-1][1]), number % _TONES)
        for number, (name, points) in enumerate(series)
        if points
    ]
    first = curves[0].points
    end = first.rpartition(" ")[2].partition(",")[0]
    area = f"{first.partition(',')[0]},{_HEIGHT - 4} {first} {end},{_HEIGHT - 4}" if len(curves) == 1 else ""
    return Plot(title, about, curves, area)


class BarChart(NamedTuple):
    """Bars with their titles, and the ends of the axis."""

    bars: list[dict[str, Any]]
    total: int
    most: int
    ends: list[str]
    width: int = _CHART
    height: int = _BAR_HEIGHT


def bar_chart(days: Sequence[tuple[str, int, int]]) -> BarChart | None:
    """Return the bars of days with their checkpoints and bytes; None without days."""
    if not days:
        return None
    most = max(count for _, count, _ in days)
    wide = min((_CHART - _GAP * len(days)) / len(days), 48)
    bars = []
    for number, (day, count, size) in enumerate(days):
        tall = max(count / most * (_BAR_HEIGHT - 6), 2)
        place = {"x": round(number * (wide + _GAP), 1), "y": round(_BAR_HEIGHT - tall, 1)}
        bars.append(
            {**place, "width": round(wide, 1), "height": round(tall, 1), "day": day, "count": count, "size": size}
        )
    ends = [days[0][0]] if len(days) == 1 else [days[0][0], days[-1][0]]
    return BarChart(bars, sum(count for _, count, _ in days), most, ends)
