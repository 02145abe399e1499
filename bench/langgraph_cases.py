"""Cases and results of the benchmark of LangGraph savers. This module does not need LangGraph."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

TITLES = {
    "memory": "InMemorySaver",
    "sqlite": "SqliteSaver",
    "sqlite-async": "AsyncSqliteSaver",
    "postgres": "PostgresSaver",
    "postgres-async": "AsyncPostgresSaver",
    "holdfast-sqlite": "Holdfast, SQLite",
    "holdfast-sqlite-async": "Holdfast, SQLite, async",
    "holdfast-postgres": "Holdfast, PostgreSQL",
    "holdfast-postgres-async": "Holdfast, PostgreSQL, async",
}
# Savers that many threads share in one event loop, and the graph without a saver.
CROWDS = {
    "bare": "no saver",
    "postgres-async": "AsyncPostgresSaver, one connection",
    "postgres-pool": "AsyncPostgresSaver, pool",
    "holdfast-postgres-async": "Holdfast, PostgreSQL",
}
GRAPHS = {"plain": "add_messages", "delta": "DeltaChannel", "react": "create_react_agent"}
# LangGraph's savers hold gigabytes after a long conversation, so one of each kind is measured.
LONG = [
    ("sqlite", "plain"),
    ("sqlite", "delta"),
    ("holdfast-sqlite", "plain"),
    ("holdfast-postgres", "plain"),
]
REACT = ["sqlite", "postgres", "holdfast-sqlite", "holdfast-postgres"]


class Sizes(NamedTuple):
    """How much to measure."""

    short: int  # turns of a conversation
    long: int  # turns of a long conversation
    react: int  # turns of the prebuilt agent
    early: int  # turns after which a time is compared with the time at the end
    window: int  # number of turns that a time is the median of
    reads: int  # reads with the saver that wrote
    fresh: int  # reads with a newly opened saver
    threads: int  # at once
    turns_each: int
    rounds: int


FULL = Sizes(300, 1_000, 100, 50, 50, 7, 3, 50, 10, 3)
QUICK = Sizes(8, 16, 3, 4, 4, 2, 1, 4, 2, 1)


class Case(msgspec.Struct, frozen=True):
    """One conversation with one saver."""

    side: str
    graph: str
    turns: int
    folder: str = ""
    url: str = ""
    samples: list[int] = []  # turns after which the size is measured
    bare: bool = True  # also measure the same graph without a saver
    history: bool = True
    reads: int = 1
    fresh: int = 1


class Found(msgspec.Struct):
    """Results. Times are in milliseconds, one per turn or per read; the time of the whole history is in seconds."""

    side: str
    graph: str
    turns: int
    supersteps: float = 0  # per turn
    invokes: list[float] = []
    bare: list[float] = []
    sizes: list[tuple[int, int]] = []
    size: int = 0
    state: list[float] = []
    listed: list[float] = []
    fresh_state: list[float] = []
    fresh_listed: list[float] = []
    history: float | None = None

    @property
    def title(self) -> str:
        return f"{TITLES[self.side]} ({GRAPHS[self.graph]})"

    @property
    def total(self) -> float:
        """Seconds of all invokes, with the graph and the saver."""
        return sum(self.invokes) / 1e3

    @property
    def saver_total(self) -> float:
        """Seconds of the saver alone."""
        return (sum(self.invokes) - sum(self.bare)) / 1e3

    def per_superstep(self, turn: int, window: int) -> list[float]:
        """Milliseconds of the saver per superstep, for each turn in the window around a turn."""
        times = [(invoke - bare) / self.supersteps for invoke, bare in zip(self.invokes, self.bare, strict=True)]
        return around(times, turn, window)

    def per_turn(self, turn: int, window: int) -> float:
        """Milliseconds of an invoke at a turn: the median of the window around it."""
        return statistics.median(around(self.invokes, turn, window))


class Crowd(msgspec.Struct, frozen=True):
    """Many threads at once."""

    side: str
    threads: int
    turns: int
    folder: str = ""
    url: str = ""


class CrowdFound(msgspec.Struct, frozen=True):
    """Turns per second."""

    side: str
    rate: float


def around(values: Sequence[float], turn: int, window: int) -> list[float]:
    """Values of the window around a turn (the first is 1). The window is shifted if it would pass an end."""
    begin = max(0, min(turn - window // 2, len(values) - window))
    return list(values[begin : begin + window])


def samples(turns: int) -> list[int]:
    """The turns at which sizes and times are shown: about a dozen, with short distances at the start."""
    early = {turns * share // 100 for share in (2, 5)}
    return sorted((early | {turns * tenth // 10 for tenth in range(1, 11)}) - {0})


def cases(sizes: Sizes, sides: Sequence[str]) -> list[Case]:
    """All conversations to measure for these savers."""
    common: dict[str, Any] = {"reads": sizes.reads, "fresh": sizes.fresh}
    short = [
        Case(side, graph, sizes.short, samples=samples(sizes.short), **common)
        for side in sides
        for graph in ("plain", "delta")
    ]
    long = [
        Case(side, graph, sizes.long, samples=samples(sizes.long), history=False, reads=min(3, sizes.reads))
        for side, graph in LONG
        if side in sides
    ]
    react = [
        Case(side, "react", sizes.react, bare=False, history=False, reads=1, fresh=0) for side in REACT if side in sides
    ]
    return short + long + react
