"""Blobs: stored once, read by digest, swept by epoch."""

from __future__ import annotations

import hashlib

import pytest
from msgspec.structs import replace

from holdfast.errors import Conflict, Damaged, InvalidArgument
from holdfast.stores.contract import Blob, Collected, Live, Store
from holdfast.testing.contract.build import FAR, commit, holds, image, noise, prompt, swept_blobs, value
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import last_of, thread_named


class BlobContract(ContractBase):
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
        assert swept_blobs(store) == 1

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
        epochs = [store.sweep_blobs().epoch for _ in range(3)]
        assert epochs == sorted(set(epochs))

    def test_blobs_that_are_not_live_are_swept(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store), image(store)]))
        epoch = store.sweep_blobs().epoch
        assert swept_blobs(store, [image(store).digest], epoch=epoch) == 1
        assert not holds(store, prompt(store))
        assert holds(store, image(store))
        assert swept_blobs(store, [image(store).digest], epoch=epoch) == 0

    def test_a_blob_stored_in_the_epoch_is_kept(self, store: Store) -> None:
        epoch = store.sweep_blobs().epoch
        store.commit(commit("a", blobs=[prompt(store)]))
        assert swept_blobs(store, epoch=epoch) == 0
        assert holds(store, prompt(store))

    def test_a_blob_reused_in_the_epoch_is_kept(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store), image(store)]))
        epoch = store.sweep_blobs().epoch
        store.commit(commit("b", blobs=[prompt(store)]))
        assert swept_blobs(store, epoch=epoch) == 1
        assert holds(store, prompt(store))
        assert not holds(store, image(store))

    def test_a_stamp_lasts_until_the_next_epoch(self, store: Store) -> None:
        first = store.sweep_blobs().epoch
        store.commit(commit("a", blobs=[prompt(store)]))
        second = store.sweep_blobs().epoch
        assert swept_blobs(store, epoch=first) == 0
        assert swept_blobs(store, epoch=second) == 1

    def test_a_commit_that_conflicts_stamps_nothing(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store)]))
        epoch = store.sweep_blobs().epoch
        with pytest.raises(Conflict):
            store.commit(commit("a", blobs=[prompt(store)]))
        assert swept_blobs(store, epoch=epoch) == 1

    def test_a_swept_blob_can_be_stored_again(self, store: Store) -> None:
        first = store.commit(commit("a", blobs=[prompt(store)]))
        swept_blobs(store)
        store.commit(commit("a", first, blobs=[prompt(store)]))
        assert holds(store, prompt(store))

    # -- which threads must be swept first ---------------------------------------------------------------------------

    def test_nothing_is_dropped_before_every_thread_was_swept(self, store: Store) -> None:
        one, two = (store.commit(commit(name, blobs=[prompt(store)])).thread for name in ("a", "b"))
        store.commit(commit("c", blobs=[image(store)]))
        store.drop(two)
        epoch = store.sweep_blobs().epoch
        waiting = store.sweep_blobs(epoch)
        assert not waiting.dropped
        assert one in waiting.unswept
        assert two not in waiting.unswept
        for number, token in waiting.unswept.items():
            store.sweep(number, Live((), 1, frozenset([prompt(store).digest] if number == one else []), token))
        dropped, used = frozenset([image(store).digest]), frozenset([prompt(store).digest])
        assert store.sweep_blobs(epoch) == Collected(dropped, used)
        assert holds(store, prompt(store))

    def test_what_was_recorded_counts_in_later_epochs(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store)]))
        for _ in range(3):
            assert swept_blobs(store, [prompt(store).digest]) == 0
        assert swept_blobs(store, []) in (0, 1), "a store may know that the thread was not changed"

    def test_a_sweep_without_blobs_records_nothing(self, store: Store) -> None:
        number = store.commit(commit("a", blobs=[prompt(store)])).thread
        epoch = store.sweep_blobs().epoch
        unswept = store.sweep_blobs(epoch).unswept
        assert list(unswept) == [number]
        store.sweep(number, Live((), FAR, token=unswept[number]))
        assert store.sweep_blobs(epoch).unswept == unswept

    def test_a_thread_that_was_read_too_early_still_waits(self, store: Store) -> None:
        first = store.commit(commit("a", blobs=[image(store)]))
        early = Live((), first.last, frozenset([image(store).digest]))
        store.commit(commit("a", first, blobs=[prompt(store)]))
        epoch = store.sweep_blobs().epoch
        unswept = store.sweep_blobs(epoch).unswept
        assert list(unswept) == [first.thread]
        store.sweep(first.thread, replace(early, token=unswept[first.thread]))
        assert store.sweep_blobs(epoch).unswept == unswept, "its record would not have the second blob"
        assert swept_blobs(store, [image(store).digest, prompt(store).digest], epoch=epoch) == 0

    def test_an_older_record_does_not_replace_a_newer_one(self, store: Store) -> None:
        first = store.commit(commit("a", blobs=[image(store)]))
        early = Live((), first.last, frozenset([image(store).digest]))
        store.commit(commit("a", first, blobs=[prompt(store)]))
        assert swept_blobs(store, [image(store).digest, prompt(store).digest]) == 0
        store.sweep(first.thread, early)
        epoch = store.sweep_blobs().epoch
        for number, token in store.sweep_blobs(epoch).unswept.items():
            store.sweep(number, replace(early, token=token))
        assert swept_blobs(store, [image(store).digest, prompt(store).digest], epoch=epoch) == 0

    def test_a_thread_created_in_the_epoch_need_not_be_swept(self, store: Store) -> None:
        store.commit(commit("a", blobs=[prompt(store)]))
        epoch = store.sweep_blobs().epoch
        assert swept_blobs(store, epoch=epoch) == 1
        store.commit(commit("b", blobs=[image(store)]))
        assert store.sweep_blobs(epoch) == Collected()
        assert holds(store, image(store))

    def test_a_fork_made_in_the_epoch_must_be_swept(self, store: Store) -> None:
        origin = store.commit(commit("a", blobs=[prompt(store)]))
        store.commit(commit("a", origin))
        epoch = store.sweep_blobs().epoch
        unswept = store.sweep_blobs(epoch).unswept
        assert list(unswept) == [origin.thread]
        at = (origin.thread, 1)
        fork = store.commit(commit("fork", parent=at, bases=[at], origins=[origin.thread])).thread
        store.delete(origin.thread, [1])
        store.sweep(origin.thread, Live((), 2, frozenset(), unswept[origin.thread]))
        unswept = store.sweep_blobs(epoch).unswept
        assert list(unswept) == [fork], "it uses the blob, and has not stamped it"
        used = frozenset([prompt(store).digest])
        store.sweep(fork, Live((), 1, used, unswept[fork]))
        assert store.sweep_blobs(epoch) == Collected(used=used)
        assert holds(store, prompt(store))

    def test_a_thread_that_uses_another_one_in_the_epoch_must_be_swept_again(self, store: Store) -> None:
        origin = store.commit(commit("a", blobs=[prompt(store)]))
        store.commit(commit("a", origin))
        there = store.commit(commit("b"))
        assert swept_blobs(store, [prompt(store).digest]) == 0
        epoch = store.sweep_blobs().epoch
        for number, token in store.sweep_blobs(epoch).unswept.items():
            used = frozenset([prompt(store).digest] if number == origin.thread else [])
            store.sweep(number, Live((), last_of(store, number), used, token))
        at = (origin.thread, 1)
        there = store.commit(commit("b", there, parent=at, bases=[at], origins=[origin.thread]))
        unswept = store.sweep_blobs(epoch).unswept
        assert list(unswept) == [there.thread]
        store.sweep(there.thread, Live((), 1, frozenset(), unswept[there.thread]))
        assert store.sweep_blobs(epoch).unswept == unswept, "it was read before"
        assert swept_blobs(store, [prompt(store).digest], epoch=epoch) == 0

    def test_a_sweep_that_read_a_thread_before_checkpoints_were_deleted_is_not_recorded(self, store: Store) -> None:
        first = store.commit(commit("a", blobs=[prompt(store)]))
        store.commit(commit("a", first))
        token = store.sweep_blobs(store.sweep_blobs().epoch).unswept[first.thread]
        store.delete(first.thread, [first.last])
        epoch = store.sweep_blobs().epoch
        assert first.thread in store.sweep_blobs(epoch).unswept
        store.sweep(first.thread, Live((), FAR, frozenset([prompt(store).digest]), token))
        assert swept_blobs(store, epoch=epoch) == 1
        assert not holds(store, prompt(store))

    def test_two_epochs_at_once(self, store: Store) -> None:
        first = store.commit(commit("a", blobs=[prompt(store)]))
        one = store.sweep_blobs().epoch
        token = store.sweep_blobs(one).unswept[first.thread]
        store.commit(commit("a", first, blobs=[image(store)]))
        two = store.sweep_blobs().epoch
        assert list(store.sweep_blobs(two).unswept) == [first.thread]
        store.sweep(first.thread, Live((), first.last, frozenset([prompt(store).digest]), token))
        assert list(store.sweep_blobs(two).unswept) == [first.thread], "read before the second epoch"
        assert not store.sweep_blobs(one).dropped
        used = [prompt(store).digest, image(store).digest]
        assert swept_blobs(store, used, epoch=two) == 0
        assert not store.sweep_blobs(one).dropped
        assert holds(store, prompt(store))
        assert holds(store, image(store))

    def test_many_blobs_of_one_thread(self, store: Store) -> None:
        many = [value(b'"%d"' % n, by=store.hashing) for n in range(1_100)]
        at = store.commit(commit("a", blobs=many))
        for gone in range(3):
            at = store.commit(commit("a", at))
            assert swept_blobs(store, [made.digest for made in many[gone + 1 :]]) == 1
            assert not holds(store, many[gone])
        assert all(holds(store, made) for made in many[3::100])
