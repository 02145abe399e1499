"""Bar charts as SVG: panels of horizontal bars, with the colours of light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from bench.langgraph_plot import STYLE

WIDTH, NAMES, LINE, TOP, GAP = 1040, 330, 26, 56, 44


class Bar(NamedTuple):
    """One bar. `own` bars are those of Holdfast."""

    title: str
    value: float
    shown: str
    own: bool


class Panel(NamedTuple):
    """Bars that share a scale, from the largest value."""

    title: str
    bars: Sequence[Bar]


def chart(title: str, panels: Sequence[Panel]) -> str:
    """Draw panels one below the other."""
    height = TOP + sum(GAP + LINE * len(panel.bars) for panel in panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="20" y="30">{escape(title)}</text>',
    ]
    y = TOP
    for panel in panels:
        parts.append(f'<text class="head" x="20" y="{y + 14}">{escape(panel.title)}</text>')
        y += 26
        most = max(bar.value for bar in panel.bars) or 1
        for bar in panel.bars:
            wide = max(2.0, (WIDTH - NAMES - 150) * bar.value / most)
            colour = "#2f9e44" if bar.own else "#8c8c8c"
            parts += [
                f'<text x="{NAMES - 10}" y="{y + 15}" text-anchor="end">{escape(bar.title)}</text>',
                f'<rect x="{NAMES}" y="{y + 2}" width="{wide:.1f}" height="18" rx="3" fill="{colour}"/>',
                f'<text x="{NAMES + wide + 8:.1f}" y="{y + 15}">{escape(bar.shown)}</text>',
            ]
            y += LINE
        y += GAP - 26
    return "\n".join([*parts, "</svg>"]) + "\n"
