"""Verify: a whole store is found whole, and what was removed, exchanged, forged or torn apart is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.delta.parts import LogKind, log_kind
from holdfast.stores import rows, segments
from holdfast.stores.contract import CheckpointRow, Span
from holdfast.stores.contract_runs import RunRow
from holdfast.testing.contract.build import numbers_of
from holdfast.threads.scan import thread_named
from holdfast.threads.soundness import Examiner
from holdfast.threads.verify import verify
from holdfast.types import VerifyProgress
from tests.covers import covers
from tests.selection import every_store
from tests.threads import tables as tabled
from tests.threads.tables import Tables
from tests.threads.wholes import CIPHER, KINDS, STATES, fill, flip, opened, shown, state_at

_SELECT = """
    SELECT row_key, step, label, head, meta, refs, skeleton, cells FROM checkpoint WHERE row_key & 4294967295 = ?"""
_DELETE = "DELETE FROM checkpoint WHERE row_key & 4294967295 = ?"


@pytest.fixture(params=[None, "cipher"])
def cipher(request: pytest.FixtureRequest) -> Any:
    return None if request.param is None else CIPHER


@pytest.fixture(params=tabled.KINDS)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    return Tables(request.param, tmp_path)


@every_store("each store checks itself")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deep", [True, False])
def test_a_whole_store_is_found_whole(kind: str, deep: bool, cipher: Any, tmp_path: Path) -> None:
    with opened(kind, tmp_path, cipher=cipher) as hf:
        fill(hf)
        report = hf.verify(deep=deep)
        assert report.problems == ()
        assert report.threads == 4
        assert report.checkpoints == sum(info.count for info in hf.threads())
        hf.optimize()
        assert hf.verify(deep=deep).ok


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[VerifyProgress] = []
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
        hf.verify(progress=told.append)
    assert told[-1].done == 4
    assert [look.bytes for look in told] == sorted(look.bytes for look in told)
    assert told[-1].bytes > 30_000


def test_a_quick_look_does_not_read_contents_and_a_deep_one_does(tables: Tables) -> None:
    with tables.opened() as hf:
        fill(hf)
    tables.change_blob("piece", "data", "1 = 1", flip)
    with tables.opened() as hf:
        assert hf.verify(deep=False).ok
        found = hf.verify().problems
    assert all("blob" in problem.what for problem in found)
    # Every checkpoint that names it is hurt: all that have the prompt.
    assert {seq for problem in found if problem.thread == "t" for seq in problem.seqs} == {3, 4, 5, 6, 7, 8, 9}


# -- tampering: somebody changes the tables, and makes Holdfast's checksums fit as far as he can ----------------------


def saved(tables: Tables, cipher: Any) -> None:
    with tables.opened(cipher) as hf:
        for n in range(1, STATES + 1):
            hf.thread("t").save(state_at(n), step=n)


def problems(tables: Tables, cipher: Any) -> str:
    with tables.opened(cipher) as hf:
        report = hf.verify()
    assert not report.ok
    return "; ".join(f"{problem.thread} {problem.seqs}: {problem.what}" for problem in report.problems)


@covers("A15", "F8")
def test_a_checkpoint_that_was_removed_shows(cipher: Any, tables: Tables) -> None:
    saved(tables, cipher)
    tables.execute(_DELETE, 4)
    assert "t (4,): " in problems(tables, cipher)


def test_damage_that_several_checks_find_is_reported_once(tables: Tables) -> None:
    saved(tables, None)
    tables.execute("UPDATE checkpoint SET step = step + 1 WHERE row_key & 4294967295 = 4")
    with tables.opened() as hf:
        (found,) = [problem.what for problem in hf.verify().problems if problem.seqs == (4,)]
    assert found.startswith("checkpoint 4 of the thread with number ")


def renumbered(tables: Tables, moves: dict[int, int]) -> None:
    """Put rows in each other's place, as an attacker does who can compute checksums."""
    stored = {seq: tables.rows(_SELECT, seq)[0] for seq in moves}
    for seq in moves:
        tables.execute(_DELETE, seq)
    for seq, to in moves.items():
        key, step, label, head, meta, refs, skeleton, cells = stored[seq]
        new = key - seq + to
        decoded = rows.read_checkpoint(key, step, label, head, meta, refs, skeleton)
        encoded = rows.store_checkpoint(msgspec.structs.replace(decoded, seq=to))
        bound = None if cells is None else segments.seal(cells[:-4], segments.context_of(new))
        tables.execute(
            "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *encoded.columns(new),
            bound,
        )


@covers("G5")
def test_two_checkpoints_that_were_exchanged_show(cipher: Any, tables: Tables) -> None:
    saved(tables, cipher)
    renumbered(tables, {5: 6, 6: 5})
    found = problems(tables, cipher)
    assert "t (5,)" in found
    assert "t (6,)" in found


def test_a_checkpoint_forged_without_the_key_shows(tables: Tables) -> None:
    saved(tables, CIPHER)
    forged(tables, 5, lambda row: msgspec.structs.replace(row, step=77))
    assert "t (5,): an encrypted record was changed" in problems(tables, CIPHER)


def forged(tables: Tables, seq: int, forge: Callable[[CheckpointRow], CheckpointRow]) -> None:
    """Change what is in clear of a row, with a checksum that fits, as somebody does who has the store but no key."""
    [(key, step, label, head, meta, refs, skeleton, _)] = tables.rows(_SELECT, seq)
    row = forge(rows.read_checkpoint(key, step, label, head, meta, refs, skeleton))
    encoded = rows.store_checkpoint(row)
    tables.execute("UPDATE checkpoint SET step = ?, head = ? WHERE row_key = ?", row.step, encoded.columns(key)[3], key)


def test_a_plain_digest_shows_what_does_not_fit_it(tables: Tables) -> None:
    saved(tables, None)
    forged(tables, 5, lambda row: msgspec.structs.replace(row, step=77))
    assert "t (5,): its digest does not match" in problems(tables, None)


def test_a_data_key_that_is_gone_shows(tables: Tables) -> None:
    saved(tables, CIPHER)
    for (id,) in tables.rows("SELECT id FROM data_key"):
        if id != b"records\0":  # the key of the store itself
            tables.execute("DELETE FROM data_key WHERE id = ?", id)
    assert "data key of an encrypted record is missing" in problems(tables, CIPHER)


@every_store("each store checks itself")
def test_a_damaged_thread_does_not_hide_the_others(tables: Tables) -> None:
    with tables.opened() as hf:
        fill(hf)
    tables.execute("UPDATE thread SET size = size + 1 WHERE name = ?", b"fork")
    tables.execute(f"DELETE FROM checkpoint WHERE {tables.in_thread('t')} AND row_key & 4294967295 = 7")  # noqa: S608 - a number
    found = problems(tables, None)
    assert "thread with number" in found
    assert "t (7,): " in found


# -- runs and journals -----------------------------------------------------------------------------------------------


def with_run(hf: Holdfast, **changes: Any) -> list[str]:
    store = hf.context.store
    thread = thread_named(store, "run")
    assert thread is not None
    run = store.run(thread.position.thread)
    assert run is not None

    def changed(number: int) -> RunRow | None:
        return msgspec.structs.replace(run, **changes) if number == thread.position.thread else store.run(number)

    alone: dict[str, Any] = {"scan": lambda _: {}}  # otherwise the run is read with others
    return [problem.what for problem in verify(shown(store, run=changed, **alone), deep=False).problems]


def test_a_run_that_does_not_fit_its_journal_shows() -> None:
    with opened("memory", Path()) as hf:
        fill(hf)
        assert with_run(hf) == []
        assert with_run(hf, question=50) == ["its run waits for journal entry 50, which is missing"]
        assert with_run(hf, closed=50) == ["its run has closed journal entry 50, but there are only 3"]
        assert with_run(hf, began=50) == ["its run was started at a checkpoint that is missing"]
        assert with_run(hf, lease_until=5) == ["its run is completed, but it is still leased"]
        assert with_run(hf, thread=50) == ["its run belongs to the thread with number 50"]
        assert all("was written under fence 1" in what for what in with_run(hf, fence=0)[:-1])
        assert with_run(hf, fence=0)[-1] == "its run has the fence 0, but fences start at 1"


@every_store("each store checks itself")
def test_a_journal_with_a_hole_shows(tables: Tables) -> None:
    with tables.opened() as hf:
        fill(hf)
    tables.execute("DELETE FROM entry WHERE row_key & 4294967295 = 2")
    with tables.opened() as hf:
        found = [problem for problem in hf.verify(deep=False).problems if problem.thread == "run"]
    assert any("journal entr" in problem.what and "2" in problem.what for problem in found)


def test_cells_whose_commit_was_deleted_are_followed(tmp_path: Path) -> None:
    """A node cell that a deleted checkpoint brought names others: they are looked at, too."""
    read: list[Span] = []
    with opened("memory", tmp_path) as hf:
        thread = hf.thread("t")
        for n in (1, 2):
            thread.save({"agents": {f"agent {i}": {"said": ["word " * 40] * 60} for i in range(80)}, "n": n})
        thread.delete("@1")
        store = hf.context.store

        def cells(spans: Any) -> Any:
            read.extend(spans)
            return store.cells(spans)

        number = numbers_of(store)[0]
        with Examiner(shown(store, cells=cells)) as examiner:
            assert [examined.problems for examined in examiner.thread(number)] == [(), ()]
            assert not examiner.is_proven(number)
    kinds = {log_kind(span.log) for span in read if span.first < 2}
    assert LogKind.NODE in kinds
    assert kinds - {LogKind.NODE}
