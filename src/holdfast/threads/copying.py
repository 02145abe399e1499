"""Copying a thread into another store, record by record: ids, order, moves, times, journal, and most digests.

A store gives out the numbers of its threads itself. What names another thread by its number is rewritten, and so gets
another digest; all else keeps its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.errors import Damaged
from holdfast.identity import new_id
from holdfast.state.draft import Skeleton
from holdfast.state.loading import read_skeleton
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
from holdfast.threads import meta as metas
from holdfast.threads.gathering import Gathered
from holdfast.threads.meta import Meta
from holdfast.threads.saving import summary_of

_PAGE: Final = 100
_DELETED_AT_ONCE: Final = 200
_NO_DIGEST: Final = bytes(32)
_GONE: Final = (1 << 31) - 1  # a thread that is in no store: the number of one that was not copied
_REWINDS_MAX: Final = 100_000

Values = Callable[[bytes], Sequence[bytes]]

_skeletons = msgspec.msgpack.Encoder()


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
        return _Copying(
            self._source, self._target, plan, self._numbers, self._values, self._brought, self._gathered
        ).run()


class _Copying:
    """One thread on its way."""

    def __init__(
        self,
        source: Store,
        target: Store,
        plan: Plan,
        numbers: dict[int, int],
        values: Values,
        brought: set[bytes],
        gathered: Gathered,
    ) -> None:
        self._source = source
        self._target = target
        self._plan = plan
        self._numbers = numbers
        self._values = values
        self._already = brought
        self._strays: defaultdict[int, list[Span]] = defaultdict(list)
        for seq, span in gathered.strays(plan.number):
            self._strays[min(seq, plan.last)].append(span)
        self._at: Position | None = None
        self._step = 0
        self._time = 0
        self._digests: dict[int, bytes] = {}
        self._redigested = 0

    def run(self) -> Copied:
        plan = self._plan
        after = 0
        while after < plan.last:
            page = [] if plan.thread is None else walk(self._source, plan.number, after=after, limit=_PAGE)
            for seq in range(after + 1, min(after + _PAGE, plan.last) + 1):
                row = page[seq - after - 1] if seq - after <= len(page) else None
                self._commit(seq, None if isinstance(row, Damaged) else row)
            after += _PAGE
        at = self._reached()
        self._lead_to_head()
        # Last: a rewind of long ago went to what was deleted since.
        lost = [seq for seq in range(1, plan.last + 1) if seq not in plan.kept]
        if plan.thread is not None:
            for start in range(0, len(lost), _DELETED_AT_ONCE):
                self._target.delete(at.thread, lost[start : start + _DELETED_AT_ONCE])
        return Copied(at.thread, self._redigested)

    def _reached(self) -> Position:
        if self._at is None:
            raise ValueError("a thread without commits cannot be copied")
        return self._at

    def _commit(self, seq: int, row: CheckpointRow | None) -> None:
        plan = self._plan
        is_kept = row is not None and seq in plan.kept
        move = self._move_for(row)
        own: list[Run] = []
        if row is not None and is_kept:
            own = [self._own(seq, *wrote) for wrote in read_skeleton(row).wrote]
            made, summary = self._kept(row, move, own), summary_of(row, metas.decode(row))
        else:
            made, summary = self._stub(seq, row, move)
        strays = (self._stray(span) for span in self._strays.get(seq, ()))
        runs = sorted([*own, *(run for run in strays if run is not None)], key=lambda run: (run.log, run.start))
        named = [made.refs, *(refs for run in runs for refs in run.refs)]
        is_last = seq == plan.last
        run = plan.run if is_last else None
        if is_last and plan.thread is not None:
            summary = plan.thread.summary
        self._at = self._target.commit(
            Commit(
                name=plan.name,
                expect=self._at,
                row=made,
                runs=tuple(runs),
                values=self._brought(named),
                summary=summary,
                origins=tuple(sorted({span.thread for refs in named for span in refs.spans if span.thread})),
                run=None if run is None else replace(run, thread=0 if self._at is None else self._at.thread),
                effects=tuple(self._entry(entry) for entry in plan.entries) if run is not None else (),
            )
        )
        self._numbers[plan.number] = self._at.thread
        self._step, self._time = made.step, summary.updated_at
        self._digests[seq] = made.digest

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _kept(self, row: CheckpointRow, move: int, wrote: Iterable[Run]) -> CheckpointRow:
        made = replace(row, move=move, parent=self._parent(row), refs=self._refs(row.refs))
        meta = metas.decode(row)
        parent = meta.parent_digest
        if row.parent is not None and not row.parent[0] and not parent:
            parent = self._digests.get(row.parent[1], b"")
        digest = metas.digest_of(self._target.hashing, made, wrote, parent)
        self._redigested += digest != row.digest
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
            skeleton=_skeletons.encode(Skeleton(1, (0, 0), (), 1, packed.encode(None))),
        )
        return made, summary_of(made, meta)

    def _parent(self, row: CheckpointRow) -> tuple[int, int] | None:
        if row.parent is None or not row.parent[0]:
            return row.parent
        return self._numbers.get(row.parent[0], _GONE), row.parent[1]

    # -- moves -------------------------------------------------------------------------------------------------------

    def _move_for(self, row: CheckpointRow | None) -> int:
        """The number of the move that brings a row; rewinds that were made before it are made first."""
        at = self._at
        if at is None:
            return 1
        if row is not None and at.move + 1 < row.move <= at.move + _REWINDS_MAX:
            parent = row.parent
            to = parent[1] if parent is not None and not parent[0] and 1 <= parent[1] <= at.last else at.head
            at = self._rewound(to, row.move - 1)
        return at.move + 1

    def _lead_to_head(self) -> None:
        """Make the rewinds that were made after the last save, or one to what the thread is to go on from."""
        thread, at = self._plan.thread, self._reached()
        if thread is None:
            return
        head = head_of(self._source, thread, self._plan.kept)
        if head is not None and (head != at.head or at.move < thread.position.move):
            self._rewound(head, min(max(thread.position.move, at.move + 1), at.move + _REWINDS_MAX))

    def _rewound(self, to: int, move: int) -> Position:
        at = self._reached()
        summary = self._shown(to)
        while at.move < move:
            at = self._target.rewind(at, to=to, summary=summary)
        self._at = at
        return at

    def _shown(self, seq: int) -> Summary:
        thread = self._plan.thread
        if thread is not None and thread.position.head == seq:
            return thread.summary
        row = self._target.checkpoint(self._reached().thread, seq)
        if row is None:
            raise Damaged(f"checkpoint {seq} was copied and cannot be found")
        return summary_of(row, metas.decode(row))

    # -- cells, values, numbers --------------------------------------------------------------------------------------

    def _own(self, seq: int, log: int, start: int, count: int) -> Run:
        return self._run(Span(self._plan.number, log, start, count, seq, seq))

    def _stray(self, span: Span) -> Run | None:
        try:
            return self._run(span)
        except Damaged:
            return None  # named only by what was lost with it

    def _run(self, span: Span) -> Run:
        (read,) = self._source.cells([span])
        return Run(span.log, span.start, tuple(read.cells), tuple(self._refs(refs) for refs in read.refs))

    def _refs(self, refs: Refs) -> Refs:
        if all(not span.thread for span in refs.spans):
            return refs
        own = self._plan.number
        return Refs(tuple(_renumbered(span, own, self._numbers) for span in refs.spans), refs.values)

    def _brought(self, named: Iterable[Refs]) -> tuple[SharedValue, ...]:
        """The shared values that nothing has brought yet."""
        values: list[SharedValue] = []
        for digest in dict.fromkeys(digest for refs in named for digest in refs.values):
            if digest not in self._already:
                try:
                    values.append(SharedValue(digest, tuple(self._values(digest))))
                except Damaged:
                    continue  # named only by what was lost with it
                self._already.add(digest)
        return tuple(values)

    def _entry(self, entry: EffectRow) -> EffectRow:
        return replace(entry, number=0, of=self._numbers.get(entry.of, _GONE) if entry.of else 0)


def _renumbered(span: Span, own: int, numbers: Mapping[int, int]) -> Span:
    if not span.thread:
        return span
    number = 0 if span.thread == own else numbers.get(span.thread, _GONE)
    return Span(number, span.log, span.start, span.count, span.first, span.last)


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
