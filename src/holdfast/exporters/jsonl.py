"""Export threads as lines (`formats.lines`), with everything that is stored, to be imported into another store.

Threads are checked and written one by one, each as one group; a thread whose cells others use comes before those.
Memory is needed only for one thread: the positions of cells that its deleted checkpoints wrote.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar
from zlib import crc32

from msgspec.structs import replace

from holdfast.delta.load import reachable, read_skeleton
from holdfast.errors import Damaged, HoldfastError, NotFound
from holdfast.exporters.target import Exported, Progress, Target, Write, check_selection, written_to
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.jsonl import HELD
from holdfast.handle import Holdfast
from holdfast.runs.record import is_free
from holdfast.stores.contract import PLAIN, CheckpointRow, Position, Refs, Span, Store, Summary, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.threads import scan
from holdfast.threads.scan import thread_named, walked, with_refs
from holdfast.threads.soundness import Examiner
from holdfast.threads.strays import UsedCells, append_of
from holdfast.types import Problem

T = TypeVar("T")

_PAGE: Final = 200
_NO_SUMMARY: Final = Summary(step=0, status="", agent=None, size=0, updated_at=0)
_LOOKS_MAX: Final = 50  # attempts to read a thread that changes meanwhile


def export_jsonl(
    hf: Holdfast,
    target: Target,
    *,
    threads: Sequence[str] | None = None,
    prefix: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write threads to a new file or an open one: those named, those whose names start with `prefix`, or all.

    NotFound if a named thread does not exist, InvalidArgument if the file exists. A damaged thread is left out and
    reported; `hf.repair` copies its readable parts. Encrypted data is written in plain text.
    """
    check_selection(threads, prefix)
    hf.context.check_open()
    exporting = _Exporting(hf, _selected(hf, threads, prefix), progress)
    return written_to(target, exporting.run)


def _selected(hf: Holdfast, threads: Sequence[str] | None, prefix: str | None) -> dict[int, str]:
    """The numbers and names of the threads to write."""
    if threads is None:
        return {row.position.thread: row.name for row in scan.threads(hf.context.store, prefix or "")}
    rows = {name: thread_named(hf.context.store, name) for name in threads}
    missing = [name for name, row in rows.items() if row is None]
    if missing:
        raise NotFound(f"there is no thread {quoted(missing[0])}; hf.threads() lists the threads")
    return {row.position.thread: row.name for row in rows.values() if row is not None}


class _Exporting:
    """The state of one export: threads to write, counts, and threads left out."""

    def __init__(self, hf: Holdfast, selected: dict[int, str], progress: Progress | None) -> None:
        self._store: Store = hf.context.store
        self._namespace = hf.context.namespace
        self._selected = selected
        self._progress = progress
        self._users: defaultdict[int, set[int]] = defaultdict(set)
        self._tied: set[int] = set()
        self._numbers: dict[int, int] = {}
        self._blobs: set[bytes] = set()
        self._left_out: list[Problem] = []
        self._threads = self._checkpoints = self._entries = self._bytes = 0
        self._letters: list[str] = []
        self._sum = 0
        self._last = 0, 0  # the number and the group of the thread that was written last
        self._write: Write = len

    def run(self, write: Write) -> Exported:
        self._write = write
        self._put(
            ln.ExportLine(
                format=ln.FORMAT,
                id=uuid.uuid4().hex,
                made=time.time_ns(),
                **jsonl.show_name(self._namespace, "namespace"),
                keyed=self._store.hashing is not PLAIN,
            )
        )
        self._look_who_uses_whom()
        order = list(self._ordered())
        for done, number in enumerate(order):
            self._tell("exporting", done, len(order))
            self._thread(number)
        number, group = self._last
        self._end(ln.End(of="", number=number, group=group + 1, exported=(self._threads, self._checkpoints)))
        self._tell("exporting", len(order), len(order))
        return Exported(
            threads=self._threads,
            checkpoints=self._checkpoints,
            entries=self._entries,
            bytes=self._bytes,
            left_out=tuple(self._left_out),
        )

    # -- the order of threads ----------------------------------------------------------------------------------------

    def _look_who_uses_whom(self) -> None:
        for done, (number, name) in enumerate(list(self._selected.items())):
            self._tell("reading", done, len(self._selected))
            try:
                for used in self._unless_changed(number, name, partial(self._used_by, number)):
                    self._users[used].add(number)
                    self._tied |= {used, number}
            except Damaged as damage:
                self._leave_out(number, name, str(damage))

    def _used_by(self, number: int) -> set[int]:
        """The other threads whose cells a thread uses."""
        return {span.thread for span, _ in self._reached(number)} - {number}

    def _ordered(self) -> Iterator[int]:
        """The numbers of the threads to write; a thread comes before those that use its cells."""
        uses: defaultdict[int, set[int]] = defaultdict(set)
        for used, users in self._users.items():
            for user in users:
                uses[user].add(used)
        done: set[int] = set()
        for number in sorted({*self._selected, *self._users}):
            waiting = [number]
            while waiting:
                at = waiting[-1]
                first = [each for each in sorted(uses[at]) if each not in done and each not in waiting]
                if first:
                    waiting.append(first[0])
                    continue
                waiting.pop()
                if at not in done:
                    done.add(at)
                    yield at

    def _reached(self, number: int) -> Iterable[tuple[Span, object]]:
        return reachable(self._store, number, self._roots(number), nodes_only=True)

    def _roots(self, number: int) -> Iterator[Refs]:
        for row in with_refs(self._store, number):
            if row.parent is not None and row.parent[0]:
                self._tied |= {row.parent[0], number}
            yield row.refs

    # -- a thread ----------------------------------------------------------------------------------------------------

    def _thread(self, number: int) -> None:
        name = self._selected.get(number)
        needed = {
            each: self._selected[each] for each in (number, *self._users.get(number, ())) if each in self._selected
        }
        before = {each: self._state_of(each, its_name) for each, its_name in needed.items()}
        read, gathered = (None, UsedCells()) if name is None else self._sound(number, name)
        try:
            self._write_thread(number, read, gathered)
        except Damaged as damage:  # it is not damaged if another writer has deleted what it reads
            for each, its_name in needed.items():
                if self._state_of(each, its_name) != before[each]:
                    raise self._changed(its_name) from damage
            raise

    def _write_thread(
        self, number: int, read: tuple[ThreadRow, RunRow | None, int] | None, gathered: UsedCells
    ) -> None:
        for user in self._users.get(number, ()):
            if user in self._selected:
                for span, _ in self._reached(user):
                    if span.thread == number:
                        gathered.names(span)
        strays: defaultdict[int, list[Span]] = defaultdict(list)
        for seq, span in gathered.strays(number):
            strays[seq if read is None else min(seq, read[0].position.last)].append(span)
        if read is not None:
            self._whole(*read, strays)
        elif strays:
            self._cells_only(number, strays)

    def _sound(self, number: int, name: str) -> tuple[tuple[ThreadRow, RunRow | None, int] | None, UsedCells]:
        """A view of a thread, and the cells it has and needs. None, and the thread is left out, if it is damaged."""
        try:
            return self._unless_changed(number, name, partial(self._examined, number, name))
        except Damaged as damage:
            self._leave_out(number, name, str(damage))
            return None, UsedCells()

    def _unless_changed(self, number: int, name: str, read: Callable[[], T]) -> T:
        """Call `read`, and again if it finds damage and another writer has changed the thread meanwhile."""
        for _ in range(_LOOKS_MAX):
            before = self._state_of(number, name)
            try:
                return read()
            except Damaged:
                if self._state_of(number, name) == before:
                    raise
        raise self._changed(name)

    def _state_of(self, number: int, name: str) -> tuple[Position, int]:
        """The position and the number of checkpoints of a thread. NotFound if it was dropped."""
        thread = thread_named(self._store, name)
        if thread is None or thread.position.thread != number:
            raise NotFound(
                f"the export was stopped: thread {quoted(name)} was dropped meanwhile. Export again, or name threads."
            )
        return thread.position, thread.count

    def _changed(self, name: str) -> HoldfastError:
        return HoldfastError(
            f"the export was stopped: thread {quoted(name)} was changed while it was read. Try again later."
        )

    def _read_thread(self, number: int, name: str) -> tuple[ThreadRow, RunRow | None, int]:
        """A consistent view of the thread, its run and the number of its last journal entry."""
        for _ in range(_LOOKS_MAX):
            before = self._state_of(number, name)
            thread = thread_named(self._store, name)
            run = self._store.run(number)
            entries = self._store.last_entry(number)
            if thread is not None and self._state_of(number, name) == before and _is_same(self._store.run(number), run):
                return thread, run, entries
        raise self._changed(name)

    def _examined(self, number: int, name: str) -> tuple[tuple[ThreadRow, RunRow | None, int], UsedCells]:
        """A view of a thread, and the cells it has and needs. Damaged if it cannot be read."""
        read, gathered = self._read_thread(number, name), UsedCells()
        named: list[Span] = []
        with Examiner(self._store, names=named.append) as examiner:
            for examined in examiner.thread(number):
                if examined.seq > read[0].position.last:
                    break
                if examined.problems and (examined.is_chained or len(examined.problems) > 1):
                    raise Damaged(f"checkpoint {examined.seq}: {'; '.join(examined.problems)}")
                if examined.row is not None and not examined.row.deleted:
                    gathered.wrote(number, examined.seq, read_skeleton(examined.row).wrote)
                for span in named:
                    if span.thread == number:
                        gathered.names(span)
                named.clear()
        after = 0
        while page := self._store.entries(number, after=after, limit=_PAGE):
            after = page[-1].number
        return read, gathered

    def _leave_out(self, number: int, name: str, why: str) -> None:
        self._selected.pop(number, None)
        self._left_out.append(Problem(name, (), f"the whole thread was left out: {why}"))

    def _whole(self, thread: ThreadRow, run: RunRow | None, entries: int, strays: dict[int, list[Span]]) -> None:
        number, position = thread.position.thread, thread.position
        self._open(number, thread.name, gone=False)
        for row in walked(self._store, number, position.last):
            self._cells(number, row.seq, row, strays.get(row.seq, ()))
            self._put(jsonl.show_tombstone(row) if row.deleted else jsonl.show_checkpoint(row))
            self._checkpoints += not row.deleted
        after = 0
        while after < entries:
            for entry in self._store.entries(number, after=after, limit=min(_PAGE, entries - after)):
                self._put(
                    jsonl.show_entry(replace(entry, sealed=b"", matches_thread=self._number(entry.matches_thread)))
                )
                after = entry.number
                self._entries += 1
        summary = thread.summary
        if run is not None:
            released = self._released(run)
            if released.reason == HELD:
                summary = replace(summary, status=released.status)
            self._put(jsonl.show_run(replace(released, sealed=b"", thread=self._number(number))))
        at = ln.ThreadRecord(
            head=position.head,
            id=thread.head_id.hex(),
            move=position.move,
            last=position.last,
            count=thread.count,
            summary=summary,
        )
        self._close(number, at, entries)
        self._threads += 1

    def _released(self, run: RunRow) -> RunRow:
        """The record of a run, without its lease. A run that is held is halted in the copy, or both would act."""
        is_held = run.status == "running" and not is_free(self._store, run)
        free = replace(run, lease_until=0, lease_first=0)
        if is_held:
            return replace(free, status="halted", reason=HELD, owner=None)
        return free if run.status == "running" else replace(free, owner=None)

    def _cells_only(self, number: int, strays: dict[int, list[Span]]) -> None:
        """Write only the cells that other threads use: this one is not selected, dropped or damaged."""
        self._open(number, f"cells of thread {number}", gone=True)
        for seq in sorted(strays):
            self._cells(number, seq, None, strays[seq])
        self._close(number, ln.ThreadRecord(head=0, id="", move=0, last=max(strays), count=0, summary=_NO_SUMMARY), 0)

    def _number(self, number: int) -> int:
        """The number of a thread in the file. A thread that no other one names gets a random number.

        So that its lines can be copied into any directory store.
        """
        if number and number not in self._numbers:
            new = jsonl.new_number()
            while new in self._numbers.values() or new in self._tied:
                new += 1
            self._numbers[number] = number if number in self._tied else new
        return self._numbers.get(number, 0)

    def _open(self, number: int, name: str, *, gone: bool) -> None:
        origins = tuple(sorted(used for used, users in self._users.items() if number in users))
        made = time.time_ns()
        line = ln.ThreadHeader(
            format=ln.FORMAT,
            number=self._number(number),
            **jsonl.show_name(name),
            made=made,
            origins=origins,
            gone=gone,
        )
        self._put(line)

    def _close(self, number: int, at: ln.ThreadRecord, entries: int) -> None:
        self._last = self._number(number), 1
        self._end(ln.End(of="", number=self._number(number), group=1, entry=entries, at=at))

    def _cells(self, number: int, seq: int, row: CheckpointRow | None, strays: Sequence[Span]) -> None:
        """Write what one commit stored: blobs first, then cells."""
        spans = list(strays)
        named: list[Refs] = []
        if row is not None and not row.deleted:
            spans += [Span(number, *wrote, seq, seq) for wrote in read_skeleton(row).wrote]
            named.append(row.refs)
        runs = [append_of(self._store, span) for span in sorted(spans, key=lambda span: (span.log, span.start))]
        named += [refs for run in runs for refs in run.refs]
        for digest in dict.fromkeys(digest for refs in named for digest in refs.blobs):
            if digest not in self._blobs:
                for line in jsonl.blob_lines(digest, self._store.blob(digest)):
                    self._put(line)
                self._blobs.add(digest)
        for run in runs:
            for cell in jsonl.show_cells(seq, run):
                self._put(cell)

    def _put(self, record: ln.Replayed) -> None:
        letter, data, _ = ln.sealed(record)
        self._letters.append(letter)
        self._sum = crc32(data, self._sum)
        self._write(data)
        self._bytes += len(data)

    def _end(self, end: ln.End) -> None:
        data = ln.line_of(replace(end, of=ln.composition(self._letters), sum=self._sum))
        self._letters, self._sum = [], 0
        self._write(data)
        self._bytes += len(data)

    def _tell(self, what: str, done: int, of: int) -> None:
        if self._progress is not None:
            self._progress(what, done, of)


def _is_same(one: RunRow | None, other: RunRow | None) -> bool:
    """Whether a run did not change, apart from renewals of its lease."""
    if one is None or other is None:
        return one is other
    return (one.fence, one.status, one.closed, one.turn) == (other.fence, other.status, other.closed, other.turn)
