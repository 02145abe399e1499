"""Write verbs: check everything, then plan the lines to append. The rules of runs are those of every store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeVar, overload

import msgspec
from msgspec.structs import replace

from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.stores import contract as c
from holdfast.stores import handler_limits, rules
from holdfast.stores.contract_runs import ActClaim, ActRow, ClaimLimit, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.log.device import Moved, Version, limit_key
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.plan import LogVerbs, WritePlan, write
from holdfast.stores.log.replay import ReplayedThread
from holdfast.types import UNREADABLE

T = TypeVar("T")

_HELD: Final = "+held"  # the encoded name of a handler has no `+`


class WriteVerbs(LogVerbs):
    """The verbs that write to a thread, its run or its journal."""

    # -- history ----------------------------------------------------------------------------------------------------

    @overload
    def commit(self, commit: c.Commit, /) -> c.Position: ...

    @overload
    def commit(self, commit: Sequence[c.Commit], /) -> list[c.Position]: ...

    def commit(self, commit: c.Commit | Sequence[c.Commit]) -> c.Position | list[c.Position]:
        if not isinstance(commit, c.Commit):
            return [self.commit(rules.only(commit))]
        rules.check_form(commit)
        cells = [ln.sealed(cell) for append in commit.appends for cell in jsonl.show_cells(commit.row.seq, append)]
        return self._commit(commit, cells, jsonl.show_checkpoint(commit.row))

    @write
    def _commit(
        self, made: c.Commit, cells: Sequence[ln.Sealed], checkpoint: ln.CheckpointLine
    ) -> WritePlan[c.Position]:
        """Plan a commit, from the lines of it that were made without reading the store."""
        found = self._space.named(made.name)
        thread = found.thread if found is not None else None
        log = None if made.expect is None else self._log_of(made.expect.thread, found)
        rules.check_commit(None if log is None else log.thread.run, made, self._clock)
        if thread is not None and made.expect is None:
            raise rules.thread_exists()
        if (thread.position if thread is not None else None) != made.expect:
            raise rules.thread_changed()
        before = thread or ReplayedThread()
        new, used = self._used(made, found, before)
        _check_appends(made.appends, before)
        if made.entries or made.last_entry is not None:
            rules.require_entries(before.number, before.last_entry, made.entries, rules.newest_seen(made))

        number = before.number or self._space.free_number()
        lines = [*cells, *_shown(made.entries)]
        row = None
        if made.run is not None:
            row = replace(made.run, thread=number)
            row = rules.keep_lease(before.run, row) if before.run else row
            lines.append(ln.sealed(jsonl.show_run(row)))
        lines.append(ln.sealed(replace(checkpoint, origins=new) if new else checkpoint))
        at = ln.ThreadRecord(
            head=made.row.seq,
            id=made.row.id.hex(),
            move=made.row.move,
            last=made.row.seq,
            count=(thread.at.count if thread is not None else 0) + 1,
            summary=made.summary,
        )
        answer = c.Position(number, at.head, at.move, at.last)
        return WritePlan(
            answer,
            lines,
            at,
            log=found,
            creates=made.name if thread is None else None,
            number=number,
            blobs=made.blobs,
            used=used,
            entry=_newest(made.entries),
            key=made.key,
            run=row,
        )

    @write
    def rewind(self, expect: c.Position, *, to: int, summary: c.Summary) -> WritePlan[c.Position]:
        found = self._space.numbered(expect.thread)
        if found is None:
            raise rules.thread_changed()
        thread = found.thread
        rules.require_free(thread.run, self._clock(), thread.name)
        if thread.is_gone or thread.position != expect:
            raise rules.thread_changed()
        place = thread.rows.get(to)
        if place is None or thread.is_deleted(to):
            raise rules.no_checkpoint(to)
        id = jsonl.read_tombstone(found.line(place)).id.hex()
        at = replace(thread.at, head=to, id=id, move=thread.at.move + 1, summary=summary)
        answer = c.Position(thread.number, at.head, at.move, at.last)
        return WritePlan(answer, [ln.sealed(ln.RewindLine(to=to))], at, found)

    @write
    def delete(self, thread: int, seqs: Collection[int]) -> WritePlan[int]:
        found = self._space.numbered(thread)
        if found is None or found.thread.is_gone:
            raise rules.no_thread(thread)
        gone = sorted({seq for seq in seqs if found.thread.has(seq)})
        if found.thread.at.head in gone:
            raise rules.head_protected()
        if not gone:
            return WritePlan(0)
        self._space.interrupt_forks(found)
        at = replace(found.thread.at, count=found.thread.at.count - len(gone))
        return WritePlan(len(gone), [ln.sealed(ln.DeleteLine(seqs=tuple(gone)))], at, found)

    # -- runs -------------------------------------------------------------------------------------------------------

    def claim(self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> c.Claimed:
        return self._claim(expect, row, limit, [])

    @write
    def _claim(
        self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None, counted: list[bytes]
    ) -> WritePlan[c.Claimed]:
        """Plan a claim. `counted` is filled when it is counted in the rate of its handler: a second plan must not."""
        rules.check_claim(expect, row)
        found = self._space.numbered(row.thread)
        rules.require_expected(None if found is None else found.thread.run, expect)
        if found is None or found.thread.is_gone:
            raise rules.no_thread(row.thread)
        if limit is not None:
            self._count_claim(limit, row, counted)
        row = rules.start_lease(row, self._clock)
        return _put(found, row, [], c.Claimed(found.thread.position, row, found.thread.last_entry))

    def _count_claim(self, limit: ClaimLimit, row: RunRow, counted: list[bytes]) -> None:
        """`LimitReached` if the handler's limit does not allow a claim; else count the claim. Only in a turn."""
        trust, device = self._device.trust, self._device
        if trust is not None and trust.is_on():
            raise Moved  # the claim would be counted, and then planned again
        clock, key = self._clock(), limit_key(limit.handler)
        is_announced = limit.held is not None and trust is not None
        if is_announced:
            self._settle_claim(key + _HELD, row.thread)
        if limit.held is not None:
            runs = self._runs({"running"})
            own = [run for _, run in runs if run.status == "running" and rules.queue_of(run) == limit.handler]
            handler_limits.require_slot(limit, own, row.thread, clock)
        stored = None if limit.claims is None else device.get(key)
        window = None if counted else handler_limits.next_window(limit, stored, clock, self._wall())
        if window is not None:
            # Before the claim: if this process dies in between, the handler is started once less.
            device.put(key, [window])
            counted.append(window)
        if is_announced:
            device.put(key + _HELD, [msgspec.json.encode((row.thread, row.fence))])

    def _settle_claim(self, key: str, thread: int) -> None:
        """With several writers: make sure that the claim announced under a key was written, or is never written.

        A claim is counted among the runs of all threads, and written to the log of one. Two claims at a time would not
        count each other. So each is announced first, and the next one waits for it or prevents it.
        """
        try:
            other, fence = msgspec.json.decode(self._device.get(key) or b"[0,0]", type=tuple[int, int])
        except UNREADABLE:
            return
        self._space.decide(other, thread, lambda found: found.run_row is not None and found.run_row.fence >= fence)

    @write
    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> WritePlan[None]:
        found, run = self._fenced(thread, fence)
        kept = rules.renewed(run, until, progress)
        return WritePlan(None, [ln.sealed(jsonl.show_run(kept))], log=found, run=kept)

    @write
    def journal(
        self,
        thread: int,
        fence: int | None,
        entries: Sequence[Entry],
        *,
        last: int | None,
        run: RunRow | None = None,
        claims: Sequence[ActClaim] = (),
    ) -> WritePlan[None]:
        rules.check_journal(entries, last, run, thread, fence)
        acts = rules.claimed_acts(thread, entries, claims) if claims else []
        found, before = self._fenced(thread, fence)
        if entries or last is not None:  # a run whose journal is damaged can be released
            rules.require_entries(thread, found.thread.last_entry, entries, last)
        new: list[tuple[ActRow, ActRow | None]] = []
        for row, expect in acts:
            known = self._acts.decided(row.key, thread)
            rules.require_claim(known, row, expect)
            if known != row:
                new.append((row, known))
        return _put(found, None if run is None else rules.keep_lease(before, run), entries, None, new)

    @write
    def post(
        self,
        thread: int,
        row: Entry,
        *,
        status: EntryStatus | None = None,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> WritePlan[None]:
        rules.check_post(row, run, then)
        found = self._space.numbered(thread)
        if found is None:
            raise rules.no_run(thread)
        known = found.thread

        def status_of(number: int) -> str:
            return jsonl.read_entry(found.line(known.entry(number))).status

        rules.require_post(known.run, known.last_entry, row, status_of, thread=thread, status=status, run=run)
        return _put(found, then, [row], None)

    def put_act(self, key: bytes, expect: ActRow | None, row: ActRow | None) -> ActRow | None:
        rules.check_put_act(key, row)

        def put() -> ActRow | None:
            found = self._locks.look(lambda: self._acts.decided(key, 0))
            if found != expect:
                return found
            self._acts.put(key, row)
            return row

        return self._locks.write(put)

    # -- checks -----------------------------------------------------------------------------------------------------

    def _fenced(self, number: int, fence: int | None) -> tuple[ThreadLog, RunRow]:
        found = self._space.numbered(number)
        row = None if found is None else found.thread.run
        run = rules.require_run(number, row) if fence is None else rules.require_fence(row, fence)
        if found is None:
            raise rules.no_thread(number)
        return found, run

    def _log_of(self, number: int, at_hand: ThreadLog | None) -> ThreadLog | None:
        is_at_hand = at_hand is not None and at_hand.thread.number == number
        return at_hand if is_at_hand else self._space.numbered(number)

    def _used(
        self, made: c.Commit, found: ThreadLog | None, before: ReplayedThread
    ) -> tuple[tuple[int, ...], list[tuple[ThreadLog, Version]]]:
        """The new origins of a thread, and the logs with which to register it, as they were when they were checked."""
        used: dict[int, tuple[ThreadLog, Version]] = {}
        for number, seq in made.bases:
            base = self._log_of(number, found)
            if base is None or not base.thread.has(seq):
                raise rules.base_deleted()
            used.setdefault(number, (base, base.seen))
        origins: set[int] = set()
        for number in made.origins:
            origin = self._space.numbered(number)
            if origin is None:
                raise rules.origin_dropped()
            used.setdefault(number, (origin, origin.seen))
            origins |= {number} | origin.thread.origins
        new = sorted(origins - before.origins - {before.number})
        for number in new:
            # An origin of an origin does not exist if it was dropped and had no cells.
            origin = None if number in used else self._space.numbered(number)
            if origin is not None:
                used[number] = origin, origin.seen
        bases = set[int]() if self._device.trust is None else {number for number, _ in made.bases} - {before.number}
        return tuple(new), [each for number, each in used.items() if number in bases.union(new)]


def _put(
    found: ThreadLog,
    run: RunRow | None,
    entries: Sequence[Entry],
    answer: T,
    acts: Sequence[tuple[ActRow, ActRow | None]] = (),
) -> WritePlan[T]:
    """Plan to write journal entries and, if it is given, the record of a run with its status in listings."""
    plan = WritePlan(answer, _shown(entries), log=found, entry=_newest(entries), acts=acts, run=run)
    if run is not None:
        at = found.thread.at
        plan.at = replace(at, summary=replace(at.summary, status=run.status, updated_at=run.updated_at))
        plan.lines = [*plan.lines, ln.sealed(jsonl.show_run(run))]
    return plan


def _newest(entries: Sequence[Entry]) -> int:
    return max((entry.number for entry in entries), default=0)


def _shown(entries: Sequence[Entry]) -> list[ln.Sealed]:
    return [ln.sealed(jsonl.show_entry(entry)) for entry in entries]


def _check_appends(appends: Sequence[c.Append], thread: ReplayedThread) -> None:
    """`InvalidArgument` if an append overlaps existing cells, because spans over them would be ambiguous."""
    for append in appends:
        cells = thread.logs.get(append.log)
        if cells and append.cells and append.start <= cells.last:
            raise rules.cells_exist(append.log, append.start)
