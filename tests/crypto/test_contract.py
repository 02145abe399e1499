"""A store with a cipher passes the suite that every store passes. What a cipher does is the same on each store."""

from __future__ import annotations

from pathlib import Path

from holdfast import Cipher
from holdfast.stores.contract import Store
from holdfast.testing import StoreContract
from holdfast.urls import open_store
from tests.covers import covers
from tests.selection import on_store
from tests.stores.postgres.server import reused_address_at

CIPHER = Cipher(keys={"first": bytes(range(32))}, current="first")


@on_store("memory")
class TestEncryptedMemory(StoreContract):
    durable = False

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return open_store("memory:", namespace=namespace, durability="full", cipher=CIPHER)


@covers("G1", "cortex/EncryptedCheckpointStoreWrapper", "cortex/EncryptedCheckpointStoreWrapper other verbs")
@covers("cortex/EncryptedSessionStoreWrapper", "cortex/EncryptedSessionStoreWrapper.list_for_user")
@covers("cortex/test_encrypted_session_list", "cortex/test_encrypted_session_delete")
@on_store("sqlite")
class TestEncryptedSQLite(StoreContract):
    durable = True

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return open_store(tmp_path / "store.db", namespace=namespace, durability="full", cipher=CIPHER)


@on_store("directory")
class TestEncryptedDirectory(StoreContract):
    durable = True
    joint_commits = False

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return open_store(f"dir:{tmp_path / 'store'}", namespace=namespace, durability="full", cipher=CIPHER)


@on_store("postgres")
class TestEncryptedPostgres(StoreContract):
    durable = True

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return open_store(reused_address_at(tmp_path), namespace=namespace, durability="full", cipher=CIPHER)
