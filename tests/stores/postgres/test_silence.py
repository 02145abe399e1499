"""A pooler or a network that accepts requests and never answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast.errors import InvalidArgument, LeaseLost, OutcomeUnknown, StoreError
from holdfast.runs.lease import local_seconds
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.contract.build import commit, run, saved, texts_of, value
from holdfast.threads.scan import thread_named
from tests.stores.postgres.conftest import Open
from tests.stores.postgres.proxy import COMMIT, Relay
from tests.waiting import DEADLINE, until

READ = b"REPEATABLE READ"
RENEWAL = b"guarded_renew"
PROMPT = value(b'"a long system prompt"')


@pytest.fixture
def silent(relay: Relay) -> Iterator[Relay]:
    """A relay whose connections end when the test does."""
    yield relay
    relay.is_mute = False
    relay.cut()


def test_a_read_is_repeated_on_another_connection(open_store: Open, silent: Relay) -> None:
    store = open_store(f"{silent.url}&answer_timeout=0.5", patience=0.1)
    saved(store, "a", "x")
    silent.arm(READ, "swallow")
    assert thread_named(store, "a") is not None
    assert silent.struck.is_set()
    assert store._pool.in_use == 0


def test_a_read_that_is_never_answered_is_an_error(open_store: Open, silent: Relay) -> None:
    store = open_store(f"{silent.url}&answer_timeout=0.5", patience=0.1)
    saved(store, "a", "x")
    silent.is_mute = True
    with pytest.raises(StoreError, match=r"did not answer within 0\.5 seconds; nothing was changed\..*answer_timeout"):
        thread_named(store, "a")
    silent.is_mute = False
    assert thread_named(store, "a") is not None


def test_a_lost_commit_is_looked_for_although_the_silence_was_longer_than_the_patience(
    open_store: Open, silent: Relay
) -> None:
    store = open_store(f"{silent.url}&answer_timeout=0.5", patience=0.1)
    line = saved(store, "a", "x")
    silent.arm(COMMIT, "swallow", passing=1)
    assert line.save("y", blobs=[PROMPT]).last == 2
    assert silent.struck.is_set()
    assert texts_of(store, line.span()) == [["x", "y"]]


def test_a_write_that_is_never_answered_has_an_unknown_outcome(open_store: Open, silent: Relay) -> None:
    store = open_store(f"{silent.url}&answer_timeout=0.5", patience=0.1)
    line = saved(store, "a", "x")
    silent.is_mute = True
    with pytest.raises(OutcomeUnknown):
        line.save("y")
    silent.is_mute = False
    thread = thread_named(store, "a")
    assert thread is not None
    store.commit(commit("a", thread.position, appends=[run("z", start=1)]))
    assert list(store.check()) == []


def test_opening_is_bounded(open_store: Open, silent: Relay) -> None:
    open_store().close()
    silent.arm(b"current_setting", "swallow")
    open_store(f"{silent.url}&answer_timeout=0.5", patience=0.1)
    assert silent.struck.is_set()


# Far less than the timeout of an answer, far more than a busy machine needs.
LATE = 10.0
LEASE = 3.0


def a_tool_in_silence(run: holdfast.Run, acted: list[str]) -> None:
    run.tool(lambda: acted.append("tool"), {}, key="k")


def a_model_call_after_it(run: holdfast.Run, acted: list[str]) -> None:
    time.sleep(LEASE * 0.91)
    run.model(lambda: acted.append("model"))


@pytest.mark.parametrize("act", [a_tool_in_silence, a_model_call_after_it])
def test_a_run_that_cannot_renew_its_lease_learns_it_in_time(
    open_store: Open, silent: Relay, act: Callable[[holdfast.Run, list[str]], None]
) -> None:
    open_store()
    hf = holdfast.open(f"{silent.url}&answer_timeout=60")
    acted: list[str] = []
    ends_at = late = 0.0

    def work() -> None:
        nonlocal ends_at, late
        with hf.run("t", start={}, lease=LEASE) as run:
            assert run.core._lease is not None
            silent.is_mute = True
            ends_at = run.core._lease._stop_at + LEASE / 10
            try:
                act(run, acted)
            finally:
                late = local_seconds() - ends_at
                silent.is_mute = False

    with pytest.raises(LeaseLost):
        work()
    hf.close()
    assert acted == []
    assert late < LATE


def test_one_silent_connection_costs_no_lease(open_store: Open, silent: Relay) -> None:
    open_store()
    hf = holdfast.open(f"{silent.url}&answer_timeout=60")
    acted: list[int] = []
    with hf.run("t", start={}, lease=20.0) as run:
        silent.arm(RENEWAL, "swallow")
        assert silent.struck.wait(DEADLINE)
        held = run.core._lease
        assert held is not None
        before = held._stop_at
        until(lambda: held._stop_at > before, "the lease is renewed on another connection")
        assert not held.must_stop()
        run.tool(lambda: acted.append(1), {}, key="k")
    assert acted == [1]
    hf.close()


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "inf", "nan"])
def test_the_setting_is_a_number_of_seconds(url: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match="answer_timeout= must be"):
        PostgresStore(f"{url}&answer_timeout={text}", namespace="default")
