"""The measurement of Restate. Starts a server, prints the results as JSON.

It needs Restate's client and Hypercorn, and not Holdfast. The server has its default settings, with which it syncs its
log. It has one node, listens on loopback only, and logs less. Hypercorn serves the steps as in Restate's documentation.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.side_by_side import measure

_PATIENCE = 60.0
_UNLIMITED = 2**31 - 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def post(port: int, path: str, body: object) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10 * _PATIENCE) as answer:  # noqa: S310 - loopback
        return json.loads(answer.read())


@contextmanager
def server(program: str, folder: Path, ingress: int, admin: int) -> Iterator[subprocess.Popen[bytes]]:
    """Restate's server. It ends with the block."""
    settings = {
        "RESTATE_BASE_DIR": str(folder / "data"),
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{free_port()}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--no-logo"], env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def serve(port: int, made: list[int]) -> None:
    """Serve the handler with Hypercorn, until the process ends."""
    # Imported by name, so that type checkers do not need them.
    restate, hypercorn = importlib.import_module("restate"), importlib.import_module("hypercorn")
    serving = importlib.import_module("hypercorn.asyncio")

    # Not a plain function: the client would call it in another thread, which is slower.
    async def act(i: int) -> int:
        made.append(i)
        return i

    async def work(context: Any, steps: int) -> int:
        last = 0
        for i in range(1, steps + 1):
            last = await context.run_typed("act", act, i=i)
        return last

    service = restate.Service("bench")
    service.handler()(work)
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.h2_max_concurrent_streams = config.keep_alive_max_requests = _UNLIMITED
    config.loglevel = "ERROR"

    # Without a trigger, Hypercorn handles signals, which only the main thread can.
    async def never() -> None:
        await asyncio.Event().wait()

    asyncio.run(serving.serve(restate.app([service]), config, shutdown_trigger=never))


def register(process: subprocess.Popen[bytes], admin: int, port: int, log: Path) -> None:
    """Tell the server where the handler is, as soon as both are ready."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            post(admin, "/deployments", {"uri": f"http://127.0.0.1:{port}/"})
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Restate did not start: {error}\n{log.read_text(errors='replace')}") from error
            time.sleep(0.05)
        else:
            return


def acting(folder: Path, program: str, runs: int, steps: int) -> dict[str, Any]:
    """Runs whose steps act. A step that calls a model is the same in Restate."""
    made: list[int] = []
    ingress, admin, port = free_port(), free_port(), free_port()
    threading.Thread(target=serve, args=(port, made), daemon=True).start()

    def work(_: str, count: int) -> None:
        assert post(ingress, "/bench/work", count) == count

    with server(program, folder, ingress, admin) as process:
        register(process, admin, port, folder / "log")
        work("first", 1)  # waits until the server has elected its leaders
        found = measure(work, made, runs, steps)
    assert not found["failed"], "a run failed"
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    client, asgi = importlib.metadata.version("restate-sdk"), importlib.metadata.version("hypercorn")
    settings = f"Restate {version}, default settings: the log is synced; restate-sdk {client}, Hypercorn {asgi}"
    return {**found, "settings": settings}


if __name__ == "__main__":
    print(json.dumps(acting(Path(sys.argv[3]), sys.argv[4], *map(int, sys.argv[5:]))), flush=True)
    # Hypercorn's thread does not end.
    os._exit(0)
