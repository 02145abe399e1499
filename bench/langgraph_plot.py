"""Line plots as SVG: turns to the right, a logarithmic scale upwards, a legend, colours for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1040, 560
LEFT, RIGHT, TOP, BOTTOM = 80, 350, 56, 60

# With its own background, so that it is readable on any page.
STYLE = """
.plot text { font: 13px system-ui, sans-serif; fill: #24292f }
.plot .title { font-size: 16px; font-weight: 600 }
.plot .head { font-weight: 600 }
.plot .page { fill: #ffffff }
.plot .grid { stroke: #d8dee4; stroke-width: 1 }
.plot .axis { stroke: #57606a; stroke-width: 1 }
.plot .line { fill: none; stroke-width: 2; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
  .plot text { fill: #e6edf3 }
  .plot .page { fill: #0d1117 }
  .plot .grid { stroke: #30363d }
  .plot .axis { stroke: #8b949e }
}
"""


class Line(NamedTuple):
    """One line: points of (turn, value), values above zero."""

    title: str
    colour: str
    dashes: str  # in SVG's form; empty for a solid line
    strong: bool
    points: Sequence[tuple[float, float]]


def plot(title: str, upwards: str, lines: Sequence[Line], shown: Callable[[float], str]) -> str:
    """Draw a plot. `upwards` is the title of the value axis; `shown` formats its labels."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        raise ValueError("there is nothing to plot")
    last = max(x for line in drawn for x, _ in line.points)
    values = [y for line in drawn for _, y in line.points]
    if min(values) <= 0:
        raise ValueError("a logarithmic scale has no place for zero")
    low, high = _decades(min(values), max(values))

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / last

    def up(y: float) -> float:
        share = (math.log10(y) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    right, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
    middle = (TOP + foot) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="30">{escape(title)}</text>',
    ]
    for y in _marks(low, high):
        parts += [
            f'<line class="grid" x1="{LEFT}" y1="{up(y):.1f}" x2="{right}" y2="{up(y):.1f}"/>',
            f'<text x="{LEFT - 8}" y="{up(y) + 4:.1f}" text-anchor="end">{escape(shown(y))}</text>',
        ]
    for x in _steps(last):
        parts.append(f'<text x="{across(x):.1f}" y="{foot + 20}" text-anchor="middle">{x:,.0f}</text>')
        parts.append(f'<line class="axis" x1="{across(x):.1f}" y1="{foot}" x2="{across(x):.1f}" y2="{foot + 5}"/>')
    parts += [
        f'<line class="axis" x1="{LEFT}" y1="{foot}" x2="{right}" y2="{foot}"/>',
        f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{foot}"/>',
        f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 16}" text-anchor="middle">turns</text>',
        f'<text transform="translate(18 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(upwards)}</text>',
    ]
    for line in drawn:
        way = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
        parts.append(f'<polyline class="line" {_stroke(line)} points="{way}"/>')
    # In the order of the last values, so that the legend matches the ends of the lines.
    for number, line in enumerate(sorted(drawn, key=lambda line: -line.points[-1][1])):
        y = TOP + 10 + 22 * number
        parts += [
            f'<line class="line" {_stroke(line)} x1="{right + 16}" y1="{y}" x2="{right + 46}" y2="{y}"/>',
            f'<text x="{right + 54}" y="{y + 4}">{escape(line.title)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _stroke(line: Line) -> str:
    dashes = f' stroke-dasharray="{line.dashes}"' if line.dashes else ""
    wide = ' style="stroke-width: 3.5"' if line.strong else ""
    return f'stroke="{line.colour}"{dashes}{wide}'


def _decades(low: float, high: float) -> tuple[float, float]:
    """Powers of ten around two values."""
    under, over = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return 10.0**under, 10.0 ** (over if over > under else under + 1)


def _marks(low: float, high: float) -> list[float]:
    """Grid lines of the value axis: powers of ten, and values between them if there are few."""
    first, count = round(math.log10(low)), round(math.log10(high / low))
    between = (1, 2, 5) if count <= 3 else (1,)
    return [step * 10.0 ** (first + i) for i in range(count) for step in between] + [high]


def _steps(last: float) -> list[float]:
    """Round numbers from 0 to the last, four to eleven of them."""
    unit = 10.0 ** math.floor(math.log10(last))
    step = next(unit * part for part in (0.1, 0.2, 0.25, 0.5, 1) if last / (unit * part) <= 10)
    return [step * i for i in range(math.floor(last / step) + 1)]
