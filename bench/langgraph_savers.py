"""The measured savers, each opened as in its documentation, and their sizes."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from holdfast.adapters.langgraph import HoldfastSaver

POOL = 20  # connections, if a saver can use several

# Another process reads the size of an open database: a second descriptor in this process would drop its locks.
_PAGES = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    [[pages], [page]] = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")]
print(pages * page)
"""


class Place(NamedTuple):
    """The data of a saver: its own folder, and its own database on the server if it needs one."""

    folder: Path
    url: str

    @property
    def file(self) -> Path:
        return self.folder / "saver.db"


@contextmanager
def opened(side: str, place: Place, runner: asyncio.Runner) -> Iterator[Any]:
    """Open a saver. An async saver belongs to the event loop of the runner."""
    saver: Any
    match side:
        case "memory":
            yield InMemorySaver()
        case "sqlite":
            with SqliteSaver.from_conn_string(str(place.file)) as saver:
                yield saver
        case "postgres":
            with PostgresSaver.from_conn_string(place.url) as saver:
                saver.setup()
                yield saver
        case "holdfast-sqlite" | "holdfast-sqlite-async":
            with HoldfastSaver(str(place.file)) as saver:
                yield saver
        case "holdfast-postgres" | "holdfast-postgres-async":
            with HoldfastSaver(place.url) as saver:
                yield saver
        case _:
            context = _opened_async(side, place)
            saver = runner.run(context.__aenter__())
            try:
                yield saver
            finally:
                runner.run(context.__aexit__(None, None, None))


@asynccontextmanager
async def _opened_async(side: str, place: Place) -> AsyncIterator[Any]:
    saver: Any
    match side:
        case "sqlite-async":
            async with AsyncSqliteSaver.from_conn_string(str(place.file)) as saver:
                yield saver
        case "postgres-async":
            async with AsyncPostgresSaver.from_conn_string(place.url) as saver:
                await saver.setup()
                yield saver
        case "postgres-pool":
            options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            async with AsyncConnectionPool[psycopg.AsyncConnection[Any]](
                place.url, min_size=POOL, max_size=POOL, kwargs=options, open=False
            ) as pool:
                await pool.wait()
                saver = AsyncPostgresSaver(pool)
                await saver.setup()
                yield saver
        case _:
            raise ValueError(f"no such saver: {side}")


def works_in_a_loop(side: str) -> bool:
    return side.endswith(("-async", "-pool"))


def size(side: str, place: Place, saver: Any) -> int:
    """Bytes while the saver is open: the database with its log, or the payload of a saver in memory."""
    if side == "memory":
        return _in_memory(saver)
    if "postgres" in side:
        return _in_tables(place.url)
    done = subprocess.run(
        [sys.executable, "-S", "-c", _PAGES, str(place.file)], check=True, capture_output=True, text=True, timeout=60
    )
    return int(done.stdout)


def size_at_rest(side: str, place: Place) -> int:
    """Bytes after the saver was closed: all files, after SQLite emptied its log, or all tables with their indexes."""
    if "postgres" in side:
        return _in_tables(place.url)
    connection = sqlite3.connect(place.file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return sum(path.stat().st_size for path in place.folder.rglob("*") if path.is_file())


def _in_memory(saver: InMemorySaver) -> int:
    blobs = sum(len(data) for _, data in saver.blobs.values())
    writes = sum(len(data) for rows in saver.writes.values() for _, _, (_, data), _ in rows.values())
    rows = (row for spaces in saver.storage.values() for space in spaces.values() for row in space.values())
    return blobs + writes + sum(len(checkpoint[1]) + len(metadata[1]) for checkpoint, metadata, _ in rows)


def _in_tables(url: str) -> int:
    query = """
        SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
    """
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])
