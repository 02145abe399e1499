"""Read the database of LangGraph's SqliteSaver, which stores a checkpoint and its values in one column."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterator
from typing import Any, Final

from holdfast.adapters.langgraph.carrying import Foreign
from holdfast.adapters.langgraph.written import Write
from holdfast.errors import InvalidArgument, NotFound, StoreError
from holdfast.importers.frame import Unusable
from holdfast.importers.langgraph.database import (
    as_object,
    foreign,
    json_dict,
    json_tree,
    members,
    tree_of,
    typed_json,
    writes_of,
)
from holdfast.importers.sqlite_file import connect

_CHECKPOINTS: Final = frozenset(
    {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint", "metadata"}
)
_WRITES: Final = frozenset(
    {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"}
)
_PLAIN: Final = frozenset({"v", "id", "ts", "channel_versions", "versions_seen", "updated_channels"})

_TRACKS: Final = (
    "SELECT thread_id, checkpoint_ns FROM checkpoints UNION SELECT thread_id, checkpoint_ns FROM writes ORDER BY 1, 2"
)
_IDS: Final = "SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
_OWNERS: Final = "SELECT DISTINCT checkpoint_id FROM writes WHERE thread_id = ? AND checkpoint_ns = ?"
_CHECKPOINT: Final = (
    "SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints "
    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
_OF_WRITE: Final = "FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx"
_SQL_WRITES: Final = "SELECT task_id, task_path, idx, channel, type, value " + _OF_WRITE
# For databases of versions without task paths.
_SQL_WRITES_OLD: Final = "SELECT task_id, '', idx, channel, type, value " + _OF_WRITE


class SqliteDatabase:
    """The file of a SqliteSaver, read in one snapshot while other processes may write."""

    def __init__(self, path: str) -> None:
        """NotFound if the file does not exist, InvalidArgument if it is not of a SqliteSaver."""
        if not os.path.isfile(path):
            raise NotFound(f"there is no file {path}")
        self._connection = connect(path)
        try:
            self._connection.execute("BEGIN")
            columns = {table: self._columns(table) for table in ("checkpoints", "writes")}
        except sqlite3.DatabaseError as error:
            self.close()
            raise InvalidArgument(f"{path} cannot be read as a SQLite database: {error}") from error
        if not (columns["checkpoints"] >= _CHECKPOINTS and columns["writes"] >= _WRITES):
            self.close()
            raise InvalidArgument(f"{path} is not a database of LangGraph's SqliteSaver: it has other tables")
        self._writes = _SQL_WRITES if "task_path" in columns["writes"] else _SQL_WRITES_OLD

    def _columns(self, table: str) -> set[str]:
        rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return {name for (name,) in rows}

    def close(self) -> None:
        self._connection.close()

    def size(self) -> int:
        [(found,)] = self._listing("SELECT count(*) FROM checkpoints")
        return int(found)

    def tracks(self) -> Generator[tuple[object, object]]:
        yield from self._listing(_TRACKS)

    def _listing(self, sql: str) -> Iterator[Any]:
        try:
            yield from self._rows(sql)
        except Unusable as error:
            raise StoreError(f"{error}. Import from a copy made with `sqlite3 FILE .recover`.") from error

    def ids(self, thread_id: str, namespace: str) -> dict[str, str | None]:
        return {_as_text(id): parent or None for id, parent in self._rows(_IDS, thread_id, namespace)}

    def owners(self, thread_id: str, namespace: str) -> set[str]:
        return {_as_text(id) for (id,) in self._rows(_OWNERS, thread_id, namespace)}

    def checkpoint(self, thread_id: str, namespace: str, id: str) -> Foreign:
        rows = [*self._rows(_CHECKPOINT, thread_id, namespace, id)]
        if not rows:
            raise Unusable("it cannot be found by its id")
        parent, typ, data, metadata = rows[0]
        checkpoint, values = _taken_apart(typ, data)
        said = {} if metadata is None else json_dict(metadata, "its metadata")
        return foreign(id, parent, checkpoint, values, said)

    def writes(self, thread_id: str, namespace: str, id: str) -> tuple[list[Write], list[tuple[str, str]]]:
        return writes_of(self._rows(self._writes, thread_id, namespace, id))

    def _rows(self, sql: str, *given: str) -> Iterator[Any]:
        """The rows of a query. Unusable if the file is damaged."""
        try:
            yield from self._connection.execute(sql, given)
        except (sqlite3.DatabaseError, UnicodeEncodeError) as error:
            raise Unusable(f"SQLite cannot read it: {error}") from error


def _as_text(id: Any) -> str:
    """An id as a string. One of another type is then not found and is reported."""
    return id if isinstance(id, str) else repr(id)


def _taken_apart(typ: object, data: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a stored checkpoint into its members and its values, as plain data."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    if not isinstance(data, bytes):
        raise Unusable("its bytes are missing")
    if typ == "msgpack":
        tree = members(tree_of(data), "it")
        return tree, members(tree.get("channel_values", {}), "channel_values")
    if typ == "json":
        found = json_dict(data, "it")
        values = as_object(found.pop("channel_values", {}), "channel_values")
        kept = {key: json_tree(value, key) if key in _PLAIN else typed_json(value) for key, value in found.items()}
        return kept, {channel: typed_json(value) for channel, value in values.items()}
    raise Unusable(f"it has the type {typ!r} and cannot be converted without loading it")
