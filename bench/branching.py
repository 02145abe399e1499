"""Number 5: fork and rewind, in a short thread and in a long one."""

from __future__ import annotations

import statistics
from pathlib import Path

import holdfast
from bench.plan import Plan
from bench.report import Number
from bench.text import Writer
from bench.timing import interleaved, ratio, spread, timed
from bench.wal import WalMeter

_TARGET = 5  # rewinds alternate between this checkpoint and the newest


class Branching:
    """Forks and rewinds in a store with one thread. Each of its checkpoints adds one short message."""

    def __init__(self, hf: holdfast.Holdfast, meter: WalMeter, checkpoints: int) -> None:
        self._meter = meter
        self._thread = hf.thread("trunk")
        self.forks: list[int] = []
        self.rewinds: list[int] = []
        writer = Writer(checkpoints)
        state: dict[str, list[str]] = {"messages": []}
        for _ in range(checkpoints):
            state["messages"].append(writer.sentence())
            self._thread.save(state)
        self._ends = [self._thread.load(f"@{step}").id for step in (_TARGET, checkpoints)]
        meter.look()

    def fork(self) -> float:
        seconds = timed(self._thread.fork, f"fork-{len(self.forks)}")
        self.forks.append(self._meter.look())
        return seconds

    def rewind(self) -> float:
        seconds = timed(self._thread.rewind, self._ends[len(self.rewinds) % 2])
        self.rewinds.append(self._meter.look())
        return seconds


def measure(plan: Plan) -> list[Number]:
    """Measure without syncs: they take the same time for every thread, and would hide a difference."""
    paths: list[Path] = [plan.folder / "short.db", plan.folder / "long.db"]
    with (
        WalMeter(paths[0]) as short_meter,
        WalMeter(paths[1]) as long_meter,
        holdfast.open(paths[0], durability="off") as short_hf,
        holdfast.open(paths[1], durability="off") as long_hf,
    ):
        short_meter.start()
        long_meter.start()
        short = Branching(short_hf, short_meter, plan.sizes.short)
        long = Branching(long_hf, long_meter, plan.sizes.long)
        forks = interleaved(plan.sizes.rounds, short.fork, long.fork)
        rewinds = interleaved(plan.sizes.rounds, short.rewind, long.rewind)
    numbers: list[Number] = []
    for letter, name, (few, many) in zip("ab", ("fork", "rewind"), (forks, rewinds), strict=True):
        times = ratio(many, few)
        numbers.append(
            Number(
                number=f"5{letter}",
                what=f"{name} at {plan.sizes.long:,} checkpoints / at {plan.sizes.short}",
                measured=times.median,
                unit="x",
                at_least=0.7,
                at_most=1.3,
                low=times.low,
                high=times.high,
                note=f"{spread(many).median * 1e6:,.0f} us against {spread(few).median * 1e6:,.0f} us, without syncs",
            )
        )
    written = {"fork": short.forks + long.forks, "rewind": short.rewinds + long.rewinds}
    for letter, (name, sizes) in zip("cd", written.items(), strict=True):
        numbers.append(
            Number(
                number=f"5{letter}",
                what=f"a {name} writes to the WAL, on average",
                measured=sum(sizes) / len(sizes) / 1000,
                unit="kB",
                at_most=20,
                note=f"most often {statistics.mode(sizes) / 1000:.1f} kB, at most {max(sizes) / 1000:.1f} kB",
            )
        )
    return numbers
