"""Import from Smooth's SqliteCheckpointStore: a table of checkpoints.

The rows are in the order of saving. The times are whole seconds, so they do not give the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.handle import Holdfast
from holdfast.importers import smooth
from holdfast.importers.foreign import ForeignSource
from holdfast.importers.foreign_file import json_of, moment_of_seconds, read_json
from holdfast.importers.foreign_record import Entry, Record, Unreadable
from holdfast.importers.frame import Unusable
from holdfast.importers.options import Options
from holdfast.importers.sqlite_file import SqliteFile

FORMAT: Final = "smooth-sqlite"

_TABLES: Final = {
    "checkpoints": frozenset({"id", "agent_id", "iteration", "conversation", "metadata", "created_at"}),
}
_AGENTS: Final = "SELECT agent_id, count(*) FROM checkpoints GROUP BY agent_id ORDER BY min(rowid)"
_NUMBERS: Final = "SELECT rowid FROM checkpoints WHERE agent_id = ? ORDER BY rowid"
_ROW: Final = "SELECT id, iteration, conversation, metadata, created_at FROM checkpoints WHERE rowid = ?"


def open_smooth_sqlite(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a database. NotFound if it does not exist, InvalidArgument if it is not of a SqliteCheckpointStore."""
    file = SqliteFile(path, _TABLES, "database of Smooth's SqliteCheckpointStore", options.max_file_bytes)
    try:
        agents = file.listed(_AGENTS)
    except BaseException:
        file.close()
        raise
    threads = [AgentRows(file, agent) for agent, _ in agents]
    return ForeignSource(FORMAT, hf, threads, sum(count for _, count in agents), file.close)


class AgentRows:
    """The checkpoints of one agent."""

    has_unique_keys: Final = True

    def __init__(self, file: SqliteFile, agent: Any) -> None:
        self.name: Final = agent if type(agent) is str else f"agent {agent!r}"
        self._file = file
        self._agent = agent

    def records(self) -> Iterator[Entry]:
        """See `ForeignThread`. A bad row does not affect others."""
        if type(self._agent) is not str or not self._agent:
            yield Unreadable(None, "its agent id is empty or not a string")
            return
        for (number,) in [*self._file.rows(_NUMBERS, self._agent)]:
            try:
                yield self._record(number)
            except Unusable as error:
                yield Unreadable(f"row {number}", str(error))

    def _record(self, number: int) -> Record:
        id, iteration, conversation, metadata, seconds = self._file.row(_ROW, number)
        if type(id) is not str or not id:
            raise Unusable("its id is empty or not a string")
        created_at = moment_of_seconds(seconds)
        return smooth.record(
            id=id,
            agent=self.name,
            iteration=iteration,
            conversation=_parsed(conversation),
            metadata=_said(metadata),
            created_at=created_at,
            rest={} if created_at is not None else {"created_at": seconds},
        )


def _parsed(data: object) -> Any:
    """Parse a JSON column, which may be bytes or text."""
    if isinstance(data, bytes):
        return json_of(data)
    if type(data) is str:
        return read_json(data)
    raise Unusable("its conversation is missing")


def _said(metadata: object) -> Any:
    """Parse the metadata; the original value if it is not JSON."""
    try:
        return read_json(metadata) if type(metadata) is str else metadata
    except Unusable:
        return metadata
