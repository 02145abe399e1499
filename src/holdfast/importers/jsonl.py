"""Import files of lines (`formats.lines`), with ids, times, order, forks, journals and runs.

That is a file written by `holdfast export`, or the log of a thread of a directory store. The file is read line by line,
one thread after the other. A thread that exists is recognised by the ids of its checkpoints, and missing ones
are added after them. Cells of threads that were not exported themselves are stored when another thread needs them, in a
temporary thread that is dropped at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from holdfast.delta.load import load_base, read_skeleton, state_of
from holdfast.errors import Damaged, HoldfastError, InvalidArgument, TooLarge
from holdfast.formats.jsonl import HELD
from holdfast.handle import Holdfast
from holdfast.importers.frame import SourceThread, Tally, Unusable
from holdfast.importers.jsonl_file import LineFile, Lost
from holdfast.stores.contract import PLAIN, Append, Blob, CheckpointRow, Refs, Store, Summary, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.stores.log.replay import Place, ReplayedThread
from holdfast.threads import metadata as metas
from holdfast.threads.replica import Replica
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.threads.soundness import Examiner

_CUT_OFF: Final = "the file is cut off; the complete threads were imported. Export the others again"
_UNENDED: Final = "the import is not finished"
_STUBS_MAX: Final = 50
# How many bytes of states are loaded to see whether they can be: a number, and a multiple of the bytes in the file.
_LOADED_FREE: Final = 64 << 20
_LOADED_PER_BYTE: Final = 16


def open_jsonl(path: str, hf: Holdfast | None) -> JsonlSource:
    """Open an export, or a log. NotFound if there is no such file, InvalidArgument if it is neither, NewerFormat."""
    if hf is None:
        return JsonlSource(LineFile(path), None, None)
    return JsonlSource(LineFile(path), hf.context.store, hf.context.max_state_bytes)


class JsonlSource:
    """See `Source`."""

    def __init__(self, file: LineFile, store: Store | None, max_state_bytes: int | None) -> None:
        self.file: Final = file
        self.store: Final = store
        self.max_state_bytes: Final = max_state_bytes
        self.load_budget = _LOADED_FREE + _LOADED_PER_BYTE * file.length
        self.numbers: Final[dict[int, int]] = {}
        self.addresses: Final[dict[bytes, bytes]] = {}
        self.kept_seqs: Final[dict[int, list[int]]] = {}
        self._names: dict[bytes, bytes] = {}
        self.is_storing = False
        self._gone: dict[int, ReplayedThread] = {}

    def size(self) -> int:
        return self.file.size()

    def threads(self) -> Iterator[SourceThread]:
        threads = 0
        for found in self.file.threads():
            if isinstance(found, Lost):
                threads += found.name is not None
                yield _LostThread(found.name or self.file.path, found.why, is_thread=found.name is not None)
            elif found.is_gone:
                self._gone[found.number] = found
            else:
                threads += 1
                yield _FileThread(self, found, found.name or "")
        if self.file.header is not None:
            told = self.file.exported
            if told is None:
                yield _LostThread(self.file.path, _CUT_OFF, is_thread=False)
            elif told[0] != threads:
                why = f"{told[0]} threads were exported, but the file contains {threads}"
                yield _LostThread(self.file.path, why, is_thread=False)
        if self.is_storing:
            self._drop_gone()

    def close(self) -> None:
        self.file.close()

    def need(self, named: Iterable[Refs]) -> None:
        """Store the threads whose cells are referred to, if they are not stored yet, and find the blobs."""
        named = list(named)
        for digest in {digest for refs in named for digest in refs.blobs}:
            self._find(digest)
        for number in {span.thread for refs in named for span in refs.spans if span.thread}:
            if number in self.numbers:
                continue
            if number not in self._gone:
                raise Unusable("it was forked from a thread that was not imported")
            thread = _FileThread(self, self._gone[number], self._gone_name(number))
            try:
                thread.bring_cells()
            except BaseException:
                thread.give_up()
                raise

    def blob(self, address: bytes) -> Blob:
        """A blob by its address in the store."""
        found = self.file.blob(self._names.get(address, address))
        if found is None:
            raise Unusable("it refers to a blob that is not in the file")
        return Blob(address, found.pieces)

    def _find(self, digest: bytes) -> None:
        """Compute the address of a blob in the store, which may use other digests than the file."""
        if digest in self.addresses or self._names.get(digest) == digest:
            return
        found = self.file.blob(digest)
        if found is None:
            raise Unusable("it refers to a blob that is not in the file")
        if self.store is not None:
            address = self.store.hashing.address(b"".join(found.pieces))
            self._names[address] = digest
            if address != digest:
                self.addresses[digest] = address

    def _drop_gone(self) -> None:
        """Drop the temporary threads, also those of an earlier, interrupted import. Cells in use stay stored."""
        for number in self._gone:
            found = None if self.store is None else thread_named(self.store, self._gone_name(number))
            if self.store is not None and found is not None:
                self.store.drop(found.position.thread)

    def _gone_name(self, number: int) -> str:
        return f"cells of thread {number} of export {'' if self.file.header is None else self.file.header.id}"


class _LostThread:
    """An unreadable part of the file, reported in place of a thread."""

    def __init__(self, name: str, why: str, *, is_thread: bool) -> None:
        self.name = name
        self._why = why
        self._is_thread = is_thread

    def move(self, tally: Tally) -> None:
        if not self._is_thread:
            tally.is_no_thread()
        raise Unusable(self._why)

    def check(self, tally: Tally) -> None:
        raise Unusable(self._why)


class _FileThread:
    """A thread of the file."""

    def __init__(self, source: JsonlSource, thread: ReplayedThread, name: str) -> None:
        self.name = name
        self._source = source
        self._thread = thread
        self._at = thread.at
        self._last: tuple[CheckpointRow, list[Append]] | None = None
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
            self._source.numbers.pop(self._thread.number, None)
            raise

    def _move(self, tally: Tally) -> None:
        is_stored = self._source.is_storing = not tally.dry_run and self._source.store is not None
        self._begin()
        cells = self._cells()
        for seq in range(1, self._at.last + 1):
            appends = self._source.file.appends(cells.get(seq, []))
            self._checkpoint(tally, self._source.file.row(self._thread, seq), appends, is_stored)
        run = self._thread.run
        self._end(tally, None if run is None else _released(run), self._source.file.entries(self._thread), is_stored)
        if is_stored and (self._known is None or self._known.position.last < self._at.last):
            self._require_loadable()

    def _require_loadable(self) -> None:
        """Unusable if a state cannot be loaded. Digests do not show it: a forger can compute them.

        The newest state is always loaded, earlier ones as long as `load_budget` lasts.
        """
        source, store = self._source, self._source.store
        head = None if store is None else store.head(self.name)
        if store is None or head is None:
            return
        number, seq = head.thread.position.thread, head.row.seq
        try:
            state_of(store, load_base(store, number, head.row, limit=source.max_state_bytes))
            for seq in range(self._at.last, 0, -1):
                if source.load_budget <= 0:
                    break
                row = checkpoint_at(store, number, seq)
                if row is not None and not row.deleted:
                    source.load_budget -= load_base(store, number, row).root.size
        except (Damaged, TooLarge) as error:
            raise Unusable(f"the state of checkpoint {seq} cannot be loaded ({error}); the thread is refused") from None

    def _cells(self) -> dict[int, list[tuple[int, Place]]]:
        """The cells by the commit that wrote them, with their logs."""
        found: dict[int, list[tuple[int, Place]]] = {}
        for log, cells in self._thread.logs.items():
            for cell in cells:
                found.setdefault(cell.tag, []).append((log, cell))
        return found

    def check(self, tally: Tally) -> None:
        """See `SourceThread`. Everything stored is read and compared with its digests."""
        store, number = self._source.store, self._source.numbers.get(self._thread.number)
        if store is None or number is None:
            return
        with Examiner(store) as examiner:
            for examined in examiner.thread(number):
                if examined.problems and (examined.is_chained or len(examined.problems) > 1):
                    tally.differ(f"checkpoint {examined.seq}", "; ".join(examined.problems))
                if examined.row is not None and not examined.row.deleted:
                    tally.checked()

    def bring_cells(self) -> None:
        """Store the cells of a thread that was not exported: one commit for each commit of which there are cells.

        The others are not counted: how many there were is only claimed.
        """
        self._begin()
        cells = self._cells()
        seqs = self._source.kept_seqs[self._thread.number] = sorted(cells)
        replica = self._made()
        done = 0 if self._known is None else self._known.position.last
        for number, seq in enumerate(seqs[done:], done + 1):
            appends = self._source.file.appends(cells[seq])
            self._source.need(refs for each in appends for refs in each.refs)
            replica.commit(number, None, appends, wrote=None)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        store = self._source.store
        self._known = None if store is None else thread_named(store, self.name)
        if self._known is not None:
            self._source.numbers[self._thread.number] = self._known.position.thread

    def _made(self) -> Replica:
        store = self._source.store
        if store is None:
            raise HoldfastError("there is no store to import to")
        if self._replica is None:
            self._replica = Replica(
                store,
                self.name,
                self._thread.number,
                self._source.numbers,
                blobs_for=self._bring,
                addresses=self._source.addresses,
                kept_seqs=self._source.kept_seqs,
                at=None if self._known is None else self._known.position,
            )
        return self._replica

    def _checkpoint(self, tally: Tally, row: CheckpointRow, cells: list[Append], is_stored: bool) -> None:
        self._digests[row.seq] = row.digest
        if self._is_there(row):
            if row.deleted:
                self._stubs.append(row.seq)
            else:
                tally.present()
            return
        self._check_digest(row, cells)
        if row.seq == self._at.last:
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
        there = checkpoint_at(store, known.position.thread, row.seq)
        if there is None or there.id != row.id:
            raise Unusable(
                "a different thread with this name exists; nothing was imported. Drop that thread, or import into "
                "another store."
            )
        return True

    def _check_digest(self, row: CheckpointRow, cells: list[Append]) -> None:
        if row.deleted:
            return
        wrote = _wrote(row, cells)
        if self._source.file.header is not None and self._source.file.header.keyed:
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
        cells: list[Append],
        run: RunRow | None = None,
        entries: Iterable[Entry] = (),
        summary: Summary | None = None,
    ) -> None:
        replica = self._made()
        known = self._known
        if known is not None and row.seq == known.position.last + 1:
            self._require_unmoved(known, row)
        self._source.need([row.refs, *(refs for each in cells for refs in each.refs)])
        wrote = None if row.deleted else _wrote(row, cells)
        if row.deleted:
            self._stubs.append(row.seq)
        replica.commit(row.seq, row, cells, wrote=wrote, summary=summary, run=run, entries=entries)
        if not row.deleted or len(self._stubs) > _STUBS_MAX:
            self._forget()

    def _forget(self) -> None:
        """Delete the placeholders of deleted checkpoints, so that they are not taken for states."""
        replica = self._made()
        replica.forget([seq for seq in self._stubs if seq != replica.at.head])
        self._stubs = [seq for seq in self._stubs if seq == replica.at.head]

    def give_up(self) -> None:
        """Drop the thread if this import created it: an incomplete thread would look like an older state."""
        number = self._source.numbers.pop(self._thread.number, None)
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
        values = [self._source.blob(digest) for digest in dict.fromkeys(new)]
        self._brought.update(new)
        return tuple(values)

    def _end(self, tally: Tally, run: RunRow | None, entries: list[Entry], is_stored: bool) -> None:
        """Store the last checkpoint with the run and its journal, then the moves of the head after it."""
        at, known = self._at, self._known
        if self._last is not None:
            row, cells = self._last
            if not row.deleted:
                tally.moved(len(entries))
            if not is_stored:
                return
            summary = at.summary if run is None or run.reason != HELD else replace(at.summary, status=run.status)
            moves_on = run is not None and at.move > row.move and run.status in ("queued", "running", "waiting")
            stored = _unended(run) if run is not None and moves_on else run
            self._commit(row, cells, stored, entries, summary)
        elif not is_stored or known is None or known.position.last != at.last:
            return  # nothing is missing, or the thread was continued in this store
        self._settle(run)

    def _settle(self, run: RunRow | None) -> None:
        replica, at = self._made(), self._at
        store = self._source.store
        if replica.at.move < at.move:
            replica.lead_to(at.head, at.move, at.summary)
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


def _released(run: RunRow) -> RunRow:
    """The record of a run, without its lease. In a log, a run with a lease may be running elsewhere: it is halted."""
    if run.status == "running" and run.lease_until:
        return replace(run, thread=0, lease_until=0, lease_first=0, status="halted", reason=HELD, owner=None)
    return replace(run, thread=0, lease_until=0, lease_first=0)


def _unended(run: RunRow) -> RunRow:
    """The record while the head is still to be moved: halted, so that no worker claims it."""
    return replace(run, status="halted", reason=_UNENDED, owner=None)
