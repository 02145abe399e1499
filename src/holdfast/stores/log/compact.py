"""Remove what is no longer needed: dead cells, dropped threads, unused blobs.

A sweep records dead cells in the log. A rewrite leaves them out: it copies a log while writers continue, then replaces
it in one step. Readers of the old log continue to read it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from holdfast.errors import Damaged, HoldfastError, NewerFormat, StoreError
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.lines import Damage
from holdfast.intervals import Intervals
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.log import disk
from holdfast.stores.log.device import Moved, dropped_key
from holdfast.stores.log.namespace import Namespace, ThreadLog
from holdfast.stores.log.plan import LogVerbs, WritePlan, write
from holdfast.stores.log.replay import Cell, ReplayedThread
from holdfast.stores.segments import live_ranges

# A sweep rewrites a log when more than half of it is dead, so that rewrites cost no more than the appends did.
_WORTH_REWRITING: Final = 64 << 10
_AT_ONCE: Final = 16 << 20
_NEVER: Final = 1 << 62  # a seq that no sweep reads: the thread's last one is not known
_LOST_LINE: Final = "z"  # the letter for a damaged line in the composition of a group
_BEYOND: Final = ("freed disk blocks that are not overwritten yet, file system snapshots, and backups",)


class CompactVerbs(LogVerbs):
    """The verbs that remove data."""

    @contextmanager
    def _maintaining(self) -> Generator[Namespace]:
        """Use of what the handle has read, with permission to write."""
        with self._locks.to_write(), self._locks.writing(), self._locks.to_look(), self._locks.looking():
            self._space.keep_ledger()
            yield self._space

    # -- threads ----------------------------------------------------------------------------------------------------

    def drop(self, thread: int) -> None:
        with self._locks.to_write(), self._locks.writing():
            affected = self._carry_out(lambda: self._plan_drop(thread))
            # The thread is gone for every reader. If this fails half-way, `reclaim` finishes it.
            with self._locks.to_look(), self._locks.looking():
                self._space.keep_ledger()
                for number in affected:
                    with suppress(HoldfastError, OSError, Moved):
                        self._remove_dropped(number)

    def _plan_drop(self, number: int) -> WritePlan[list[int]]:
        """Plan to drop a thread. The result is the list of threads that may no longer be needed."""
        found = self._space.numbered(number)
        if found is None or found.thread.is_gone:
            raise rules.no_thread(number)
        rules.require_free(found.thread.run, self._clock())
        affected = [number, *sorted(found.thread.origins)]
        return WritePlan(affected, [ln.sealed(ln.DropLine())], found.thread.at, found)

    def _remove_dropped(self, number: int) -> None:
        """Remove a dropped thread, or keep it under its number if its cells are needed.

        `Damaged`, with the cells kept, if it is not known whether they are needed.
        """
        space = self._space
        found = space.numbered(number)
        if found is None or not found.thread.is_gone:
            return
        space.settle_users(number)
        try:
            is_needed = any(found.thread.logs.values()) and bool(space.forks(number))
        except Damaged:
            self._lay_aside(found)
            raise
        if is_needed:
            self._lay_aside(found)
            return
        for key in (found.key, dropped_key(number)):
            space.forget(key)
            space.device.delete(key)

    def _lay_aside(self, log: ThreadLog) -> None:
        space, key = self._space, dropped_key(log.thread.number)
        if log.key == key:
            return
        self._adopt(log.thread.number)
        if space.is_lazy:
            log.sync()
        if space.device.log(key).stat() is None:
            size = log.seen.size
            space.device.create(key, (log.get(at, min(_AT_ONCE, size - at)) for at in range(0, size, _AT_ONCE)))
        space.forget(log.key)
        space.device.delete(log.key)

    # -- blobs ------------------------------------------------------------------------------------------------------

    def start_epoch(self) -> int:
        with self._maintaining() as space:
            epoch = space.ledger.epoch + 1
            space.note(ln.EpochLine(epoch=epoch))
            return epoch

    def sweep_blobs(self, epoch: int) -> c.Collected:
        with self._locks.to_write(), self._locks.writing():
            with self._locks.to_look(), self._locks.looking():
                self._space.keep_ledger()
                found = [log.thread for log in self._space.all_read()]
                threads = {
                    thread.number: (thread.at.last if _can_be_rewritten(thread) else _NEVER, bool(thread.origins))
                    for thread in found
                    if not thread.is_gone or any(thread.logs.values())
                }
                if unswept := self._sweeps.unswept(epoch, threads):
                    return c.Collected(unswept=unswept)
                self._space.settle()
            used = self._sweeps.used()
            keep = {digest.hex() for digest in used}
            stamps = self._space.ledger.stamps
            dead = [digest for digest in self._blobs.all() if digest not in keep and stamps.get(digest, 0) < epoch]
            for digest in dead:
                self._blobs.remove(digest)
            return c.Collected(frozenset(map(bytes.fromhex, dead)), used)

    # -- cells ------------------------------------------------------------------------------------------------------

    def sweep(self, thread: int, live: c.Live) -> c.Swept:
        if live.blobs is not None:
            return self._sweep_whole(thread, live)
        with self._maintaining() as space:
            space.settle_users(thread)
        dropped = self._sweep(thread, live)
        with self._maintaining():
            self._remove_dropped(thread)
            rewriting = self._rewriting_of(thread)
        if rewriting is not None:
            self._rewrite(rewriting)
        return c.Swept(dropped=dropped)

    def _sweep_whole(self, thread: int, live: c.Live) -> c.Swept:
        """Rewrite the log if it has dead cells, and take note of the blobs."""
        with self._maintaining():
            done, rewriting = self._compaction(thread, live)
        if rewriting is not None and not self._rewrite(rewriting):
            done = c.Swept(damaged=done.damaged)
        with self._maintaining():
            self._remove_dropped(thread)
            self._sweeps.record(thread, live)
        return done

    @write
    def _sweep(self, number: int, live: c.Live) -> WritePlan[int]:
        """Plan to drop the cells of commits that have no live cells."""
        alive = LiveCells(number, live)
        found = self._space.numbered(number)
        if found is None:
            return WritePlan(0)
        ranges: list[tuple[int, int, int]] = []
        dropped = 0
        for log, cells in found.thread.logs.items():
            dead = set(alive.dead(log, cells))
            for _, run in groupby(cells, key=lambda cell: cell.seq):
                segment = list(run)
                if dead.issuperset(segment):
                    dropped += len(segment)
                    ranges.append((log, segment[0].at, segment[-1].at - segment[0].at + 1))
        if not ranges:
            return WritePlan(0)
        return WritePlan(dropped, [ln.sealed(ln.SweepLine(cells=tuple(_joined(ranges))))], log=found)

    def _rewriting_of(self, number: int) -> Rewriting | None:
        """The rewrite that removes what sweeps dropped, if that is worth it."""
        found = self._space.numbered(number)
        if found is None or found.thread.is_gone or not _is_worth_rewriting(found):
            return None
        return self._rewriting(found)

    def _compaction(self, number: int, live: c.Live) -> tuple[c.Swept, Rewriting | None]:
        """The result of a compaction, and the rewrite that does it."""
        alive = LiveCells(number, live)
        found = self._space.numbered(number)
        if found is None:
            return c.Swept(), None
        thread = found.thread
        damaged = len(thread.damages) + (thread.tail_damage is not None)
        if not _can_be_rewritten(thread):
            return c.Swept(damaged=damaged), None
        dead = [cell for log, cells in thread.logs.items() for cell in alive.dead(log, cells)]
        if not dead and not _is_worth_rewriting(found, part=8):
            return c.Swept(damaged=damaged), None
        rewriting = self._rewriting(found, frozenset(cell.offset for cell in dead))
        return c.Swept(damaged=damaged, dropped=len(dead)), rewriting

    def _rewriting(self, found: ThreadLog, dead: frozenset[int] = frozenset()) -> Rewriting:
        self._adopt(found.thread.number)
        return Rewriting(found, dead)

    def _rewrite(self, rewriting: Rewriting) -> bool:
        """Write a new log, then take the lock and put it in place. False if the old log no longer exists."""
        try:
            rewriting.copy()
            with self._locks.to_write(), self._locks.writing():
                with self._locks.to_look(), self._locks.looking():
                    if not rewriting.is_due():
                        return False
                    self._space.keep_ledger()
                    self._space.settle_users(rewriting.log.thread.number)
                try:
                    rewriting.finish()
                except Moved:
                    return False
                with self._locks.to_look(), self._locks.looking():
                    rewriting.log.catch_up()
                return True
        finally:
            rewriting.close()

    # -- everything -------------------------------------------------------------------------------------------------

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        if scrub:
            return self._scrub()
        with self._maintaining():
            self._reclaim()
        return ()

    def _reclaim(self) -> None:
        """Remove what a crash left of rewrites and drops."""
        space = self._space
        space.device.clean()
        for found in space.everything():
            if found.thread.is_gone:
                self._remove_dropped(found.thread.number)
        for key in space.leftovers:
            space.forget(key)
            space.device.delete(key)
        space.tidy_ledger()

    def _scrub(self) -> tuple[str, ...]:
        left: list[str] = []
        with self._maintaining() as space:
            try:
                self._reclaim()
            except (Damaged, NewerFormat):
                left.append("a log cannot be read, so cells of dropped threads that it may use were kept")
            gone = [found.thread.number for found in space.everything() if found.thread.is_gone]
            left += [f"{other.path}: the log cannot be read; it was left unchanged" for other in space.unread]
        for number in gone:
            with self._maintaining():
                rewriting, problems = self._scrubbing(number)
            left += problems
            # None if another process has just done the same, or removed the thread.
            if rewriting is not None:
                self._rewrite(rewriting)
        with self._maintaining() as space:
            left += space.device.clear_dropped()
            space.tidy_ledger(is_forced=True)
            space.device.sync_removed()
        return (*left, *_BEYOND)

    def _scrubbing(self, number: int) -> tuple[Rewriting | None, list[str]]:
        """The rewrite of a dropped thread's log to cells alone, and what cannot be removed."""
        found = self._space.numbered(number)
        if found is None or not found.thread.is_gone:
            return None, []
        if not _can_be_rewritten(found.thread):
            return None, [f"{found.path}: the log is damaged; it was left unchanged"]
        left = [f"{found.path}: damaged lines of the log were left unchanged"] if found.thread.damages else []
        return self._rewriting(found), left


class LiveCells:
    """The cells that `Live` keeps."""

    def __init__(self, thread: int, live: c.Live) -> None:
        self._horizon = live.horizon
        self._ranges = live_ranges(thread, live)

    def dead(self, log: int, cells: Sequence[Cell]) -> list[Cell]:
        kept = self._ranges.get(log, Intervals())
        return [cell for cell in cells if cell.seq <= self._horizon and not kept.holds(cell.at, cell.at + 1)]


def _joined(ranges: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    joined: list[tuple[int, int, int]] = []
    for log, start, count in ranges:
        if joined and joined[-1][0] == log and joined[-1][1] + joined[-1][2] == start:
            joined[-1] = (log, joined[-1][1], joined[-1][2] + count)
        else:
            joined.append((log, start, count))
    return joined


def _can_be_rewritten(thread: ReplayedThread) -> bool:
    """Whether the thread's position is known, which a new log needs."""
    return thread.tail_damage is None and thread.record_damage is None


def _is_worth_rewriting(found: ThreadLog, *, part: int = 2) -> bool:
    """Whether more than one `part`-th of a log is dead, and enough to matter."""
    thread = found.thread
    if not _can_be_rewritten(thread):
        return False
    kept = sum(cell.length + 1 for cells in thread.logs.values() for cell in cells)
    kept += sum(row.place.length + 1 for row in thread.rows.values() if row.place is not None)
    kept += sum(entry.place.length + 1 for entry in thread.entries.values())
    dead = found.end - kept
    return dead > _WORTH_REWRITING and dead * part > found.end


class Rewriting:
    """A rewrite in progress. Create it in a turn, and always call `close` at the end.

    The new log starts with one group that has the content of the old log at the start of the rewrite. The groups that
    were appended since follow unchanged. Lines are copied as they are, even damaged ones: nothing is left out because
    it cannot be read.
    """

    def __init__(self, log: ThreadLog, dead: frozenset[int]) -> None:
        """`dead` are the positions of cell lines to leave out."""
        thread = log.thread
        self.log = log
        self._until = self._end = log.end
        self._kept = _kept(thread, dead)
        self._lost = _lost(thread)
        self._first = _first(thread)
        self._last: list[ln.Sealed] = []
        if thread.run_row is not None and thread.run_damage is None:
            self._last.append(ln.sealed(jsonl.show_run(thread.run_row)))
        self._ending = ln.End(
            of="", number=thread.number, group=thread.groups, entry=thread.newest_entry, at=_record(thread)
        )
        self._sum = 0
        self._has_damage = False
        self._identity = log.seen.identity
        self._stack = ExitStack()
        self._draft = self._stack.enter_context(log.rewrite())

    def copy(self) -> None:
        """Write the new log up to where the old one was read. May take long, and needs no lock."""
        letters: list[str] = []
        try:
            for lines in (self._first, *self._copied(), self._last):
                letters += [kind for kind, _ in lines]
                data = b"".join([line for _, line in lines])
                self._sum = crc32(data, self._sum)
                self._draft.write(data)
            letters += self._lost  # lost lines for which no damaged line is left
            # A reader must look at each line if one is damaged, so the sum must not fit then.
            total = self._sum ^ 0xFFFFFFFF if self._has_damage else self._sum
            self._draft.write(ln.end_line(replace(self._ending, of=ln.composition(letters), sum=total)))
            self._draft.sync()
        except OSError as error:
            raise disk.translate(error, self.log.path) from error

    def is_due(self) -> bool:
        """Whether the old log is still there, up to date and undamaged at its end. Only in a turn."""
        is_there = self.log.catch_up() and self.log.tail_damage is None
        self._until = self.log.end
        return is_there and self.log.seen.identity == self._identity and self._until >= self._end

    def finish(self) -> None:
        """Copy what was appended since, and replace the old log by the new one. Only in a turn. `Moved`."""
        copied = 0
        for piece in self._draft.read(self._end, self._until):
            self._draft.write(piece)
            copied += len(piece)
        if copied != self._until - self._end:
            raise StoreError(f"{self.log.path}: the log became shorter while it was rewritten; it was left unchanged")
        self._draft.publish(self._until)

    def close(self) -> None:
        self._stack.close()

    def _copied(self) -> Iterator[list[ln.Sealed]]:
        """The lines to keep, in batches. `Damaged` if one of them is missing or damaged."""
        left = len(self._kept)
        offset = 0
        rest = b""
        for piece in self._draft.read(0, self._end):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            taken: list[ln.Sealed] = []
            for line in lines:
                kind = self._kept.get(offset)
                if not ln.is_whole(line):
                    if kind is not None:
                        raise Damaged(str(Damage(self.log.path, offset, len(line))))
                    kind = self._lost.pop(0) if self._lost else _LOST_LINE
                    self._has_damage = True
                elif kind is not None:
                    left -= 1
                if kind is not None:
                    taken.append((kind, line + b"\n"))
                offset += len(line) + 1
            yield taken
        if left or rest:
            raise Damaged(f"{self.log.path}: {left} lines vanished while the log was rewritten; it was left unchanged")


def _first(thread: ReplayedThread) -> list[ln.Sealed]:
    head = ln.ThreadHeader(
        format=ln.FORMAT,
        number=thread.number,
        **jsonl.show_name(thread.name or ""),
        made=time.time_ns(),
        origins=tuple(sorted(thread.origins)),
        gone=thread.is_gone,
    )
    stones = [row.head for _, row in sorted(thread.rows.items()) if row.place is None]
    return [ln.sealed(head), *(ln.sealed(jsonl.show_tombstone(jsonl.read_tombstone(stone))) for stone in stones)]


def _record(thread: ReplayedThread) -> ln.ThreadRecord:
    """The thread's position; for a dropped thread, without the agent."""
    at = thread.at
    return replace(at, summary=replace(at.summary, agent=None)) if thread.is_gone else at


def _lost(thread: ReplayedThread) -> list[str]:
    """The kinds of lost lines. Damaged lines represent them in the new group, so that the loss stays known."""
    lost = [] if thread.run_damage is None else ["r"]
    if thread.journal_damage is not None:
        lost += ["e"] * (len(thread.lost_entries) + 1)  # one more than the numbers account for
    return [*lost, "d"] if thread.doubtful else lost


def _kept(thread: ReplayedThread, dead: frozenset[int]) -> dict[int, str]:
    """The positions of the lines to keep, with the letters for their kinds."""
    kept = {cell.offset: "c" for cells in thread.logs.values() for cell in cells if cell.offset not in dead}
    kept |= {row.place.offset: "k" for row in thread.rows.values() if row.place is not None}
    return kept | {entry.place.offset: "e" for entry in thread.entries.values()}
