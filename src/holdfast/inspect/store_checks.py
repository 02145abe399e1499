"""Checks whether a store can be used: reads, writes, settings, clock, disk space and versions."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect.store_figures import stored_bytes
from holdfast.stores.abilities import BackingUp, Configured, Rewrapping
from holdfast.stores.contract import Store
from holdfast.text import sized

_PACKAGES: Final = (
    "holdfast",
    "msgspec",
    "ormsgpack",
    "zstandard",
    "psycopg",
    "cryptography",
    "click",
    "rich",
    "starlette",
)
_WRITES: Final = 3
_LEAST_FREE: Final = 500_000_000  # bytes
_SKEW: Final = 2.0  # seconds
_YEARS: Final = 20 * 365 * 86_400.0
_LOOKED_AT: Final = 200  # threads


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    name: str
    ok: bool
    what: str


def checkup(hf: Holdfast) -> Iterator[Check]:
    """Run all checks. The write check only increments the sweep counter; no stored data is changed."""
    store = hf.context.store
    underlying = store.underlying if isinstance(store, Rewrapping) else store
    yield _tried("read", lambda: _read(store))
    yield _tried("write", lambda: _written(store))
    if isinstance(underlying, Configured):
        yield _tried("settings", underlying.settings)
    yield Check(name="encryption", ok=True, what="on" if isinstance(store, Rewrapping) else "off")
    yield _tried("clock", lambda: _clock(store))
    if isinstance(underlying, BackingUp):
        yield _disk(hf, underlying.path)
    yield Check(name="versions", ok=True, what=_versions())


def _tried(name: str, look: Callable[[], tuple[bool, str]]) -> Check:
    try:
        ok, what = look()
    except HoldfastError as error:
        ok, what = False, str(error)
    return Check(name=name, ok=ok, what=what)


def _read(store: Store) -> tuple[bool, str]:
    started = time.perf_counter()
    rows = store.threads(prefix="", after=None, limit=1)
    took = (time.perf_counter() - started) * 1000
    return True, f"{took:.1f} ms for the first thread" if rows else f"{took:.1f} ms; no threads yet"


def _written(store: Store) -> tuple[bool, str]:
    """Time the smallest possible write: an increment of the sweep counter."""
    times: list[float] = []
    for _ in range(_WRITES):
        started = time.perf_counter()
        store.sweep_blobs()  # starts an epoch, and drops nothing
        times.append(time.perf_counter() - started)
    return True, f"{sorted(times)[len(times) // 2] * 1000:.1f} ms for a durable write"


def _clock(store: Store) -> tuple[bool, str]:
    wall = time.time()
    newest = max((row.summary.updated_at for row in store.threads(prefix="", after=None, limit=_LOOKED_AT)), default=0)
    ahead = newest / 1_000_000 - wall
    if ahead > _SKEW:
        return False, f"a thread was saved {ahead:.0f} s in the future; this machine's or the writer's clock is wrong"
    server = store.clock().now / 1000
    skew = server - wall
    if abs(skew) < _YEARS and server > _YEARS:
        return abs(skew) <= _SKEW, (
            f"the server's clock differs by {skew:+.1f} s; leases use the server's clock, ages this machine's"
        )
    return True, "leases use a clock that cannot be set"


def _disk(hf: Holdfast, path: str) -> Check:
    taken = stored_bytes(hf) or 0
    try:
        free = shutil.disk_usage(path if os.path.isdir(path) else os.path.dirname(path) or ".").free
    except OSError as error:
        return Check(name="disk", ok=False, what=f"free space cannot be read ({error.strerror})")
    # Merging and erasing rewrite the store, which takes its size once more.
    ok = free >= max(_LEAST_FREE, taken)
    return Check(name="disk", ok=ok, what=f"{sized(free)} free, {sized(taken)} used by the store")


def _versions() -> str:
    from importlib import metadata  # noqa: PLC0415 - slow to import

    found = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
