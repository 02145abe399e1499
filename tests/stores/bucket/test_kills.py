"""A run that is killed before and after each of its write requests, and ended by another process."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import holdfast
from tests.selection import tries
from tests.stores.bucket.conftest import Servers
from tests.stores.bucket.mortal import ITEMS
from tests.stores.bucket.servers import HONEST, Server
from tests.waiting import DEADLINE, until

SHARE = tries(1, 4)  # one point in so many


def lived(server: Server, prefix: str, ledger: Path, at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.stores.bucket.mortal", server.url(prefix), str(ledger), f"{at}"]
    environment = {**os.environ, **server.environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)


def has_ended(server: Server, prefix: str, ledger: Path) -> bool:
    done = lived(server, prefix, ledger, 0)
    assert done.returncode == 0, done.stderr
    with holdfast.open(server.url(prefix)) as hf:
        return [info.status for info in hf.threads()] == ["completed"]


@pytest.mark.parametrize("kind", HONEST)
def test_a_run_survives_a_kill_at_every_write(
    servers: Servers, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.get(kind)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    whole = lived(server, secrets.token_hex(8), tmp_path / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    points = int(whole.stdout)
    assert points > 20
    for at in range(1 + HONEST.index(kind), points + 1, SHARE):
        prefix, ledger = secrets.token_hex(8), tmp_path / f"{at}"
        killed = lived(server, prefix, ledger, at)
        if not killed.returncode:  # a slow run renews its lease, and then has more writes than this one
            assert int(killed.stdout) < at
            continue
        assert killed.returncode == -9
        # A call in doubt is asked about when it can no longer happen. Until then, the run waits.
        until(partial(has_ended, server, prefix, ledger), f"the run ends that was killed at {at}")
        assert ledger.read_text("utf-8").splitlines() == list(ITEMS), f"killed at {at}"
        with holdfast.open(server.url(prefix)) as hf:
            found = hf.thread("job").latest()
            assert found is not None
            assert [each[0] for each in found.state[1:]] == list(ITEMS), f"killed at {at}"
            assert hf.verify().ok
            hf.optimize()
            assert hf.verify().ok
