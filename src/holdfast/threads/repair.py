"""Copy what can be read of a damaged store to a new one."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from holdfast.delta.load import read_skeleton
from holdfast.errors import AlreadyExists, Damaged
from holdfast.stores.contract import Append, Blob, CheckpointRow, Refs, Span, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.replica import GONE, Replica, claim_acts
from holdfast.threads.scan import PAGE, all_threads, checkpoint_at, entries, thread_named
from holdfast.threads.soundness import Examined, Examiner
from holdfast.threads.strays import UsedCells, append_of
from holdfast.threads.verify import Progress
from holdfast.types import Problem, RepairResult, VerifyProgress

_UNREADABLE_MAX: Final = 10_000  # journal entries or checkpoints in a row, after which the rest is given up
_HOLES_SHOWN: Final = 20
_LOST: Final = "part of it was damaged, and a repair left that out"

Values = Callable[[bytes], Sequence[bytes]]  # the pieces of a blob by its digest


def repair(
    source: Store, target: Store, progress: Progress | None = None, *, values: Values | None = None
) -> RepairResult:
    """Copy all that is sound into an empty store. Raises AlreadyExists if it is not empty; then nothing was written.

    `values` reads the blobs of the source as they are stored, if the source is encrypted.
    """
    require_empty(target)
    return _Repair(source, target, progress, values or source.blob).run()


def require_empty(target: Store) -> None:
    if target.numbered(after=None, limit=1):
        raise AlreadyExists("the target of the repair already has threads; nothing was written. Name a new store.")


class RepairPlan(NamedTuple):
    """A thread to be copied: its new name, its last commit, and the checkpoints to keep.

    `run` and `entries` are written with the last commit. `thread` has its position; a thread without one is copied only
    for cells that others use.
    """

    number: int
    name: str
    last: int
    kept: frozenset[int]
    thread: ThreadRow | None
    run: RunRow | None
    entries: tuple[Entry, ...]


class _Repair:
    def __init__(self, source: Store, target: Store, progress: Progress | None, values: Values) -> None:
        self._source = source
        self._target = target
        self._values = values
        self._progress = progress
        self._used = UsedCells()
        self._named: list[Span] = []
        self._origins: dict[int, set[int]] = {}  # the threads whose cells a thread uses
        self._lost: list[Problem] = []
        self._bytes = 0

    def run(self) -> RepairResult:
        threads = all_threads(self._source)
        self._lost += [Problem(None, (), what) for what in threads.problems]
        kept: dict[int, frozenset[int]] = {}
        with Examiner(self._source, read=self._read, names=self._named.append) as examiner:
            for done, number in enumerate(threads.numbers):
                if number in threads.names:
                    kept[number] = frozenset(self._examined(examiner, number, threads.names[number]))
                self._report(done, 2 * len(threads.numbers))
        copyist = _Copyist(self._source, self._target, self._used, self._values)
        strayed = self._used.threads()
        copied = checkpoints = entries = redigested = 0
        forgotten: list[int] = []
        # If not all numbers could be read, those of dropped threads are missing.
        numbers = _origins_first({*threads.numbers, *strayed}, self._origins)
        for done, number in enumerate(numbers):
            self._report(len(numbers) + done, 2 * len(numbers))
            plan = self._plan(number, threads.names.get(number), kept.get(number, frozenset()))
            if plan is None and number in strayed:
                forgotten.append(copyist.copy(self._unnamed(number)).at.thread)
            elif plan is not None:
                replica = copyist.copy(plan)
                copied += 1
                checkpoints += len(plan.kept)
                entries += len(plan.entries)
                redigested += replica.redigested
        for number in reversed(forgotten):
            self._target.drop(number)
        try:
            copyist.claim()
        except Damaged as error:
            self._lost.append(Problem(None, (), f"{error}; claims of deleted threads may be lost"))
            copyist.claim_from_journals()
        self._report(1, 1)
        return RepairResult(
            threads=copied, checkpoints=checkpoints, entries=entries, redigested=redigested, lost=tuple(self._lost)
        )

    # -- what can be kept --------------------------------------------------------------------------------------------

    def _examined(self, examiner: Examiner, number: int, name: str) -> Iterator[int]:
        """The sound checkpoints of a thread. One that only lacks its parent is sound."""
        try:
            for examined in examiner.thread(number):
                row = examined.row
                if row is None or not _is_sound(examined):
                    self._lost.append(Problem(name, (examined.seq,), "; ".join(examined.problems)))
                elif not row.deleted:
                    self._used.wrote(number, row.seq, read_skeleton(row).wrote)
                    yield row.seq
                # Also for a lost checkpoint: the references of a cell are reported once.
                for span in self._named:
                    self._used.names(span)
                    self._origins.setdefault(number, set()).add(span.thread)
                self._named.clear()
        except Damaged as damage:
            self._lost.append(Problem(name, (), str(damage)))

    def _plan(self, number: int, name: str | None, kept: frozenset[int]) -> RepairPlan | None:
        """The copy of a thread; None if there is nothing to copy, or the thread has no name."""
        if name is None:
            return None
        thread: ThreadRow | None = None
        try:
            thread = thread_named(self._source, name)
        except Damaged as damage:
            thread = damage.known or self._listed(name)
            self._lost.append(Problem(name, (), str(damage)))
        if thread is None or not kept:
            self._lost.append(Problem(name, (), "nothing of it can be read"))
            return None
        head = _head_of(self._source, thread, kept)
        is_whole = head == thread.position.head
        if not is_whole:
            self._lost.append(
                Problem(name, (thread.position.head,), f"its head is lost: it continues from checkpoint {head}")
            )
        run, entries, is_complete = self._journal(number, name)
        if run is not None:
            run = _released(run, is_whole=is_whole and is_complete)
            thread = replace(thread, summary=replace(thread.summary, status=run.status))
        # The stored number of checkpoints may be wrong: one far above all that can be read is not believed.
        last = max(min(thread.position.last, max(kept) + _UNREADABLE_MAX), *kept)
        return RepairPlan(number, name, last, kept, thread, run, entries)

    def _listed(self, name: str) -> ThreadRow | None:
        """The thread as a listing returns it, which checks less."""
        try:
            found = self._source.threads(prefix=name, after=None, limit=1)
        except Damaged:
            return None
        return found[0] if found and found[0].name == name else None

    def _unnamed(self, number: int) -> RepairPlan:
        """The copy of a thread that was dropped or has nothing else left: others use its cells."""
        last = max(seq for seq, _ in self._used.strays(number))
        name = f"cells of dropped thread {number} {os.urandom(8).hex()}"
        return RepairPlan(number, name, last, frozenset(), None, None, ())

    # -- the journal -------------------------------------------------------------------------------------------------

    def _journal(self, number: int, name: str) -> tuple[RunRow | None, tuple[Entry, ...], bool]:
        """The run of a thread, its journal, and whether nothing is missing."""
        try:
            run = self._source.run(number)
        except Damaged as damage:
            self._lost.append(Problem(name, (), f"its run and journal are lost: {damage}"))
            return None, (), False
        if run is None:
            return None, (), True
        entries: list[Entry] = []
        holes: list[int] = []
        while True:
            page = self._entries(number, len(entries))
            if page is None:
                holes.append(len(entries) + 1)
                if len(holes) > _UNREADABLE_MAX:
                    break
                entries.append(_hole(entries[-1] if entries else None, run))
            elif page:
                entries += page
            else:
                break
        if holes:
            numbers = ", ".join(map(str, holes[:_HOLES_SHOWN])) + (" …" if len(holes) > _HOLES_SHOWN else "")
            self._lost.append(Problem(name, (), f"journal entries {numbers} are lost: each is in doubt now"))
        return run, tuple(entries), not holes

    def _entries(self, number: int, after: int) -> list[Entry] | None:
        """The next entries, or only the next one; None if that is damaged."""
        for limit in (PAGE, 1):
            try:
                return self._source.entries(number, after=after, limit=limit)
            except Damaged:
                continue
        return None

    # -- progress ----------------------------------------------------------------------------------------------------

    def _read(self, size: int) -> None:
        self._bytes += size

    def _report(self, done: int, of: int) -> None:
        if self._progress is not None:
            self._progress(VerifyProgress(done, of, self._bytes))


def _is_sound(examined: Examined) -> bool:
    return not examined.problems or (not examined.is_chained and len(examined.problems) == 1)


def _released(run: RunRow, *, is_whole: bool) -> RunRow:
    """The record of a run in the new store, where no process holds it.

    A run that has lost something is failed: its journal may lack calls it made, so a person must decide about it.
    """
    if run.status == "completed" or (is_whole and run.status != "running"):
        return replace(run, owner=None, lease_until=0, lease_first=0)
    if is_whole:
        # Like a run whose process has just died: its lease has ended, on any clock.
        return replace(run, lease_until=0, lease_first=0)
    return replace(run, status="failed", reason=_LOST, owner=None, lease_until=0, lease_first=0, wake_at=0, wake_wall=0)


def _hole(before: Entry | None, run: RunRow) -> Entry:
    """An entry in the place of a lost one: a call was started, and its outcome is not known."""
    return Entry(
        branch=run.branch if before is None else before.branch,
        step=0 if before is None else before.step,
        key=f"lost {0 if before is None else before.number + 1}",
        name="lost",
        kind="irreversible",
        status="in_doubt",
        arguments=b"",
        fence=0,
        started_at=run.created_at if before is None else before.started_at,
        number=1 if before is None else before.number + 1,
    )


def _head_of(source: Store, thread: ThreadRow, kept: frozenset[int]) -> int | None:
    """The new head of a thread: its head, or its nearest ancestor that is kept; None if nothing is kept."""
    seq = thread.position.head
    while seq not in kept:
        try:
            row = checkpoint_at(source, thread.position.thread, seq)
        except Damaged:
            row = None
        if row is None or row.parent is None or row.parent[0] or not 1 <= row.parent[1] < seq:
            # Its parent is not known: take the newest checkpoint before it.
            return max((each for each in kept if each < seq), default=max(kept, default=None))
        seq = row.parent[1]
    return seq


def _origins_first(numbers: set[int], origins: Mapping[int, set[int]]) -> list[int]:
    """Threads in an order in which each follows those whose cells it uses. Not every store numbers them so."""
    ordered: dict[int, None] = {}
    entered: set[int] = set()
    for first in sorted(numbers):
        pending = [first]
        while pending:
            number = pending[-1]
            if number in entered:
                ordered.setdefault(pending.pop())
            else:
                entered.add(number)
                pending += [each for each in sorted(origins.get(number, ())) if each in numbers and each not in entered]
    return list(ordered)


class _Copyist:
    """Copies threads from one store to another, origins before their forks."""

    def __init__(self, source: Store, target: Store, used: UsedCells, values: Values) -> None:
        """`values` reads blobs as they are stored, encrypted or not: their digests are of those bytes."""
        self._source = source
        self._target = target
        self._used = used
        self._numbers: dict[int, int] = {}
        self._acts: dict[bytes, bytes] = {}
        self._values = values
        self._copied: set[bytes] = set()

    def claim(self) -> None:
        """Copy the claims of acts, also those whose thread is not copied."""
        after: bytes | None = None
        while page := self._source.acts(after=after, limit=PAGE):
            for row in page:
                key = self._acts.get(row.key, row.key)
                claim = replace(row, key=key, thread=self._numbers.get(row.thread, GONE))
                self._target.put_act(key, None, claim)
            after = page[-1].key

    def claim_from_journals(self) -> None:
        """Claim the acts whose claims were not copied, as far as the journals support it."""
        for number in self._numbers.values():
            if self._target.run(number) is not None:
                claim_acts(self._target, number, entries(self._target, number))

    def copy(self, plan: RepairPlan) -> Replica:
        """Copy a thread. Its checkpoints that are not kept become tombstones."""
        strays: defaultdict[int, list[Span]] = defaultdict(list)
        for seq, span in self._used.strays(plan.number):
            strays[min(seq, plan.last)].append(span)
        replica = Replica(
            self._target, plan.name, plan.number, self._numbers, blobs_for=self._blobs_for, acts=self._acts
        )
        after = 0
        while after < plan.last:
            page = [] if plan.thread is None else self._source.walk(plan.number, after=after, limit=PAGE)
            for seq in range(after + 1, min(after + PAGE, plan.last) + 1):
                row = page[seq - after - 1] if seq - after <= len(page) else None
                self._commit(plan, replica, seq, None if isinstance(row, Damaged) else row, strays.get(seq, ()))
            after += PAGE
        if plan.thread is not None:
            head = _head_of(self._source, plan.thread, plan.kept)
            if head is not None:
                summary = plan.thread.summary if plan.thread.position.head == head else None
                replica.lead_to(head, plan.thread.position.move, summary)
            replica.forget([seq for seq in range(1, plan.last + 1) if seq not in plan.kept])
        return replica

    def _commit(
        self, plan: RepairPlan, replica: Replica, seq: int, row: CheckpointRow | None, strays: Sequence[Span]
    ) -> None:
        wrote: list[Append] | None = None
        if row is not None and seq in plan.kept:
            wrote = [append_of(self._source, Span(plan.number, *each, seq, seq)) for each in read_skeleton(row).wrote]
        strayed = (self._stray(span) for span in strays)
        appends = sorted([*(wrote or ()), *filter(None, strayed)], key=lambda append: (append.log, append.start))
        is_last = seq == plan.last
        replica.commit(
            seq,
            row,
            appends,
            wrote=wrote,
            summary=plan.thread.summary if is_last and plan.thread is not None else None,
            run=plan.run if is_last else None,
            entries=plan.entries,
        )

    def _stray(self, span: Span) -> Append | None:
        try:
            return append_of(self._source, span)
        except Damaged:
            return None  # only lost checkpoints refer to it

    def _blobs_for(self, named: Iterable[Refs]) -> tuple[Blob, ...]:
        """The blobs that no commit has copied yet."""
        blobs: list[Blob] = []
        for digest in dict.fromkeys(digest for refs in named for digest in refs.blobs):
            if digest not in self._copied:
                try:
                    blobs.append(Blob(digest, tuple(self._values(digest))))
                except Damaged:
                    continue  # only lost checkpoints refer to it
                self._copied.add(digest)
        return tuple(blobs)
