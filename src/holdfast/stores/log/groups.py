"""The log of a thread in groups of lines, one per write: read new ones, and find the end of the last complete one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from holdfast.errors import Damaged
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.lines import Damage
from holdfast.stores.contract import Blob
from holdfast.stores.log.device import THREADS, DeviceLog, Moved, Version, name_in, thread_key
from holdfast.stores.log.replay import Item, Place, ReplayedThread

_Raw = tuple[int, bytes]  # the position of a line, and the line

_ZEROS: Final = re.compile(rb"\0+")
_SECTOR: Final = 512  # the smallest unit that a disk writes


class LogChunk(NamedTuple):
    """Bytes of a log: complete groups from the position `start` on, and the `tail` that follows them.

    A tail is left by an interrupted write, and is not part of the log. If it cannot be explained by one, `damage` is
    the position and length of bytes in it that have changed.
    """

    start: int
    data: bytes
    tail: bytes = b""
    damage: tuple[int, int] | None = None


class NextGroup(NamedTuple):
    """A group to append, and the state of the log for which it was planned."""

    seen: Version
    position: int
    lines: Sequence[ln.Sealed]
    end: ln.End
    data: bytes


class ThreadLog:
    """A log, up to where it was read, and the thread that it describes. Not thread-safe: the store's lock comes first.

    Readers take no lock. They read complete groups only, so they do not see a write in progress.
    """

    def __init__(self, key: str, device: DeviceLog) -> None:
        self.key = key
        self.path = device.path
        self.end = 0  # position after the last complete group
        self.stated = 0  # the number in the first line, even if no group is complete
        self.is_adopted = False  # the blobs in the log are also stored outside it
        self.is_hidden = False  # an append of this handle is not durable yet, so it must not be read
        self.device = device
        self.thread = ReplayedThread(device.path)
        self._seen: Version | None = None

    def catch_up(self) -> bool:
        """Read what is new. False if the log does not exist."""
        if self.is_hidden:
            return True
        while True:
            found = self.device.stat()
            if found is None:
                self._seen = None
                return False
            if found == self._seen:
                return True
            try:
                is_same = self._seen is not None and self._seen.identity == found.identity
                start, data = self.device.read(found, self.end if is_same else 0)
            except Moved:
                continue
            self._take(found, cut(data, start))
            return True

    @property
    def seen(self) -> Version:
        """The state up to which the log was read. `Moved` if it was never read, or no longer exists."""
        if self._seen is None:
            raise Moved
        return self._seen

    def line(self, place: Place) -> bytes | memoryview:
        """One line, verified."""
        return self.verified(place, self.get(place.offset, place.length))

    def verified(self, place: Place, line: bytes | memoryview) -> bytes | memoryview:
        if not ln.is_whole(line):
            raise Damaged(str(Damage(self.path, place.offset, place.length)))
        return line

    def get(self, offset: int, length: int, seen: Version | None = None) -> bytes:
        """Bytes of the log; with `seen`, of the log as it was then. `Moved` if another one has its place."""
        return self.device.get(seen or self.seen, offset, length)

    def next_group(self, lines: Sequence[ln.Sealed], at: ln.ThreadRecord | None, entry: int = 0) -> NextGroup:
        """Lines as the group that follows the last one that was read. `Damaged` if the end of the log is damaged."""
        thread = self.thread
        if thread.tail_damage is not None:
            raise Damaged(f"{thread.tail_damage}; they may hold the newest record, so nothing was written")
        data, end = ln.group(lines, thread.number, at, thread.groups + 1, max(thread.newest_entry, entry))
        return NextGroup(self.seen, self.end, lines, end, data)

    def write(self, lines: Sequence[ln.Sealed], at: ln.ThreadRecord | None = None) -> None:
        """Append lines as a group, durably. `Moved`, with nothing written, if the log has other groups by now."""
        group = self.next_group(lines, at)
        self.follow(group, self.append(group, sync=True))

    def append(self, group: NextGroup, *, sync: bool) -> Version:
        """Append a group. `Moved`, with nothing written, if the log has changed since the group was planned."""
        return self.device.append(group.seen, group.position, group.data, sync=sync)

    def follow(self, group: NextGroup, version: Version) -> None:
        """Replay a group that was appended, without reading it back. The log had this version then.

        Does nothing if a reader that started before the append has read on: it may have found the group.
        """
        if self._seen != group.seen:
            return
        self._seen = None  # if the replay fails, the next one starts again
        items: list[Item] = []
        offset = group.position
        for line in group.lines:
            items.append((offset, len(line.data) - 1, line.record))
            offset += len(line.data)
        self.end = group.position + len(group.data)
        self.thread.take(items, group.end, [], group.position, self.end)
        self._seen = version

    # -- the thread -------------------------------------------------------------------------------------------------

    @property
    def is_under_own_key(self) -> bool:
        """Whether the log is under the key for its thread's name. Copies under other keys are not followed."""
        thread = self.thread
        if thread.is_gone:
            return True
        return thread.name is not None and thread_key(thread.name) == self.key

    def blob(self, digest: str) -> Blob:
        """A blob that is in the log, because the log is an export. `Damaged` if it does not match its digest."""
        pieces = tuple(jsonl.read_piece(self.line(place)) for place in self.thread.blobs[digest])
        if hashlib.sha256(b"".join(pieces)).hexdigest() != digest:
            raise Damaged(f"{self.path}: blob {digest} does not match its digest")
        return Blob(bytes.fromhex(digest), pieces)

    def require_number(self) -> None:
        """`Damaged` if the log does not identify a thread."""
        if self.thread.number:
            return
        if self.thread.tail_damage is not None:
            raise Damaged(f"{self.thread.tail_damage}; no line before them identifies the thread")
        raise Damaged(
            f"{self.path}: the log has no undamaged group, so the thread is lost. Restore the file from a copy, or "
            "move its folder out of the store."
        )

    # -- replay -----------------------------------------------------------------------------------------------------

    def _take(self, version: Version, chunk: LogChunk) -> None:
        self._seen = None  # if the replay fails, the next one starts again
        start, data = chunk.start, chunk.data
        if not start:
            self.thread = ReplayedThread(self.path)
            self.is_adopted = False
        self.end = start
        pending: list[_Raw] = []
        for offset, line in _lines(data, start):
            if line.startswith(ln.END_TAG, ln.PREFIX) and ln.is_whole(line):
                body = memoryview(data)[self.end - start : offset - start]
                self._group(body, pending, ln.read_end(line), offset + len(line) + 1)
                pending = []
            else:
                pending.append((offset, line))
        is_torn = chunk.damage is None and self.end > 0
        if self.thread.name is None and self.thread.number and self.key.startswith(THREADS):
            self.thread.name = name_in(self.key)  # the first line is damaged, but the key has the name, too
        left = [] if is_torn else self._sifted(list(_lines(chunk.tail, start + len(data))))[0]
        self.stated = next((each.number for _, _, each in left if isinstance(each, ln.ThreadHeader)), 0)
        self.thread.stop(None if chunk.damage is None else Damage(self.path, *chunk.damage), left)
        self._seen = version

    def _group(self, body: memoryview, pending: list[_Raw], end: ln.End, stop: int) -> None:
        own = ln.size(end.of)
        if len(pending) == own and crc32(body) == end.sum:
            good, bad = self._records(pending), list[Damage]()
        else:
            whole = Damage(self.path, self.end, len(body))
            if len(pending) > own:
                lost = pending[: len(pending) - own]
                good, bad = self._sifted(lost)
                ends = [line for _, line in lost if not ln.is_whole(line)]
                self.thread.lose(good, bad or [whole], is_end=bool(ends) and all(map(_is_only_end, ends)))
                pending = pending[len(lost) :]
                body = body[pending[0][0] - self.end :] if pending else body[:0]
            good, bad = self._sifted(pending)
            if not bad and crc32(body) != end.sum:
                # Every line is undamaged, but they are not those of the group: they may be from another log.
                good = [item for item in good if type(item[2]) is ln.ThreadHeader]
            bad = bad or [whole]
        self.thread.take(good, end, bad, self.end, stop)
        self.end = stop

    def _sifted(self, lines: Sequence[_Raw]) -> tuple[list[Item], list[Damage]]:
        """The records of the undamaged lines, and the places of the damaged ones."""
        good = [each for each in lines if ln.is_whole(each[1])]
        bad = [Damage(self.path, offset, len(line)) for offset, line in lines if not ln.is_whole(line)]
        return self._records(good), bad

    def _records(self, lines: Sequence[_Raw]) -> list[Item]:
        try:
            return [(offset, len(line), ln.replayed(line)) for offset, line in lines]
        except Damaged as error:
            where = Damage(self.path, lines[0][0], lines[-1][0] + len(lines[-1][1]) - lines[0][0])
            raise Damaged(f"{where}: {error}") from error


def _is_only_end(line: bytes) -> bool:
    """Whether a damaged line was a single end line, and not two lines joined by a changed line break."""
    return line.find(ln.END_TAG) == ln.PREFIX and line.count(b'{"crc":"') <= 1


# -- the tail: the bytes after the last complete group ----------------------------------------------------------------
# A crash leaves half a group there, or zeros where the file grew before its data was written. Such a tail was never
# acknowledged, so it is not part of the log. A complete line with a wrong checksum is different: it was written
# completely and has changed since, so it is damage.


def cut(data: bytes, position: int) -> LogChunk:
    """Bytes from a position of a file up to its end, cut where the last complete group ends."""
    end = _after_last_end(data, len(data))
    if end == len(data) and b"\0" not in data:
        return LogChunk(position, data)
    # The last group was never acknowledged, although it has an end line, if sectors before it did not reach the disk.
    start = _after_last_end(data, end - 1) if end else 0
    if start < end and _is_torn(data[start:end], position + start, position + len(data)):
        end = start
    if end == len(data):
        return LogChunk(position, data)
    tail = data[end:]
    return LogChunk(position, data[:end], tail, _damage(tail, position + end))


def _after_last_end(data: bytes, stop: int) -> int:
    """The offset after the last valid end line that ends before `stop`; 0 if there is none."""
    stop = data.rfind(b"\n", 0, stop) + 1
    while stop:
        start = data.rfind(b"\n", 0, stop - 1) + 1
        if data.startswith(ln.END_TAG, start + ln.PREFIX) and ln.is_whole(data[start : stop - 1]):
            return stop
        stop = start
    return 0


def _is_torn(group: bytes, start: int, end: int) -> bool:
    """Whether a group at `start` lacks sectors, and is otherwise undamaged. `end` is the end of the file."""
    bad = [(at, line) for at, line in _lines(group, start) if not ln.is_whole(line)]
    return bool(bad) and all(_has_holes(line, at, start, end) for at, line in bad)


def _damage(tail: bytes, start: int) -> tuple[int, int] | None:
    """The position and length of damage in a tail at `start`; None if the tail is only torn."""
    end = start + len(tail)
    for at, line in _lines(tail, start):
        if not ln.is_whole(line) and not _has_holes(line, at, start, end):
            return at, len(line)
    last = tail.rpartition(b"\n")[2]
    is_torn = _has_holes(last, end - len(last), start, end)
    if b"\0" in last and not is_torn:
        return end - len(last), len(last)
    if last and not is_torn and ln.is_whole(last[:-1]):
        return end - 1, 1  # only the line break after a complete line has changed
    return None


def _lines(data: bytes, at: int) -> Iterator[_Raw]:
    """The complete lines of data at a position, without their line breaks."""
    for line in data.split(b"\n")[:-1]:
        yield at, line
        at += len(line) + 1


def _has_holes(data: bytes, offset: int, start: int, end: int) -> bool:
    """Whether the bytes at `offset` contain zeros, all of them where sectors did not reach the disk.

    Lines never contain a zero byte. Zeros left by a power cut start at `start`, where the write started, or at a
    sector, and end at a sector or at the file's `end`. A zero byte anywhere else means that a byte has changed.
    """
    holes = [(offset + found.start(), offset + found.end()) for found in _ZEROS.finditer(data)]
    return bool(holes) and all(
        (first == start or first % _SECTOR == 0) and (behind == end or behind % _SECTOR == 0) for first, behind in holes
    )
