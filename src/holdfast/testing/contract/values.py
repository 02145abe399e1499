"""Blobs: stored once, read by digest, swept by epoch."""

from __future__ import annotations

import hashlib

import pytest

from holdfast.errors import Conflict, Damaged, InvalidArgument
from holdfast.stores.contract import Blob, Store
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.build import commit, holds, image, noise, prompt, value
from holdfast.threads.scan import thread_named


class ValueContract(ContractBase):
    def test_a_blob_is_returned_complete(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store), image(store)]))
        assert holds(store, prompt(store))
        assert holds(store, image(store))

    def test_a_large_value(self, store: Store) -> None:
        large = value(noise(store, 8 * 2**20 - 64), noise(store, 2 * 2**20, "rest"), by=store.hashing)
        store.commit(commit("a", blobs=[large]))
        assert holds(store, large)
        assert all(len(piece) <= 8 * 2**20 for piece in store.blob(large.digest))

    def test_a_missing_blob_raises_damaged(self, store: Store) -> None:
        with pytest.raises(Damaged):
            store.blob(prompt(store).digest)

    def test_a_blob_that_does_not_match_its_digest_is_never_returned(self, store: Store) -> None:
        digest = hashlib.sha256(b"something else").digest()
        try:
            store.commit(commit("a", blobs=[Blob(digest, (b'"wrong"',))]))
        except InvalidArgument:
            assert thread_named(store, "a") is None
        with pytest.raises(Damaged):
            store.blob(digest)

    def test_a_blob_is_stored_once_in_a_namespace(self, store: Store) -> None:
        first = store.commit(commit("a", blobs=[prompt(store)]))
        store.commit(commit("a", first, blobs=[prompt(store), prompt(store)]))
        store.commit(commit("b", blobs=[prompt(store)]))
        assert holds(store, prompt(store))
        assert store.sweep_blobs([], store.start_epoch()) == 1

    def test_a_blob_stored_again_in_other_pieces(self, store: Store) -> None:
        whole = value(b"".join(image(store).pieces), by=store.hashing)
        assert whole.digest == image(store).digest
        store.commit(commit("a", blobs=[image(store)]))
        store.commit(commit("b", blobs=[whole]))
        assert holds(store, image(store))

    def test_a_blob_outlives_its_thread_until_it_is_swept(self, store: Store) -> None:
        store.drop(store.commit(commit("a", blobs=[prompt(store)])).thread)
        assert holds(store, prompt(store))

    # -- epochs -----------------------------------------------------------------------------------------------------

    def test_each_epoch_is_later_than_the_one_before(self, store: Store) -> None:
        epochs = [store.start_epoch() for _ in range(3)]
        assert epochs == sorted(set(epochs))

    def test_blobs_that_are_not_live_are_swept(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store), image(store)]))
        epoch = store.start_epoch()
        assert store.sweep_blobs([image(store).digest], epoch) == 1
        assert not holds(store, prompt(store))
        assert holds(store, image(store))
        assert store.sweep_blobs([image(store).digest], epoch) == 0

    def test_a_blob_stored_in_the_epoch_is_kept(self, store: Store) -> None:
        epoch = store.start_epoch()
        store.commit(commit("a", blobs=[prompt(store)]))
        assert store.sweep_blobs([], epoch) == 0
        assert holds(store, prompt(store))

    def test_a_blob_reused_in_the_epoch_is_kept(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store), image(store)]))
        epoch = store.start_epoch()
        store.commit(commit("b", blobs=[prompt(store)]))
        assert store.sweep_blobs([], epoch) == 1
        assert holds(store, prompt(store))
        assert not holds(store, image(store))

    def test_a_stamp_lasts_until_the_next_epoch(self, store: Store) -> None:
        first = store.start_epoch()
        store.commit(commit("a", blobs=[prompt(store)]))
        second = store.start_epoch()
        assert store.sweep_blobs([], first) == 0
        assert store.sweep_blobs([], second) == 1

    def test_a_commit_that_conflicts_stamps_nothing(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store)]))
        epoch = store.start_epoch()
        with pytest.raises(Conflict):
            store.commit(commit("a", blobs=[prompt(store)]))
        assert store.sweep_blobs([], epoch) == 1

    def test_a_swept_blob_can_be_stored_again(self, store: Store) -> None:
        first = store.commit(commit("a", blobs=[prompt(store)]))
        store.sweep_blobs([], store.start_epoch())
        store.commit(commit("a", first, blobs=[prompt(store)]))
        assert holds(store, prompt(store))

    def test_live_values_in_any_collection(self, store: Store) -> None:
        many = [value(b'"%d"' % n, by=store.hashing) for n in range(1_100)]
        store.commit(commit("a", blobs=many))
        kinds: list[type[list[bytes] | set[bytes]]] = [list, tuple, set, frozenset]  # type: ignore[list-item]
        for gone, kind in enumerate(kinds):
            assert store.sweep_blobs(kind(made.digest for made in many[gone + 1 :]), store.start_epoch()) == 1, kind
            assert not holds(store, many[gone])
        assert all(holds(store, made) for made in many[len(kinds) :: 100])
