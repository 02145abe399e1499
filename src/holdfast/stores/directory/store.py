"""`DirectoryStore`: the verbs of the contract, on a folder of log files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from holdfast.errors import Damaged, HoldfastError, InvalidArgument
from holdfast.stores import clock as clocks
from holdfast.stores import rules
from holdfast.stores.contract import (
    PLAIN,
    Cells,
    CheckpointRow,
    Commit,
    Compacted,
    KeyRow,
    Live,
    Position,
    Span,
    Summary,
    ThreadRow,
)
from holdfast.stores.contract_runs import Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.directory import backup, check, files, maintenance, reading, root, runs, scrubbing, writing
from holdfast.stores.directory import records as r
from holdfast.stores.directory.form import Form
from holdfast.stores.directory.keys import Keys
from holdfast.stores.directory.log import Moved
from holdfast.stores.directory.names import folder_name
from holdfast.stores.directory.rewriting import Rewriting
from holdfast.stores.directory.settling import settle, settle_users
from holdfast.stores.directory.space import Followed, Space, group, sealed
from holdfast.stores.directory.turns import Turns
from holdfast.stores.directory.values import Values
from holdfast.stores.directory.writing import Plan
from holdfast.stores.gate import Gate
from holdfast.types import Problem

P = ParamSpec("P")
T = TypeVar("T")

_NAMES_AT_ONCE: Final = 500


class DirectoryStore:
    """A folder of text files, opened on one namespace. Any number of threads and processes may use it.

    Raises `NotAStore` or `NewerFormat`, leaving everything unchanged, if the folder is not a store that this version
    can read. Raises `ReadOnly` if it does not exist and cannot be created. `form` converts the bytes of the layers
    above to text.
    """

    encoding: Literal["packed", "text"] = "text"
    hashing = PLAIN
    kind = "dir"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: str,
        durability: Literal["full", "normal", "off"],
        form: Form,
        busy_timeout: float = 10.0,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        if durability not in ("full", "normal", "off"):
            raise InvalidArgument("durability must be 'full', 'normal' or 'off'")
        self._path = os.path.realpath(path)
        self._clock = clock or clocks.machine
        self._wall = wall or clocks.wall
        folder_name(namespace)
        # At "normal", only appends are left to the system. A file that replaces another is synced first.
        sync = durability != "off"
        self._syncs_appends = durability == "full"
        root.open_root(self._path, sync=sync)
        self._space = Space(self._path, namespace, form, sync=sync)
        self._space.is_lazy = sync and not self._syncs_appends
        self._values = Values(self._space.path)
        self._keys = Keys(self._space.path)
        self._turns = Turns(self._path, self._space, busy_timeout)
        self._busy_timeout = busy_timeout

    # -- reading ----------------------------------------------------------------------------------------------------

    def thread(self, name: str) -> ThreadRow | None:
        return self._read(reading.thread, name)

    def threads(self, *, prefix: str, after: str | None, limit: int) -> list[ThreadRow]:
        return self._read(reading.threads, prefix, after, max(limit, 0))

    def name_of(self, thread: int) -> str | None:
        return self._read(reading.name_of, thread)

    def checkpoint(self, thread: int, seq: int) -> CheckpointRow | None:
        return self._read(reading.checkpoint, thread, seq)

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[CheckpointRow]:
        return self._read(reading.checkpoints, thread, before, limit, label, step)

    def refs(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow]:
        return self._read(reading.refs, thread, after, limit)

    def walk(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
        return [self._one(thread, seq) for seq in range(after + 1, min(after + limit, self.last(thread)) + 1)]

    def _one(self, thread: int, seq: int) -> CheckpointRow | Damaged:
        """A checkpoint, or the error from reading it."""
        try:
            row = self.checkpoint(thread, seq)
        except Damaged as damage:
            return damage
        return Damaged(f"checkpoint {seq} of thread number {thread} is missing") if row is None else row

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        return self._read(reading.cells, spans)

    def blob(self, digest: bytes) -> list[bytes]:
        self._turns.ready()
        try:
            return self._values.read(digest)
        except OSError as error:
            raise files.translate(error, self._path) from error

    def last(self, thread: int) -> int:
        return self._read(reading.last, thread)

    def forks(self, thread: int) -> list[int]:
        return self._read(reading.forks, thread)

    def names(self) -> dict[int, str]:
        found: dict[int, str] = {}
        after: str | None = None
        with suppress(Damaged):  # after the last page, if threads were skipped
            while page := self.threads(prefix="", after=after, limit=_NAMES_AT_ONCE):
                found |= {row.position.thread: row.name for row in page}
                after = page[-1].name
        return found

    def thread_numbers(self) -> list[int]:
        return self._read(reading.thread_numbers)

    def clock(self) -> Clock:
        self._turns.ready()
        return self._clock()

    def run(self, thread: int) -> RunRow | None:
        return self._read(reading.run, thread)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        return self._read(reading.runs, statuses, after, max(limit, 0))

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return self._read(reading.woken, self._clock(), self._wall(), max(limit, 0))

    def entries(self, thread: int, *, after: int, limit: int) -> list[Entry]:
        return self._read(reading.effects, thread, after, max(limit, 0))

    def find_entries(self, thread: int, topic: str) -> list[Entry]:
        return self._read(reading.marked, thread, topic)

    def last_entry(self, thread: int) -> int:
        return self._read(reading.last_effect, thread)

    # -- writing ----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> Position:
        prepared = writing.prepare(commit, self._space.form)
        return self._write(writing.commit, prepared, self._clock)

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        return self._write(writing.rewind, expect, to, summary, self._clock)

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        rules.check_claim(expect, row)
        self._write(runs.claim, expect, row)

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        self._write(runs.renew, thread, fence, until, progress)

    def update_run(self, row: RunRow) -> None:
        self._write(runs.update, row)

    def suspend(self, row: RunRow, entry: Entry | None, last: int) -> int:
        return self._write(runs.park, row, entry, last)

    def journal(self, thread: int, fence: int, rows: Sequence[Entry]) -> list[int]:
        return self._write(runs.journal, thread, fence, rows)

    def post(self, thread: int, row: Entry, *, last: int | None = None, run: RunRow | None = None) -> int:
        return self._write(runs.tell, thread, row, last, run)

    def settle(
        self,
        thread: int,
        number: int,
        expect: EntryStatus,
        row: Entry,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        rules.check_then(run, then)
        self._write(runs.settle, thread, number, expect, row, run, then)

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        return self._write(writing.delete, thread, seqs)

    def drop(self, thread: int) -> None:
        with self._turns.writing():
            affected = self._carry_out(writing.drop, thread, self._clock)
            # The thread is gone for every reader. If this fails half-way, `reclaim` finishes it.
            with self._turns.looking():
                for number in affected:
                    with suppress(HoldfastError, OSError):
                        maintenance.bury(self._space, number)

    def start_epoch(self) -> int:
        with self._turns.writing(), self._turns.looking():
            epoch = self._space.ledger.epoch + 1
            self._space.note(r.EpochLine(epoch=epoch), sync=True)
            return epoch

    def sweep_blobs(self, live: Collection[bytes], epoch: int) -> int:
        keep = {digest.hex() for digest in live}
        with self._turns.writing():
            with self._turns.looking():
                self._space.all_told()
                settle(self._space)
            stamps = self._space.ledger.stamps
            dead = [digest for digest in self._values.all() if digest not in keep and stamps.get(digest, 0) < epoch]
            for digest in dead:
                self._values.remove(digest)
            return len(dead)

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def key(self, id: bytes) -> KeyRow | None:
        self._turns.ready()
        try:
            return self._keys.key(id)
        except OSError as error:
            raise files.translate(error, self._path) from error

    def keys(self, *, after: bytes, limit: int) -> list[KeyRow]:
        self._turns.ready()
        try:
            return self._keys.keys(after, max(limit, 0))
        except OSError as error:
            raise files.translate(error, self._path) from error

    def put_key(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        with self._turns.writing():
            return self._keys.put(row, expect, sync=self._space.sync)

    def remove_key(self, id: bytes, expect: KeyRow | None = None) -> None:
        with self._turns.writing():
            self._keys.remove(id, expect, sync=self._space.sync)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def sweep(self, thread: int, live: Live) -> int:
        with self._turns.writing(), self._turns.looking():
            settle_users(self._space, thread)
        dropped = self._write(maintenance.plan_sweep, thread, live)
        with self._turns.writing(), self._turns.looking():
            maintenance.bury(self._space, thread)
            rewriting = maintenance.plan_rewriting(self._space, thread)
        if rewriting is not None:
            self._rewrite(rewriting)
        return dropped

    def compact(self, thread: int, live: Live) -> Compacted:
        with self._turns.writing(), self._turns.looking():
            done, rewriting = maintenance.plan_compaction(self._space, thread, live)
            if rewriting is None:
                maintenance.bury(self._space, thread)
                return done
        if not self._rewrite(rewriting):
            return Compacted(damaged=done.damaged)
        with self._turns.writing(), self._turns.looking():
            maintenance.bury(self._space, thread)
        return done

    def reclaim(self) -> None:
        with self._turns.writing(), self._turns.looking():
            maintenance.sweep_leftovers(self._space)
            self._values.sweep_leftovers()

    @property
    def path(self) -> str:
        """See `BackingUp`."""
        return self._path

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """See `BackingUp`."""
        return backup.copy(self._path, path, self._turn_of, progress)

    @contextmanager
    def _turn_of(self, folder: str) -> Generator[None]:
        """The lock for writing to a namespace's folder, of this namespace or another one."""
        if folder == self._space.path:
            with self._turns.writing():
                yield
            return
        gate = Gate(os.path.join(folder, "lock"), self._busy_timeout)
        try:
            gate.enter()
            yield
        finally:
            gate.close()

    def scrub(self) -> tuple[str, ...]:
        with self._turns.writing(), self._turns.looking():
            gone, left = scrubbing.clear(self._space)
            self._values.sweep_leftovers()
        for number in gone:
            with self._turns.writing(), self._turns.looking():
                rewriting, problems = scrubbing.plan(self._space, number)
            left += problems
            # None if another process has just done the same, or removed the thread.
            if rewriting is not None:
                self._rewrite(rewriting)
        with self._turns.writing(), self._turns.looking():
            left += scrubbing.tidy(self._space)
            if self._space.sync:
                self._values.sync_removed()
        return (*left, *scrubbing.BEYOND)

    def check(self) -> Iterator[Problem]:
        return iter(self._read(lambda space: list(check.problems(space))))

    def close(self) -> None:
        self._turns.close()

    # -- how a verb runs --------------------------------------------------------------------------------------------

    def _read(self, verb: Callable[Concatenate[Space, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read verb on one state of the logs."""
        while True:
            try:
                with self._turns.looking():
                    return verb(self._space, *args, **kwargs)
            except Moved:
                continue

    def _write(self, verb: Callable[Concatenate[Space, P], Plan[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._turns.writing():
            return self._carry_out(verb, *args, **kwargs)

    def _carry_out(self, verb: Callable[Concatenate[Space, P], Plan[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Plan, append, and read what was appended.

        Readers of this handle continue meanwhile and see the append when it is durable.
        """
        with self._turns.looking():
            plan = verb(self._space, *args, **kwargs)
            found = None if plan.values else self._begin(plan)
        if plan.values:
            # No other process writes meanwhile, so the plan stays valid.
            for value in plan.values:
                self._values.store(value, sync=self._space.sync)
            with self._turns.looking():
                found = self._begin(plan)
        if found is not None:
            with self._turns.appending(found.log):
                thread = found.thread
                entry = max(thread.newest_entry, plan.entry)
                data = group(plan.lines, thread.number, plan.at, thread.groups + 1, entry)
                found.log.append(data, sync=self._syncs_appends)
        return plan.answer

    def _begin(self, plan: Plan[T]) -> Followed | None:
        """Do all of a write but the append; return the thread whose log gets the append, if there is one."""
        self._announce(plan)
        if plan.creates is not None:
            self._create(plan, plan.creates)
            return None
        if not plan.lines or plan.followed is None:
            return None
        plan.followed.log.pin()
        return plan.followed

    def _create(self, plan: Plan[T], name: str) -> None:
        left = self._space.left_in(name)
        if left is not None:
            maintenance.lay_aside(self._space, left)
        self._space.note(r.NumberLine(number=plan.number), plan.number, sync=True)
        head = r.ThreadLine(format=r.FORMAT, number=plan.number, made=time.time_ns(), **r.shown_name(name))
        self._space.create(name, group([sealed(head), *plan.lines], plan.number, plan.at, 1, plan.entry))

    def _announce(self, plan: Plan[T]) -> None:
        """Stamp the blobs of a commit, and register whose cells it uses, before the commit is written."""
        if plan.origins:
            settle(self._space, plan.origins)
            self._space.note(r.ForkLine(number=plan.number, origins=plan.origins), plan.number, sync=True)
        if not plan.values:
            return
        digests = tuple(dict.fromkeys(value.digest.hex() for value in plan.values))
        # Synced, so that a power cut never leaves two torn groups: the first one would look damaged.
        self._space.note(r.StampLine(epoch=self._space.ledger.epoch, values=digests), sync=True)

    def _rewrite(self, rewriting: Rewriting) -> bool:
        """Write a new log, then take the lock and put it in place. False if the old log no longer exists."""
        try:
            rewriting.copy(sync=self._space.sync)
            with self._turns.writing():
                with self._turns.looking():
                    if not rewriting.is_due():
                        return False
                    settle_users(self._space, rewriting.followed.thread.number)
                rewriting.finish(sync=self._space.sync)
                with self._turns.looking():
                    rewriting.followed.log.catch_up()
                return True
        finally:
            rewriting.close()
