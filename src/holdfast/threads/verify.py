"""Verify a store: every thread, every checkpoint, one report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.delta.load import load_base, state_of
from holdfast.errors import Damaged
from holdfast.stores.contract import Problem, Store
from holdfast.threads.soundness import Examiner, listed, pairs, registrations


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `hf.verify()` looked at and what it found."""

    threads: int
    checkpoints: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class Looked(msgspec.Struct, frozen=True):
    """How far a look at every thread of a store is: threads done, of how many, and bytes of cells and values read."""

    done: int
    of: int
    bytes: int


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What `hf.repair()` copied, and what it could not.

    `lost` says which checkpoints, journal entries and threads are not in the new store, and why. `redigested` is how
    many checkpoints have another digest than they had: what it covers names a thread whose number is another now, or
    it is chained to one that was lost or has another digest itself.
    """

    threads: int
    checkpoints: int
    entries: int
    redigested: int
    lost: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.lost


Progress = Callable[[Looked], None]


def verify(
    store: Store,
    namespace: str = "default",
    *,
    deep: bool = True,
    mark: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check the store's structures, every checkpoint's digest and chain, and that all they name is there, unchanged.

    And that forks are registered with the threads whose cells they use.

    The head of a thread is put together as well where digests do not prove that it can be: something of it is
    damaged, or was brought by a checkpoint that was deleted. Not `deep`, cells and shared values are left unread, and
    no digest is computed.
    """
    # First, as what is wrong with the argument is no damage.
    behind: list[Problem] = []
    if mark is not None:
        from holdfast.threads.fingerprint import compared  # noqa: PLC0415 - for those who have one

        behind = list(compared(store, namespace, mark))
    verifier = _Verifier(store, progress, deep=deep)
    problems = [*store.check(), *verifier.run(), *behind]
    return Report(threads=verifier.threads, checkpoints=verifier.checkpoints, problems=tuple(problems))


class _Verifier:
    def __init__(self, store: Store, progress: Progress | None, *, deep: bool) -> None:
        self._store = store
        self._progress = progress
        self._deep = deep
        self._examiner = Examiner(store, read=None if progress is None else self._read)
        self._bytes = 0
        self._of = 0
        self.threads = 0
        self.checkpoints = 0

    def run(self) -> Iterator[Problem]:
        with self._examiner:
            yield from self._run()

    def _run(self) -> Iterator[Problem]:
        threads = listed(self._store)
        self._of = len(threads.numbers)
        yield from (Problem(None, (), what) for what in threads.problems)
        for number in threads.numbers:
            name = threads.names.get(number)
            if name is not None or threads.problems:
                self.threads += 1
                found = list(self._thread(number, name))
                if found and not self._is_dropped(number, name):
                    yield from found
            self._tell()
        if self._deep:
            yield from registrations(self._store, threads, self._examiner.ties)

    def _thread(self, number: int, name: str | None) -> Iterator[Problem]:
        try:
            if self._deep:
                for examined in self._examiner.thread(number):
                    self.checkpoints += examined.row is not None and not examined.row.deleted
                    yield from (Problem(name, (examined.seq,), what) for what in examined.problems)
            elif name is not None:
                thread = self._store.thread(name)
                self.checkpoints += 0 if thread is None else thread.count
        except Damaged as damage:
            yield Problem(name, (), str(damage))
            return
        yield from pairs(self._store, number, name)
        if self._deep and not self._examiner.is_proven(number):
            yield from self._head(name)

    def _is_dropped(self, number: int, name: str | None) -> bool:
        """Whether a thread was dropped since it was listed, by all that says so: then nothing is wrong with it."""
        if name is None:
            return False
        try:
            listed_now = self._store.threads(prefix=name, after=None, limit=1)
            return all(
                row is None or row.name != name or row.position.thread != number
                for row in (self._store.thread(name), *listed_now)
            )
        except Damaged:
            return False

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

    def _read(self, size: int) -> None:
        self._bytes += size
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(Looked(self.threads, self._of, self._bytes))
