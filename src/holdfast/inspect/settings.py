"""Database settings that decide whether acknowledged writes survive power loss."""

from __future__ import annotations

from typing import Any, Final

from holdfast.stores.contract import Store

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
