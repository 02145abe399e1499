"""Import checkpoints of ares-server: files `{session}_{step}.json`, and pointers `{session}_latest.json`.

ares matches files by prefix, so it mixes the sessions `a` and `a_2`, and ignores names with "latest". This importer
reads the session from the file's contents. ares writes files in place, so any file may be torn, and a pointer may be
empty or name a missing file. The thread then resumes from the last readable checkpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers import foreign_files as files
from holdfast.importers.foreign import Aside, Entry, ForeignRecord, ForeignSource, ForeignThread, Remark, Unreadable
from holdfast.importers.frame import CHECK_SOURCE, Options, Unusable
from holdfast.types import UNREADABLE, Status

_CHECKPOINT: Final = re.compile(r"(.+)_([0-9]{1,20})\.json", re.DOTALL)
_POINTER: Final = re.compile(r"(.+)_latest\.json", re.DOTALL)
_POINTER_MAX: Final = 4096

_STATUSES: Final[dict[str, Status]] = {
    "InProgress": "running",
    "Completed": "completed",
    "Failed": "failed",
    "Halted": "halted",
}


def open_ares(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a folder of checkpoints. NotFound if it does not exist, InvalidArgument if it has no ares checkpoints."""
    names = [entry.name for entry in files.source_entries(path)]
    count = sum(_CHECKPOINT.fullmatch(name) is not None for name in names)
    if not count:
        raise InvalidArgument(
            f"{path} contains no ares checkpoints: no file is named {{session}}_{{step}}.json; {CHECK_SOURCE}"
        )
    return ForeignSource("ares", hf, _threads(path, names, options.max_file_bytes), count)


class _AresPeek(msgspec.Struct, gc=False):
    """The fields of a checkpoint that say where it belongs."""

    session_id: str
    step: int
    timestamp: float = 0


class _AresFile(msgspec.Struct, frozen=True):
    name: str
    session: str
    step: int
    timestamp: float


_peeks: Final = msgspec.json.Decoder(_AresPeek)


def _threads(path: str, names: list[str], limit: int) -> Iterator[ForeignThread]:
    """The sessions of a folder. Each file is read once to find its session."""
    sessions: dict[str, list[_AresFile]] = {}
    pointers: dict[str, str] = {}
    others: list[Unreadable | Remark] = []
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            file = _looked_at(path, name, found[1], int(found[2]), limit)
            sessions.setdefault(file.session, []).append(file)
        elif found := _POINTER.fullmatch(name):
            pointers[files.shown_name(found[1])] = name
        else:
            what = "a folder, and was not read" if os.path.isdir(os.path.join(path, name)) else "not a checkpoint"
            others.append(Remark(files.shown_name(name), f"it is {what}"))
    for session in sorted({*sessions, *pointers}):
        yield _AresSession(path, session, sessions.get(session, []), pointers.get(session), limit)
    if others:
        yield Aside(others)


def _looked_at(path: str, name: str, session: str, step: int, limit: int) -> _AresFile:
    """The session and step of a file: from its contents, or from its name if they cannot be read."""
    try:
        said = _peeks.decode(files.read(os.path.join(path, name), limit))
        if said.session_id:
            return _AresFile(name, said.session_id, said.step, said.timestamp)
    except (Unusable, *UNREADABLE):
        pass  # reported when the file is imported
    return _AresFile(name, files.shown_name(session), step, 0)


class _AresSession:
    """See `ForeignThread`."""

    def __init__(self, path: str, name: str, files: list[_AresFile], pointer: str | None, limit: int) -> None:
        self.name: Final = name
        self._path = path
        self._files = sorted(files, key=lambda file: (file.step, file.name))
        self._pointer = pointer
        self._limit = limit

    def records(self) -> Iterator[Entry]:
        head, remark = self._head()
        if remark is not None:
            yield Remark(None, remark)
        for file in self._files:
            try:
                yield self._record(file, is_head=file.name == head)
            except Unusable as error:
                yield Unreadable(f"file {files.shown_name(file.name)}", str(error))

    def _head(self) -> tuple[str | None, str | None]:
        """The file to resume from, or None for the last readable one; and a remark about it."""
        if not self._files:
            return None, "there is a pointer to the last checkpoint, but no checkpoint"
        last = self._files[-1]
        if self._pointer is None:
            return None, f"the pointer to the last checkpoint is missing; the thread resumes from step {last.step}"
        try:
            said = files.read(os.path.join(self._path, self._pointer), _POINTER_MAX).decode("utf-8", "replace").strip()
        except Unusable as error:
            return None, f"the pointer to the last checkpoint: {error}"
        named = next((file for file in self._files if files.shown_name(file.name) == said), None)
        if named is None:
            what = "names a file that does not exist" if said else "is empty, as after a crash"
            return None, f"the pointer to the last checkpoint {what}; the thread resumes from the last readable one"
        if named is last:
            return named.name, None
        if named.timestamp > last.timestamp:
            return named.name, f"the session was last at step {named.step}; higher steps are from an earlier attempt"
        return None, f"the pointer names step {named.step}, but step {last.step} was written later"

    def _record(self, file: _AresFile, *, is_head: bool) -> ForeignRecord:
        fields = files.Fields(files.object_of(files.read(os.path.join(self._path, file.name), self._limit)))
        session, step, timestamp = fields.text("session_id"), fields.whole("step"), fields.take("timestamp")
        created_at = files.moment_of_seconds(timestamp)
        status, reason, unknown = _status(fields.take("status"))
        remarks = []
        if file.name != f"{session}_{step}.json":
            remarks.append(
                f"it is in file {files.shown_name(file.name)}, whose name does not match its session and step"
            )
        kept: dict[str, Any] = {}
        if unknown is not None:
            remarks.append("its status is unknown; the original value is kept in $imported")
            kept["status"] = unknown
        if created_at is None:
            kept["timestamp"] = timestamp
        return ForeignRecord(
            id=fields.text("id"),
            key=str(step),
            step=step,
            created_at=created_at,
            agent=fields.text_or_none("agent_name"),
            status=status,
            reason=reason,
            state={name: fields.items(name) for name in ("messages", "tool_calls", "partial_results")},
            rest={**fields.rest, **kept},
            remarks=tuple(remarks),
            is_head=is_head,
        )


def _status(said: object) -> tuple[Status, str | None, object]:
    """Convert a status, which serde writes as a string or an object with one member.

    Returns the status, its reason, and the original value if it is unknown.
    """
    if isinstance(said, str) and said in _STATUSES:
        return _STATUSES[said], None, None
    if isinstance(said, dict) and len(said) == 1:
        [(name, reason)] = said.items()
        if name in _STATUSES and isinstance(reason, str):
            return _STATUSES[name], reason, None
    return "running", None, said
