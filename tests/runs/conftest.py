"""What the tests of runs share: a store whose clock the test moves, workers that die, and children to kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, HoldfastError, Run
from holdfast.runs import claim, doubt, lease, record
from holdfast.runs.drivers import RUN
from holdfast.runs.run import RunBase
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock, Owner
from holdfast.stores.log import DirectoryStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.memory import MemoryStore
from tests.crash.nursery import Nursery
from tests.stores.postgres.server import reused_address_at

LEASE = 30.0


class Crash(BaseException):
    """The process dies here."""


class World:
    """One store, as many handles on it as there are processes, and a clock for its leases that the test moves."""

    def __init__(self, open_store: Callable[[Callable[[], Clock]], Store]) -> None:
        self._open_store = open_store
        self._opened: list[Holdfast] = []
        self._owners = 0
        self._dead: set[Owner] = set()
        self._unproven: set[Owner] = set()
        self._now = 1_000_000
        self.boot = "boot-1"
        self.skew = 0.0  # seconds by which the clock of the claiming machine is behind that of the store

    def clock(self) -> Clock:
        return Clock(self.boot, self._now, self._now - round(self.skew * 1000))

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * 1000)

    def open(
        self,
        *tools: Callable[..., Any],
        store: Callable[[Store], Store] | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> Holdfast:
        """A handle such as another process would have; `store` puts something between it and the store."""
        opened = self._open_store(self.clock)
        handle = Holdfast(opened if store is None else store(opened), tools=tools, redact=redact)
        self._opened.append(handle)
        return handle

    def owner(self) -> Owner:
        """Who claims: another process each time."""
        self._owners += 1
        return Owner("here", "boot", 1, 1, self._owners)

    def is_dead(self, owner: Owner) -> bool:
        """Whether a process is proven to be gone."""
        return owner in self._dead

    def is_alive(self, owner: Owner) -> bool:
        """Whether a process is proven to live."""
        return owner not in self._dead | self._unproven

    @contextmanager
    def dying(
        self, thread: str, hf: Holdfast | None = None, *, is_proven: bool = True, **options: Any
    ) -> Iterator[Run]:
        """A run whose process dies some milliseconds after the block: nothing is given back, and its lease runs out.

        Where that is not proven, it can only be presumed from the lease.
        """
        before = RUN.get()
        run = (hf or self.open()).run(thread, **options).__enter__()
        try:
            yield run
        except Crash:
            pass
        finally:
            write_results(run)
            stop_renewing(run)
            RUN.set(before)  # the block is never left, and later tests are outside of it
        owner = run.core._row.owner
        if owner is not None:
            (self._dead if is_proven else self._unproven).add(owner)
        self.pass_time(options.get("lease", LEASE) + 1)

    def kill(self, run: RunBase) -> None:
        """The process of a run dies here, some milliseconds after its last call, with all it holds."""
        write_results(run)
        stop_renewing(run)
        if run.core._row.owner is not None:
            self._dead.add(run.core._row.owner)
        run.core._calls = None  # so that leaving its block writes nothing
        raise Crash

    @contextmanager
    def running(self, thread: str, hf: Holdfast | None = None, *, ends: str = "idle", **options: Any) -> Iterator[Run]:
        """A run whose block must end so: a run that waits leaves its block silently, with all asserts in it."""
        with (hf or self.open()).run(thread, **options) as run:
            yield run
        assert run.status == ends

    @contextmanager
    def failing(
        self, thread: str, error: type[BaseException], hf: Holdfast | None = None, **options: Any
    ) -> Iterator[Run]:
        """A run whose block must end with an error."""
        try:
            with (hf or self.open()).run(thread, **options) as run:
                yield run
        except error:
            return
        pytest.fail(f"no {error.__name__}")

    def close(self) -> None:
        for handle in self._opened:
            handle.close()


def write_results(run: RunBase) -> None:
    """What the flusher does a few milliseconds after the last call. test_waiting_results.py has deaths before that."""
    with suppress(HoldfastError):  # the store of the test fails
        if run.core._calls is not None:
            run.core._calls.context.journal.write_results()


def stop_renewing(run: RunBase) -> None:
    """What the death of its process does to a lease."""
    assert run.core._lease is not None
    run.core._lease.stop()


@pytest.fixture(params=["memory", "sqlite", "directory", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Each kind of store."""
    kept: list[MemoryStore] = []

    def open_memory(clock: Callable[[], Clock]) -> Store:
        if not kept:
            kept.append(MemoryStore(namespace="default", clock=clock))
        return kept[0]

    def open_sqlite(clock: Callable[[], Clock]) -> Store:
        return SQLiteStore(tmp_path / "agent.db", namespace="default", durability="off", clock=clock)

    def open_directory(clock: Callable[[], Clock]) -> Store:
        return DirectoryStore(tmp_path / "agents", namespace="default", durability="off", clock=clock)

    def open_postgres(clock: Callable[[], Clock]) -> Store:
        return PostgresStore(
            reused_address_at(tmp_path),
            namespace="default",
            clock=clock,
            wall=lambda: time.time_ns() // 1000,  # tests may let it pass
        )

    opens = {"memory": open_memory, "sqlite": open_sqlite, "directory": open_directory, "postgres": open_postgres}
    made = World(opens[request.param])
    monkeypatch.setattr(claim, "this_process", made.owner)
    monkeypatch.setattr(record, "is_dead", made.is_dead)
    monkeypatch.setattr(doubt, "is_dead", made.is_dead)
    monkeypatch.setattr(doubt, "is_alive", made.is_alive)
    monkeypatch.setattr(lease, "is_alive", made.is_alive)
    yield made
    made.close()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started
