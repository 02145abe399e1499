"""The numbers with bounds, computed from the results of each saver: Holdfast compared with LangGraph's savers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from bench.langgraph_cases import CROWDS, GRAPHS, TITLES, CrowdFound, Found, Sizes
from bench.report import Number, figure
from bench.timing import Spread, ratio, spread

OWN = "holdfast-sqlite"
OWN_SERVER = "holdfast-postgres"


class Numbers:
    """Computes the numbers. A number is left out unless both of its savers were measured."""

    def __init__(self, found: Sequence[Found], crowds: Sequence[CrowdFound], sizes: Sizes) -> None:
        self._found = {(one.side, one.graph, one.turns): one for one in found}
        self._crowds = crowds
        self._sizes = sizes
        self._numbers: list[Number] = []

    def all(self) -> list[Number]:
        self._numbers = []
        self._size()
        self._growth()
        self._total()
        self._reading()
        self._agent()
        self._server()
        self._together()
        return self._numbers

    def _size(self) -> None:
        short = self._sizes.short
        self._compare("1a", "size", _bytes, ("plain", short), ("sqlite", "plain", short), most=0.01)
        self._compare("1b", "size", _bytes, ("plain", short), ("sqlite", "delta", short), most=0.25)
        self._compare("1+", "size", _bytes, ("delta", short), ("sqlite", "delta", short))
        long = self._sizes.long
        self._compare("1++", "size", _bytes, ("plain", long), ("sqlite", "plain", long))

    def _growth(self) -> None:
        """Growth of the saver's time per superstep with the conversation."""
        long, early, window = self._sizes.long, self._sizes.early, self._sizes.window
        for number, side, most in (("2", OWN, 1.5), ("2+", "sqlite", None), ("2++", OWN_SERVER, None)):
            one = self._found.get((side, "plain", long))
            if one is None:
                continue
            young, old = one.per_superstep(early, window), one.per_superstep(long, window)
            before, after = spread(young), spread(old)
            self._numbers.append(
                Number(
                    number=number,
                    what=f"{TITLES[side]}: its time per superstep at {long:,} turns / at {early}",
                    measured=after.median / before.median,
                    unit="x",
                    at_most=most,
                    low=after.low / before.median,
                    high=after.high / before.median,
                    note=f"medians of {window} turns: {figure(after.median)} ms against {figure(before.median)} ms; "
                    f"means {figure(statistics.mean(old))} ms and {figure(statistics.mean(young))} ms; "
                    f"the graph alone {figure(statistics.median(one.bare[-window:]) / one.supersteps)} ms at the end",
                )
            )

    def _total(self) -> None:
        for number, turns, most in (("3a", self._sizes.short, 0.5), ("3b", self._sizes.long, 0.2)):
            of, other = ("plain", turns), ("sqlite", "plain", turns)
            self._compare(number, "all invokes", lambda one: one.total, of, other, most=most, unit="s")
            self._compare(f"{number}+", "the saver's share", lambda one: one.saver_total, of, other, unit="s")

    def _reading(self) -> None:
        short = self._sizes.short
        of, other = ("plain", short), ("sqlite", "plain", short)
        self._compare("4", "get_state", lambda one: one.state, of, other, most=1.2)
        self._compare("4+", "get_state, saver just opened", lambda one: one.fresh_state, of, other)
        self._compare("5", "list(limit=20)", lambda one: one.listed, of, other, most=0.5)
        self._compare("5+", "list(limit=20), saver just opened", lambda one: one.fresh_listed, of, other)
        self._compare("6", "whole history", _history, of, other, most=0.5, unit="s")

    def _agent(self) -> None:
        turns = self._sizes.react
        self._compare("7", "size", _bytes, ("react", turns), ("sqlite", "react", turns), most=0.02)

    def _server(self) -> None:
        """The same on PostgreSQL, without a bound; only the next number has one there."""
        short = self._sizes.short
        ways: list[tuple[str, Callable[[Found], float | list[float] | None], str]] = [
            ("size", _bytes, ""),
            ("all invokes", lambda one: one.total, "s"),
            ("get_state", lambda one: one.state, "ms"),
            ("list(limit=20)", lambda one: one.listed, "ms"),
            ("whole history", _history, "s"),
        ]
        for letter, (what, take, unit) in zip("abcde", ways, strict=True):
            of, other = ("plain", short), ("postgres", "plain", short)
            self._compare(f"P{letter}", what, take, of, other, unit=unit, side=OWN_SERVER)

    def _together(self) -> None:
        rates = self.rates()
        own = rates.get("holdfast-postgres-async")
        others = {side: rates[side] for side in ("postgres-pool", "postgres-async") if side in rates}
        if not own or not others:
            return
        best = max(others, key=lambda side: statistics.median(others[side]))
        low, middle, high = ratio(own, others[best])
        threads = self._sizes.threads
        self._numbers.append(
            Number(
                number="8",
                what=f"{threads} threads at once on PostgreSQL, async: turns/s / AsyncPostgresSaver",
                measured=middle,
                unit="x",
                at_least=3,
                low=low,
                high=high,
                note="turns/s: "
                + ", ".join(f"{CROWDS[side]} {figure(statistics.median(rate))}" for side, rate in rates.items()),
            )
        )

    def rates(self) -> Mapping[str, list[float]]:
        """Turns per second of each measured saver, round by round."""
        rates: dict[str, list[float]] = {}
        for one in self._crowds:
            rates.setdefault(one.side, []).append(one.rate)
        return rates

    def _compare(
        self,
        number: str,
        what: str,
        take: Callable[[Found], float | list[float] | None],
        of: tuple[str, int],
        other: tuple[str, str, int],
        *,
        most: float | None = None,
        unit: str = "ms",
        side: str = OWN,
    ) -> None:
        own, theirs = self._found.get((side, *of)), self._found.get(other)
        if own is None or theirs is None:
            return
        over, under = take(own), take(theirs)
        if over is None or under is None:
            return
        both = _spread(over), _spread(under)
        several = isinstance(over, list) and len(over) > 1
        shown = [_megabytes(each.median) if take is _bytes else f"{figure(each.median)} {unit}" for each in both]
        graph, turns = of
        place = f"{TITLES[side]}, {GRAPHS[graph]}, {turns:,} turns"
        against = TITLES[other[0]] + ("" if other[1] == graph else f" with {GRAPHS[other[1]]}")
        self._numbers.append(
            Number(
                number=number,
                what=f"{place}: {what} / {against}",
                measured=both[0].median / both[1].median,
                unit="x",
                at_most=most,
                low=both[0].low / both[1].median if several else None,
                high=both[0].high / both[1].median if several else None,
                note=f"{shown[0]} against {shown[1]}",
            )
        )


def savers_table(found: Sequence[Found], sizes: Sizes) -> str:
    """All measured conversations as a markdown table."""
    head = ("saver", "graph", "turns", "size", "all invokes", "saver per superstep", "get_state", "list(20)", "history")
    rows = [head, *(_cells(one, sizes) for one in found)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


def _cells(one: Found, sizes: Sizes) -> tuple[str, ...]:
    steps = "-"
    if one.bare:
        young, old = (statistics.median(one.per_superstep(turn, sizes.window)) for turn in (sizes.early, one.turns))
        steps = f"{figure(young)} → {figure(old)} ms"
    return (
        TITLES[one.side],
        GRAPHS[one.graph],
        f"{one.turns:,}",
        _megabytes(one.size),
        f"{figure(one.total)} s",
        steps,
        _pair(one.state, one.fresh_state),
        _pair(one.listed, one.fresh_listed),
        "-" if one.history is None else f"{figure(one.history)} s",
    )


def _pair(held: list[float], fresh: list[float]) -> str:
    shown = f"{figure(statistics.median(held))} ms"
    return f"{shown} ({figure(statistics.median(fresh))})" if fresh else shown


def _bytes(one: Found) -> float:
    return float(one.size)


def _history(one: Found) -> float | None:
    return one.history


def _megabytes(size: float) -> str:
    return f"{figure(size / 1e6)} MB"


def _spread(value: float | list[float]) -> Spread:
    return spread(value if isinstance(value, list) else [value])
