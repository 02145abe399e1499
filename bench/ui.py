"""Processor time and memory of the web UI with 100,000 threads and a thread of 10,000 steps.

    python -m bench.ui [--threads N] [--steps N] [--rounds N]

Prints a table, and exits with 1 if a time or the memory is over its limit. Other programs hardly change the processor
time of the server; the time until the first byte is printed too.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import holdfast
from holdfast import Holdfast


class Limit(NamedTuple):
    """A limit, in milliseconds of processor time per page."""

    path: str
    most: float | None


PAGES = {
    "inbox": Limit("/", 100.0),
    "threads, newest first": Limit("/threads", 100.0),
    "threads by name, in the middle": Limit("/threads?order=name&after=thread/050000", 100.0),
    "threads, their counts": Limit("/threads?part=chips", 100.0),
    "threads, filtered by name": Limit("/threads?q=49999", None),
    "a thread with its newest steps": Limit("/thread?name=long", 400.0),
    "its newest steps": Limit("/thread?name=long&part=steps", 200.0),
    "its steps in the middle": Limit("/thread?name=long&before=5000&part=steps", 200.0),
    "its chosen step": Limit("/thread?name=long&part=chosen", 200.0),
    "its plots": Limit("/thread?name=long&part=plots", None),
    "search, first page": Limit("/search?q=task+9", None),
    "workers": Limit("/workers", 100.0),
}
MEMORY_MOST = 150.0  # MB


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.ui", description="Measure the web UI.")
    parser.add_argument("--threads", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        store = Path(folder) / "agent.db"
        began = time.monotonic()
        _fill(store, options.threads, options.steps)
        print(f"{options.threads} threads and {options.steps} steps were written in {time.monotonic() - began:.0f} s")
        return _measure(store, options.rounds)


def _fill(store: Path, threads: int, steps: int) -> None:
    with holdfast.open(store, durability="off") as hf:
        for number in range(threads):
            hf.thread(f"thread/{number:06}").save({"messages": [{"role": "user", "content": f"task {number}"}]})
        _run(hf, "long", steps)


@holdfast.tool(effect="idempotent")
def look(page: int) -> str:
    return f"what is on page {page}"


def _run(hf: Holdfast, name: str, steps: int) -> None:
    """A run with a checkpoint, a model call and a tool call per step, to fill bars, plots and a journal."""
    reply = {"content": "words " * 20, "usage": {"input_tokens": 210, "output_tokens": 40}}
    with hf.run(name, start={"messages": []}, tools=[look], policy=holdfast.EveryN(1)) as run:
        for step in run.steps():
            said = run.model(lambda: reply)
            run.tool("look", {"page": step}, key=f"page-{step}")
            if step % 10 == 0:
                run.state["messages"].append({"role": "assistant", "content": f"message {step} {said['content']}"})
            if step >= steps:
                run.finish("read")
                break


def _measure(store: Path, rounds: int) -> int:
    command = [sys.executable, "-m", "holdfast", "ui", "--store", str(store), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            if server.stdout is None:
                raise SystemExit("the server has no output")
            url = urlsplit(json.loads(server.stdout.readline())["url"])
            cookie = {"Cookie": f"holdfast-{url.port}={url.query.partition('=')[2]}"}
            missed = 0
            for name, limit in PAGES.items():
                path = limit.path
                _first_byte(url.netloc, path, cookie)  # the first one may fill a cache
                before = _processor(server.pid)
                times = [_first_byte(url.netloc, path, cookie) for _ in range(rounds)]
                median, used = statistics.median(times), (_processor(server.pid) - before) / rounds
                is_missed = limit.most is not None and used > limit.most
                missed += is_missed
                said = "" if limit.most is None else f"under {limit.most:.0f} ms: {'MISSED' if is_missed else 'held'}"
                print(f"  {name:32} {used:8.1f} ms of processor time {median:8.1f} ms until the first byte   {said}")
            memory = _memory(server.pid)
            is_missed = memory > MEMORY_MOST
            said = f"under {MEMORY_MOST:.0f} MB: {'MISSED' if is_missed else 'held'}"
            print(f"  {'memory of the server':32} {memory:8.1f} MB   {said}")
            return 1 if missed or is_missed else 0
        finally:
            server.terminate()


def _first_byte(host: str, path: str, cookie: dict[str, str]) -> float:
    """Milliseconds until the first byte of a response; a redirect is followed."""
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        began = time.perf_counter()
        connection.request("GET", path, headers=cookie)
        answer = connection.getresponse()
        answer.read(1)
        took = (time.perf_counter() - began) * 1000
        answer.read()
        if answer.status == http.client.SEE_OTHER:
            return took + _first_byte(host, answer.headers["Location"], cookie)
        if answer.status != http.client.OK:
            raise SystemExit(f"{path} was answered with {answer.status}")
        return took
    finally:
        connection.close()


def _processor(pid: int) -> float:
    """The processor time of a process, in milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """The peak memory of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1000


if __name__ == "__main__":
    sys.exit(main())
