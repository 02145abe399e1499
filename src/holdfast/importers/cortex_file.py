"""A file of cortex checkpoints, cut into them: an array, lines, one object, or an object with a list for each thread.

JSON lines are read line by line. Anything else is read whole, and gone on with behind what cannot be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from holdfast.errors import InvalidArgument, NotFound
from holdfast.importers.cortex_damage import ARRAY, LOOSE, TABLE, Damage, Shape
from holdfast.importers.foreign_file import json_at, json_of, placed_lines, read
from holdfast.importers.frame import Unusable

_NO_UTF8: Final = re.compile("[\udc80-\udcff]")  # how Python shows a byte that is no part of a text
_METADATA: Final = "metadata"
_UNSURE: Final = "what looks like checkpoints cannot be told from what is in a state, and was left out"


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
        shape = self._shape()
        text, number, end = self._text, 0, shape.begin(self._text) or 0
        damage = Damage(text, shape)
        while not shape.is_end(text, end):
            number += 1
            item, start = f"item {number}", shape.following(text, end)
            if start == len(text):
                yield Piece(item, start, Unusable("the file is cut off"))
                return
            try:
                if text[start] == "]":
                    raise Unusable("the list ends before the file does")
                said, end = json_at(text, start)
            except Unusable as error:
                yield Piece(item, start, error)
                following, is_unsure = damage.behind(start)
                if is_unsure:
                    yield Piece(f"behind {item}", start, Unusable(_UNSURE))
                if following is None:
                    return
                end = following
                continue
            if _NO_UTF8.search(text, start, end):
                yield Piece(item, start, Unusable("it is not UTF-8"))
            elif _is_table(said):
                yield from self._listed(said)
            else:
                yield Piece(item, start, said)

    def _shape(self) -> Shape:
        """How its checkpoints stand in it. An object with lists that is whole is taken as one item."""
        if ARRAY.begin(self._text) is not None:
            return ARRAY
        if TABLE.begin(self._text) is not None:
            try:
                json_at(self._text, LOOSE.following(self._text, 0))
            except Unusable:
                return TABLE
        return LOOSE

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


def _is_table(said: object) -> bool:
    if not isinstance(said, dict) or not said or _METADATA in said:
        return False
    return all(isinstance(each, list) for each in said.values())
