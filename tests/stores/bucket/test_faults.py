"""Writers behind a network that fails, and writers that are killed: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import Conflict, OutcomeUnknown
from holdfast.stores.log.bucket_store import BucketStore
from holdfast.stores.log.objects import Objects, Taken
from tests.stores.bucket.conftest import Servers
from tests.stores.bucket.proxy import FAULTS, between
from tests.stores.bucket.servers import HONEST, Server


def opened(server: Server, prefix: str, port: int | None = None) -> holdfast.Holdfast:
    return holdfast.open(BucketStore("s3://bucket/store", namespace="default", client=server.client(prefix, port)))


def add(hf: holdfast.Holdfast, text: str) -> bool:
    """Append a text to the state of one thread. False if the outcome stays unknown."""
    thread = hf.thread("shared")
    while True:
        found = thread.latest()
        texts: list[str] = [] if found is None else found.state
        if text in texts:  # an attempt whose outcome was unknown had succeeded
            return True
        try:
            thread.save([*texts, text])
        except Conflict:
            continue
        except OutcomeUnknown:
            continue
        return True


@pytest.mark.parametrize("kind", HONEST)
def test_writers_behind_a_network_that_fails(servers: Servers, kind: str) -> None:
    server, prefix = servers.get(kind), secrets.token_hex(8)
    hf = opened(server, prefix)
    acknowledged: list[str] = []
    with between(server.port, seed=7, often=0.25) as proxy:

        def write(number: int) -> None:
            with opened(server, prefix, proxy.port) as own:
                acknowledged.extend(text for count in range(5) if add(own, text := f"{number}-{count}"))

        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert set(FAULTS) <= set(proxy.faults), "every kind of fault has happened"
    found = hf.thread("shared").latest()
    assert found is not None
    assert sorted(found.state) == sorted(acknowledged) == sorted(f"{n}-{c}" for n in range(3) for c in range(5))
    assert len(list(hf.thread("shared").history())) == 15
    assert hf.verify().ok
    hf.close()


@pytest.mark.parametrize("kind", HONEST)
def test_conditional_writes_behind_a_network_that_fails(servers: Servers, kind: str) -> None:
    """Each number is created by one writer, and that writer knows it."""
    server, prefix = servers.get(kind), secrets.token_hex(8)
    won: Counter[int] = Counter()
    with between(server.port, seed=3, often=0.4) as proxy:

        def race(writer: int) -> None:
            objects = Objects(server.client(prefix, proxy.port), "bucket")
            for number in range(8):
                try:
                    objects.create(f"race/{number}", b"%d" % writer)
                except Taken:
                    continue
                won[number] += 1

        writers = [threading.Thread(target=race, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert won == dict.fromkeys(range(8), 1)


WORKER = """
import json, sys
import holdfast
from holdfast.errors import Conflict
from holdfast.stores.log.bucket_store import BucketStore
from tests.stores.bucket.servers import Server

kind, port, prefix, name = sys.argv[1:]
client = Server(kind, int(port)).client(prefix)
hf = holdfast.open(BucketStore("s3://bucket/store", namespace="default", client=client))
thread = hf.thread("shared")
for count in range(10_000):
    text = f"{name}-{count}"
    while True:
        found = thread.latest()
        try:
            thread.save([*(found.state if found else []), text])
        except Conflict:
            continue
        break
    print(json.dumps(text), flush=True)
"""


@pytest.mark.parametrize("kind", HONEST)
def test_writers_that_are_killed(servers: Servers, kind: str, tmp_path: Path) -> None:
    server, prefix = servers.get(kind), secrets.token_hex(8)
    opened(server, prefix).close()
    acknowledged: list[str] = []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for turn in range(2):
        started: list[tuple[Path, subprocess.Popen[Any]]] = []
        for number in range(2):
            log = tmp_path / f"{turn}-{number}"
            command = [sys.executable, "-c", WORKER, kind, str(server.port), prefix, log.name]
            with log.open("wb") as output:
                started.append((log, subprocess.Popen(command, stdout=output, env=environment)))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(len(log.read_bytes().splitlines()) < 3 for log, _ in started):
            time.sleep(0.05)
        for log, process in started:
            process.send_signal(signal.SIGKILL)
            process.wait()
            acknowledged += [json.loads(line) for line in log.read_text("utf-8").splitlines() if line.endswith('"')]
    with opened(server, prefix) as hf:
        found = hf.thread("shared").latest()
        assert found is not None
        counts = Counter[str](found.state)
        assert set(acknowledged) <= set(counts), "an acknowledged save is lost"
        assert max(counts.values()) == 1
        assert len(counts) - len(acknowledged) <= 4, "each kill may leave one save that was not acknowledged"
        assert len(list(hf.thread("shared").history())) == len(counts)
        assert hf.verify().ok
