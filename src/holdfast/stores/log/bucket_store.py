"""`BucketStore`: a log store whose device is a bucket of objects, with its clock and the test of its server."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from obstore.store import from_url

from holdfast.errors import InvalidArgument, NotAStore, StoreError
from holdfast.formats.jsonl import new_number
from holdfast.stores import clock as clocks
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, RunRow
from holdfast.stores.log.bucket import Bucket
from holdfast.stores.log.device import FORMAT, GRACE, MARKER, Marker
from holdfast.stores.log.objects import OPTIONS, PAGE, Objects, Taken
from holdfast.stores.log.plan import read
from holdfast.stores.log.store import LogStore

SCHEMES: Final = ("s3", "gs", "az")
_SEARCHED: Final = 200  # runs of dead processes that are found at once
_CLOCKS: Final = "clock"
_AGAIN: Final = 60_000  # ms between measurements of the clock
_DRIFT: Final = 0.0002  # how much faster or slower than the server's the clock of a machine may be
_PROBES: Final = "probes"
_PROBE: Final = re.compile(rf"{_PROBES}/[0-9a-f]{{16}}-[a-d]")
# Per URL: the clock of a store that this process has probed.
_known: Final[dict[str, BucketClock]] = {}
_lock: Final = threading.Lock()


class BucketStore(LogStore):
    """A prefix of a bucket, opened on one namespace. Any number of machines may use it.

    Raises `StoreError`, leaving everything unchanged, if the server ignores the conditions of writes. Raises
    `NotAStore` or `NewerFormat` if the prefix has other objects than those of a store that this version can read.
    """

    kind = "bucket"

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        client: Any = None,
        grace: float = GRACE,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
        number: Callable[[], int] = new_number,
    ) -> None:
        """`client` is a store of obstore for the prefix; without it, one is made from the URL and the environment."""
        place, options = _parsed(url)
        objects = Objects(client or from_url(place, **options), place)
        own = _opened(objects, url if client is None else None)
        bucket = Bucket(objects, namespace, clock or own, grace=grace)
        self.objects = bucket.objects
        super().__init__(bucket, place, clock=clock or own, wall=wall, number=number)

    @read
    def expired(self) -> list[tuple[str, RunRow]]:
        """See `Expiring`."""
        runs = () if self._hints is None else self._hints.due(_SEARCHED)
        running = [(thread.name or "", row) for thread, row in runs if row.status == "running"]
        return sorted(running, key=lambda found: rules.queue_place(found[1]))


def _parsed(url: str) -> tuple[str, dict[str, Any]]:
    """The place that a URL names, and the options in it."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.netloc or parts.username or parts.fragment:
        raise InvalidArgument('write "s3://bucket/prefix", "gs://bucket/prefix" or "az://container/prefix"')
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - {"endpoint", "region"}:
        raise InvalidArgument(f"the URL of a bucket has no option {min(unknown)}; nothing was opened")
    allow_http = options.get("endpoint", "").startswith("http://")  # the caller has named a server without TLS
    client = {"client_options": {**OPTIONS["client_options"], "allow_http": allow_http}}
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", {**OPTIONS, **client, "config": options}


def _opened(objects: Objects, url: str | None) -> BucketClock:
    """The clock of a store. A process probes a server only once. The URL also names the server."""
    with _lock:
        found = _known.get(url or "")
        if found is None:
            found = BucketClock(objects, open_prefix(objects))
            if url is not None:
                _known[url] = found
        return found


# -- the clock: the server's time, as the times of written objects show it --------------------------------------------


class BucketClock:
    """The time of one server. Safe for threads; all handles of a process on one store share it.

    A process writes a small object and reads when the server wrote it. So it knows the server's time at a moment
    between the two, give or take the duration of the requests and the second to which servers round. The clock of the
    machine counts from there. Later measurements make the interval smaller.
    """

    def __init__(self, objects: Objects, id: str, machine: Callable[[], int] = clocks.now) -> None:
        """`id` is that of the store: leases of all its processes are on the same clock."""
        self._objects = objects
        self._id = id
        self._machine = machine
        # Processes share few objects. Some services slow down writes to a single one.
        self._key = f"{_CLOCKS}/{secrets.token_hex(1)}"
        self._lock = threading.Lock()
        self._bounds: tuple[float, float] | None = None  # of the server's time minus the machine's, in ms
        self._measured = 0

    def __call__(self) -> Clock:
        with self._lock:
            now = self._machine()
            if self._bounds is None or now - self._measured > _AGAIN:
                self._measure()
                now = self._machine()
            low, high = self._at(now)
            return Clock(self._id, now + int(high), now + int(low))

    def _at(self, now: int) -> tuple[float, float]:
        """The bounds now: they widen with time, because no clock runs exactly as fast as another."""
        low, high = self._bounds or (0.0, 0.0)
        drift = (now - self._measured) * _DRIFT
        return low - drift, high + drift

    def _measure(self) -> None:
        before = self._machine()
        self._objects.put(self._key, b"holdfast\n")
        found = self._objects.head(self._key)
        after = self._machine()
        if found is None:  # another process removed it; the next call measures again
            if self._bounds is None:
                raise StoreError(
                    f"{self._objects.place}: the server's time is not known yet; nothing was changed. Try again."
                )
            return
        written = found.changed / 1000
        # Servers round down to the second. Some give more digits, but a zero may be a digit.
        rounded = 1000 if found.changed % 1_000_000 == 0 else 1
        low, high = written - after, written + rounded - before
        if self._bounds is not None:
            known = self._at(after)
            narrower = max(low, known[0]), min(high, known[1])
            # If they do not overlap, the server's clock was set, or the machine's was stopped: the newest counts.
            low, high = narrower if narrower[0] <= narrower[1] else (low, high)
        self._bounds, self._measured = (low, high), after


# -- the server: some ignore the headers of a conditional write. Two writers would both believe that they won ---------


def open_prefix(objects: Objects) -> str:
    """Make sure that the prefix is a store, create one if it is empty, and return the store's id.

    `NotAStore` or `NewerFormat`, leaving everything unchanged, if it is something else. `StoreError` if the server
    ignores conditions.
    """
    found = objects.get(MARKER)
    # Other processes may be probing, or may have died while they did.
    strangers = [] if found else [each.key for each in objects.list("", most=PAGE) if not _PROBE.fullmatch(each.key)]
    if strangers and objects.get(MARKER) is None:
        raise NotAStore(
            f"{objects.place}: there are objects under the prefix, but not a Holdfast store; nothing was changed. Name "
            "another prefix."
        )
    require_conditions(objects)
    if found is None:
        with suppress(Taken):  # another process was faster
            objects.create(MARKER, Marker("bucket", FORMAT, secrets.token_hex(8)).encode())
        found = objects.get(MARKER)
    return Marker.decode(b"" if found is None else found.data, "bucket", objects.place, "Name another prefix").id


def require_conditions(objects: Objects) -> None:
    """`StoreError` unless the server keeps conditions. The objects that this writes are deleted."""
    unique = secrets.token_hex(8)
    # Created in another order than that of their names.
    key, *others = (f"{_PROBES}/{unique}-{each}" for each in "cadb")
    try:
        if problem := _problem(objects, key, others):
            raise StoreError(
                f"{objects.place}: the server {problem}, so that writers would overwrite each other without notice; "
                "nothing was stored. Use a server with conditional writes (If-None-Match, If-Match), such as Amazon "
                "S3, Google Cloud Storage or Azure Blob Storage."
            )
    finally:
        objects.delete([key, *others])


def _problem(objects: Objects, key: str, others: list[str]) -> str:
    """A description of the condition that the server does not keep; empty if it keeps all."""
    first = objects.create(key, b"first")
    if not _is_taken(lambda: objects.create(key, b"second")):
        return "accepted two conditional creations of one object"
    second = objects.replace(key, b"third", first)
    if not _is_taken(lambda: objects.replace(key, b"fourth", first)):
        return "accepted a conditional write to an object that had changed"
    found = objects.get(key)
    if found is None or found.data != b"third" or found.version.identity != second.identity:
        return "did not return what was written last"
    for other in others:
        objects.create(other, b"first")
    names = [each.key for each in objects.list(_PROBES)]
    if not {key, *others} <= set(names) or names != sorted(names):
        return "did not list all objects in the order of their keys"
    return ""


def _is_taken(write: Callable[[], object]) -> bool:
    try:
        write()
    except Taken:
        return True
    return False
