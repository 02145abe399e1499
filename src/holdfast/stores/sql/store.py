"""`SQLStore`: the verbs of the contract, for every store that keeps its records in SQL tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Concatenate, Final, Generic, Literal, ParamSpec, TypeVar

from msgspec.structs import replace

from holdfast.errors import Damaged, OutcomeUnknown, StoreError
from holdfast.stores import blobs, rows, rules, segments
from holdfast.stores.abilities import Scanned, Searched, Totals
from holdfast.stores.blobs import Packed
from holdfast.stores.contract import (
    PLAIN,
    Cells,
    CheckpointRow,
    Claimed,
    Collected,
    Commit,
    Head,
    KeyRow,
    Live,
    NumberedThread,
    Position,
    Span,
    Summary,
    Swept,
    ThreadRow,
)
from holdfast.stores.contract_runs import Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.sql import checks, commits, journals, reads, scans, search, upkeep, wrapped_keys
from holdfast.stores.sql.transaction import FunctionWrite, StoreWriter, Transaction
from holdfast.types import Problem

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound=StoreWriter)

_BLOBS_AT_ONCE: Final = 64
_THREADS_AT_ONCE: Final = 128
# Roughly the bytes that one changed row writes.
_ROW: Final = 2048


class SQLStore(ABC, Generic[W]):
    """The verbs of a store. A subclass runs them in transactions of its database."""

    encoding: Literal["packed", "text"] = "packed"
    hashing = PLAIN
    _namespace: bytes
    _writer: W
    _epoch = 0  # the last one for which the threads to sweep were found

    @abstractmethod
    def _read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read verb in its own transaction, on one snapshot."""

    def _repeatable(
        self, weight: int, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a write verb that may be repeated."""
        return self._writer.write(FunctionWrite(lambda tx: verb(tx, *args, **kwargs), weight))

    # -- reading ----------------------------------------------------------------------------------------------------

    def head(self, name: str) -> Head | None:
        with suppress(Damaged):
            return self._read(reads.head, rows.to_bytes(name))
        # A damaged page ends the transaction. The head may be on it, so it is read apart from the thread.
        thread = self._read(reads.thread, rows.to_bytes(name))
        if thread is None:
            return None
        return Head(thread, self._one(thread.position.thread, thread.position.head))

    def threads(
        self, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
    ) -> list[ThreadRow]:
        last = None if after is None else rows.to_bytes(after)
        return self._read(reads.threads, rows.to_bytes(prefix), last, max(limit, 0), contains, newest)

    def numbered(self, *, after: int | None, limit: int) -> list[NumberedThread]:
        above, most = min(max(after or 0, 0), segments.MAX_THREAD), max(limit, 0)
        # One lookup. The scan below would pass over the threads of all other namespaces.
        if most == 1 and (one := self._one_numbered(above + 1)) is not None:
            return [one]
        with suppress(Damaged):
            return self._read(reads.by_number, above, most)
        # The threads on a damaged page are missing in the table. An index has their numbers.
        found = map(self._one_numbered, self._read(reads.numbers, above, most))
        return [one for one in found if one is not None] or self._read(reads.by_number, above, most)

    def _one_numbered(self, number: int) -> NumberedThread | None:
        try:
            return self._read(reads.one_by_number, number)
        except Damaged as damage:
            return NumberedThread(number, damage, damage)

    def checkpoint(self, thread: int, seq: int) -> CheckpointRow | None:
        return self._read(reads.checkpoint, thread, seq)

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[CheckpointRow]:
        wanted = None if label is None else rows.to_bytes(label)
        return self._read(reads.checkpoints, thread, before, limit, wanted, step)

    def walk(self, thread: int, *, after: int, limit: int, refs_only: bool = False) -> list[CheckpointRow | Damaged]:
        return self._read(reads.walk, thread, after, limit, refs_only=refs_only)

    def _one(self, thread: int, seq: int, *, refs_only: bool = False) -> CheckpointRow | Damaged:
        """A checkpoint, or the error from reading it."""
        try:
            row = self.checkpoint(thread, seq) or reads.missing(thread, seq)
        except Damaged as damage:
            return damage
        return replace(row, meta=b"", skeleton=b"") if refs_only and isinstance(row, CheckpointRow) else row

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        return self._read(reads.cells, spans)

    def blob(self, digest: bytes) -> list[bytes]:
        return self._read(reads.blob, digest)

    def forks(self, thread: int) -> list[int]:
        return self._read(reads.forks, thread)

    def clock(self) -> Clock:
        return self._read(_clock)

    def run(self, thread: int) -> RunRow | None:
        return self._read(journals.run, thread)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        return self._read(journals.runs, statuses, after, max(limit, 0))

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return self._read(journals.due, max(limit, 0))

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        return self._read(journals.entries, thread, max(after, 0), max(limit, 0), topic)

    def last_entry(self, thread: int) -> int:
        return self._read(journals.last_entry, thread)

    def search(self, having: bytes, *, after: int) -> Searched:
        """See `Searching`."""
        return self._read(search.search, having, after)

    # -- writing ----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> Position:
        prepared = rows.prepare(commit)
        packed: Sequence[list[Packed] | None] = ()
        if commit.blobs:
            stored = self._read(reads.stored_blobs, [blob.digest for blob in commit.blobs])
            packed = [None if blob.digest in stored else blobs.pack(blob) for blob in commit.blobs]
        return self._writer.write(commits.CommitWrite(prepared, self._namespace, packed))

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        return self._writer.write(commits.RewindWrite(expect, to, summary))

    def claim(self, expect: RunRow | None, row: RunRow) -> Claimed:
        rules.check_claim(expect, row)
        claim = journals.claim(expect, row)
        self._writer.write(claim)
        return claim.claimed()

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        self._writer.write(journals.RenewWrite(thread, fence, until, progress, self._namespace))

    def journal(
        self, thread: int, fence: int, entries: Sequence[Entry], *, last: int | None, run: RunRow | None = None
    ) -> None:
        rules.check_journal(entries, last, run, thread, fence)
        if run is None:
            self._writer.write(journals.JournalWrite(thread, fence, entries, last, self._namespace))
        else:
            self._writer.write(journals.release(fence, entries, last, run))

    def post(
        self,
        thread: int,
        row: Entry,
        *,
        status: EntryStatus | None = None,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        rules.check_post(row, run, then)
        self._writer.write(journals.post(thread, row, status, run, then))

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        return self._writer.write(commits.DeleteWrite(thread, seqs, len(seqs) * _ROW))

    def drop(self, thread: int) -> None:
        origins = self._writer.write(commits.DropWrite(thread))
        # The thread is gone for every reader. If this fails half-way, the next sweep finishes it. Most errors would
        # report that nothing was changed, which is wrong here.
        try:
            for number in (thread, *origins):
                self._clear(number)
        except (Damaged, OutcomeUnknown):
            raise
        except StoreError:
            return

    def start_epoch(self) -> int:
        return self._repeatable(0, upkeep.start_epoch)

    def sweep_blobs(self, epoch: int) -> Collected:
        if self._epoch != epoch:
            after = 0
            while page := self._read(upkeep.changed_since_sweep, after):
                self._repeatable(len(page) * _ROW, upkeep.mark_unswept, page)
                after = page[-1]
            self._epoch = epoch
        used, unswept, damaged = self._read(upkeep.used_blobs)
        if damaged:
            self._repeatable(len(damaged) * _ROW, upkeep.mark_unswept, damaged)
            used, unswept, _ = self._read(upkeep.used_blobs)
        if unswept:
            return Collected(unswept=unswept)
        removed: list[bytes] = []
        after = 0
        while old := self._read(upkeep.old_blobs, epoch, after, _BLOBS_AT_ONCE):
            after = old[-1][0]
            dead = [row for row in old if row[1] not in used]
            if dead:
                removed += self._repeatable(len(dead) * _ROW, upkeep.remove_blobs, dead, epoch)
        return Collected(frozenset(removed), frozenset(used))

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def keys(self, *, id: bytes | None = None, after: bytes = b"", limit: int) -> list[KeyRow]:
        return self._read(wrapped_keys.keys, id, after, max(limit, 0))

    def put_key(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        return self._repeatable(0, wrapped_keys.put, id, expect, row)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def sweep(self, thread: int, live: Live) -> Swept:
        plan = self._read(upkeep.plan, thread, live)
        done: list[Swept] = []
        merges: list[Swept] = []
        for at in range(0, len(plan.dead), upkeep.ROWS):
            dead = plan.dead[at : at + upkeep.ROWS]
            done.append(self._repeatable(len(dead) * _ROW, upkeep.drop_dead, thread, live, dead))
        if live.blobs is not None:
            merges = [self._repeatable(segments.TARGET, upkeep.merge, thread, live, group) for group in plan.groups]
            done += merges
        damaged = plan.damaged + sum(each.damaged for each in done)
        self._clear(thread)
        if live.blobs is not None:
            is_complete = not damaged and all(each.merged for each in merges)
            self._repeatable(_ROW, upkeep.record, thread, live, is_complete=is_complete)
        return Swept(sum(each.dropped for each in done), sum(each.merged for each in done), damaged)

    def check(self) -> Iterator[Problem]:
        yield from self._read(checks.database)
        numbers = self._read(checks.numbers)
        for at in range(0, len(numbers), _THREADS_AT_ONCE):
            some = numbers[at : at + _THREADS_AT_ONCE]
            try:
                yield from self._read(checks.threads, some)
            except Damaged:  # a page of a table cannot be read; some threads are not on it
                for thread in some:
                    yield from self._read(checks.thread, thread)

    def scan(self, numbers: Sequence[int]) -> dict[int, Scanned]:
        """See `Scanning`."""
        try:
            return self._read(scans.scan, numbers) if numbers else {}
        except Damaged:
            return {}

    def totals(self, read: Callable[[Sequence[bytes], Sequence[bool]], None]) -> Totals:
        """See `Totalling`."""
        return self._read(scans.totals, read)

    def _clear(self, thread: int) -> None:
        while self._repeatable(_ROW, upkeep.clear, thread):
            continue


def _clock(tx: Transaction) -> Clock:
    return tx.clock()
