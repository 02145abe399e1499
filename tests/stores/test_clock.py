"""The clock of leases: which one it is, and that both stores ask the one they are given."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from holdfast.errors import LeaseHeld, StoreError
from holdfast.stores import clock
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock
from holdfast.stores.log import DirectoryStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.testing.contract.build import commit, held, inside, run_row, saved
from tests.stores.postgres.server import reused_address_at


class Make(Protocol):
    def __call__(
        self, path: Path, now: Callable[[], Clock] | None, wall: Callable[[], int] | None = None, /
    ) -> Store: ...


def memory(_path: Path, now: Callable[[], Clock] | None, wall: Callable[[], int] | None = None) -> Store:
    return MemoryStore(namespace="default", clock=now, wall=wall)


def sqlite(path: Path, now: Callable[[], Clock] | None, wall: Callable[[], int] | None = None) -> Store:
    return SQLiteStore(path / "store.db", namespace="default", durability="off", clock=now, wall=wall)


def postgres(path: Path, now: Callable[[], Clock] | None, wall: Callable[[], int] | None = None) -> Store:
    return PostgresStore(reused_address_at(path), namespace="default", clock=now, wall=wall)


def directory(path: Path, now: Callable[[], Clock] | None, wall: Callable[[], int] | None = None) -> Store:
    return DirectoryStore(path / "store", namespace="default", durability="off", clock=now, wall=wall)


@pytest.fixture
def asked_again() -> Iterator[None]:
    """What the machine said of its boot is forgotten before and after."""
    clock.boot_id.cache_clear()
    yield
    clock.boot_id.cache_clear()


@pytest.mark.parametrize("make", [memory, sqlite, directory, postgres])
def test_a_lease_ends_by_the_clock_that_the_store_was_given(tmp_path: Path, make: Make) -> None:
    now = Clock("mine", 1000)
    with closing(make(tmp_path, lambda: now)) as store:
        assert store.clock() == now
        line = saved(store, "a", "x")
        store.claim(None, held(store, line.number, lease_until=2000))
        now = Clock("mine", 1999)
        with pytest.raises(LeaseHeld):
            line.save("y")
        now = Clock("mine", 2000)
        line.position = store.commit(inside(commit("a", line.at), last_entry=0))
        now = Clock("mine", 5)
        with pytest.raises(LeaseHeld):
            line.save("z")
        now = Clock("another", 5)
        line.position = store.commit(inside(commit("a", line.at), last_entry=0))


@pytest.mark.parametrize("make", [memory, sqlite, directory, postgres])
def test_a_run_wakes_by_the_clocks_that_the_store_was_given(tmp_path: Path, make: Make) -> None:
    now, wall = Clock("mine", 1000), 9_000_000

    def woken() -> list[str]:
        return [name for name, _ in store.due(limit=10)]

    with closing(make(tmp_path, lambda: now, lambda: wall)) as store:
        for name, at in (("first", 2000), ("second", 2001)):
            waits = run_row(0, status="waiting", clock="mine", wake_at=at, wake_wall=9_000_000 + at * 1000)
            store.commit(inside(commit(name), run=waits))
        now, wall = Clock("mine", 1999), 1 << 50
        assert woken() == [], "on its own clock, the wall clock says nothing"
        now, wall = Clock("mine", 2000), 0
        assert woken() == ["first"]
        now = Clock("mine", 2001)
        assert woken() == ["first", "second"]
        now, wall = Clock("another", 1 << 50), 10_999_999
        assert woken() == [], "on another clock, its time says nothing"
        wall = 11_000_000
        assert woken() == ["first"]
        wall = 11_001_000
        assert woken() == ["first", "second"]


@pytest.mark.parametrize("make", [memory, sqlite, directory, postgres])
def test_a_tie_is_woken_in_the_order_of_the_threads(tmp_path: Path, make: Make) -> None:
    """Overdue by a second each, on three clocks."""
    numbers: dict[str, int] = {}
    with closing(make(tmp_path, lambda: Clock("mine", 5000), lambda: 50_000_000)) as store:
        for name, clock in (("a", "z"), ("b", "mine"), ("c", "a"), ("d", "mine"), ("e", "z")):
            waits = run_row(0, status="waiting", clock=clock, wake_at=4000, wake_wall=49_000_000)
            numbers[name] = store.commit(inside(commit(name), run=waits)).thread
        for limit in range(6):
            assert [name for name, _ in store.due(limit=limit)] == sorted(numbers, key=numbers.__getitem__)[:limit]


def test_the_wall_clock_counts_from_1970() -> None:
    before = time.time_ns() // 1000
    assert before <= clock.wall() <= time.time_ns() // 1000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep it elsewhere")
@pytest.mark.usefixtures("asked_again")
def test_the_machines_clock_counts_from_its_boot(tmp_path: Path) -> None:
    with closing(sqlite(tmp_path, None)) as store:
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        at = store.clock()
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    assert before <= at.now <= after
    assert at.id == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def test_memory_counts_alike_under_a_name_of_its_own() -> None:
    before = clock.now()
    at = MemoryStore(namespace="default").clock()
    assert at.id == "memory"
    assert before <= at.now <= clock.now()


@pytest.mark.usefixtures("asked_again")
def test_a_system_that_tells_nothing_of_its_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "unheard of")
    monkeypatch.setattr(clock, "_sysctl", lambda name: None)
    assert clock.machine().id == "any boot"


@pytest.mark.usefixtures("asked_again")
def test_a_boot_that_cannot_be_asked_for_is_an_error_of_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(clock, "_BOOT_ID", tmp_path)  # a folder: reading it fails, as with too many files open
    with pytest.raises(StoreError, match="Try again"):
        clock.machine()
    monkeypatch.undo()
    assert clock.machine().id
