"""Acts: claims with a journal write, conflicts, replacing a claim, pages, and claims that outlive their thread."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import ActHeld, Conflict, InvalidArgument, LeaseLost
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import ActClaim, ActRow, Release
from holdfast.testing.contract.build import effect, held, journaled, numbered, put_run, run_row, saved, settled
from holdfast.testing.contract.fixtures import ContractBase

PATIENCE = 60


def act_key(text: str, tool: str = "pay") -> bytes:
    """A key as runs make it: that of the tool comes first."""
    return hashlib.sha256(tool.encode()).digest()[:8] + hashlib.sha256(text.encode()).digest()[:24]


def opened_run(store: Store, name: str) -> int:
    """A new thread whose run a worker holds with fence 1."""
    line = saved(store, name, "x")
    store.claim(None, held(store, line.number))
    return line.number


def claimed(store: Store, thread: int, key: bytes, expect: ActRow | None = None) -> ActRow:
    """Write an intent that claims an act."""
    last = store.last_entry(thread)
    entry = effect("started", act=key, identity=("pay", "A-17"), number=last + 1)
    store.journal(thread, 1, [entry], last=last, claims=[ActClaim(last + 1, expect)])
    return ActRow(key, thread, last + 1)


def found(store: Store, key: bytes) -> ActRow | None:
    rows = store.acts(key=key, limit=1)
    return rows[0] if rows else None


class ActContract(ContractBase):
    @pytest.fixture
    def payer(self, store: Store) -> int:
        return opened_run(store, "a")

    # -- claiming ---------------------------------------------------------------------------------------------------

    def test_an_intent_claims_its_act(self, store: Store, payer: int) -> None:
        key = act_key("A-17")
        assert found(store, key) is None
        assert claimed(store, payer, key) == ActRow(key, payer, 1)
        assert found(store, key) == ActRow(key, payer, 1)
        intent = effect("started", act=key, identity=("pay", "A-17"))
        assert store.entries(payer, after=0, limit=10) == numbered(intent)

    def test_an_entry_with_an_act_is_returned_as_given(self, store: Store, payer: int) -> None:
        row = effect(
            act=act_key("x"), identity=("pay", "a \ud800"), released=Release("ännchen", "by hand \ud800", 1 << 50)
        )
        journaled(store, payer, 1, [row])
        assert store.entries(payer, after=0, limit=10) == numbered(row)
        assert found(store, act_key("x")) is None  # without a claim, an entry claims nothing

    def test_a_second_claim_fails_and_names_the_holder(self, store: Store, payer: int) -> None:
        key, other = act_key("A-17"), opened_run(store, "b")
        first = claimed(store, payer, key)
        for thread in (payer, other):
            before = store.entries(thread, after=0, limit=10)
            with pytest.raises(ActHeld) as error:
                claimed(store, thread, key)
            assert (error.value.thread, error.value.number) == (payer, 1)
            assert store.entries(thread, after=0, limit=10) == before
        assert found(store, key) == first
        claimed(store, other, act_key("A-18"))

    def test_a_claim_of_a_refused_write_is_not_made(self, store: Store, payer: int) -> None:
        key = act_key("A-17")
        intent = effect("started", act=key, number=1)
        with pytest.raises(LeaseLost):
            store.journal(payer, 2, [intent], last=0, claims=[ActClaim(1)])
        journaled(store, payer, 1, [effect()])
        with pytest.raises(Conflict) as error:
            store.journal(payer, 1, [intent], last=0, claims=[ActClaim(1)])
        assert not isinstance(error.value, ActHeld)
        assert found(store, key) is None
        claimed(store, payer, key)

    def test_of_two_claims_in_a_write_both_count_or_none(self, store: Store, payer: int) -> None:
        claimed(store, opened_run(store, "b"), act_key("2"))
        rows = [effect("started", act=act_key(text), number=number) for number, text in enumerate("12", 1)]
        with pytest.raises(ActHeld):
            store.journal(payer, 1, rows, last=0, claims=[ActClaim(1), ActClaim(2)])
        assert found(store, act_key("1")) is None
        assert store.last_entry(payer) == 0

    def test_the_status_of_an_entry_does_not_change_its_claim(self, store: Store, payer: int) -> None:
        row = claimed(store, payer, act_key("A-17"))
        store.journal(payer, 1, [effect("not_done", act=row.key, number=1)], last=1)
        assert found(store, row.key) == row

    def test_a_claim_replaces_the_one_it_expects(self, store: Store, payer: int) -> None:
        key, other = act_key("A-17"), opened_run(store, "b")
        first = claimed(store, payer, key)
        second = claimed(store, payer, key, first)
        assert second == ActRow(key, payer, 2)
        with pytest.raises(ActHeld) as error:
            claimed(store, other, key, first)
        assert error.value.number == 2
        assert claimed(store, other, key, second) == found(store, key) == ActRow(key, other, 1)

    def test_an_entry_that_is_written_again_keeps_or_regains_its_claim(self, store: Store, payer: int) -> None:
        row, other = claimed(store, payer, act_key("A-17")), opened_run(store, "b")
        again = effect("started", act=row.key, number=1)
        for last in (1, None):
            store.journal(payer, 1, [again], last=last, claims=[ActClaim(1)])
        taken = claimed(store, other, row.key, row)
        with pytest.raises(ActHeld):
            store.journal(payer, 1, [again], last=1, claims=[ActClaim(1)])
        store.journal(payer, 1, [again], last=1, claims=[ActClaim(1, taken)])
        assert found(store, row.key) == row

    def test_a_claim_that_is_expected_and_gone_is_no_obstacle(self, store: Store, payer: int) -> None:
        key = act_key("A-17")
        assert claimed(store, payer, key, ActRow(key, 999, 3)) == found(store, key)

    def test_a_claim_with_a_new_record_of_the_run(self, store: Store, payer: int) -> None:
        key, run = act_key("A-17"), store.run(payer)
        assert run is not None
        store.journal(payer, 1, [effect("started", act=key, number=1)], last=0, run=run, claims=[ActClaim(1)])
        assert found(store, key) == ActRow(key, payer, 1)

    def test_claims_that_are_not_valid(self, store: Store, payer: int) -> None:
        key = act_key("A-17")
        intent = effect("started", act=key, number=1)
        twice = [intent, effect("started", act=key, number=2)]
        for entries, last, claims in (
            ([intent], 0, [ActClaim(2)]),
            ([effect("started", number=1)], 0, [ActClaim(1)]),
            ([effect("started", act=b"short", number=1)], 0, [ActClaim(1)]),
            ([intent], 0, [ActClaim(1, ActRow(act_key("B"), payer, 1))]),
            (twice, 0, [ActClaim(1), ActClaim(2)]),
        ):
            with pytest.raises(InvalidArgument):
                store.journal(payer, 1, entries, last=last, claims=claims)
        assert store.last_entry(payer) == 0
        assert found(store, key) is None

    # -- replacing --------------------------------------------------------------------------------------------------

    def test_a_claim_is_put_if_it_is_the_expected_one(self, store: Store, payer: int) -> None:
        key = act_key("A-17")
        journaled(store, payer, 1, [effect("started", act=key), effect("started", act=key)])
        first, second = ActRow(key, payer, 1), ActRow(key, payer, 2)
        assert store.put_act(key, None, first) == found(store, key) == first
        assert store.put_act(key, None, second) == found(store, key) == first
        assert store.put_act(key, second, None) == found(store, key) == first
        assert store.put_act(key, first, second) == found(store, key) == second
        assert store.put_act(key, second, None) is found(store, key) is None
        assert store.put_act(key, second, first) is found(store, key) is None
        with pytest.raises(InvalidArgument):
            store.put_act(key, None, ActRow(act_key("B"), payer, 1))
        with pytest.raises(InvalidArgument):
            store.put_act(b"short", None, ActRow(b"short", payer, 1))

    def test_an_entry_that_holds_an_act_can_be_settled(self, store: Store, payer: int) -> None:
        row = claimed(store, payer, act_key("A-17"))
        settled(store, payer, 1, "started", effect("done", act=row.key, released=Release("anna", "", 5)))
        assert store.entries(payer, after=0, limit=1)[0].released == Release("anna", "", 5)
        assert found(store, row.key) == row

    # -- outliving --------------------------------------------------------------------------------------------------

    def test_a_claim_outlives_its_thread(self, store: Store, payer: int) -> None:
        row, other = claimed(store, payer, act_key("A-17")), opened_run(store, "b")
        put_run(store, run_row(payer, status="completed"))
        store.drop(payer)
        assert found(store, row.key) == row
        assert store.acts(limit=10) == [row]
        with pytest.raises(ActHeld):
            claimed(store, other, row.key)
        again = opened_run(store, "a")
        with pytest.raises(ActHeld):
            claimed(store, again, row.key)
        assert claimed(store, again, row.key, row) == found(store, row.key)
        assert not list(store.check())

    def test_a_claim_of_a_dropped_thread_can_be_removed(self, store: Store, payer: int) -> None:
        row = claimed(store, payer, act_key("A-17"))
        put_run(store, run_row(payer, status="completed"))
        store.drop(payer)
        assert store.put_act(row.key, row, None) is None
        assert store.acts(limit=10) == []
        store.reclaim(scrub=True)
        assert store.acts(limit=10) == []

    def test_claims_are_kept_by_maintenance(self, store: Store, payer: int) -> None:
        row = claimed(store, payer, act_key("A-17"))
        store.reclaim(scrub=True)
        assert found(store, row.key) == row
        assert not list(store.check())

    # -- pages ------------------------------------------------------------------------------------------------------

    def test_pages_of_acts(self, store: Store, payer: int) -> None:
        keys = {act_key(str(number), tool) for tool in ("pay", "mail", "book") for number in range(20)}
        for key in keys:
            claimed(store, payer, key)
        for prefix, size in ((b"", 7), (b"", 60), (act_key("", "pay")[:8], 3), (act_key("", "none")[:8], 5)):
            seen: list[bytes] = []
            after: bytes | None = None
            while page := store.acts(prefix=prefix, after=after, limit=size):
                assert len(page) <= size
                seen += [row.key for row in page]
                after = seen[-1]
            assert len(seen) == len(set(seen))
            assert set(seen) == {key for key in keys if key.startswith(prefix)}
        assert store.acts(limit=0) == store.acts(limit=-1) == store.acts(key=min(keys), limit=0) == []

    # -- handles and namespaces --------------------------------------------------------------------------------------

    def test_claims_are_durable(self, tmp_path: Path, needs_durable: None) -> None:
        store = self.open_store(tmp_path)
        row = claimed(store, opened_run(store, "a"), act_key("A-17"))
        store.close()
        store = self.open_store(tmp_path)
        assert found(store, row.key) == row
        store.close()

    def test_a_claim_is_of_one_namespace(self, tmp_path: Path, needs_durable: None) -> None:
        one, other = self.open_store(tmp_path), self.open_store(tmp_path, "other")
        key = act_key("A-17")
        row = claimed(one, opened_run(one, "a"), key)
        assert found(other, key) is None
        claimed(other, opened_run(other, "a"), key)
        assert found(one, key) == row
        one.close()
        other.close()

    def test_of_many_claims_at_once_one_counts(self, tmp_path: Path, needs_durable: None) -> None:
        stores = [self.open_store(tmp_path) for _ in range(4)]
        threads = [opened_run(store, f"t{number}") for number, store in enumerate(stores)]
        for turn in range(5):
            key, start = act_key(f"{turn}"), threading.Barrier(len(stores))

            def claim(at: int, key: bytes = key, start: threading.Barrier = start) -> ActRow | ActHeld:
                start.wait(PATIENCE)
                try:
                    return claimed(stores[at], threads[at], key)
                except ActHeld as error:
                    return error

            with ThreadPoolExecutor(len(stores)) as pool:
                answers = list(pool.map(claim, range(len(stores))))
            [won] = [answer for answer in answers if isinstance(answer, ActRow)]
            assert [found(store, key) for store in stores] == [won] * len(stores)
            held_by = {(one.thread, one.number) for one in answers if isinstance(one, ActHeld)}
            assert held_by == {(won.thread, won.number)}
        for store in stores:
            store.close()
