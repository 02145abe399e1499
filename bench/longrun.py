"""An agent of 1,500 steps that saves each step: the bytes that it writes and keeps on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import zstandard

import holdfast
from bench.wal import WalMeter, total_size
from bench.workload import Agent, State, compact

THREAD = "conversation"
_WINDOW = 100  # steps over which growth is averaged, because a file grows by pages


class LongRun(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a long run: the store, an optimized copy, and counts taken during the run."""

    plain: Path
    optimized: Path
    state: State
    steps: int
    changed: int
    squeezed: int  # bytes of the changes, each compressed separately
    json: int
    growth: list[float]
    wal: int
    wal_worst: int
    plain_size: int
    optimized_size: int


def long_run(folder: Path, messages: int) -> LongRun:
    """Execute the run without syncs: the WAL and the files are the same at every durability."""
    plain, optimized = folder / "plain.db", folder / "optimized.db"
    agent = Agent()
    steps = messages // 2
    changed = squeezed = worst = window_changed = 0
    growth: list[float] = []
    squeeze = zstandard.ZstdCompressor(level=3).compress
    with WalMeter(plain) as meter, holdfast.open(plain, durability="off") as hf:
        meter.start()
        thread = hf.thread(THREAD)
        size = meter.database_size()
        window = min(_WINDOW, max(1, steps // 3))
        for step in range(1, steps + 1):
            thread.save(agent.step())
            changed += len(agent.changed)
            squeezed += len(squeeze(agent.changed))
            window_changed += len(agent.changed)
            worst = max(worst, meter.look())
            if step % window == 0:
                growth.append((meter.database_size() - size) / window_changed)
                size, window_changed = meter.database_size(), 0
        wal = meter.written
    plain_size = total_size(plain)
    shutil.copyfile(plain, optimized)
    with holdfast.open(optimized, durability="off") as other:
        other.optimize()
    return LongRun(
        plain=plain,
        optimized=optimized,
        state=agent.state,
        steps=steps,
        changed=changed,
        squeezed=squeezed,
        json=len(compact(agent.state)),
        growth=growth,
        wal=wal,
        wal_worst=worst,
        plain_size=plain_size,
        optimized_size=total_size(optimized),
    )
