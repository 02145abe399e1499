"""Numbers P1 to P4: both sides use the same server, with syncs. Every measurement has its own database."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
from msgspec.structs import replace

import holdfast
from bench.report import Number
from bench.saving import SHORT, Short
from bench.stores_directory import save_beside, shown
from bench.stores_plan import Plan
from bench.timing import interleaved, ratio, spread
from holdfast.urls import open_store

_HANDLER = "work"
_FILLERS = 8
_PAGE = 50  # as many as a worker reads


class Bare:
    """The minimum for the same guarantee in PostgreSQL: one row in its own transaction."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE TABLE step (number bigserial PRIMARY KEY, body bytea NOT NULL)")

    def insert(self, body: bytes) -> None:
        self._connection.execute("INSERT INTO step (body) VALUES (%b)", (body,))

    def close(self) -> None:
        self._connection.close()


def measure_save(plan: Plan) -> list[Number]:
    """Number P1: saves per second of one writer compared with plain inserts of the change."""
    return [
        _against_bare(plan, "P1", "", 0.6),
        _against_bare(plan, "P1+", "?prepare=yes", None),
    ]


def _against_bare(plan: Plan, number: str, options: str, least: float | None) -> Number:
    url = plan.database()
    bare = Bare(url)
    try:
        with holdfast.open(f"{url}{options}") as hf:
            saves, inserts = save_beside(Short(hf), bare.insert, plan.sizes.saves)
    finally:
        bare.close()
    low, middle, high = ratio(inserts, saves)  # of times, so the ratio of rates is its inverse
    return Number(
        number=number,
        what=f"PostgreSQL{f' with {options}' if options else ''}: durable saves/s at {SHORT} messages "
        "/ bare inserts/s of what changed",
        measured=middle,
        unit="x",
        at_least=least,
        low=low,
        high=high,
        note=f"insert {shown(spread(inserts))}, save {shown(spread(saves))}",
    )


def measure_one(plan: Plan) -> list[Number]:
    """Number P2: steps per second of one run."""
    steps = plan.sizes.steps
    return _versus(plan, "P2", f"one run of {steps:,} journaled steps", 2.5, (1, 1), steps)


def measure_many(plan: Plan) -> list[Number]:
    """Number P3: steps per second of concurrent writers."""
    sizes = plan.sizes
    what = f"{sizes.writers} concurrent writers (DBOS: {sizes.workflows} workflows)"
    return _versus(plan, "P3", what, 5, (sizes.writers, sizes.workflows), sizes.steps_each)


def _versus(plan: Plan, number: str, what: str, least: float, counts: tuple[int, int], steps: int) -> list[Number]:
    versions: set[str] = set()

    def rate(side: str, count: int) -> float:
        found = plan.child(side, plan.database(), count, steps)
        versions.update({found["version"]} if "version" in found else ())
        return float(count * steps / found["seconds"])

    sides = zip(plan.sides, counts, strict=False)
    own, *others = interleaved(
        plan.sizes.rounds, *(lambda side=side, count=count: rate(side, count) for side, count in sides)
    )
    numbers: list[Number] = []
    for other in others:
        low, middle, high = ratio(own, other)
        numbers.append(
            Number(
                number=number,
                what=f"PostgreSQL: {what}: steps/s / DBOS",
                measured=middle,
                unit="x",
                at_least=least,
                low=low,
                high=high,
                note=f"DBOS {', '.join(versions)}; "
                f"{spread(own).median:,.0f} against {spread(other).median:,.0f} steps/s",
            )
        )
    low, middle, high = spread(own)
    what = f"PostgreSQL: {what}: steps/s"
    return [*numbers, Number(number=f"{number}+", what=what, measured=middle, unit="steps/s", low=low, high=high)]


def measure_claims(plan: Plan) -> list[Number]:
    """Number P4: claims while many runs are queued or wait for an answer."""
    url = plan.database()
    waiting, claims = plan.sizes.waiting, plan.sizes.claims
    _fill(url, waiting, 2 * claims + 1)  # a worker's first run follows no other
    beside = f"{waiting:,} runs queued and {waiting:,} waiting for an answer"
    return [
        _slowest("P4", f"to find the oldest run and claim it, {beside}", _claims(url, claims), 20),
        _slowest("P4+", "from the end of a worker's run to the start of its next", _turns(url, claims), None),
    ]


def _slowest(number: str, what: str, times: list[float], most: float | None) -> Number:
    low, middle, high = spread(times)
    return Number(
        number=number,
        what=f"PostgreSQL: p99 {what}",
        measured=statistics.quantiles(times, n=100, method="inclusive")[98],
        unit="ms",
        at_most=most,
        note=f"median {middle:.1f} ms ({low:.1f} to {high:.1f}), longest {max(times):.1f} ms",
    )


def _claims(url: str, claims: int) -> list[float]:
    """Milliseconds of the two operations, without the run itself."""
    times: list[float] = []
    store = open_store(url, namespace="default", durability="full")
    try:
        for _ in range(claims):
            begin = time.perf_counter()
            [(_, row), *_] = store.runs(statuses=("queued", "running"), after=(0, 0), limit=_PAGE)
            store.claim(row, replace(row, status="running", fence=row.fence + 1, updated_at=time.time_ns() // 1000))
            times.append((time.perf_counter() - begin) * 1e3)
    finally:
        store.close()
    return times


def _turns(url: str, claims: int) -> list[float]:
    """Milliseconds to leave a finished run, find the runs that are due, claim the oldest and load its state."""
    times: list[float] = []
    with holdfast.open(url) as hf:
        ended: float | None = None

        def work(run: holdfast.Run) -> None:
            nonlocal ended
            started = time.perf_counter()
            if ended is not None:
                times.append((started - ended) * 1e3)
            run.finish()
            if len(times) >= claims:
                worker.stop()
            ended = time.perf_counter()

        worker = hf.worker({_HANDLER: work})
        worker.run(until_idle=True)
    assert len(times) == claims, "the queue was empty too early"
    return times


def _fill(url: str, waiting: int, more: int) -> None:
    """Create queued and waiting runs. This is not measured, so it is not synced."""
    with holdfast.open(url, durability="off") as hf, ThreadPoolExecutor(_FILLERS) as pool:

        def ask(i: int) -> None:
            with hf.run(f"waiting-{i}", start={"messages": []}) as run:
                run.wait("approval")

        def queue(i: int) -> None:
            hf.submit(_HANDLER, f"queued-{i}", start={"messages": []})

        for _ in pool.map(ask, range(waiting)):
            pass
        for _ in pool.map(queue, range(waiting + more)):
            pass
