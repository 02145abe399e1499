"""Rewind a thread, delete checkpoints, drop a thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy

from holdfast.errors import NotFound, Protected, TooLarge
from holdfast.stores import leases, rows
from holdfast.stores.contract import Position, Summary
from holdfast.stores.postgres.committing import require_at
from holdfast.stores.postgres.known import Known, KnownRun, KnownThread
from holdfast.stores.postgres.locking import changed_thread, hold, lock_threads, put_thread
from holdfast.stores.postgres.session import Transaction
from holdfast.stores.postgres.writer import Done, Fact, Plain, Quick, Slow
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD


class RewindWork(Slow[Position]):
    """Makes an earlier checkpoint the head."""

    def __init__(self, expect: Position, to: int, summary: Summary) -> None:
        self._expect = expect
        self._to = to
        self._summary = summary
        self._after: KnownThread | None = None
        self._run: KnownRun | None = None

    def run(self, session: Transaction) -> Position:
        number, to = self._expect.thread, self._to
        at = min(max(number, 0), MAX_THREAD)
        key = rows.key(at, to if 1 <= to <= MAX_SEQ else 0)
        thread, run, answers = hold(session, number, ("checkpoint", (key,)), ("newest", (at,)))
        if run.row is not None:
            leases.require_free(run.row, session.clock())
        require_at(thread, self._expect, None, answers[1][0][0])
        assert thread is not None  # noqa: S101 - its position was checked
        if thread.row.move >= MAX_SEQ:
            raise TooLarge("a thread has at most 2**32 - 1 moves; nothing was changed")
        found = rows.decode(*answers[0][0]) if answers[0] else None
        if found is None or found.deleted:
            raise NotFound(f"checkpoint {to} of the thread does not exist or was deleted; nothing was changed")
        row = copy(thread.row)
        row.head, row.head_id = to, found.id
        row.move += 1
        row.show(self._summary)
        self._after, self._run = changed_thread(row, thread.version), run
        session.put("insert_move", rows.key(number, row.move), to, self._summary.updated_at)
        put_thread(session, self._after)
        return row.position()

    def find(self, session: Transaction) -> Done[Position] | None:
        expect = self._expect
        _, (stored,) = lock_threads(session, [expect.thread], ("move", (rows.key(expect.thread, expect.move + 1),)))
        self._after = None
        if stored != [(self._to, self._summary.updated_at)]:
            return None
        return Done(Position(expect.thread, self._to, expect.move + 1, expect.last))

    def facts(self) -> Sequence[Fact]:
        if self._after is None or self._run is None:
            return ()
        return (Fact(self._after.row.thread_no, self._after, self._run),)


class DeleteWork(Plain[int]):
    """Turns checkpoints into tombstones and counts them. Their cells stay, because other checkpoints may use them."""

    def __init__(self, number: int, seqs: Collection[int]) -> None:
        super().__init__(self._delete)
        self._number = number
        self._seqs = frozenset(seqs)
        self._buried: list[int] = []

    def find(self, session: Transaction) -> Done[int] | None:
        """Done if every checkpoint to delete is a tombstone."""
        _, (stored,) = lock_threads(session, [self._number], ("checkpoints_of", (self._buried,)))
        if not stored or not all(rows.decode(*fields).deleted for fields in stored):
            return None
        return Done(len(self._buried))

    def _delete(self, session: Transaction) -> int:
        number = self._number
        keys = [rows.key(number, seq) for seq in sorted(self._seqs) if 1 <= seq <= MAX_SEQ]
        threads, (stored,) = lock_threads(session, [number], ("checkpoints_of", (keys,)))
        known = threads.get(number)
        if known is None or known.row.name is None:
            raise NotFound(f"the thread with number {number} does not exist; nothing was changed")
        if known.row.head in self._seqs:
            raise Protected(
                "the head of a thread cannot be deleted; nothing was changed. Rewind or drop the thread instead."
            )
        self._buried = []
        for fields in stored:
            row = rows.decode(*fields)
            if not row.deleted:
                stone, key = rows.tombstone(row), fields[0]
                columns = (stone.step, stone.label, stone.sealed(key), stone.meta, stone.refs, stone.skeleton)
                session.put("bury", key, *columns)
                self._buried.append(key)
        if self._buried:
            after = copy(known.row)
            after.count -= len(self._buried)
            put_thread(session, changed_thread(after, known.version))
        return len(self._buried)


class DropWork(Slow[list[int]]):
    """Frees a thread's name, which hides its checkpoints from all readers; returns the threads whose cells it used."""

    def __init__(self, number: int) -> None:
        self._number = number

    def quick(self, known: Known) -> Quick | None:
        known.forget(self._number)
        return None

    def run(self, session: Transaction) -> list[int]:
        thread, run, (origins,) = hold(session, self._number, ("origins", (self._number,)))
        if thread is None or thread.row.name is None:
            raise NotFound(f"the thread with number {self._number} does not exist; nothing was changed")
        if run.row is not None:
            leases.require_free(run.row, session.clock())
        row = copy(thread.row)
        row.name = row.name_hash = row.agent = None
        row.count = 0
        session.put("delete_run", self._number)
        session.put("forget_name", self._number, row.checksum())
        return [origin for (origin,) in origins]

    def find(self, session: Transaction) -> Done[list[int]] | None:
        threads, (origins,) = lock_threads(session, [self._number], ("origins", (self._number,)))
        known = threads.get(self._number)
        if known is not None and known.row.name is not None:
            return None
        return Done([origin for (origin,) in origins])
