"""Number 4: reading a long conversation with a handle that has nothing of it cached."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ormsgpack

import holdfast
from bench.longrun import THREAD
from bench.plan import Plan
from bench.report import Number
from bench.timing import interleaved, ratio, spread, timed

_BOUNDS = {"optimized": 3.5, "plain": 6.0}


def measure(plan: Plan) -> list[Number]:
    run = plan.long_run
    packed = plan.folder / "state.msgpack"
    packed.write_bytes(ormsgpack.packb(run.state))
    stores = {"optimized": run.optimized, "plain": run.plain}
    opening: dict[str, list[float]] = {name: [] for name in stores}
    for name, path in stores.items():
        _load(path, opening[name], check=run.state)
        opening[name].clear()
    first, *others = interleaved(
        plan.sizes.loads,
        lambda: timed(_unpack, packed),
        *(_loader(path, opening[name]) for name, path in stores.items()),
    )
    numbers: list[Number] = []
    for letter, name, times in zip("ab", stores, others, strict=True):
        warm = ratio(times, first)
        whole = ratio(opening[name], first)
        state = "after" if name == "optimized" else "before"
        numbers.append(
            Number(
                number=f"4{letter}",
                what=f"latest() from a cold handle, {state} optimize() / one uncompressed msgpack file",
                measured=warm.median,
                unit="x",
                at_most=_BOUNDS[name],
                low=warm.low,
                high=warm.high,
                note=f"{spread(times).median * 1e3:.1f} ms against {spread(first).median * 1e3:.1f} ms; "
                f"{whole.median:.2f} x with opening the store",
            )
        )
    return numbers


def _unpack(path: Path) -> Any:
    with path.open("rb") as file:
        return ormsgpack.unpackb(file.read())


def _loader(path: Path, opening: list[float]) -> Callable[[], float]:
    return lambda: _load(path, opening)


def _load(path: Path, opening: list[float], check: Any = None) -> float:
    """Seconds of latest(). Seconds that include opening the store are appended to `opening`."""
    begin = time.perf_counter()
    hf = holdfast.open(path)
    try:
        thread = hf.thread(THREAD)
        opened = time.perf_counter()
        checkpoint = thread.latest()
        end = time.perf_counter()
        opening.append(end - begin)
        assert checkpoint is not None
        assert check is None or checkpoint.state == check, "the loaded state differs from the saved one"
        return end - opened
    finally:
        hf.close()
