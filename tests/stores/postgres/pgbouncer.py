"""A real PgBouncer in front of the tests' server, in transaction mode: each transaction may get another connection."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.stores.postgres.server import PATIENCE, free_port, ordinary_user

_CONFIG: Final = """
[databases]
* = host={host} port={port} user={user} connect_query='{first}'

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 400
max_prepared_statements = 0
"""


@contextlib.contextmanager
def pgbouncer(url: str, *, first: str) -> Iterator[str]:
    """Start PgBouncer for a server; yield the address of the pooler. Each server connection runs `first`."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert program is not None, "the tests need pgbouncer: apt-get install pgbouncer"
    parts = urlsplit(url)
    assert parts.hostname is not None
    with tempfile.TemporaryDirectory(prefix="holdfast-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        own = free_port()
        config = _CONFIG.format(
            host=parts.hostname, port=parts.port or 5432, own=own, first=first, user=parts.username or "postgres"
        )
        if _version(program) < (1, 21):  # the setting is newer, and prepared statements did not exist before it
            config = config.replace("max_prepared_statements = 0\n", "")
        (folder / "pgbouncer.ini").write_text(config)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, str(folder / "pgbouncer.ini")], stdout=log, stderr=log, **ordinary_user()
            )
        try:
            user = parts.netloc.rpartition("@")[0]
            netloc = f"{user}@127.0.0.1:{own}" if user else f"127.0.0.1:{own}"
            pooled = urlunsplit(parts._replace(netloc=netloc))
            _wait_for(pooled, process, folder / "log")
            yield pooled
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def _version(program: str) -> tuple[int, ...]:
    text = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, text.split()[1].split(".")))


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text(errors="replace")) from None
            time.sleep(0.02)
