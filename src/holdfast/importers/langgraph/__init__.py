"""Import the databases of LangGraph's savers. Needs the extra `langgraph`, and `postgres` for PostgreSQL."""

from __future__ import annotations

import os

from holdfast.errors import NotInstalled
from holdfast.handle import Holdfast
from holdfast.importers.frame import Source

# ruff: noqa: PLC0415 - the imported modules need extras


def open_sqlite(path: str | os.PathLike[str], hf: Holdfast | None) -> Source:
    """Open the database of a SqliteSaver or AsyncSqliteSaver."""
    try:
        from holdfast.importers.langgraph.sqlite import SqliteDatabase
        from holdfast.importers.langgraph.threads import LangGraphSource
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return LangGraphSource(SqliteDatabase(os.fspath(path)), hf)


def open_postgres(url: str, hf: Holdfast | None) -> Source:
    """Open the database of a PostgresSaver or AsyncPostgresSaver."""
    try:
        from holdfast.importers.langgraph.postgres import PostgresDatabase
        from holdfast.importers.langgraph.threads import LangGraphSource
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return LangGraphSource(PostgresDatabase(url), hf)


def _missing(error: ModuleNotFoundError) -> Exception:
    top = (error.name or "").partition(".")[0]
    extra = {"langgraph": "langgraph", "langchain_core": "langgraph", "psycopg": "postgres"}.get(top)
    if extra is None:
        return error
    return NotInstalled(
        f'importing from LangGraph\'s database needs {top}; nothing was imported. Run pip install "holdfast[{extra}]".'
    )
