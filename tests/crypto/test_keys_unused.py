"""The data key of a thread is stored with the thread, and removed with the last of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, StoreError
from holdfast.crypto.sealed_store import SealedStore
from holdfast.stores.contract import Store
from holdfast.stores.log import DirectoryStore
from holdfast.stores.log.namespace import Namespace
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


def cut_off_creation(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail between the key and the thread, if they are not written at once."""

    def fail(*_: Any) -> None:
        raise OSError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(Namespace, "create", fail)
        store = hf.context.store
        assert isinstance(store, SealedStore)
        if isinstance(store.underlying, DirectoryStore):
            with pytest.raises(StoreError):
                hf.thread("cut off").save({"n": 1})


def tidy(hf: Holdfast, how: str) -> None:
    if how == "erase":
        hf.erase("nobody")
    else:
        hf.optimize()


@pytest.mark.parametrize("how", ["erase", "optimize"])
def test_the_key_of_a_creation_that_was_cut_off_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    with opened(address_of("directory", tmp_path)) as hf:
        store = hf.context.store
        hf.thread("t").save({"n": 1})
        before = rows(store)
        cut_off_creation(hf, monkeypatch)
        assert len(rows(store)) == len(before) + 1
        tidy(hf, how)
        assert rows(store) == before
        assert state_of(hf, "t") == {"n": 1}


def test_keys_stay_while_a_log_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the log of their thread."""
    with opened(address_of("directory", tmp_path)) as hf:
        hf.thread("t").save({"n": 1})
        (log,) = (tmp_path / "store").rglob("log.jsonl")
    written = log.read_bytes()
    log.write_bytes(b"damaged\n")
    with opened(address_of("directory", tmp_path)) as hf:
        cut_off_creation(hf, monkeypatch)
        kept = rows(hf.context.store)
        assert any("cannot be read" in each for each in hf.context.store.reclaim(scrub=True))
        assert rows(hf.context.store) == kept
        log.write_bytes(written)
        assert state_of(hf, "t") == {"n": 1}


@pytest.mark.parametrize("how", ["erase", "optimize"])
def test_the_key_of_a_dropped_origin_goes_with_its_last_fork(
    hf: Holdfast, address: str, plain: Store, how: str
) -> None:
    before = set(rows(plain))
    hf.thread("origin").save({"messages": MESSAGES})
    hf.thread("origin").fork("fork")
    hf.thread("origin").drop()
    needed = set(rows(plain))
    tidy(hf, how)
    assert set(rows(plain)) == needed
    with opened(address) as again:
        assert state_of(again, "fork") == {"messages": MESSAGES}
    hf.thread("fork").drop()
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
    hf.optimize()
    hf.erase("nobody")
    assert set(rows(plain)) == needed
    with opened(address) as again:
        assert state_of(again, "fork") == state
        assert again.verify().ok


@every_store("two writers meet in the store")
def test_a_thread_that_is_created_while_another_handle_tidies_keeps_its_key(
    hf: Holdfast, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address) as tidier:
        store = hf.context.store
        assert isinstance(store, SealedStore)
        commit = store.underlying.commit

        def tidied_around(made: Any) -> Any:
            tidier.optimize()
            done = commit(made)
            tidier.optimize()
            return done

        monkeypatch.setattr(store.underlying, "commit", tidied_around)
        hf.thread("t").save({"n": 1})
    with opened(address) as again:
        assert state_of(again, "t") == {"n": 1}
