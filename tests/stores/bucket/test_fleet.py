"""The fleet example on servers of objects, with and without a network that fails: every effect happens exactly once."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.examples.serving import EXAMPLES
from tests.selection import tries
from tests.stores.bucket.conftest import Servers
from tests.stores.bucket.proxy import between
from tests.stores.bucket.servers import HONEST, Server
from tests.waiting import DEADLINE

RUNS = tries(30, 10)
SMALL = ("--runs", f"{RUNS}", "--workers", "3", "--concurrency", "2", "--kills", "3", "--restarts", "0")


@contextmanager
def port_of(server: Server, network: str) -> Generator[int]:
    if network == "sound":
        yield server.port
        return
    with between(server.port, seed=11, often=0.05) as proxy:
        yield proxy.port


@pytest.mark.parametrize("network", ["sound", "failing"])
@pytest.mark.parametrize("kind", HONEST)
def test_every_effect_happens_once(servers: Servers, kind: str, network: str) -> None:
    server = servers.get(kind)
    with port_of(server, network) as port:
        url = server.url(secrets.token_hex(8), port)
        # A short lease on a busy machine and a slow server ends while its worker is alive. That is allowed: fences.
        options = ["--store", url, *SMALL, "--lease", "3", "--seed", "7", "--deadline", f"{4 * DEADLINE}"]
        done = subprocess.run(
            [sys.executable, "-m", "examples.fleet", *options],
            cwd=EXAMPLES.parent,
            env={**os.environ, **server.environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=4 * DEADLINE + 120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was lost, and nothing was done twice." in done.stdout
    assert f"runs completed                    {RUNS}" in done.stdout
