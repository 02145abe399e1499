"""`SQLStore`: the verbs of the contract, for every store that keeps its records in SQL tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload

from holdfast.errors import Damaged, OutcomeUnknown, StoreError
from holdfast.stores import rows, rules, segments
from holdfast.stores.contract import PLAIN, Claimed, Collected, Commit, KeyRow, Live, Position, Swept
from holdfast.stores.contract_runs import ActRow, ClaimLimit, RunRow
from holdfast.stores.sql import blobs, checks, commits, journals, keyed_rows, reads, scans, upkeep
from holdfast.stores.sql.blobs import Packed
from holdfast.stores.sql.transaction import FunctionWrite, StoreWrite, StoreWriter, Transaction
from holdfast.types import Problem

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound=StoreWriter)

_BLOBS_AT_ONCE: Final = 64
_THREADS_AT_ONCE: Final = 128
_ROW: Final = commits.ROW_WEIGHT


def _reading(verb: Callable[Concatenate[Transaction, P], T]) -> Callable[Concatenate[SQLStore[Any], P], T]:
    """A verb that reads, as a method of the store."""

    def method(store: SQLStore[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.read(verb, *args, **kwargs)

    return method


def _writing(write: Callable[P, StoreWrite[T]]) -> Callable[Concatenate[SQLStore[Any], P], T]:
    """A verb that writes, as a method of the store. `write` checks the arguments of the verb."""

    def method(store: SQLStore[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = store.writer.write(write(*args, **kwargs))
        return answer

    return method


class SQLStore(ABC, Generic[W]):
    """The verbs of a store. A subclass runs them in transactions of its database."""

    encoding: Literal["packed", "text"] = "packed"
    hashing = PLAIN
    writer: W
    _epoch = 0  # the last one for which the threads to sweep were found

    @abstractmethod
    def read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read verb in its own transaction, on one snapshot."""

    def repeatable(
        self, weight: int, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a write verb that may be repeated."""
        return self.writer.write(FunctionWrite(lambda tx: verb(tx, *args, **kwargs), weight))

    head = _reading(reads.head)
    threads = _reading(reads.threads)
    numbered = _reading(reads.numbered)
    checkpoints = _reading(reads.checkpoints)
    walk = _reading(reads.walk)
    cells = _reading(reads.cells)
    blob = _reading(blobs.blob)
    forks = _reading(reads.forks)
    run = _reading(journals.run)
    runs = _reading(journals.runs)
    queue = _reading(journals.queue)
    due = _reading(journals.due)
    entries = _reading(journals.entries)
    last_entry = _reading(journals.last_entry)
    acts = _reading(keyed_rows.acts)
    keys = _reading(keyed_rows.keys)
    search = _reading(scans.search)  # see `Searching`
    scan = _reading(scans.scan)  # see `Scanning`
    totals = _reading(scans.totals)  # see `Totalling`
    tally = _reading(scans.tally)  # see `Totalling`

    rewind = _writing(commits.RewindWrite)
    delete = _writing(commits.DeleteWrite)
    renew = _writing(journals.renew)
    journal = _writing(journals.journal)
    post = _writing(journals.post)

    @overload
    def commit(self, commit: Commit, /) -> Position: ...

    @overload
    def commit(self, commit: Sequence[Commit], /) -> list[Position]: ...

    def commit(self, commit: Commit | Sequence[Commit]) -> Position | list[Position]:
        writes: list[commits.CommitWrite] = []
        for wanted in (commit,) if isinstance(commit, Commit) else commit:
            prepared = rows.prepare(wanted)
            packed: Sequence[list[Packed] | None] = ()
            if wanted.blobs:
                stored = self.read(blobs.stored, [blob.digest for blob in wanted.blobs])
                packed = [None if blob.digest in stored else blobs.pack(blob) for blob in wanted.blobs]
            writes.append(commits.CommitWrite(prepared, packed))
        if isinstance(commit, Commit):
            return self.writer.write(writes[0])
        rules.check_together(commit)
        return self.writer.write(commits.JointWrite(writes))

    def claim(self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> Claimed:
        write = journals.claim(expect, row, limit)
        self.writer.write(write)
        if write.claimed is None:
            raise rules.no_thread(row.thread)
        return write.claimed

    def drop(self, thread: int) -> None:
        origins = self.writer.write(commits.DropWrite(thread))
        # The thread is gone for every reader. If this fails half-way, the next sweep finishes it. Most errors would
        # report that nothing was changed, which is wrong here.
        try:
            for number in (thread, *origins):
                self._clear(number)
        except (Damaged, OutcomeUnknown):
            raise
        except StoreError:
            return

    def put_act(self, key: bytes, expect: ActRow | None, row: ActRow | None) -> ActRow | None:
        return self.repeatable(0, keyed_rows.put_act, key, expect, row)

    def put_key(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        return self.repeatable(0, keyed_rows.put_key, id, expect, row)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def sweep_blobs(self, epoch: int | None = None) -> Collected:
        if epoch is None:
            return Collected(epoch=self.repeatable(0, upkeep.start_epoch))
        if self._epoch != epoch:
            after = 0
            while page := self.read(upkeep.changed_since_sweep, after):
                self.repeatable(len(page) * _ROW, upkeep.mark_unswept, page)
                after = page[-1]
            self._epoch = epoch
        used, unswept, damaged = self.read(upkeep.used_blobs)
        if damaged:
            self.repeatable(len(damaged) * _ROW, upkeep.mark_unswept, damaged)
            used, unswept, _ = self.read(upkeep.used_blobs)
        if unswept:
            return Collected(unswept=unswept)
        removed: list[bytes] = []
        after = 0
        while old := self.read(blobs.old, epoch, after, _BLOBS_AT_ONCE):
            after = old[-1][0]
            dead = [row for row in old if row[1] not in used]
            if dead:
                removed += self.repeatable(len(dead) * _ROW, blobs.remove, dead, epoch)
        return Collected(frozenset(removed), frozenset(used))

    def sweep(self, thread: int, live: Live) -> Swept:
        plan = self.read(upkeep.plan, thread, live)
        done: list[Swept] = []
        merges: list[Swept] = []
        for at in range(0, len(plan.dead), upkeep.ROWS):
            dead = plan.dead[at : at + upkeep.ROWS]
            done.append(self.repeatable(len(dead) * _ROW, upkeep.drop_dead, thread, live, dead))
        if live.blobs is not None:
            merges = [self.repeatable(segments.TARGET, upkeep.merge, thread, live, group) for group in plan.groups]
            done += merges
        damaged = plan.damaged + sum(each.damaged for each in done)
        self._clear(thread)
        if live.blobs is not None:
            is_complete = not damaged and all(each.merged for each in merges)
            self.repeatable(_ROW, upkeep.record, thread, live, is_complete=is_complete)
        return Swept(sum(each.dropped for each in done), sum(each.merged for each in done), damaged)

    def check(self) -> Iterator[Problem]:
        yield from self.read(checks.database)
        numbers = self.read(checks.numbers)
        for at in range(0, len(numbers), _THREADS_AT_ONCE):
            yield from self.read(checks.threads, numbers[at : at + _THREADS_AT_ONCE])

    def _clear(self, thread: int) -> None:
        while self.repeatable(_ROW, upkeep.clear, thread):
            continue
