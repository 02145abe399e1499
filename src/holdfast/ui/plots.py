"""Small plots of size, tokens and cost over the ancestors of the head. Long threads are sampled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.errors import Damaged
from holdfast.looking.lanes import Lanes
from holdfast.looking.nearest import existing
from holdfast.threads.metadata import checkpoint_of
from holdfast.types import Checkpoint
from holdfast.ui.html import Html, joined, tag
from holdfast.ui.view import View
from holdfast.ui.words import money, short, size

_POINTS: Final = 160
_WIDTH, _HEIGHT = 320, 56


def plots(view: View, name: str) -> Html:
    """Return one figure per series, with its last value. Series without data are left out."""
    found = _sampled(view, name)
    if len(found) < 2:
        return joined()
    currency = next((each.usage.currency for each in reversed(found) if each.usage), "USD")
    series: list[tuple[str, list[tuple[int, float]], Callable[[float], str]]] = [
        ("Size of the state", [(each.seq, float(each.size)) for each in found], size),
        ("Tokens so far", [(each.seq, float(_tokens(each))) for each in found if each.usage], short),
        (
            "Cost so far",
            [(each.seq, each.usage.cost) for each in found if each.usage and each.usage.currency == currency],
            lambda cost: money(cost, currency),
        ),
    ]
    return joined(
        _plot(title, points, said) for title, points, said in series if len(points) > 1 and any(y for _, y in points)
    )


def _tokens(checkpoint: Checkpoint) -> int:
    usage = checkpoint.usage
    return 0 if usage is None else usage.total or usage.input + usage.output


def _sampled(view: View, name: str) -> list[Checkpoint]:
    """Return evenly spaced checkpoints, oldest first, without those of abandoned branches."""
    store = view.hf.context.store
    thread = existing(view.hf, name)
    head = thread.position.head
    lanes = Lanes.of(store, thread)
    count = min(head, _POINTS)
    found: list[Checkpoint] = []
    for number in range(count):
        seq = 1 + round(number * (head - 1) / max(count - 1, 1))
        try:
            row = store.checkpoint(thread.position.thread, seq)
            if row is not None and not row.deleted and lanes.leads_to_head(seq):
                found.append(checkpoint_of(name, row))
        except Damaged:
            continue
    return found


def _plot(title: str, points: list[tuple[int, float]], said: Callable[[float], str]) -> Html:
    low, high = points[0][0], points[-1][0]
    most = max(y for _, y in points) or 1.0
    at = [
        (4 + (x - low) / max(high - low, 1) * (_WIDTH - 8), _HEIGHT - 4 - y / most * (_HEIGHT - 10)) for x, y in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    area = f"4,{_HEIGHT - 4} {line} {at[-1][0]:.1f},{_HEIGHT - 4}"
    last = said(points[-1][1])
    drawn = tag(
        "svg",
        tag("polygon", points=area, class_="area"),
        tag("polyline", points=line, class_="curve"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}, up to {last}",
    )
    return tag("figure", tag("figcaption", title, tag("b", last)), drawn)
