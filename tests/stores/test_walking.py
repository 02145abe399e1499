"""Walking: a store gives its checkpoints many at once, and what it gives is what it gives one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Damaged, Holdfast
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.sql import reads
from tests.threads.tables import Tables
from tests.threads.wholes import fill, flip


def test_it_is_what_each_checkpoint_is_by_itself(hf: Holdfast) -> None:
    fill(hf)
    store = hf.context.store
    for info in hf.threads():
        row = store.thread(info.name)
        assert row is not None
        number, last = row.position.thread, row.position.last
        single = [store.checkpoint(number, seq) for seq in range(1, last + 1)]
        assert store.walk(number, after=0, limit=1000) == single
        assert store.walk(number, after=0, limit=3) == single[:3]
        assert store.walk(number, after=2, limit=last) == single[2:]
        assert store.walk(number, after=last, limit=5) == []
        assert store.walk(number, after=0, limit=0) == []
    assert store.walk(10_000, after=0, limit=5) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_in_the_place_of_one_that_cannot_be_read_is_what_is_wrong(kind: Any, tmp_path: Path) -> None:
    tables = Tables(kind, tmp_path)
    with tables.opened() as hf:
        fill(hf)
    where = tables.in_thread("t")
    tables.change_blob("checkpoint", "skeleton", f"{where} AND row_key & 4294967295 = 4", flip)
    tables.execute(f"DELETE FROM checkpoint WHERE {where} AND row_key & 4294967295 = 6")  # noqa: S608 - a number
    with tables.opened() as hf:
        store = hf.context.store
        number = next(each for each, name in _names(hf).items() if name == "t")
        found = store.walk(number, after=2, limit=5)
        assert [isinstance(row, Damaged) or row.seq for row in found] == [3, True, 5, True, 7]
        assert "is missing" in str(found[3])


def _names(hf: Holdfast) -> dict[int, str]:
    found = {info.name: hf.context.store.thread(info.name) for info in hf.threads()}
    return {row.position.thread: name for name, row in found.items() if row is not None}


def test_what_lies_beside_a_damaged_page_of_a_database_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(*_: Any) -> list[CheckpointRow | Damaged]:
        raise Damaged("the database is damaged")

    tables = Tables("postgres", tmp_path)
    with tables.opened() as hf:
        fill(hf)
        store = hf.context.store
        number = next(each for each, name in _names(hf).items() if name == "t")
        before = store.walk(number, after=0, limit=100)
        monkeypatch.setattr(reads, "walk", gives_up)
        assert store.walk(number, after=0, limit=100) == before != []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_names_the_threads_beside_a_damaged_one(kind: Any, tmp_path: Path) -> None:
    tables = Tables(kind, tmp_path)
    with tables.opened() as hf:
        fill(hf)
        names = _names(hf)
        assert hf.context.store.names() == names
    tables.execute("UPDATE thread SET step = step + 1 WHERE name = ?", b"fork")
    with tables.opened() as hf:
        assert hf.context.store.names() == {each: name for each, name in names.items() if name != "fork"}
