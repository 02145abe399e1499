"""Namespaces: two stores on the same data do not see each other's records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast.errors import Conflict, Damaged, NotFound
from holdfast.stores.contract import Refs, Store
from holdfast.testing.contract.build import (
    Line,
    commit,
    everything,
    holds,
    names_of,
    numbers_of,
    prompt,
    saved,
    summary,
    swept_blobs,
    texts_of,
)
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import checkpoint_at, last_of, thread_named


class NamespaceContract(ContractBase):
    @pytest.fixture
    def other(self, store: Store, tmp_path: Path) -> Iterator[Store]:
        other = self.open_store(tmp_path, namespace="other")
        yield other
        other.close()

    @pytest.fixture
    def hidden(self, store: Store, other: Store) -> Line:
        """A thread of the first namespace whose number is not used in the other."""
        saved(other, "mine", "x")
        names = (f"hidden-{n}" for n in range(3))
        lines = [saved(store, name, "secret", "secret") for name in names]
        return next(line for line in reversed(lines) if line.number not in numbers_of(other))

    def test_the_same_name_is_another_thread(self, store: Store, other: Store) -> None:
        here, there = saved(store, "a", "x", "y"), saved(other, "a", "z")
        assert (here.stored().count, there.stored().count) == (2, 1)
        assert texts_of(store, here.span()) == [["x", "y"]]
        assert texts_of(other, there.span()) == [["z"]]
        store.drop(here.number)
        assert thread_named(store, "a") is None
        assert there.stored().position == there.at

    def test_names_and_numbers_of_another_namespace_are_hidden(self, other: Store, hidden: Line) -> None:
        assert thread_named(other, hidden.name) is None
        assert names_of(other) == ["mine"]
        assert len(numbers_of(other)) == 1

    def test_a_number_of_another_namespace_finds_nothing(self, other: Store, hidden: Line) -> None:
        assert checkpoint_at(other, hidden.number, 1) is None
        assert other.checkpoints(hidden.number, before=None, limit=10) == []
        assert other.walk(hidden.number, after=0, limit=10) == []
        assert other.forks(hidden.number) == []
        assert last_of(other, hidden.number) == 0
        with pytest.raises(Damaged):
            other.cells([hidden.span()])

    def test_nothing_can_be_written_by_number(self, store: Store, other: Store, hidden: Line) -> None:
        before = everything(store)
        with pytest.raises(Conflict):
            other.commit(commit(hidden.name, hidden.at))
        with pytest.raises(Conflict):
            other.commit(commit("new", bases=[(hidden.number, 1)]))
        with pytest.raises((Conflict, NotFound)):
            other.rewind(hidden.at, to=1, summary=summary())
        with suppress(NotFound):
            other.delete(hidden.number, [1])
        with suppress(NotFound):
            other.sweep(hidden.number, hidden.live())
        with suppress(NotFound):
            other.sweep(hidden.number, hidden.whole())
        with suppress(NotFound):
            other.drop(hidden.number)
        assert everything(store) == before
        assert texts_of(store, hidden.span()) == [["secret", "secret"]]

    def test_a_fork_across_namespaces_registers_nothing(self, store: Store, other: Store, hidden: Line) -> None:
        with suppress(Conflict):
            other.commit(commit("fork", origins=[hidden.number], refs=Refs(spans=(hidden.span(),))))
        assert store.forks(hidden.number) == []
        store.drop(hidden.number)
        assert hidden.number not in numbers_of(store)

    def test_blobs_of_another_namespace_are_hidden(self, store: Store, other: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store)]))
        with pytest.raises(Damaged):
            other.blob(prompt(store).digest)
        assert swept_blobs(other) == 0
        assert holds(store, prompt(store))

    def test_a_blob_in_two_namespaces_is_swept_in_one(self, store: Store, other: Store) -> None:
        for each in (store, other):
            each.commit(commit("a", blobs=[prompt(each)]))
        assert swept_blobs(other) == 1
        assert holds(store, prompt(store))
        with pytest.raises(Damaged):
            other.blob(prompt(store).digest)

    def test_epochs_protect_in_their_own_namespace(self, store: Store, other: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store)]))
        epoch = store.sweep_blobs().epoch
        other.sweep_blobs()
        other.commit(commit("a", blobs=[prompt(other)]))
        assert swept_blobs(store, epoch=epoch) == 1

    @pytest.mark.usefixtures("needs_durable")
    def test_namespaces_that_look_alike(self, tmp_path: Path) -> None:
        spaces = ["a", "A", "a ", "../a", "a/b", "a\0", "é", "e\u0301", "%", "'; --", "default", "x" * 300]
        for space in spaces:
            with closing(self.open_store(tmp_path, namespace=space)) as opened:
                assert names_of(opened) == []
                saved(opened, f"in {space}", "x")
        for space in spaces:
            with closing(self.open_store(tmp_path, namespace=space)) as opened:
                assert names_of(opened) == [f"in {space}"]
