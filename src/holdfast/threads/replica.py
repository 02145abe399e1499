"""Rebuild one thread in another store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.delta.draft import Skeleton
from holdfast.delta.load import read_skeleton
from holdfast.errors import Damaged
from holdfast.ids import new_id
from holdfast.intervals import Intervals
from holdfast.stores.contract import (
    CheckpointRow,
    Commit,
    Position,
    Refs,
    Run,
    SharedValue,
    Span,
    Store,
    Summary,
    ThreadRow,
)
from holdfast.stores.running import EffectRow, RunRow
from holdfast.stores.walking import walk
from holdfast.threads import metadata as metas
from holdfast.threads.metadata import Meta
from holdfast.threads.save import summary_of


class Stray(NamedTuple):
    """Cells that are named, and whose commit cannot say that it wrote them: it was deleted, or is lost.

    `seq` is a commit that can bring them so that whatever names them finds them; `span` reads them.
    """

    seq: int
    span: Span


class Gathered:
    """The cells of all threads that were named, and those that the commits which are left have written."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], Intervals] = {}
        self._commits: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self._named: dict[tuple[int, int], dict[tuple[int, int], tuple[int, int]]] = {}

    def wrote(self, thread: int, seq: int, ranges: tuple[tuple[int, int, int], ...]) -> None:
        """A commit is left, which wrote these (log, start, count)."""
        for log, start, count in ranges:
            if count:
                self._written.setdefault((thread, log), Intervals()).add(start, start + count)
                self._commits.setdefault((thread, log), []).append((start, start + count, seq))

    def names(self, span: Span) -> None:
        """Something names these cells. What wrote them, if it is left, was told before."""
        place = span.thread, span.log
        written = self._written.get(place)
        end = span.start + span.count
        for gap in [(span.start, end)] if written is None else written.missing(span.start, end):
            if gap[0] < gap[1]:
                gaps = self._named.setdefault(place, {})
                first, last = gaps.get(gap, (span.first, span.last))
                gaps[gap] = max(first, span.first), min(last, span.last)

    def threads(self) -> set[int]:
        """Those of which something has strayed."""
        return {thread for thread, _ in self._named}

    def strays(self, thread: int) -> Iterator[Stray]:
        """What has strayed of a thread, log by log, in the order of the cells.

        Commits write a log in order, so no commit can have written a cell who comes before the one that wrote a cell
        below it; and all that names a cell says between which commits it was written.
        """
        for (number, log), gaps in self._named.items():
            if number == thread:
                yield from self._of_log(thread, log, gaps)

    def _of_log(self, thread: int, log: int, gaps: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Stray]:
        own = sorted(self._commits.get((thread, log), []))
        at = floor = 0
        for start, end, first, last in _apart(gaps):
            while at < len(own) and own[at][0] < start:
                floor = max(floor, own[at][2])
                at += 1
            floor = max(floor, first)
            yield Stray(floor, Span(thread, log, start, end - start, min(first, last), max(first, last)))


def _apart(gaps: dict[tuple[int, int], tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Ranges that overlap, cut where one begins or ends: of each part, the latest first and the earliest last."""
    cuts = sorted({edge for gap in gaps for edge in gap})
    begins = sorted((start, end, *commits) for (start, end), commits in gaps.items())
    firsts: list[tuple[int, int]] = []
    lasts: list[tuple[int, int]] = []
    at = 0
    for start, after in pairwise(cuts):
        while at < len(begins) and begins[at][0] <= start:
            _, end, first, last = begins[at]
            heappush(firsts, (-first, end))
            heappush(lasts, (last, end))
            at += 1
        for heap in (firsts, lasts):
            while heap and heap[0][1] <= start:
                heappop(heap)
        if firsts:
            yield start, after, -firsts[0][0], lasts[0][0]


_PAGE: Final = 100

Values = Callable[[bytes], Sequence[bytes]]


class Plan(NamedTuple):
    """What of a thread is to be copied: under which name, up to which commit, and which checkpoints of it.

    `run` and `entries` come with the last of them. `thread` says where it stands; a thread without one is brought only
    for cells that others use.
    """

    number: int
    name: str
    last: int
    kept: frozenset[int]
    thread: ThreadRow | None
    run: RunRow | None
    entries: tuple[EffectRow, ...]


class Copied(NamedTuple):
    """A thread that was copied: its new number, and how many of its checkpoints have another digest than they had."""

    number: int
    redigested: int


class Copyist:
    """Copies threads from one store to another, those that others were forked from first."""

    def __init__(self, source: Store, target: Store, gathered: Gathered, values: Values) -> None:
        """`values` gives shared values as they are stored, encrypted if they are: their addresses are of that."""
        self._source = source
        self._target = target
        self._gathered = gathered
        self._numbers: dict[int, int] = {}
        self._values = values
        self._brought: set[bytes] = set()

    def copy(self, plan: Plan) -> Copied:
        """Copy a thread; its number there. Its checkpoints that are not kept become tombstones."""
        strays: defaultdict[int, list[Span]] = defaultdict(list)
        for seq, span in self._gathered.strays(plan.number):
            strays[min(seq, plan.last)].append(span)
        replica = Replica(self._target, plan.name, plan.number, self._numbers, bring=self._bring)
        after = 0
        while after < plan.last:
            page = [] if plan.thread is None else walk(self._source, plan.number, after=after, limit=_PAGE)
            for seq in range(after + 1, min(after + _PAGE, plan.last) + 1):
                row = page[seq - after - 1] if seq - after <= len(page) else None
                self._commit(plan, replica, seq, None if isinstance(row, Damaged) else row, strays.get(seq, ()))
            after += _PAGE
        if plan.thread is not None:
            head = head_of(self._source, plan.thread, plan.kept)
            if head is not None:
                shown = plan.thread.summary if plan.thread.position.head == head else None
                replica.lead_to(head, plan.thread.position.move, shown)
            replica.forget([seq for seq in range(1, plan.last + 1) if seq not in plan.kept])
        return Copied(replica.at.thread, replica.redigested)

    def _commit(
        self, plan: Plan, replica: Replica, seq: int, row: CheckpointRow | None, strays: Sequence[Span]
    ) -> None:
        wrote: list[Run] | None = None
        if row is not None and seq in plan.kept:
            wrote = [self._run(Span(plan.number, *each, seq, seq)) for each in read_skeleton(row).wrote]
        lost = (self._stray(span) for span in strays)
        runs = sorted([*(wrote or ()), *filter(None, lost)], key=lambda run: (run.log, run.start))
        is_last = seq == plan.last
        replica.commit(
            seq,
            row,
            runs,
            wrote=wrote,
            summary=plan.thread.summary if is_last and plan.thread is not None else None,
            run=plan.run if is_last else None,
            entries=plan.entries,
        )

    def _stray(self, span: Span) -> Run | None:
        try:
            return self._run(span)
        except Damaged:
            return None  # named only by what was lost with it

    def _run(self, span: Span) -> Run:
        return run_of(self._source, span)

    def _bring(self, named: Iterable[Refs]) -> tuple[SharedValue, ...]:
        """The shared values that nothing has brought yet."""
        values: list[SharedValue] = []
        for digest in dict.fromkeys(digest for refs in named for digest in refs.values):
            if digest not in self._brought:
                try:
                    values.append(SharedValue(digest, tuple(self._values(digest))))
                except Damaged:
                    continue  # named only by what was lost with it
                self._brought.add(digest)
        return tuple(values)


def run_of(source: Store, span: Span) -> Run:
    """Cells as they were written."""
    (read,) = source.cells([span])
    return Run(span.log, span.start, tuple(read.cells), tuple(read.refs))


def head_of(source: Store, thread: ThreadRow, kept: frozenset[int]) -> int | None:
    """What a thread goes on from: its head, or the nearest checkpoint before it that is kept; None if none is."""
    seq = thread.position.head
    while seq not in kept:
        try:
            row = source.checkpoint(thread.position.thread, seq)
        except Damaged:
            row = None
        if row is None or row.parent is None or row.parent[0] or not 1 <= row.parent[1] < seq:
            # Where it came from cannot be told: the newest before it.
            return max((each for each in kept if each < seq), default=max(kept, default=None))
        seq = row.parent[1]
    return seq


_DELETED_AT_ONCE: Final = 200
_NO_DIGEST: Final = bytes(32)
_GONE: Final = (1 << 31) - 1  # a thread that is in no store: the number of one that was not copied
_REWINDS_MAX: Final = 100_000

Bring = Callable[[Iterable[Refs]], tuple[SharedValue, ...]]
"""The shared values that are to be stored with a commit which names these."""

_skeletons = msgspec.msgpack.Encoder()


class Replica:
    """One thread on its way. It is given the commits of the source in order, as they are there."""

    def __init__(
        self,
        target: Store,
        name: str,
        number: int,
        numbers: dict[int, int],
        *,
        bring: Bring,
        addresses: Mapping[bytes, bytes] | None = None,
        at: Position | None = None,
    ) -> None:
        """`number` is that of the source; `numbers` says what became of others, and learns of this.

        `at` is where the replica stands already; `addresses` has the shared values that are addressed otherwise.
        """
        self._target = target
        self._name = name
        self._number = number
        self._numbers = numbers
        self._bring = bring
        self._addresses: Mapping[bytes, bytes] = {} if addresses is None else addresses
        self._at = at
        self._step = 0
        self._time = 0
        self._digests: dict[int, bytes] = {}
        self._forgotten: set[int] = set()
        self.redigested = 0
        """How many checkpoints have another digest than they had."""
        if at is not None:
            numbers[number] = at.thread

    @property
    def at(self) -> Position:
        """Where it stands."""
        if self._at is None:
            raise ValueError("a thread without commits cannot be copied")
        return self._at

    def commit(
        self,
        seq: int,
        row: CheckpointRow | None,
        runs: Sequence[Run],
        *,
        wrote: Sequence[Run] | None,
        summary: Summary | None = None,
        run: RunRow | None = None,
        entries: Iterable[EffectRow] = (),
    ) -> CheckpointRow:
        """Make the commit of a checkpoint again, with its cells; what is stored.

        `wrote` are those of the cells that its digest is of; None for one that is not to be kept: then a stub is
        stored, which `forget` makes a tombstone. `summary`, `run` and `entries` come with the last one.
        """
        move = self._move_for(row)
        runs = [self._run(each) for each in runs]
        if row is not None and wrote is not None:
            made = self._kept(row, move, [self._run(each) for each in wrote])
            shown = summary_of(row, metas.decode(row))
        else:
            made, shown = self._stub(seq, row, move)
        named = [made.refs, *(refs for each in runs for refs in each.refs)]
        thread = 0 if self._at is None else self._at.thread
        self._at = self._target.commit(
            Commit(
                name=self._name,
                expect=self._at,
                row=made,
                runs=tuple(runs),
                values=self._bring(named),
                summary=summary or shown,
                origins=tuple(sorted({span.thread for refs in named for span in refs.spans if span.thread})),
                run=None if run is None else replace(run, thread=thread),
                effects=tuple(self._entry(entry) for entry in entries) if run is not None else (),
            )
        )
        self._numbers[self._number] = self._at.thread
        self._step, self._time = made.step, (summary or shown).updated_at
        self._digests[seq] = made.digest
        return made

    def lead_to(self, head: int, move: int, summary: Summary | None) -> None:
        """Make the rewinds that were made after the last save, or one to what the thread is to go on from."""
        at = self.at
        if head != at.head or at.move < move:
            self._rewound(head, min(max(move, at.move + 1), at.move + _REWINDS_MAX), summary)

    def forget(self, seqs: Sequence[int]) -> None:
        """Make tombstones of checkpoints, none of which is the head."""
        for start in range(0, len(seqs), _DELETED_AT_ONCE):
            self._target.delete(self.at.thread, seqs[start : start + _DELETED_AT_ONCE])
        self._forgotten.update(seqs)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _kept(self, row: CheckpointRow, move: int, wrote: Iterable[Run]) -> CheckpointRow:
        made = replace(row, move=move, parent=self._parent(row), refs=self._refs(row.refs))
        meta = metas.decode(row)
        parent = meta.parent_digest
        if row.parent is not None and not row.parent[0] and not parent:
            parent = self._digest(row.parent[1])
        digest = metas.digest_of(self._target.hashing, made, wrote, parent)
        self.redigested += digest != row.digest
        return replace(made, digest=digest)

    def _stub(self, seq: int, row: CheckpointRow | None, move: int) -> tuple[CheckpointRow, Summary]:
        """What stands for a checkpoint that is not there any more, until it is made a tombstone."""
        meta = Meta(created_at=self._time, size=1)
        made = CheckpointRow(
            seq=seq,
            id=new_id(seq, self._time // 1000) if row is None else row.id,
            parent=None if row is None else self._parent(row),
            step=self._step if row is None else row.step,
            move=move,
            digest=_NO_DIGEST if row is None else row.digest,
            meta=metas.encode(meta),
            skeleton=_skeletons.encode(Skeleton(1, (0, 0), (), 1, msgpack.encode(None))),
        )
        return made, summary_of(made, meta)

    def _parent(self, row: CheckpointRow) -> tuple[int, int] | None:
        if row.parent is None or not row.parent[0]:
            return row.parent
        return self._numbers.get(row.parent[0], _GONE), row.parent[1]

    def _digest(self, seq: int) -> bytes:
        if seq not in self._digests:
            row = None if self._at is None else self._target.checkpoint(self._at.thread, seq)
            self._digests[seq] = b"" if row is None else row.digest
        return self._digests[seq]

    # -- moves -------------------------------------------------------------------------------------------------------

    def _move_for(self, row: CheckpointRow | None) -> int:
        """The number of the move that brings a row; rewinds that were made before it are made first."""
        at = self._at
        if at is None:
            return 1
        if row is not None and at.move + 1 < row.move <= at.move + _REWINDS_MAX:
            parent = row.parent
            to = parent[1] if parent is not None and not parent[0] and 1 <= parent[1] <= at.last else at.head
            at = self._rewound(at.head if to in self._forgotten else to, row.move - 1)
        return at.move + 1

    def _rewound(self, to: int, move: int, summary: Summary | None = None) -> Position:
        at = self.at
        shown = summary or self._shown(to)
        while at.move < move:
            at = self._target.rewind(at, to=to, summary=shown)
        self._at = at
        return at

    def _shown(self, seq: int) -> Summary:
        row = self._target.checkpoint(self.at.thread, seq)
        if row is None:
            raise Damaged(f"checkpoint {seq} was copied and cannot be found")
        return summary_of(row, metas.decode(row))

    # -- cells, values, numbers --------------------------------------------------------------------------------------

    def _run(self, run: Run) -> Run:
        if not run.refs:
            return run
        return replace(run, refs=tuple(self._refs(refs) for refs in run.refs))

    def _refs(self, refs: Refs) -> Refs:
        values = tuple(self._addresses.get(each, each) for each in refs.values) if self._addresses else refs.values
        if values == refs.values and all(not span.thread for span in refs.spans):
            return refs
        return Refs(tuple(self._renumbered(span) for span in refs.spans), values)

    def _renumbered(self, span: Span) -> Span:
        if not span.thread:
            return span
        number = 0 if span.thread == self._number else self._numbers.get(span.thread, _GONE)
        return Span(number, span.log, span.start, span.count, span.first, span.last)

    def _entry(self, entry: EffectRow) -> EffectRow:
        return replace(entry, number=0, of=self._numbers.get(entry.of, _GONE) if entry.of else 0)
