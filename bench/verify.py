"""Measure `hf.verify()`: `python -m bench.verify`. It is compared with a plain read and sha256 of the same file.

The speed depends on the contents, so there are three stores: small saves of an agent, pages fetched by tools, and
images. Processor time is compared, because wall-clock time means little on a busy machine; both are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from bench.report import machine
from bench.workload import Agent

_STEPS = 300  # saves per thread
_BLOCK = 1 << 20
_WANTED = 300.0  # MB/s, or half the speed of the plain read


class Measured(NamedTuple):
    """One store: its bytes and checkpoints, and seconds (processor, clock) of each way to read it."""

    bytes: int
    checkpoints: int
    bare: tuple[float, float]
    quick: tuple[float, float]
    deep: tuple[float, float]


@cache
def _messages() -> list[dict[str, Any]]:
    """The messages of one run. They are reused, because generating them takes longer than storing them."""
    messages: list[dict[str, Any]] = Agent(seed=1, messages=2 * _STEPS).state["messages"]
    return messages


def _agent(number: int) -> Iterator[Any]:
    """Replies and results of about 1.8 kB, two per save."""
    state: dict[str, Any] = {"task": f"task {number}", "messages": []}
    messages = _messages()
    for step in range(_STEPS):
        state["messages"] += messages[2 * step : 2 * step + 2]
        state["step"] = step
        yield state


def _pages(number: int) -> Iterator[Any]:
    """A different page of 40 kB per save."""
    page = " ".join(message["content"] for message in _messages()[:120])[:40_000]
    state: dict[str, Any] = {"messages": []}
    for step in range(_STEPS):
        state["messages"].append({"role": "tool", "content": f"{number}.{step} {page}"})
        yield state


def _images(number: int) -> Iterator[Any]:
    """256 kB per save that cannot be compressed."""
    source = random.Random(number)
    state: dict[str, Any] = {"messages": []}
    for _ in range(_STEPS // 10):
        state["messages"].append({"role": "tool", "content": source.randbytes(256 << 10)})
        yield state


SHAPES: dict[str, Callable[[int], Iterator[Any]]] = {"agent": _agent, "pages": _pages, "images": _images}


def build(path: Path, states: Callable[[int], Iterator[Any]], size: int) -> None:
    """A store of at least `size` bytes."""
    with holdfast.open(path, durability="off") as hf:
        number = 0
        while sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")) < size:
            thread = hf.thread(f"thread {number}")
            for state in states(number):
                thread.save(state)
            number += 1


def measure(path: Path) -> Measured:
    bare = _timed(lambda: _read(path))
    with holdfast.open(path) as hf:
        quick = _timed(lambda: _sound(hf, deep=False))
        deep = _timed(lambda: _sound(hf, deep=True))
        return Measured(path.stat().st_size, hf.verify(deep=False).checkpoints, bare, quick, deep)


def _sound(hf: holdfast.Holdfast, *, deep: bool) -> None:
    report = hf.verify(deep=deep)
    if not report.ok:
        raise SystemExit(f"the store has problems: {report.problems[:3]}")


def _read(path: Path) -> None:
    hasher = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
    hasher.digest()


def _timed(work: Callable[[], None], rounds: int = 3) -> tuple[float, float]:
    """The best of some rounds: processor seconds and wall-clock seconds."""
    taken: list[tuple[float, float]] = []
    for _ in range(rounds):
        begin = time.process_time(), time.perf_counter()
        work()
        taken.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))
    return min(taken)


def shown(name: str, found: Measured) -> str:
    megabytes = found.bytes / 1e6
    rate = megabytes / found.deep[0]
    share = found.bare[0] / found.deep[0]
    met = "met" if rate >= _WANTED or share >= 0.5 else "MISSED"
    each = 1e6 * found.deep[0] / found.checkpoints
    return (
        f"{name:8} {megabytes:6.0f} {found.checkpoints:8} {megabytes / found.bare[0]:8.0f} "
        f"{megabytes / found.quick[0]:8.0f} {rate:8.0f} {share:7.2f} {each:8.0f} "
        f"{found.deep[1] / found.bare[1]:9.1f}  {met}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description="Measure hf.verify().")
    parser.add_argument("--megabytes", type=int, default=200, help="of each store (200)")
    parser.add_argument("--only", choices=SHAPES, help="one of the stores")
    given = parser.parse_args(arguments)
    write = sys.stdout.write
    write(f"{machine()}\nload {os.getloadavg()[0]:.1f}; MB/s of stored bytes, by processor time\n\n")
    write("store        MB   saves     bare    quick     deep  of bare  us/save clock x bare\n")
    for name in [given.only] if given.only else SHAPES:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            path = Path(folder) / "store.db"
            build(path, SHAPES[name], given.megabytes * 1_000_000)
            write(f"{shown(name, measure(path))}\n")
            sys.stdout.flush()
    write(f"\nBound: deep at {_WANTED:g} MB/s or more, or at least half as fast as the plain read and sha256.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
