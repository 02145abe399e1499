"""Import the threads of LangGraph's SqliteSaver and PostgresSaver: `migrate`, thread by thread, with a report."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

from holdfast.errors import InvalidArgument, NotFound, NotInstalled, StoreError
from holdfast.handle import Holdfast
from holdfast.importers.frame import (
    CHECK_PATH,
    CHECK_SOURCE,
    ImportSource,
    ImportTally,
    Options,
    SourceThread,
    Unusable,
)

# ruff: noqa: PLC0415 - the imported modules need extras


def open_sqlite(path: str, hf: Holdfast | None, _options: Options) -> ImportSource:
    """Open the database of a SqliteSaver or AsyncSqliteSaver."""
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ModuleNotFoundError as error:
        raise _missing("langgraph-checkpoint-sqlite", "langgraph") from error
    if not os.path.isfile(path):
        raise NotFound(f"there is no file {path}; {CHECK_PATH}")
    stack = ExitStack()
    try:
        address = f"file:{quote(os.path.abspath(path))}?mode=ro"
        connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        stack.callback(connection.close)
        connection.execute("SELECT checkpoint_id FROM checkpoints LIMIT 1").fetchone()
        saver = SqliteSaver(connection)
        saver.is_setup = True  # the file is only read
    except sqlite3.OperationalError as error:
        stack.close()
        raise InvalidArgument(
            f"{path} is not a database of LangGraph's SqliteSaver: {error}; {CHECK_SOURCE}"
        ) from error
    except sqlite3.DatabaseError as error:
        stack.close()
        raise InvalidArgument(f"{path} cannot be read as a SQLite database: {error}; {CHECK_SOURCE}") from error
    return _Saver(saver, stack, hf)


def open_postgres(url: str, hf: Holdfast | None, _options: Options) -> ImportSource:
    """Open the database of a PostgresSaver or AsyncPostgresSaver."""
    try:
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
    except ModuleNotFoundError as error:
        raise _missing("langgraph-checkpoint-postgres", "postgres") from error
    stack = ExitStack()
    try:
        saver = stack.enter_context(PostgresSaver.from_conn_string(url))
        next(saver.list(None, limit=1), None)
    # The messages of psycopg may quote the password.
    except psycopg.OperationalError:
        stack.close()
        raise StoreError(
            "the database to import from cannot be reached; nothing was imported. Check that it runs, and the URL."
        ) from None
    except psycopg.errors.UndefinedTable:
        stack.close()
        raise InvalidArgument(
            "the database is not one of LangGraph's PostgresSaver: it has other tables; nothing was imported. "
            "Check the URL."
        ) from None
    except psycopg.Error:
        stack.close()
        raise InvalidArgument(
            "this is not a database URL, or the database cannot be read; nothing was imported. Check the URL."
        ) from None
    return _Saver(saver, stack, hf)


def _missing(package: str, extra: str) -> NotInstalled:
    return NotInstalled(
        f'importing needs {package}; nothing was imported. Run pip install "holdfast[{extra}]" {package}.'
    )


class _Saver:
    """A saver of LangGraph that is imported from."""

    def __init__(self, saver: Any, stack: ExitStack, hf: Holdfast | None) -> None:
        from holdfast.adapters.langgraph.saver import HoldfastSaver
        from holdfast.adapters.langgraph.saver_migration import places_of

        self._stack = stack
        self._source = saver
        self._target = None if hf is None else HoldfastSaver(hf)
        self._places = places_of(saver)

    def size(self) -> int:
        return sum(map(len, self._places.values()))

    def threads(self) -> Iterator[SourceThread]:
        for place, ids in self._places.items():
            yield _Thread(self._source, self._target, place, ids)

    def close(self) -> None:
        self._stack.close()


class _Thread:
    """One namespace of a thread."""

    def __init__(self, source: Any, target: Any, place: tuple[Any, str], ids: list[str]) -> None:
        from holdfast.adapters.langgraph.checkpoint_format import thread_name

        self.name = thread_name(str(place[0]), place[1])
        self._source = source
        self._target = target
        self._place = place
        self._ids = ids
        self._is_continued = False  # in this store

    def move(self, tally: ImportTally) -> None:
        from holdfast.adapters.langgraph import saver_migration
        from holdfast.adapters.langgraph.checkpoint_format import config_of

        known = self._known()
        self._is_continued = not known <= set(self._ids)
        if self._is_continued and not known >= set(self._ids):
            raise Unusable("the thread was continued in this store and in the source; it was left unchanged")
        for id in self._ids:
            found = self._source.get_tuple(config_of(*self._place, id))
            if found is None:
                tally.skip_checkpoint(id, "it was deleted meanwhile")
            elif id in known:
                tally.present()
                if not tally.dry_run and not self._is_continued:
                    tally.moved_writes(saver_migration.add_writes(found, self._target, self._place))
            elif tally.dry_run:
                tally.moved(len(found.pending_writes or ()))
            else:
                tally.moved(saver_migration.copy(found, self._target, self._place))

    def _known(self) -> set[str]:
        """The checkpoints that the store has. InvalidArgument if its thread was not written by LangGraph."""
        if self._target is None:
            return set()
        thread = self._target.shared.thread(str(self._place[0]), self._place[1])
        with thread.lock:
            return set(thread.index(thread.look()))

    def check(self, tally: ImportTally) -> None:
        from holdfast.adapters.langgraph import saver_migration
        from holdfast.adapters.langgraph.checkpoint_format import config_of

        for id in self._ids:
            found = self._source.get_tuple(config_of(*self._place, id))
            if found is None:
                continue
            for part in saver_migration.differences(found, self._target, self._place):
                if part != "writes" or not self._is_continued:
                    tally.differ(f"checkpoint {id}", f"differs from the source: its {part}")
            tally.checked()
