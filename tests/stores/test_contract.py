"""Every store of ours passes the suite we hand to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InvalidArgument
from holdfast.stores.contract import Store
from holdfast.stores.log import DirectoryStore
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.testing import StoreContract
from holdfast.testing.contract.build import commit, names_of, run
from tests.covers import covers
from tests.stores.model import ModelStore


class TestModelStore(StoreContract):
    """The model that state machines compare stores with."""

    durable = False

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return ModelStore(namespace=namespace)


@covers("G1", "cortex/MemoryCheckpointStore")
class TestMemoryStore(StoreContract):
    durable = False

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return MemoryStore(namespace=namespace)


@covers("B1", "D1", "G1", "continuum/save replaces the newest at once")
class TestSQLiteStore(StoreContract):
    durable = True

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        from holdfast.stores.sqlite import SQLiteStore

        return SQLiteStore(tmp_path / "store.db", namespace=namespace, durability="full")


@covers("G1", "smooth/FileCheckpointStore.missing")
class TestDirectoryStore(StoreContract):
    durable = True
    joint_commits = False

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return DirectoryStore(tmp_path / "store", namespace=namespace, durability="full")


@pytest.mark.parametrize("stores", [TestModelStore, TestMemoryStore, TestSQLiteStore, TestDirectoryStore])
def test_a_commit_that_writes_a_position_twice_is_refused(tmp_path: Path, stores: type[StoreContract]) -> None:
    store = stores().open_store(tmp_path)
    with pytest.raises(InvalidArgument, match="already has cells at 1"):
        store.commit(commit("t", appends=[run("a", "b"), run("c", start=1)]))
    store.commit(commit("u", appends=[run("a", "b"), run("c", start=2), run("d", log=2)]))
    assert names_of(store) == ["u"]
    store.close()
