"""Number 7: many writers on one handle, and two processes on one file. As a command, it is one such process."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, Self
from unittest import mock

import msgspec

import holdfast
from bench.plan import Plan, child_environment
from bench.report import Number
from bench.timing import interleaved, ratio
from bench.workload import Agent

_DELAY = 1e-3  # seconds added to every sync, like a disk that really writes, whatever this disk does
# A library to preload that delays every sync of a process. strace could do the same, but it slows down 64 threads
# several times even without a delay.
_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static int slowly(const char *name, int descriptor) {
    struct timespec delay = {0, DELAY_NS};
    nanosleep(&delay, 0);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(descriptor);
}
int fsync(int descriptor) { return slowly("fsync", descriptor); }
int fdatasync(int descriptor) { return slowly("fdatasync", descriptor); }
"""
_PROBE = """
import os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR)
begin = time.perf_counter()
for _ in range(10):
    os.fdatasync(descriptor)
print(time.perf_counter() - begin)
"""
_SHORTEST, _LONGEST = 10, 30


class Tally(msgspec.Struct, frozen=True):
    """The saves of one process, their total time, and the time of the slowest."""

    saves: int
    seconds: float
    longest: float


# -- the child ------------------------------------------------------------------------------------------------------


class SlowConnection(sqlite3.Connection):
    """Adds the delay to each commit that wrote something. Used if the syncs themselves cannot be delayed."""

    _before = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.total_changes != self._before:
            self._before = self.total_changes
            time.sleep(_DELAY)
        return super().execute(sql, parameters)


def _write(hf: holdfast.Holdfast, name: str, state: dict[str, Any], deadline: float, tallies: list[Tally]) -> None:
    """Save conversations of 10 to 30 messages, 20 on average, in sequence."""
    messages = state["messages"]
    saves, longest = 0, 0.0
    begin = now = time.perf_counter()
    for number in itertools.count():
        thread = hf.thread(f"{name}-{number}")
        for length in range(_SHORTEST, _LONGEST + 1, 2):
            if now >= deadline:
                tallies.append(Tally(saves, now - begin, longest))
                return
            thread.save({**state, "messages": messages[:length], "step": length})
            before, now = now, time.perf_counter()
            longest = max(longest, now - before)
            saves += 1


def _child(path: str, writers: int, seconds: float) -> Tally:
    states = [Agent(writer, _LONGEST).state for writer in range(writers)]
    tallies: list[Tally] = []
    with holdfast.open(path) as hf:
        print("ready", flush=True)
        sys.stdin.readline()
        deadline = time.perf_counter() + seconds
        threads = [
            threading.Thread(target=_write, args=(hf, f"{os.getpid()}-{i}", state, deadline, tallies))
            for i, state in enumerate(states)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(tallies) == writers, "a writer failed"
    return Tally(
        sum(tally.saves for tally in tallies),
        max(tally.seconds for tally in tallies),
        max(tally.longest for tally in tallies),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("writers", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument(
        "--slow", action="store_true", help="delay commits here, instead of syncs by a preloaded library"
    )
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.slow:
            slow = functools.partial(sqlite3.connect, factory=SlowConnection)
            stack.enter_context(mock.patch("sqlite3.connect", slow))
        tally = _child(options.path, options.writers, options.seconds)
    print(msgspec.json.encode(tally).decode())


# -- the parent -----------------------------------------------------------------------------------------------------


class Child:
    """One writing process, from its start to its results."""

    def __init__(self, plan: Plan, path: Path, writers: int, seconds: float, *, slow: Path | bool = False) -> None:
        command = [sys.executable, "-m", "bench.writers", str(path), str(writers), str(seconds)]
        environment = child_environment(plan.folder)
        if isinstance(slow, Path):
            environment["LD_PRELOAD"] = str(slow)
        elif slow:
            command.append("--slow")
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stdin: IO[str] = _given(self._process.stdin)
        self._stdout: IO[str] = _given(self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._stdout.close()
        self._process.kill()
        self._process.wait()

    def wait_ready(self) -> None:
        assert self._stdout.readline() == "ready\n", "a writing process did not start"

    def go(self) -> None:
        self._stdin.write("go\n")
        self._stdin.flush()

    def tally(self) -> Tally:
        return msgspec.json.decode(self._stdout.readline(), type=Tally)


def _given(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def build_shim(folder: Path) -> Path | None:
    """The library that delays syncs; None if there is no compiler, or if it does not work."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library, probe = folder / "slow.c", folder / "slow.so", folder / "probe"
    source.write_text(_SHIM)
    delay = f"-DDELAY_NS={_DELAY * 1e9:.0f}"
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", delay, "-o", str(library), str(source), "-ldl"], capture_output=True, check=False
    )
    if built.returncode != 0:
        return None
    probe.write_bytes(b"")
    tried = subprocess.run(
        [sys.executable, "-c", _PROBE, str(probe)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        check=False,
    )
    # Nothing was written, so without the delay the syncs would take almost no time.
    return library if tried.returncode == 0 and float(tried.stdout) >= 10 * _DELAY else None


def measure(plan: Plan) -> list[Number]:
    return [_group(plan), *_processes(plan)]


def _group(plan: Plan) -> Number:
    shim = build_shim(plan.folder)
    stores = itertools.count()

    def rate(writers: int) -> float:
        store = plan.folder / f"writers-{next(stores)}.db"
        with Child(plan, store, writers, plan.sizes.seconds, slow=shim or True) as child:
            child.wait_ready()
            child.go()
            tally = child.tally()
        return tally.saves / tally.seconds

    one, many = interleaved(plan.sizes.writer_rounds, lambda: rate(1), lambda: rate(plan.sizes.writers))
    gain = ratio(many, one)
    rates = ", ".join(f"{b:,.0f} against {a:,.0f}" for a, b in zip(one, many, strict=True))
    return Number(
        number="7a",
        what=f"{plan.sizes.writers} writers on one handle / one writer, 1 ms more per sync",
        measured=gain.median,
        unit="x",
        at_least=4,
        low=gain.low,
        high=gain.high,
        note=f"saves/s: {rates}"
        + ("" if shim else "; commits were delayed: no compiler for the library that delays syncs"),
    )


def _processes(plan: Plan) -> list[Number]:
    store = plan.folder / "processes.db"
    holdfast.open(store).close()
    with (
        Child(plan, store, 1, 2 * plan.sizes.seconds) as first,
        Child(plan, store, 1, 2 * plan.sizes.seconds) as second,
    ):
        children = (first, second)
        for child in children:
            child.wait_ready()
        for child in children:
            child.go()
        tallies = [child.tally() for child in children]
    saves = [tally.saves for tally in tallies]
    return [
        Number(
            number="7b",
            what="two processes on one file: the smaller share of the saves",
            measured=100 * min(saves) / max(1, sum(saves)),
            unit="%",
            at_least=40,
            note=f"{saves[0]:,} and {saves[1]:,} saves",
        ),
        Number(
            number="7c",
            what="two processes on one file: the longest save",
            measured=max(tally.longest for tally in tallies),
            unit="s",
            at_most=1,
        ),
    ]


if __name__ == "__main__":
    main()
