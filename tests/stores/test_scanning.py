"""Scans: a store gives many threads at once, and what it gives is what it gives one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, Holdfast
from holdfast.inspect import Stats, stats
from holdfast.stores.abilities import Scanning, Totalling
from holdfast.testing.contract.build import numbers_of
from holdfast.threads.scan import numbered
from tests.threads.tables import KINDS, Tables
from tests.threads.wholes import CIPHER, address, fill, flip, shown

LONG = 70  # checkpoints: more than a scan takes


def filled(hf: Holdfast) -> None:
    fill(hf)
    for n in range(LONG):
        hf.thread("long").save({"n": n})


def names(hf: Holdfast, numbers: Any) -> set[str]:
    known = {each.number: each.name for each in numbered(hf.context.store)}
    return {str(known[number]) for number in numbers}


def without(hf: Holdfast, verb: str) -> Stats:
    """The figures of a store that cannot do something."""

    def refuses(*_: Any, **__: Any) -> Any:
        raise Damaged("refused")

    return stats(Holdfast(shown(hf.context.store, **{verb: refuses})))


@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_verbs_give(kind: Any, cipher: Any, tmp_path: Path) -> None:
    tables = Tables(kind, tmp_path)
    with holdfast.open(address(kind, tmp_path), namespace="other", durability="off") as other:
        other.thread("first").save({"n": 1})
    with tables.opened(cipher) as hf:
        filled(hf)
        store = hf.context.store
        assert isinstance(store, Scanning)
        numbers = sorted(numbers_of(store))
        found = store.scan(numbers)
        assert names(hf, found) == {"t", "fork", "orphan", "run"}
        for number, one in found.items():
            assert one.checkpoints == store.walk(number, after=0, limit=100)
            assert one.run == store.run(number)
            assert one.entries == store.entries(number, after=0, limit=100)
            assert one.has_forks == bool(store.forks(number))
        assert store.scan([]) == {}
        assert hf.verify().problems == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE thread SET step = step + 1 WHERE name = 't'",
        "UPDATE thread SET last = last + 1 WHERE name = 't'",
        "DELETE FROM checkpoint WHERE {t} AND row_key & 4294967295 = 6",
        "UPDATE checkpoint SET step = step + 1 WHERE {t} AND row_key & 4294967295 = 6",
        "UPDATE run SET fence = fence + 1",
        "UPDATE run SET entries = entries + 1",
        "DELETE FROM run",
        "DELETE FROM entry WHERE row_key & 4294967295 = 2",
    ],
)
def test_a_thread_with_a_damaged_record_is_left_out(kind: Any, change: str, tmp_path: Path) -> None:
    tables = Tables(kind, tmp_path)
    with tables.opened() as hf:
        filled(hf)
    where = tables.in_thread("t")
    tables.execute(change.replace("'t'", "?").format(t=where), *([b"t"] if "'t'" in change else []))
    with tables.opened() as hf:
        store = hf.context.store
        assert isinstance(store, Scanning)
        gone = "run" if "run" in change or "entry" in change else "t"
        assert names(hf, store.scan(sorted(numbers_of(store)))) == {"t", "fork", "orphan", "run"} - {gone}
        assert {problem.thread for problem in hf.verify().problems} & {gone, None}


@pytest.mark.parametrize("kind", KINDS)
def test_figures_added_up_by_the_store(kind: Any, tmp_path: Path) -> None:
    tables = Tables(kind, tmp_path)
    with holdfast.open(address(kind, tmp_path), namespace="other", durability="off") as other:
        other.thread("first").save({"n": 1})
    with tables.opened() as hf:
        assert isinstance(hf.context.store, Totalling)
        assert stats(hf).threads == 0
        filled(hf)
        found = stats(hf)
        assert found == without(hf, "totals") == without(hf, "threads")
        assert (found.threads, found.checkpoints, found.lost) == (5, LONG + 12, ())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE thread SET size = size + 1 WHERE name = ?",
        "UPDATE thread SET last = last + 1 WHERE name = ?",
        "UPDATE thread SET head = head - 1 WHERE name = ?",
        "UPDATE thread SET deleted = deleted + 1 WHERE name = ?",
        "DELETE FROM checkpoint WHERE {t} AND row_key & 4294967295 = 6 AND ? IS NOT NULL",
        "UPDATE checkpoint SET step = step + 1 WHERE {t} AND row_key & 4294967295 = 6 AND ? IS NOT NULL",
    ],
)
def test_figures_of_damaged_records_are_not_added_up(kind: Any, change: str, tmp_path: Path) -> None:
    tables = Tables(kind, tmp_path)
    with tables.opened() as hf:
        fill(hf)
    tables.execute(change.format(t=tables.in_thread("t")), b"t")
    with tables.opened() as hf:
        found = stats(hf)
        assert found.lost
        assert found == without(hf, "totals")


def test_metadata_that_cannot_be_read_is_not_added_up(tmp_path: Path) -> None:
    tables = Tables("sqlite", tmp_path)
    with tables.opened() as hf:
        fill(hf)
    tables.change_blob("checkpoint", "meta", f"{tables.in_thread('t')} AND row_key & 4294967295 = 5", flip)
    with tables.opened() as hf:
        assert len(stats(hf).lost) == 1
        assert stats(hf) == without(hf, "totals")
