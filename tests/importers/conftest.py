"""What the tests of importers share: sources, each with every kind of thread, and stores to import to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.importers import Report, import_from
from tests.importers.sources import (
    Saver,
    play,
    postgres_saver,
    postgres_schema,
    sqlite_saver,
    write_sqlite,
)


class Origin(NamedTuple):
    """A database to import, and how LangGraph reads it."""

    kind: str
    source: str

    def saver(self) -> AbstractContextManager[Saver]:
        if self.kind == "langgraph-sqlite":
            return sqlite_saver(Path(self.source))
        return postgres_saver(self.source)

    def import_to(self, hf: Holdfast) -> Report:
        return import_from(hf, self.kind, self.source)


@pytest.fixture(scope="session")
def _played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("played") / "played.db"
    write_sqlite(path)
    return path


@pytest.fixture
def source(_played: Path, tmp_path: Path) -> Path:
    """A database of SqliteSaver's with every kind of thread."""
    path = tmp_path / "source.db"
    shutil.copy(_played, path)
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A database of SqliteSaver's with a few threads."""
    path = tmp_path / "small.db"
    write_sqlite(path, "chat", "sends", "asks")
    return path


@pytest.fixture(params=["langgraph-sqlite", "langgraph-postgres"])
def origin(request: pytest.FixtureRequest) -> Iterator[Origin]:
    """Every kind of thread, in each kind of database."""
    if request.param == "langgraph-sqlite":
        yield Origin(request.param, str(request.getfixturevalue("source")))
        return
    with postgres_schema() as url:
        with postgres_saver(url) as saver:
            play(saver)
        yield Origin(request.param, url)


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "agent.db", durability="off") as handle:
        yield handle
