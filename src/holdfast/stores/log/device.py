"""The device that a log store writes to: logs and blobs under keys. `folder.Folder` is the file system.

A log is a sequence of groups of lines under a key. A position in it is the number of bytes before that place. A blob is
bytes under a key that are written whole. The operations are few, so that storage with conditional writes and nothing
else (a bucket of objects) can be a device, too.

Locks, temporary files and renames are the device's own business. A crash may leave a part of a group at the end of a
log. It is returned to readers, who ignore it (`groups.cut`), and the next append sets it aside.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from holdfast.errors import NotAStore
from holdfast.stores import clock as clocks
from holdfast.stores import rules
from holdfast.types import UNREADABLE

if TYPE_CHECKING:  # the directory store needs no client of buckets
    from holdfast.stores.log.objects import Objects


FORMAT: Final = 1
MARKER: Final = "holdfast.json"
# With several writers, what no writer can rely on is removed after so many seconds. A writer plans again when its plan
# is older than a quarter of it.
GRACE: Final = 24 * 3600.0


class Moved(Exception):
    """A log was replaced or appended to since the caller looked at it. The caller looks again and retries."""


class Unsure(Exception):
    """A write failed in such a way that it is not known whether it is durable."""


class Version(NamedTuple):
    """The state of a log or blob, to see whether it has changed. `identity` differs if another one has its key now."""

    identity: int | str
    size: int
    changed: int


class Moment(NamedTuple):
    """A time of this machine, in ms. If one clock stops, the other one shows it."""

    machine: int
    wall: int

    @classmethod
    def now(cls) -> Moment:
        return cls(clocks.now(), clocks.wall() // 1000)

    @property
    def age(self) -> int:
        """How many ms ago it was."""
        now = Moment.now()
        return max(now.machine - self.machine, now.wall - self.wall)


LONG_AGO: Final = Moment(-(1 << 62), 0)


class Trust:
    """For a device that lets several writers in at once: whether logs may answer from memory, and which ones did.

    An append is conditional, so a writer need not ask first whether its log has changed.
    """

    def __init__(self, patience: float) -> None:
        """After so many seconds, what is known about a log is too old to append to it."""
        self.used: set[str] = set()
        self.planned = LONG_AGO  # when the writer that has the turn started to plan
        self._patience = patience * 1000
        self._holder: int | None = None

    def is_over(self, moment: Moment) -> bool:
        """Whether what was known at a moment is too old to append to a log."""
        return moment.age > self._patience

    def switch(self, *, on: bool) -> None:
        """Let logs answer this thread from memory, or no longer. A plan starts."""
        self._holder = threading.get_ident() if on else None
        self.used.clear()
        self.planned = Moment.now()

    def is_on(self) -> bool:
        return self._holder == threading.get_ident()


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `holdfast.json`, which identifies a store."""

    holdfast: str
    format: int
    id: str = ""

    def encode(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def decode(cls, data: bytes, kind: str, place: str, advice: str) -> Marker:
        """`NotAStore` or `NewerFormat` if it is not the marker of a store of this kind that this version can read."""
        try:
            found = msgspec.json.decode(data, type=Marker)
        except UNREADABLE as error:
            raise NotAStore(f"{place}: {MARKER} is not that of a store; nothing was changed. {advice}.") from error
        if found.holdfast != kind or found.format < 1:
            raise NotAStore(f"{place}: {MARKER} is not that of a {kind} store; nothing was changed. {advice}.")
        if found.format > FORMAT:
            raise rules.newer_format(place, found.format, FORMAT)
        return found


class NewLog(Protocol):
    """A log that is being rewritten. Nothing changes unless `publish` succeeds."""

    def write(self, data: bytes) -> None: ...

    def sync(self) -> None:
        """Make durable what was written, so that `publish` takes less time."""
        return

    def publish(self, seen: Version, position: int) -> None:
        """Replace the log, durably. `Moved`, with the log unchanged, if it is not as it was `seen`.

        The last group of the old log ends at `position`.
        """
        ...


class DeviceLog(Protocol):
    """The log under one key. It may not exist."""

    path: str  # the place of the log, for messages

    @property
    def newest(self) -> int:
        """With several writers: the number of the newest append, as far as known; 0 if there was none."""
        return 0

    def stat(self) -> Version | None:
        """The current state of the log; None if it does not exist."""
        ...

    def read(self, seen: Version, position: int) -> tuple[int, bytes]:
        """A position, and all bytes that follow it. `Moved` if the log is not the one that was `seen`.

        The position is 0 if the given one is of another log with the same identity, which this one has replaced.
        """
        ...

    def get(self, seen: Version, position: int, length: int) -> bytes:
        """Bytes of the log. `Moved` if it is not the one that was `seen`."""
        ...

    def create(self, pieces: Iterable[bytes]) -> None:
        """Create the log, durably and as a whole. `Moved` if there is one."""
        ...

    def prevent(self) -> None:
        """With several writers: make a creation of the log fail if it is in progress. `Moved` if there is a log."""
        return

    def append(self, seen: Version, position: int, data: bytes, *, sync: bool) -> Version:
        """Append a group at a position, durably if `sync`. Return the state of the log after it.

        `Moved`, with nothing written, if the log is not as it was `seen`. What followed the position is set aside.
        """
        ...

    def rewrite(self) -> AbstractContextManager[NewLog]: ...

    def remove(self, seen: Version, position: int) -> None:
        """Remove the log, durably. `Moved`, with nothing removed, if it does not end at `position`."""
        ...

    def sync(self, seen: Version) -> None:
        """Make durable what was appended without `sync`."""
        return

    def close(self) -> None:
        """Release resources. They are acquired again when needed."""
        return


class Device(Protocol):
    """The logs and blobs of one namespace. Verbs that write are called between `enter` and `leave` only.

    The verbs with a default are those that a device with one writer at a time does not need.
    """

    is_lazy: bool = False  # the appends of verbs are not synced, everything else is (durability "normal")
    trust: Trust | None = None  # None if only one writer is let in at a time
    hints: Objects | None = None  # those of hints on runs (`run_hints.py`); None if reading all threads is fast

    def enter(self) -> None:
        """Wait for the turn to write. A device whose writes are all conditional may let several writers in."""
        ...

    def leave(self) -> None:
        """End the turn. Does nothing if there is none."""
        ...

    def log(self, key: str) -> DeviceLog: ...

    def keys(self, kind: str, after: str = "") -> Iterator[str]:
        """The keys of all logs (`threads`, `dropped`) or blobs of a kind, in the order of the device.

        Those of acts may start after a key.
        """
        ...

    def changed(self, kind: str) -> int | None:
        """A number that differs when logs of a kind were created or deleted; None if it is not known."""
        return None

    def put(self, key: str, pieces: Iterable[bytes], *, sync: bool = True) -> None:
        """Write a blob as a whole, durably if `sync`. A blob that exists is replaced.

        With several writers: `Moved`, with nothing written, if it is not the one that this turn has read.
        """
        ...

    def get(self, key: str) -> bytes | None: ...

    def seen(self, key: str) -> Version | None:
        """The current state of a blob; None if it does not exist."""
        ...

    def remove(self, keys: Iterable[str]) -> None:
        """Remove blobs, durably. Those that do not exist are ignored."""
        ...

    def fetch(self, keys: Sequence[str]) -> AbstractContextManager[None]:
        """Read logs at the same time, if that is faster. In the block, each is read from memory once."""
        return nullcontext()

    def settled(self, keys: Iterable[str]) -> list[str]:
        """Leave out the blobs to which a writer may be about to refer. No log refers to any of them."""
        return list(keys)

    def clean(self, *, scrub: bool) -> list[str]:
        """Remove what interrupted writes left; with `scrub`, all of it. Describe what could not be removed."""
        ...

    def forget_lock(self) -> None:
        """In the child of a fork: leave the turn to the parent process."""
        return

    def close(self) -> None: ...


# -- keys -------------------------------------------------------------------------------------------------------------

THREADS: Final = "threads"
DROPPED: Final = "dropped"
BLOBS: Final = "blobs"
KEYS: Final = "keys"
ACTS: Final = "acts"
COUNTERS: Final = "counters"
LIMITS: Final = "limits"
NUMBERS: Final = "numbers"  # the keys of threads by number, if a device has many writers
OPEN: Final = "open"  # hints on threads with runs that have not ended, likewise
READY: Final = "ready"  # hints on threads with runs that workers may claim, likewise
NUMBER: Final = f"{COUNTERS}/number"
EPOCH: Final = f"{COUNTERS}/epoch"

_LONGEST: Final = 120
_KEPT: Final = 48
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Device names on Windows, with any extension: a store must survive being copied there. Also the file that identifies a
# store, which is next to the folders of namespaces.
_TAKEN: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)|holdfast\.json(?:\..*new)?$")
_HALF_CODE: Final = re.compile(r"%.?$")


@lru_cache(maxsize=1024)
def encoded(name: str) -> str:
    """The name of a thread or namespace as part of a key.

    The mapping is injective, even on file systems that ignore case or normalise accented letters. Lower case letters,
    digits, `-`, `_` and `.` are kept. Every other byte of the name's UTF-8 becomes `%` and two lower case hex digits,
    as `urllib.parse.unquote` reads them. A name that would be too long is shortened and followed by `~` and its sha256;
    no other encoded name contains `~`. The complete name is stored in the log.
    """
    data = name.encode("utf-8", "surrogatepass")
    codes = [chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in data]
    if codes:
        for at in {0, len(codes) - 1}:
            if codes[at] == "." or (at == 0 and codes[at] == "-"):
                codes[at] = f"%{ord(codes[at]):02x}"
    text = "".join(codes) or "%"
    if _TAKEN.match(text):
        text = f"%{ord(text[0]):02x}{text[1:]}"
    if len(text) <= _LONGEST:
        return text
    return f"{_HALF_CODE.sub('', text[:_KEPT])}~{hashlib.sha256(data).hexdigest()}"


def decoded(text: str) -> str | None:
    """The name that was encoded; None if it was shortened or the text is not valid."""
    if "~" in text:
        return None
    try:
        name = "" if text == "%" else unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return name if encoded(name) == text else None


def limit_key(handler: str) -> str:
    """The key under which the claims for a handler with a rate are counted."""
    return f"{LIMITS}/of-{encoded(handler)}.json"  # no leftover of a write is named like this (`folder.clean`)


def number_key(number: int) -> str:
    return f"{NUMBERS}/{number}"


def thread_key(name: str) -> str:
    return f"{THREADS}/{encoded(name)}"


def dropped_key(number: int) -> str:
    return f"{DROPPED}/{number}"


def name_in(key: str) -> str | None:
    """The name of the thread that a key is for; None if the key does not tell."""
    return decoded(key.rpartition("/")[2])
