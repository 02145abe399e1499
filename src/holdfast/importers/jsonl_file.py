"""Read the threads and blobs of a file of lines: an export, or the log of a thread of a directory store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from holdfast.errors import Damaged, InvalidArgument, NotFound
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.importers.frame import CHECK_PATH, CHECK_SOURCE
from holdfast.stores.contract import Append, Blob, CheckpointRow
from holdfast.stores.contract_runs import Entry
from holdfast.stores.log.replay import Item, Place, ReplayedThread

_TAIL: Final = 1 << 12
_FIRST_MAX: Final = 1 << 20  # bytes of the first line
_LINE_MAX: Final = 1 << 30  # bytes of any line
_MISSING: Final = "lines of this thread are missing or damaged"


class LineFile:
    """A file of lines, read once from its start to its end; what its lines hold is read from their places."""

    def __init__(self, path: str) -> None:
        """NotFound if there is no such file, InvalidArgument if it is not a file of lines, NewerFormat."""
        self.path: Final = path
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            raise NotFound(f"there is no file {path}; {CHECK_PATH}") from None
        except OSError as error:
            raise InvalidArgument(f"{path}: it cannot be read ({error.strerror}); {CHECK_SOURCE}") from error
        self._blobs: dict[str, list[Place]] = {}
        self.exported: tuple[int, int] | None = None
        """The number of threads and checkpoints of a complete export."""
        try:
            self.header: Final = self._first()
        except BaseException:
            self.close()
            raise

    def _first(self) -> ln.ExportLine | None:
        """The first line of an export; None if the file is the log of a thread."""
        line = self._file.readline(_FIRST_MAX)
        record = ln.replayed(line[:-1]) if line.endswith(b"\n") and ln.is_whole(line[:-1]) else None
        if not isinstance(record, ln.ExportLine | ln.ThreadHeader):
            why = (
                f"{self.path} was not written by `holdfast export`; nothing was imported. Name another format or file."
            )
            if line.endswith(b"\r\n"):
                why = (
                    f"{self.path} was changed: its lines end with CR LF; nothing was imported. Copy it in binary mode."
                )
            raise InvalidArgument(why)
        ln.require_known(record.format)
        return record if isinstance(record, ln.ExportLine) else None

    @property
    def length(self) -> int:
        """The number of bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def size(self) -> int:
        """The number of checkpoints, as far as the last line tells."""
        self._file.seek(max(0, self._file.seek(0, os.SEEK_END) - _TAIL))
        last = self._file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
        record = ln.replayed(last) if ln.is_whole(last) else None
        if not isinstance(record, ln.End):
            return 0
        return record.exported[1] if record.exported is not None else 0 if record.at is None else record.at.count

    def threads(self) -> Iterator[ReplayedThread | Lost]:
        """Each thread, or the reason why it cannot be used."""
        current: _CurrentThread | None = None
        group = _LineGroup()
        for offset, line in self._lines():
            record = ln.replayed(line) if ln.is_whole(line) else None
            if isinstance(record, ln.ThreadHeader):
                if current is not None:
                    yield current.ended(group)
                    group = _LineGroup()
                elif group.is_damaged or len(group.items) > (self.header is not None):
                    yield Lost(None, f"lines before offset {offset} of the file are missing or damaged")
                    group = _LineGroup()
                current = _CurrentThread(self.path, record)
            elif isinstance(record, ln.BlobHead):
                self._blobs.setdefault(record.digest, []).append(Place(record.piece, 0, offset, len(line)))
            if not isinstance(record, ln.End):
                group.add(offset, line, record)
                continue
            if record.exported is not None:
                self.exported = record.exported
            elif current is None:
                yield Lost(None, f"lines before offset {offset} of the file are missing or damaged")
            else:
                current.take(group, record, offset + len(line) + 1)
            group = _LineGroup()
        if current is not None and current.has_groups:
            yield current.ended(_LineGroup())  # lines without an end are those of a write that did not end

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        offset = 0
        while True:
            self._file.seek(offset)
            line = self._file.readline(_LINE_MAX)
            if not line.endswith(b"\n"):
                if len(line) == _LINE_MAX:
                    raise Damaged(f"the line at offset {offset} of the file is longer than {_LINE_MAX} bytes")
                return  # the end of the file, or a last line that is cut off
            yield offset, line[:-1]
            offset += len(line)

    # -- contents ---------------------------------------------------------------------------------------------------

    def line(self, place: Place) -> bytes:
        self._file.seek(place.offset)
        line = self._file.read(place.length)
        if not ln.is_whole(line):
            raise Damaged("the file was changed during the import")
        return line

    def row(self, thread: ReplayedThread, seq: int) -> CheckpointRow:
        line = self.line(thread.require(seq))
        return jsonl.read_tombstone(line) if thread.is_deleted(seq) else jsonl.read_checkpoint(line)

    def entries(self, thread: ReplayedThread) -> list[Entry]:
        return [jsonl.read_entry(self.line(place)) for place in thread.entries]

    def appends(self, cells: list[tuple[int, Place]]) -> list[Append]:
        """Cells, given with their logs, as a commit writes them: neighbours in a log together."""
        found: list[Append] = []
        group: list[tuple[int, Place]] = []
        for each in [*sorted(cells), None]:
            if group and (each is None or each[0] != group[0][0] or each[1].number != group[0][1].number + len(group)):
                read = [ln.cell_text(self.line(cell)) for _, cell in group]
                packed = tuple(jsonl.read_cell(text) for text, _ in read)
                refs = tuple(jsonl.read_refs(named) for _, named in read)
                has_refs = any(named is not None for _, named in read)
                found.append(Append(group[0][0], group[0][1].number, packed, refs if has_refs else ()))
                group = []
            if each is not None:
                group.append(each)
        return found

    def blob(self, digest: bytes) -> Blob | None:
        """A blob of the file, or of the directory store that the file is in; None if it is in neither."""
        places = self._blobs.get(digest.hex())
        if places is not None:
            blob = Blob(digest, tuple(jsonl.read_piece(self.line(place)) for place in places))
        else:
            name = digest.hex()
            path = os.path.join(os.path.dirname(self.path), "..", "..", "blobs", name[:2], name)
            try:
                with open(path, "rb") as file:
                    blob = Blob(digest, (file.read(),))
            except OSError:
                return None
        is_keyed = self.header is not None and self.header.keyed
        if not is_keyed and hashlib.sha256(b"".join(blob.pieces)).digest() != digest:
            raise Damaged(f"blob {digest.hex()} does not match its digest")
        return blob

    def close(self) -> None:
        self._file.close()


class Lost(NamedTuple):
    """A part of a file that cannot be used: a thread, if its name is known, and why."""

    name: str | None
    why: str


class _LineGroup:
    """The lines of a group whose end was not read yet."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.is_damaged = False
        self.sum = 0

    def add(self, offset: int, line: bytes, record: ln.Replayed | None) -> None:
        self.sum = crc32(b"\n", crc32(line, self.sum))
        if record is None:
            self.is_damaged = True
        else:
            self.items.append((offset, len(line), record))


class _CurrentThread:
    """A thread whose groups are being read."""

    def __init__(self, path: str, first: ln.ThreadHeader) -> None:
        self._name = jsonl.read_name(first.name, first.is_escaped)
        self._thread = ReplayedThread(path)
        self._lost: Lost | None = None
        self.has_groups = False

    def take(self, group: _LineGroup, end: ln.End, stop: int) -> None:
        self.has_groups = True
        if group.is_damaged or (len(group.items), group.sum) != (ln.size(end.of), end.sum):
            self._lost = Lost(self._name, _MISSING)
        if self._lost is None:
            try:
                self._thread.take(group.items, end, [], 0, stop)
            except Damaged as damage:
                self._lost = Lost(self._name, str(damage))

    def ended(self, rest: _LineGroup) -> ReplayedThread | Lost:
        """The thread, if all its groups were read and no lines are left."""
        thread = self._thread
        if thread.damages or not thread.number or rest.items or rest.is_damaged:
            return self._lost or Lost(self._name, _MISSING)
        return self._lost or thread
