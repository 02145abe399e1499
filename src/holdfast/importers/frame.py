"""What all importers have in common: a source of threads, each moved and then checked, and a report of it.

An import is started again as often as need be: a thread stores what is not there yet, and checks all of it. What
cannot be moved is skipped with a reason, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias

import msgspec

from holdfast.errors import Conflict, Damaged, HoldfastError, InvalidArgument

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is, and of how much."""

_FINDINGS_MAX: Final = 1000  # that are told of each kind; the others are counted


class Unusable(HoldfastError):
    """A part of a source cannot be moved; the message says why. The importers skip it."""


class Finding(msgspec.Struct, frozen=True):
    """Something of a thread that was not moved, or is to be known. `item` says which part of it, None all of it."""

    thread: str
    item: str | None
    reason: str

    @property
    def what(self) -> str:
        return self.reason if self.item is None else f"{self.item}: {self.reason}"

    @property
    def seqs(self) -> tuple[int, ...]:
        return ()


class Report(msgspec.Struct, frozen=True):
    """What an import did; with `dry_run`, what it would do.

    `skipped` is what was left behind and why, `differing` what is stored and is not what the source has, `remarks` what
    was moved all the same. Of each, `untold` are more.
    """

    dry_run: bool
    threads: int
    checkpoints: int
    writes: int
    present: int
    checked: int
    skipped: tuple[Finding, ...]
    differing: tuple[Finding, ...]
    remarks: tuple[Finding, ...]
    untold: int

    @property
    def ok(self) -> bool:
        """Whether all that the source has is there, and equal."""
        return not self.skipped and not self.differing


class Tally:
    """Counts while an import goes on. `dry_run` says that nothing may be stored."""

    def __init__(self, *, dry_run: bool, total: int, progress: Progress | None) -> None:
        self.dry_run: Final = dry_run
        self._total = total
        self._progress = progress
        self._done = 0
        self._thread = ""
        self._before = 0, 0
        self._threads = self._checkpoints = self._writes = self._present = self._checked = self._untold = 0
        self._skipped: list[Finding] = []
        self._differing: list[Finding] = []
        self._remarks: list[Finding] = []

    def begin(self, thread: str) -> None:
        """The next thread; what follows is of it."""
        self._thread = thread
        self._threads += 1
        self._before = self._checkpoints, self._writes

    def taken_back(self) -> None:
        """What was stored of this thread was dropped again, or would be."""
        self._checkpoints, self._writes = self._before

    def is_no_thread(self) -> None:
        """What was begun is none: something of the source itself is told."""
        self._threads -= 1

    def moved(self, writes: int) -> None:
        """A checkpoint was stored, or would be, and so many writes with it."""
        self._checkpoints += 1
        self._writes += writes
        self._went_on("importing")

    def moved_writes(self, writes: int) -> None:
        """Writes were stored, or would be, of no checkpoint, or of one that was there."""
        self._writes += writes

    def present(self) -> None:
        """A checkpoint was there already."""
        self._present += 1
        self._went_on("importing")

    def checked(self) -> None:
        """A checkpoint was held against the source."""
        self._checked += 1
        self._went_on("checking")

    def skip(self, item: str | None, reason: str) -> None:
        """Something is left behind."""
        self._tell(self._skipped, item, reason)

    def skip_checkpoint(self, id: str, reason: str) -> None:
        self.skip(f"checkpoint {id}", reason)
        self._went_on("importing")

    def differ(self, item: str | None, reason: str) -> None:
        """Something is stored, and not as the source has it."""
        self._tell(self._differing, item, reason)

    def remark(self, item: str | None, reason: str) -> None:
        """Something is odd, and was moved all the same."""
        self._tell(self._remarks, item, reason)

    def report(self) -> Report:
        return Report(
            dry_run=self.dry_run,
            threads=self._threads,
            checkpoints=self._checkpoints,
            writes=self._writes,
            present=self._present,
            checked=self._checked,
            skipped=tuple(self._skipped),
            differing=tuple(self._differing),
            remarks=tuple(self._remarks),
            untold=self._untold,
        )

    def _tell(self, found: list[Finding], item: str | None, reason: str) -> None:
        if len(found) < _FINDINGS_MAX:
            found.append(Finding(self._thread, item, reason))
        else:
            self._untold += 1

    def _went_on(self, what: str) -> None:
        self._done = min(self._done + 1, self._total)
        if self._progress is not None:
            self._progress(what, self._done, self._total)


class SourceThread(Protocol):
    """A thread of a source. What it cannot move it tells; what it raises of `Unusable` is told for all of it."""

    @property
    def name(self) -> str:
        """That of the thread it becomes."""
        ...

    def move(self, tally: Tally) -> None:
        """Store what is not there yet, in an order in which it can be gone on with; nothing if `tally.dry_run`."""
        ...

    def check(self, tally: Tally) -> None:
        """Hold what is stored against the source."""
        ...


class Source(Protocol):
    """Data of another system, open for reading only, and the store it goes to."""

    def size(self) -> int:
        """How many checkpoints there are."""
        ...

    def threads(self) -> Iterator[SourceThread]: ...

    def close(self) -> None: ...


def run(source: Source, *, dry_run: bool, progress: Progress | None) -> Report:
    """Move all threads of a source, and check each. Raises what the store raises, after which it can be run again."""
    size = source.size()
    tally = Tally(dry_run=dry_run, total=size if dry_run else 2 * size, progress=progress)
    for thread in source.threads():
        tally.begin(thread.name)
        try:
            thread.move(tally)
            if not dry_run:
                thread.check(tally)
        except (Unusable, InvalidArgument, Conflict, Damaged) as error:
            tally.skip(None, str(error))
    return tally.report()
