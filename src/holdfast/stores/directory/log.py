"""One log file, followed by one handle: appended groups are read once and passed to a sink.

Readers take no lock. They read complete groups only, so they do not see a write in progress. A replaced file is noticed
by its inode, its size or its first bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.errors import Damaged, HoldfastError, ReadOnly
from holdfast.stores.directory import files, tail
from holdfast.stores.directory import records as r
from holdfast.stores.directory.lines import Damage, Line, is_only_end, is_whole, size, split

# The start of the first line. It has the checksum of the rest of the line, which includes the time the file was made.
_HEAD: Final = 64
_AT_ONCE: Final = 16 << 20


class Sink(Protocol):
    """The receiver of a replay."""

    def reset(self) -> None:
        """Start again: the file was replaced."""
        ...

    def take(self, group: Sequence[tuple[Line, r.Replayed]], end: r.End, bad: Sequence[Damage], where: Damage) -> None:
        """A group: its undamaged lines, its end line, its damaged lines, and its place in the file."""
        ...

    def lose(self, group: Sequence[tuple[Line, r.Replayed]], bad: Sequence[Damage], *, is_end: bool) -> None:
        """Lines of one or more groups whose end line is damaged. `is_end` if only end lines are damaged."""
        ...

    def stop(self, damage: Damage | None, group: Sequence[tuple[Line, r.Replayed]]) -> None:
        """The damage after the last complete group, if any, and the undamaged lines there."""
        ...


class Moved(Exception):
    """A log was replaced between looking it up and reading from it. The caller tries again."""


class _Seen(NamedTuple):
    inode: int
    size: int
    changed: int


class Log:
    """A log file, up to where it was read. Not thread-safe: the store's lock comes first."""

    def __init__(self, path: str, sink: Sink, opened: Callable[[Log], None] | None = None) -> None:
        """`opened` is called for each opened descriptor, to limit their number."""
        self.path = path
        self._opened = opened
        self.end = 0  # offset after the last complete group
        self.has_tail = False
        self._tail_damage: Damage | None = None
        self.is_pinned = (
            False  # a write is in progress: the descriptor stays open, and what is appended is not read yet
        )
        self._sink = sink
        self._descriptor = -1
        self._is_writable = True
        self._seen: _Seen | None = None
        self._head = b""
        self._appended = b""  # appended after `end`, not replayed yet

    def catch_up(self) -> bool:
        """Read what is new. False if the file does not exist."""
        if self.is_pinned:
            return True
        appended, self._appended = self._appended, b""
        try:
            found = _seen(os.stat(self.path))
            if found == self._seen:
                return True
            # While a file is open, no other file can get its inode number.
            if self._descriptor < 0 or self._seen is None or found.inode != self._seen.inode:
                self.close()
                self._open()
                found = _seen(os.fstat(self._descriptor))
                if self._seen is not None and found.inode != self._seen.inode:
                    self._seen = None
        except (FileNotFoundError, NotADirectoryError):
            self.close()
            self._seen = None
            return False
        if appended and self._is_all(found, appended):
            self._replay(appended)
            self._seen = found
        elif found != self._seen:
            self._read(found)
        return True

    def _is_all(self, found: _Seen, appended: bytes) -> bool:
        """Whether this handle's own append is all that is new, so that it need not be read back."""
        return (
            self._seen is not None
            and found.inode == self._seen.inode
            and found.size == self.end + len(appended)
            and len(self._head) == _HEAD
        )

    def descriptor(self) -> int:
        """The descriptor of the file that known offsets refer to. Call `catch_up` first. `Moved` if it was replaced."""
        if self._descriptor < 0:
            try:
                self._open()
            except (FileNotFoundError, NotADirectoryError) as error:
                raise Moved from error
            if self._seen is None or os.fstat(self._descriptor).st_ino != self._seen.inode:
                self.close()
                self._seen = None
                raise Moved
        return self._descriptor

    def line(self, offset: int, length: int) -> bytes:
        """The record of one line, verified."""
        body = os.pread(self.descriptor(), length, offset)
        if not is_whole(body):
            raise Damaged(str(Damage(self.path, offset, length)))
        return body

    def pin(self) -> None:
        """Prepare for `append`: keep the file open, and hide what is appended until it is durable."""
        self.descriptor()
        self._require_writable()
        self.is_pinned = True

    def unpin(self) -> None:
        """After the append is durable or has failed: read it. Errors are ignored; the next read tries again."""
        self.is_pinned = False
        try:
            self.catch_up()
        except (OSError, HoldfastError):
            self.close()
            self._seen = None

    def _require_writable(self) -> None:
        if not self._is_writable:
            raise ReadOnly(f"{self.path}: this process has no permission to write the log; nothing was changed")

    def append(self, data: bytes, *, sync: bool) -> None:
        """Append a group durably. The caller holds the gate and has called `catch_up`. A torn tail is set aside first.

        `Damaged`, with nothing written, if the end of the file is damaged rather than torn: it may hold the newest
        record.
        """
        self._require_writable()
        descriptor = self._descriptor
        if self._tail_damage is not None:
            raise Damaged(
                f"{self._tail_damage}; they may be the newest record, so nothing was written. hf.repair() copies what "
                "is readable to a new store."
            )
        if self.has_tail:
            tail.set_aside(self.path, descriptor, self.end, sync=sync)
            self.has_tail = False
        try:
            files.write_all(descriptor, data)
        except OSError:
            # Half a group is ignored by readers, but the next group must not follow it.
            try:
                os.ftruncate(descriptor, self.end)
            except OSError as error:
                raise files.SyncFailed from error
            raise
        if sync:
            files.sync_data(descriptor)
        self._appended = data

    def close(self) -> None:
        if self._descriptor >= 0 and not self.is_pinned:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        files.require_no_link(os.path.dirname(self.path))
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | files.NO_LINK)
            self._is_writable = True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._descriptor = os.open(self.path, os.O_RDONLY | files.NO_LINK)
            self._is_writable = False
        if self._opened is not None:
            self._opened(self)

    def _read(self, found: _Seen) -> None:
        known = self._seen
        is_same = (
            known is not None
            and known.inode == found.inode
            and found.size >= self.end
            and os.pread(self._descriptor, len(self._head), 0) == self._head
        )
        if not is_same:
            self._sink.reset()
            self.end = 0
        data = _pread(self._descriptor, self.end, found.size - self.end)
        self._replay(data)
        self._seen = found
        self._head = os.pread(self._descriptor, min(_HEAD, self.end), 0)

    def _replay(self, data: bytes) -> None:
        start = self.end
        lines, _ = split(data, start)
        pending: list[Line] = []
        is_hurt = False
        for at, line in enumerate(lines):
            if not line.is_end or line.body is None:
                pending.append(line)
                is_hurt |= line.body is None
                continue
            if is_hurt and self._is_torn(data, start, pending, lines[at + 1 :]):
                pending += lines[at:]
                break
            end = r.end_line(line.body)
            own = size(end.of)
            if len(pending) > own:
                lost = pending[: len(pending) - own]
                good, bad = self._sifted(lost)
                ends = [data[each.offset - start : each.offset - start + each.length] for each in bad]
                bad = bad or [Damage(self.path, self.end, line.offset - self.end)]
                self._sink.lose(good, bad, is_end=bool(ends) and all(map(is_only_end, ends)))
                pending = pending[len(lost) :]
            good, bad = self._sifted(pending)
            if len(pending) < own:
                bad = bad or [Damage(self.path, self.end, line.offset - self.end)]
            where = Damage(self.path, self.end, line.offset + line.length + 1 - self.end)
            self._sink.take(good, end, bad, where)
            self.end = line.offset + line.length + 1
            pending, is_hurt = [], False
        self.has_tail = self.end < start + len(data)
        wrong = tail.damage(data[self.end - start :], pending, self.end)
        self._tail_damage = None if wrong is None else Damage(self.path, *wrong)
        self._sink.stop(self._tail_damage, [] if wrong is None else self._sifted(pending)[0])

    def _is_torn(self, data: bytes, start: int, group: Sequence[Line], later: Sequence[Line]) -> bool:
        """Whether the last group, although it has an end line, was never acknowledged: whole sectors are missing."""
        return tail.is_torn(data, group, start, self.end) and not any(line.is_end for line in later)

    def _sifted(self, lines: Sequence[Line]) -> tuple[list[tuple[Line, r.Replayed]], list[Damage]]:
        """The records of the undamaged lines, and the places of the damaged ones."""
        try:
            good = [(line, r.replayed(line.body)) for line in lines if line.body is not None]
        except Damaged as error:
            where = Damage(self.path, lines[0].offset, lines[-1].offset + lines[-1].length - lines[0].offset)
            raise Damaged(f"{where}: {error}") from error
        if len(good) == len(lines):
            return good, []
        return good, [Damage(self.path, line.offset, line.length) for line in lines if line.body is None]


def _seen(found: os.stat_result) -> _Seen:
    return _Seen(found.st_ino, found.st_size, found.st_mtime_ns)


def _pread(descriptor: int, offset: int, length: int) -> bytes:
    pieces: list[bytes] = []
    while length > 0:
        piece = os.pread(descriptor, min(length, _AT_ONCE), offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        length -= len(piece)
    return b"".join(pieces)
