"""`BucketStore`: a log store whose device is a bucket of objects."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from obstore.store import from_url

from holdfast.errors import InvalidArgument
from holdfast.formats.jsonl import new_number
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, RunRow
from holdfast.stores.log.bucket import GRACE, Bucket
from holdfast.stores.log.bucket_clock import BucketClock
from holdfast.stores.log.bucket_probe import open_prefix
from holdfast.stores.log.objects import OPTIONS, Objects
from holdfast.stores.log.plan import read
from holdfast.stores.log.store import LogStore

SCHEMES: Final = ("s3", "gs", "az")
_SEARCHED: Final = 200  # runs of dead workers that are found at once
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
        super().__init__(bucket, place, durability="full", clock=clock or own, wall=wall, number=number)

    @read
    def expired(self) -> list[tuple[str, RunRow]]:
        """See `Expiring`."""
        runs = () if self._index is None else self._index.due(_SEARCHED)
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
