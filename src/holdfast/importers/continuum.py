"""Import session folders of Continuum: `{session}/checkpoints/cp_{time}_{id}.json`, a link `latest.json`, one backup.

A thread resumes from the newest file. `latest.json` is only compared with it, because Continuum ignores errors when it
sets the link. Links are never followed. A backup, or a `latest.json` that is a copy, replaces a torn or missing file.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.importers.continuum_checksum import CHECKSUM, KNOWN, VERSION, Checksum
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
from holdfast.types import UNREADABLE, Usage

_FOLDER: Final = "checkpoints"
_LATEST: Final = "latest.json"
_CHECKPOINT: Final = re.compile(r"cp_([0-9]{8}_[0-9]{6})_(.+)\.json", re.DOTALL)
_BACKUP: Final = ".backup"
_MICROSECONDS: Final = re.compile(r"\.[0-9]{7,}")


def open_continuum(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a storage folder. NotFound if it does not exist, InvalidArgument if it has no Continuum sessions."""
    sessions: list[ForeignThread] = []
    others: list[Entry] = []
    size = 0
    for entry in entries(path):
        session = _Session(path, entry.name, options)
        if entry.is_dir(follow_symlinks=False) and session.exists():
            size += session.count()
            sessions.append(session)
        else:
            others.append(_no_session(entry))
    if not sessions:
        hint = "; give the folder that contains the session folders" if path.rstrip("/\\").endswith(_FOLDER) else ""
        raise InvalidArgument(f"{path} contains no Continuum session: it has no folder SESSION/{_FOLDER}{hint}")
    if others:
        sessions.append(Aside(path, others))
    return ForeignSource("continuum", hf, sessions, size)


def _no_session(entry: os.DirEntry[str]) -> Entry:
    """The finding for an entry that is not a session."""
    name, folder = shown_name(entry.name), os.path.join(entry.path, _FOLDER)
    if entry.is_symlink():
        return Unreadable(name, LINK)
    if not entry.is_dir():
        return Remark(name, "it is not in a session folder")
    if os.path.lexists(folder):
        return Unreadable(f"{name}/{_FOLDER}", LINK if os.path.islink(folder) else "it is not a folder")
    return Remark(name, "it is a folder without checkpoints")


class _Peek(msgspec.Struct, gc=False):
    """The fields of a checkpoint that say where it belongs."""

    checkpoint_id: str
    created_at: str = ""
    iteration: int = 0


class _File(msgspec.Struct, frozen=True, order=True):
    """A checkpoint file, sortable in the order of saving. Within a second, the contents give the order."""

    second: str
    moment: int
    iteration: int
    name: str
    id: str
    """The id in the file's name, or in the contents of a file with another name."""
    is_spare: bool = False


_peeks: Final = msgspec.json.Decoder(_Peek)


class _Session:
    """See `ForeignThread`."""

    def __init__(self, path: str, session: str, options: Options) -> None:
        self.name: Final = shown_name(session)
        self._path = os.path.join(path, session, _FOLDER)
        self._options = options

    def exists(self) -> bool:
        return os.path.isdir(self._path)

    def count(self) -> int:
        try:
            return sum(_CHECKPOINT.fullmatch(name) is not None for name in self._names())
        except Unusable:
            return 0

    def _names(self) -> list[str]:
        if os.path.islink(self._path):
            raise Unusable(LINK)
        try:
            return [entry.name for entry in entries(self._path)]
        except (InvalidArgument, NotFound) as error:
            raise Unusable(str(error)) from None

    def records(self) -> Iterator[Entry]:
        try:
            names = self._names()
        except Unusable as error:
            yield Unreadable(f"folder {_FOLDER}", str(error))
            return
        spares = [*self._spares(names)]
        files = self._files(names)
        known = {file.id for file in files}
        lost: list[_File] = []
        for spare in spares:
            if spare.id not in known:  # its own file is missing; one of several copies is enough
                known.add(spare.id)
                lost.append(spare)
        yield from self._remarks(names)
        last: str | None = None
        for file in sorted([*files, *lost]):
            try:
                record = self._record(file)
            except Unusable as error:
                instead = self._instead(file, spares, str(error))
                yield instead
                last = file.name if isinstance(instead, Record) else last
            else:
                yield record
                last = file.name
        yield from self._latest(names, last)

    # -- files ------------------------------------------------------------------------------------------------------

    def _files(self, names: list[str]) -> list[_File]:
        """The checkpoint files. Those with the same second in their name are read to find their order."""
        found = [(name, match[1], match[2]) for name in names if (match := _CHECKPOINT.fullmatch(name))]
        seconds = Counter(second for _, second, _ in found)
        files = []
        for name, second, id in found:
            said = self._peek(name) if seconds[second] > 1 else None
            moment = 0 if said is None else nanoseconds_of_text(said.created_at) or 0
            files.append(_File(second, moment, 0 if said is None else said.iteration, name, id))
        return files

    def _spares(self, names: list[str]) -> Iterator[_File]:
        """The copies of checkpoints: backups, and a `latest.json` that is not a link."""
        for name in names:
            is_copy = name == _LATEST and not os.path.islink(os.path.join(self._path, name))
            if is_copy or name.endswith(_BACKUP):
                said = self._peek(name)
                if said is not None:
                    moment = moment_of_text(said.created_at)
                    second = "" if moment is None else f"{moment:%Y%m%d_%H%M%S}"
                    place = nanoseconds_of_text(said.created_at) or 0
                    yield _File(second, place, said.iteration, name, said.checkpoint_id, is_spare=True)

    def _peek(self, name: str) -> _Peek | None:
        try:
            return _peeks.decode(self._read(name))
        except (Unusable, *UNREADABLE):
            return None  # reported when the file is imported

    def _read(self, name: str) -> bytes:
        return read(os.path.join(self._path, name), self._options.max_file_bytes)

    def _remarks(self, names: list[str]) -> Iterator[Entry]:
        for name in names:
            if name.endswith(_BACKUP) and self._peek(name) is None:
                yield Remark(f"file {shown_name(name)}", "it is a backup that cannot be read")
            elif name != _LATEST and not name.endswith(_BACKUP) and _CHECKPOINT.fullmatch(name) is None:
                yield Remark(f"file {shown_name(name)}", "it is not a checkpoint; a killed writer leaves such files")

    def _latest(self, names: list[str], last: str | None) -> Iterator[Entry]:
        """A remark if `latest.json` does not name the checkpoint that the thread resumes from."""
        if _LATEST not in names:
            if names:
                yield Remark(_LATEST, "the file is missing; the thread resumes from the newest checkpoint")
            return
        try:
            target = os.readlink(os.path.join(self._path, _LATEST))
        except OSError:
            return  # a copy, see _spares
        if os.path.basename(target) != target:
            yield Remark(_LATEST, "it is a link to another folder, and was not followed")
        elif target not in names:
            yield Remark(_LATEST, "it names a missing checkpoint; the thread resumes from the newest one")
        elif target != last:
            yield Remark(_LATEST, "it does not name the newest readable checkpoint; the thread resumes from that one")

    # -- records ----------------------------------------------------------------------------------------------------

    def _instead(self, file: _File, spares: list[_File], why: str) -> Entry:
        """The copy of a checkpoint that cannot be used; without a copy the checkpoint itself, if `accept_mismatch`."""
        for spare in spares:
            if spare.id == file.id and spare != file:
                try:
                    return self._record(spare, f"file {shown_name(file.name)}: {why}; the copy {spare.name} was used")
                except Unusable:
                    continue
        if self._options.accept_mismatch:
            try:
                return self._record(file, is_accepted=True)
            except Unusable:
                pass
        return Unreadable(f"file {shown_name(file.name)}", why)

    def _record(self, file: _File, remark: str | None = None, *, is_accepted: bool = False) -> Record:
        data = self._read(file.name)
        fields = Fields(object_of(data))
        remarks = [] if remark is None else [remark]
        kept = _checked(data, fields, remarks, is_accepted=is_accepted)
        if file.is_spare and remark is None:
            remarks.append(f"its file is missing; the copy {shown_name(file.name)} was used")
        id = fields.text("checkpoint_id")
        if not file.is_spare and id != file.id:
            remarks.append(f"it is in file {shown_name(file.name)}, whose name has another id")
        session = fields.take("session_id")
        if session != self.name:
            remarks.append("its session_id names another session than its folder; the folder counts")
            kept["session_id"] = session
        written, iteration = fields.take("created_at"), fields.whole("iteration")
        created_at = moment_of_text(written)
        if created_at is None or _MICROSECONDS.search(written):
            kept["created_at"] = written  # a datetime has only microseconds
        if iteration < 0:
            remarks.append("its iteration is negative; its step is 0")
            kept["iteration"] = iteration
        usage = _usage(fields, kept, remarks)
        return Record(
            id=id,
            step=max(iteration, 0),
            created_at=created_at,
            trigger=fields.text_or_none("trigger") or "import",
            usage=usage,
            resume_hint=fields.text_or_none("resume_hint"),
            state={
                "messages": fields.items("messages"),
                "tool_calls_pending": fields.items("tool_calls_pending"),
                "tool_results": fields.take("tool_results"),
            },
            rest={**fields.rest, **kept},
            remarks=tuple(remarks),
        )


def _checked(data: bytes, fields: Fields, remarks: list[str], *, is_accepted: bool) -> dict[str, Any]:
    """Verify the checksum of a checkpoint; returns what to keep in `$imported`. Unusable if it does not match."""
    checksum = Checksum(data.decode("utf-8"))
    fields.take(CHECKSUM)
    fields.take(VERSION)
    problem = checksum.problem()
    if checksum.version != KNOWN and (checksum.version is not None or problem is None):
        raise Unusable(f"it has an unknown version of Continuum's format; only {KNOWN} is supported")
    if problem is None:
        if checksum.is_refused_there():
            remarks.append(
                "the checkpoint is intact, but Continuum itself may reject its checksum, because it reads one of the "
                "numbers inexactly"
            )
        return {}
    if not is_accepted:
        raise Unusable(f"{problem}. Use accept_mismatch=True or --accept-mismatch to import it nevertheless.")
    remarks.append(f"{problem}. It was imported nevertheless, as accept_mismatch says.")
    return {"checksum": "mismatch"}


def _usage(fields: Fields, kept: dict[str, Any], remarks: list[str]) -> Usage | None:
    """The tokens and the cost, if they are valid numbers. Continuum writes null for a cost such as NaN."""
    tokens, cost = fields.take("tokens_used"), fields.take("cost_estimate")
    if type(tokens) is not int or not 0 <= tokens < 2**63:
        if tokens is not None:
            kept["tokens_used"] = tokens
            remarks.append("its tokens_used is not a valid number")
        tokens = 0
    if type(cost) not in (int, float) or not 0 <= cost < 2**63:
        kept["cost_estimate"] = cost
        remarks.append("its cost_estimate is not a valid number")
        cost = 0.0
    return Usage(total=tokens, cost=float(cost)) if tokens or cost else None
