"""The lines of a file that `holdfast export` wrote, and the shared values in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from holdfast.errors import Damaged, InvalidArgument, NewerFormat, NotFound
from holdfast.formats import jsonl
from holdfast.importers.frame import Unusable
from holdfast.stores.contract import SharedValue, Store

_TAIL: Final = 1 << 12


def opening_of(reader: Reader) -> jsonl.Opening:
    """The first line of a file. InvalidArgument if it is no file of ours, NewerFormat if it is newer."""
    try:
        opening = reader.next()
    except Damaged:
        opening = None
    if not isinstance(opening, jsonl.Opening):
        why = f"{reader.path} is no file that `holdfast export` wrote"
        if reader.has_other_ends:
            why = f"{reader.path} was changed: its lines end as those of a text of Windows; copy it byte by byte"
        raise InvalidArgument(why)
    if opening.format > jsonl.FORMAT:
        raise NewerFormat(f"{reader.path} was written by a newer Holdfast; nothing was imported. Upgrade to read it")
    return opening


class Reader:
    """The lines of a file, one after the other."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self.path: Final = path
        self.offset = offset
        """Where the line begins that was read last."""
        self.has_other_ends = False
        """Whether that one was changed to end as lines do on Windows."""
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            raise NotFound(f"there is no file {path}") from None
        except OSError as error:
            raise InvalidArgument(f"cannot read {path} ({error.strerror})") from error
        self._file.seek(offset)
        self._number = 0
        self._back: jsonl.AnyLine | None = None

    def next(self) -> jsonl.AnyLine | None:
        """The next line; None at the end of the file. `Damaged` for one that is not what was written."""
        back, self._back = self._back, None
        if back is not None:
            return back
        self.offset = self._file.tell()
        line = self._file.readline()
        self._number += 1
        self.has_other_ends = line.endswith(b"\r\n")
        if not line.endswith(b"\n"):
            return None  # the end, or a last line that was cut off
        try:
            return jsonl.read(line)
        except Damaged as damage:
            raise Damaged(f"line {self._number} of the file: {damage}") from damage

    def give_back(self, line: jsonl.AnyLine) -> None:
        """The line that was read last is for somebody else."""
        self._back = line

    def closing(self) -> jsonl.Closing | None:
        """The last line, if the file was not cut off."""
        before = self._file.tell()
        self._file.seek(max(0, self._file.seek(0, os.SEEK_END) - _TAIL))
        tail = self._file.read().splitlines(keepends=True)
        self._file.seek(before)
        try:
            found = jsonl.read(tail[-1]) if tail and tail[-1].endswith(b"\n") else None
        except Damaged:
            return None
        return found if isinstance(found, jsonl.Closing) else None

    def close(self) -> None:
        self._file.close()


class Values:
    """The shared values of a file: where each is, and under which address the store has it."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._places: dict[bytes, int] = {}
        self.addresses: dict[bytes, bytes] = {}
        self._names: dict[bytes, bytes] = {}

    def pass_by(self, reader: Reader, line: jsonl.ValueLine) -> None:
        """A value is here; its other pieces follow."""
        digest, offset = jsonl.digest_of(line.digest), reader.offset
        pieces = [jsonl.piece_of(line), *_rest(reader, line)]
        self._places[digest] = offset
        if self._store is not None:
            address = self._store.hashing.address(b"".join(pieces))
            self._names[address] = digest
            if address != digest:
                self.addresses[digest] = address

    def read(self, path: str, address: bytes) -> SharedValue:
        """A value by the address that the store has for it."""
        name = self._names.get(address)
        if name is None:
            raise Unusable("it names a large value that is not in the file")
        reader = Reader(path, self._places[name])
        try:
            line = reader.next()
            if not isinstance(line, jsonl.ValueLine):
                raise Damaged("a large value is not where it was")
            return SharedValue(address, (jsonl.piece_of(line), *_rest(reader, line)))
        finally:
            reader.close()


def _rest(reader: Reader, line: jsonl.ValueLine) -> Iterator[bytes]:
    for piece in range(1, line.of):
        following = reader.next()
        if not isinstance(following, jsonl.ValueLine) or (following.digest, following.piece) != (line.digest, piece):
            raise Damaged("a piece of a large value is missing")
        yield jsonl.piece_of(following)
