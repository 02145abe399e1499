"""Lines that are sealed as ours and speak of more than any file could hold: nobody counts to that, or makes room."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.stores.contract import Live, Span
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import FAR, effect, journaled, running, saved
from tests.crash.bounds import held_to
from tests.stores.log.conftest import Open, damage_line, log_of
from tests.stores.log.test_forged import forge

MUCH = 1 << 27
MEMORY = 512 << 20


@pytest.mark.parametrize("count", [MUCH, 1 << 62])
def test_a_span_of_more_cells_than_there_are_is_damaged(store: DirectoryStore, count: int) -> None:
    line = saved(store, "a", "x", "y")
    with held_to(MEMORY), pytest.raises(Damaged, match=r"cell 2 of log"):
        store.cells([Span(line.number, 1, 0, count, 1, 2)])


@pytest.mark.parametrize("is_told", [True, False], ids=["whole", "without its end"])
def test_a_journal_entry_with_a_number_far_away_is_damage(
    store: DirectoryStore, open_store: Open, path: Path, is_told: bool
) -> None:
    line, row = running(store)
    journaled(store, line.number, row.fence, [effect()])
    log = log_of(path, "a")
    if is_told:
        forge(log, b"end", b'"of":"e"', b'"of":"c"')
    else:
        store.renew(line.number, row.fence, row.lease_until)
        damage_line(log, "end", -2)
    forge(log, b"entry", b'"number":1', b'"number":%d' % MUCH)
    other = open_store()
    with held_to(MEMORY):
        with pytest.raises(Damaged):
            other.entries(line.number, after=0, limit=100, topic="m")
        with pytest.raises(Damaged):
            other.entries(line.number, after=0, limit=9)
        assert list(other.check()) != []
        other.sweep(line.number, Live((), FAR, frozenset()))
        with pytest.raises(Damaged):
            open_store().entries(line.number, after=0, limit=100, topic="m")


@pytest.mark.parametrize("head", [1, 0])
def test_a_last_checkpoint_far_away_is_damage(store: DirectoryStore, open_store: Open, path: Path, head: int) -> None:
    line = saved(store, "a", "x")
    log = log_of(path, "a")
    forge(log, b"end", b'"last":1', b'"last":%d' % MUCH)
    forge(log, b"end", b'"head":1', b'"head":%d' % head)
    other = open_store()
    with held_to(MEMORY):
        assert list(other.check()) != []
        other.sweep(line.number, Live((), FAR, frozenset()))
