"""Starts the measurements of the LangGraph savers, each in a new process with its own folder and database."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec
import psycopg
from psycopg.sql import SQL, Identifier

from bench.langgraph_cases import Case, Crowd, CrowdFound, Found
from bench.plan import child_environment
from tests.stores.postgres.server import Server

CHILD = "bench.langgraph_child"
PATIENCE = 1_800.0  # seconds; the longest writes gigabytes

C = TypeVar("C", Case, Crowd)


class Plan:
    """One execution of the benchmark. `folder` is on the measured disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # No traces are sent during the measurement.
        tracing = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
        self._environment = {**child_environment(folder), **tracing}
        self._places = itertools.count(1)
        self._server: Server | None = None

    def conversation(self, case: Case) -> Found:
        return msgspec.json.decode(self._child("turns", case), type=Found)

    def crowd(self, case: Crowd) -> CrowdFound:
        return msgspec.json.decode(self._child("crowd", case), type=CrowdFound)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def _child(self, kind: str, case: C) -> bytes:
        name = f"case_{next(self._places)}"
        place = self.folder / name
        place.mkdir()
        url = self._create(name) if "postgres" in case.side else ""
        given = msgspec.structs.replace(case, folder=str(place), url=url)
        try:
            done = subprocess.run(
                [sys.executable, "-m", CHILD, kind, msgspec.json.encode(given).decode()],
                env=self._environment,
                cwd=self.folder,
                check=False,
                capture_output=True,
                timeout=PATIENCE,
            )
        finally:
            shutil.rmtree(place, ignore_errors=True)
            if url:
                self._drop(name)
        if done.returncode:
            raise RuntimeError(f"{case.side} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')}")
        return done.stdout.splitlines()[-1]

    @property
    def _address(self) -> str:
        """A server with PostgreSQL's default settings: commits are synced, for every saver."""
        if self._server is None:
            self.folder.chmod(0o755)  # PostgreSQL does not run as root, and needs access to its data
            self._server = Server(self.folder / "server")
            self._server.create()
            self._server.start()
        return self._server.url

    def _create(self, name: str) -> str:
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return f"{self._address.rpartition('/')[0]}/{name}"

    def _drop(self, name: str) -> None:
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))


def settled() -> None:
    """Flush what the previous case left in memory, so that it does not slow down the next one."""
    os.sync()
