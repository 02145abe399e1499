"""Data keys that nothing uses: they go with `erase` and `optimize`, and no other does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Damaged, Holdfast
from holdfast.crypto.sealed_store import SealedStore
from holdfast.stores.contract import CheckpointRow, Commit, KeyRow, Store, Summary
from holdfast.threads.scan import thread_named, with_refs
from holdfast.urls import open_plain
from tests.crypto.keyed import KINDS, MESSAGES, address_of, opened, rows, state_of
from tests.selection import every_store


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return address_of(request.param, tmp_path)


@pytest.fixture
def hf(address: str) -> Iterator[Holdfast]:
    with opened(address) as handle:
        yield handle


@pytest.fixture
def plain(address: str, hf: Holdfast) -> Iterator[Store]:
    """The same store, past the cipher."""
    with closing(open_plain(address, namespace="default", durability="off")) as store:
        yield store


def cut_off_creation(hf: Holdfast) -> None:
    store = hf.context.store
    assert isinstance(store, SealedStore)
    store._keyring.new()


def tidy(hf: Holdfast, how: str) -> None:
    if how == "erase":
        hf.erase("nobody")
    else:
        hf.optimize()


@pytest.mark.parametrize("how", ["erase", "optimize"])
def test_the_key_of_a_creation_that_was_cut_off_goes(hf: Holdfast, address: str, plain: Store, how: str) -> None:
    hf.thread("t").save({"n": 1})
    before = rows(plain)
    cut_off_creation(hf)
    assert len(rows(plain)) == len(before) + 1
    tidy(hf, how)
    assert rows(plain) == before
    with opened(address) as again:
        assert state_of(again, "t") == {"n": 1}


@pytest.mark.parametrize("how", ["erase", "optimize"])
def test_the_key_of_a_dropped_origin_goes_with_its_last_fork(
    hf: Holdfast, address: str, plain: Store, how: str
) -> None:
    before = set(rows(plain))
    hf.thread("origin").save({"messages": MESSAGES})
    hf.thread("origin").fork("fork")
    hf.thread("origin").drop()
    needed = set(rows(plain))
    cut_off_creation(hf)
    tidy(hf, how)
    assert set(rows(plain)) == needed
    with opened(address) as again:
        assert state_of(again, "fork") == {"messages": MESSAGES}
    hf.thread("fork").drop()
    tidy(hf, how)
    assert set(rows(plain)) == before


def test_the_key_of_a_dropped_origin_goes_when_its_fork_does_not_use_it_any_more(hf: Holdfast, plain: Store) -> None:
    before = set(rows(plain))
    hf.thread("origin").save({"messages": MESSAGES})
    hf.thread("origin").fork("fork")
    hf.thread("origin").drop()
    hf.thread("fork").save({"n": 1})
    for old in list(hf.thread("fork").history())[1:]:
        hf.thread("fork").delete(old.id)
    hf.optimize()
    hf.optimize()
    assert len(rows(plain)) == len(before) + 1
    assert state_of(hf, "fork") == {"n": 1}


def test_a_nested_state_of_a_fork_keeps_the_key_of_its_origin(hf: Holdfast, address: str, plain: Store) -> None:
    """Where the fork's own record names a cell of its own, which names those of the origin."""
    hf.thread("origin").save({"rounds": [{"messages": MESSAGES, "round": n} for n in range(3)]})
    fork = hf.thread("origin").fork("fork")
    state = {"rounds": [{"messages": MESSAGES, "round": f"changed {n}"} for n in range(3)]}
    fork.save(state)
    for old in list(fork.history())[1:]:
        fork.delete(old.id)
    row = thread_named(plain, "fork")
    assert row is not None
    (left,) = with_refs(plain, row.position.thread)
    assert {span.thread for span in left.refs.spans} == {0}
    hf.thread("origin").drop()
    needed = set(rows(plain))
    cut_off_creation(hf)
    hf.optimize()
    hf.erase("nobody")
    assert set(rows(plain)) == needed
    with opened(address) as again:
        assert state_of(again, "fork") == state
        assert again.verify().ok


@every_store("two writers meet in the store")
def test_a_thread_that_is_created_while_unused_keys_are_removed_keeps_its_key(
    hf: Holdfast, address: str, plain: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment between the key and the thread."""
    with opened(address) as tidier:
        store = hf.context.store
        assert isinstance(store, SealedStore)
        commit = store._store.commit
        inner = tidier.context.store
        assert isinstance(inner, SealedStore)
        putting = inner._store.put_key
        waiting: list[Any] = []

        def commits_before_it_is_removed(id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
            while row is None and waiting:
                waiting.pop()()
            return putting(id, expect, row)

        def tidied_before(made: Any) -> Any:
            tidier.optimize()
            return commit(made)

        monkeypatch.setattr(store._store, "commit", tidied_before)
        hf.thread("removed before the commit").save({"n": 1})
        monkeypatch.setattr(store._store, "commit", commit)

        monkeypatch.setattr(inner._store, "put_key", commits_before_it_is_removed)

        def tidied_around(made: Any) -> Any:
            done: list[Any] = []
            waiting.append(lambda: done.append(commit(made)))
            tidier.optimize()
            return done[0]

        monkeypatch.setattr(store._store, "commit", tidied_around)
        hf.thread("removed after the commit").save({"n": 2})
    with opened(address) as again:
        assert state_of(again, "removed before the commit") == {"n": 1}
        assert state_of(again, "removed after the commit") == {"n": 2}


@pytest.mark.parametrize("is_removed", [False, True], ids=["suspected", "removed"])
def test_a_thread_that_is_created_between_two_looks_keeps_its_key(
    hf: Holdfast, address: str, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    """Wholly, after its key was seen: before that is suspected, or when it was, just before it is removed."""
    with opened(address) as tidier:
        inner, outer = tidier.context.store, hf.context.store
        assert isinstance(inner, SealedStore)
        assert isinstance(outer, SealedStore)
        real = inner._store.put_key
        seal, key = outer._keyring.new()
        waiting = [seal]

        def create() -> None:
            at = CheckpointRow(seq=1, id=bytes(16), parent=None, step=1, move=1, digest=bytes(32), skeleton=b"s")
            summary = Summary(step=1, status="running", agent=None, size=1, updated_at=1)
            new = Commit(name="t", expect=None, row=at, appends=(), blobs=(), summary=summary)
            outer._store.commit(outer._sealed(new, seal))
            outer._keyring.keep(key)

        def created_before(id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
            while waiting and (row is None) == is_removed:
                waiting.pop()
                create()
            return real(id, expect, row)

        monkeypatch.setattr(inner._store, "put_key", created_before)
        tidier.optimize()
        assert not waiting
        assert seal.id in rows(inner._store)


def test_keys_stay_while_nobody_knows_whose_they_are(
    hf: Holdfast, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.thread("t").save({"n": 1})
    with opened(address) as other:
        store = other.context.store
        assert isinstance(store, SealedStore)
        cut_off_creation(other)
        kept = rows(store)

        def unreadable(*_: Any, **__: Any) -> Any:
            raise Damaged("planted")

        for verb in ("checkpoints", "checkpoint"):
            monkeypatch.setattr(store._store, verb, unreadable)
        if hasattr(store._store, "walk"):
            monkeypatch.setattr(store._store, "walk", unreadable)
        other.optimize()
        told = store.reclaim(scrub=True)
        assert any("data keys" in each for each in told)
        assert rows(store).keys() == kept.keys()
