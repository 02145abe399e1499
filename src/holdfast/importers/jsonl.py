"""Import files written by `holdfast export`, with ids, times, order, forks, journals and runs.

The file is read once, line by line. A thread that exists is recognised by the ids of its checkpoints, and missing ones
are added after them. Cells of threads that were not exported themselves are stored when another thread needs them, in a
temporary thread that is dropped at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from holdfast.delta.load import read_skeleton
from holdfast.errors import Damaged, HoldfastError, InvalidArgument
from holdfast.formats import jsonl
from holdfast.handle import Holdfast
from holdfast.importers.frame import SourceThread, Tally, Unusable
from holdfast.importers.jsonl_file import Reader, Values, opening_of
from holdfast.stores.contract import PLAIN, Append, Blob, CheckpointRow, Refs, Store, Summary, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads import metadata as metas
from holdfast.threads.replica import Replica
from holdfast.threads.soundness import Examiner

_CUT_OFF: Final = "the file is cut off; the complete threads were imported. Export the others again"
_LINES_MISSING: Final = "lines of this thread, or of a thread whose cells it uses, are missing"
_UNENDED: Final = "the import is not finished"
_HELD: Final = "a process was running it at the time of the export; resume it if that run has ended"
_STUBS_MAX: Final = 50


def open_jsonl(path: str, hf: Holdfast | None) -> JsonlSource:
    """Open an export. NotFound if there is no such file, InvalidArgument if it is not an export, NewerFormat."""
    reader = Reader(path)
    try:
        opening = opening_of(reader)
        return JsonlSource(reader, opening, None if hf is None else hf.context.store)
    except BaseException:
        reader.close()
        raise


class JsonlSource:
    """See `Source`."""

    def __init__(self, reader: Reader, opening: jsonl.Opening, store: Store | None) -> None:
        self.reader: Final = reader
        self.opening: Final = opening
        self.store: Final = store
        self.values: Final = Values(store)
        self.numbers: Final[dict[int, int]] = {}
        self.is_storing = False
        self._gone: dict[int, int] = {}

    def size(self) -> int:
        closing = self.reader.closing()
        return 0 if closing is None else closing.checkpoints

    def threads(self) -> Iterator[SourceThread]:
        line: jsonl.AnyLine | None = None
        threads = 0
        while not isinstance(line, jsonl.Closing):
            try:
                line = self.reader.next()
                if isinstance(line, jsonl.ValueLine):
                    self.values.pass_by(self.reader, line)
                elif isinstance(line, jsonl.ThreadLine) and line.gone:
                    self._gone[line.number] = self.reader.offset
                elif isinstance(line, jsonl.ThreadLine):
                    threads += 1
                    yield _FileThread(self, line, self.reader)
                elif line is None:
                    yield _Lost(self.reader.path, _CUT_OFF)
                    break
            except Damaged as damage:
                yield _Lost(self.reader.path, f"{damage}; the line and what depends on it were left out")
        if isinstance(line, jsonl.Closing) and line.threads != threads:
            yield _Lost(self.reader.path, f"{line.threads} threads were exported, but the file contains {threads}")
        if self.is_storing:
            self._drop_gone()

    def close(self) -> None:
        self.reader.close()

    def need(self, named: Iterable[Refs]) -> None:
        """Store the threads whose cells are referred to, if they are not stored yet."""
        for thread in {span.thread for refs in named for span in refs.spans if span.thread}:
            if thread in self.numbers:
                continue
            if thread not in self._gone:
                raise Unusable("it was forked from a thread that was not imported")
            self._bring_gone(thread)

    def _bring_gone(self, number: int) -> None:
        reader = Reader(self.reader.path, self._gone[number])
        try:
            line = reader.next()
            if not isinstance(line, jsonl.ThreadLine):
                raise Damaged("the file was changed during the import")
            thread = _FileThread(self, replace(line, name=jsonl.shown(self._gone_name(number))), reader)
            try:
                thread.bring_cells()
            except BaseException:
                thread.give_up()
                raise
        finally:
            reader.close()

    def _drop_gone(self) -> None:
        """Drop the temporary threads, also those of an earlier, interrupted import. Cells in use stay stored."""
        for number in self._gone:
            found = None if self.store is None else self.store.thread(self._gone_name(number))
            if self.store is not None and found is not None:
                self.store.drop(found.position.thread)

    def _gone_name(self, number: int) -> str:
        return f"cells of thread {number} of export {self.opening.id}"


class _Lost:
    """An unreadable part of the file, reported in place of a thread."""

    def __init__(self, path: str, why: str) -> None:
        self.name = path
        self._why = why

    def move(self, tally: Tally) -> None:
        tally.is_no_thread()
        raise Unusable(self._why)

    def check(self, tally: Tally) -> None:
        raise Unusable(self._why)


class _FileThread:
    """A thread of the file. Its lines are the next ones of the reader."""

    def __init__(self, source: JsonlSource, line: jsonl.ThreadLine, reader: Reader) -> None:
        self.name = jsonl.thread_name(line)
        self._source = source
        self._reader = reader
        self._line = line
        self._cells: list[jsonl.CellLine] = []
        self._last: tuple[CheckpointRow, list[jsonl.CellLine]] | None = None
        self._digests: dict[int, bytes] = {}
        self._brought: set[bytes] = set()
        self._stubs: list[int] = []
        self._known: ThreadRow | None = None
        self._replica: Replica | None = None

    def move(self, tally: Tally) -> None:
        """See `SourceThread`."""
        try:
            self._move(tally)
        except (Damaged, InvalidArgument, Unusable):
            self.give_up()
            if self._known is None:
                tally.taken_back()
            raise
        except HoldfastError:
            # The thread is incomplete, so no fork may use its cells.
            self._source.numbers.pop(self._line.number, None)
            raise

    def _move(self, tally: Tally) -> None:
        is_stored = self._source.is_storing = not tally.dry_run and self._source.store is not None
        self._begin()
        entries: list[Entry] = []
        run: jsonl.RunLine | None = None
        lines = 0
        while not isinstance(line := self._reader.next(), jsonl.DoneLine):
            lines += 1
            if isinstance(line, jsonl.CellLine):
                self._cells.append(line)
            elif isinstance(line, jsonl.ValueLine):
                lines += line.of - 1
                self._source.values.pass_by(self._reader, line)
            elif isinstance(line, jsonl.CheckpointLine):
                self._checkpoint(tally, jsonl.row_of(line), is_stored)
            elif isinstance(line, jsonl.EntryLine):
                entries.append(jsonl.entry_of(line))
            elif isinstance(line, jsonl.RunLine):
                run = line
            else:
                if line is not None:
                    self._reader.give_back(line)
                raise Unusable(_LINES_MISSING)
        if (lines, self._line.number) != (line.lines, line.number):
            raise Unusable(_LINES_MISSING)
        self._end(tally, None if run is None else _released(run), entries, is_stored)

    def check(self, tally: Tally) -> None:
        """See `SourceThread`. Everything stored is read and compared with its digests."""
        store, number = self._source.store, self._source.numbers.get(self._line.number)
        if store is None or number is None:
            return
        with Examiner(store) as examiner:
            for examined in examiner.thread(number):
                if examined.problems and (examined.is_chained or len(examined.problems) > 1):
                    tally.differ(f"checkpoint {examined.seq}", "; ".join(examined.problems))
                if examined.row is not None and not examined.row.deleted:
                    tally.checked()

    def bring_cells(self) -> None:
        """Store the cells of a thread that was not exported, in commits with their original numbers."""
        self._begin()
        replica = self._made()
        by_seq: dict[int, list[jsonl.CellLine]] = {}
        lines = 0
        while not isinstance(line := self._reader.next(), jsonl.DoneLine):
            lines += 1
            if isinstance(line, jsonl.CellLine):
                by_seq.setdefault(line.seq, []).append(line)
            elif isinstance(line, jsonl.ValueLine):
                for _ in range(1, line.of):
                    self._reader.next()
                    lines += 1
            else:
                raise Unusable(_LINES_MISSING)
        if (lines, self._line.number) != (line.lines, line.number):
            raise Unusable(_LINES_MISSING)
        for seq in range(1 if self._known is None else self._known.position.last + 1, self._line.last + 1):
            runs = jsonl.runs_of(by_seq.get(seq, ()))
            self._source.need(refs for run in runs for refs in run.refs)
            replica.commit(seq, None, runs, wrote=None)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        store = self._source.store
        self._known = None if store is None else store.thread(self.name)
        if self._known is not None:
            self._source.numbers[self._line.number] = self._known.position.thread

    def _made(self) -> Replica:
        store = self._source.store
        if store is None:
            raise HoldfastError("there is no store to import to")
        if self._replica is None:
            self._replica = Replica(
                store,
                self.name,
                self._line.number,
                self._source.numbers,
                blobs_for=self._bring,
                addresses=self._source.values.addresses,
                at=None if self._known is None else self._known.position,
            )
        return self._replica

    def _checkpoint(self, tally: Tally, row: CheckpointRow, is_stored: bool) -> None:
        cells, self._cells = self._cells, []
        self._digests[row.seq] = row.digest
        if self._is_there(row):
            if row.deleted:
                self._stubs.append(row.seq)
            else:
                tally.present()
            return
        self._check_digest(row, cells)
        if row.seq == self._line.last:
            self._last = row, cells  # committed together with the run and the journal, see _end
            return
        if not row.deleted:
            tally.moved(0)
        if is_stored:
            self._commit(row, cells)

    def _is_there(self, row: CheckpointRow) -> bool:
        """Whether the store already has a checkpoint. `Unusable` if it has a different one with this number."""
        known, store = self._known, self._source.store
        if known is None or store is None or row.seq > known.position.last:
            return False
        there = store.checkpoint(known.position.thread, row.seq)
        if there is None or there.id != row.id:
            raise Unusable(
                "a different thread with this name exists; nothing was imported. Drop that thread, or import into "
                "another store"
            )
        return True

    def _check_digest(self, row: CheckpointRow, cells: list[jsonl.CellLine]) -> None:
        if row.deleted:
            return
        wrote = _wrote(row, jsonl.runs_of(cells))
        if self._source.opening.keyed:
            return
        meta = metas.decode(row)
        parent = meta.parent_digest
        if row.parent is not None and not row.parent[0] and not parent:
            parent = self._digests.get(row.parent[1], b"")
        if metas.digest_of(PLAIN, row, wrote, parent) != row.digest:
            raise Unusable(f"checkpoint {row.seq} does not match its digest: lines are missing or were changed")

    def _commit(
        self,
        row: CheckpointRow,
        cells: list[jsonl.CellLine],
        run: RunRow | None = None,
        entries: Iterable[Entry] = (),
        summary: Summary | None = None,
    ) -> None:
        replica = self._made()
        known = self._known
        if known is not None and row.seq == known.position.last + 1:
            self._require_unmoved(known, row)
        runs = jsonl.runs_of(cells)
        self._source.need([row.refs, *(refs for each in runs for refs in each.refs)])
        wrote = None if row.deleted else _wrote(row, runs)
        if row.deleted:
            self._stubs.append(row.seq)
        replica.commit(row.seq, row, runs, wrote=wrote, summary=summary, run=run, entries=entries)
        if not row.deleted or len(self._stubs) > _STUBS_MAX:
            self._forget()

    def _forget(self) -> None:
        """Delete the placeholders of deleted checkpoints, so that they are not taken for states."""
        replica = self._made()
        replica.forget([seq for seq in self._stubs if seq != replica.at.head])
        self._stubs = [seq for seq in self._stubs if seq == replica.at.head]

    def give_up(self) -> None:
        """Drop the thread if this import created it: an incomplete thread would look like an older state."""
        number = self._source.numbers.pop(self._line.number, None)
        if self._source.store is not None and self._replica is not None and self._known is None and number is not None:
            self._source.store.drop(number)

    def _require_unmoved(self, known: ThreadRow, row: CheckpointRow) -> None:
        store = self._source.store
        has_run = store is not None and store.run(known.position.thread) is not None
        if has_run or known.position.move >= row.move:
            raise Unusable("the store has an older copy of this thread; drop it and import again")

    def _bring(self, named: Iterable[Refs]) -> tuple[Blob, ...]:
        """The blobs that this thread has not stored yet. Those of other threads may have been dropped with them."""
        new = [digest for refs in named for digest in refs.blobs if digest not in self._brought]
        values = [self._source.values.read(self._reader.path, digest) for digest in dict.fromkeys(new)]
        self._brought.update(new)
        return tuple(values)

    def _end(self, tally: Tally, run: RunRow | None, entries: list[Entry], is_stored: bool) -> None:
        """Store the last checkpoint with the run and its journal, then the moves of the head after it."""
        line, known = self._line, self._known
        if self._last is not None:
            row, cells = self._last
            if not row.deleted:
                tally.moved(len(entries))
            if not is_stored:
                return
            summary = jsonl.meant_record(line.summary, Summary)
            moves_on = run is not None and line.move > row.move and run.status in ("queued", "running", "waiting")
            if run is not None and run.reason == _HELD:
                summary = replace(summary, status=run.status)
            stored = _unended(run) if run is not None and moves_on else run
            self._commit(row, cells, stored, entries, summary)
        elif not is_stored or known is None or known.position.last != line.last:
            return  # nothing is missing, or the thread was continued in this store
        self._settle(run)

    def _settle(self, run: RunRow | None) -> None:
        replica, line = self._made(), self._line
        store = self._source.store
        if replica.at.move < line.move:
            replica.lead_to(line.head, line.move, jsonl.meant_record(line.summary, Summary))
        self._forget()
        stored = None if store is None else store.run(replica.at.thread)
        if store is not None and run is not None and stored is not None and stored.reason == _UNENDED:
            store.claim(stored, replace(run, thread=stored.thread, fence=stored.fence + 1))


def _wrote(row: CheckpointRow, runs: list[Append]) -> list[Append]:
    """The cells that a checkpoint wrote itself, among those exported with it."""
    wrote: list[Append] = []
    for log, start, count in read_skeleton(row).wrote:
        end = start + count
        held = (run for run in runs if run.log == log and run.start <= start and end <= run.start + len(run.cells))
        run = next(held, None)
        if run is None:
            raise Unusable(f"checkpoint {row.seq}: cells are missing")
        wrote.append(Append(log, start, run.cells[start - run.start :][:count], run.refs[start - run.start :][:count]))
    return wrote


def _released(line: jsonl.RunLine) -> RunRow:
    """The record of a run, without its lease. A run that was held may still be running elsewhere, so it is halted."""
    run = replace(jsonl.run_of(line), thread=0, lease_until=0, lease_first=0)
    if line.held:
        return replace(run, status="halted", reason=_HELD, owner=None)
    return run if run.status == "running" else replace(run, owner=None)


def _unended(run: RunRow) -> RunRow:
    """The record while the head is still to be moved: halted, so that no worker claims it."""
    return replace(run, status="halted", reason=_UNENDED, owner=None)
