"""Examine every checkpoint of a thread: its digest, its chain, and all that it refers to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec

from holdfast.delta.draft import Skeleton
from holdfast.delta.load import read_skeleton, rebased
from holdfast.errors import Damaged
from holdfast.intervals import Intervals
from holdfast.stores.contract import Cells, CheckpointRow, Refs, Span, Store
from holdfast.threads import metadata as metas
from holdfast.threads.ancestry import DamageLimit
from holdfast.threads.scan import checkpoint_at

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_ROWS: Final = 256  # checkpoints read at once
_TOGETHER: Final = 128  # checkpoints whose cells are read at once, unless they are large
_BYTES: Final = 8 << 20  # about how many bytes of cells are held
_WORTH_SHARING: Final = 4  # with this many blobs or more, it pays to read them in several threads
_WORKERS: Final = min(4, os.cpu_count() or 1)
_LOST: Final = bytes(32)  # the digest that a repair gives to a checkpoint of which it could read nothing


class Ties(msgspec.Struct):
    """The other threads that the checkpoints of a thread refer to, by number.

    `uses` are threads whose cells they use, with the seqs of the checkpoints that do. `parents` are threads of which a
    checkpoint is their parent. If not `is_whole`, there may be more: a checkpoint cannot be read.
    """

    uses: dict[int, set[int]] = msgspec.field(default_factory=dict[int, set[int]])
    parents: set[int] = msgspec.field(default_factory=set[int])
    is_whole: bool = True

    def take(self, row: CheckpointRow | Damaged) -> None:
        """Add a checkpoint of the thread, or its tombstone."""
        if isinstance(row, Damaged) or row.digest == _LOST:
            self.is_whole = False
        elif row.parent is not None and row.parent[0]:
            self.parents.add(row.parent[0])

    def names(self, thread: int, seq: int) -> None:
        """Add that a checkpoint uses cells of another thread."""
        self.uses.setdefault(thread, set()).add(seq)


_NONE: Final = Ties()  # most threads refer to no other


class _Subject:
    """A thread that is being examined: its number, the digests of its checkpoints so far, and its ties."""

    __slots__ = ("digests", "number", "tie")

    def __init__(self, number: int) -> None:
        self.number = number
        self.digests: dict[int, bytes] = {}
        self.tie = Ties()


_Place = tuple[_Subject, int, CheckpointRow | Damaged]  # a checkpoint with its thread and seq


class Examined(NamedTuple):
    """A checkpoint, its problems, and whether it is chained to its parent.

    `row` is None if it cannot be read. A tombstone is not examined.
    """

    seq: int
    row: CheckpointRow | None
    problems: tuple[str, ...]
    is_chained: bool = True


class Examiner:
    """Examines threads, and reads each cell and each blob once.

    A cell is sound if the digest of the commit that wrote it covers it or, if that commit was deleted, if its checksum
    is right. A checkpoint is sound if its digest is right, and all that it and its new cells refer to is sound.
    """

    def __init__(
        self,
        store: Store,
        *,
        read: Callable[[int], None] | None = None,
        names: Callable[[Span], None] | None = None,
    ) -> None:
        """`read` is called with the number of bytes read since its last call, `names` with every span referred to.

        The spans that a cell refers to are passed once, with the first checkpoint that refers to the cell.
        """
        self._store = store
        self._names = names
        self._sound: dict[tuple[int, int], Intervals] = {}
        self._values: dict[bytes, str | None] = {}
        self._read = read
        self._together = 1
        self._unproven: set[int] = set()
        self.ties: dict[int, Ties] = {}
        """The ties of each thread that was read to its end."""
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def is_proven(self, number: int) -> bool:
        """Whether right digests cover everything in the checkpoints of a thread: then each of them can be loaded."""
        return number not in self._unproven

    def thread(self, number: int) -> Iterator[Examined]:
        """Every checkpoint of a thread, oldest first. Raises Damaged if the thread itself cannot be read."""
        thread = _Subject(number)
        limit = DamageLimit()
        after = 0
        while page := self._store.walk(number, after=after, limit=_ROWS):
            for examined in self._examined([(thread, seq, row) for seq, row in enumerate(page, after + 1)]):
                yield examined
                if examined.row is None:
                    limit.lost()
                else:
                    limit.found()
            after += len(page)
            if len(page) < _ROWS:
                break
        self._end(thread)

    def threads(self, read: Mapping[int, Sequence[CheckpointRow]]) -> dict[int, list[Examined]]:
        """The checkpoints of several threads, all of which were read. Their cells are read together."""
        threads = {number: _Subject(number) for number in read}
        examined = self._examined([(threads[number], row.seq, row) for number in read for row in read[number]])
        found = {number: list(islice(examined, len(rows))) for number, rows in read.items()}
        for thread in threads.values():
            self._end(thread)
        return found

    def _end(self, thread: _Subject) -> None:
        tie = thread.tie
        self.ties[thread.number] = tie if tie.uses or tie.parents or not tie.is_whole else _NONE

    def _examined(self, page: Sequence[_Place]) -> Iterator[Examined]:
        at = 0
        while at < len(page):
            some = page[at : at + self._together]
            yield from self._some(some)
            at += len(some)

    def _some(self, page: Sequence[_Place]) -> Iterator[Examined]:
        skeletons: list[Skeleton | str] = []  # or why it cannot be read; "" if the checkpoint was deleted
        spans: list[Span] = []
        for thread, seq, row in page:
            thread.tie.take(row)
            if isinstance(row, Damaged):
                skeletons.append(str(row))
                continue
            thread.digests[seq] = row.digest
            if row.deleted:
                skeletons.append("")
                continue
            try:
                skeleton = read_skeleton(row)
            except Damaged as damage:
                skeletons.append(str(damage))
                continue
            skeletons.append(skeleton)
            spans += [Span(thread.number, log, start, count, seq, seq) for log, start, count in skeleton.wrote]
        cells = self._cells(spans)
        self._look_at_values(page, cells)
        for (thread, seq, row), read in zip(page, skeletons, strict=True):
            if isinstance(row, Damaged):
                examined = Examined(seq, None, (str(row),))
            elif isinstance(read, str):
                examined = Examined(seq, row, (read,) if read else ())
            else:
                examined = self._checkpoint(thread, row, read, cells)
            if examined.problems and (tombstone := self._tombstone(thread.number, seq)) is not None:
                examined = Examined(seq, tombstone, ())  # deleted meanwhile, and its cells with it
            if examined.problems:
                self._unproven.add(thread.number)
            yield examined

    def _tombstone(self, number: int, seq: int) -> CheckpointRow | None:
        """The row of a checkpoint if it is deleted now."""
        try:
            row = checkpoint_at(self._store, number, seq)
        except Damaged:
            return None
        return row if row is not None and row.deleted else None

    def _cells(self, spans: Sequence[Span]) -> dict[Span, Cells | Damaged]:
        """The cells of each span, or the reason why they cannot be read."""
        found: dict[Span, Cells | Damaged] = {}
        if not spans:
            self._together = _TOGETHER
            return found
        try:
            found.update(zip(spans, self._store.cells(spans), strict=True))
        except Damaged:
            for span in spans:
                try:
                    found[span] = self._store.cells([span])[0]
                except Damaged as damage:
                    found[span] = damage
        size = sum(_size(read) for read in found.values() if not isinstance(read, Damaged))
        if self._read is not None and size:
            self._read(size)
        # Assume that the next checkpoints are as large as these.
        each = size // max(len({span.first for span in spans}), 1)
        self._together = max(1, min(_TOGETHER, _BYTES // max(each, 1)))
        return found

    def _checkpoint(
        self, thread: _Subject, row: CheckpointRow, skeleton: Skeleton, cells: dict[Span, Cells | Damaged]
    ) -> Examined:
        number, seq = thread.number, row.seq
        wrote: list[tuple[int, int, Cells]] = []
        try:
            for log, start, count in skeleton.wrote:
                read = cells[Span(number, log, start, count, seq, seq)]
                if isinstance(read, Damaged):
                    return Examined(seq, row, (str(read),))
                wrote.append((log, start, read))
            parent = self._parent_digest(row, thread.digests)
            if parent is not None and metas.digest_of_read(self._store.hashing, row, wrote, parent) != row.digest:
                return Examined(
                    seq,
                    row,
                    ("its digest does not match what is stored, or its parent is another one",),
                )
            for log, start, count in skeleton.wrote:
                self._part(number, log).add(start, start + count)
            named = [row.refs]
            for _, _, read in wrote:
                named += read.refs
            problems: list[str] = []
            for refs in named:
                if not self._is_known(thread, refs, seq):
                    problems += self._faults(thread, refs, seq)
        except Damaged as damage:
            return Examined(seq, row, (str(damage),))
        if parent is None:
            return Examined(seq, row, (*problems, "its parent is missing"), is_chained=False)
        return Examined(seq, row, tuple(problems))

    def _parent_digest(self, row: CheckpointRow, digests: dict[int, bytes]) -> bytes | None:
        meta = metas.decode(row)
        if row.parent is None or row.parent[0] or meta.parent_digest:
            return meta.parent_digest
        return digests.get(row.parent[1])

    def _is_known(self, thread: _Subject, refs: Refs, seq: int) -> bool:
        """Whether all that a record refers to is known to be sound. That is the usual case, and the fast one."""
        if self._names is not None:
            return False
        sound = self._sound
        for span in refs.spans:
            if span.thread:
                thread.tie.names(span.thread, seq)
            part = sound.get((span.thread or thread.number, span.log))
            if part is None or not part.holds(span.start, span.start + span.count):
                return False
        return all(digest in self._values and self._values[digest] is None for digest in refs.blobs)

    def _faults(self, examined: _Subject, refs: Refs, seq: int) -> Iterator[str]:
        """The problems of the cells and values that a record refers to. Raises Damaged if any of them is missing."""
        number = examined.number
        waiting = [(number, refs)]
        while waiting:
            owner, refs = waiting.pop()
            for named in refs.spans:
                thread = named.thread or owner
                start, end = named.start, named.start + named.count
                if thread != number:
                    examined.tie.names(thread, seq)
                if self._names is not None:
                    self._names(rebased(named, owner))
                sound = self._part(thread, named.log)
                if sound.holds(start, end):
                    continue
                # Their commit was deleted or is damaged, or their thread was dropped.
                self._unproven.add(number)
                span = rebased(named, owner)
                (read,) = self._store.cells([span])
                sound.add(start, end)
                waiting += [(span.thread, inner) for inner in read.refs]
            for digest in refs.blobs:
                if digest not in self._values:
                    self._values[digest] = self._value_problem(digest)
                problem = self._values[digest]
                if problem is not None:
                    yield problem

    def _look_at_values(self, page: Sequence[_Place], cells: Mapping[Span, Cells | Damaged]) -> None:
        """Read the new blobs of a page on several cores: most of the work is decompressing and hashing."""
        named = [row.refs for _, _, row in page if not isinstance(row, Damaged)]
        named += [refs for read in cells.values() if not isinstance(read, Damaged) for refs in read.refs]
        new = {digest: None for refs in named for digest in refs.blobs if digest not in self._values}
        if len(new) < _WORTH_SHARING:
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to import, and often not needed

            self._pool = ThreadPoolExecutor(_WORKERS, "holdfast-verify")
        self._values.update(zip(new, self._pool.map(self._value_problem, new), strict=True))

    def _value_problem(self, digest: bytes) -> str | None:
        try:
            pieces = self._store.blob(digest)
        except Damaged as damage:
            return str(damage)
        if self._read is not None:
            self._read(sum(map(len, pieces)))
        return None

    def _part(self, thread: int, log: int) -> Intervals:
        found = self._sound.get((thread, log))
        if found is None:
            found = self._sound[thread, log] = Intervals()
        return found


def _size(cells: Cells) -> int:
    return sum([sum(block.lengths) for block in cells.blocks])
