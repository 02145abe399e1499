"""Export threads as JSON lines, with everything that is stored, to be imported into another store.

Threads are checked and written one by one; a thread whose cells others use comes before those. Memory is needed only
for one thread: the positions of cells that its deleted checkpoints wrote.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.delta.load import reachable, read_skeleton
from holdfast.errors import Damaged, HoldfastError, NotFound
from holdfast.exporters.target import Exported, Progress, Target, Write, check_selection, written_to
from holdfast.formats import jsonl
from holdfast.handle import Holdfast
from holdfast.runs.record import is_free, now
from holdfast.stores.contract import PLAIN, CheckpointRow, Refs, Span, Store, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.threads.soundness import Examiner
from holdfast.threads.strays import UsedCells, run_of
from holdfast.types import Problem

_PAGE: Final = 200
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
        store, after = hf.context.store, None
        found: dict[int, str] = {}
        while page := store.threads(prefix=prefix or "", after=after, limit=_PAGE):
            found.update((row.position.thread, row.name) for row in page)
            after = page[-1].name
        return found
    rows = {name: hf.context.store.thread(name) for name in threads}
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
        self._values: set[bytes] = set()
        self._left_out: list[Problem] = []
        self._threads = self._checkpoints = self._entries = self._bytes = self._lines = 0
        self._write: Write = len

    def run(self, write: Write) -> Exported:
        self._write = write
        store = self._store
        self._put(
            jsonl.Opening(
                format=jsonl.FORMAT,
                id=uuid.uuid4().hex,
                made=now(),
                namespace=jsonl.shown(self._namespace),
                keyed=store.hashing is not PLAIN,
            )
        )
        self._look_who_uses_whom()
        order = list(self._ordered())
        for done, number in enumerate(order):
            self._tell("exporting", done, len(order))
            self._thread(number)
        self._put(jsonl.Closing(threads=self._threads, checkpoints=self._checkpoints))
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
                for span, _ in self._reached(number):
                    if span.thread != number:
                        self._users[span.thread].add(number)
            except Damaged as damage:
                self._leave_out(number, name, str(damage))

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
        after = 0
        while page := self._store.refs(number, after=after, limit=_PAGE):
            yield from (row.refs for row in page)
            after = page[-1].seq

    # -- a thread ----------------------------------------------------------------------------------------------------

    def _thread(self, number: int) -> None:
        gathered = UsedCells()
        name = self._selected.get(number)
        stand = None if name is None else self._stand(number, name)
        if name is not None and stand is not None and not self._examine(number, name, stand[0], gathered):
            stand, gathered = None, UsedCells()
        for user in self._users.get(number, ()):
            if user in self._selected:
                for span, _ in self._reached(user):
                    if span.thread == number:
                        gathered.names(span)
        strays: defaultdict[int, list[Span]] = defaultdict(list)
        for seq, span in gathered.strays(number):
            strays[seq if stand is None else min(seq, stand[0].position.last)].append(span)
        if stand is not None:
            self._whole(*stand, strays)
        elif strays:
            self._cells_only(number, strays)

    def _stand(self, number: int, name: str) -> tuple[ThreadRow, RunRow | None, int] | None:
        """A consistent view of the thread, its run and the number of its last journal entry."""
        try:
            for _ in range(_LOOKS_MAX):
                thread = self._store.thread(name)
                run = self._store.run(number)
                entries = self._store.last_entry(number)
                if thread is None or thread.position.thread != number:
                    raise NotFound(f"the export was stopped: thread {quoted(name)} was dropped meanwhile")
                again = self._store.thread(name)
                if again is not None and again.position == thread.position and _is_same(self._store.run(number), run):
                    return thread, run, entries
        except Damaged as damage:
            self._leave_out(number, name, str(damage))
            return None
        raise HoldfastError(
            f"the export was stopped: thread {quoted(name)} changed during each of {_LOOKS_MAX} attempts to read it. "
            "Try again later"
        )

    def _examine(self, number: int, name: str, thread: ThreadRow, gathered: UsedCells) -> bool:
        """Check a thread and collect the cells it has and needs. False, and the thread is left out, if damaged."""
        named: list[Span] = []
        try:
            with Examiner(self._store, names=named.append) as examiner:
                for examined in examiner.thread(number):
                    if examined.seq > thread.position.last:
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
        except Damaged as damage:
            self._leave_out(number, name, str(damage))
            return False
        return True

    def _leave_out(self, number: int, name: str, why: str) -> None:
        self._selected.pop(number, None)
        self._left_out.append(Problem(name, (), f"{why}; the whole thread was left out"))

    def _whole(self, thread: ThreadRow, run: RunRow | None, entries: int, strays: dict[int, list[Span]]) -> None:
        number, position = thread.position.thread, thread.position
        self._put(
            jsonl.ThreadLine(
                number=number,
                name=jsonl.shown(thread.name),
                last=position.last,
                head=position.head,
                move=position.move,
                summary=jsonl.shown(msgspec.to_builtins(thread.summary)),
            )
        )
        begun = self._lines
        for row in self._rows(number, position.last):
            self._cells(number, row.seq, row, strays.get(row.seq, ()))
            self._put(jsonl.checkpoint_line(row))
            self._checkpoints += not row.deleted
        after = 0
        while after < entries:
            for entry in self._store.entries(number, after=after, limit=min(_PAGE, entries - after)):
                self._put(jsonl.entry_line(entry))
                after = entry.number
                self._entries += 1
        if run is not None:
            self._put(jsonl.run_line(run, held=run.status == "running" and not is_free(self._store, run)))
        self._put(jsonl.DoneLine(number=number, lines=self._lines - begun))
        self._threads += 1

    def _rows(self, number: int, last: int) -> Iterator[CheckpointRow]:
        after = 0
        while after < last:
            for row in self._store.walk(number, after=after, limit=min(_PAGE, last - after)):
                if isinstance(row, Damaged):
                    raise row
                yield row
                after = row.seq

    def _cells_only(self, number: int, strays: dict[int, list[Span]]) -> None:
        """Write only the cells that other threads use: this one is not selected, dropped or damaged."""
        name = jsonl.shown(f"cells of thread {number}")
        self._put(jsonl.ThreadLine(number=number, name=name, last=max(strays), gone=True))
        begun = self._lines
        for seq in sorted(strays):
            self._cells(number, seq, None, strays[seq])
        self._put(jsonl.DoneLine(number=number, lines=self._lines - begun))

    def _cells(self, number: int, seq: int, row: CheckpointRow | None, strays: Sequence[Span]) -> None:
        """Write what one commit stored: blobs first, then cells."""
        spans = list(strays)
        named: list[Refs] = []
        if row is not None and not row.deleted:
            spans += [Span(number, *wrote, seq, seq) for wrote in read_skeleton(row).wrote]
            named.append(row.refs)
        runs = [run_of(self._store, span) for span in sorted(spans, key=lambda span: (span.log, span.start))]
        named += [refs for run in runs for refs in run.refs]
        for digest in dict.fromkeys(digest for refs in named for digest in refs.blobs):
            if digest not in self._values:
                for line in jsonl.value_lines(digest, self._store.blob(digest)):
                    self._put(line)
                self._values.add(digest)
        for run in runs:
            for cell in jsonl.cell_lines(seq, run):
                self._put(cell)

    def _put(self, line: jsonl.AnyLine) -> None:
        data = jsonl.written(line)
        self._write(data)
        self._bytes += len(data)
        self._lines += 1

    def _tell(self, what: str, done: int, of: int) -> None:
        if self._progress is not None:
            self._progress(what, done, of)


def _is_same(one: RunRow | None, other: RunRow | None) -> bool:
    """Whether a run did not change, apart from renewals of its lease."""
    if one is None or other is None:
        return one is other
    return (one.fence, one.status, one.closed, one.turn) == (other.fence, other.status, other.closed, other.turn)
