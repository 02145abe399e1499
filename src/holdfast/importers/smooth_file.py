"""Import from Smooth's FileCheckpointStore: files `{folder}/{agent}/{id}.json`, one per checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.importers import smooth
from holdfast.importers.foreign import Aside, ForeignSource, ForeignThread
from holdfast.importers.foreign_file import (
    LINK,
    Fields,
    entries,
    moment_of_text,
    nanoseconds_of_text,
    object_of,
    read,
    shown_name,
)
from holdfast.importers.foreign_record import Entry, Record, Remark, Unreadable
from holdfast.importers.frame import Unusable
from holdfast.importers.options import Options

FORMAT: Final = "smooth-file"
_DEEPEST: Final = 32
_NEVER: Final = 2**63


def open_smooth_files(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a folder. NotFound if it does not exist, InvalidArgument if it is not of a FileCheckpointStore."""
    others: list[Entry] = []
    agents = [AgentFolder(path, agent, options.max_file_bytes) for agent in _agents(path, others)]
    size = sum(agent.size() for agent in agents)
    if not agents:
        raise InvalidArgument(f"{path} is not a folder of Smooth's FileCheckpointStore: it has no AGENT/ID.json")
    others += _strays(path, options.max_file_bytes)
    threads: list[ForeignThread] = [*agents, *([Aside(path, others)] if others else [])]
    return ForeignSource(FORMAT, hf, threads, size)


class _Place(NamedTuple):
    """The sort key of a checkpoint: its time in nanoseconds first."""

    moment: int
    iteration: int
    file: str


class AgentFolder:
    """The checkpoints of one agent."""

    has_unique_keys: Final = True

    def __init__(self, root: str, agent: str, limit: int) -> None:
        self.name: Final = shown_name(agent)
        self._folder = os.path.join(root, *PurePath(agent).parts)
        self._limit = limit

    def size(self) -> int:
        try:
            return len(self._files())
        except (InvalidArgument, NotFound):
            return 0

    def records(self) -> Iterator[Entry]:
        """See `ForeignThread`. A bad file does not affect others."""
        places: list[_Place] = []
        try:
            files = self._files()
        except (InvalidArgument, NotFound) as error:
            yield Unreadable(None, str(error))
            return
        for file in files:
            try:
                places.append(self._place(file))
            except Unusable as error:
                yield Unreadable(f"file {shown_name(file)}", str(error))
        for place in sorted(places):
            try:
                yield self._record(place.file)
            except Unusable as error:
                yield Unreadable(f"file {shown_name(place.file)}", str(error))

    def _files(self) -> list[str]:
        return [entry.name for entry in entries(self._folder) if entry.name.endswith(".json")]

    def _place(self, file: str) -> _Place:
        said = self._read(file)
        iteration, moment = said.take("iteration"), nanoseconds_of_text(said.take("created_at"))
        return _Place(_NEVER if moment is None else moment, iteration if type(iteration) is int else 0, file)

    def _record(self, file: str) -> Record:
        said = self._read(file)
        agent = said.text("agent_id")
        if agent != self.name:
            raise Unusable("its agent_id names another agent than its folder")
        stem, id = file.removesuffix(".json"), said.text("id")
        written = said.take("created_at")
        return smooth.record(
            id=id,
            key=None if id == stem else stem,
            agent=agent,
            iteration=said.take("iteration"),
            conversation=said.take("conversation"),
            metadata=said.take("metadata"),
            created_at=moment_of_text(written),
            # A datetime has only microseconds.
            rest={**said.rest, "created_at": written},
        )

    def _read(self, file: str) -> Fields:
        return Fields(object_of(read(os.path.join(self._folder, file), self._limit)))


def _agents(path: str, others: list[Entry]) -> Iterator[str]:
    """The folders with checkpoint files, as agent names. An agent id with a slash is a folder within a folder.

    Findings about skipped folders are added to `others`.
    """
    waiting = [""]
    while waiting:
        agent = waiting.pop()
        try:
            found = entries(os.path.join(path, agent) if agent else path)
        except (InvalidArgument, NotFound):
            if not agent:
                raise
            yield agent  # the import reports why the folder cannot be read
            continue
        if agent and any(entry.name.endswith(".json") and not entry.is_dir() for entry in found):
            yield agent
        folders: list[str] = []
        for entry in found:
            name = f"{agent}/{entry.name}" if agent else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif entry.is_dir():
                others.append(Unreadable(shown_name(name), LINK))
        if agent.count("/") < _DEEPEST:
            waiting.extend(reversed(folders))
        else:
            others += (Unreadable(shown_name(name), "it is nested too deeply in other folders") for name in folders)


def _strays(path: str, limit: int) -> Iterator[Entry]:
    """Findings about files outside the agents' folders. An agent with an empty id saves its checkpoints there."""
    for entry in entries(path):
        if entry.name.endswith(".json") and not entry.is_dir():
            item = f"file {shown_name(entry.name)}"
            try:
                is_checkpoint = "conversation" in object_of(read(entry.path, limit))
            except Unusable as error:
                yield Unreadable(item, str(error))
                continue
            if is_checkpoint:
                yield Unreadable(item, "it is not in the folder of an agent")
            else:
                yield Remark(item, "it is not a checkpoint")
