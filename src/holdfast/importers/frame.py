"""The frame of every import: move each thread of a source, check it, and report.

A thread that exists is skipped, unless it is to be replaced; one that a stopped import left in part is imported again.
Parts that cannot be imported are skipped, with a reason; the rest is imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from holdfast.errors import Conflict, Damaged, HoldfastError, InvalidArgument, LeaseHeld

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the current phase, the number of items done, and the total."""

FILE_MAX: Final = 128 << 20
"""The default limit in bytes for a file or a line. Parsing it needs several times as much memory."""

CHECK_PATH: Final = "nothing was imported. Check the path."
CHECK_SOURCE: Final = "nothing was imported. Check the path and the format."

_FINDINGS_MAX: Final = 1000  # of each kind in a report; further ones are only counted


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an import. An option that a format does not support is rejected.

    `replace`: drop threads that exist, and import them again. `accept_mismatch`: import checkpoints whose checksum does
    not match, and report them. `max_file_bytes`: the limit for a file, or for a line if files are read line by line;
    anything larger is skipped.
    """

    replace: bool = False
    accept_mismatch: bool = False
    max_file_bytes: int = FILE_MAX

    def __post_init__(self) -> None:
        for name in ("replace", "accept_mismatch"):
            if type(getattr(self, name)) is not bool:
                raise InvalidArgument(f"{name} must be True or False")
        if type(self.max_file_bytes) is not int or self.max_file_bytes < 1:
            raise InvalidArgument("max_file_bytes must be a whole number, 1 or more")

    def chosen(self) -> tuple[str, ...]:
        """The names of the options that do not have their default value."""
        fields = msgspec.structs.fields(self)
        return tuple(field.name for field in fields if getattr(self, field.name) != field.default)


class Unusable(HoldfastError):
    """A part of a source cannot be imported; the message says why. The importers skip it."""


class ImportFinding(msgspec.Struct, frozen=True):
    """A part of a thread that was skipped, differs, or needs a remark. `item` names the part; None is the whole.

    `thread` is None if the finding is about the source; then `item` names a part of that, such as a file.
    """

    thread: str | None
    item: str | None
    reason: str

    @property
    def what(self) -> str:
        return self.reason if self.item is None else f"{self.item}: {self.reason}"

    @property
    def seqs(self) -> tuple[int, ...]:
        return ()


class Report(msgspec.Struct, frozen=True):
    """The result of an import; with `dry_run`, of one that stored nothing.

    `existing` is the number of threads that were skipped because they exist, `present` that of the checkpoints that
    were there before. `skipped` lists what was not imported and why, `differing` what is stored but differs from the
    source, `remarks` what was imported although something is unusual. `untold` counts findings that are not listed.
    """

    dry_run: bool
    threads: int
    checkpoints: int
    writes: int
    present: int
    checked: int
    skipped: tuple[ImportFinding, ...]
    differing: tuple[ImportFinding, ...]
    remarks: tuple[ImportFinding, ...]
    untold: int
    existing: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was left out, and everything that was imported is equal to the source."""
        return not self.skipped and not self.differing


class ImportTally:
    """The counts and findings of a running import. With `dry_run` nothing may be stored.

    With `replace` a thread that exists is dropped and imported again.
    """

    def __init__(
        self, *, dry_run: bool = False, replace: bool = False, total: int = 0, progress: Progress | None = None
    ) -> None:
        self.dry_run: Final = dry_run
        self.replace: Final = replace
        self._total = total
        self._progress = progress
        self._done = 0
        self._thread: str | None = None
        self._counts: Counter[str] = Counter()
        self._before: Counter[str] = Counter()  # when the thread started
        self._findings: dict[str, list[ImportFinding]] = {"skipped": [], "differing": [], "remarks": []}

    def begin(self, thread: str) -> None:
        """Start the next thread; the calls that follow are about it."""
        self._thread = thread
        self._counts["threads"] += 1
        self._before = self._counts.copy()

    def taken_back(self) -> None:
        """Undo the counts of this thread: it was dropped again."""
        self._counts = self._before.copy() + Counter(untold=self._counts["untold"] - self._before["untold"])

    def is_no_thread(self) -> None:
        """Do not count the current entry as a thread: it holds findings about the source itself."""
        self._thread = None
        self._counts["threads"] -= 1

    def moved(self, writes: int) -> None:
        """Count a checkpoint and its writes as stored, or as to be stored in a dry run."""
        self._count("importing", checkpoints=1, writes=writes)

    def moved_writes(self, writes: int) -> None:
        """Count writes that were stored without a new checkpoint."""
        self._counts["writes"] += writes

    def exists(self, checkpoints: int) -> None:
        """Count a thread that is skipped because it exists, and its checkpoints."""
        self._count("importing", 2 * checkpoints, existing=1, present=checkpoints)

    def present(self) -> None:
        """Count a checkpoint that was already stored."""
        self._count("importing", present=1)

    def checked(self) -> None:
        """Count a checkpoint that was compared with the source."""
        self._count("checking", checked=1)

    def skip(self, item: str | None, reason: str) -> None:
        """Report a part that was not imported."""
        self._find("skipped", item, reason)

    def skip_checkpoint(self, id: str, reason: str) -> None:
        self.skip(f"checkpoint {id}", reason)
        self._count("importing")

    def differ(self, item: str | None, reason: str) -> None:
        """Report a stored part that differs from the source."""
        self._find("differing", item, reason)

    def remark(self, item: str | None, reason: str) -> None:
        """Report something unusual that was imported nevertheless."""
        self._find("remarks", item, reason)

    def report(self) -> Report:
        names = ("threads", "checkpoints", "writes", "present", "checked", "untold", "existing")
        fields: dict[str, Any] = {name: self._counts[name] for name in names}
        fields |= {name: tuple(each) for name, each in self._findings.items()}
        return Report(dry_run=self.dry_run, **fields)

    def _find(self, kind: str, item: str | None, reason: str) -> None:
        if len(self._findings[kind]) < _FINDINGS_MAX:
            self._findings[kind].append(ImportFinding(self._thread, item, reason))
        else:
            self._counts["untold"] += 1

    def _count(self, phase: str, done: int = 1, **counts: int) -> None:
        self._counts.update(counts)
        self._done = min(self._done + done, self._total)
        if self._progress is not None:
            self._progress(phase, self._done, self._total)


class SourceThread(Protocol):
    """A thread of a source. It reports the parts it skips; if it raises `Unusable`, the whole thread is skipped."""

    @property
    def name(self) -> str:
        """The name of the thread in the store."""
        ...

    def move(self, tally: ImportTally) -> None:
        """Store the thread, unless it exists. A stopped import must be recognised. Nothing is stored if `dry_run`."""
        ...

    def check(self, tally: ImportTally) -> None:
        """Compare what is stored with the source."""
        ...


class ImportSource(Protocol):
    """Data of another system, opened read-only, and the store that it is imported into."""

    def size(self) -> int:
        """The number of checkpoints."""
        ...

    def threads(self) -> Iterator[SourceThread]: ...

    def close(self) -> None: ...


def run(source: ImportSource, *, dry_run: bool, progress: Progress | None, replace: bool = False) -> Report:
    """Move and check all threads of a source. Raises what the store raises; the import can then be repeated."""
    size = source.size()
    tally = ImportTally(dry_run=dry_run, replace=replace, total=size if dry_run else 2 * size, progress=progress)
    for thread in source.threads():
        tally.begin(thread.name)
        try:
            thread.move(tally)
            if not dry_run:
                thread.check(tally)
        except (Unusable, InvalidArgument, Conflict, Damaged, LeaseHeld) as error:
            tally.skip(None, str(error))
    return tally.report()
