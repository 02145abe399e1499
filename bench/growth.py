"""Number 2: bytes that a long conversation writes and keeps, compared with a full copy at every save."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import ormsgpack
import zstandard

from bench.plan import Plan
from bench.report import Number, Row
from bench.timing import spread
from bench.wal import WalMeter, total_size
from bench.workload import Agent, State, compact

_PER_CHECKPOINT = 300
# A full copy is stored only at every so many steps, and counted that many times: all copies would be gigabytes.
_SAMPLED = 10


def measure(plan: Plan) -> list[Number]:
    run = plan.long_run
    growth = spread(run.growth)
    spare = _PER_CHECKPOINT * run.steps
    return [
        Number(
            number="2a",
            what="growth of the database per step / compact JSON of the change",
            measured=sum(run.growth) / len(run.growth),
            unit="x",
            at_most=1.3,
            low=growth.low,
            high=growth.high,
            note=f"{run.steps:,} steps of {run.changed / run.steps:,.0f} bytes, which zstd alone makes "
            f"{run.changed / run.squeezed:.2f} x smaller; worst window {max(run.growth):.2f} x",
        ),
        Number(
            number="2b",
            what="WAL per save, on average",
            measured=run.wal / run.steps / 1000,
            unit="kB",
            at_most=16,
            note=f"the largest save wrote {run.wal_worst / 1000:,.0f} kB",
        ),
        Number(
            number="2c",
            what="file before optimize(), less 300 bytes per checkpoint / JSON of the last state",
            measured=(run.plain_size - spare) / run.json,
            unit="x",
            at_most=0.7,
            note=f"{run.plain_size:,} bytes for {run.json:,} of JSON; {run.plain_size / run.json:.2f} x in all",
        ),
        Number(
            number="2d",
            what="file after optimize(), less 300 bytes per checkpoint / JSON of the last state",
            measured=(run.optimized_size - spare) / run.json,
            unit="x",
            at_most=0.5,
            note=f"{run.optimized_size:,} bytes: {run.optimized_size / run.json:.2f} x in all",
        ),
    ]


def versus(plan: Plan) -> list[Row]:
    """The same conversation with a full copy per save. Counts bytes written to the WAL, not to the database."""
    run = plan.long_run
    squeeze = zstandard.ZstdCompressor(level=3).compress

    def squeezed(state: State) -> bytes:
        return squeeze(ormsgpack.packb(state))

    return [
        _copies(plan.folder / "json.db", run.steps, "a full copy, JSON", compact),
        _copies(plan.folder / "zstd.db", run.steps, "a full copy, msgpack + zstd", squeezed),
        Row("Holdfast, as saved", run.wal, run.plain_size),
    ]


def _copies(path: Path, steps: int, way: str, encode: Callable[[State], bytes]) -> Row:
    agent = Agent()
    sampled = min(_SAMPLED, max(1, steps // 10))
    with WalMeter(path) as meter:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("CREATE TABLE copy (step INTEGER PRIMARY KEY, state BLOB NOT NULL)")
            meter.start()
            for step in range(1, steps + 1):
                agent.step()
                if step % sampled == 0:
                    connection.execute("INSERT INTO copy VALUES (?, ?)", (step, encode(agent.state)))
                    meter.look()
        finally:
            connection.close()
    row = Row(way, meter.written * sampled, total_size(path) * sampled)
    path.unlink()
    return row
