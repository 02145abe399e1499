"""The clock of the server can be set. No lease ends because of that."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import LeaseHeld
from holdfast.stores.clock import steady_wall
from holdfast.stores.postgres.transaction import PostgresTransaction
from tests.stores.postgres.server import reused_address_at

LEASE = 30.0
_MICROSECONDS = 1_000_000


@pytest.mark.parametrize("jump", [60, -60])
def test_a_jump_of_the_servers_clock_ends_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    url = reused_address_at(tmp_path)
    time_of = PostgresTransaction._server_time
    with holdfast.open(url) as one, holdfast.open(url) as other, one.run("t", start={}, lease=LEASE) as run:
        monkeypatch.setattr(PostgresTransaction, "_server_time", lambda tx: time_of(tx) + jump * _MICROSECONDS)
        with pytest.raises(LeaseHeld):
            other.run("t", lease=LEASE).__enter__()
        assert list(other.interrupted()) == []
        with pytest.raises(LeaseHeld):
            other.thread("t").save({"n": 1})
        run.finish("done")


def test_a_lease_that_has_expired_on_both_clocks_can_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = reused_address_at(tmp_path)
    time_of = PostgresTransaction._server_time
    with holdfast.open(url) as one, holdfast.open(url) as other:
        one.run("t", start={}, lease=LEASE).__enter__()
        past = 2 * round(LEASE) * _MICROSECONDS
        monkeypatch.setattr("holdfast.stores.postgres.transaction.steady_wall", lambda: steady_wall() + past)
        monkeypatch.setattr(PostgresTransaction, "_server_time", lambda tx: time_of(tx) + past)
        with other.run("t", lease=LEASE) as run:
            assert run.resumed
