"""Databases of a PostgreSQL server that a benchmark starts, and ends."""

from __future__ import annotations

import itertools
from functools import cached_property
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from tests.stores.postgres.server import Server


class Databases:
    """A server with PostgreSQL's default settings: commits are synced, for every side. It starts when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = itertools.count(1)
        self._running: Server | None = None

    @cached_property
    def _server(self) -> str:
        self._folder.chmod(0o755)  # PostgreSQL does not run as root, and needs access to its data
        self._running = Server(self._folder / "server")
        self._running.create()
        self._running.start()
        return self._running.url

    def new(self) -> str:
        """The address of a new database."""
        name = f"bench_{next(self._names)}"
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return f"{self._server.rpartition('/')[0]}/{name}"

    def settings(self) -> str:
        """The server's settings that decide whether a commit is synced."""
        with psycopg.connect(self._server) as connection:
            names = ("fsync", "synchronous_commit", "full_page_writes")
            shown = connection.execute("SELECT current_setting(n) FROM unnest(%s::text[]) n", (list(names),))
            return ", ".join(f"{name}={value}" for name, (value,) in zip(names, shown, strict=True))

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()
