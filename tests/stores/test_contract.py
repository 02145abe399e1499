"""Every store of ours passes the suite we hand to others."""

from __future__ import annotations

from pathlib import Path

from holdfast.stores.contract import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing import StoreContract


class TestMemoryStore(StoreContract):
    durable = False

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return MemoryStore(namespace=namespace)


class TestSQLiteStore(StoreContract):
    durable = True

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        from holdfast.stores.sqlite import SQLiteStore

        return SQLiteStore(tmp_path / "store.db", namespace=namespace, durability="full")
