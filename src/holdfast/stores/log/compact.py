"""Remove what is no longer needed: dead cells, dropped threads, unused blobs.

A sweep records dead cells in the log. A rewrite leaves them out: it copies a log while writers continue, then replaces
it in one step. Readers of the old log continue to read it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from holdfast.errors import Damaged, HoldfastError, NewerFormat
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.lines import Damage
from holdfast.intervals import Intervals
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.log import disk
from holdfast.stores.log.device import EPOCH, Moved, NewLog, Version, dropped_key
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.plan import LogVerbs, WritePlan, maintain, write
from holdfast.stores.log.replay import DELETE, ENTRY, FORK, RUN, TOMBSTONE, Place, ReplayedThread
from holdfast.stores.segments import live_ranges

# A sweep rewrites a log when more than half of it is dead, so that rewrites cost no more than the appends did.
_WORTH_REWRITING: Final = 64 << 10
_AT_ONCE: Final = 16 << 20
_NEVER: Final = 1 << 62  # a seq that no sweep reads: the thread's last one is not known
_Copied = tuple[str, bytes]
"""The letter for the kind of a line, and the line."""

_LOST_LINE: Final = "z"  # the letter for a damaged line in the composition of a group


class CompactVerbs(LogVerbs):
    """The verbs that remove data."""

    # -- threads ----------------------------------------------------------------------------------------------------

    @maintain
    def drop(self, thread: int) -> None:
        found = self._space.numbered(thread)
        if found is None or found.thread.is_gone:
            raise rules.no_thread(thread)
        # A claim of its run or a new fork from now on makes the deletion fail, although `forks` reads the log again.
        seen, end = found.seen, found.end
        rules.require_free(found.thread.run, self._clock(), found.thread.name)
        is_kept = self._keep_cells(found)
        self._space.delete(found, seen, end)
        # The thread is gone for every reader. If this fails half-way, `reclaim` finishes it.
        with suppress(HoldfastError, OSError):
            self._keys.remove([] if is_kept else [found.thread.key])
        for origin in found.thread.origins:
            with suppress(HoldfastError, OSError, Moved):
                self._remove_dropped(origin)

    def _keep_cells(self, found: ThreadLog) -> bool:
        """If forks need the cells of a thread that is about to be dropped, copy them to a log of their own."""
        space, key = self._space, dropped_key(found.thread.number)
        space.interrupt_forks(found)
        try:
            is_needed = any(found.thread.logs.values()) and bool(space.forks(found.thread.number))
        except Damaged:  # it is not known whether they are needed
            is_needed = True
        there = space.device.log(key)
        left = there.stat()  # by an interrupted drop, or by another one that is in progress
        if left is not None and space.device.trust is None:
            space.forget(key)
            there.remove(left, left.size)
            left = None
        if is_needed:
            self._adopt(found)
            pieces = LogCopy(found, frozenset(), is_gone=True).pieces(_stretches(found, 0, found.end))
            if left is None:
                there.create(pieces)
            else:
                with there.rewrite() as draft:
                    draft.write(b"".join(pieces))
                    draft.publish(left, left.size)
        return is_needed

    def _remove_dropped(self, number: int) -> None:
        """Remove a dropped thread if its cells are not needed. `Damaged` if that is not known."""
        space = self._space
        found = space.numbered(number)
        if found is None or not found.thread.is_gone:
            return
        seen, end = found.seen, found.end  # as in `drop`
        space.settle_users(found)
        space.interrupt_forks(found)
        if not any(found.thread.logs.values()) or not space.forks(number):
            space.delete(found, seen, end)
            self._keys.remove([found.thread.key])

    # -- blobs ------------------------------------------------------------------------------------------------------

    @maintain
    def _start_epoch(self) -> int:
        last = self._space.counter(EPOCH)
        # If the last epoch is not known, the new one must differ from it.
        epoch = time.time_ns() if last is None else last + 1
        self._space.count(EPOCH, epoch, sync=True)
        return epoch

    def sweep_blobs(self, epoch: int | None = None) -> c.Collected:
        if epoch is None:
            return c.Collected(epoch=self._start_epoch())

        def sweep() -> c.Collected:
            unused = self._locks.look(lambda: self._unused_blobs(epoch))
            self._blobs.remove(digest.hex() for digest in unused.dropped)
            return unused

        return self._locks.write(sweep)

    def _unused_blobs(self, epoch: int) -> c.Collected:
        """The blobs to drop, and those that are used; or the threads that must be swept first."""
        found = self._space.all_read()
        if (self._space.counter(EPOCH) or 0) < epoch:
            raise Damaged("the record of the current epoch is lost; no blob was dropped. Start a new epoch.")
        if unswept := self._sweeps.unswept(epoch, {log.thread.number: _marked(log) for log in found}):
            self._register_copied(found)
            return c.Collected(unswept=unswept)
        self._space.settle(found)
        used = self._sweeps.used()
        keep = {digest.hex() for digest in used}
        for log in found:
            keep.update(digest for digest, stamp in log.thread.stamps.items() if stamp >= epoch)
        dead = (digest for digest in self._blobs.all() if digest not in keep)
        return c.Collected(frozenset(map(bytes.fromhex, dead)), used)

    def _register_copied(self, found: Sequence[ThreadLog]) -> None:
        """Register forks that were copied into the store with the threads whose cells they use."""
        by_number = {log.thread.number: log for log in found}
        for log in found:
            for origin in log.thread.origins & by_number.keys():
                self._register(by_number[origin], log.thread.number)

    # -- cells ------------------------------------------------------------------------------------------------------

    def sweep(self, thread: int, live: c.Live) -> c.Swept:
        is_whole = live.blobs is not None
        dropped = 0
        if not is_whole:
            dropped = self._sweep(thread, live)
        damaged, copy = self._compaction(thread, live if is_whole else None)
        if copy is not None and self._rewrite(copy):
            dropped += len(copy.dead)
        self._finish(thread, live)
        return c.Swept(dropped=dropped, damaged=damaged if is_whole else 0)

    @maintain
    def _finish(self, thread: int, live: c.Live) -> None:
        self._remove_dropped(thread)
        self._sweeps.record(thread, live)

    @write
    def _sweep(self, number: int, live: c.Live) -> WritePlan[int]:
        """Plan to drop the cells of commits that have no live cells."""
        found = self._space.numbered(number)
        if found is None:
            return WritePlan(0)
        self._space.settle_users(found)
        ranges: list[tuple[int, int, int]] = []
        dropped = 0
        for log, dead in _dead(found.thread, live).items():
            unused = set(dead)
            for _, commit in groupby(found.thread.logs[log], key=lambda cell: cell.tag):
                segment = list(commit)
                if unused.issuperset(segment):
                    dropped += len(segment)
                    start, end = segment[0].number, segment[-1].number + 1
                    if ranges and ranges[-1][0] == log and sum(ranges[-1][1:]) == start:
                        start = ranges.pop()[1]
                    ranges.append((log, start, end - start))
        if not ranges:
            return WritePlan(0)
        return WritePlan(dropped, [ln.sealed(ln.SweepLine(cells=tuple(ranges)))], log=found)

    @maintain
    def _compaction(self, number: int, live: c.Live | None) -> tuple[int, LogCopy | None]:
        """The damages of a log, and the copy that will replace it, without dead cells, if that is worth it."""
        self._remove_dropped(number)
        found = self._space.numbered(number)
        if found is None:
            return 0, None
        thread = found.thread
        damaged = len(thread.damages) + (thread.tail_damage is not None)
        dead = [cell for cells in _dead(thread, live).values() for cell in cells] if live else []
        if not thread.is_placed or not (dead or _is_worth_rewriting(found, part=8 if live else 2)):
            return damaged, None
        self._adopt(found)
        return damaged, LogCopy(found, frozenset(cell.offset for cell in dead), is_gone=thread.is_gone)

    def _rewrite(self, copy: LogCopy) -> bool:
        """Write a new log, then take the lock and put it in place. False if the old log no longer exists.

        Writers continue until then. The groups that they appended follow the copy unchanged.
        """
        pieces = _stretches(copy.log, 0, copy.end, copy.seen)
        try:
            with copy.log.device.rewrite() as draft:
                # Other threads use the handle between two pieces.
                for piece in copy.pieces(iter(lambda: self._locks.look(lambda: next(pieces, b"")), b"")):
                    draft.write(piece)
                draft.sync()
                return self._locks.write(lambda: self._replace(copy, draft))
        except Moved:
            return False
        except OSError as error:
            raise disk.translate(error, copy.log.path) from error

    def _replace(self, copy: LogCopy, draft: NewLog) -> bool:
        log = copy.log

        def appended() -> tuple[Version, bytes] | None:
            # A log that was replaced is replayed again.
            if not log.catch_up() or log.thread is not copy.thread or log.thread.tail_damage is not None:
                return None
            self._space.settle_users(log)
            data = log.get(copy.end, log.end - copy.end)  # first: if it raises `Moved`, this is called again
            copy.end = log.end
            return log.seen, data

        new = self._locks.look(appended)
        if new is None:
            return False
        draft.write(new[1])
        draft.publish(new[0], copy.end)
        self._locks.look(log.catch_up)
        return True

    # -- everything -------------------------------------------------------------------------------------------------

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        """Remove what a crash left of rewrites and drops, and threads that no fork needs any longer."""
        left = [*self._clean(scrub), *self._remove_unneeded(scrub)]
        return (*left, rules.BEYOND_FILES) if scrub else ()

    @maintain
    def _clean(self, scrub: bool) -> list[str]:
        # In a turn of its own: it may take so long that a plan which started before it is too old to append to a log.
        return self._space.device.clean(scrub=scrub)

    @maintain
    def _remove_unneeded(self, scrub: bool) -> list[str]:
        left: list[str] = []
        for found in self._space.everything():
            try:
                self._reclaim(found)
            except (Damaged, NewerFormat):
                if not scrub:
                    raise
                left.append("a log cannot be read, so cells of dropped threads that it may use were kept")
        left += [f"{other.path}: the log cannot be read; it was left unchanged" for other in self._space.unread]
        if not self._space.unread:
            threads = {log.thread.number: log.thread.key for log in self._space.everything()}
            self._keys.remove_unused(threads)
            self._space.remove_numbers(threads)
            if self._hints is not None:
                self._hints.mend()
        return left

    def _reclaim(self, found: ThreadLog) -> None:
        number, key = found.thread.number, dropped_key(found.thread.number)
        if found.thread.is_gone:
            self._remove_dropped(number)
        elif (copy := self._space.under(key)) is not None and copy.thread.at.last <= found.thread.at.last:
            # An interrupted drop has left it, or one in progress has just made it, which cannot delete the thread now.
            if self._space.device.trust is not None:
                self._space.interrupt(found)
            self._space.delete(copy, copy.seen, copy.end)


def _dead(thread: ReplayedThread, live: c.Live) -> dict[int, list[Place]]:
    """The cells that `live` does not keep, by log."""
    ranges, dead = live_ranges(thread.number, live), dict[int, list[Place]]()
    for log, cells in thread.logs.items():
        kept = ranges.get(log, Intervals())
        dead[log] = [at for at in cells if at.tag <= live.horizon and not kept.holds(at.number, at.number + 1)]
    return dead


def _is_worth_rewriting(found: ThreadLog, *, part: int) -> bool:
    """Whether more than one `part`-th of a log is dead, and enough to matter."""
    thread = found.thread
    kept = thread.entries.size + sum(cells.size for cells in thread.logs.values())
    kept += sum(row.length + 1 for row in thread.rows if row.tag == TOMBSTONE or not thread.is_deleted(row.number))
    dead = found.end - kept
    return dead > _WORTH_REWRITING and dead * part > found.end


def _marked(log: ThreadLog) -> tuple[int, bool]:
    """The last seq of a thread, and whether the blobs of later commits may not be stamped (see `Sweeps`)."""
    thread = log.thread
    last = thread.at.last if thread.is_placed else _NEVER
    return last, bool(thread.origins or thread.blobs or thread.damages)


def _stretches(log: ThreadLog, start: int, end: int, seen: Version | None = None) -> Iterator[bytes]:
    """The bytes of a log, in pieces; with `seen`, of the log as it was then."""
    for at in range(start, end, _AT_ONCE):
        yield log.get(at, min(_AT_ONCE, end - at), seen)


class LogCopy:
    """The content of a log as one group. Lines are copied as they are, even damaged ones.

    Nothing is left out because it cannot be read.
    """

    def __init__(self, log: ThreadLog, dead: frozenset[int], *, is_gone: bool) -> None:
        """`dead` are the positions of cell lines to leave out. If `is_gone`, only cells are copied."""
        thread = self.thread = log.thread
        self.log = log
        self.seen, self.end = log.seen, log.end
        self.dead = dead
        self._kept = _kept(thread, dead, is_gone=is_gone)
        self._lost = [] if is_gone else _lost(thread)
        self._first = _first(thread, is_gone=is_gone)
        self._last: list[_Copied] = []
        at = thread.at
        if is_gone:
            # Without a head: the last checkpoint may have a higher number than the copy has bytes (`take`).
            at = replace(at, head=0, summary=replace(at.summary, agent=None))
        elif thread.run_row is not None and RUN not in thread.doubts:
            self._last.append(_new(jsonl.show_run(thread.run_row)))
        entry = 0 if is_gone else thread.newest_entry
        self._ending = ln.End(of="", number=thread.number, group=thread.groups, entry=entry, at=at)
        self._has_damage = False

    def pieces(self, log: Iterator[bytes]) -> Iterator[bytes]:
        """The bytes of the copy, from those of the log. `Damaged` if a line is missing or damaged."""
        letters: list[str] = []
        total = 0
        for lines in (self._first, *self._copied(log), self._last):
            letters += [kind for kind, _ in lines]
            data = b"".join([line for _, line in lines])
            total = crc32(data, total)
            yield data
        letters += self._lost  # lost lines for which no damaged line is left
        # A reader must look at each line if one is damaged, so the sum must not fit then.
        total = total ^ 0xFFFFFFFF if self._has_damage else total
        yield ln.line_of(replace(self._ending, of=ln.composition(letters), sum=total))

    def _copied(self, pieces: Iterator[bytes]) -> Iterator[list[_Copied]]:
        """The lines to keep, in batches."""
        left = len(self._kept)
        offset = 0
        rest = b""
        for piece in pieces:
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            taken: list[_Copied] = []
            for line in lines:
                kind = self._kept.get(offset)
                if not ln.is_whole(line):
                    if kind is not None:
                        raise Damaged(str(Damage(self.log.path, offset, len(line))))
                    kind = self._lost.pop(0) if self._lost else _LOST_LINE
                    self._has_damage = True
                elif kind is not None:
                    left -= 1
                if kind == "s":
                    taken.append(_new(jsonl.show_tombstone(jsonl.read_tombstone(line))))
                elif kind is not None:
                    taken.append((kind, line + b"\n"))
                offset += len(line) + 1
            yield taken
        if left or rest:
            raise Damaged(f"{self.log.path}: {left} lines vanished while the log was copied; it was left unchanged")


def _new(record: ln.Replayed) -> _Copied:
    return ln.sealed(record)[:2]


def _first(thread: ReplayedThread, *, is_gone: bool) -> list[_Copied]:
    head = ln.ThreadHeader(
        format=ln.FORMAT,
        number=thread.number,
        **jsonl.show_name("" if is_gone else thread.name or ""),
        made=time.time_ns(),
        origins=tuple(sorted(thread.origins)),
        gone=is_gone,
        key=thread.key,
    )
    records: list[ln.Replayed] = [head]
    records += [ln.ForkLine(number=number) for number in sorted(thread.forks)]
    if not is_gone:
        for epoch in sorted(set(thread.stamps.values())):
            blobs = tuple(digest for digest, stamp in thread.stamps.items() if stamp == epoch)
            records.append(ln.StampLine(epoch=epoch, blobs=blobs))
    return [_new(record) for record in records]


def _lost(thread: ReplayedThread) -> list[str]:
    """The kinds of lost lines. Damaged lines represent them in the new group, so that the loss stays known."""
    lost = [kind for kind in (RUN, FORK) if kind in thread.doubts]
    if ENTRY in thread.doubts:
        lost += [ENTRY] * (len(thread.lost_entries) + 1)  # one more than the numbers account for
    return [*lost, DELETE] if thread.doubtful else lost


def _kept(thread: ReplayedThread, dead: frozenset[int], *, is_gone: bool) -> dict[int, str]:
    """The positions of the lines to keep, with the letters for their kinds."""
    kept = {cell.offset: "c" for cells in thread.logs.values() for cell in cells if cell.offset not in dead}
    if not is_gone:
        kept |= {row.offset: "s" if thread.is_deleted(row.number) else "k" for row in thread.rows}
        kept |= {entry.offset: "e" for entry in thread.entries}
    return kept
