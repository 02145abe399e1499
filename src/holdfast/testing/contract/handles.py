"""Handles: closing, reopening, two at once, checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast.errors import Closed, Conflict, Damaged
from holdfast.stores.contract import KeyRow, Live, Position, Refs, Span, Store
from holdfast.stores.contract_runs import RunRow
from holdfast.testing.contract.build import (
    FAR,
    Line,
    commit,
    effect,
    everything,
    holds,
    image,
    numbers_of,
    prompt,
    saved,
    summary,
    swept_blobs,
    texts_of,
)
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import thread_named

RUN = RunRow(thread=1, status="running", fence=1)
EFFECT = effect(number=1)

VERBS: dict[str, Callable[[Store], object]] = {
    "head": lambda store: store.head("a"),
    "threads": lambda store: store.threads(prefix="", after=None, limit=1),
    "checkpoints": lambda store: store.checkpoints(1, before=None, limit=1),
    "walk": lambda store: store.walk(1, after=0, limit=1),
    "cells": lambda store: store.cells([Span(1, 1, 0, 1, 1, 1)]),
    "blob": lambda store: store.blob(prompt(store).digest),
    "forks": lambda store: store.forks(1),
    "clock": lambda store: store.clock(),
    "run": lambda store: store.run(1),
    "runs": lambda store: store.runs(statuses=["running"], after=(0, 0), limit=1),
    "entries": lambda store: store.entries(1, after=0, limit=1),
    "last_entry": lambda store: store.last_entry(1),
    "queue": lambda store: store.queue(handlers=["h"], after=(0, 0, 0), limit=1),
    "due": lambda store: store.due(limit=1),
    "commit": lambda store: store.commit(commit("new")),
    "rewind": lambda store: store.rewind(Position(1, 1, 1, 1), to=1, summary=summary()),
    "claim": lambda store: store.claim(None, RUN),
    "renew": lambda store: store.renew(1, 1, 1),
    "journal": lambda store: store.journal(1, 1, [EFFECT], last=0),
    "journal with run": lambda store: store.journal(1, 1, [], last=None, run=RUN),
    "post": lambda store: store.post(1, EFFECT),
    "post with status": lambda store: store.post(1, EFFECT, status="started"),
    "delete": lambda store: store.delete(1, [1]),
    "sweep": lambda store: store.sweep(1, Live((), 1)),
    "sweep_blobs": lambda store: store.sweep_blobs(1),
    "drop": lambda store: store.drop(1),
    "numbered": lambda store: store.numbered(after=None, limit=1),
    "keys": lambda store: store.keys(limit=1),
    "put_key": lambda store: store.put_key(b"id", None, None),
    "reclaim": lambda store: store.reclaim(),
    "scrub": lambda store: store.reclaim(scrub=True),
    "check": lambda store: list(store.check()),
}


def lived_in(store: Store) -> Sequence[Line]:
    """A store with one of everything: a thread, a fork, a rewound thread, a dropped one that holds cells."""
    line = Line(store, "main")
    line.save("a", "b", blobs=[prompt(store)], label="start")
    line.save("c", cell_refs=[Refs(blobs=(prompt(store).digest,))])
    line.save("d", blobs=[image(store)])
    store.delete(line.number, [1])
    line.rewind(2)
    gone = saved(store, "gone", "e", "f")
    fork = Line(store, "fork")
    for origin in (line, gone):
        fork.save("g", origins=[origin.number], bases=[(origin.number, 2)])
    store.drop(gone.number)
    return line, gone, fork


class HandleContract(ContractBase):
    def test_the_encoding_is_known(self, store: Store) -> None:
        assert store.encoding in ("packed", "text")

    # -- closing ----------------------------------------------------------------------------------------------------

    def test_a_closed_store_raises_closed(self, store: Store) -> None:
        saved(store, "a", "x")
        store.close()
        accepted: list[str] = []
        for name, verb in VERBS.items():
            with suppress(Closed):
                verb(store)
                accepted.append(name)
        assert accepted == []

    def test_closing_twice_does_nothing(self, store: Store) -> None:
        store.close()
        store.close()

    def test_closing_one_handle_leaves_the_others_open(self, store: Store, tmp_path: Path) -> None:
        line = saved(store, "a", "x")
        self.open_store(tmp_path).close()
        line.save("y")
        assert texts_of(store, line.span()) == [["x", "y"]]

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def test_wrapped_keys_are_replaced_and_removed_only_if_they_are_as_expected(self, store: Store) -> None:
        own = store.keys(limit=FAR)  # of an encrypted store
        one, two = KeyRow(b"\xff2345678", "k", b"wrapped"), KeyRow(b"\xff3456789", "k", b"wrapped, too")
        other, renamed = KeyRow(one.id, one.name, b"otherwise"), KeyRow(one.id, "other", one.wrapped)
        assert store.put_key(one.id, None, one) == one
        assert store.put_key(one.id, None, other) == one
        assert store.put_key(two.id, None, two) == two
        for expect in (other, renamed):
            assert store.put_key(one.id, expect, None) == one
            assert store.put_key(one.id, expect, two) == one
        assert store.put_key(one.id, one, other) == other
        assert store.put_key(one.id, one, other) == other, "it is repeated after its answer was lost"
        assert store.keys(limit=FAR) == [*own, other, two]
        assert store.keys(after=own[-1].id if own else b"", limit=1) == [other]
        assert store.keys(after=one.id, limit=9) == [two]
        assert store.keys(id=two.id, limit=1) == [two]
        for _ in range(2):
            assert store.put_key(one.id, other, None) is None
            assert store.keys(id=one.id, limit=1) == []
        assert store.put_key(one.id, other, one) is None
        assert store.keys(limit=FAR) == [*own, two]

    # -- opening again ----------------------------------------------------------------------------------------------

    @pytest.mark.usefixtures("needs_durable")
    def test_everything_survives_reopening(self, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as store:
            lines = lived_in(store)
            spans = [line.span() for line in lines]
            before = everything(store), store.cells(spans)
        with closing(self.open_store(tmp_path)) as store:
            assert (everything(store), store.cells(spans)) == before
            assert holds(store, image(store))
            assert list(store.check()) == []
            again = store.commit(commit("main", lines[0].at))
            assert again == Position(lines[0].number, head=4, move=5, last=4)

    @pytest.mark.usefixtures("needs_durable")
    def test_a_number_is_not_reused_after_reopening(self, tmp_path: Path) -> None:
        seen: list[int] = []
        for _ in range(3):
            with closing(self.open_store(tmp_path)) as store:
                line = saved(store, "a", "x")
                seen.append(line.number)
                store.drop(line.number)
        assert len(set(seen)) == 3

    @pytest.mark.usefixtures("needs_durable")
    def test_an_epoch_outlives_its_handle(self, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as store:
            store.commit(commit("a", blobs=[prompt(store), image(store)]))
            epoch = store.sweep_blobs().epoch
        with closing(self.open_store(tmp_path)) as store:
            store.commit(commit("b", blobs=[prompt(store)]))
        with closing(self.open_store(tmp_path)) as store:
            assert swept_blobs(store, epoch=epoch) == 1
            assert holds(store, prompt(store))
            assert store.sweep_blobs().epoch > epoch

    @pytest.mark.usefixtures("needs_durable")
    def test_what_was_removed_stays_removed(self, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as store:
            line = saved(store, "a", *(f"{n}" for n in range(20)))
            store.commit(commit("b", blobs=[prompt(store)]))
            store.sweep(line.number, line.live(line.span(5)))
            store.sweep(line.number, line.whole(line.span(10)))
            assert swept_blobs(store) == 1
            store.reclaim()
        with closing(self.open_store(tmp_path)) as store:
            assert texts_of(store, line.span(10)) == [[f"{n}" for n in range(10, 20)]]
            with pytest.raises(Damaged):
                store.cells([line.span(0, 1)])
            with pytest.raises(Damaged):
                store.blob(prompt(store).digest)

    # -- two at once ------------------------------------------------------------------------------------------------

    @pytest.mark.usefixtures("needs_durable")
    def test_two_handles_see_each_others_commits(self, store: Store, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as second:
            line = saved(store, "a", "x")
            assert thread_named(second, "a") == line.stored()
            assert texts_of(second, line.span()) == [["x"]]
            moved = second.commit(commit("a", line.at))
            with pytest.raises(Conflict):
                store.commit(commit("a", line.at))
            assert line.stored().position == moved
            second.drop(line.number)
            assert thread_named(store, "a") is None
            fresh = saved(store, "a", "y")
            assert fresh.number != line.number
            assert texts_of(second, fresh.span()) == [["y"]]

    # -- checking ---------------------------------------------------------------------------------------------------

    def test_a_healthy_store_has_no_problems(self, store: Store) -> None:
        assert list(store.check()) == []
        lines = lived_in(store)
        assert list(store.check()) == []
        for line in lines:
            store.sweep(line.number, line.live(line.span(0, 1)))
            store.sweep(line.number, line.whole(line.span(0, 1)))
        swept_blobs(store, [prompt(store).digest])
        store.reclaim()
        assert list(store.check()) == []
        for thread in store.threads(prefix="", after=None, limit=FAR):
            store.drop(thread.position.thread)
        for number in numbers_of(store):
            store.sweep(number, Live((), FAR))
        assert numbers_of(store) == []
        assert list(store.check()) == []
