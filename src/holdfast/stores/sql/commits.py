"""Write threads and checkpoints: commit, rewind, delete, drop.

A commit compares the thread's row with `Commit.expect` in the statement that changes it. If the row is different, the
rows are read and locked, to find the exact error or to write after all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown, TooLarge
from holdfast.stores import rows, rules
from holdfast.stores.contract import Blob, Position, Summary
from holdfast.stores.rows import EncodedCommit, StoredThread, name_digest, read_checkpoint, to_bytes
from holdfast.stores.segments import MAX_SEQ, MAX_THREAD, key
from holdfast.stores.sql import blobs, reads
from holdfast.stores.sql.blobs import Packed
from holdfast.stores.sql.journals import arrays, put_entries, put_run
from holdfast.stores.sql.keyed_rows import insert_key
from holdfast.stores.sql.reads import NO_RUN, StoredRun, lock_run, lock_thread_and_run, lock_threads
from holdfast.stores.sql.transaction import Done, Query, Row, StoreWrite, Transaction

# Checkpoints read at once.
_CHUNK: Final = 256
# Roughly the bytes that one changed row writes.
ROW_WEIGHT: Final = 2048
_NO_THREADS: Final[frozenset[int]] = frozenset()
# The parameters of `commit_in_run` for the record of a run that stays as it is.
_NO_RECORD: Final = (None,) * 14


class CommitWrite(StoreWrite[Position]):
    """A prepared commit. `packed` are the pieces of its blobs, None for a blob that was already stored."""

    def __init__(self, prepared: EncodedCommit, packed: Sequence[list[Packed] | None]) -> None:
        self.weight = prepared.weight
        self._prepared = prepared
        self._wanted = wanted = prepared.commit
        self._packed = packed
        self._has_guarded = False
        for pieces in packed:
            self.weight += sum([len(piece.data) for piece in pieces or ()])
        # The checkpoints that must still exist. The head cannot be deleted, so comparing the position is enough.
        head = None if wanted.expect is None else (wanted.expect.thread, wanted.expect.head)
        self._bases: Sequence[tuple[int, int]] = ()
        if wanted.bases not in ((), (head,)):
            self._bases = [base for base in wanted.bases if base != head]
            if any(not (1 <= thread <= MAX_THREAD and 1 <= seq <= MAX_SEQ) for thread, seq in self._bases):
                raise rules.base_deleted()
        # The threads that must still exist, and those of them that are not the thread itself.
        self._used = self._others = _NO_THREADS
        if wanted.origins or self._bases:
            self._used = frozenset((*wanted.origins, *(thread for thread, _ in self._bases)))
            self._others = self._used - {0 if head is None else head[0]}

    @property
    def place(self) -> tuple[int, bytes]:
        """The place among commits that are made together: the order in which their threads are locked."""
        wanted = self._wanted
        return (MAX_THREAD + 1, to_bytes(wanted.name)) if wanted.expect is None else (wanted.expect.thread, b"")

    @property
    def blobs(self) -> tuple[Blob, ...]:
        return self._wanted.blobs

    @property
    def threads(self) -> frozenset[int]:
        """The numbers of the threads that the commit locks."""
        return self._used if self._wanted.expect is None else self._used | {self._wanted.expect.thread}

    # -- as one guarded statement, in PostgreSQL only -----------------------------------------------------------------

    def guarded(self, namespace: bytes) -> Query | None:
        wanted, expect = self._wanted, self._wanted.expect
        if expect is None or wanted.blobs or self._bases or self._others:
            return None
        number = expect.thread
        args = (*rows.advanced(namespace, wanted, expect), *self._prepared.columns(number))
        last = wanted.last_entry
        if wanted.run is None and not wanted.entries and last is None:
            self._has_guarded = True
            return "commit", args
        if wanted.fence is None or (wanted.entries and last is None):
            return None
        record: Row = _NO_RECORD
        if wanted.run is not None:
            if rules.is_due(wanted.run):
                return None
            columns = rows.store_run(namespace, replace(wanted.run, thread=number), 0)
            *indexed, until, lease, _, packed, checksum = columns[2:]
            # A lease that continues never ends earlier than before; the statement keeps the later end.
            record = (*indexed, until, lease, wanted.run.status == "running", packed, checksum)
        entries = rows.store_entries(number, last, wanted.entries)
        self._has_guarded = True
        args += (*record, last, len(entries.new), *arrays(entries.changed), *arrays(entries.new))
        return "commit_in_run", args

    def guarded_answer(self) -> Position:
        expect = self._wanted.expect
        return self._answer(0 if expect is None else expect.thread)

    # -- in a transaction: SQLite always, PostgreSQL if there is no guarded statement or it changed nothing -----------

    def run(self, tx: Transaction) -> Position:
        wanted, expect = self._wanted, self._wanted.expect
        queries: list[Query] = []
        if self._bases or wanted.blobs:
            queries = [*(("checkpoint", (key(*base),)) for base in self._bases), *blobs.queries_for(tx, wanted.blobs)]
        run = NO_RUN
        threads: dict[int, StoredThread] = {}
        stored: list[list[Row]] = []
        if expect is None:
            number, threads, stored = self._create(tx, *queries)
        elif (
            # The thread and others that are used are locked in the order of their numbers.
            self._has_guarded
            or self._others
            # A new run is recorded in the thread's row.
            or (wanted.run is not None and wanted.fence is None)
            # If this UPDATE advances the thread, its row need not be read.
            or tx.change("advance_thread", *rows.advanced(tx.namespace, wanted, expect)) != 1
        ):
            number = expect.thread
            run, threads, stored = self._advance(tx, expect, *queries)
        else:
            number = expect.thread
            if wanted.fence is not None or wanted.run is not None or wanted.last_entry is not None:
                run = lock_run(tx, number)
                rules.check_commit(run.row, wanted, tx.clock)
            if self._used or queries:
                threads, stored = lock_threads(tx, self._used, *queries)
        for base, found in zip(self._bases, stored, strict=False):
            thread = threads.get(base[0])
            if thread is None or thread.name is None or not found or read_checkpoint(*found[0]).deleted:
                raise rules.base_deleted()
        origins = self._others.intersection(wanted.origins)
        if not origins <= threads.keys():
            raise rules.origin_dropped()
        if wanted.blobs:
            blobs.keep(tx, wanted.blobs, self._packed, stored[len(self._bases) :])
        tx.put("insert_checkpoint", *self._prepared.columns(number))
        for origin in sorted(origins):
            tx.put("insert_fork", origin, number)
        if origins:
            # The blobs of the origins are not stamped: a sweep must record them before any are dropped.
            tx.put("mark_unswept", number, b"")
        if wanted.entries or wanted.run is not None or wanted.last_entry is not None:
            self._write_run(tx, number, run)
        return self._answer(number)

    def find_result(self, tx: Transaction) -> Done[Position] | None:
        wanted, expect = self._wanted, self._wanted.expect
        if expect is None:
            [found] = tx.ask(reads.query_for_number(tx.namespace, to_bytes(wanted.name)))
            number = reads.number_found(found)
        else:
            number = expect.thread
        threads, (stored,) = lock_threads(tx, [number], ("checkpoint", (key(number, wanted.row.seq),)))
        if number not in threads or threads[number].name is None:
            if expect is None:
                return None
            raise OutcomeUnknown(
                "the connection was lost during a commit, and the thread was dropped since, so the save may or may "
                "not have happened"
            )
        if not stored:
            return None
        row = read_checkpoint(*stored[0])
        if (row.id, row.digest, row.move) != (wanted.row.id, wanted.row.digest, wanted.row.move):
            return None
        return Done(self._answer(number))

    # -- parts ------------------------------------------------------------------------------------------------------

    def _answer(self, number: int) -> Position:
        row = self._wanted.row
        return Position(number, row.seq, row.move, row.seq)

    def _create(self, tx: Transaction, *more: Query) -> tuple[int, dict[int, StoredThread], list[list[Row]]]:
        wanted = self._wanted
        name = to_bytes(wanted.name)
        take = ("next_thread_number", (tx.namespace, name_digest(tx.namespace, name)))
        by_name = reads.query_for_number(tx.namespace, name)
        threads, (found, taken, *stored) = lock_threads(tx, self._used, by_name, take, *more)
        rules.check_commit(None, wanted, tx.clock)
        if reads.number_found(found) or not taken:
            raise rules.thread_exists()
        [(number,)] = taken
        if number > MAX_THREAD:
            raise TooLarge("the store has no thread numbers left; nothing was stored")
        tx.put("insert_thread", *rows.new_thread(number, tx.namespace, wanted).columns())
        if wanted.key is not None:
            insert_key(tx, wanted.key, number)
        return number, threads, stored

    def _advance(
        self, tx: Transaction, expect: Position, *more: Query
    ) -> tuple[StoredRun, dict[int, StoredThread], list[list[Row]]]:
        wanted, at = self._wanted, expect.thread
        threads, run, (newest, *stored) = lock_thread_and_run(tx, at, ("newest", (at,)), *more, others=self._used)
        # The run is checked first, so that a process that lost its lease gets `LeaseLost`, not `Conflict`.
        rules.check_commit(run.row, wanted, tx.clock)
        thread = _require_at(threads.get(at), expect, to_bytes(wanted.name), newest)
        thread.advance(wanted)
        tx.put("update_thread", *thread.changes())
        if wanted.run is not None and run.row is None:
            thread.add_run()
            tx.put("count_deleted", at, thread.deleted, thread.deleted_checksum)
        return run, threads, stored

    def _write_run(self, tx: Transaction, number: int, run: StoredRun) -> None:
        wanted = self._wanted
        last = rules.newest_seen(wanted)
        rules.require_entries(number, run.last, wanted.entries, last)
        entries = rows.store_entries(number, last, wanted.entries)
        put_entries(tx, number, entries)
        newest = run.last + len(entries.new)
        if wanted.run is not None:
            row = replace(wanted.run, thread=number)
            put_run(tx, row if run.row is None else rules.keep_lease(run.row, row), newest)
        elif entries.new:
            tx.put("count_entries", number, newest)


class JointWrite(StoreWrite[list[Position]]):
    """Commits of different threads in one transaction.

    Two such writes do not wait for each other: they lock existing threads in the order of their numbers, then existing
    blobs in the order of their digests, then create threads in the order of their names. New blobs are the exception:
    if two writes insert the same ones, PostgreSQL may end one of them, and the writer tries it again.
    """

    def __init__(self, writes: Sequence[CommitWrite]) -> None:
        self.weight = sum([write.weight for write in writes])
        self._writes = writes
        self._in_order = sorted(writes, key=lambda write: write.place)

    def run(self, tx: Transaction) -> list[Position]:
        threads = _NO_THREADS.union(*(write.threads for write in self._writes))
        lock_threads(tx, threads, *blobs.queries_for(tx, [blob for write in self._writes for blob in write.blobs]))
        return self._listed([write.run(tx) for write in self._in_order])

    def find_result(self, tx: Transaction) -> Done[list[Position]] | None:
        found = [write.find_result(tx) for write in self._in_order]
        done = [each.answer for each in found if each is not None]
        if not done:
            return None
        if len(done) < len(found):
            raise OutcomeUnknown(
                "the connection was lost during a commit of several threads. They were saved, and a new one was "
                "dropped since."
            )
        return Done(self._listed(done))

    def _listed(self, positions: Sequence[Position]) -> list[Position]:
        """Positions that are in the order of the locks, put into the order of the commits."""
        found = dict(zip(map(id, self._in_order), positions, strict=True))
        return [found[id(write)] for write in self._writes]


class RewindWrite(StoreWrite[Position]):
    """Make an earlier checkpoint the head."""

    def __init__(self, expect: Position, *, to: int, summary: Summary) -> None:
        self._expect = expect
        self._to = to
        self._summary = summary

    def run(self, tx: Transaction) -> Position:
        expect, to = self._expect, self._to
        at = min(max(expect.thread, 0), MAX_THREAD)
        row_key = key(at, to if 1 <= to <= MAX_SEQ else 0)
        threads, run, (stored, newest) = lock_thread_and_run(
            tx, expect.thread, ("checkpoint", (row_key,)), ("newest", (at,))
        )
        if run.row is not None:
            rules.require_free(run.row, tx.clock(), _name_of(threads.get(at)))
        thread = _require_at(threads.get(at), expect, None, newest)
        if thread.move >= MAX_SEQ:
            raise TooLarge("a thread has at most 2**32 - 1 moves; nothing was changed")
        row = read_checkpoint(*stored[0]) if stored else None
        if row is None and 1 <= to <= thread.last:
            raise reads.missing(thread.thread_no, to)
        if row is None or row.deleted:
            raise rules.no_checkpoint(to)
        thread.head, thread.head_id = to, row.id
        thread.move += 1
        thread.show(self._summary)
        tx.put("insert_move", key(thread.thread_no, thread.move), to, self._summary.updated_at)
        tx.put("update_thread", *thread.changes())
        return thread.position()

    def find_result(self, tx: Transaction) -> Done[Position] | None:
        expect = self._expect
        _, (stored,) = lock_threads(tx, [expect.thread], ("move", (key(expect.thread, expect.move + 1),)))
        if stored != [(self._to, self._summary.updated_at)]:
            return None
        return Done(Position(expect.thread, self._to, expect.move + 1, expect.last))


class DeleteWrite(StoreWrite[int]):
    """Turn checkpoints into tombstones and count them. Their cells stay, because other checkpoints may use them."""

    def __init__(self, thread: int, seqs: Collection[int]) -> None:
        self.weight = len(seqs) * ROW_WEIGHT
        self._number = thread
        self._seqs = frozenset(seqs)
        self._deleted: list[int] = []

    def run(self, tx: Transaction) -> int:
        number = self._number
        thread = lock_threads(tx, [number])[0].get(number)
        if thread is None or thread.name is None:
            raise rules.no_thread(number)
        if thread.head in self._seqs:
            raise rules.head_protected()
        self._deleted = []
        row_keys = [key(number, seq) for seq in sorted(self._seqs) if 1 <= seq <= thread.last]
        for fields in _each(tx, row_keys):
            row = read_checkpoint(*fields)
            if not row.deleted:
                tx.rewrite_checkpoint(rows.tombstone(row).columns(fields[0]))
                self._deleted.append(fields[0])
        if self._deleted:
            thread.add_deleted(len(self._deleted))
            tx.put("count_deleted", number, thread.deleted, thread.deleted_checksum)
        return len(self._deleted)

    def find_result(self, tx: Transaction) -> Done[int] | None:
        """Done if every checkpoint to delete is a tombstone."""
        lock_threads(tx, [self._number])
        stored = _each(tx, self._deleted)
        if not stored or not all(read_checkpoint(*fields).deleted for fields in stored):
            return None
        return Done(len(self._deleted))


class DropWrite(StoreWrite[list[int]]):
    """Free a thread's name, which hides its checkpoints from all readers; return the threads whose cells it used."""

    def __init__(self, thread: int) -> None:
        self._number = thread

    def run(self, tx: Transaction) -> list[int]:
        threads, run, (origins,) = lock_thread_and_run(tx, self._number, ("origins", (self._number,)))
        thread = threads.get(self._number)
        if thread is None or thread.name is None:
            raise rules.no_thread(self._number)
        if run.row is not None:
            rules.require_free(run.row, tx.clock(), _name_of(thread))
        thread.name = thread.name_digest = thread.agent = thread.fence = None
        tx.put("delete_run", self._number)
        tx.put("forget_name", self._number, thread.checksum())
        return [origin for (origin,) in origins]

    def find_result(self, tx: Transaction) -> Done[list[int]] | None:
        threads, (origins,) = lock_threads(tx, [self._number], ("origins", (self._number,)))
        thread = threads.get(self._number)
        if thread is not None and thread.name is not None:
            return None
        return Done([origin for (origin,) in origins])


def _each(tx: Transaction, row_keys: Sequence[int]) -> list[Row]:
    found: list[Row] = []
    for start in range(0, len(row_keys), _CHUNK):
        answers = tx.ask(*(("checkpoint", (row_key,)) for row_key in row_keys[start : start + _CHUNK]))
        found += [row for answer in answers for row in answer]
    return found


def _name_of(thread: StoredThread | None) -> str | None:
    return None if thread is None or thread.name is None else rows.to_text(thread.name)


def _require_at(
    thread: StoredThread | None, expect: Position, name: bytes | None, newest: Sequence[Row]
) -> StoredThread:
    """The thread, if it is at the position that the caller expects; else `Conflict`."""
    if thread is None or thread.name is None or (name is not None and thread.name != name):
        raise rules.thread_changed()
    if thread.position() != expect:
        raise rules.thread_changed()
    if not newest or newest[0][0] != key(thread.thread_no, thread.last):
        raise thread.disagreeing(newest[0][0] if newest else None)
    return thread
