"""Verify a store: every thread, checkpoint, run, journal and fork registration, in one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from holdfast.delta.load import load_base, state_of
from holdfast.errors import Damaged
from holdfast.stores.abilities import Scanned, Scanning
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import ActRow, Entry, RunRow
from holdfast.text import quoted
from holdfast.threads.effects import claim_rank, is_released_by
from holdfast.threads.scan import AllThreads, all_threads, entries, last_of, thread_named
from holdfast.threads.soundness import Examined, Examiner, Ties
from holdfast.types import Problem, VerifyProgress, VerifyReport

Progress = Callable[[VerifyProgress], None]

_AT_ONCE: Final = 128  # threads


def verify(
    store: Store,
    namespace: str = "default",
    *,
    deep: bool = True,
    fingerprint: str | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check the structures of the store, the digest and chain of every checkpoint, and all that checkpoints refer to.

    Also check that forks are registered with the threads whose cells they use. The head of a thread is loaded too,
    unless digests prove that it can be: they do not if something is damaged, or was added by a checkpoint that was
    deleted. Without `deep`, cells and blobs are not read and digests are not computed.
    """
    # Compared first, because an invalid fingerprint is a wrong argument, not damage.
    older: list[Problem] = []
    if fingerprint is not None:
        from holdfast.threads.fingerprint import compared  # noqa: PLC0415 - rarely used

        older = list(compared(store, namespace, fingerprint))
    verifier = _Verifier(store, progress, deep=deep)
    # The store reports a damaged checkpoint, and so does the verifier when it reads it.
    problems = tuple(dict.fromkeys([*store.check(), *verifier.run(), *older]))
    return VerifyReport(threads=verifier.threads, checkpoints=verifier.checkpoints, problems=problems)


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
        threads = all_threads(self._store)
        self._of = len(threads.numbers)
        yield from (Problem(None, (), what) for what in threads.problems)
        origins: list[int] = []
        for at in range(0, len(threads.numbers), _AT_ONCE):
            some = threads.numbers[at : at + _AT_ONCE]
            read = self._store.scan(some) if isinstance(self._store, Scanning) else {}
            whole = {number: one.checkpoints for number, one in read.items()} if self._deep else {}
            examined = self._examiner.threads(whole)
            for number in some:
                name, scanned = threads.names.get(number), read.get(number)
                if name is not None or threads.problems:
                    self.threads += 1
                    found = list(self._thread(number, name, scanned, examined.get(number)))
                    if found and not self._is_dropped(number, name):
                        yield from found
                if scanned is None or scanned.has_forks:
                    origins.append(number)
                self._report()
        if self._deep:
            yield from _registrations(self._store, threads, origins, self._examiner.ties)

    def _thread(
        self, number: int, name: str | None, scanned: Scanned | None, known: Iterable[Examined] | None
    ) -> Iterator[Problem]:
        """The problems of a thread. `scanned` and `known`: what was read and found before, with other threads."""
        try:
            if self._deep:
                for examined in self._examiner.thread(number) if known is None else known:
                    self.checkpoints += examined.row is not None and not examined.row.deleted
                    yield from (Problem(name, (examined.seq,), what) for what in examined.problems)
            elif scanned is not None:
                self.checkpoints += sum(not row.deleted for row in scanned.checkpoints)
            elif name is not None:
                thread = thread_named(self._store, name)
                self.checkpoints += 0 if thread is None else thread.count
        except Damaged as damage:
            yield Problem(name, (), str(damage))
            return
        yield from _journal(self._store, number, name, scanned)
        if self._deep and not self._examiner.is_proven(number):
            yield from self._head(name)

    def _is_dropped(self, number: int, name: str | None) -> bool:
        """Whether a thread was dropped after it was listed, so that nothing is wrong. Listing and record must agree."""
        if name is None:
            return False
        try:
            listed_now = self._store.threads(prefix=name, after=None, limit=1)
            return all(
                row is None or row.name != name or row.position.thread != number
                for row in (thread_named(self._store, name), *listed_now)
            )
        except Damaged:
            return False

    def _head(self, name: str | None) -> Iterator[Problem]:
        """Load the head, as the next caller will: its parts may all be there and not fit together."""
        try:
            while name is not None and (head := self._store.head(name)) is not None:
                try:
                    state_of(self._store, load_base(self._store, head.thread.position.thread, head.row))
                    return
                except Damaged:
                    # The cells of a head are swept if another writer moves the thread and deletes it meanwhile.
                    now = thread_named(self._store, name)
                    if now is not None and now.position == head.thread.position:
                        raise
        except Damaged as damage:
            yield Problem(name, (), f"its head cannot be loaded: {damage}")

    def _read(self, size: int) -> None:
        self._bytes += size
        self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(VerifyProgress(self.threads, self._of, self._bytes))


# -- runs and journals ------------------------------------------------------------------------------------------------

_ENDED: Final = frozenset(("done", "failed", "given_up"))
_ACTING: Final = frozenset(("idempotent", "irreversible"))


def _journal(store: Store, number: int, name: str | None, scanned: Scanned | None) -> Iterator[Problem]:
    """The problems of a thread's run and journal."""
    unclaimed: list[str] = []
    try:
        if scanned is not None:
            journal = _claimed(store, number, scanned.entries, unclaimed)
            found = _journal_problems(number, scanned.run, journal, lambda: len(scanned.checkpoints))
        else:
            journal = _claimed(store, number, entries(store, number), unclaimed)
            found = _journal_problems(number, store.run(number), journal, lambda: last_of(store, number))
        for what in (*found, *unclaimed):
            yield Problem(name, (), what)
    except Damaged as damage:
        yield Problem(name, (), str(damage))


def _claimed(store: Store, number: int, journal: Iterable[Entry], found: list[str]) -> Iterator[Entry]:
    """The entries of a journal. Adds a problem to `found` for each entry whose act should be claimed and is not."""
    for entry in journal:
        rank = 0 if entry.act is None or entry.matches else claim_rank(store, number, entry)
        if entry.act is not None and rank:
            claims = store.acts(key=entry.act, limit=1)
            if not claims:
                found.append(f"journal entry {entry.number} has an act that is not claimed; it may happen again")
            # A claim may have moved to another entry, which did the act, or found out whether it had happened.
            elif rank > 1 and (claims[0].thread, claims[0].number) != (number, entry.number):
                found += _unsupported(store, claims[0], entry)
        yield entry


def _unsupported(store: Store, claim: ActRow, entry: Entry) -> Iterator[str]:
    """The problem with the claim of an act that an entry has done, and that another entry claims."""
    if store.run(claim.thread) is None:
        return  # deleted: a person is asked
    holders = store.entries(claim.thread, after=claim.number - 1, limit=1)
    if not holders:
        yield f"the claim of the act of journal entry {entry.number} names an entry that is missing"
    elif not claim_rank(store, claim.thread, holders[0]) and not is_released_by(entry, holders[0]):
        yield f"journal entry {entry.number} is done, and its act is free; it may happen again"


def _journal_problems(
    number: int, run: RunRow | None, journal: Iterable[Entry], newest: Callable[[], int]
) -> Iterator[str]:
    last = 0
    missing = set() if run is None or not run.question else {run.question, *run.also}
    for entry in journal:
        if entry.number != last + 1:
            yield f"journal entries {last + 1} to {entry.number - 1} are missing"
        last = entry.number
        if run is not None:
            yield from _entry_problems(run, entry)
            missing.discard(entry.number)
    if run is not None:
        yield from _run_problems(run, number, last, newest(), missing)


def _entry_problems(run: RunRow, entry: Entry) -> Iterator[str]:
    what = f"journal entry {entry.number}"
    if entry.fence > run.fence:
        yield f"{what} was written under fence {entry.fence}, and the run has never had more than {run.fence}"
    # Not for waits: the answer that a question takes may have a higher number than the question.
    if entry.kind in _ACTING and not entry.matches_thread and entry.matches >= entry.number:
        yield f"{what} took its result from entry {entry.matches}, which is not before it"
    if entry.kind == "answer" and entry.topic is None:
        yield f"{what} is an answer without a question"
    if entry.status in _ENDED and entry.ended_at is None and entry.kind in _ACTING:
        yield f"{what} has an outcome, but no time at which it ended"
    is_open = entry.status == "started" and entry.number > run.closed and entry.branch == run.branch
    if run.status == "completed" and is_open and entry.kind in _ACTING and entry.fence == run.fence:
        yield f"{what} was started and never ended, but its run is completed"


def _run_problems(run: RunRow, number: int, last: int, newest: int, missing: set[int]) -> Iterator[str]:
    if run.thread != number:
        yield f"its run belongs to the thread with number {run.thread}"
    if run.fence < 1:
        yield f"its run has the fence {run.fence}, but fences start at 1"
    # A completed run may name the process that uses its thread, as an invocation of a graph does.
    if run.status != "running" and (run.owner is not None) != bool(run.lease_until):
        yield f"its run is {run.status}, but it is still leased"
    for each in sorted(missing):
        yield f"its run waits for journal entry {each}, which is missing"
    if run.closed > last:
        yield f"its run has closed journal entry {run.closed}, but there are only {last}"
    if max(run.began, run.closed_at, 0 if run.boundary is None else run.boundary.head) > newest:
        yield "its run was started at a checkpoint that is missing"


# -- registrations of forks -------------------------------------------------------------------------------------------


def _registrations(
    store: Store, threads: AllThreads, having: Iterable[int], ties: Mapping[int, Ties]
) -> Iterator[Problem]:
    """The registrations that are missing, and those without a reason. `ties` has every thread that was read to its end.

    `having` are the threads that may have forks. Threads may be created and dropped meanwhile. One that still exists
    was registered with its first checkpoint.
    """
    forks: dict[int, frozenset[int]] = dict.fromkeys(threads.numbers, frozenset())
    for number in having:
        try:
            forks[number] = frozenset(store.forks(number))
        except Damaged as damage:
            del forks[number]
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
    number: int, tie: Ties, forks: Mapping[int, frozenset[int]], threads: AllThreads
) -> Iterator[tuple[tuple[int, ...], str]]:
    for origin, seqs in sorted(tie.uses.items()):
        if origin != number and number not in forks.get(origin, {number}):
            what = (
                f"it uses cells of {_described(origin, threads)} but is not registered as a fork of it: a prune of "
                "that thread may remove the cells. In a copy made by repair it is registered."
            )
            yield tuple(sorted(seqs)), what


def _unexplained(
    number: int, tie: Ties, origins: Mapping[int, set[int]], threads: AllThreads
) -> Iterator[tuple[tuple[int, ...], str]]:
    """The origins of a fork without a reason: not its parents or their origins, and not threads whose cells it uses."""
    explained: set[int] = set()
    waiting = {*tie.parents, *tie.uses}
    while waiting:
        origin = waiting.pop()
        if origin not in threads.names:
            return  # dropped: its own origins are no longer known
        explained.add(origin)
        waiting |= origins.get(origin, set()) - explained
    if tie.is_whole:
        for origin in sorted(origins.get(number, set()) - explained):
            what = (
                f"it is registered as a fork of {_described(origin, threads)} but uses nothing of it: cells that the "
                "thread no longer needs are kept for it"
            )
            yield (), what


def _is_there(store: Store, name: str, number: int) -> bool:
    """Whether a thread was not dropped meanwhile."""
    try:
        thread = thread_named(store, name)
    except Damaged:
        return True
    return thread is not None and thread.position.thread == number


def _described(number: int, threads: AllThreads) -> str:
    name = threads.names.get(number)
    return f"the dropped thread with number {number}" if name is None else f"thread {quoted(name)}"
