"""Verifying: is everything that is stored what was saved?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.errors import Damaged
from holdfast.state.loading import load_base, read_skeleton, state_of
from holdfast.state.reach import rebased
from holdfast.stores.contract import CheckpointRow, Problem, Refs, Run, Span, Store
from holdfast.threads import meta as metas

_PAGE = 200


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `hf.verify()` looked at and what it found."""

    threads: int
    checkpoints: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(store: Store) -> Report:
    """Check the store's structures, every checkpoint's digest and chain, and that all they name is there, unchanged.

    The head of every thread is put together as well; older checkpoints are made of parts that were checked one by one.
    """
    verifier = _Verifier(store)
    problems = [*store.check(), *verifier.run()]
    return Report(threads=verifier.threads, checkpoints=verifier.checkpoints, problems=tuple(problems))


class _Verifier:
    """Reads each cell once.

    A cell is sound if it is covered by the digest of the commit that wrote it. A checkpoint is sound if its digest is,
    and if all that it and its new cells name is sound.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sound: dict[tuple[int, int], list[range]] = {}
        self._values: dict[bytes, str | None] = {}
        self.threads = 0
        self.checkpoints = 0

    def run(self) -> Iterator[Problem]:
        names: dict[int, str] = {}
        listed = True
        try:
            names.update(self._names())
        except Damaged as damage:
            # Which threads are left is known by number; one that has no name may be damaged or dropped.
            listed = False
            yield Problem(None, (), str(damage))
        for number in self._store.thread_numbers():
            if number in names or not listed:
                self.threads += 1
                yield from self._thread(number, names.get(number))

    def _names(self) -> Iterator[tuple[int, str]]:
        after: str | None = None
        while page := self._store.threads(prefix="", after=after, limit=_PAGE):
            yield from ((thread.position.thread, thread.name) for thread in page)
            after = page[-1].name

    def _thread(self, number: int, name: str | None) -> Iterator[Problem]:
        digests: dict[int, bytes] = {}
        try:
            last = self._store.last(number)
        except Damaged as damage:
            yield Problem(name, (), str(damage))
            return
        for seq in range(1, last + 1):
            try:
                row = self._store.checkpoint(number, seq)
                if row is None:
                    yield Problem(name, (seq,), "the checkpoint is missing")
                    continue
                digests[seq] = row.digest
                if not row.deleted:
                    self.checkpoints += 1
                    for what in self._checkpoint(number, row, digests):
                        yield Problem(name, (seq,), what)
            except Damaged as damage:
                yield Problem(name, (seq,), str(damage))
        yield from self._head(name)

    def _head(self, name: str | None) -> Iterator[Problem]:
        """Put the head together, as the next load will: that its parts are there does not mean that they fit."""
        if name is None:
            return
        try:
            thread = self._store.thread(name)
            row = None if thread is None else self._store.checkpoint(thread.position.thread, thread.position.head)
            if thread is not None and row is not None:
                state_of(self._store, load_base(self._store, thread.position.thread, row))
        except Damaged as damage:
            yield Problem(name, (), f"its head cannot be loaded: {damage}")

    def _checkpoint(self, number: int, row: CheckpointRow, digests: dict[int, bytes]) -> Iterator[str]:
        skeleton = read_skeleton(row)
        runs: list[Run] = []
        for log, start, count in skeleton.wrote:
            read = self._store.cells([Span(number, log, start, count, row.seq, row.seq)])[0]
            runs.append(Run(log, start, tuple(read.cells), tuple(read.refs)))
        if metas.digest_of(row, runs, self._parent_digest(row, digests)) != row.digest:
            yield "its digest does not fit what is stored, or its parent is another one"
            return
        for run in runs:
            self._add_sound(number, run.log, run.start, len(run.cells))
        yield from self._references(number, row.refs)
        for run in runs:
            for refs in run.refs:
                yield from self._references(number, refs)

    def _parent_digest(self, row: CheckpointRow, digests: dict[int, bytes]) -> bytes:
        meta = metas.decode(row)
        if row.parent is None or row.parent[0] or meta.parent_digest:
            return meta.parent_digest
        if row.parent[1] not in digests:
            raise Damaged("its parent is missing")
        return digests[row.parent[1]]

    def _references(self, number: int, refs: Refs) -> Iterator[str]:
        for span in (rebased(named, number) for named in refs.spans):
            if not self._is_sound(span):
                self._store.cells([span])
                self._add_sound(span.thread, span.log, span.start, span.count)
        for digest in refs.values:
            if digest not in self._values:
                self._values[digest] = self._value_problem(digest)
            problem = self._values[digest]
            if problem is not None:
                yield problem

    def _value_problem(self, digest: bytes) -> str | None:
        try:
            self._store.value(digest)
        except Damaged as damage:
            return str(damage)
        return None

    def _is_sound(self, span: Span) -> bool:
        wanted = range(span.start, span.start + span.count)
        return any(
            known.start <= wanted.start and wanted.stop <= known.stop for known in self._known(span.thread, span.log)
        )

    def _add_sound(self, thread: int, log: int, start: int, count: int) -> None:
        known = self._known(thread, log)
        known.append(range(start, start + count))
        known[:] = _united(known)

    def _known(self, thread: int, log: int) -> list[range]:
        return self._sound.setdefault((thread, log), [])


def _united(ranges: Iterable[range]) -> list[range]:
    united: list[range] = []
    for current in sorted(ranges, key=lambda r: r.start):
        if united and current.start <= united[-1].stop:
            united[-1] = range(united[-1].start, max(united[-1].stop, current.stop))
        else:
            united.append(current)
    return united
