"""Line plots with two logarithmic scales, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 900, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 250, 50, 60
_COLOURS: Final = ("#0969da", "#1a7f37", "#bf3989", "#9a6700")
# With its own background, so that it is readable on any page.
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.page { fill: #ffffff }
.grid { stroke: #d8dee4 }
.line { fill: none; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .page { fill: #0d1117 } .grid { stroke: #30363d } }
"""


class Line(NamedTuple):
    """A line of points above zero."""

    title: str
    points: Sequence[tuple[float, float]]


def plot(title: str, across: str, up: str, lines: Sequence[Line]) -> str:
    """Draw lines. `across` and `up` are the titles of the scales."""
    xs = _decades([x for line in lines for x, _ in line.points])
    ys = _decades([y for line in lines for _, y in line.points])
    right, foot = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + (right - _LEFT) * _share(x, xs), foot - (foot - _TOP) * _share(y, ys)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text class="title" x="{_LEFT}" y="28">{escape(title)}</text>',
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(18 {(_TOP + foot) / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(up)}</text>',
    ]
    for x in xs:
        at, _ = place(x, ys[0])
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{foot}"/>')
        parts.append(f'<text x="{at:.1f}" y="{foot + 20}" text-anchor="middle">{x:,.10g}</text>')
    for y in ys:
        _, at = place(xs[0], y)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y:,.10g}</text>')
    for number, line in enumerate(lines):
        stroke = f'stroke="{_COLOURS[number % len(_COLOURS)]}"'
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
        parts.append(f'<polyline class="line" {stroke} points="{way}"/>')
        at = _TOP + 10 + 22 * number
        parts.append(f'<line class="line" {stroke} x1="{right + 16}" y1="{at}" x2="{right + 46}" y2="{at}"/>')
        parts.append(f'<text x="{right + 54}" y="{at + 4}">{escape(line.title)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _decades(values: Sequence[float]) -> list[float]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]


def _share(value: float, decades: Sequence[float]) -> float:
    low, high = math.log10(decades[0]), math.log10(decades[-1])
    return (math.log10(value) - low) / (high - low)
