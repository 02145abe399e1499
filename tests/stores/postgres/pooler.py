"""A real PgBouncer in transaction mode between the tests and their PostgreSQL server.

Each transaction may run on another connection to the server, so the store must not rely on the state of a session.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.stores.postgres.server import NOBODY, PATIENCE, database, free_port, ordinary_user

_SETTINGS = """\
[databases]
postgres = host={host} port={port} dbname=postgres user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
logfile =
pidfile =
"""


def program() -> str:
    """Where PgBouncer is. Without it these tests would show nothing, so they fail."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.fail("the tests of poolers need PgBouncer: apt-get install pgbouncer (Debian, Ubuntu)", pytrace=False)
    return found


@contextmanager
def pooler() -> Iterator[str]:
    """The address of a pooler in front of the test server. It ends with the block."""
    server = urlsplit(database())
    listen = free_port()
    with tempfile.TemporaryDirectory(prefix="holdfast-pooler-") as name:
        folder = Path(name)
        settings = folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(host=server.hostname, port=server.port, listen=listen))
        for path in (folder, settings):
            path.chmod(0o755)
            if os.getuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program(), settings], stdout=log, stderr=log, **ordinary_user())
        try:
            url = f"postgresql://postgres@127.0.0.1:{listen}/postgres"
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    psycopg.connect(url, connect_timeout=5).close()
                    break
                except psycopg.OperationalError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError((folder / "log").read_text(errors="replace")) from None
                    time.sleep(0.02)
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE)
