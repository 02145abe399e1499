"""Import transcripts of Claude Code and the Claude Agent SDK: one file of JSON lines for each session.

A session becomes a thread named by its id. A sub-agent becomes a thread of its own: `SESSION/subagents/agent-ID` if it
has its own file, `SESSION/sidechain-ID` if its lines are in the session's file, as older versions wrote them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import PurePath
from typing import Any, Final

from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.importers.claude_walk import ABOUT, SPOKEN, Places, TranscriptFile, TranscriptLine, Walk
from holdfast.importers.foreign import Aside, Entry, ForeignSource, ForeignThread, Remark, Unreadable
from holdfast.importers.foreign_files import LINK, entries, object_of, read, shown_name, source_entries
from holdfast.importers.frame import CHECK_PATH, CHECK_SOURCE, Options, Unusable

_SUFFIX: Final = ".jsonl"
_SUBAGENTS: Final = "subagents"
_AGENT: Final = "agent-"
_FILES_MAX: Final = 16  # files that one session may continue through
_SIDECAR_MAX: Final = 1 << 20
_SIDE: Final = re.compile(rb'"isSidechain"\s*:\s*true')
_TALK: Final = re.compile(rb'"type"\s*:\s*"(?:' + b"|".join(kind.encode() for kind in sorted(SPOKEN)) + rb')"')


def open_claude(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a transcript or a folder of them. NotFound if it does not exist, InvalidArgument if it is neither."""
    if not os.path.exists(path):
        raise NotFound(f"there is no file or folder {path}; {CHECK_PATH}")
    left: list[ForeignThread] = []
    if os.path.isdir(path):
        files = [TranscriptFile(each, options.max_file_bytes) for each in _transcripts(path, left)]
        if not files:
            raise InvalidArgument(f"{path} contains no Claude Code transcripts: no file *{_SUFFIX}; {CHECK_SOURCE}")
    else:
        files = [TranscriptFile(os.path.realpath(path), options.max_file_bytes)]
        try:
            if not _is_transcript(files[0]):
                raise InvalidArgument(
                    f"{path} is not a Claude Code transcript: no line belongs to a session; {CHECK_SOURCE}"
                )
        except Unusable as error:
            raise InvalidArgument(f"{path}: {error}; {CHECK_SOURCE}") from None
    return ForeignSource("claude-transcript", hf, chain(left, _threads(files)), sum(map(_count, files)))


class SessionThread:
    """One conversation of a file. `places` are the lines of a sub-agent within the file, or None."""

    def __init__(
        self, name: str, file: TranscriptFile, *, places: Places | None = None, is_agents: bool = False
    ) -> None:
        self.name: Final = name
        self._file = file
        self._places = places
        self._is_agents = is_agents

    def records(self) -> Iterator[Entry]:
        """See `ForeignThread`."""
        try:
            if not self._is_agents and not _is_transcript(self._file):
                empty = not any(True for _ in self._file.raw())
                why = "it is empty" if empty else "no line belongs to a Claude Code session"
                yield (Remark if empty else Unreadable)(None, why)
                return
            yield from self._walk().records()
        except Unusable as error:
            yield Unreadable(None, str(error))

    def _walk(self) -> Walk:
        if self._places is not None:
            return Walk(self._file, lambda _: True, places=self._places)
        if self._is_agents:
            return Walk(self._file, lambda _: True, agent=_sidecar(self._file.path))
        return main_walk(self._file, ())


def main_walk(file: TranscriptFile, behind: tuple[str, ...]) -> Walk:
    """Walk the session of a file; `behind` are the files that continue this one."""
    seen = (*behind, file.path)

    def before(uuid: str) -> tuple[str, list[Any]] | None:
        for other in _beside(file, uuid) if len(seen) < _FILES_MAX else ():
            if other.path not in seen:
                found = main_walk(other, seen).up_to(uuid)
                if found is not None:
                    return other.stem, found
        return None

    return Walk(file, lambda line: not line.is_sidechain, before=before)


def _threads(files: list[TranscriptFile]) -> Iterator[ForeignThread]:
    taken: set[str] = set()
    for file in files:
        for thread in _of_file(file):
            if thread.name in taken:
                why = f"another file of session {thread.name} was imported; import this one into another namespace"
                yield Aside([Unreadable(f"file {shown_name(file.path)}", why)])
            else:
                taken.add(thread.name)
                yield thread


def _of_file(file: TranscriptFile) -> Iterator[ForeignThread]:
    folders = PurePath(file.path).parts[:-1]
    if _SUBAGENTS in folders[1:]:
        place = len(folders) - 1 - folders[::-1].index(_SUBAGENTS)
        yield SessionThread(shown_name("/".join((*folders[place - 1 :], file.stem))), file, is_agents=True)
    elif file.stem.startswith(_AGENT):
        session = _session_of(file)
        yield SessionThread(file.stem if session is None else f"{session}/{file.stem}", file, is_agents=True)
    else:
        sides = _sides(file)
        if sides is None or sides[0] or not sides[1]:
            yield SessionThread(file.stem, file)
        for side, places in {}.items() if sides is None else sides[1].items():
            yield SessionThread(f"{file.stem}/sidechain-{side}", file, places=places)


def _sides(file: TranscriptFile) -> tuple[bool, dict[str, list[tuple[int, int]]]] | None:
    """Whether a file has lines of the session itself, and the lines of its sub-agents; None if it is unreadable.

    A sub-agent is known by its id, or by the first line of its conversation.
    """
    roots: dict[str, str] = {}
    found: dict[str, list[tuple[int, int]]] = {}
    spoken: set[str] = set()
    has_others = False
    try:
        for number, offset, data in file.raw():
            if _SIDE.search(data) is None:
                has_others = has_others or _TALK.search(data) is not None
                continue
            try:
                line = TranscriptLine(number, offset, object_of(data))
            except Unusable:
                continue  # reported when the line is imported
            has_others = has_others or not line.is_sidechain
            if line.is_sidechain and line.uuid is not None:
                side = line.text("agentId") or roots.get(line.parent or "", line.uuid)
                roots.setdefault(line.uuid, side)
                found.setdefault(side, []).append((number, offset))
                spoken |= {side} if line.kind in SPOKEN else set()
    except Unusable:
        return None
    return has_others, {side: places for side, places in found.items() if side in spoken}


def _is_transcript(file: TranscriptFile) -> bool:
    """Whether any line of a file belongs to a session. Unusable if the file cannot be read."""
    for line in file.lines():
        if isinstance(line, TranscriptLine) and (
            line.kind in ABOUT or (line.kind and (line.uuid or line.text("sessionId")))
        ):
            return True
    return False


def _session_of(file: TranscriptFile) -> str | None:
    try:
        found = (line.text("sessionId") for line in file.lines() if isinstance(line, TranscriptLine))
        return next((session for session in found if session is not None), None)
    except Unusable:
        return None


def _count(file: TranscriptFile) -> int:
    try:
        return sum(_TALK.search(data) is not None for _, _, data in file.raw())
    except Unusable:
        return 0


def _beside(file: TranscriptFile, uuid: str) -> Iterator[TranscriptFile]:
    """The other files in the folder that contain the uuid of a line. Their errors are reported by their own import."""
    needle = uuid.encode("utf-8", "surrogatepass")
    folder = os.path.dirname(file.path)
    for entry in entries(folder):
        other = TranscriptFile(os.path.join(folder, entry.name), file.limit)
        if entry.name.endswith(_SUFFIX) and other.path != file.path:
            try:
                if any(needle in data for _, _, data in other.raw()):
                    yield other
            except Unusable:
                continue


def _sidecar(path: str) -> dict[str, Any] | None:
    """The contents of a sub-agent's `.meta.json` file: its type and working directory."""
    try:
        return object_of(read(f"{path.removesuffix(_SUFFIX)}.meta.json", _SIDECAR_MAX))
    except Unusable:
        return None


def _transcripts(path: str, left: list[ForeignThread]) -> Iterator[str]:
    """The transcripts in a folder and its subfolders, a session before its sub-agents. Findings are put into `left`."""
    root = os.path.abspath(path)
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            found = source_entries(folder) if folder == root else entries(folder)
        except Unusable as error:
            left.append(Aside([Unreadable(f"folder {shown_name(folder)}", str(error))]))
            continue
        yield from (entry.path for entry in found if entry.name.endswith(_SUFFIX) and not entry.is_dir())
        waiting.extend(entry.path for entry in reversed(found) if entry.is_dir(follow_symlinks=False))
        links = (entry.path for entry in found if entry.is_symlink() and entry.is_dir())
        left.extend(Aside([_linked(root, link)]) for link in links)


def _linked(root: str, link: str) -> Unreadable | Remark:
    """The finding for a link to a folder: a remark if the folder is imported anyway, else unreadable."""
    inner, outer = PurePath(os.path.realpath(link)), PurePath(os.path.realpath(root))
    item = f"folder {shown_name(link)}"
    if inner.is_relative_to(outer):
        return Remark(item, "it is a link to a folder that was read")
    return Unreadable(item, LINK)
