"""What the tests of the saver share: savers on each kind of store, used by their sync or their async methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.stores.sqlite.memory import MemoryStore
from tests.adapters.langgraph.faces import Face
from tests.stores.postgres.server import address, schema_of

STORES = ("memory", "sqlite", "directory", "postgres")


class Savers:
    """One store, and as many savers on it as there are processes."""

    def __init__(self, kind: str, url: str, namespace: str) -> None:
        self.kind = kind
        self.url = url
        self.namespace = namespace
        self._kept = MemoryStore(namespace=namespace) if kind == "memory" else None
        self._opened: list[Holdfast] = []

    def handle(self, **options: Any) -> Holdfast:
        """A handle such as another process would have."""
        if self._kept is not None:
            handle = Holdfast(self._kept, **options)
        else:
            handle = holdfast.open(self.url, namespace=self.namespace, durability="off", **options)
        self._opened.append(handle)
        return handle

    def open(self, **options: Any) -> HoldfastSaver:
        """A saver such as another process would have."""
        return HoldfastSaver(self.handle(), **options)

    def close(self) -> None:
        for handle in self._opened:
            handle.close()


@cache
def _schema() -> str:
    """One schema for all tests of this process: each test has a namespace of its own in it."""
    return schema_of(Path(uuid4().hex))


def savers_on(kind: str, folder: Path) -> Savers:
    match kind:
        case "sqlite":
            return Savers(kind, str(folder / "agent.db"), "default")
        case "directory":
            return Savers(kind, f"dir:{folder}/agents", "default")
        case "postgres":
            return Savers(kind, address(_schema()), uuid4().hex)
        case _:
            return Savers(kind, "memory:", "default")


@pytest.fixture(params=STORES)
def savers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Savers]:
    """Each kind of store."""
    made = savers_on(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=[kind for kind in STORES if kind != "memory"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Savers]:
    """Each kind of store that other processes can open."""
    made = savers_on(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["sqlite-sync", "sqlite-async", "memory-async", "directory-async", "postgres-sync"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Savers, bool]]:
    """Kinds of stores, and whether their savers are used by their async methods: each way on SQLite."""
    kind, _, way = request.param.partition("-")
    made = savers_on(kind, tmp_path)
    yield made, way == "async"
    made.close()


@pytest.fixture
def saver(pair: tuple[Savers, bool]) -> Face:
    savers, is_async = pair
    return Face(savers.open(), is_async=is_async)


@pytest.fixture
def another(pair: tuple[Savers, bool]) -> Callable[[], Face]:
    """Opens a further saver on the same store, as another process would."""
    savers, is_async = pair
    return lambda: Face(savers.open(), is_async=is_async)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Savers]:
    """One SQLite file, for what does not depend on the store."""
    made = savers_on("sqlite", tmp_path)
    yield made
    made.close()
