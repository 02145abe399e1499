"""Read the lines and the blobs of a file written by `holdfast export`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from holdfast.errors import Damaged, InvalidArgument, NewerFormat, NotFound
from holdfast.formats import jsonl
from holdfast.importers.frame import Unusable
from holdfast.stores.contract import Blob, Store

_TAIL: Final = 1 << 12


def opening_of(reader: Reader) -> jsonl.Opening:
    """Read the first line. InvalidArgument if the file is not an export, NewerFormat if a newer version wrote it."""
    try:
        opening = reader.next()
    except Damaged:
        opening = None
    if not isinstance(opening, jsonl.Opening):
        why = f"{reader.path} was not written by `holdfast export`"
        if reader.has_other_ends:
            why = f"{reader.path} was changed: its lines end with CR LF. Copy the file in binary mode."
        raise InvalidArgument(why)
    if opening.format > jsonl.FORMAT:
        raise NewerFormat(f"{reader.path} was written by a newer Holdfast; nothing was imported. Upgrade to read it.")
    return opening


class Reader:
    """Reads a file line by line."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self.path: Final = path
        self.offset = offset
        """The offset of the last line that was read."""
        self.has_other_ends = False
        """Whether the last line ends with CR LF."""
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
        """Read the next line; None at the end of the file. `Damaged` if the line was changed."""
        back, self._back = self._back, None
        if back is not None:
            return back
        self.offset = self._file.tell()
        line = self._file.readline()
        self._number += 1
        self.has_other_ends = line.endswith(b"\r\n")
        if not line.endswith(b"\n"):
            return None  # the end of the file, or a last line that is cut off
        try:
            return jsonl.read(line)
        except Damaged as damage:
            raise Damaged(f"line {self._number} of the file: {damage}") from damage

    def give_back(self, line: jsonl.AnyLine) -> None:
        """Push back the last line; `next` returns it again."""
        self._back = line

    def closing(self) -> jsonl.Closing | None:
        """The closing line of the export; None if the file is cut off."""
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
    """The blobs of a file: the offset of each, and its address in the store."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._places: dict[bytes, int] = {}
        self.addresses: dict[bytes, bytes] = {}
        self._names: dict[bytes, bytes] = {}

    def pass_by(self, reader: Reader, line: jsonl.BlobLine) -> None:
        """Note the position of a blob, and skip its pieces."""
        digest, offset = jsonl.digest_of(line.digest), reader.offset
        pieces = [jsonl.piece_of(line), *_rest(reader, line)]
        self._places[digest] = offset
        if self._store is not None:
            address = self._store.hashing.address(b"".join(pieces))
            self._names[address] = digest
            if address != digest:
                self.addresses[digest] = address

    def read(self, path: str, address: bytes) -> Blob:
        """Read a blob by its address in the store."""
        name = self._names.get(address)
        if name is None:
            raise Unusable("it refers to a blob that is not in the file")
        reader = Reader(path, self._places[name])
        try:
            line = reader.next()
            if not isinstance(line, jsonl.BlobLine):
                raise Damaged("the file was changed during the import")
            return Blob(address, (jsonl.piece_of(line), *_rest(reader, line)))
        finally:
            reader.close()


def _rest(reader: Reader, line: jsonl.BlobLine) -> Iterator[bytes]:
    for piece in range(1, line.of):
        following = reader.next()
        if not isinstance(following, jsonl.BlobLine) or (following.digest, following.piece) != (line.digest, piece):
            raise Damaged("a piece of a blob is missing")
        yield jsonl.piece_of(following)
