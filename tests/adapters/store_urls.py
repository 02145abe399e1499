"""Stores of each kind, for the tests of adapters."""

from __future__ import annotations

from pathlib import Path

KINDS = ("sqlite", "directory", "postgres")


def url_of(kind: str, folder: Path) -> str:
    """The URL of an empty store."""
    if kind == "postgres":
        from tests.stores.postgres.server import address_at

        return address_at(folder)
    return f"{folder}.db" if kind == "sqlite" else f"{folder}/"
