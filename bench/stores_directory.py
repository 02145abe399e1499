"""Numbers D1 to D3: the cost of the directory store compared with plain files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from bench.report import Number
from bench.saving import SHORT, Durability, Short
from bench.stores_plan import Plan
from bench.timing import Spread, interleaved, ratio, spread, timed
from bench.workload import Agent, State, compact

THREAD = "conversation"


class Bare:
    """The minimum for the same guarantee in a file: one append, one sync."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._syncs = durability == "full"

    def append(self, body: bytes) -> None:
        os.write(self._descriptor, body)
        if self._syncs:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def measure_save(plan: Plan) -> list[Number]:
    """Number D1: a save of a short conversation compared with a plain append of the change."""
    durable, bare, save = _against_bare(plan, "full")
    work, bare_work, save_work = _against_bare(plan, "off")
    return [
        Number(
            number="D1",
            what=f"directory: durable save at {SHORT} messages / bare append and fdatasync of what changed",
            measured=durable.median,
            unit="x",
            at_most=1.5,
            low=durable.low,
            high=durable.high,
            note=f"append {shown(bare)}, save {shown(save)}",
        ),
        Number(
            number="D1+",
            what="the same without syncs: the work alone",
            measured=save_work.median * 1e6,
            unit="us",
            low=save_work.low * 1e6,
            high=save_work.high * 1e6,
            note=f"append {shown(bare_work)}; {work.median:.1f} x",
        ),
    ]


def shown(times: Spread) -> str:
    return f"{times.median * 1e6:,.0f} us ({times.low * 1e6:,.0f} to {times.high * 1e6:,.0f})"


def _against_bare(plan: Plan, durability: Durability) -> tuple[Spread, Spread, Spread]:
    folder = plan.place()
    bare = Bare(folder / "bare.jsonl", durability)
    try:
        with holdfast.open(f"dir:{folder / 'store'}", durability=durability) as hf:
            times = save_beside(Short(hf), bare.append, plan.sizes.saves)
    finally:
        bare.close()
    return ratio(*times), spread(times[1]), spread(times[0])


def save_beside(short: Short, bare: Callable[[bytes], None], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of saves, and of plain appends of the same bytes, in turn."""
    saves: list[float] = []
    bares: list[float] = []
    for i in range(2 * rounds):
        thread, state = short.prepare()
        if i % 2:
            saves.append(timed(thread.save, state))
        bares.append(timed(bare, short.changed))
        if not i % 2:
            saves.append(timed(thread.save, state))
    return saves, bares


def measure_log(plan: Plan) -> list[Number]:
    """Numbers D2 and D3: reading a long conversation that was saved at every step, and its size."""
    folder = plan.place()
    store, page = folder / "store", folder / "state.json"
    agent = Agent()
    changed = 0
    with holdfast.open(f"dir:{store}", durability="off") as hf:
        thread = hf.thread(THREAD)
        for _ in range(plan.sizes.messages // 2):
            thread.save(agent.step())
            changed += len(agent.changed)
    page.write_bytes(compact(agent.state))
    written = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    return [
        *_loads(plan, store, page, agent.state),
        Number(
            number="D3",
            what="directory: bytes per step / compact JSON of what changed",
            measured=written / changed,
            unit="x",
            at_most=1.5,
            note=f"{written:,} bytes for {changed:,}",
        ),
    ]


def _loads(plan: Plan, store: Path, page: Path, state: State) -> list[Number]:
    _load(store, check=state)
    own, plain, fast = interleaved(
        plan.sizes.loads,
        lambda: _load(store),
        lambda: timed(_decode, page, json.loads),
        lambda: timed(_decode, page, msgspec.json.decode),
    )
    numbers: list[Number] = []
    for number, bound, name, times in (("D2", 3.0, "Python's json", plain), ("D2+", None, "msgspec", fast)):
        low, middle, high = ratio(own, times)
        numbers.append(
            Number(
                number=number,
                what=f"directory: latest() of {plan.sizes.messages:,} messages, cold handle / one JSON file ({name})",
                measured=middle,
                unit="x",
                at_most=bound,
                low=low,
                high=high,
                note=f"{spread(own).median * 1e3:.1f} ms against {spread(times).median * 1e3:.1f} ms",
            )
        )
    return numbers


def _decode(path: Path, decode: Callable[[bytes], Any]) -> Any:
    with path.open("rb") as file:
        return decode(file.read())


def _load(path: Path, check: State | None = None) -> float:
    """Seconds of latest()."""
    with holdfast.open(f"dir:{path}") as hf:
        thread = hf.thread(THREAD)
        begin = time.perf_counter()
        checkpoint = thread.latest()
        seconds = time.perf_counter() - begin
        assert checkpoint is not None
        assert check is None or checkpoint.state == check, "the loaded state differs from the saved one"
        return seconds
