"""Checks whether a store can be used: reads, writes, settings, clock, disk space and versions."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect.store_figures import stored_bytes
from holdfast.stores.abilities import BackingUp, Rewrapping
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
_SYNCHRONOUS: Final = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
_PRAGMAS: Final = {
    "journal_mode": "PRAGMA journal_mode",
    "synchronous": "PRAGMA synchronous",
    "secure_delete": "PRAGMA secure_delete",
    "fullfsync": "PRAGMA fullfsync",
    "auto_vacuum": "PRAGMA auto_vacuum",
    "page_size": "PRAGMA page_size",
}
_FULL: Final = 2
_ASKED: Final = ("fsync", "full_page_writes", "synchronous_commit")
_QUERY: Final = (
    b"SELECT pg_catalog.current_setting('fsync', true), pg_catalog.current_setting('full_page_writes', true), "
    b"pg_catalog.current_setting('synchronous_commit', true)"
)


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
    told = _tried("settings", lambda: settings(underlying) or (True, ""))
    if told.what:
        yield told
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
    begun = time.perf_counter()
    rows = store.threads(prefix="", after=None, limit=1)
    took = (time.perf_counter() - begun) * 1000
    return True, f"{took:.1f} ms for the first thread" if rows else f"{took:.1f} ms; no threads yet"


def _written(store: Store) -> tuple[bool, str]:
    """Time the smallest possible write: an increment of the sweep counter."""
    times: list[float] = []
    for _ in range(_WRITES):
        begun = time.perf_counter()
        store.sweep_blobs()  # starts an epoch, and drops nothing
        times.append(time.perf_counter() - begun)
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


# -- settings that decide whether acknowledged writes survive power loss ----------------------------------------------


def settings(store: Store) -> tuple[bool, str] | None:
    """Return whether the settings are right, and what they are; None if the store has none.

    They are read from the database, on a connection like those of the handle. `store` is the store below any cipher.
    """
    match type(store).__name__:
        case "SQLiteStore":
            return _sqlite(store)
        case "DirectoryStore":
            return _directory(store)
        case "PostgresStore":
            return _postgres(store)
        case _:
            return None


def _sqlite(store: Any) -> tuple[bool, str]:
    found: dict[str, Any] = store.read(_pragmas)
    mode = found["journal_mode"]
    found["journal_mode"] = mode.decode() if isinstance(mode, bytes) else mode
    ok = found["journal_mode"] == "wal" and found["synchronous"] >= _FULL and bool(found["secure_delete"])
    found["synchronous"] = _SYNCHRONOUS.get(found["synchronous"], found["synchronous"])
    return ok, ", ".join(f"{name} {value}" for name, value in found.items())


def _pragmas(tx: Any) -> dict[str, Any]:
    return {name: tx.connection.execute(query).fetchone()[0] for name, query in _PRAGMAS.items()}


def _directory(store: Any) -> tuple[bool, str]:
    ok = bool(store._syncs_appends)
    return ok, f"lines with checksums, {'flushed' if ok else 'not flushed'} to their files at each commit"


def _postgres(store: Any) -> tuple[bool, str]:
    found: dict[str, str] = store.read(_server_settings)
    # The server's `synchronous_commit` does not matter: each connection sets its own.
    ok = all(found.get(name) != "off" for name in ("fsync", "full_page_writes"))
    return ok, ", ".join(f"{name} {value}" for name, value in found.items()) or "the server reports none"


def _server_settings(tx: Any) -> dict[str, str]:
    [found] = tx.connection.execute(_QUERY).fetchall()
    return {name: value for name, value in zip(_ASKED, found, strict=True) if value is not None}
