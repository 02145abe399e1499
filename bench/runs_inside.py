"""Numbers 4 and 5: the cost of a read-only tool, the bytes of a step, the cost of a journal at resume."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import holdfast
from bench.report import Number
from bench.runs_plan import Plan
from bench.timing import Spread, interleaved, spread
from bench.wal import WalMeter


@holdfast.tool(effect="read")
def look_up(word: str) -> str:
    return word


def trivial(i: int) -> int:
    return i


def measure_reads(plan: Plan) -> list[Number]:
    """Number 4: a read-only tool compared with a call of its function."""
    calls = plan.sizes.reads
    # Without syncs: a read has no commit of its own, and the syncs of other commits would hide its cost.
    with (
        holdfast.open(plan.place() / "reads.db", durability="off", tools=[look_up]) as hf,
        hf.run("reads", start={}, policy=holdfast.EveryN(1)) as run,
    ):
        steps = run.steps()

        def by_run() -> None:
            for _ in range(calls):
                run.tool("look_up", {"word": "holdfast"})

        def directly() -> None:
            for _ in range(calls):
                look_up(word="holdfast")

        def seconds(call: Callable[[], None], *, commit: bool) -> float:
            next(steps)  # commits earlier entries, which must not be counted here
            begin = time.perf_counter()
            call()
            if commit:
                next(steps)
            return time.perf_counter() - begin

        next(steps)
        times = interleaved(
            plan.sizes.read_rounds,
            lambda: seconds(by_run, commit=False),
            lambda: seconds(directly, commit=False),
            lambda: seconds(by_run, commit=True),
            lambda: seconds(directly, commit=True),
        )
    alone = _per_call(times[0], times[1], calls)
    whole = _per_call(times[2], times[3], calls)
    return [
        Number(
            number="4",
            what="a read-only tool adds to its function, per call",
            measured=alone.median,
            unit="us",
            at_most=100,
            low=alone.low,
            high=alone.high,
        ),
        Number(
            number="4+",
            what="the same with its share of the next commit (no syncs)",
            measured=whole.median,
            unit="us",
            at_most=100,
            low=whole.low,
            high=whole.high,
        ),
    ]


def measure_wal(plan: Plan) -> list[Number]:
    """Bytes that a journaled step writes."""
    database = plan.place() / "wal.db"
    sizes: list[float] = []
    with (
        WalMeter(database) as meter,
        holdfast.open(database) as hf,
        hf.run("wal", start={}, policy=holdfast.Never()) as run,
    ):
        meter.start()
        for step in itertools.islice(run.steps(), plan.sizes.steps):
            run.model(trivial, step)
            sizes.append(meter.look())
    assert len(sizes) == plan.sizes.steps
    return [
        Number(
            number="W",
            what="WAL per journaled step, on average",
            measured=sum(sizes) / len(sizes) / 1000,
            unit="kB",
            note=f"most often {spread(sizes).median / 1000:.1f} kB, at most {max(sizes) / 1000:.1f} kB",
        )
    ]


def measure_journal(plan: Plan) -> list[Number]:
    """Number 5: the cost of the journal at resume, with and without a checkpoint that closed it."""
    short, long = plan.sizes.journals
    return [
        _opened(plan, "5a", short, closed=False),
        _opened(plan, "5b", long, closed=False),
        _opened(plan, "5c", long, closed=True),
    ]


def _opened(plan: Plan, number: str, entries: int, *, closed: bool) -> Number:
    database = plan.place() / "journal.db"
    with (
        holdfast.open(database, durability="off", tools=[look_up]) as hf,
        hf.run("journal", start={}, policy=holdfast.Never()) as run,
    ):
        # Reads are the fastest way to make a long journal, because they share the next commit.
        for _ in itertools.islice(run.steps(), entries - 1):
            run.tool("look_up", {"word": "holdfast"})
        run.model(trivial, 0)
        if closed:
            run.save()

    def seconds() -> float:
        with holdfast.open(database, durability="off") as hf:
            begin = time.perf_counter()
            with hf.run("journal", policy=holdfast.Never()):
                entered = time.perf_counter()
        return entered - begin

    low, middle, high = spread([seconds() * 1e3 for _ in range(plan.sizes.opens)])
    where = "all of them closed by a checkpoint" if closed else "none of them closed by a checkpoint"
    return Number(
        number=number,
        what=f"entering a run with {entries:,} journal entries, {where}",
        measured=middle,
        unit="ms",
        low=low,
        high=high,
    )


def _per_call(more: list[float], less: list[float], calls: int) -> Spread:
    low, _, high = spread([(a - b) / calls * 1e6 for a, b in zip(more, less, strict=True)])
    return Spread(low, (spread(more).median - spread(less).median) / calls * 1e6, high)
