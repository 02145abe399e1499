"""A bucket of objects as a device: S3, Google Cloud Storage or Azure Blob Storage.

<prefix>/holdfast.json                          identifies the prefix as a store
<prefix>/<namespace>/threads/<name>/<number>    the log of a thread: see `object_log.py`
<prefix>/<namespace>/dropped/<number>/<number>
<prefix>/<namespace>/blobs/<digest>/<period>
<prefix>/<namespace>/open, ready/…               hints on runs: see `run_hints.py`
<prefix>/<namespace>/keys, counters, limits, acts, numbers/…

There is no lock. Every write is conditional on what its writer has read: docs/reference/bucket.md has the protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from typing import Final

from holdfast.stores.contract_runs import Clock
from holdfast.stores.log.device import (
    BLOBS,
    DROPPED,
    GRACE,
    THREADS,
    Device,
    Moment,
    Moved,
    Trust,
    Version,
    encoded,
)
from holdfast.stores.log.object_log import ObjectLog, Parts, end, number_in, split, stub
from holdfast.stores.log.objects import Found, Listed, Objects, Taken

_PERIODS: Final = 2  # periods in a grace time: a writer relies only on blobs that were stored in its period
_READERS: Final = 16  # logs that are read at the same time
_SMALL: Final = 128  # bytes: a stub, and an object that ends a log, has only its first line
_ANY: Final = Version(0, 0, 0)  # of a blob that this turn has not read


class Bucket(Device):
    """The objects of a namespace. Not thread-safe: the store's lock comes first."""

    def __init__(self, objects: Objects, namespace: str, clock: Callable[[], Clock], *, grace: float = GRACE) -> None:
        """`grace` is how old an object must be before it is deleted, in seconds; 0 for a store with one user."""
        self.objects = objects.within(encoded(namespace))
        self.trust = self._trust = Trust((grace or GRACE) / 4)
        self.hints = self.objects
        self._clock = clock
        self._grace = grace
        self._parts = Parts()
        self._logs: dict[str, ObjectLog] = {}
        self._writer: int | None = None
        self._read: dict[str, Version | None] = {}  # by key: the blobs that this turn has read

    def enter(self) -> None:
        self._writer = threading.get_ident()
        self._trust.planned = Moment.now()
        self._read.clear()

    def leave(self) -> None:
        self._writer = None

    # -- logs -------------------------------------------------------------------------------------------------------

    def log(self, key: str) -> ObjectLog:
        found = self._logs.get(key)
        if found is None:
            found = self._logs[key] = ObjectLog(self.objects, key, self._parts, self._trust)
        return found

    @contextmanager
    def fetch(self, keys: Sequence[str]) -> Generator[None]:
        logs = [self.log(key) for key in keys]
        if len(logs) > 1:
            with ThreadPoolExecutor(min(len(logs), _READERS)) as readers:
                list(readers.map(ObjectLog.fetch, logs))
        try:
            yield
        finally:
            for log in logs:
                log.is_fetched = False

    # -- blobs ------------------------------------------------------------------------------------------------------

    def put(self, key: str, pieces: Iterable[bytes], *, sync: bool = True) -> None:
        data = b"".join(pieces)
        if key.startswith(BLOBS):
            place = f"{key}/{self._period():012d}"
            self.objects.put(place, data)
            return
        self._put(key, data)

    def _put(self, key: str, data: bytes) -> None:
        seen = self._read.get(key, _ANY)
        try:
            if seen is _ANY:
                self.objects.put(key, data)
            elif seen is None:
                self._read[key] = self.objects.create(key, data)
            else:
                self._read[key] = self.objects.replace(key, data, seen)
        except Taken:
            raise Moved from None

    def get(self, key: str) -> bytes | None:
        if key.startswith(BLOBS):
            return self._blob(key)
        found = self.objects.get(key)
        if self._writer == threading.get_ident():
            self._read[key] = None if found is None else found.version
        return None if found is None else found.data or None  # an empty object was removed

    def _blob(self, key: str) -> bytes | None:
        """A blob. It may have been stored in several periods, and is removed only when a later one has it."""
        places = [f"{key}/{self._period():012d}"]
        while places:
            for place in reversed(places):
                found = self.objects.get(place)
                if found is not None:
                    return found.data
            places = [each.key for each in self.objects.list(key)]
        return None

    def seen(self, key: str) -> Version | None:
        return self.objects.head(f"{key}/{self._period():012d}" if key.startswith(BLOBS) else key)

    def _period(self, ago: int = 0) -> int:
        """The period now, or so many ms ago."""
        length = (self._grace or GRACE) / _PERIODS
        return int((self._clock().now - ago) / 1000 / length)

    # -- logs and blobs ---------------------------------------------------------------------------------------------

    def keys(self, kind: str, after: str = "") -> Iterator[str]:
        if kind in (THREADS, DROPPED):
            return (f"{kind}/{name}" for name in self.objects.folders(kind))
        if kind == BLOBS:
            return iter(dict.fromkeys(each.key.rpartition("/")[0] for each in self.objects.list(kind)))
        return (each.key for each in self.objects.pages(kind, after=after) if each.size)

    def remove(self, keys: Iterable[str]) -> None:
        gone: list[str] = []
        for key in keys:
            if key.startswith(BLOBS):
                gone += [each.key for each in self.objects.list(key) if self._is_past(each)]
            elif self._read.get(key, _ANY) is _ANY:
                gone.append(key)
            elif self._read[key] is not None:
                self._put(key, b"")  # a deletion cannot be conditional
        self.objects.delete(gone)

    def _is_past(self, blob: Listed) -> bool:
        """Whether no writer can rely on a blob: it was stored in an earlier period, and all plans of that are over.

        The turn counts from its start. What was stored since may be referred to by logs that were read before.
        """
        if not self._grace:
            return True
        return int(blob.key.rpartition("/")[2]) < self._period(self._trust.planned.age) - _PERIODS

    # -- maintenance ------------------------------------------------------------------------------------------------

    def settled(self, keys: Iterable[str]) -> list[str]:
        wanted = list(keys)
        if not self._grace or not wanted:
            return wanted
        kinds = {key.partition("/")[0] for key in wanted}
        old = {each.key for kind in kinds for each in self.objects.list(kind) if self._is_old(each.written)}
        return [key for key in wanted if key in old]

    def clean(self, *, scrub: bool) -> list[str]:
        """Delete the objects whose bytes are in newer ones. With `scrub`, remove the bytes of those that are young."""
        gone: list[str] = []
        for kind in (THREADS, DROPPED):
            listed = self.objects.list(kind)
            for key, objects in groupby(listed, key=lambda each: each.key.rpartition("/")[0]):
                gone += self._unneeded(key, list(objects), scrub=scrub)
        blobs = self.objects.list(BLOBS)
        for _, same in groupby(blobs, key=lambda each: each.key.rpartition("/")[0]):
            gone += [each.key for each in list(same)[:-1] if self._is_past(each)]
        self.objects.delete(gone)
        if not scrub or not self._grace:
            return []
        return [f"values that were stored in the last {self._grace / 3600 * 2:g} hours. Erase again after that time"]

    def _unneeded(self, key: str, objects: Sequence[Listed], *, scrub: bool) -> list[str]:
        """The objects of a log to delete. The newest comes first."""
        newest, *others = objects
        if not others and (newest.size >= _SMALL or not self._is_old(newest.written)):
            return []
        if others and not scrub and not any(self._is_old(each.written) for each in others):
            return []
        found = self.objects.get(newest.key)
        if found is None:
            return []
        top, _ = split(found.data, key)
        if top.is_stub:  # newer objects were created after the listing, or are missing: it is not known what they need
            return []
        needed = {number for number, _ in top.parts}
        others = [each for each in others if number_in(each.key) not in needed]
        old = [each.key for each in others if self._is_old(each.written)]
        if not top.log:  # the thread was dropped
            if not self._is_renewed(newest.key, found):
                old = []
            elif not others:  # it is deleted after all others, because a server deletes several in any order
                return [newest.key]
        for each in others if scrub else ():
            is_empty = each.size < _SMALL  # if it is a stub, it would never be old if each erasure wrote it again
            young = None if is_empty or each.key in old else self.objects.get(each.key)
            if young is not None:
                self.objects.put(each.key, stub(split(young.data, key)[0]))
        return old

    def _is_renewed(self, key: str, last: Found) -> bool:
        """Make the object that ends a log young, if it is old. Then this process may delete objects of the log.

        The next log with the key starts at 1 after that object was deleted, too. A deletion of this process may arrive
        late, and must not meet that log. If the object is young, another process may be about to delete it.
        """
        if not self._is_old(last.version.changed):
            return False
        try:
            self.objects.replace(key, end(), last.version)
        except Taken:
            return False
        return True

    def _is_old(self, written: int) -> bool:
        """Whether an object was old when this turn started."""
        then = self._clock().latest_certain - self._trust.planned.age
        return then * 1000 - written > (self._grace or GRACE) * 1_000_000

    def close(self) -> None:
        self._logs.clear()
