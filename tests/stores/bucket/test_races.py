"""Writes that concern two logs: a writer that is delayed between them does not contradict another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ActHeld, Conflict, LeaseHeld, LimitReached, NotFound
from holdfast.stores.contract_runs import ClaimLimit, RunRow
from holdfast.stores.log.device import thread_key
from holdfast.testing.contract.build import Line, held, saved, texts_of
from holdfast.testing.contract.claims import act_key, claimed, found, opened_run
from holdfast.testing.contract.queues import claimed as claim_limited
from holdfast.testing.contract.queues import queued
from tests.stores.bucket.test_memory import opened


def meanwhile(store: Any, name: str, happens: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Call a function right before a handle writes to the log of a thread, once. The list is empty then."""
    log = store._device.log(thread_key(name))
    left = [True]

    def delayed(create: Callable[..., None]) -> Callable[..., None]:
        def late(*args: Any) -> None:
            if left:
                left.pop()
                happens()
            create(*args)

        return late

    monkeypatch.setattr(log, "_create", delayed(log._create))
    return left


def test_a_claim_of_an_act_that_was_delayed_is_prevented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, key = opened(tmp_path), opened(tmp_path), act_key("A-17")
    one, other = opened_run(first, "a"), opened_run(second, "b")
    left = meanwhile(first, "a", lambda: claimed(second, other, key), monkeypatch)
    with pytest.raises(ActHeld):
        claimed(first, one, key)
    assert not left
    assert found(first, key) == found(second, key)
    assert (first.last_entry(one), first.last_entry(other)) == (0, 1)


def test_a_claim_of_an_act_whose_writer_died_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, key = opened(tmp_path), opened(tmp_path), act_key("A-17")
    one, other = opened_run(first, "a"), opened_run(second, "b")

    def die() -> None:
        raise KeyboardInterrupt

    meanwhile(first, "a", die, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        claimed(first, one, key)
    assert found(second, key) is None
    row = claimed(second, other, key)
    assert found(first, key) == row
    assert list(first.check()) == []


def test_a_limited_claim_that_was_delayed_is_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, limit = opened(tmp_path), opened(tmp_path), ClaimLimit("h", held=1)
    rows = [queued(first, name) for name in ("a", "b")]
    left = meanwhile(first, "a", lambda: claim_limited(second, rows[1], limit), monkeypatch)
    with pytest.raises(LimitReached):
        claim_limited(first, rows[0], limit)
    assert not left
    assert first.run(rows[0].thread) == rows[0]


def test_limited_claims_of_several_handles_are_counted_exactly(tmp_path: Path) -> None:
    store, limit = opened(tmp_path), ClaimLimit("h", held=2)
    rows = [queued(store, f"{number}") for number in range(5)]
    claims: list[int] = []

    def claim(row: RunRow) -> None:
        try:
            claims.append(claim_limited(opened(tmp_path), row, limit).thread)
        except LimitReached:
            return

    threads = [threading.Thread(target=claim, args=(row,)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims) == 2


@pytest.mark.parametrize("how", ["delete", "drop"])
def test_a_fork_that_was_delayed_does_not_use_what_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    origin = saved(first, "origin", "a b", "c")

    def remove() -> None:
        if how == "delete":
            assert second.delete(origin.number, [1]) == 1
        else:
            second.drop(origin.number)

    left = meanwhile(first, "fork", remove, monkeypatch)
    fork = Line(first, "fork")
    with pytest.raises((Conflict, NotFound)):
        fork.save("d", bases=[(origin.number, 1)], origins=[origin.number])
    assert not left
    assert first.head("fork") is None
    if how == "delete":
        assert texts_of(second, origin.span()) == [["a", "b", "c"]]


def test_a_thread_that_was_claimed_meanwhile_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    line = saved(first, "a", "x")
    left = meanwhile(second, "a", lambda: first.claim(None, held(first, line.number)), monkeypatch)
    with pytest.raises(LeaseHeld):
        second.drop(line.number)
    assert not left
    assert first.head("a") is not None
