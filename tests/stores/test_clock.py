"""The clock of leases: which one it is, and that both stores ask the one they are given."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import LeaseHeld
from holdfast.stores import clock
from holdfast.stores.contract import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.running import Clock
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import held, saved

Make = Callable[[Path, Callable[[], Clock] | None], Store]


def memory(_path: Path, now: Callable[[], Clock] | None) -> Store:
    return MemoryStore(namespace="default", clock=now)


def sqlite(path: Path, now: Callable[[], Clock] | None) -> Store:
    return SQLiteStore(path / "store.db", namespace="default", durability="off", clock=now)


@pytest.fixture
def asked_again() -> Iterator[None]:
    """What the machine said of its boot is forgotten before and after."""
    clock.boot_id.cache_clear()
    yield
    clock.boot_id.cache_clear()


@pytest.mark.parametrize("make", [memory, sqlite])
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
        line.save("y")
        now = Clock("mine", 5)
        with pytest.raises(LeaseHeld):
            line.save("z")
        now = Clock("another", 5)
        line.save("z")


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
