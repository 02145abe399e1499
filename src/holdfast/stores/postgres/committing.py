"""Commits: one guarded statement if the thread's row is cached, otherwise a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.errors import AlreadyExists, Conflict, Damaged, OutcomeUnknown
from holdfast.stores import entries, leases, preparing, rows, segment
from holdfast.stores.contract import Commit, Position
from holdfast.stores.entries import Entries
from holdfast.stores.postgres import reading, values
from holdfast.stores.postgres.known import NO_RUN, Known, KnownRun, KnownThread
from holdfast.stores.postgres.locking import (
    changed_run,
    changed_thread,
    changes_of,
    checked_run,
    entries_of,
    is_due,
    lock_threads,
    put_run,
    put_thread,
    recounted_run,
)
from holdfast.stores.postgres.schema import Statements
from holdfast.stores.postgres.session import Query, Transaction
from holdfast.stores.postgres.writer import Done, Fact, Quick
from holdfast.stores.preparing import Prepared
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD


class _Held(NamedTuple):
    """The rows that a commit depends on, read and locked until it is done."""

    thread: KnownThread | None
    threads: dict[int, KnownThread]  # the thread, and the others whose cells the commit reuses
    run: KnownRun
    bases: Sequence[Any]
    values: Sequence[Any]
    number: int  # the newest key of the thread's checkpoints; for a new thread, its number


class CommitWork:
    """A prepared commit."""

    def __init__(self, namespace: bytes, prepared: Prepared, sql: Statements) -> None:
        self._namespace = namespace
        self._prepared = prepared
        self._wanted: Commit = prepared.commit
        self._sql = sql
        self._after: KnownThread | None = None
        self._run: KnownRun | None = None

    # -- as one statement ---------------------------------------------------------------------------------------------

    def quick(self, known: Known) -> Quick | None:
        wanted, expect = self._wanted, self._wanted.expect
        if (
            expect is None
            or wanted.blobs
            or any(origin != expect.thread for origin in wanted.origins)
            or any(base != (expect.thread, expect.head) for base in wanted.bases)
            or (wanted.run is not None and (wanted.fence is None or is_due(wanted.run)))
        ):
            return None
        found = known.get(expect.thread)
        if found is None or found[0] is None:
            return None
        thread, run = found
        assert thread is not None  # noqa: S101 - for the type checker, which does not follow the tuple
        if thread.row.position() != expect or thread.row.name != rows.to_bytes(wanted.name):
            return None
        held = run.row is not None and run.row.status == "running"
        if (held and run.row is not None and run.row.fence == wanted.fence) if wanted.fence is not None else not held:
            return self._quick(thread, run)
        return None

    def _quick(self, thread: KnownThread, run: KnownRun) -> Quick:
        wanted = self._wanted
        self._after = _moved(thread, wanted)
        number = thread.row.thread_no
        values_ = (*changes_of(self._after), thread.version, thread.checksum, *self._checkpoint(number))
        if not wanted.entries and wanted.run is None:
            self._run = run
            return self._sql["quick_commit"], values_
        written, self._run = self._of_run(number, run)
        before, after = run.columns, self._run.columns
        assert before is not None  # noqa: S101 - a run that is running is stored
        assert after is not None  # noqa: S101
        of_run = (*after[2:], self._run.version, run.version, before[-1])
        return self._sql["quick_commit_of_run"], (
            *values_,
            *of_run,
            *columns_of(written.changed),
            *columns_of(written.new),
        )

    def quick_answer(self) -> Position:
        assert self._after is not None  # noqa: S101 - the quick write was made from it
        return self._after.row.position()

    # -- in a transaction -------------------------------------------------------------------------------------------

    def run(self, session: Transaction) -> Position:
        wanted, expect = self._wanted, self._wanted.expect
        held = self._lock(session)
        threads, run = held.threads, held.run
        leases.check_commit(run.row, wanted, session.clock)
        if expect is None:
            row = preparing.new_thread(held.number, self._namespace, wanted)
            after = KnownThread(row, row.checksum(), 1)
        else:
            after = _moved(require_at(held.thread, expect, rows.to_bytes(wanted.name), held.number), wanted)
        number = after.row.thread_no
        self._require_bases(threads, held.bases)
        origins = [origin for origin in wanted.origins if origin != number]
        for origin in origins:
            if origin not in threads:
                raise Conflict(
                    "a thread whose cells this commit uses no longer exists; nothing was stored. "
                    "Call latest() and save again."
                )
        written, changed = self._of_run(number, run) if wanted.entries or wanted.run else (None, run)
        values.keep(session, wanted.blobs, self._prepared.values, held.values)
        if expect is None:
            session.put("insert_thread", *_columns(after, self._namespace))
        else:
            put_thread(session, after)
        session.put("insert_checkpoint", *self._checkpoint(number))
        for origin in origins:
            session.put("insert_fork", origin, number)
        if written is not None:
            put_run(session, run, changed)
            put_entries(session, written)
        self._after, self._run = after, changed
        return after.row.position()

    def find(self, session: Transaction) -> Done[Position] | None:
        wanted, expect = self._wanted, self._wanted.expect
        if expect is None:
            [answer] = session.ask(reading.look_up_number(self._namespace, rows.to_bytes(wanted.name)))
            number = reading.looked_up_number(answer)
        else:
            number = expect.thread
        threads, (stored,) = lock_threads(session, [number], ("checkpoint", (rows.key(number, wanted.row.seq),)))
        self._after = self._run = None
        if number not in threads or threads[number].row.name is None:
            if expect is None:
                return None
            raise OutcomeUnknown(
                "the connection was lost during a commit, and the thread was dropped since, so the save may or may "
                "not have happened"
            )
        if not stored:
            return None
        row = rows.decode(*stored[0])
        if (row.id, row.digest, row.move) != (wanted.row.id, wanted.row.digest, wanted.row.move):
            return None
        return Done(Position(number, row.seq, row.move, row.seq))

    def facts(self) -> Sequence[Fact]:
        if self._after is None or self._run is None:
            return ()
        return (Fact(self._after.row.thread_no, self._after, self._run),)

    # -- parts ------------------------------------------------------------------------------------------------------

    def _lock(self, session: Transaction) -> _Held:
        wanted, expect = self._wanted, self._wanted.expect
        # The head cannot be deleted, so checking the position was enough.
        bases = [base for base in wanted.bases if expect is None or base != (expect.thread, expect.head)]
        needed = {*wanted.origins, *(thread for thread, _ in bases)}
        more: list[Query] = [("checkpoints_of", ([rows.key(*base) for base in bases if _is_key(*base)],))]
        more += values.questions(self._namespace, wanted.blobs)
        if expect is None:
            name = rows.to_bytes(wanted.name)
            look_up = reading.look_up_number(self._namespace, name)
            take = ("next_thread_number", (self._namespace, reading.name_digest(self._namespace, name)))
            threads, (found, number, stored, *of_values) = lock_threads(session, needed, look_up, take, *more)
            if wanted.fence is not None:
                leases.require_fence(None, wanted.fence)
            if reading.looked_up_number(found) or not number:
                raise AlreadyExists("a thread with that name already exists; nothing was stored")
            return _Held(None, threads, NO_RUN, stored, of_values, number[0][0])
        at = expect.thread
        threads, (run, last, newest, stored, *of_values) = lock_threads(
            session, {at, *needed}, ("lock_run", (at,)), ("last_effect", (at,)), ("newest", (at,)), *more
        )
        checked = checked_run(self._namespace, at, run, last)
        return _Held(threads.get(at), threads, checked, stored, of_values, newest[0][0])

    def _require_bases(self, threads: dict[int, KnownThread], stored: Sequence[Any]) -> None:
        expect = self._wanted.expect
        there = {row[0] for row in stored if not rows.decode(*row).deleted}
        for thread, seq in self._wanted.bases:
            if expect is not None and (thread, seq) == (expect.thread, expect.head):
                continue
            known = threads.get(thread)
            if known is None or known.row.name is None or rows.key(thread, seq) not in there:
                raise Conflict(
                    "a checkpoint whose cells this commit reuses was deleted; nothing was stored. "
                    "Call latest() and save again."
                )

    def _checkpoint(self, number: int) -> tuple[Any, ...]:
        prepared, row = self._prepared, self._prepared.row
        key = rows.key(number, self._wanted.row.seq)
        cells = None if prepared.cells is None else segment.seal(prepared.cells, rows.context(key))
        return key, row.step, row.label, row.sealed(key), row.meta, row.refs, row.skeleton, cells

    def _of_run(self, number: int, run: KnownRun) -> tuple[Entries, KnownRun]:
        """The journal entries of the commit, and the changed row of its run."""
        wanted = self._wanted
        written = entries.encode(number, entries_of(run), wanted.entries)
        if wanted.run is None:
            return written, recounted_run(run, written.last)
        row = replace(wanted.run, thread=number)
        if run.row is not None:
            row = leases.keep_lease(run.row, row)
        return written, changed_run(self._namespace, run, row, written.last)


def require_at(
    found: KnownThread | None, expect: Position | None, name: bytes | None, newest: int | None
) -> KnownThread:
    """The thread, if it is at the position that the caller expects; else `Conflict`."""
    if found is None or found.row.name is None or (name is not None and found.row.name != name):
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    thread = found.row
    if expect is None or thread.position() != expect:
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    if newest != rows.key(thread.thread_no, thread.last):
        raise Damaged(
            f"the record of {thread.shown} does not match its checkpoints; run hf.verify() to see what is affected"
        )
    return found


def columns_of(written: Sequence[entries.EffectColumns]) -> tuple[list[int], list[bytes], list[bytes | None]]:
    """Journal entries as one array per column. If several have the same number, the last one counts."""
    last = {row[0]: row for row in written}.values()
    return [row[0] for row in last], [row[1] for row in last], [row[2] for row in last]


def put_entries(session: Transaction, written: Entries) -> None:
    if written.changed:
        session.put("update_effects", *columns_of(written.changed))
    if written.new:
        session.put("insert_effects", *columns_of(written.new))


def _moved(known: KnownThread, wanted: Commit) -> KnownThread:
    row = copy(known.row)
    preparing.advance(row, wanted)
    return changed_thread(row, known.version)


def _columns(known: KnownThread, namespace: bytes) -> tuple[Any, ...]:
    row = known.row
    fields = tuple(getattr(row, name) for name in row.__struct_fields__)
    return *fields, known.checksum, known.version, reading.name_digest(namespace, row.name or b"")


def _is_key(thread: int, seq: int) -> bool:
    return 1 <= thread <= MAX_THREAD and 1 <= seq <= MAX_SEQ
