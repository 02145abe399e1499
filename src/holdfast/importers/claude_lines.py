"""Read the lines of a Claude Code transcript.

A transcript is a tree: each line has a `uuid`, and `parentUuid` names the line that it follows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec

from holdfast.codec import storable
from holdfast.errors import Unsupported
from holdfast.importers.foreign_file import as_object, object_of, open_file, shown_name
from holdfast.importers.frame import Unusable

SPOKEN: Final = frozenset({"user", "assistant", "attachment"})
"""Types of lines that are sent to the model or written by it."""

SAID: Final = frozenset({"custom-title", "ai-title", "summary", "tag", "agent-name", "pr-link"})
"""Types of lines that describe the session as a whole; they are outside the tree."""

_AROUND_A_MESSAGE: Final = 2  # a state and its list of messages


class Line(msgspec.Struct, frozen=True):
    """One line: a JSON object, and its offset in the file."""

    number: int
    offset: int
    members: dict[str, Any]

    @property
    def kind(self) -> str:
        found = self.members.get("type")
        return found if type(found) is str else ""

    @property
    def uuid(self) -> str | None:
        return self.text("uuid")

    @property
    def parent(self) -> str | None:
        """The line that this one follows. A compaction names it in another field."""
        return self.text("parentUuid") or (self.text("logicalParentUuid") if self.is_boundary else None)

    @property
    def is_boundary(self) -> bool:
        """Whether the conversation was compacted here: later lines follow a summary."""
        return self.kind == "system" and self.members.get("subtype") == "compact_boundary"

    @property
    def is_sidechain(self) -> bool:
        """Whether a sub-agent wrote it."""
        return self.members.get("isSidechain") is True

    @property
    def reply(self) -> str | None:
        """The id of the model's reply that this line is part of: each block of a reply is a line."""
        found = self._message.get("id") if self.kind == "assistant" else None
        return found if type(found) is str else None

    @property
    def trigger(self) -> str:
        """The type of the line, or "tool_result"."""
        return "tool_result" if self.ids("tool_result", "tool_use_id") else self.kind

    @property
    def kept(self) -> tuple[str, str, str] | None:
        """The messages that a compaction kept: the first, the last, and the line that they are placed after."""
        about = self.members.get("compactMetadata")
        segment = about.get("preservedSegment") if type(about) is dict else None
        if type(segment) is not dict:
            return None
        found = [segment.get(name) for name in ("headUuid", "tailUuid", "anchorUuid")]
        first, last, anchor = (each if type(each) is str else "" for each in found)
        return (first, last, anchor) if first and last else None

    def text(self, name: str) -> str | None:
        found = self.members.get(name)
        return found if type(found) is str and found else None

    def ids(self, block: str, name: str) -> list[str]:
        """The ids in the blocks of one type: those of tool calls, or of the calls that tool results refer to."""
        blocks = self._message.get("content")
        found = [each.get(name) for each in blocks if _is(each, block)] if type(blocks) is list else []
        return [id for id in found if type(id) is str]

    @property
    def _message(self) -> dict[str, Any]:
        found = self.members.get("message")
        return found if type(found) is dict else {}

    def message(self) -> dict[str, Any]:
        """The message that the line adds to the conversation, with all other members under `line`."""
        rest = {name: value for name, value in self.members.items() if name not in ("message", "attachment")}
        if self.kind == "attachment":
            found: dict[str, Any] = {"role": "attachment", "attachment": self.members.get("attachment"), "line": rest}
        else:
            message = as_object(self.members.get("message"), "its message")
            found = {"role": self.kind, **message, "line": rest}
        try:
            storable.check(found, _AROUND_A_MESSAGE)
        except Unsupported as error:
            raise Unusable(str(error)) from None
        return found


def _is(block: object, kind: str) -> bool:
    return type(block) is dict and block.get("type") == kind


class TranscriptFile:
    """A transcript file, read line by line."""

    def __init__(self, path: str, limit: int) -> None:
        self.path: Final = path
        self.limit: Final = limit

    @property
    def stem(self) -> str:
        return shown_name(os.path.basename(self.path).removesuffix(".jsonl"))

    def raw(self) -> Iterator[tuple[int, int, bytes]]:
        """The non-empty lines: number, offset and bytes. Of a line over the limit only the start."""
        with self._opened() as file:
            number = offset = 0
            while line := self._next(file):
                number += 1
                if line.strip(b" \t\r\n\0"):
                    yield number, offset, line
                offset += len(line)
                while not line.endswith(b"\n") and (line := self._next(file)):
                    offset += len(line)

    def _next(self, file: BinaryIO) -> bytes:
        try:
            return file.readline(self.limit + 1)
        except OSError as error:
            raise Unusable(f"it cannot be read ({error.strerror})") from None

    def lines(self) -> Iterator[Line | tuple[int, Unusable]]:
        """The lines; for an unreadable line its number and the error. Unusable if the file cannot be read."""
        for number, offset, data in self.raw():
            try:
                yield Line(number, offset, self._members(data))
            except Unusable as error:
                yield number, error

    def at(self, offset: int) -> Line:
        """Read the line at an offset."""
        with self._opened() as file:
            file.seek(offset)
            return Line(0, offset, self._members(self._next(file)))

    def _members(self, data: bytes) -> dict[str, Any]:
        if len(data) > self.limit:
            raise Unusable(
                f"it has more than {self.limit} bytes, the limit; raise it with max_file_bytes= or --max-file-bytes"
            )
        return object_of(data)

    def _opened(self) -> BinaryIO:
        return open(open_file(self.path), "rb")
