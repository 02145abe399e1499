"""The log of a thread in a bucket: numbered objects. The newest has the last groups, and names the earlier objects.

An append is the conditional creation of the object with the next number. The writer that loses reads the object and
plans again. So the objects of one key have one order for all readers.

An object starts with a line about the log (`Top`). Its own bytes follow: the end of the log, with the new group last.
The `parts` before them are in earlier objects. A small end is repeated by the next object, so that a log of a thousand
small groups is in two or three objects. An object without `log` ends the log: the thread was dropped. When the objects
of such a log are old, all are deleted, and the next log with the key starts at 1 again.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Final, NamedTuple, NoReturn

import msgspec

from holdfast.errors import Damaged, HoldfastError
from holdfast.formats import lines as ln
from holdfast.stores.log.device import LONG_AGO, DeviceLog, Moment, Moved, NewLog, Trust, Version
from holdfast.stores.log.objects import Found, Objects, Taken

# The end of a log is repeated until it is this long. It is then joined with the part before it, until that is full.
TAIL: Final = 64 << 10
PART: Final = 2 << 20
_CACHED: Final = 64 << 20
# Keys are in the order of their names. The newest object must come first.
_LAST: Final = 10**12 - 1
_STEPS: Final = 3  # a reader that is this far behind looks for the newest object instead of the next one


class Top(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of an object."""

    format: int
    nonce: str  # tells the writer whether an object is its own
    log: str = ""  # the nonce of the object that started the log; empty if there is none
    parts: tuple[tuple[int, int], ...] = ()  # earlier objects, and how many of their own bytes are in the log
    is_stub: bool = False  # its bytes were removed, because newer objects have them


class NewestObject(NamedTuple):
    """The newest object of a log."""

    number: int
    log: str
    parts: tuple[tuple[int, int], ...]  # with its own bytes, which come last

    @property
    def size(self) -> int:
        return sum(length for _, length in self.parts)

    @property
    def version(self) -> Version:
        return Version(self.log, self.size, self.number)


class Parts:
    """The own bytes of objects that were read or written, by log and number, up to a limit. They never change.

    Safe for threads: readers continue while a writer of the handle appends.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, log: str, number: int) -> bytes | None:
        with self._lock:
            found = self._kept.get((log, number))
            if found is not None:
                self._kept.move_to_end((log, number))
            return found

    def put(self, log: str, number: int, data: bytes) -> None:
        with self._lock:
            self._size += len(data) - len(self._kept.pop((log, number), b""))
            self._kept[log, number] = data
            while self._size > _CACHED and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1])


class ObjectLog(DeviceLog):
    """The log under one key.

    A reader that started before an append uses the head at the same time as the writer. So the head is read once for
    each decision, and replaced as a whole.
    """

    def __init__(self, objects: Objects, key: str, parts: Parts, trust: Trust) -> None:
        self.path = f"{objects.place}/{key}"
        self._objects = objects
        self._key = key
        self._parts = parts
        self._trust = trust
        self._head: NewestObject | None = None
        self._looked = LONG_AGO  # when the head was known to be the newest object
        self.is_fetched = False  # the next `stat` need not look

    # -- reading ----------------------------------------------------------------------------------------------------

    def stat(self) -> Version | None:
        if self._trust.is_on() and self._head is not None and self._head.log and not self._is_old():
            self._trust.used.add(self._key)
        elif not self.is_fetched:
            self._look()
        self.is_fetched = False
        head = self._head
        return None if head is None or not head.log else head.version

    def fetch(self) -> None:
        """Look, and read the parts that this process does not have. An error is raised by the next `stat`."""
        with suppress(HoldfastError, Moved):
            self._look()
            head = self._head
            if head is not None:
                for number, _ in head.parts:
                    self._part(head, number)
            self.is_fetched = True

    @property
    def newest(self) -> int:
        return 0 if self._head is None else self._head.number

    def _is_old(self) -> bool:
        return self._trust.is_over(self._looked)

    def _look(self) -> None:
        """Find the newest object. Most often there is none after the one that is known."""
        now = Moment.now()
        for _ in range(0 if self._is_old() else _STEPS):
            head = self._head
            if head is None or not head.log:  # another log may have started at 1
                break
            found = self._objects.get(name_of(self._key, head.number + 1))
            if found is None:
                self._looked = now
                return
            self._take(head.number + 1, found)
        self._look_anew()
        self._looked = now

    def _look_anew(self) -> None:
        """Find the newest object in a listing. `Damaged` if it is a stub: then newer ones are missing."""
        tried = ""
        while True:
            listed = self._objects.list(self._key, most=1)
            if not listed:
                self._head = None
                return
            first = listed[0].key
            found = self._objects.get(first)
            if found is not None and not self._take(number_in(first), found).is_stub:
                return
            # It was replaced after the listing, unless it is the first one again.
            if first == tried:
                raise Damaged(f"{self.path}: the newest objects of the log are missing. Restore them.")
            tried = first

    def _take(self, number: int, found: Found) -> Top:
        """Remember an object that was read as the newest one. If it is a stub, the newest one is not known."""
        top, own = split(found.data, f"{self.path} object {number}")
        if top.log:
            self._parts.put(top.log, number, own)
        parts = (*top.parts, (number, len(own))) if top.log else ()
        self._head = None if top.is_stub else NewestObject(number, top.log, parts)
        return top

    def read(self, seen: Version, position: int) -> tuple[int, bytes]:
        head = self._require(seen)
        if position > head.size:  # this handle has just appended, and its reader has seen a later append of another one
            position = 0
        return position, self.get(seen, position, head.size - position)

    def get(self, seen: Version, position: int, length: int) -> bytes:
        head = self._require(seen)
        found: list[bytes] = []
        ends = accumulate(size for _, size in head.parts)
        for (number, size), end in zip(head.parts, ends, strict=True):
            start = max(position - (end - size), 0)
            stop = min(position + length - (end - size), size)
            if start < stop:
                found.append(self._part(head, number)[start:stop])
        return found[0] if len(found) == 1 else b"".join(found)

    def _require(self, seen: Version) -> NewestObject:
        """The head. `Moved` if it is of another log than the one that was seen, or of a shorter one."""
        head = self._head
        if head is None or head.log != seen.identity or head.size < seen.size:
            raise Moved
        return head

    def _part(self, head: NewestObject, number: int) -> bytes:
        known = self._parts.get(head.log, number)
        if known is None:
            found = self._objects.get(name_of(self._key, number))
            top, known = (None, b"") if found is None else split(found.data, f"{self.path} object {number}")
            if top is None or top.log != head.log:
                self._look_again(head, number)
            self._parts.put(head.log, number, known)
        return known

    def _look_again(self, head: NewestObject, missing: int) -> NoReturn:
        """Raise `Moved` if the newest object is another one now: it has the missing bytes, or starts another log.

        Else raise `Damaged`.
        """
        self._look_anew()
        if self._head == head:
            raise Damaged(f"{self.path}: object {missing} of the log is missing; nothing was changed. Restore it.")
        raise Moved

    # -- writing ----------------------------------------------------------------------------------------------------

    def append(self, seen: Version, position: int, data: bytes, *, sync: bool) -> Version:
        head = self._ended(seen, position)
        parts, own = self._joined(head, data)
        return self._create(head, Top(1, _nonce(), head.log, parts), own)

    def _ended(self, seen: Version, position: int) -> NewestObject:
        """The head. `Moved` if the log is not as it was seen, `Damaged` if it does not end with a group."""
        head = self._require(seen)
        if head.size != seen.size:
            raise Moved
        if head.size != position:
            raise Damaged(f"{self.path}: the end of the log is damaged, so nothing was written")
        return head

    def _joined(self, head: NewestObject, data: bytes) -> tuple[tuple[tuple[int, int], ...], bytes]:
        """The parts that stay, and the own bytes of the new object: the group, and what it repeats before it."""
        parts = head.parts
        sizes = [length for _, length in parts]
        if parts and sizes[-1] + len(data) <= TAIL:
            repeated = 1
        elif len(parts) > 1 and sizes[-2] + sizes[-1] + len(data) <= PART:
            repeated = 2
        else:
            repeated = 0
        at = len(parts) - repeated
        return parts[:at], b"".join([*(self._part(head, number) for number, _ in parts[at:]), data])

    def create(self, pieces: Iterable[bytes]) -> None:
        self._start(_first(), b"".join(pieces))

    def prevent(self) -> None:
        self._start(_end(), b"")  # then the number that the creation would use is taken

    def _start(self, top: Top, data: bytes) -> None:
        """Create the next object, where there is no log. `Moved`, with nothing written, if there is one."""
        if self._head is not None and self._head.log:
            raise Moved
        self._create(self._head, top, data)

    def remove(self, seen: Version, position: int) -> None:
        self._create(self._ended(seen, position), _end(), b"")

    def replace(self, seen: Version, position: int, data: bytes) -> None:
        """Start another log with all its groups. `Moved` if this one is not as it was seen."""
        self._create(self._ended(seen, position), _first(), data)

    def _create(self, head: NewestObject | None, top: Top, own: bytes) -> Version:
        """Create the next object. `Moved` if another writer did."""
        # Objects that are no longer needed are deleted when they are old. A writer that read its head before that could
        # create a deleted number again, so it looks again if its last look is too old. Its plan must be young, too: it
        # relies on blobs, keys and numbers that are deleted when they are old and no log has them.
        looked = min(self._looked, self._trust.planned)
        if self._trust.is_over(looked):
            self._look()
            raise Moved
        number = 1 if head is None else head.number + 1
        new = NewestObject(number, top.log, (*top.parts, (number, len(own))) if top.log else ())
        now = Moment.now()
        try:
            self._objects.create(name_of(self._key, number), ln.line_of(top) + own)
        except Taken as taken:
            # It may be this writer's own, whose answer was lost.
            if taken.found is None or self._take(number, taken.found).nonce != top.nonce:
                raise Moved from None
        else:
            self._head = new
            self._looked = now
            if top.log:
                self._parts.put(top.log, number, own)
        if self._trust.is_over(looked):  # the machine was suspended during the request
            self._head = None
            raise self._objects.unknown("the request took too long")
        return new.version

    @contextmanager
    def rewrite(self) -> Generator[NewLog]:
        yield NewObject(self)


class NewObject(NewLog):
    """A log that will replace another one."""

    def __init__(self, log: ObjectLog) -> None:
        self._log = log
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def publish(self, seen: Version, position: int) -> None:
        self._log.replace(seen, position, b"".join(self._pieces))


# -- objects ----------------------------------------------------------------------------------------------------------


def name_of(key: str, number: int) -> str:
    return f"{key}/{_LAST - number:012d}"


def number_in(name: str) -> int:
    return _LAST - int(name.rpartition("/")[2])


def split(data: bytes, where: str) -> tuple[Top, bytes]:
    """The first line of an object, and its own bytes."""
    line, _, own = data.partition(b"\n")
    top = ln.record_in(line + b"\n", Top)
    if top is None:
        raise Damaged(f"{where}: the first line is damaged; nothing was changed. Restore the object.")
    return top, own


def stub(top: Top) -> bytes:
    """The rest of an object whose bytes are in newer ones. Its number stays in use, and its writer recognizes it."""
    return ln.line_of(Top(1, top.nonce, is_stub=True))


def end() -> bytes:
    """An object that ends a log."""
    return ln.line_of(_end())


def _first() -> Top:
    """The first line of an object that starts a log."""
    nonce = _nonce()
    return Top(1, nonce, nonce)


def _end() -> Top:
    """The first line of an object that ends a log."""
    return Top(1, _nonce())


def _nonce() -> str:
    return secrets.token_hex(8)
