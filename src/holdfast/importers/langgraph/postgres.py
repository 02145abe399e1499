"""Read the database of LangGraph's PostgresSaver: large values have their own table, small ones are inline."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import psycopg
from langgraph.checkpoint.serde.types import TASKS

from holdfast.adapters.langgraph.carrying import Foreign
from holdfast.adapters.langgraph.trees import EXT, TYPED
from holdfast.adapters.langgraph.written import Write
from holdfast.errors import InvalidArgument, StoreError
from holdfast.importers.frame import Unusable
from holdfast.importers.langgraph.database import as_object, foreign, json_dict, json_tree, plain_of, writes_of

_CHECKPOINTS: Final = frozenset(
    {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"}
)
_BLOBS: Final = frozenset({"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"})
_WRITES: Final = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "blob"})

_COLUMNS: Final = (
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)
_TRACKS: Final = (
    "SELECT thread_id, checkpoint_ns FROM checkpoints "
    "UNION SELECT thread_id, checkpoint_ns FROM checkpoint_writes ORDER BY 1, 2"
)
_IDS: Final = "SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = %s"
_OWNERS: Final = "SELECT DISTINCT checkpoint_id FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_ns = %s"
_CHECKPOINT: Final = (
    "SELECT parent_checkpoint_id, checkpoint::text, metadata::text FROM checkpoints "
    "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"
)
_VALUES: Final = (
    "SELECT bl.channel, bl.type, bl.blob FROM unnest(%s::text[], %s::text[]) AS wanted (channel, version) "
    "JOIN checkpoint_blobs bl ON bl.thread_id = %s AND bl.checkpoint_ns = %s "
    "AND bl.channel = wanted.channel AND bl.version = wanted.version"
)
_OF_WRITE: Final = (
    "FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY task_id, idx"
)
_SQL_WRITES: Final = "SELECT task_id, task_path, idx, channel, type, blob " + _OF_WRITE
# For databases of versions without task paths.
_SQL_WRITES_OLD: Final = "SELECT task_id, '', idx, channel, type, blob " + _OF_WRITE
_OF_SEND: Final = (
    "SELECT type, blob FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s "
    "AND channel = %s ORDER BY "
)
_SENDS: Final = _OF_SEND + "task_path, task_id, idx"
_SENDS_OLD: Final = _OF_SEND + "task_id, idx"

_EMPTY: Final = "empty"
_OF_SENDS: Final = 4  # since this checkpoint version, sends are stored as the value of a channel


class PostgresDatabase:
    """The tables of a PostgresSaver, read in one snapshot while other processes may write."""

    def __init__(self, url: str) -> None:
        """StoreError if the database cannot be reached, InvalidArgument if it is not of a PostgresSaver."""
        self._connection = _connect(url)
        try:
            tables = (("checkpoints", _CHECKPOINTS), ("checkpoint_blobs", _BLOBS), ("checkpoint_writes", _WRITES))
            for table, needed in tables:
                if not self._columns(table) >= needed:
                    raise InvalidArgument(
                        f"this is not a database of LangGraph's PostgresSaver: table {table} is missing or has other "
                        "columns"
                    )
            has_paths = "task_path" in self._columns("checkpoint_writes")
        except BaseException:
            self.close()
            raise
        self._writes, self._sends = (_SQL_WRITES, _SENDS) if has_paths else (_SQL_WRITES_OLD, _SENDS_OLD)

    def _columns(self, table: str) -> set[str]:
        return {name for (name,) in self._rows(_COLUMNS, table)}

    def close(self) -> None:
        self._connection.close()

    def size(self) -> int:
        [(found,)] = self._rows("SELECT count(*) FROM checkpoints")
        return int(found)

    def tracks(self) -> Generator[tuple[object, object]]:
        try:
            with self._connection.cursor("tracks") as cursor:
                yield from cursor.execute(_TRACKS)
        except psycopg.Error as error:
            raise _lost(error) from error

    def ids(self, thread_id: str, namespace: str) -> dict[str, str | None]:
        return {id: parent or None for id, parent in self._rows(_IDS, thread_id, namespace)}

    def owners(self, thread_id: str, namespace: str) -> set[str]:
        return {id for (id,) in self._rows(_OWNERS, thread_id, namespace)}

    def checkpoint(self, thread_id: str, namespace: str, id: str) -> Foreign:
        [(parent, checkpoint, metadata)] = self._rows(_CHECKPOINT, thread_id, namespace, id)
        content = json_dict(checkpoint, "it")
        versions = as_object(content.get("channel_versions"), "a table of versions")
        inline = as_object(content.get("channel_values") or {}, "channel_values")
        values = {channel: json_tree(value, channel) for channel, value in inline.items()}
        values |= self._values(thread_id, namespace, versions)
        if parent and type(content.get("v")) is int and content["v"] < _OF_SENDS:
            self._add_sends(thread_id, namespace, parent, versions, values)
        rest = {key: json_tree(value, key) for key, value in content.items() if key != "channel_values"}
        return foreign(id, parent, rest, values, json_dict(metadata, "its metadata"))

    def _values(self, thread_id: str, namespace: str, versions: dict[str, Any]) -> dict[str, Any]:
        texts = [version if isinstance(version, str) else str(version) for version in versions.values()]
        found: dict[str, Any] = {}
        for channel, typ, blob in self._rows(_VALUES, [*versions], texts, thread_id, namespace):
            if typ != _EMPTY:
                try:
                    found[channel] = plain_of(typ, blob)
                except Unusable as error:
                    raise Unusable(f"channel {channel}: {error}") from None
        return found

    def _add_sends(
        self, thread_id: str, namespace: str, parent: str, versions: dict[str, Any], values: dict[str, Any]
    ) -> None:
        """Add the sends of an old checkpoint, which are in its parent's writes, as PostgresSaver does on reading."""
        sends = [plain_of(typ, blob) for typ, blob in self._rows(self._sends, thread_id, namespace, parent, TASKS)]
        if not sends:
            return
        if any(type(send) is dict and send.get(EXT) == TYPED for send in sends):
            raise Unusable("its sends are not msgpack and cannot be converted without loading them")
        values[TASKS] = sends
        if not versions:
            raise Unusable("it has sends but no channel versions")
        versions[TASKS] = max(versions.values())

    def writes(self, thread_id: str, namespace: str, id: str) -> tuple[list[Write], list[tuple[str, str]]]:
        return writes_of(self._rows(self._writes, thread_id, namespace, id))

    def _rows(self, sql: str, *given: Any) -> list[Any]:
        try:
            return self._connection.execute(sql.encode(), given).fetchall()
        except psycopg.Error as error:
            raise _lost(error) from error


def _connect(url: str) -> psycopg.Connection[Any]:
    try:
        # No prepared statements: there may be a connection pooler.
        connection = psycopg.connect(url, prepare_threshold=None)
    except psycopg.OperationalError as error:
        said = str(error).partition("\n")[0]
        raise StoreError(f"the database to import from cannot be reached: {said}") from error
    except psycopg.Error as error:  # its text may contain the URL with a password
        raise InvalidArgument("this is not a database URL; give postgresql://user@host/name") from error
    connection.read_only = True
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return connection


def _lost(error: psycopg.Error) -> StoreError:
    said = str(error).partition("\n")[0]
    return StoreError(f"the database to import from failed ({said}). Run the import again to continue it.")
