"""One log file, followed by one handle: what was appended is read once, and handed on group by group.

Readers take no lock. They read whole groups only, so what a writer is in the middle of is not seen; and a file that
was put in the place of the one they know is noticed by its inode, its size or its first bytes.
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

# Of a file's first line: the checksum covers the rest of it, and it says when the file was made.
_HEAD: Final = 64
_AT_ONCE: Final = 16 << 20


class Sink(Protocol):
    """What a log is replayed into."""

    def reset(self) -> None:
        """Begin anew: the file is another one."""
        ...

    def take(self, group: Sequence[tuple[Line, r.Replayed]], end: r.End, bad: Sequence[Damage], where: Damage) -> None:
        """A group: the lines that are as they were written, its end, the lines that are not, and where it lies."""
        ...

    def lose(self, group: Sequence[tuple[Line, r.Replayed]], bad: Sequence[Damage], *, is_end: bool) -> None:
        """Lines that were a group, or several, whose end is damaged. `is_end` if nothing else is."""
        ...

    def stop(self, damage: Damage | None, group: Sequence[tuple[Line, r.Replayed]]) -> None:
        """The damage behind the last whole group, where there is any, and what is sound there."""
        ...


class Moved(Exception):
    """Another file was put in the place of a log between looking at it and reading from it: look again."""


class _Seen(NamedTuple):
    inode: int
    size: int
    changed: int


class Log:
    """A log file as far as it was read. Not thread-safe: the store's lock comes first."""

    def __init__(self, path: str, sink: Sink, opened: Callable[[Log], None] | None = None) -> None:
        """`opened` is told of each descriptor, so that there are not too many."""
        self.path = path
        self._opened = opened
        self.end = 0  # where the last whole group ends
        self.has_tail = False
        self._tail_damage: Damage | None = None
        self.is_pinned = False  # somebody is writing: the descriptor stays open, and what he writes is not read yet
        self._sink = sink
        self._descriptor = -1
        self._is_writable = True
        self._seen: _Seen | None = None
        self._head = b""
        self._appended = b""  # what was written behind `end`, and is still to be replayed

    def catch_up(self) -> bool:
        """Read what is new. False if there is no such file (any more)."""
        if self.is_pinned:
            return True
        appended, self._appended = self._appended, b""
        try:
            found = _seen(os.stat(self.path))
            if found == self._seen:
                return True
            # While a file is open, no other can have its number.
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
        """Whether what this handle has appended is all that is new: then it need not be read back."""
        return (
            self._seen is not None
            and found.inode == self._seen.inode
            and found.size == self.end + len(appended)
            and len(self._head) == _HEAD
        )

    def descriptor(self) -> int:
        """Of the file whose offsets were handed out; `catch_up` comes before. `Moved` if that is gone."""
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
        """Be ready for `append`: stay open, and show nothing of what is appended before it is safe."""
        self.descriptor()
        self._require_writable()
        self.is_pinned = True

    def unpin(self) -> None:
        """What was appended is safe, or it failed: read it. Should that fail it is read later, and says nothing now."""
        self.is_pinned = False
        try:
            self.catch_up()
        except (OSError, HoldfastError):
            self.close()
            self._seen = None

    def _require_writable(self) -> None:
        if not self._is_writable:
            raise ReadOnly(f"{self.path}: this process may read the log, but not write it; nothing was changed")

    def append(self, data: bytes, *, sync: bool) -> None:
        """Add a group, durably. Only under the gate, after `catch_up`. What a crash left at the end is set aside.

        `Damaged`, with nothing written, if what is there is no tail: it may be the newest record.
        """
        self._require_writable()
        descriptor = self._descriptor
        if self._tail_damage is not None:
            raise Damaged(f"{self._tail_damage}; nothing can be written behind that")
        if self.has_tail:
            tail.set_aside(self.path, descriptor, self.end, sync=sync)
            self.has_tail = False
        try:
            files.write_all(descriptor, data)
        except OSError:
            # Half a group is no group, but the next one may not follow it.
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
        """Whether a group whose end is there was never acknowledged: the last one, with holes where sectors are."""
        return tail.is_torn(data, group, start, self.end) and not any(line.is_end for line in later)

    def _sifted(self, lines: Sequence[Line]) -> tuple[list[tuple[Line, r.Replayed]], list[Damage]]:
        """What the lines say that are sound, and where the others are."""
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
