"""The Store page: size, growth, savings, and verification."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from holdfast.errors import Conflict, HoldfastError
from holdfast.handle import Holdfast
from holdfast.looking.stats import Day, Stats, stats, stored_bytes
from holdfast.types import VerifyProgress, VerifyReport
from holdfast.ui.html import Child, Html, joined, line, tag
from holdfast.ui.view import View, live
from holdfast.ui.words import count, duration, plural, size

_PROBLEMS_SHOWN: Final = 100
_FRESH: Final = 2.0  # seconds for which the figures are reused
_REST: Final = 20  # or this many times as long as counting took, if that is longer
_WIDTH, _HEIGHT, _GAP = 720, 90, 2


class Counting:
    """The figures of a store. Counting reads every checkpoint, so requests share a result for a while."""

    def __init__(self, hf: Holdfast, clock: Callable[[], float] = time.monotonic) -> None:
        self._hf = hf
        self._clock = clock
        self._lock = threading.Lock()
        self._stats: Stats | None = None
        self._fresh_until = 0.0

    def stats(self) -> Stats:
        """Return the figures, which may be a few seconds old."""
        with self._lock:
            begun = self._clock()
            if self._stats is None or begun > self._fresh_until:
                self._stats = stats(self._hf)
                ended = self._clock()
                self._fresh_until = ended + max((ended - begun) * _REST, _FRESH)
            return self._stats


class Verifying:
    """Verifies the store in a background thread, one verification at a time."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.begun = 0.0
        self.took = 0.0
        self.looked: VerifyProgress | None = None
        self.report: VerifyReport | None = None
        self.failed: str | None = None

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self) -> None:
        """Start to verify. Raises Conflict if a verification is under way."""
        with self._lock:
            if self.is_under_way:
                raise Conflict("a verification is already running; the Store page shows its progress")
            self.looked = self.report = self.failed = None
            self.begun = time.monotonic()
            self._thread = threading.Thread(target=self._verify, name="holdfast-verify", daemon=True)
            self._thread.start()

    def _verify(self) -> None:
        try:
            self.report = self._hf.verify(progress=self._tell)
        except HoldfastError as error:
            self.failed = str(error)
        self.took = time.monotonic() - self.begun

    def _tell(self, looked: VerifyProgress) -> None:
        self.looked = looked


def store_page(view: View, counting: Counting, work: Verifying) -> Response:
    """Return the Store page or one of its parts."""
    part = view.asked("part")
    if part == "verify":
        return view.part("verify", _verifying(view, work))
    if part == "stats":
        return view.part("stats", _stats(view, counting.stats()))
    on_disk = stored_bytes(view.hf)
    figures = (
        tag("section", _stats(view, counting.stats()), aria_label="Figures")
        if view.asked("with") == "stats"
        else view.later("stats", "Show figures", view.url("/store", **{"with": "stats"}), aria_label="Figures")
    )
    return view.page(
        "Store",
        tag("h1", "Store"),
        tag("p", tag("code", line(view.site.title)), f" · {size(on_disk)} on disk" if on_disk is not None else None),
        figures,
        tag("h2", "Verify"),
        live("verify", _verifying(view, work), every=0.5, element="section", aria_label="Verify"),
        here="/store",
    )


def _stats(view: View, found: Stats) -> Html:
    tiles: list[Child] = [
        _tile("Threads", count(found.threads)),
        _tile("Checkpoints", count(found.checkpoints)),
        _tile("On disk", "unknown" if found.stored is None else size(found.stored)),
        _tile("Full copies", size(found.copies), "if each checkpoint stored its whole state"),
        _saved(found),
        _tile("Newest states", size(found.newest), "the newest state of each thread"),
    ]
    statuses = [tag("span", f"{name} {count(number)}") for name, number in found.statuses.items()]
    return joined(
        tag("dl", tiles, class_="tiles"),
        tag("p", tag("span", "Threads by status of their last save:"), statuses, class_="facts"),
        _growth(found.days),
        [tag("p", view.told(each), class_="bad") for each in found.lost[:20]],
    )


def _saved(found: Stats) -> Html | None:
    if found.saved is None:
        return None
    if found.saved <= 1:
        return _tile("Savings", "none yet", "a small store is mostly fixed overhead")
    return _tile("Savings", f"{found.saved:.1f} times", "smaller than full copies")


def _tile(name: str, value: str, about: str = "") -> Html:
    return tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", about, class_="dim")))


def _growth(days: tuple[Day, ...]) -> Html | None:
    """Return a bar chart of the checkpoints per day, without days that have none."""
    if not days:
        return None
    most = max(day.checkpoints for day in days)
    wide = min((_WIDTH - _GAP * len(days)) / len(days), 48)
    bars = []
    for number, day in enumerate(days):
        tall = max(day.checkpoints / most * (_HEIGHT - 6), 2)
        title = f"{day.day}: {plural(day.checkpoints, 'checkpoint')}, {size(day.bytes)} of states"
        bars.append(
            tag(
                "rect",
                tag("title", title),
                x=f"{number * (wide + _GAP):.1f}",
                y=f"{_HEIGHT - tall:.1f}",
                width=f"{wide:.1f}",
                height=f"{tall:.1f}",
                rx=2,
                class_="model",
            )
        )
    said = "Checkpoints per day"
    top = plural(sum(day.checkpoints for day in days), "checkpoint")
    top += "" if len(days) == 1 else f", at most {count(most)} per day"
    drawn = tag(
        "svg",
        bars,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="xMinYMax",
        class_="growth",
        role="img",
        aria_label=f"{said}: {top}",
    )
    ends = [days[0].day] if len(days) == 1 else [days[0].day, days[-1].day]
    axis = tag("div", [tag("span", each) for each in ends], class_="axis")
    return tag("figure", tag("figcaption", said, tag("b", top)), drawn, axis)


def _verifying(view: View, work: Verifying) -> Html:
    if work.is_under_way:
        looked = work.looked
        done, of = (0, 1) if looked is None else (looked.done, max(looked.of, 1))
        read = 0 if looked is None else looked.bytes
        return joined(
            tag("progress", value=done, max=of, aria_label="Verified"),
            tag("p", f"{count(done)} of {plural(of, 'thread')}, {size(read)} read", role="status"),
        )
    begin = view.form("verify", tag("button", "Verify everything", type="submit"))
    if work.failed is not None:
        return joined(tag("p", view.told(work.failed), class_="bad", role="alert"), begin)
    if work.report is None:
        return joined(tag("p", "Reads every byte and checks its digests. The store can be used meanwhile."), begin)
    report = work.report
    what = f"{plural(report.threads, 'thread')}, {plural(report.checkpoints, 'checkpoint')}, in {duration(work.took)}: "
    if report.ok:
        return joined(tag("p", what, tag("b", "no problems", class_="good"), role="status"), begin)
    items = [
        tag("li", line(f"{each.thread or ''} {', '.join(map(str, each.seqs[:8]))} "), view.told(each.what))
        for each in report.problems[:_PROBLEMS_SHOWN]
    ]
    return joined(
        tag("p", what, tag("b", plural(len(report.problems), "problem"), class_="bad")), tag("ul", items), begin
    )
