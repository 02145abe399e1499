"""The memory of a handle, counted by tracemalloc in multiples of the encoded state.

SQLite's page cache and zstd's buffers are outside Python and are not counted; both are small and fixed.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager

import ormsgpack

import holdfast
from bench.longrun import THREAD
from bench.plan import Plan
from bench.report import Number
from bench.workload import Agent

# A handle keeps the bytes of a state, the objects around them, and digests to find them by.
_AROUND = 0.25


@contextmanager
def _counting() -> Generator[None, None, None]:
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure(plan: Plan) -> list[Number]:
    return [*_loading(plan), *_saving(plan), _bounded(plan)]


def _loading(plan: Plan) -> list[Number]:
    """Measure `latest()`. The loaded state is the caller's copy; the handle keeps its own."""
    run = plan.long_run
    data = ormsgpack.packb(run.state)
    with _counting():
        before = _held()
        value = ormsgpack.unpackb(data)
        decoded = _held() - before
    del value
    with _counting(), holdfast.open(run.optimized, durability="off") as hf:
        before = _held()
        thread = hf.thread(THREAD)
        tracemalloc.reset_peak()
        checkpoint = thread.latest()
        peak = tracemalloc.get_traced_memory()[1] - before
        assert checkpoint is not None
        size = checkpoint.size
        del checkpoint
        held = _held() - before
    return [
        Number(
            number="M1",
            what="held by a handle after latest() / encoded state",
            measured=held / size,
            unit="x",
            at_most=1 + _AROUND,
            note=f"the state is {size:,} bytes encoded, {decoded:,} as Python objects",
        ),
        Number(
            number="M2",
            what="peak of latest() / the encoded state and the one returned",
            measured=peak / (size + decoded),
            unit="x",
            at_most=1 + _AROUND,
            note=f"{peak:,} bytes: {peak / size:.2f} x encoded, {decoded / size:.2f} x of it the returned state",
        ),
    ]


def _saving(plan: Plan) -> list[Number]:
    agent = Agent(0, plan.sizes.messages)
    with _counting(), holdfast.open(plan.folder / "memory.db", durability="off") as hf:
        before = _held()
        thread = hf.thread(THREAD)
        tracemalloc.reset_peak()
        thread.save(agent.state)
        first_peak = tracemalloc.get_traced_memory()[1] - before
        peak = held = 0
        size = 1
        for _ in range(5):
            made = _held()
            agent.step()
            before += _held() - made  # the new messages belong to the caller
            tracemalloc.reset_peak()
            size = thread.save(agent.state).size
            peak = max(peak, tracemalloc.get_traced_memory()[1] - before)
            held = _held() - before
    return [
        Number(
            number="M3",
            what="held by a handle after a save that added two messages / encoded state",
            measured=held / size,
            unit="x",
            at_most=1 + _AROUND,
        ),
        Number(
            number="M4",
            what="peak of that save, all that the handle holds included / encoded state",
            measured=peak / size,
            unit="x",
            at_most=2 + _AROUND,
        ),
        Number(
            number="M5",
            what="peak of the first save, nothing held before / encoded state",
            measured=first_peak / size,
            unit="x",
            at_most=2 + _AROUND,
        ),
    ]


def _bounded(plan: Plan) -> Number:
    """Save more threads than fit: the counted memory must stay under the bound and match the real one."""
    bound = 1 << 20
    agents = [Agent(seed, 20) for seed in range(max(40, plan.sizes.rounds // 2))]
    with _counting(), holdfast.open("memory:", base_bytes=bound) as hf:
        most = real = 0
        for number, agent in enumerate(agents):
            hf.thread(f"thread-{number}").save(agent.state)
            most = max(most, hf.context.bases.size)
        before = _held()
        hf.context.bases.clear()
        real = before - _held()
    return Number(
        number="M6",
        what=f"bases of {len(agents)} threads / base_bytes",
        measured=most / bound,
        unit="x",
        at_most=1,
        note=f"{real / bound:.2f} x of it really held at the end",
    )
