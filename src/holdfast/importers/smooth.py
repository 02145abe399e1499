"""Import checkpoints of Smooth's engine: files `{folder}/{agent}/{id}.json`, or a SQLite database.

A checkpoint has an agent, an iteration and a whole conversation. An agent becomes a thread. Smooth stores no parents:
each checkpoint follows the one saved before it. Files are in the order of their times, which have nanoseconds. Rows are
in the order of saving; their times are whole seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers import foreign_files as files
from holdfast.importers.foreign import Aside, Entry, ForeignRecord, ForeignSource, ForeignThread, Remark, Unreadable
from holdfast.importers.frame import CHECK_SOURCE, Options, Unusable

_DEEPEST, _NEVER = 32, 2**63
_COLUMNS: Final = frozenset({"id", "agent_id", "iteration", "conversation", "metadata", "created_at"})
_AGENTS: Final = "SELECT agent_id, count(*) FROM checkpoints GROUP BY agent_id ORDER BY min(rowid)"
_NUMBERS: Final = "SELECT rowid FROM checkpoints WHERE agent_id = ? ORDER BY rowid"
_ROW: Final = "SELECT id, iteration, conversation, metadata, created_at FROM checkpoints WHERE rowid = ?"


def _record(
    id: str, agent: str, iteration: object, conversation: object, metadata: object, **more: Any
) -> ForeignRecord:
    """A checkpoint. Unusable if its conversation or iteration is invalid."""
    if type(iteration) is not int or not 0 <= iteration < 2**63:
        raise Unusable("it has no iteration" if iteration is None else "its iteration is not a whole number")
    fields = files.Fields(files.as_object(conversation, "its conversation"))
    messages = [files.as_object(each, "one of its messages") for each in fields.items("messages")]
    state: dict[str, Any] = {"messages": messages}
    if (conversation_id := fields.take("id")) is not None:
        state["conversation_id"] = conversation_id
    hint = files.waits_for(_unanswered(messages))
    state.update(fields.rest)
    if metadata is not None and type(metadata) is not dict:
        more["remarks"] = ("its metadata is not a JSON object; the original value is kept in $imported",)
        more["rest"] = {**more["rest"], "metadata": metadata}
    about = metadata if type(metadata) is dict else {}
    return ForeignRecord(id=id, step=iteration, state=state, metadata=about, agent=agent, resume_hint=hint, **more)


def _unanswered(messages: list[dict[str, Any]]) -> int:
    """Count the tool calls without a result. Smooth saves after each result, so there may be some."""
    waiting: set[str] = set()
    for message in messages:
        calls = message.get("tool_calls")
        found = [call.get("id") for call in calls if type(call) is dict] if type(calls) is list else []
        waiting.update(id for id in found if type(id) is str)
        waiting -= {id for id in [message.get("tool_call_id")] if type(id) is str}
    return len(waiting)


# -- files ------------------------------------------------------------------------------------------------------------


def open_files(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a folder. NotFound if it does not exist, InvalidArgument if it is not of a FileCheckpointStore."""
    others: list[Unreadable | Remark] = []
    strays, agents = _agents(path, options.max_file_bytes, others)
    if not agents:
        raise InvalidArgument(
            f"{path} is not a folder of Smooth's FileCheckpointStore: it has no AGENT/ID.json; {CHECK_SOURCE}"
        )
    for file in strays:  # an agent with an empty id saves its checkpoints there
        item = f"file {files.shown_name(file)}"
        try:
            if "conversation" in files.object_of(files.read(os.path.join(path, file), options.max_file_bytes)):
                raise Unusable("it is not in the folder of an agent")
            others.append(Remark(item, "it is not a checkpoint"))
        except Unusable as error:
            others.append(Unreadable(item, str(error)))
    threads: list[ForeignThread] = [*agents, *([Aside(others)] if others else [])]
    return ForeignSource("smooth-file", hf, threads, sum(len(agent.names) for agent in agents))


def _agents(path: str, limit: int, others: list[Unreadable | Remark]) -> tuple[list[str], list[AgentFolder]]:
    """The files outside the agents' folders, and the agents. An agent id with a slash is a folder within a folder.

    Findings about skipped folders are added to `others`.
    """
    files.source_entries(path)  # raises the error for a path that is not a folder

    def name_of(place: str) -> str:
        return files.shown_name(os.path.relpath(place, path).replace(os.sep, "/"))

    def unreadable(error: OSError) -> None:
        others.append(Unreadable(name_of(error.filename), f"it cannot be read ({error.strerror})"))

    strays: list[str] = []
    agents: list[AgentFolder] = []
    for folder, inside, names in os.walk(path, onerror=unreadable):
        inside.sort()
        for name in [*inside]:
            place = os.path.join(folder, name)
            if os.path.islink(place) or name_of(place).count("/") > _DEEPEST:
                why = files.LINK if os.path.islink(place) else "it is nested too deeply in other folders"
                others.append(Unreadable(name_of(place), why))
                inside.remove(name)
        found = sorted(name for name in names if name.endswith(".json"))
        if folder == path:
            strays = found
        elif found:
            agents.append(AgentFolder(name_of(folder), folder, found, limit))
    return strays, agents


class AgentFolder:
    """The checkpoints of one agent. A bad file does not affect others. See `ForeignThread`."""

    def __init__(self, name: str, folder: str, names: list[str], limit: int) -> None:
        self.name: Final = name
        self.names: Final = names
        self._folder = folder
        self._limit = limit

    def records(self) -> Iterator[Entry]:
        places: list[tuple[int, int, str]] = []
        for file in self.names:
            try:
                fields = self._read(file)
            except Unusable as error:
                yield Unreadable(f"file {files.shown_name(file)}", str(error))
                continue
            iteration, moment = fields.take("iteration"), files.nanoseconds_of_text(fields.take("created_at"))
            places.append((_NEVER if moment is None else moment, iteration if type(iteration) is int else 0, file))
        for _, _, file in sorted(places):
            try:
                yield self._record(file)
            except Unusable as error:
                yield Unreadable(f"file {files.shown_name(file)}", str(error))

    def _record(self, file: str) -> ForeignRecord:
        fields = self._read(file)
        agent = fields.text("agent_id")
        if agent != self.name:
            raise Unusable("its agent_id names another agent than its folder")
        stem, id = file.removesuffix(".json"), fields.text("id")
        written = fields.take("created_at")
        given = [fields.take(name) for name in ("iteration", "conversation", "metadata")]
        rest = {**fields.rest, "created_at": written}  # a datetime has only microseconds
        key = None if id == stem else stem
        return _record(id, agent, *given, created_at=files.moment_of_text(written), key=key, rest=rest)

    def _read(self, file: str) -> files.Fields:
        return files.Fields(files.object_of(files.read(os.path.join(self._folder, file), self._limit)))


# -- a database -------------------------------------------------------------------------------------------------------


def open_sqlite(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a database. NotFound if it does not exist, InvalidArgument if it is not of a SqliteCheckpointStore."""
    kind = "database of Smooth's SqliteCheckpointStore"
    file = files.SqliteFile(path, {"checkpoints": _COLUMNS}, kind, options.max_file_bytes)
    try:
        agents = file.listed(_AGENTS)
    except BaseException:
        file.close()
        raise
    threads = [AgentRows(file, agent) for agent, _ in agents]
    return ForeignSource("smooth-sqlite", hf, threads, sum(count for _, count in agents), file.close)


class AgentRows:
    """The checkpoints of one agent. A bad row does not affect others. See `ForeignThread`."""

    def __init__(self, file: files.SqliteFile, agent: Any) -> None:
        self.name: Final = agent if type(agent) is str else f"agent {agent!r}"
        self._file = file
        self._agent = agent

    def records(self) -> Iterator[Entry]:
        if type(self._agent) is not str or not self._agent:
            yield Unreadable(None, "its agent id is empty or not a string")
            return
        for (number,) in [*self._file.rows(_NUMBERS, self._agent)]:
            try:
                id, iteration, conversation, metadata, seconds = self._file.row(_ROW, number)
                if type(id) is not str or not id:
                    raise Unusable("its id is empty or not a string")
                moment = files.moment_of_seconds(seconds)
                rest = {} if moment is not None else {"created_at": seconds}
                given = iteration, _parsed(conversation, is_required=True), _parsed(metadata, is_required=False)
                yield _record(id, self.name, *given, created_at=moment, rest=rest)
            except Unusable as error:
                yield Unreadable(f"row {number}", str(error))


def _parsed(data: object, *, is_required: bool) -> Any:
    """Parse a JSON column, which may be bytes or text."""
    try:
        return files.json_of(data) if isinstance(data, bytes | str) else data
    except Unusable:
        if is_required:
            raise
        return data
