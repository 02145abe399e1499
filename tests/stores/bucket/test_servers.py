"""The suite that every store passes, on real servers; and servers that ignore conditions, which are refused."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest

from holdfast.errors import NotAStore, StoreError
from holdfast.stores.contract import Store
from holdfast.stores.log.bucket_store import BucketStore
from holdfast.testing import StoreContract
from holdfast.testing.contract.build import saved, texts_of
from tests.stores.bucket.conftest import Servers
from tests.stores.bucket.servers import HONEST, LIARS


def opened(client: Any, namespace: str = "default") -> BucketStore:
    return BucketStore("s3://bucket/store", namespace=namespace, client=client, grace=0)


class _OnServer(StoreContract):
    durable = True
    joint_commits = False
    kind = ""

    @pytest.fixture(autouse=True)
    def prefix(self, servers: Servers) -> None:
        self.client = servers.get(self.kind).client(secrets.token_hex(8))

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        return opened(self.client, namespace)


class TestMoto(_OnServer):
    kind = "moto"


class TestAzurite(_OnServer):
    kind = "azurite"


@pytest.mark.parametrize("kind", HONEST)
def test_a_prefix_with_other_objects_is_left_unchanged(servers: Servers, kind: str) -> None:
    client = servers.get(kind).client(secrets.token_hex(8))
    obstore.put(client, "photo.jpg", b"...")
    with pytest.raises(NotAStore, match="there are objects under the prefix"):
        opened(client)
    assert [each["path"] for each in obstore.list(client).collect()] == ["photo.jpg"]


@pytest.mark.parametrize("kind", HONEST)
def test_a_process_that_died_while_it_probed_leaves_a_prefix_that_can_be_opened(servers: Servers, kind: str) -> None:
    client = servers.get(kind).client(secrets.token_hex(8))
    obstore.put(client, f"probes/{secrets.token_hex(8)}-c", b"first")
    opened(client).close()


@pytest.mark.parametrize("kind", HONEST)
def test_processes_may_create_a_store_at_the_same_time(servers: Servers, kind: str) -> None:
    prefix = secrets.token_hex(8)
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(opened, [servers.get(kind).client(prefix) for _ in range(6)]))
    assert len({store.clock().id for store in stores}) == 1


@pytest.mark.parametrize("kind", LIARS)
def test_a_server_that_ignores_conditions_is_refused(servers: Servers, kind: str) -> None:
    client = servers.get(kind).client(secrets.token_hex(8))
    for _ in range(3):
        with pytest.raises(StoreError, match="accepted two conditional creations of one object"):
            opened(client)
    assert list(obstore.list(client).collect()) == []


@pytest.mark.parametrize("kind", HONEST)
def test_a_bucket_that_does_not_exist_is_reported_at_once(servers: Servers, kind: str) -> None:
    with pytest.raises(StoreError, match="there is no such bucket"):
        opened(servers.get(kind).client("store", bucket="misspelt"))


def test_each_server_is_probed(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may use buckets of the same name on several servers."""
    for name, value in servers.get("moto").environment().items():
        monkeypatch.setenv(name, value)

    def open_on(kind: str) -> BucketStore:
        return BucketStore(servers.get(kind).url("probed"), namespace="default")

    open_on("moto").close()
    for kind in LIARS:
        with pytest.raises(StoreError, match="accepted two conditional creations"):
            open_on(kind)


@pytest.mark.parametrize("kind", HONEST)
def test_a_store_is_opened_again(servers: Servers, kind: str) -> None:
    client = servers.get(kind).client(secrets.token_hex(8))
    line = saved(opened(client), "a thread / with ümlauts", "x", "y")
    assert texts_of(opened(client), line.span()) == [["x", "y"]]
