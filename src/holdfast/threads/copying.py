"""Copying a thread into another store, record by record: ids, order, moves, times, journal, and most digests.

A store gives out the numbers of its threads itself. What names another thread by its number is rewritten, and so gets
another digest; all else keeps its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.state.loading import read_skeleton
from holdfast.stores.contract import CheckpointRow, Refs, Run, SharedValue, Span, Store, ThreadRow
from holdfast.stores.running import EffectRow, RunRow
from holdfast.stores.walking import walk
from holdfast.threads.gathering import Gathered
from holdfast.threads.replica import Replica

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
