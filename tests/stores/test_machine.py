"""A state machine of runs and journals: whatever order the verbs come in, all stores say and keep the same.

The memory store is the shortest way to say what a store does, so it is the model; the others, closed and opened again
at any time, are what is tested. What both could get wrong in the same way is asserted by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock, Entry, Owner, RunRow
from holdfast.stores.log import DirectoryStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import commit, effect, inside, run_row
from holdfast.threads.scan import thread_named
from tests.selection import tries
from tests.stores.model import ModelStore
from tests.stores.postgres.server import reused_address_at

# A server is farther away than a file.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
THREADS = ("a", "b", "c")
STATUSES = ("running", "waiting", "waiting", "queued", "completed")

threads = st.sampled_from(THREADS)
near = st.sampled_from([0] * 8 + [-1, 1])  # mostly right, sometimes off by one
mostly = st.sampled_from([True] * 6 + [False])
times = st.integers(0, 40)
entries = st.builds(
    effect, st.sampled_from(["started", "asked", "done"]), key=st.sampled_from("xyz"), number=st.integers(0, 3)
)
changes = st.fixed_dictionaries(
    {
        "status": st.sampled_from(STATUSES),
        "clock": st.sampled_from(["boot-1", "boot-2", "boot-3"]),
        "lease_until": times,
        "wake_at": times,
        "wake_wall": times.map(lambda seconds: seconds * 1_000_000),
        "updated_at": times,
        "question": st.integers(0, 3),
        "owner": st.sampled_from([None, Owner("host", "boot", 1, 2, 3)]),
    }
)


class StoreMachine(RuleBasedStateMachine):
    """Three threads, one clock that stops at each boot and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._boot = 1
        self._now = 10
        self._wall = 10_000_000
        self._model: Store = ModelStore(
            namespace="default", clock=self._clock, wall=lambda: self._wall, number=self.number
        )
        self._tested = self._open()
        self._numbers: dict[str, int] = {}

    def _open(self) -> Store:
        return self.open_store(Path(self._folder.name) / "store", self._clock, lambda: self._wall)

    @staticmethod
    def number(count: int) -> int:
        return count

    @staticmethod
    def open_store(path: Path, clock: Callable[[], Clock], wall: Callable[[], int]) -> Store:
        raise NotImplementedError

    def _clock(self) -> Clock:
        return Clock(f"boot-{self._boot}", self._now)

    def teardown(self) -> None:
        assert list(self._model.check()) == list(self._tested.check()) == []
        self._model.close()
        self._tested.close()
        self._folder.cleanup()

    def _both(self, verb: str, *args: Any, **options: Any) -> Any:
        """What both stores answer: a value, or the kind of the error."""
        answers: list[Any] = []
        for store in (self._model, self._tested):
            try:
                answers.append(getattr(store, verb)(*args, **options))
            except HoldfastError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
        return answers[0]

    def _run(self, thread: int) -> RunRow | None:
        found: RunRow | None = self._model.run(thread)
        return found

    # -- rules --------------------------------------------------------------------------------------------------------

    @initialize()
    def create(self) -> None:
        for name in THREADS:
            self._save(name)

    def _save(self, name: str) -> None:
        made = commit(name)
        self._numbers[name] = self._both("commit", made).thread

    @rule(name=threads, fields=changes, off=near)
    def claim(self, name: str, fields: dict[str, Any], off: int) -> None:
        thread = self._numbers[name]
        found = self._run(thread)
        row = run_row(thread, **(fields | {"fence": (found.fence if found else 0) + 1 + off}))
        self._both("claim", found, row)

    @rule(name=threads, until=times, off=near, held=mostly)
    def renew(self, name: str, until: int, off: int, held: bool) -> None:
        before = self._hold(name, held)
        thread = self._numbers[name]
        if self._both("renew", thread, before.fence + off, until) is None:
            self._lease_was_kept(before, replace(before, lease_until=until))

    @rule(name=threads, fields=changes, off=near, held=mostly, rows=st.lists(entries, max_size=2), wrong=near)
    def commit(self, name: str, fields: dict[str, Any], off: int, held: bool, rows: list[Entry], wrong: int) -> None:
        before = self._hold(name, held)
        row = run_row(before.thread, fence=before.fence + off, **fields)
        at = thread_named(self._model, name)
        assert at is not None
        last, effects = self._numbered(before.thread, rows, wrong)
        made = inside(
            commit(name, at.position), fence=row.fence, run=row, entries=effects, last_entry=last if rows else None
        )
        if not isinstance(self._both("commit", made), type):
            self._lease_was_kept(before, row)

    @rule(
        name=threads,
        fields=st.none() | changes,
        off=near,
        held=mostly,
        rows=st.lists(entries, max_size=3),
        wrong=near,
        compared=mostly,
    )
    def journal(
        self,
        name: str,
        fields: dict[str, Any] | None,
        off: int,
        held: bool,
        rows: list[Entry],
        wrong: int,
        compared: bool,
    ) -> None:
        before = self._hold(name, held)
        fence = before.fence + off
        run = None if fields is None else run_row(before.thread, fence=fence, **fields)
        last, effects = self._numbered(before.thread, rows, wrong)
        given = last if compared else None
        if self._both("journal", before.thread, fence, effects, last=given, run=run) is None:
            assert off == 0
            assert wrong == 0 or not compared
            if run is not None:
                self._lease_was_kept(before, run)

    @rule(name=threads, entry=entries, wrong=near, held=mostly)
    def post(self, name: str, entry: Entry, wrong: int, held: bool) -> None:
        thread = self._hold(name, held).thread
        newest = self._model.last_entry(thread)
        entry = replace(entry, number=newest + 1 + wrong)
        if self._both("post", thread, entry) is None:
            assert not wrong
            assert self._model.entries(thread, after=newest, limit=9) == [entry]

    @rule(name=threads, back=st.integers(-1, 2), entry=entries, fields=st.none() | changes, off=near, current=mostly)
    def settle(
        self, name: str, back: int, entry: Entry, fields: dict[str, Any] | None, off: int, current: bool
    ) -> None:
        found = self._hold(name, held=False)
        number = self._model.last_entry(found.thread) - back
        entry = replace(entry, number=number)
        [status] = [row.status for row in self._model.entries(found.thread, after=number - 1, limit=1)] or ["asked"]
        expect = status if off == 0 else "late"
        then = None if fields is None else replace(found, **fields, fence=found.fence + 1 + off)
        expected = found if current else replace(found, attempt=99)
        if self._both("post", found.thread, entry, status=expect, run=expected, then=then) is None:
            assert current
            assert off == 0
            assert self._run(found.thread) == (then or found)
            assert self._model.entries(found.thread, after=number - 1, limit=1) == [entry]

    @rule(name=threads, sure=st.integers(0, 3))
    def drop(self, name: str, sure: int) -> None:
        if sure == 0 and self._both("drop", self._numbers[name]) is None:
            self._save(name)

    @rule(seconds=st.sampled_from([1, 5, 20]), jump=st.sampled_from([0, 0, -10, 10]))
    def pass_time(self, seconds: int, jump: int) -> None:
        self._now += seconds
        self._wall += (seconds + jump) * 1_000_000

    @rule()
    def boot(self) -> None:
        self._boot += 1
        self._now = 1
        self._reopen()

    @rule()
    def reopen(self) -> None:
        self._reopen()

    def _reopen(self) -> None:
        self._tested.close()
        self._tested = self._open()

    def _hold(self, name: str, held: bool) -> RunRow:
        """The thread's run, claimed if it is to be held and nobody holds it; one that is not there where none is."""
        thread = self._numbers[name]
        found = self._run(thread)
        if held and (found is None or found.status != "running"):
            row = run_row(thread, fence=found.fence + 1 if found else 1, clock="boot-1", lease_until=20)
            assert self._both("claim", found, row).run == row
            found = row
        return found or run_row(thread)

    def _numbered(self, thread: int, rows: list[Entry], wrong: int) -> tuple[int, tuple[Entry, ...]]:
        """The newest entry, sometimes another, and entries that follow it or replace one: mostly there."""
        last = self._model.last_entry(thread) + wrong
        following = last
        numbered: list[Entry] = []
        for row in rows:
            following += not row.number
            numbered.append(replace(row, number=max(last + 2 - row.number, 0) if row.number else following))
        return last, tuple(numbered)

    def _lease_was_kept(self, before: RunRow, row: RunRow) -> None:
        found = self._run(row.thread)
        goes_on = row.status == "running" and row.clock == before.clock
        assert found == replace(
            row, lease_until=max(row.lease_until, before.lease_until) if goes_on else row.lease_until
        )

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def both_keep_the_same(self) -> None:
        self._both("threads", prefix="", after=None, limit=9)
        for thread in self._numbers.values():
            self._both("run", thread)
            rows = self._both("entries", thread, after=0, limit=1000)
            assert self._both("last_entry", thread) == len(rows)

    @invariant()
    def what_is_due_wakes_longest_overdue_first(self) -> None:
        due: list[tuple[int, int, str]] = []
        for name, thread in self._numbers.items():
            run = self._run(thread)
            if run is None or run.status not in ("waiting", "queued") or run.wake_at == 0:
                continue
            late = (self._now - run.wake_at) * 1000 if run.clock == self._clock().id else self._wall - run.wake_wall
            if late >= 0:
                due.append((-late, thread, name))
        for limit in range(4):
            woken = self._both("due", limit=limit)
            assert [name for name, _ in woken] == [name for *_, name in sorted(due)][:limit]

    @invariant()
    def the_queue_is_the_same(self) -> None:
        runs = [(name, self._run(thread)) for name, thread in self._numbers.items()]
        handlers = {run.handler or run.agent or "" for _, run in runs if run is not None} | {""}
        for limit in (1, 9):
            self._both("queue", handlers=sorted(handlers), after=(-9, 0, 0), limit=limit)


def _open_sqlite(path: Path, clock: Callable[[], Clock], wall: Callable[[], int]) -> Store:
    return SQLiteStore(path, namespace="default", durability="off", clock=clock, wall=wall)


def _open_directory(path: Path, clock: Callable[[], Clock], wall: Callable[[], int]) -> Store:
    # The numbers of the model.
    return DirectoryStore(path, namespace="default", durability="off", clock=clock, wall=wall, number=lambda: 0)


def _open_postgres(path: Path, clock: Callable[[], Clock], wall: Callable[[], int]) -> Store:
    return PostgresStore(reused_address_at(path.parent), namespace="default", clock=clock, wall=wall)


class SQLiteMachine(StoreMachine):
    open_store = staticmethod(_open_sqlite)


class DirectoryMachine(StoreMachine):
    open_store = staticmethod(_open_directory)


class PostgresMachine(StoreMachine):
    open_store = staticmethod(_open_postgres)

    @staticmethod
    def number(count: int) -> int:
        """Numbers of 31 bits, reversed."""
        return int(f"{count:031b}"[::-1], 2)


_SETTINGS = settings(max_examples=tries(120, 20), stateful_step_count=40, deadline=None)
TestSQLiteStores = SQLiteMachine.TestCase
TestSQLiteStores.settings = _SETTINGS
TestDirectoryStores = DirectoryMachine.TestCase
TestDirectoryStores.settings = _SETTINGS
TestPostgresStores = PostgresMachine.TestCase
TestPostgresStores.settings = settings(
    max_examples=tries(25, 5), stateful_step_count=30, deadline=None, suppress_health_check=_QUIET
)
