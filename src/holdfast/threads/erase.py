"""Erase a subject: remove everything about it from the store and its files, and report what stays and why.

Threads are dropped first, each in one transaction. The later steps find by themselves what is left to do, so an erasure
that was cut off can be called again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Damaged, ErasePending, InvalidArgument, LeaseHeld, NotFound
from holdfast.pages import PAGE
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.contract_runs import Entry
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads import process
from holdfast.threads.context import Context
from holdfast.threads.gc import live_cells, live_values, values_of
from holdfast.threads.scan import numbered, thread_named, threads
from holdfast.threads.thread import checked_name
from holdfast.types import EraseResult


def erase(context: Context, thread: str | None, metadata: dict[str, Any] | None, *, forks: bool) -> EraseResult:
    """Remove a thread, or every thread with a checkpoint that has these metadata entries, and all that is about it.

    Children are removed too, forks only with `forks`. Raises LeaseHeld, with nothing changed, if one of the threads is
    being run, and ErasePending if a reader keeps removed data in the files of the store.
    """
    wanted = _checked(context, thread, metadata)
    if thread is not None:
        checked_name(thread)
    return _Erasure(context, is_thorough=metadata is not None).erase(thread, wanted, forks)


def plan(context: Context, thread: str | None, metadata: dict[str, Any] | None, *, forks: bool) -> EraseResult:
    """Report what `erase` would remove and leave, as far as it is known. Nothing is changed. Raises LeaseHeld as it."""
    wanted = _checked(context, thread, metadata)
    return _Erasure(context, is_thorough=False).plan(thread, wanted, forks)


def _checked(context: Context, thread: str | None, metadata: dict[str, Any] | None) -> dict[str, Any]:
    """The metadata entries to look for, as they would have been recorded."""
    if (thread is None) == (metadata is None):
        raise InvalidArgument("erase takes the name of a thread or metadata=, not both")
    if metadata is None:
        return {}
    if not metadata:
        raise InvalidArgument("an empty metadata= would erase everything; give the entries to look for")
    metas.checked_metadata(metadata)
    wanted: dict[str, Any] = context.redaction.value(metadata)
    return wanted


class _Erasure:
    """One call: what it found, and what it could not do."""

    def __init__(self, context: Context, *, is_thorough: bool) -> None:
        """`is_thorough`: sweep all threads, not only those that shared something with the erased ones."""
        self._context = context
        self._store = context.store
        self._is_thorough = is_thorough
        self._beyond: list[str] = []

    def erase(self, thread: str | None, metadata: dict[str, Any], forks: bool) -> EraseResult:
        known = {row.position.thread: row for row in threads(self._store)}
        if thread is None:
            subjects = [number for number, row in known.items() if self._is_about(row, metadata)]
        else:
            found = thread_named(self._store, thread)
            subjects = [] if found is None else [found.position.thread]
            # The thread is not there: a call that was cut off may have left data that only a full sweep finds.
            self._is_thorough = self._is_thorough or not subjects
        going = self._free_with_kin(subjects, known, forks=forks)
        values = self._values_of(going, known)
        left = self._forks_left(going, known)
        touched = self._origins_of(going)
        for number in sorted(going, reverse=True):  # forks and children before their origins and parents
            self._drop(known[number])
        kept = self._sweep(touched)
        erased = self._result(going, left, values & kept, known)
        try:
            return replace(erased, beyond=(*erased.beyond, *self._store.reclaim(scrub=True)))
        except ErasePending as pending:
            pending.erased = erased
            raise

    def plan(self, thread: str | None, metadata: dict[str, Any], forks: bool) -> EraseResult:
        known = {row.position.thread: row for row in threads(self._store)}
        subjects = [
            number for number, row in known.items() if (row.name == thread if thread else self._is_about(row, metadata))
        ]
        going = self._free_with_kin(subjects, known, forks=forks)
        return self._result(going, self._forks_left(going, known), set(), known)

    def _result(self, going: set[int], left: set[int], values: set[bytes], known: dict[int, ThreadRow]) -> EraseResult:
        return EraseResult(
            threads=tuple(sorted(known[number].name for number in going)),
            forks_left=tuple(sorted(known[number].name for number in left)),
            values_kept=tuple(sorted(digest.hex() for digest in values)),
            beyond=tuple(self._beyond),
        )

    # -- the threads to erase -----------------------------------------------------------------------------------------

    def _is_about(self, row: ThreadRow, metadata: dict[str, Any]) -> bool:
        unread = 0
        for checkpoint in _checkpoints(self._store, row):
            if isinstance(checkpoint, Damaged):
                unread += 1
            elif _has(checkpoint, metadata):
                return True
        if unread:
            self._beyond.append(
                f"thread {quoted(row.name)}: {unread} checkpoints cannot be read, so their metadata is unknown"
            )
        return False

    def _free_with_kin(self, subjects: list[int], known: dict[int, ThreadRow], *, forks: bool) -> set[int]:
        """The subjects, their children and the children of these; with `forks`, also the forks of all of them.

        Raises LeaseHeld if one of them is being run.
        """
        numbers = {row.name: number for number, row in known.items()}
        going: set[int] = set()
        waiting = list(subjects)
        while waiting:
            number = waiting.pop()
            if number in going or number not in known:
                continue
            going.add(number)
            waiting += [numbers[name] for name in self._children(known[number]) if name in numbers]
            if forks:
                waiting += self._store.forks(number)
        for number in going:
            self._require_free(known[number])
        self._note_parents(going, known)
        return going

    def _children(self, row: ThreadRow) -> Iterator[str]:
        """The names of the threads that a thread's runs started as children, as far as its journal can be read."""
        unread = 0
        for entry in _journal(self._store, row.position.thread):
            if isinstance(entry, Damaged):
                unread += 1
            elif entry.kind == "child" and _parent(self._store, thread_named(self._store, entry.name)) == row.name:
                yield entry.name
        if unread:
            self._beyond.append(
                f"thread {quoted(row.name)}: {unread} entries of its journal cannot be read, so its children may not "
                "all be known"
            )

    def _note_parents(self, going: set[int], known: dict[int, ThreadRow]) -> None:
        """Report parents that stay: their journal has the arguments and the result of a child that is erased."""
        names = {known[number].name for number in going}
        for number in sorted(going):
            parent = _parent(self._store, known[number])
            if parent is not None and parent not in names and thread_named(self._store, parent) is not None:
                self._beyond.append(
                    f"the journal of thread {quoted(parent)}, which ran {quoted(known[number].name)} as its child and "
                    "has its result"
                )

    def _require_free(self, row: ThreadRow) -> None:
        run = self._store.run(row.position.thread)
        if run is None or run.status != "running" or run.owner is None:
            return
        clock = self._store.clock()
        if run.clock == clock.id and run.lease_until > clock.now and not process.is_dead(run.owner):
            raise LeaseHeld(
                f"thread {quoted(row.name)} is being run by a worker; nothing was erased. "
                "Call hf.cancel(), or wait until the run ends."
            )

    # -- the data of these threads ------------------------------------------------------------------------------------

    def _values_of(self, going: set[int], known: dict[int, ThreadRow]) -> set[bytes]:
        values: set[bytes] = set()
        for number in going:
            try:
                values |= values_of(self._store, number)
            except Damaged:
                self._beyond.append(
                    f"thread {quoted(known[number].name)} was damaged, so it is not known which blobs it used"
                )
        return values

    def _forks_left(self, going: set[int], known: dict[int, ThreadRow]) -> set[int]:
        return {fork for number in going for fork in self._store.forks(number) if fork in known and fork not in going}

    def _origins_of(self, going: set[int]) -> set[int]:
        """The other threads whose cells the erased ones use. Cells that nothing else uses are removed too."""
        others = [each.number for each in numbered(self._store) if each.number not in going] if going else []
        return {number for number in others if going.intersection(self._store.forks(number))}

    def _drop(self, row: ThreadRow) -> None:
        with self._context.lock(row.name):
            try:
                self._context.drop(row.position.thread)
            except NotFound:
                return  # another process has just dropped it

    def _sweep(self, touched: set[int]) -> set[bytes]:
        """Remove cells and blobs that are no longer used. Return the digests of the blobs that are left."""
        # After the threads are dropped: blobs that they added are not newer than this epoch.
        epoch = self._store.start_epoch()
        named = {row.position.thread for row in threads(self._store)}
        for number in [each.number for each in numbered(self._store)]:
            if self._is_thorough or number in touched or number not in named:
                self._sweep_cells(number)
        try:
            kept = live_values(self._store)
            self._store.sweep_blobs(kept, epoch)
        except Damaged:
            self._beyond.append(
                "blobs were not removed: a thread that is left is damaged, so it is not known which of them it uses. "
                "hf.verify() lists the damage."
            )
            return set()
        return kept

    def _sweep_cells(self, number: int) -> None:
        try:
            live = live_cells(self._store, number)
            # Before the sweep: compaction removes single cells, also from the files.
            damaged = self._store.compact(number, live).damaged
            self._store.sweep(number, live)
        except Damaged:
            damaged = 1
        if damaged:
            self._beyond.append(
                f"the thread with number {number}: damaged cells were left unchanged. They may contain data "
                "of erased threads."
            )


def _has(checkpoint: CheckpointRow, metadata: dict[str, Any]) -> bool:
    encoded = metas.decode(checkpoint).metadata
    found: dict[str, Any] = msgpack.decode(encoded) if encoded else {}
    return all(name in found and _is_equal(found[name], value) for name, value in metadata.items())


def _is_equal(one: object, other: object) -> bool:
    # 1 == True == 1.0, but they are different entries.
    return type(one) is type(other) and one == other


def _parent(store: Store, row: ThreadRow | None) -> str | None:
    """The thread whose run started that of another as its child."""
    run = None if row is None else store.run(row.position.thread)
    return None if run is None else run.parent


# -- records past damage ----------------------------------------------------------------------------------------------


def _checkpoints(store: Store, row: ThreadRow) -> Iterator[CheckpointRow | Damaged]:
    """The checkpoints of a thread, newest first, with their metadata. An error takes the place of a damaged one.

    Unlike `history.listed` it never gives up: an erasure must look at every checkpoint.
    """
    number = row.position.thread
    before = row.position.last + 1
    while before > 1:
        try:
            page = store.checkpoints(number, before=before, limit=PAGE)
        except Damaged:
            before -= 1
            yield from _one(store, number, before)
            continue
        yield from page
        before = page[-1].seq if len(page) == PAGE else 1


def _one(store: Store, number: int, seq: int) -> Iterator[CheckpointRow | Damaged]:
    try:
        row = store.checkpoint(number, seq)
    except Damaged as damage:
        yield damage
        return
    if row is not None and not row.deleted:
        yield row


def _journal(store: Store, number: int) -> Iterator[Entry | Damaged]:
    """The journal of a thread. An error takes the place of a damaged entry."""
    last = store.last_entry(number)
    after = 0
    while after < last:
        try:
            page = store.entries(number, after=after, limit=PAGE)
        except Damaged:
            yield from _entry(store, number, after + 1)
            after += 1
            continue
        yield from page
        after += max(len(page), 1)


def _entry(store: Store, number: int, entry: int) -> Iterator[Entry | Damaged]:
    try:
        yield from store.entries(number, after=entry - 1, limit=1)
    except Damaged as damage:
        yield damage
