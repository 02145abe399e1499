"""A file of cortex checkpoints, cut into them: an array, lines, one object, or an object with a list for each thread.

JSON lines are read line by line. Anything else is read whole; behind a place that cannot be read, what looks like the
next checkpoint is gone on with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from holdfast.errors import InvalidArgument, NotFound
from holdfast.importers.foreign_file import json_at, json_of, placed_lines, read
from holdfast.importers.frame import Unusable

_NEXT: Final = re.compile(r'\{\s*"metadata"\s*:')
_BETWEEN: Final = re.compile(r"[\s,]*")
_NO_UTF8: Final = re.compile("[\udc80-\udcff]")  # how Python shows a byte that is no part of a text
_METADATA: Final = "metadata"


class Piece(NamedTuple):
    """Something that should be a checkpoint: what it is called, what finds it again, and what it says, or why not."""

    item: str
    place: Any
    said: Any


class Pieces(Protocol):
    """A file, cut into pieces."""

    def all(self) -> Iterator[Piece]: ...

    def at(self, place: Any) -> Any:
        """What is at a place that `all` gave. Unusable if it is not there any more."""
        ...

    def close(self) -> None: ...


def open_pieces(path: str, limit: int) -> Pieces:
    """A file. NotFound if there is none, InvalidArgument if it cannot be read at all."""
    real = os.path.realpath(path)  # whoever names a link means what it leads to
    if not os.path.exists(real):
        raise NotFound(f"there is no file {path}")
    try:
        for _, _, line in placed_lines(real, limit):
            if _is_line(line):
                return _Lines(real, limit)
            break
        return _Whole(read(real, limit))
    except Unusable as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _is_line(line: bytes | Unusable) -> bool:
    """Whether a file whose first line this is has a checkpoint in each."""
    if isinstance(line, Unusable):
        return False
    try:
        said = json_of(line)
    except Unusable:
        return False
    return isinstance(said, dict) and _METADATA in said


class _Lines:
    """JSON lines."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file = open(path, "rb")  # noqa: SIM115 - closed by close()

    def all(self) -> Iterator[Piece]:
        for number, place, line in placed_lines(self._path, self._limit):
            said: Any
            try:
                said = line if isinstance(line, Unusable) else json_of(line)
            except Unusable as error:
                said = error
            yield Piece(f"line {number}", place, said)

    def at(self, place: Any) -> Any:
        self._file.seek(place)
        return json_of(self._file.readline(self._limit + 1))

    def close(self) -> None:
        self._file.close()


class _Whole:
    """A file that is in memory as a whole."""

    def __init__(self, data: bytes) -> None:
        self._text = data.decode("utf-8", "surrogateescape")
        self._lists: list[Any] = []

    def all(self) -> Iterator[Piece]:
        text, number = self._text, 0
        end = _behind(text, 0)
        is_array = text[end : end + 1] == "["
        end += is_array
        while True:
            start = _behind(text, end)
            if start == len(text):
                if is_array:
                    yield Piece(f"item {number + 1}", start, Unusable("the file is cut off"))
                return
            if is_array and text[start] == "]":
                return
            number += 1
            try:
                said, end = json_at(text, start)
            except Unusable as error:
                yield Piece(f"item {number}", start, error)
                following = _NEXT.search(text, start + 1)
                if following is None:
                    return
                end = following.start()
                continue
            if _NO_UTF8.search(text, start, end):
                yield Piece(f"item {number}", start, Unusable("it is not UTF-8"))
            elif _is_table(said):
                yield from self._listed(said)
            else:
                yield Piece(f"item {number}", start, said)

    def _listed(self, table: dict[str, list[Any]]) -> Iterator[Piece]:
        """The checkpoints of an object with a list for each thread, which stay in memory."""
        for thread, items in table.items():
            for number, said in enumerate(items, 1):
                self._lists.append(said)
                yield Piece(f"item {number} of {thread}", -len(self._lists), said)

    def at(self, place: Any) -> Any:
        return self._lists[-place - 1] if place < 0 else json_at(self._text, place)[0]

    def close(self) -> None:
        self._lists.clear()


def _behind(text: str, place: int) -> int:
    """Where the next item begins."""
    found = _BETWEEN.match(text, place)
    return place if found is None else found.end()


def _is_table(said: object) -> bool:
    if not isinstance(said, dict) or not said or _METADATA in said:
        return False
    return all(isinstance(each, list) for each in said.values())
