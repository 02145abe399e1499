"""Checks of one thread: its checkpoints, its run and journal, its forks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec

from holdfast.delta.draft import Skeleton
from holdfast.delta.load import read_skeleton, rebased
from holdfast.errors import Damaged
from holdfast.intervals import Intervals
from holdfast.stores.contract import Cells, CheckpointRow, Problem, Refs, Span, Store
from holdfast.stores.running import EffectRow, RunRow
from holdfast.stores.walking import told, walk
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.ancestry import DamageLimit

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


_LIST_PAGE: Final = 200


class Listed(NamedTuple):
    """The numbers of threads, in order, and the names of those that have one and that it could be read of.

    Without problems, those without a name were dropped, and are there for what their forks use.
    """

    numbers: list[int]
    names: dict[int, str]
    problems: list[str]


def listed(store: Store) -> Listed:
    names: dict[int, str] = {}
    problems: list[str] = []
    after: str | None = None
    try:
        while page := store.threads(prefix="", after=after, limit=_LIST_PAGE):
            names.update((thread.position.thread, thread.name) for thread in page)
            after = page[-1].name
    except Damaged as damage:
        problems.append(str(damage))
        try:
            names |= told(store)
        except Damaged as worse:
            problems.append(str(worse))
    try:
        numbers = sorted(store.thread_numbers())
    except Damaged as damage:
        # Some cannot be told: those that were listed can.
        numbers = sorted(names)
        problems.append(str(damage))
    return Listed(numbers, names, problems)


_PAGE: Final = 500
_ENDED: Final = frozenset(("done", "failed", "given_up"))
_ACTING: Final = frozenset(("idempotent", "irreversible"))


def pairs(store: Store, number: int, name: str | None) -> Iterator[Problem]:
    """What is wrong with the run of a thread and its journal."""
    try:
        run = store.run(number)
        for what in _problems(store, number, run):
            yield Problem(name, (), what)
    except Damaged as damage:
        yield Problem(name, (), str(damage))


def _problems(store: Store, number: int, run: RunRow | None) -> Iterator[str]:
    last = 0
    awaited: EffectRow | None = None
    while page := store.effects(number, after=last, limit=_PAGE):
        for entry in page:
            if entry.number != last + 1:
                yield f"journal entries {last + 1} to {entry.number - 1} are missing"
            last = entry.number
            if run is not None:
                yield from _entry(run, entry)
                if entry.number == run.question:
                    awaited = entry
    if run is not None:
        yield from _run(run, number, last, store.last(number), awaited)


def _entry(run: RunRow, entry: EffectRow) -> Iterator[str]:
    what = f"journal entry {entry.number}"
    if entry.fence > run.fence:
        yield f"{what} was written under fence {entry.fence}, and the run has never had more than {run.fence}"
    # Not of waits: an answer may come after the question that takes it.
    if entry.kind in _ACTING and not entry.of and entry.matches >= entry.number:
        yield f"{what} took its result from entry {entry.matches}, which is not before it"
    if entry.kind == "answer" and entry.mark is None:
        yield f"{what} is an answer to no question"
    if entry.status in _ENDED and entry.ended_at is None and entry.kind in _ACTING:
        yield f"{what} has an outcome, and no time at which it ended"
    is_open = entry.status == "begun" and entry.number > run.closed and entry.branch == run.branch
    if run.status == "completed" and is_open and entry.kind in _ACTING and entry.fence == run.fence:
        yield f"{what} was begun and never ended, but its run is completed"


def _run(run: RunRow, number: int, last: int, newest: int, awaited: EffectRow | None) -> Iterator[str]:
    if run.thread != number:
        yield f"its run is that of thread number {run.thread}"
    if run.fence < 1:
        yield "its run has a fence that no claim gives"
    if run.status != "running" and (run.owner is not None or run.lease_until):
        yield f"its run is {run.status} and still leased to somebody"
    if run.question and awaited is None:
        yield f"its run waits for journal entry {run.question}, which is not there"
    if run.closed > last:
        yield f"its run has closed journal entry {run.closed}, and there are {last}"
    if run.began > newest or run.closed_at > newest:
        yield "its run was begun at a checkpoint that is not there"


_LOST = bytes(32)  # the digest that a repair gives to a checkpoint of which it could read nothing


class Ties(msgspec.Struct):
    """What the checkpoints of a thread have to do with other threads, by their numbers.

    `uses` are those whose cells they name, and which checkpoints do; `parents` those they began at. Not `is_whole`,
    there may be more: some checkpoint cannot be read.
    """

    uses: dict[int, set[int]] = msgspec.field(default_factory=dict[int, set[int]])
    parents: set[int] = msgspec.field(default_factory=set[int])
    is_whole: bool = True

    @property
    def says_something(self) -> bool:
        return bool(self.uses or self.parents or not self.is_whole)

    def take(self, row: CheckpointRow | Damaged) -> None:
        """A checkpoint of the thread, or a tombstone of one."""
        if isinstance(row, Damaged) or row.digest == _LOST:
            self.is_whole = False
        elif row.parent is not None and row.parent[0]:
            self.parents.add(row.parent[0])

    def names(self, thread: int, seq: int) -> None:
        """A checkpoint names cells of another thread."""
        self.uses.setdefault(thread, set()).add(seq)


def registrations(store: Store, threads: Listed, ties: Mapping[int, Ties]) -> Iterator[Problem]:
    """Which registrations are missing, and which nothing explains. `ties` has every thread that was read to its end.

    Threads come and go meanwhile. One that is there and was read is registered, from its first checkpoint on.
    """
    forks: dict[int, set[int]] = {}
    for number in threads.numbers:
        try:
            forks[number] = set(store.forks(number))
        except Damaged as damage:
            yield Problem(threads.names.get(number), (), str(damage))
    origins: dict[int, set[int]] = {}
    for origin, numbers in forks.items():
        for number in numbers:
            origins.setdefault(number, set()).add(origin)
    for number, tie in ties.items():
        name = threads.names.get(number)
        if name is None:
            continue
        found = [*_missing(number, tie, forks, threads), *_unexplained(number, tie, origins, threads)]
        if found and _is_there(store, name, number):
            yield from (Problem(name, seqs, what) for seqs, what in found)


def _missing(
    number: int, tie: Ties, forks: Mapping[int, set[int]], threads: Listed
) -> Iterator[tuple[tuple[int, ...], str]]:
    for origin, seqs in sorted(tie.uses.items()):
        if origin != number and number not in forks.get(origin, {number}):
            what = (
                f"it uses cells of {_named(origin, threads)} and is not registered as a fork of it: pruning that "
                "thread may take them away. A copy that repair makes has it registered"
            )
            yield tuple(sorted(seqs)), what


def _unexplained(
    number: int, tie: Ties, origins: Mapping[int, set[int]], threads: Listed
) -> Iterator[tuple[tuple[int, ...], str]]:
    """A fork is registered with what it began at and what that is registered with, or with what it uses."""
    explained: set[int] = set()
    waiting = {*tie.parents, *tie.uses}
    while waiting:
        origin = waiting.pop()
        if origin not in threads.names:
            return  # it was dropped: whose fork it was cannot be told any more
        explained.add(origin)
        waiting |= origins.get(origin, set()) - explained
    if tie.is_whole:
        for origin in sorted(origins.get(number, set()) - explained):
            what = (
                f"it is registered as a fork of {_named(origin, threads)} and has nothing of it: what that thread "
                "drops stays for its sake"
            )
            yield (), what


def _is_there(store: Store, name: str, number: int) -> bool:
    """Whether a thread was not dropped meanwhile."""
    try:
        thread = store.thread(name)
    except Damaged:
        return True
    return thread is not None and thread.position.thread == number


def _named(number: int, threads: Listed) -> str:
    name = threads.names.get(number)
    return f"dropped thread number {number}" if name is None else f"thread {quoted(name)}"


_ROWS: Final = 256  # checkpoints read at once
_BYTES: Final = 8 << 20  # about how many bytes of cells are held
_WORTH_SHARING: Final = 4  # values
_WORKERS: Final = min(4, os.cpu_count() or 1)
_NONE: Final = Ties()  # most threads have nothing to do with others
_TOGETHER: Final = 128  # checkpoints whose cells are read at once, unless they are large


class Examined(NamedTuple):
    """A checkpoint and what was found: what is wrong with it, and whether it is chained to its parent.

    `row` is None if it cannot be read; a tombstone is not looked at further.
    """

    seq: int
    row: CheckpointRow | None
    problems: tuple[str, ...]
    is_chained: bool = True


class Examiner:
    """Reads each cell and each shared value once.

    A cell is sound if the digest of the commit that wrote it covers it, or, where that commit was deleted, if its
    checksum fits. A checkpoint is sound if its digest fits, and if all that it and its new cells name is sound.
    """

    def __init__(
        self,
        store: Store,
        *,
        read: Callable[[int], None] | None = None,
        names: Callable[[Span], None] | None = None,
    ) -> None:
        """`read` is told how many bytes were looked at since it was last told, `names` every span that is named.

        What a cell names is told once, with the first checkpoint that names the cell.
        """
        self._store = store
        self._names = names
        self._sound: dict[tuple[int, int], Intervals] = {}
        self._values: dict[bytes, str | None] = {}
        self._read = read
        self._together = 1
        self._unproven: set[int] = set()
        self._tie = Ties()
        self.ties: dict[int, Ties] = {}
        """What threads that were read to their end have to do with others."""
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def is_proven(self, number: int) -> bool:
        """Whether digests that fit cover all that the checkpoints of a thread are made of: then each can be loaded."""
        return number not in self._unproven

    def thread(self, number: int) -> Iterator[Examined]:
        """Every checkpoint of a thread, oldest first. `Damaged` if the thread itself cannot be read."""
        digests: dict[int, bytes] = {}
        patience = DamageLimit()
        after = 0
        tie = self._tie = Ties()
        while page := walk(self._store, number, after=after, limit=_ROWS):
            at = 0
            while at < len(page):
                some = page[at : at + self._together]
                yield from self._some(number, after + at + 1, some, digests)
                for row in some:
                    if isinstance(row, Damaged):
                        patience.lost()
                    else:
                        patience.found()
                    tie.take(row)
                at += len(some)
            after += len(page)
        self.ties[number] = tie if tie.says_something else _NONE

    def _some(
        self, number: int, first: int, page: Sequence[CheckpointRow | Damaged], digests: dict[int, bytes]
    ) -> Iterator[Examined]:
        skeletons: dict[int, Skeleton] = {}
        wrong: dict[int, str] = {}
        spans: list[Span] = []
        for seq, row in enumerate(page, first):
            if isinstance(row, Damaged):
                wrong[seq] = str(row)
                continue
            digests[seq] = row.digest
            if row.deleted:
                continue
            try:
                skeleton = skeletons[seq] = read_skeleton(row)
            except Damaged as damage:
                wrong[seq] = str(damage)
                continue
            spans += [Span(number, log, start, count, seq, seq) for log, start, count in skeleton.wrote]
        cells = self._cells(spans)
        self._look_at_values(page, cells)
        for seq, row in enumerate(page, first):
            if isinstance(row, Damaged):
                examined = Examined(seq, None, (wrong[seq],))
            elif seq in wrong:
                examined = Examined(seq, row, (wrong[seq],))
            elif row.deleted:
                examined = Examined(seq, row, ())
            else:
                examined = self._checkpoint(number, row, skeletons[seq], cells, digests)
            if examined.problems:
                self._unproven.add(number)
            yield examined

    def _cells(self, spans: Sequence[Span]) -> dict[Span, Cells | Damaged]:
        """What the spans name. One that is damaged does not hide the others."""
        found: dict[Span, Cells | Damaged] = {}
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
        # The next ones are taken to be as large as these.
        each = size // max(len({span.first for span in spans}), 1)
        self._together = max(1, min(_TOGETHER, _BYTES // max(each, 1)))
        return found

    def _checkpoint(
        self,
        number: int,
        row: CheckpointRow,
        skeleton: Skeleton,
        cells: dict[Span, Cells | Damaged],
        digests: dict[int, bytes],
    ) -> Examined:
        seq = row.seq
        wrote: list[tuple[int, int, Cells]] = []
        try:
            for log, start, count in skeleton.wrote:
                read = cells[Span(number, log, start, count, seq, seq)]
                if isinstance(read, Damaged):
                    return Examined(seq, row, (str(read),))
                wrote.append((log, start, read))
            parent = self._parent_digest(row, digests)
            if parent is not None and metas.digest_of_read(self._store.hashing, row, wrote, parent) != row.digest:
                return Examined(seq, row, ("its digest does not fit what is stored, or its parent is another one",))
            for log, start, count in skeleton.wrote:
                self._part(number, log).add(start, start + count)
            named = [row.refs]
            for _, _, read in wrote:
                named += read.refs
            problems: list[str] = []
            for refs in named:
                if not self._is_known(number, refs, seq):
                    problems += self._faults(number, refs, seq)
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

    def _is_known(self, owner: int, refs: Refs, seq: int) -> bool:
        """Whether all that a record names is known to be sound: nearly always, and so the quick way."""
        if self._names is not None:
            return False
        sound = self._sound
        for span in refs.spans:
            if span.thread:
                self._tie.names(span.thread, seq)
            part = sound.get((span.thread or owner, span.log))
            if part is None or not part.holds(span.start, span.start + span.count):
                return False
        return all(digest in self._values and self._values[digest] is None for digest in refs.values)

    def _faults(self, number: int, refs: Refs, seq: int) -> Iterator[str]:
        """What is wrong with the cells and values that a record of a thread names. `Damaged` if one is missing."""
        waiting = [(number, refs)]
        while waiting:
            owner, refs = waiting.pop()
            for named in refs.spans:
                thread = named.thread or owner
                start, end = named.start, named.start + named.count
                if thread != number:
                    self._tie.names(thread, seq)
                if self._names is not None:
                    self._names(rebased(named, owner))
                sound = self._part(thread, named.log)
                if sound.holds(start, end):
                    continue
                # Their commit was deleted, is damaged, or is of a thread that was dropped.
                self._unproven.add(number)
                span = rebased(named, owner)
                (read,) = self._store.cells([span])
                sound.add(start, end)
                waiting += [(span.thread, inner) for inner in read.refs]
            for digest in refs.values:
                if digest not in self._values:
                    self._values[digest] = self._value_problem(digest)
                problem = self._values[digest]
                if problem is not None:
                    yield problem

    def _look_at_values(self, page: Sequence[CheckpointRow | Damaged], cells: Mapping[Span, Cells | Damaged]) -> None:
        """Those that the checkpoints of a page bring, on several cores: most of it is decompressing and hashing."""
        named = [row.refs for row in page if not isinstance(row, Damaged)]
        named += [refs for read in cells.values() if not isinstance(read, Damaged) for refs in read.refs]
        new = {digest: None for refs in named for digest in refs.values if digest not in self._values}
        if len(new) < _WORTH_SHARING:
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow to import, and often not needed

            self._pool = ThreadPoolExecutor(_WORKERS, "holdfast-verify")
        self._values.update(zip(new, self._pool.map(self._value_problem, new), strict=True))

    def _value_problem(self, digest: bytes) -> str | None:
        try:
            pieces = self._store.value(digest)
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
