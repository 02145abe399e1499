"""Import files of lines (`formats.lines`), with ids, times, order, forks, journals and runs.

That is a file written by `holdfast export`, or the log of a thread of a directory store. The file is read line by line,
one thread after the other. A thread that exists is recognised by the ids of its checkpoints. Cells of threads that were
not exported themselves are stored when another thread needs them, in a temporary thread that is dropped at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from holdfast.delta.load import load_base, read_skeleton, state_of
from holdfast.errors import Damaged, HoldfastError, InvalidArgument, TooLarge
from holdfast.formats.jsonl import HELD
from holdfast.handle import Holdfast
from holdfast.importers.foreign import Aside, Unreadable
from holdfast.importers.foreign_files import shown_name
from holdfast.importers.frame import ImportTally, Options, SourceThread, Unusable
from holdfast.importers.jsonl_file import LineFile, Lost
from holdfast.stores.contract import PLAIN, Append, Blob, CheckpointRow, Refs, Store, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.log.replay import Place, ReplayedThread
from holdfast.threads import metadata as metas
from holdfast.threads.replica import Replica
from holdfast.threads.scan import checkpoint_at, thread_named, walked
from holdfast.threads.soundness import Examiner

_CUT_OFF: Final = "the file is cut off; the complete threads were imported. Export the others again"
_UNENDED: Final = "the import is not finished"
_OTHER: Final = (
    "a different thread with this name exists; nothing was imported. Use replace=True or --replace to replace it, or "
    "import into another store."
)
_OLDER: Final = (
    "the store has an older copy of this thread; nothing was imported. Use replace=True or --replace to replace it."
)
_STUBS_MAX: Final = 50
# How many bytes of states are loaded to see whether they can be: a number, and a multiple of the bytes in the file.
_LOADED_FREE: Final = 64 << 20
_LOADED_PER_BYTE: Final = 16


def open_jsonl(path: str, hf: Holdfast | None, _options: Options) -> JsonlSource:
    """Open an export, or a log. NotFound if there is no such file, InvalidArgument if it is neither, NewerFormat."""
    return JsonlSource(LineFile(path), hf)


class JsonlSource:
    """See `ImportSource`."""

    def __init__(self, file: LineFile, hf: Holdfast | None) -> None:
        self.file: Final = file
        self.hf: Final = hf
        self.load_budget = _LOADED_FREE + _LOADED_PER_BYTE * file.length
        self.numbers: Final[dict[int, int]] = {}
        self.addresses: Final[dict[bytes, bytes]] = {}
        self.kept_seqs: Final[dict[int, list[int]]] = {}
        self._names: dict[bytes, bytes] = {}
        self.is_storing = False
        self._gone: dict[int, ReplayedThread] = {}

    @property
    def store(self) -> Store:
        """The store to import to."""
        if self.hf is None:
            raise HoldfastError("there is no store to import to")
        return self.hf.context.store

    def size(self) -> int:
        return self.file.size()

    def threads(self) -> Iterator[SourceThread]:
        item = f"file {shown_name(self.file.path)}"
        threads = 0
        for found in self.file.threads():
            if isinstance(found, Lost):
                threads += found.name is not None
                yield Aside([Unreadable(item if found.name is None else None, found.why)], thread=found.name)
            elif found.is_gone:
                self._gone[found.number] = found
            else:
                threads += 1
                yield _FileThread(self, found, found.name or "")
        if self.file.header is not None:
            told = self.file.exported
            if told is None:
                yield Aside([Unreadable(item, _CUT_OFF)])
            elif told[0] != threads:
                why = f"{told[0]} threads were exported, but the file contains {threads}"
                yield Aside([Unreadable(item, why)])
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
        address = self.store.hashing.address(b"".join(found.pieces))
        self._names[address] = digest
        if address != digest:
            self.addresses[digest] = address

    def _drop_gone(self) -> None:
        """Drop the temporary threads, also those of an earlier, interrupted import. Cells in use stay stored."""
        for number in self._gone:
            found = thread_named(self.store, self._gone_name(number))
            if found is not None:
                self.store.drop(found.position.thread)

    def _gone_name(self, number: int) -> str:
        return f"cells of thread {number} of export {'' if self.file.header is None else self.file.header.id}"


class _FileThread:
    """A thread of the file."""

    def __init__(self, source: JsonlSource, thread: ReplayedThread, name: str) -> None:
        self.name = name
        self._source = source
        self._thread = thread
        self._at = thread.at
        self._digests: dict[int, bytes] = {}
        self._brought: set[bytes] = set()
        self._stubs: list[int] = []
        self._replica: Replica | None = None

    def move(self, tally: ImportTally) -> None:
        """See `SourceThread`."""
        hf = self._source.hf
        self._source.is_storing = hf is not None and not tally.dry_run
        stored = None if hf is None else thread_named(hf.context.store, self.name)
        if hf is not None and stored is not None:
            reason = self._why_kept(hf.context.store, stored)
            if reason is not None and tally.replace:
                for _ in self._commits():  # a damaged file must not replace anything
                    pass
            elif reason:
                raise Unusable(reason)
            elif reason is not None:
                self._source.numbers[self._thread.number] = stored.position.thread
                tally.exists(stored.count)
                return
        try:
            if hf is None or tally.dry_run:
                for row, _ in self._commits():
                    tally.moved(0) if not row.deleted else None
                tally.moved_writes(len(self._thread.entries))
                return
            if stored is not None:
                hf.context.drop(stored.position.thread)
            self._write(tally)
            self._require_loadable(hf)
        except (Damaged, InvalidArgument, Unusable):
            self.give_up()
            tally.taken_back()
            raise
        except HoldfastError:
            # The thread is incomplete, so no fork may use its cells.
            self._source.numbers.pop(self._thread.number, None)
            raise

    def _why_kept(self, store: Store, stored: ThreadRow) -> str | None:
        """The reason to keep a stored thread: empty if it is this one. None if a stopped import left it.

        Such a thread has less than the file: checkpoints, moves, deletions or the run. It has nothing else, either.
        """
        position, at = stored.position, self._at
        has_stubs = False
        for row in walked(store, position.thread, min(position.last, at.last), refs_only=True):
            if row.id != self._source.file.row(self._thread, row.seq).id:
                return _OTHER
            has_stubs = has_stubs or (self._thread.is_deleted(row.seq) and not row.deleted)
        run, exported = store.run(position.thread), self._thread.run
        is_unended = run is not None and run.reason == _UNENDED
        if (position.last, position.move) >= (at.last, at.move) and not has_stubs and not is_unended:
            return ""
        is_same_run = run is None or is_unended or (exported is not None and run.fence == exported.fence)
        is_untouched = is_same_run and position.move <= at.move and not store.forks(position.thread)
        return None if is_untouched and (run is None or position.last == at.last) else _OLDER

    def _commits(self) -> Iterator[tuple[CheckpointRow, list[Append]]]:
        """Each checkpoint and the cells to store with it. Unusable if they do not match the checkpoint's digest."""
        cells = self._cells()
        for seq in range(1, self._at.last + 1):
            row, appends = self._source.file.row(self._thread, seq), self._source.file.appends(cells.get(seq, []))
            self._digests[seq] = row.digest
            self._check_digest(row, appends)
            yield row, appends

    def _cells(self) -> dict[int, list[tuple[int, Place]]]:
        """The cells by the commit that wrote them, with their logs."""
        found: dict[int, list[tuple[int, Place]]] = {}
        for log, cells in self._thread.logs.items():
            for cell in cells:
                found.setdefault(cell.tag, []).append((log, cell))
        return found

    def _check_digest(self, row: CheckpointRow, cells: list[Append]) -> None:
        if row.deleted:
            return
        wrote = _wrote(row, cells)
        if self._source.file.header is not None and self._source.file.header.keyed:
            return
        parent = metas.decode(row).parent_digest
        if row.parent is not None and not row.parent[0] and not parent:
            parent = self._digests.get(row.parent[1], b"")
        if metas.digest_of(PLAIN, row, wrote, parent) != row.digest:
            raise Unusable(f"checkpoint {row.seq} does not match its digest: lines are missing or were changed")

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self, tally: ImportTally) -> None:
        """Store the checkpoints, the last one with the run and its journal, then the moves of the head after it."""
        at, replica = self._at, self._made()
        run = None if self._thread.run is None else _released(self._thread.run)
        entries = self._source.file.entries(self._thread)
        for row, cells in self._commits():
            self._source.need([row.refs, *(refs for each in cells for refs in each.refs)])
            wrote = None if row.deleted else _wrote(row, cells)
            self._stubs += [row.seq] if row.deleted else []
            if row.seq < at.last:
                replica.commit(row.seq, row, cells, wrote=wrote)
            else:
                summary = at.summary if run is None or run.reason != HELD else replace(at.summary, status=run.status)
                moves_on = run is not None and at.move > row.move and run.status in ("queued", "running", "waiting")
                stored = _unended(run) if run is not None and moves_on else run
                replica.commit(row.seq, row, cells, wrote=wrote, summary=summary, run=stored, entries=entries)
            if not row.deleted:
                tally.moved(len(entries) if row.seq == at.last else 0)
            if not row.deleted or len(self._stubs) > _STUBS_MAX:
                self._forget()
        if replica.at.move < at.move:
            replica.lead_to(at.head, at.move, at.summary)
        self._forget()
        held = self._source.store.run(replica.at.thread)
        if run is not None and held is not None and held.reason == _UNENDED:
            self._source.store.claim(held, replace(run, thread=held.thread, fence=held.fence + 1))

    def bring_cells(self) -> None:
        """Store the cells of a thread that was not exported: one commit for each commit of which there are cells.

        The others are not counted: how many there were is only claimed.
        """
        left = thread_named(self._source.store, self.name)
        if left is not None:
            self._source.store.drop(left.position.thread)
        cells = self._cells()
        seqs = self._source.kept_seqs[self._thread.number] = sorted(cells)
        for number, seq in enumerate(seqs, 1):
            appends = self._source.file.appends(cells[seq])
            self._source.need(refs for each in appends for refs in each.refs)
            self._made().commit(number, None, appends, wrote=None)

    def _made(self) -> Replica:
        if self._replica is None:
            source = self._source
            self._replica = Replica(
                source.store,
                self.name,
                self._thread.number,
                source.numbers,
                blobs_for=self._bring,
                addresses=source.addresses,
                kept_seqs=source.kept_seqs,
            )
        return self._replica

    def _bring(self, named: Iterable[Refs]) -> tuple[Blob, ...]:
        """The blobs that this thread has not stored yet. Those of other threads may have been dropped with them."""
        new = [digest for refs in named for digest in refs.blobs if digest not in self._brought]
        values = [self._source.blob(digest) for digest in dict.fromkeys(new)]
        self._brought.update(new)
        return tuple(values)

    def _forget(self) -> None:
        """Delete the placeholders of deleted checkpoints, so that they are not taken for states."""
        replica = self._made()
        replica.forget([seq for seq in self._stubs if seq != replica.at.head])
        self._stubs = [seq for seq in self._stubs if seq == replica.at.head]

    def give_up(self) -> None:
        """Drop what was written of the thread: an incomplete thread would look like an older state."""
        number = self._source.numbers.pop(self._thread.number, None)
        if self._replica is not None and number is not None:
            self._source.store.drop(number)

    # -- checking ----------------------------------------------------------------------------------------------------

    def _require_loadable(self, hf: Holdfast) -> None:
        """Unusable if a state cannot be loaded. Digests do not show it: a forger can compute them.

        The newest state is always loaded, earlier ones as long as `load_budget` lasts.
        """
        source, store = self._source, hf.context.store
        head = store.head(self.name)
        if head is None:
            return
        number, seq = head.thread.position.thread, head.row.seq
        try:
            state_of(store, load_base(store, number, head.row, limit=hf.context.max_state_bytes))
            for seq in range(self._at.last, 0, -1):
                if source.load_budget <= 0:
                    break
                row = checkpoint_at(store, number, seq)
                if row is not None and not row.deleted:
                    source.load_budget -= load_base(store, number, row).root.size
        except (Damaged, TooLarge) as error:
            raise Unusable(f"the state of checkpoint {seq} cannot be loaded ({error}); the thread is refused") from None

    def check(self, tally: ImportTally) -> None:
        """See `SourceThread`. Everything that was stored is read and compared with its digests."""
        if self._replica is None:
            return
        with Examiner(self._source.store) as examiner:
            for examined in examiner.thread(self._replica.at.thread):
                if examined.problems and (examined.is_chained or len(examined.problems) > 1):
                    tally.differ(f"checkpoint {examined.seq}", "; ".join(examined.problems))
                if examined.row is not None and not examined.row.deleted:
                    tally.checked()


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
