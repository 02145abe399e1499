"""The PostgreSQL store passes the suite that every store passes."""

from __future__ import annotations

from pathlib import Path

from holdfast.stores.contract import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.testing import StoreContract
from tests.covers import covers
from tests.stores.postgres.server import reused_address_at


@covers("G1", "smooth/PostgresCheckpointStore.contract")
class TestPostgresStore(StoreContract):
    durable = True

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return PostgresStore(reused_address_at(tmp_path), namespace=namespace)
