"""Write verbs: check everything, then plan the lines to append. The rules of runs are those of every store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from holdfast.errors import InvalidArgument
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.contract_runs import Entry, EntryStatus, Progress, RunRow
from holdfast.stores.log.namespace import ThreadLog
from holdfast.stores.log.plan import LogVerbs, WritePlan, write
from holdfast.stores.log.replay import ReplayedThread

T = TypeVar("T")


class PreparedCommit(NamedTuple):
    """A commit, with the lines that can be made without reading the store."""

    commit: c.Commit
    cells: Sequence[ln.Sealed]
    line: ln.CheckpointLine


class WriteVerbs(LogVerbs):
    """The verbs that write to a thread, its run or its journal."""

    # -- history ----------------------------------------------------------------------------------------------------

    def commit(self, commit: c.Commit) -> c.Position:
        rules.check_form(commit)
        cells = [ln.sealed(cell) for run in commit.appends for cell in jsonl.show_cells(commit.row.seq, run)]
        return self._commit(PreparedCommit(commit, cells, jsonl.show_checkpoint(commit.row)))

    @write
    def _commit(self, prepared: PreparedCommit) -> WritePlan[c.Position]:
        made = prepared.commit
        found = self._space.named(made.name)
        thread = found.thread if found is not None else None
        self._check_run(made, found)
        if thread is not None and made.expect is None:
            raise rules.thread_exists()
        if (thread.position if thread is not None else None) != made.expect:
            raise rules.thread_changed()
        if not all(self._has(number, seq, found) for number, seq in made.bases):
            raise rules.base_deleted()
        origins = self._origins(made)
        before = thread or ReplayedThread()
        _check_appends(made.appends, before)
        _check_numbers(before, made.entries)

        number = before.number or self._space.free_number()
        lines = list(prepared.cells)
        entries, numbers = _numbered(before, made.entries)
        lines += [ln.sealed(jsonl.show_entry(entry)) for entry in entries]
        if made.run is not None:
            row = replace(made.run, thread=number)
            lines.append(ln.sealed(jsonl.show_run(rules.keep_lease(before.run, row) if before.run else row)))
        new = tuple(sorted(origin for origin in origins if origin not in before.origins and origin != number))
        lines.append(ln.sealed(replace(prepared.line, origins=new) if new else prepared.line))
        at = ln.Stand(
            head=made.row.seq,
            id=made.row.id.hex(),
            move=made.row.move,
            last=made.row.seq,
            count=(thread.at.count if thread is not None else 0) + 1,
            summary=made.summary,
        )
        answer = c.Position(number, at.head, at.move, at.last)
        creates = made.name if thread is None else None
        return WritePlan(answer, lines, at, found, creates, number, made.blobs, new, max(numbers, default=0))

    @write
    def rewind(self, expect: c.Position, *, to: int, summary: c.Summary) -> WritePlan[c.Position]:
        found = self._space.numbered(expect.thread)
        if found is None:
            raise rules.thread_changed()
        thread = found.thread
        rules.require_free(thread.run, self._clock())
        if thread.is_gone or thread.position != expect:
            raise rules.thread_changed()
        if not thread.has(to):
            raise rules.no_checkpoint(to)
        at = replace(thread.at, head=to, id=thread.rows[to].head.id, move=thread.at.move + 1, summary=summary)
        answer = c.Position(thread.number, at.head, at.move, at.last)
        return WritePlan(answer, [ln.sealed(ln.RewindLine(to=to))], at, found)

    @write
    def delete(self, thread: int, seqs: Collection[int]) -> WritePlan[int]:
        found = self._there(thread)
        if found.thread.is_gone:
            raise rules.no_thread(thread)
        gone = sorted({seq for seq in seqs if found.thread.has(seq)})
        if found.thread.at.head in gone:
            raise rules.head_protected()
        if not gone:
            return WritePlan(0)
        at = replace(found.thread.at, count=found.thread.at.count - len(gone))
        return WritePlan(len(gone), [ln.sealed(ln.DeleteLine(seqs=tuple(gone)))], at, found)

    # -- runs -------------------------------------------------------------------------------------------------------

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        rules.check_claim(expect, row)
        self._claim(expect, row)

    @write
    def _claim(self, expect: RunRow | None, row: RunRow) -> WritePlan[None]:
        found = self._space.numbered(row.thread)
        rules.require_expected(self._run_of(row.thread), expect)
        if found is None or found.thread.is_gone:
            raise rules.no_thread(row.thread)
        return _put(found, row, [], None)

    @write
    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> WritePlan[None]:
        run = rules.require_fence(self._run_of(thread), fence)
        kept = rules.renewed(run, until, progress)
        return WritePlan(None, [ln.sealed(jsonl.show_run(kept))], log=self._there(thread))

    @write
    def update_run(self, row: RunRow) -> WritePlan[None]:
        before = rules.require_fence(self._run_of(row.thread), row.fence)
        return _put(self._there(row.thread), rules.keep_lease(before, row), [], None)

    @write
    def suspend(self, row: RunRow, entry: Entry | None, last: int) -> WritePlan[int]:
        before = rules.require_fence(self._run_of(row.thread), row.fence)
        found = self._there(row.thread)
        rules.require_last(found.thread.last_entry, last)
        entries = [] if entry is None else [entry]
        _check_numbers(found.thread, entries)
        written, numbers = _numbered(found.thread, entries)
        [question] = numbers or [0]
        kept = rules.keep_lease(before, replace(row, question=question))
        return _put(found, kept, written, question)

    @write
    def journal(self, thread: int, fence: int, rows: Sequence[Entry]) -> WritePlan[list[int]]:
        rules.require_fence(self._run_of(thread), fence)
        found = self._there(thread)
        _check_numbers(found.thread, rows)
        written, numbers = _numbered(found.thread, rows)
        return WritePlan(numbers, _shown(written), log=found, entry=max(numbers, default=0))

    @write
    def post(self, thread: int, row: Entry, *, last: int | None = None, run: RunRow | None = None) -> WritePlan[int]:
        current = self._run_of(thread)
        if current is None:
            raise rules.no_run(thread)
        found = self._there(thread)
        if last is not None:
            rules.require_last(found.thread.last_entry, last)
        if run is not None:
            rules.require_expected(current, run)
        written, [number] = _numbered(found.thread, [replace(row, number=0)])
        return WritePlan(number, _shown(written), log=found, entry=number)

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
        self._settle(thread, number, expect, row, run, then)

    @write
    def _settle(
        self, thread: int, number: int, expect: EntryStatus, row: Entry, run: RunRow | None, then: RunRow | None
    ) -> WritePlan[None]:
        found = self._space.numbered(thread)
        known = found.thread if found is not None else ReplayedThread(number=thread)
        if found is None or not 1 <= number <= known.last_entry:
            raise rules.no_entry(thread, number)
        entry = known.entries.get(number)
        if entry is None:
            raise known.missing(f"journal entry {number}")
        if entry.status != expect or (run is not None and known.run != run):
            raise rules.settled_otherwise()
        settled = [replace(row, number=number)]
        if then is not None:
            return _put(found, then, settled, None)
        return WritePlan(None, _shown(settled), log=found, entry=number)

    # -- checks -----------------------------------------------------------------------------------------------------

    def _there(self, number: int) -> ThreadLog:
        found = self._space.numbered(number)
        if found is None:
            raise rules.no_thread(number)
        return found

    def _run_of(self, number: int) -> RunRow | None:
        found = self._space.numbered(number)
        return None if found is None else found.thread.run

    def _has(self, number: int, seq: int, at_hand: ThreadLog | None) -> bool:
        is_at_hand = at_hand is not None and at_hand.thread.number == number
        found = at_hand if is_at_hand else self._space.numbered(number)
        return found is not None and found.thread.has(seq)

    def _origins(self, made: c.Commit) -> set[int]:
        origins: set[int] = set()
        for number in made.origins:
            found = self._space.numbered(number)
            if found is None:
                raise rules.origin_dropped()
            origins |= {number} | found.thread.origins
        return origins

    def _check_run(self, made: c.Commit, found: ThreadLog | None) -> None:
        if made.expect is None:
            run = None
        elif found is not None and found.thread.number == made.expect.thread:
            run = found.thread.run
        else:
            run = self._run_of(made.expect.thread)
        rules.check_commit(run, made, self._clock)


def _put(found: ThreadLog, row: RunRow, entries: Sequence[Entry], answer: T) -> WritePlan[T]:
    """Plan to replace the record of a run, and its status in listings."""
    at = found.thread.at
    shown = replace(at, summary=replace(at.summary, status=row.status, updated_at=row.updated_at))
    lines = [*_shown(entries), ln.sealed(jsonl.show_run(row))]
    return WritePlan(answer, lines, shown, found, entry=max((entry.number for entry in entries), default=0))


def _shown(entries: Sequence[Entry]) -> list[ln.Sealed]:
    return [ln.sealed(jsonl.show_entry(entry)) for entry in entries]


def _numbered(thread: ReplayedThread, rows: Sequence[Entry]) -> tuple[list[Entry], list[int]]:
    """Entries with numbers assigned, and those numbers."""
    last = thread.last_entry if rows else 0
    entries: list[Entry] = []
    for row in rows:
        if not row.number:
            last += 1
        entries.append(row if row.number else replace(row, number=last))
    return entries, [entry.number for entry in entries]


def _check_numbers(thread: ReplayedThread, rows: Sequence[Entry]) -> None:
    for row in rows:
        if row.number and not 1 <= row.number <= thread.last_entry:
            raise rules.no_entry(thread.number, row.number)


def _check_appends(runs: Sequence[c.Append], thread: ReplayedThread) -> None:
    """`InvalidArgument` if an append overlaps existing cells, because spans over them would be ambiguous."""
    for run in runs:
        cells = thread.logs.get(run.log)
        if cells and run.cells and run.start <= cells[-1].at:
            raise InvalidArgument(f"log {run.log} already has cells at {run.start}; nothing was stored")
