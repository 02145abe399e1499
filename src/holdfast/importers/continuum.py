"""Import session folders of Continuum: `{session}/checkpoints/cp_{time}_{id}.json`, a link `latest.json`, one backup.

A thread resumes from the newest file. `latest.json` is only compared with it, because Continuum ignores errors when it
sets the link. Links are never followed. A backup, or a `latest.json` that is a copy, replaces a torn or missing file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.importers import foreign_files as files
from holdfast.importers.foreign import Aside, Entry, ForeignRecord, ForeignSource, ForeignThread, Remark, Unreadable
from holdfast.importers.frame import CHECK_SOURCE, Options, Unusable
from holdfast.types import Usage

_FOLDER, _LATEST, _BACKUP, _VERSION = "checkpoints", "latest.json", ".backup", "1.0"
_TORN: Final = "it is a backup that cannot be read"
_CHECKPOINT: Final = re.compile(r"cp_([0-9]{8}_[0-9]{6})_(.+)\.json", re.DOTALL)
_MICROSECONDS: Final = re.compile(r"\.[0-9]{7,}")


def open_continuum(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a storage folder. NotFound if it does not exist, InvalidArgument if it has no Continuum sessions."""
    threads: list[ForeignThread] = []
    others: list[Unreadable | Remark] = []
    size = 0
    for entry in files.source_entries(path):
        folder, name = os.path.join(entry.path, _FOLDER), files.shown_name(entry.name)
        if entry.is_symlink() or os.path.islink(folder):
            others.append(Unreadable(name if entry.is_symlink() else f"{name}/{_FOLDER}", files.LINK))
        elif not entry.is_dir():
            others.append(Remark(name, "it is not in a session folder"))
        elif not os.path.lexists(folder):
            others.append(Remark(name, "it is a folder without checkpoints"))
        else:
            try:
                names = [each.name for each in files.entries(folder)]
            except Unusable as error:
                others.append(Unreadable(f"{name}/{_FOLDER}", str(error)))
                continue
            size += sum(_CHECKPOINT.fullmatch(each) is not None for each in names)
            threads.append(ContinuumSession(name, folder, names, options))
    if not threads:
        hint = " Give the folder that contains the session folders." if path.rstrip("/\\").endswith(_FOLDER) else ""
        raise InvalidArgument(
            f"{path} contains no Continuum session: it has no folder SESSION/{_FOLDER}; {CHECK_SOURCE}{hint}"
        )
    return ForeignSource("continuum", hf, [*threads, *([Aside(others)] if others else [])], size)


class _ContinuumFile(NamedTuple):
    """A checkpoint file, sortable in the order of saving. `id` is in the file's name, or in the contents of a copy."""

    second: str
    moment: int
    iteration: int
    name: str
    id: str
    is_copy: bool = False


class ContinuumSession:
    """The checkpoints of one session. See `ForeignThread`."""

    def __init__(self, name: str, folder: str, names: list[str], options: Options) -> None:
        self.name: Final = name
        self._folder = folder
        self._names = names
        self._options = options

    def records(self) -> Iterator[Entry]:
        found = [file for name in self._names if (file := self._file(name)) is not None]
        own = {file.id for file in found if not file.is_copy}
        copies = [file for file in found if file.is_copy]
        lost = {file.id: file for file in copies[::-1] if file.id not in own}  # their own files are missing
        known = {_LATEST, *(file.name for file in found)}
        for name in (name for name in self._names if name not in known):
            odd = "it is not a checkpoint; a killed writer leaves such files"
            yield Remark(f"file {files.shown_name(name)}", _TORN if name.endswith(_BACKUP) else odd)
        last: str | None = None
        for file in sorted([*lost.values(), *(file for file in found if not file.is_copy)]):
            entry = self._entry(file, copies)
            yield entry
            last = file.name if isinstance(entry, ForeignRecord) else last
        path = os.path.join(self._folder, _LATEST)
        if not os.path.lexists(path):
            yield Remark(_LATEST, "the file is missing; the thread resumes from the newest checkpoint")
        elif os.path.islink(path) and os.readlink(path) != last:
            yield Remark(_LATEST, "it does not name the newest readable checkpoint; the thread resumes from that one")

    def _file(self, name: str) -> _ContinuumFile | None:
        """A checkpoint, or a copy of one: a backup, or a `latest.json` that is not a link."""
        match = _CHECKPOINT.fullmatch(name)
        is_link = os.path.islink(os.path.join(self._folder, name))
        if match is None and (is_link or (name != _LATEST and not name.endswith(_BACKUP))):
            return None
        try:
            fields = files.Fields(files.object_of(self._read(name)))
            id, written, iteration = fields.text("checkpoint_id"), fields.take("created_at"), fields.whole("iteration")
        except Unusable:  # a file that cannot be read is reported when it is imported
            return None if match is None else _ContinuumFile(match[1], 0, 0, name, match[2])
        moment, made = files.nanoseconds_of_text(written) or 0, files.moment_of_text(written)
        if match is not None:
            return _ContinuumFile(match[1], moment, iteration, name, match[2])
        second = "" if made is None else f"{made:%Y%m%d_%H%M%S}"
        return _ContinuumFile(second, moment, iteration, name, id, is_copy=True)

    def _read(self, name: str) -> bytes:
        return files.read(os.path.join(self._folder, name), self._options.max_file_bytes)

    def _entry(self, file: _ContinuumFile, copies: list[_ContinuumFile]) -> ForeignRecord | Unreadable:
        """A checkpoint; if it cannot be used, a copy of it; without a copy itself, if `accept_mismatch`."""
        name = f"file {files.shown_name(file.name)}"
        try:
            missing = f"its file is missing; the copy {files.shown_name(file.name)} was used"
            return self._record(file, [missing] if file.is_copy else [])
        except Unusable as error:
            why = str(error)
        attempts = [(copy, [f"{name}: {why}; the copy {copy.name} was used"], False) for copy in copies if copy != file]
        for each, remarks, is_accepted in [*attempts, *([(file, [], True)] if self._options.accept_mismatch else [])]:
            try:
                if each.id == file.id:
                    return self._record(each, remarks, is_accepted=is_accepted)
            except Unusable:
                continue
        return Unreadable(name, why)

    def _record(self, file: _ContinuumFile, remarks: list[str], *, is_accepted: bool = False) -> ForeignRecord:
        data = self._read(file.name)
        fields = files.Fields(files.object_of(data))
        kept = _checked(data, fields, remarks, is_accepted=is_accepted)
        id, session, written = fields.text("checkpoint_id"), fields.take("session_id"), fields.take("created_at")
        if not file.is_copy and id != file.id:
            remarks.append(f"it is in file {files.shown_name(file.name)}, whose name has another id")
        if session != self.name:
            remarks.append("its session_id names another session than its folder; the folder counts")
            kept["session_id"] = session
        iteration, created_at = fields.whole("iteration"), files.moment_of_text(written)
        if created_at is None or _MICROSECONDS.search(written):
            kept["created_at"] = written  # a datetime has only microseconds
        if iteration < 0:
            remarks.append("its iteration is negative; its step is 0")
            kept["iteration"] = iteration
        state = {"messages": fields.items("messages"), "tool_calls_pending": fields.items("tool_calls_pending")}
        return ForeignRecord(
            id=id,
            step=max(iteration, 0),
            created_at=created_at,
            trigger=fields.text_or_none("trigger") or "import",
            usage=_usage(fields, kept, remarks),
            resume_hint=fields.text_or_none("resume_hint"),
            state={**state, "tool_results": fields.take("tool_results")},
            rest={**fields.rest, **kept},
            remarks=tuple(remarks),
        )


def _checked(data: bytes, fields: files.Fields, remarks: list[str], *, is_accepted: bool) -> dict[str, Any]:
    """Verify the checksum of a checkpoint; returns what to keep in `$imported`. Unusable if it does not match."""
    checksum, version = fields.take("_checksum"), fields.take("_version")
    problem = "it has no checksum" if not isinstance(checksum, str) else None
    if isinstance(checksum, str) and checksum.lower() != _digest(data):
        problem = "its checksum does not match: the file was changed after it was written"
    if version != _VERSION and (version is not None or problem is None):
        raise Unusable(f"it has an unknown version of Continuum's format; only {_VERSION} is supported")
    if problem is not None and not is_accepted:
        raise Unusable(f"{problem}. Use accept_mismatch=True or --accept-mismatch to import it nevertheless.")
    if problem is not None:
        remarks.append(f"{problem}. It was imported nevertheless, as accept_mismatch says.")
    return {} if problem is None else {"checksum": "mismatch"}


def _digest(data: bytes) -> str:
    """The SHA-256 of the JSON with sorted keys and no whitespace. Fractions are marked, to stay as they are written."""
    mark = os.urandom(8).hex()
    members: dict[str, Any] = json.loads(data, parse_float=lambda fraction: f"{mark}{fraction}")
    bare = {name: value for name, value in members.items() if name not in ("_checksum", "_version")}
    text = json.dumps(bare, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    exact = re.sub(rf'"{mark}([-+.0-9eE]+)"', r"\1", text)
    return hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


def _usage(fields: files.Fields, kept: dict[str, Any], remarks: list[str]) -> Usage | None:
    """The tokens and the cost, if they are valid numbers. Continuum writes null for a cost such as NaN."""
    found: list[float] = []
    for name in ("tokens_used", "cost_estimate"):
        value = fields.take(name)
        if isinstance(value, int | float) and type(value) is not bool and 0 <= value < 2**63:
            found.append(value)
            continue
        found.append(0)
        if name == "cost_estimate" or value is not None:
            kept[name] = value
            remarks.append(f"its {name} is not a valid number")
    return Usage(total=int(found[0]), cost=float(found[1])) if any(found) else None
