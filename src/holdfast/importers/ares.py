"""Checkpoints of ares-server: a folder with `{session}_{step}.json`, and `{session}_latest.json` that names the last.

Its own prefix rule takes `a_2` for a part of `a`, and passes over what is called `…latest…`. Here a name is read from
its end, and what a file says of itself decides. Files were written in place, so any of them may be torn, and a pointer
may be empty, or name a file that is gone: then what was written last is gone on from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers.foreign import Aside, ForeignSource, ForeignThread
from holdfast.importers.foreign_file import Fields, entries, moment_of_seconds, object_of, read, shown_name
from holdfast.importers.foreign_record import Entry, Record, Remark, Unreadable
from holdfast.importers.frame import Unusable
from holdfast.importers.options import Options
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
    """A folder of checkpoints. NotFound if there is none, InvalidArgument if there is no checkpoint of ares in it."""
    names = [entry.name for entry in entries(path)]
    count = sum(_CHECKPOINT.fullmatch(name) is not None for name in names)
    if not count:
        raise InvalidArgument(f"{path} holds no checkpoint of ares, which is called {{session}}_{{step}}.json")
    return ForeignSource("ares", hf, _threads(path, names, options.max_file_bytes), count)


class _Peek(msgspec.Struct, gc=False):
    """What is needed of a checkpoint to know where it belongs."""

    session_id: str
    step: int
    timestamp: float = 0


class _File(msgspec.Struct, frozen=True):
    name: str
    session: str
    step: int
    timestamp: float


_peeks: Final = msgspec.json.Decoder(_Peek)


def _threads(path: str, names: list[str], limit: int) -> Iterator[ForeignThread]:
    """The sessions of a folder. Each file is looked into once for that."""
    sessions: dict[str, list[_File]] = {}
    pointers: dict[str, str] = {}
    others: list[Entry] = []
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            file = _looked_at(path, name, found[1], int(found[2]), limit)
            sessions.setdefault(file.session, []).append(file)
        elif found := _POINTER.fullmatch(name):
            pointers[shown_name(found[1])] = name
        else:
            what = "a folder, which was not looked into" if os.path.isdir(os.path.join(path, name)) else "no checkpoint"
            others.append(Remark(shown_name(name), f"it is {what}"))
    for session in sorted({*sessions, *pointers}):
        yield _Session(path, session, sessions.get(session, []), pointers.get(session), limit)
    if others:
        yield Aside(path, others)


def _looked_at(path: str, name: str, session: str, step: int, limit: int) -> _File:
    """Which session and step a file is of: what it says, else what it is called."""
    try:
        said = _peeks.decode(read(os.path.join(path, name), limit))
        if said.session_id:
            return _File(name, said.session_id, said.step, said.timestamp)
    except (Unusable, *UNREADABLE):
        pass  # told when it is its turn
    return _File(name, shown_name(session), step, 0)


class _Session:
    """See `ForeignThread`."""

    def __init__(self, path: str, name: str, files: list[_File], pointer: str | None, limit: int) -> None:
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
                yield Unreadable(f"file {shown_name(file.name)}", str(error))

    def _head(self) -> tuple[str | None, str | None]:
        """The file that is gone on from, and what is to be said of that. None for the last that can be read."""
        if not self._files:
            return None, "there is a pointer to its last checkpoint, and no checkpoint"
        last = self._files[-1]
        if self._pointer is None:
            return None, f"nothing says which checkpoint was its last; it is gone on from step {last.step}"
        try:
            said = read(os.path.join(self._path, self._pointer), _POINTER_MAX).decode("utf-8", "replace").strip()
        except Unusable as error:
            return None, f"the pointer to its last checkpoint: {error}"
        named = next((file for file in self._files if shown_name(file.name) == said), None)
        if named is None:
            what = "names no checkpoint of it that is there" if said else "is empty, as a crash leaves it"
            return None, f"the pointer to its last checkpoint {what}; it is gone on from the last that can be read"
        if named is last:
            return named.name, None
        if named.timestamp > last.timestamp:
            return named.name, f"it was last at step {named.step}; what has a higher step is of an attempt before that"
        return None, f"the pointer names step {named.step}, and step {last.step} was written after it"

    def _record(self, file: _File, *, is_head: bool) -> Record:
        fields = Fields(object_of(read(os.path.join(self._path, file.name), self._limit)))
        session, step, timestamp = fields.text("session_id"), fields.whole("step"), fields.take("timestamp")
        created_at = moment_of_seconds(timestamp)
        status, reason, unknown = _status(fields.take("status"))
        remarks = []
        if file.name != f"{session}_{step}.json":
            remarks.append(f"it is in file {shown_name(file.name)}, which is not called by its session and step")
        kept: dict[str, Any] = {}
        if unknown is not None:
            remarks.append("its status is none that is known; it is kept in $imported")
            kept["status"] = unknown
        if created_at is None:
            kept["timestamp"] = timestamp
        return Record(
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
    """A status as serde writes an enum: a text, or an object of one member. The last is what is none of ours."""
    if isinstance(said, str) and said in _STATUSES:
        return _STATUSES[said], None, None
    if isinstance(said, dict) and len(said) == 1:
        [(name, reason)] = said.items()
        if name in _STATUSES and isinstance(reason, str):
            return _STATUSES[name], reason, None
    return "running", None, said
