"""Stores in schemas of their own, and a relay that loses connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.stores.postgres import PostgresStore
from tests.stores.postgres.proxy import Relay
from tests.stores.postgres.server import address_at, database, schema_of

Open = Callable[..., PostgresStore]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return address_at(tmp_path)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return schema_of(tmp_path)


@pytest.fixture
def open_store(url: str) -> Iterator[Open]:
    """Opens stores, and closes them in the end."""
    opened: list[PostgresStore] = []

    def open_(at: str = url, **options: Any) -> PostgresStore:
        store = PostgresStore(at, **{"namespace": "default", **options})
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> PostgresStore:
    return open_store()


@pytest.fixture
def relay(url: str) -> Iterator[Relay]:
    made = Relay(url)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[psycopg.Connection[Any]]:
    """A connection to the server, beside the store."""
    with psycopg.connect(database(), autocommit=True) as connection:
        yield connection
