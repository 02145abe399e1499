"""Connections that are lost: what was sent is done once, whether or not its answer came."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.errors import Conflict, OutcomeUnknown, StoreError
from holdfast.stores.contract import Claimed, Position, Store
from holdfast.stores.contract_runs import Clock
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.contract.build import (
    FAR,
    commit,
    effect,
    held,
    inside,
    journaled,
    posted,
    put_run,
    run,
    running,
    saved,
    settled,
    summary,
    suspended,
    texts_of,
    value,
)
from holdfast.threads.scan import thread_named, with_refs
from tests.covers import covers
from tests.selection import tries
from tests.stores.model import ModelStore
from tests.stores.postgres.conftest import Open
from tests.stores.postgres.proxy import COMMIT, QUICK, How, Relay
from tests.stores.postgres.server import reused_address_at
from tests.waiting import DEADLINE

PROMPT = value(b'"a long system prompt"')

Act = Callable[[], Any]
Scene = Callable[[Store], Act]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return reused_address_at(tmp_path)


def clock() -> Clock:
    return Clock("here", 1000)


# Each prepares a store, and gives what is then done to it while the connection is lost.


def a_save(store: Store) -> Act:
    line = saved(store, "a", "x", "y")
    return lambda: line.save("z")


def a_new_thread(store: Store) -> Act:
    saved(store, "a", "x")
    return lambda: store.commit(commit("new", appends=[run("z")])).last


def a_save_with_values(store: Store) -> Act:
    line = saved(store, "a", "x")
    return lambda: line.save("z", blobs=[PROMPT])


def a_save_of_several_threads(store: Store) -> Act:
    first, second = saved(store, "a", "x"), saved(store, "b", "x")
    made = [
        commit("new", appends=[run("n")]),
        commit("b", second.at, appends=[run("y", start=1)]),
        commit("a", first.at, appends=[run("y", start=1)]),
    ]
    return lambda: store.commit(made)


def a_save_of_a_run(store: Store) -> Act:
    line, row = running(store)
    journaled(store, line.number, 1, [effect("started", key="k")])
    after = replace(row, updated_at=9, turn="t")
    effects = (effect(key="k", number=1), effect("started", key="l", number=2))
    made = commit("a", line.at, appends=[run("z", start=1)])
    return lambda: store.commit(inside(made, fence=1, run=after, entries=effects, last_entry=1))


def a_save_with_a_result(store: Store) -> Act:
    line, _ = running(store)
    journaled(store, line.number, 1, [effect("started", key="k")])
    effects = (effect(key="k", number=1), effect("started", key="l", number=2))
    made = commit("a", line.at, appends=[run("z", start=1)])
    return lambda: store.commit(inside(made, fence=1, entries=effects, last_entry=1))


def the_end_of_a_run(store: Store) -> Act:
    line, row = running(store)
    made = inside(commit("a", line.at), fence=1, run=replace(row, status="completed", owner=None, lease_until=0))
    return lambda: store.commit(made)


def a_journal_entry(store: Store) -> Act:
    line, _ = running(store)
    journaled(store, line.number, 1, [effect("started", key="k")])
    rows = [effect(key="k", number=1), effect("started", key="l", number=2)]
    return lambda: store.journal(line.number, 1, rows, last=1)


def an_entry_of_a_run_that_is_over(store: Store) -> Act:
    line, row = running(store)
    journaled(store, line.number, 1, [effect("started", key="k")])
    put_run(store, replace(row, status="completed", owner=None, lease_until=0))
    return lambda: store.journal(line.number, None, [effect(kind="write", key="l", number=2)], last=1)


def a_replaced_entry(store: Store) -> Act:
    line, _ = running(store)
    journaled(store, line.number, 1, [effect("started", key="k")])
    return lambda: store.journal(line.number, 1, [effect(key="k", number=1)], last=None)


def an_answer(store: Store) -> Act:
    line, _ = running(store)
    return lambda: posted(store, line.number, effect(key="answer", kind="answer", fence=0), last=0)


def a_claim(store: Store) -> Act:
    _, row = running(store)
    return lambda: store.claim(row, replace(row, fence=2, attempt=1))


def a_renewal(store: Store) -> Act:
    line, row = running(store)
    return lambda: store.renew(line.number, 1, row.lease_until + 1)


def an_update(store: Store) -> Act:
    _, row = running(store)
    return lambda: put_run(store, replace(row, status="completed", owner=None, lease_until=0, updated_at=9))


def a_parking(store: Store) -> Act:
    _, row = running(store)
    waiting = replace(row, status="waiting", owner=None, lease_until=0, updated_at=9)
    return lambda: suspended(store, waiting, effect("asked", key="q", kind="wait"), 0)


def a_settling(store: Store) -> Act:
    line, row = running(store)
    journaled(store, line.number, 1, [effect("in_doubt", key="k")])
    return lambda: settled(
        store, line.number, 1, "in_doubt", effect(key="k"), row, replace(row, fence=2, status="queued")
    )


def a_settling_alone(store: Store) -> Act:
    line, row = running(store)
    journaled(store, line.number, 1, [effect("in_doubt", key="k")])
    return lambda: settled(store, line.number, 1, "in_doubt", effect(key="k"), row)


def a_rewind(store: Store) -> Act:
    line = saved(store, "a", "x", "y")
    return lambda: store.rewind(line.at, to=1, summary=summary(1))


def a_deletion(store: Store) -> Act:
    line = saved(store, "a", "x", "y", "z")
    return lambda: store.delete(line.number, [1, 2])


def a_drop(store: Store) -> Act:
    line = saved(store, "a", "x", "y")
    return lambda: store.drop(line.number)


SCENES: list[tuple[Scene, bytes]] = [
    (a_save, QUICK),
    (a_new_thread, COMMIT),
    (a_save_with_values, COMMIT),
    (a_save_of_several_threads, COMMIT),
    (a_save_of_a_run, QUICK),
    (a_save_with_a_result, QUICK),
    (the_end_of_a_run, QUICK),
    (a_journal_entry, QUICK),
    (an_entry_of_a_run_that_is_over, QUICK),
    (a_replaced_entry, COMMIT),
    (an_answer, COMMIT),
    (a_claim, COMMIT),
    (a_renewal, QUICK),
    (an_update, COMMIT),
    (a_parking, COMMIT),
    (a_settling, COMMIT),
    (a_settling_alone, COMMIT),
    (a_rewind, COMMIT),
    (a_deletion, COMMIT),
    (a_drop, COMMIT),
]
# What is read before it is written.
PASSING: dict[Scene, int] = {a_save_with_values: 1}
each_scene = pytest.mark.parametrize(("scene", "marker"), SCENES, ids=[scene.__name__ for scene, _ in SCENES])


def seen(store: Store) -> list[object]:
    """All there is, without ids and numbers, which differ from store to store."""
    found: list[object] = []
    for thread in store.threads(prefix="", after=None, limit=FAR):
        number = thread.position.thread
        rows = store.checkpoints(number, before=None, limit=FAR)
        one = store.run(number)
        cells = [
            texts_of(store, replace(span, thread=number)) for row in with_refs(store, number) for span in row.refs.spans
        ]
        found.append(
            (
                thread.name,
                replace(thread.position, thread=0),
                (thread.count, thread.summary),
                [(row.seq, row.move, row.parent) for row in rows],
                cells,
                None if one is None else replace(one, thread=0),
                store.entries(number, after=0, limit=FAR),
            )
        )
    return found


def expected(scene: Scene) -> tuple[Any, list[object]]:
    """What a store says and holds where nothing is lost."""
    model = ModelStore(namespace="default", clock=clock)
    return without_number(scene(model)()), seen(model)


def without_number(answer: Any) -> Any:
    if isinstance(answer, Claimed):
        return replace(answer, position=replace(answer.position, thread=0), run=replace(answer.run, thread=0))
    if isinstance(answer, list):
        return [without_number(each) for each in answer]
    return replace(answer, thread=0) if isinstance(answer, Position) else answer


@each_scene
@pytest.mark.parametrize("how", ["answer", "request", "fatal"][: tries(3, 2)])
def test_a_lost_connection_changes_nothing(
    open_store: Open, relay: Relay, scene: Scene, marker: bytes, how: How
) -> None:
    answer, held_ = expected(scene)
    store = open_store(relay.url, clock=clock)
    act = scene(store)
    relay.arm(marker, how, passing=PASSING.get(scene, 0))
    assert without_number(act()) == answer
    assert relay.struck.is_set()
    assert seen(store) == held_
    assert list(store.check()) == []


@each_scene
def test_a_write_that_arrives_late_is_not_done_twice(
    open_store: Open, relay: Relay, scene: Scene, marker: bytes
) -> None:
    answer, held_ = expected(scene)
    store = open_store(relay.url, clock=clock)
    act = scene(store)
    relay.arm(marker, "late", passing=PASSING.get(scene, 0))
    with ThreadPoolExecutor(1) as executor:
        acting = executor.submit(act)
        assert relay.struck.wait(DEADLINE)
        if marker is QUICK:
            # Nothing holds the row: the write is looked for, not found, and done again before the first one arrives.
            acting.result(DEADLINE)
        relay.release()
        assert without_number(acting.result(DEADLINE)) == answer
    assert seen(store) == held_
    assert list(store.check()) == []


def test_a_save_that_was_done_and_followed_by_another_is_found(open_store: Open, relay: Relay, url: str) -> None:
    store, other = open_store(relay.url), open_store(url)
    line = saved(store, "a", "x")
    relay.arm(QUICK, "late")
    with ThreadPoolExecutor(1) as executor:
        with pause_before_looking(store) as go_on:
            acting = executor.submit(line.save, "y")
            assert relay.struck.wait(DEADLINE)
            relay.release()
            followed = saved_on(other, "a", "z")
            go_on.set()
        assert acting.result(DEADLINE).last == 2
    assert followed.last == 3
    assert [row.seq for row in store.checkpoints(line.number, before=None, limit=9)] == [3, 2, 1]


def test_a_save_that_lost_to_another_conflicts(open_store: Open, relay: Relay, url: str) -> None:
    store, other = open_store(relay.url), open_store(url)
    line = saved(store, "a", "x")
    relay.arm(QUICK, "late")
    with ThreadPoolExecutor(1) as executor:
        with pause_before_looking(store) as go_on:
            acting = executor.submit(line.save, "y")
            assert relay.struck.wait(DEADLINE)
            saved_on(other, "a", "z")
            relay.release()
            go_on.set()
        with pytest.raises(Conflict):
            acting.result(DEADLINE)
    assert len(store.checkpoints(line.number, before=None, limit=9)) == 2


def test_a_lost_save_that_conflicts_does_not_find_its_own_attempt(open_store: Open, relay: Relay, url: str) -> None:
    store, other = open_store(relay.url, clock=clock), open_store(url, clock=clock)
    line, row = running(store)
    effects = (effect("started", key="k", number=1),)
    made = inside(commit("a", line.at), fence=1, run=replace(row, updated_at=9), entries=effects, last_entry=0)
    relay.arm(QUICK, "request")
    with ThreadPoolExecutor(1) as executor:
        with pause_before_looking(store) as go_on:
            acting = executor.submit(store.commit, made)
            assert relay.struck.wait(DEADLINE)
            posted(other, line.number, effect(key="answer", kind="answer", fence=0), last=0)
            go_on.set()
        with pytest.raises(Conflict):
            acting.result(DEADLINE)
    assert len(store.checkpoints(line.number, before=None, limit=9)) == 1


def test_lost_saves_of_which_one_conflicts_are_not_said_to_be_saved(open_store: Open, relay: Relay, url: str) -> None:
    store, other = open_store(relay.url), open_store(url)
    lines = [saved(store, name, "x") for name in "ab"]
    made = [commit(line.name, line.at, appends=[run("y", start=1)]) for line in lines]
    relay.arm(COMMIT, "request")
    relay.refuses = True
    with ThreadPoolExecutor(1) as executor:
        acting = executor.submit(store.commit, made)
        assert relay.struck.wait(DEADLINE)
        last = max(lines, key=lambda line: line.number)  # written last, after the other one
        saved_on(other, last.name, "z")
        relay.refuses = False
        with pytest.raises(Conflict):
            acting.result(DEADLINE)
    counts = {line.name: len(store.checkpoints(line.number, before=None, limit=9)) for line in lines}
    assert counts == {line.name: 2 if line is last else 1 for line in lines}


def test_a_claim_that_lost_to_one_of_the_same_process_conflicts(open_store: Open, relay: Relay, url: str) -> None:
    store, other = open_store(relay.url, clock=clock), open_store(url, clock=clock)
    _, row = running(store)
    mine, theirs = (replace(row, fence=2, attempt=1, nonce=nonce) for nonce in (b"mine", b"theirs"))
    relay.arm(COMMIT, "request")
    relay.refuses = True
    with ThreadPoolExecutor(1) as executor:
        acting = executor.submit(store.claim, row, mine)
        assert relay.struck.wait(DEADLINE)
        other.claim(row, theirs)
        relay.refuses = False
        with pytest.raises(Conflict):
            acting.result(DEADLINE)
    assert store.run(row.thread) == theirs


def test_no_two_claims_of_a_run_are_alike(store: PostgresStore, url: str) -> None:
    nonces: set[bytes] = set()
    with holdfast.open(url) as hf:
        for _ in range(3):
            with suppress(ZeroDivisionError), hf.run("a", start={}):
                found = store.run(1 << 30)  # the first number
                assert found is not None
                nonces.add(found.nonce)
                raise ZeroDivisionError
    assert len(nonces - {b""}) == 3


def test_what_can_no_longer_be_told_is_said_to_be_unknown(open_store: Open, relay: Relay, url: str) -> None:
    store, other = open_store(relay.url), open_store(url)
    line = saved(store, "a", "x")
    relay.arm(QUICK, "answer")
    with ThreadPoolExecutor(1) as executor:
        with pause_before_looking(store) as go_on:
            acting = executor.submit(line.save, "y")
            assert relay.struck.wait(DEADLINE)
            other.drop(line.number)
            go_on.set()
        with pytest.raises(OutcomeUnknown):
            acting.result(DEADLINE)


@covers("A18")
def test_a_database_that_stays_away_leaves_the_outcome_unknown(open_store: Open, relay: Relay) -> None:
    store = open_store(relay.url, patience=0.3)
    line = saved(store, "a", "x")
    relay.refuses = True
    relay.arm(QUICK, "answer")
    with pytest.raises(OutcomeUnknown):
        line.save("y")
    with pytest.raises(StoreError) as refused:
        thread_named(store, "a")
    assert not isinstance(refused.value, OutcomeUnknown)
    relay.refuses = False
    assert thread_named(store, "a") is not None


def test_a_write_that_was_never_sent_has_a_known_outcome(open_store: Open, relay: Relay) -> None:
    store = open_store(relay.url, patience=0.3)
    line = saved(store, "a", "x")
    relay.refuses = True
    relay.cut()
    with pytest.raises(StoreError) as refused:
        store.rewind(line.at, to=1, summary=summary(1))
    assert not isinstance(refused.value, OutcomeUnknown)


@pytest.mark.parametrize("how", ["request", "answer", "fatal"])
def test_everybody_in_a_lost_group_is_answered_rightly(open_store: Open, relay: Relay, how: How) -> None:
    store = open_store(relay.url, clock=clock)
    lines = [saved(store, f"t{n}", "x") for n in range(8)]
    held(store, lines[0].number)
    start = threading.Barrier(len(lines), timeout=DEADLINE)
    relay.arm(QUICK, how)

    def write(index: int) -> int:
        start.wait()
        for n in range(5):
            lines[index].save(f"{n}")
        return lines[index].at.last

    with ThreadPoolExecutor(len(lines)) as executor:
        assert list(executor.map(write, range(len(lines)), timeout=DEADLINE)) == [6] * len(lines)
    for line in lines:
        assert texts_of(store, line.span()) == [["x", "0", "1", "2", "3", "4"]]
    assert list(store.check()) == []


@pytest.mark.parametrize("marker", [QUICK, COMMIT])
def test_an_answer_that_never_comes_is_not_waited_for(open_store: Open, relay: Relay, marker: bytes) -> None:
    store = open_store(f"{relay.url}&answer_timeout=0.5")
    lines = [saved(store, name, "x") for name in "ab"]
    relay.arm(marker, "swallow", passing=PASSING[a_save_with_values] if marker is COMMIT else 0)
    values = [PROMPT] if marker is COMMIT else []
    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(lines[0].save, "y", blobs=values)
        assert relay.struck.wait(DEADLINE)
        second = executor.submit(lines[1].save, "y")
        assert [first.result(DEADLINE).last, second.result(DEADLINE).last] == [2, 2]
    assert list(store.check()) == []


def test_a_server_that_has_vanished_is_noticed_by_the_system(store: PostgresStore) -> None:
    connection = store._pool.take()
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        options = [socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        assert [end.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [30_000, 10, 5, 4]
    store._pool.give(connection)


def saved_on(store: Store, name: str, text: str) -> Any:
    thread = thread_named(store, name)
    assert thread is not None
    return store.commit(commit(name, thread.position, appends=[run(text, start=thread.position.last)]))


class pause_before_looking:  # noqa: N801 - reads as the statement it is
    """Holds a write whose answer was lost, before it is looked for, until the event is set."""

    def __init__(self, store: PostgresStore) -> None:
        self.writer = store.writer
        self._go_on = threading.Event()

    def __enter__(self) -> threading.Event:
        before = self.writer._write

        def wait_and_write(write: Any, *, lost: bool) -> Any:
            if lost:
                assert self._go_on.wait(DEADLINE)
            return before(write, lost=lost)

        self.writer._write = wait_and_write  # type: ignore[method-assign]  # put back by __exit__
        self._before = before
        return self._go_on

    def __exit__(self, *_: object) -> None:
        self._go_on.set()
