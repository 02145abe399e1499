"""Shared values: stored once, read by digest, swept by epoch."""

from __future__ import annotations

import hashlib

import pytest

from holdfast.errors import Conflict, Damaged, InvalidArgument
from holdfast.stores.contract import SharedValue, Store
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.build import commit, noise, value

PROMPT = value(b'"a long system prompt"')
IMAGE = value(b'"an im', b'age"')


def holds(store: Store, shared: SharedValue) -> bool:
    try:
        return b"".join(store.value(shared.digest)) == b"".join(shared.pieces)
    except Damaged:
        return False


class ValueContract(ContractBase):
    def test_a_value_comes_back_in_its_pieces(self, store: Store) -> None:
        store.commit(commit("a", values=[PROMPT, IMAGE]))
        assert store.value(PROMPT.digest) == list(PROMPT.pieces)
        assert store.value(IMAGE.digest) == list(IMAGE.pieces)

    def test_a_large_value(self, store: Store) -> None:
        large = value(noise(store, 8 * 2**20 - 64), noise(store, 2 * 2**20, "rest"))
        store.commit(commit("a", values=[large]))
        assert store.value(large.digest) == list(large.pieces)

    def test_a_value_that_is_not_there_is_damage(self, store: Store) -> None:
        with pytest.raises(Damaged):
            store.value(PROMPT.digest)

    def test_a_value_that_is_not_what_its_digest_says_is_never_handed_out(self, store: Store) -> None:
        digest = hashlib.sha256(b"something else").digest()
        try:
            store.commit(commit("a", values=[SharedValue(digest, (b'"wrong"',))]))
        except InvalidArgument:
            assert store.thread("a") is None
        with pytest.raises(Damaged):
            store.value(digest)

    def test_a_value_is_stored_once_in_a_namespace(self, store: Store) -> None:
        first = store.commit(commit("a", values=[PROMPT]))
        store.commit(commit("a", first, values=[PROMPT, PROMPT]))
        store.commit(commit("b", values=[PROMPT]))
        assert holds(store, PROMPT)
        assert store.sweep_values([], store.mark_values()) == 1

    def test_a_value_brought_again_in_other_pieces(self, store: Store) -> None:
        whole = value(b"".join(IMAGE.pieces))
        assert whole.digest == IMAGE.digest
        store.commit(commit("a", values=[IMAGE]))
        store.commit(commit("b", values=[whole]))
        assert holds(store, IMAGE)

    def test_a_value_outlives_the_thread_that_brought_it_until_it_is_swept(self, store: Store) -> None:
        store.drop(store.commit(commit("a", values=[PROMPT])).thread)
        assert holds(store, PROMPT)

    # -- epochs -----------------------------------------------------------------------------------------------------

    def test_each_epoch_is_later_than_the_one_before(self, store: Store) -> None:
        epochs = [store.mark_values() for _ in range(3)]
        assert epochs == sorted(set(epochs))

    def test_values_that_are_not_live_are_swept(self, store: Store) -> None:
        store.commit(commit("a", values=[PROMPT, IMAGE]))
        epoch = store.mark_values()
        assert store.sweep_values([IMAGE.digest], epoch) == 1
        assert not holds(store, PROMPT)
        assert holds(store, IMAGE)
        assert store.sweep_values([IMAGE.digest], epoch) == 0

    def test_a_value_brought_in_the_epoch_stays(self, store: Store) -> None:
        epoch = store.mark_values()
        store.commit(commit("a", values=[PROMPT]))
        assert store.sweep_values([], epoch) == 0
        assert holds(store, PROMPT)

    def test_a_value_found_in_the_epoch_stays(self, store: Store) -> None:
        store.commit(commit("a", values=[PROMPT, IMAGE]))
        epoch = store.mark_values()
        store.commit(commit("b", values=[PROMPT]))
        assert store.sweep_values([], epoch) == 1
        assert holds(store, PROMPT)
        assert not holds(store, IMAGE)

    def test_a_stamp_lasts_until_the_next_epoch(self, store: Store) -> None:
        first = store.mark_values()
        store.commit(commit("a", values=[PROMPT]))
        second = store.mark_values()
        assert store.sweep_values([], first) == 0
        assert store.sweep_values([], second) == 1

    def test_a_commit_that_conflicts_stamps_nothing(self, store: Store) -> None:
        store.commit(commit("a", values=[PROMPT]))
        epoch = store.mark_values()
        with pytest.raises(Conflict):
            store.commit(commit("a", values=[PROMPT]))
        assert store.sweep_values([], epoch) == 1

    def test_a_swept_value_can_be_brought_again(self, store: Store) -> None:
        first = store.commit(commit("a", values=[PROMPT]))
        store.sweep_values([], store.mark_values())
        store.commit(commit("a", first, values=[PROMPT]))
        assert holds(store, PROMPT)

    @pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
    def test_live_values_in_any_collection(self, store: Store, kind: type[list[bytes] | set[bytes]]) -> None:
        many = [value(b'"%d"' % n) for n in range(1_500)]
        store.commit(commit("a", values=many))
        assert store.sweep_values(kind(made.digest for made in many[1:]), store.mark_values()) == 1
        assert not holds(store, many[0])
        assert all(holds(store, made) for made in many[1::100])
