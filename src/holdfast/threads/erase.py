"""Erase threads: remove their data from the store and its files, and report what stays and why.

Threads are dropped first, each in one transaction. The later steps find by themselves what is left to do, so an erasure
that was cut off can be called again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import NoneType
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Damaged, ErasePending, InvalidArgument, LeaseHeld, NotFound
from holdfast.stores.abilities import Searching
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.contract_runs import Entry
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads import process
from holdfast.threads.context import Context
from holdfast.threads.gc import Removed, blobs_of, remove_unused
from holdfast.threads.scan import PAGE, checkpoint_at, name_of, thread_named, threads
from holdfast.threads.thread import checked_name
from holdfast.types import EraseResult


def erase(context: Context, thread: str | None, metadata: dict[str, Any] | None, *, forks: bool) -> EraseResult:
    """Remove a thread, or every thread with a checkpoint that has these metadata entries, also from the store's files.

    Children are removed too, forks only with `forks`. Raises LeaseHeld, with nothing changed, if one of the threads is
    being run, and ErasePending if a reader keeps removed data in the files of the store.
    """
    wanted = _checked(context, thread, metadata)
    if thread is not None:
        checked_name(thread)
    return _Erasure(context).erase(thread, wanted, forks)


def plan(context: Context, thread: str | None, metadata: dict[str, Any] | None, *, forks: bool) -> EraseResult:
    """Report what `erase` would remove and leave, as far as it is known; change nothing. LeaseHeld as for `erase`."""
    wanted = _checked(context, thread, metadata)
    return _Erasure(context).plan(thread, wanted, forks)


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

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._beyond: list[str] = []

    def erase(self, thread: str | None, metadata: dict[str, Any], forks: bool) -> EraseResult:
        going = self._going(thread, metadata, forks)
        values = self._values_of(going)
        left = self._forks_left(going)
        for number in sorted(going, reverse=True):  # forks and children before their origins and parents
            self._drop(number, going[number])
        # Only after the drops: this starts a new epoch, and blobs that the dropped threads stamped must be older.
        removed = remove_unused(self._store)
        self._note_damage(removed)
        kept = set() if removed.used is None else values & removed.used
        erased = self._result(going, left, kept)
        try:
            return replace(erased, beyond=(*erased.beyond, *self._store.reclaim(scrub=True)))
        except ErasePending as pending:
            pending.erased = erased
            raise

    def plan(self, thread: str | None, metadata: dict[str, Any], forks: bool) -> EraseResult:
        going = self._going(thread, metadata, forks)
        return self._result(going, self._forks_left(going), set())

    def _result(self, going: dict[int, str], left: set[str], values: set[bytes]) -> EraseResult:
        return EraseResult(
            threads=tuple(sorted(going.values())),
            forks_left=tuple(sorted(left)),
            blobs_kept=tuple(sorted(digest.hex() for digest in values)),
            beyond=tuple(self._beyond),
        )

    # -- the threads to erase -----------------------------------------------------------------------------------------

    def _going(self, thread: str | None, metadata: dict[str, Any], forks: bool) -> dict[int, str]:
        """The names of the threads to erase, by number. Raises LeaseHeld if one of them is being run."""
        subjects = self._about(metadata) if thread is None else self._called(thread)
        return self._free_with_kin(subjects, forks=forks)

    def _called(self, thread: str) -> list[int]:
        for _ in threads(self._store):  # raises Damaged if a thread cannot be listed: it may be a fork or a child
            pass
        found = thread_named(self._store, thread)
        return [] if found is None else [found.position.thread]

    def _about(self, metadata: dict[str, Any]) -> list[int]:
        """The threads with a checkpoint that has these metadata entries. Checkpoints that cannot be read are noted."""
        found, unread = self._searched(metadata)
        for number, count in sorted(unread.items()):
            self._beyond.append(
                f"thread {quoted(name_of(self._store, number) or str(number))}: {count} checkpoints cannot be read, "
                "so their metadata is unknown"
            )
        return sorted(found)

    def _searched(self, metadata: dict[str, Any]) -> tuple[set[int], dict[int, int]]:
        """The threads that have the metadata, and the number of unreadable checkpoints of each other thread."""
        store = self._store
        try:
            searched = _search(store, metadata) if isinstance(store, Searching) else None
            if searched is not None:
                return searched
        except Damaged:
            pass  # the threads are read one by one, past the damage
        found: set[int] = set()
        unread: Counter[int] = Counter()
        for thread in threads(store):
            number = thread.position.thread
            for checkpoint in _checkpoints(store, thread):
                if isinstance(checkpoint, Damaged):
                    unread[number] += 1
                elif _has(checkpoint, metadata):
                    found.add(number)
                    break
        return found, {number: count for number, count in unread.items() if number not in found}

    def _free_with_kin(self, subjects: list[int], *, forks: bool) -> dict[int, str]:
        """The subjects, their children and the children of these; with `forks`, also the forks of all of them.

        Raises LeaseHeld if one of them is being run.
        """
        going: dict[int, str] = {}
        waiting = list(subjects)
        while waiting:
            number = waiting.pop()
            name = None if number in going else name_of(self._store, number)
            if name is None:
                continue
            going[number] = name
            waiting += self._children(number, name)
            if forks:
                waiting += self._store.forks(number)
        for number, name in going.items():
            self._require_free(number, name)
        self._note_parents(going)
        return going

    def _children(self, number: int, name: str) -> Iterator[int]:
        """The threads that a thread's runs started as children, as far as its journal can be read."""
        unread = 0
        for entry in _journal(self._store, number):
            if isinstance(entry, Damaged):
                unread += 1
            elif entry.kind == "child":
                child = thread_named(self._store, entry.name)
                if child is not None and _parent(self._store, child.position.thread) == name:
                    yield child.position.thread
        if unread:
            self._beyond.append(
                f"thread {quoted(name)}: {unread} entries of its journal cannot be read, so its children may not "
                "all be known"
            )

    def _note_parents(self, going: dict[int, str]) -> None:
        """Report parents that stay: their journal has the arguments and the result of a child that is erased."""
        names = set(going.values())
        for number, name in sorted(going.items()):
            parent = _parent(self._store, number)
            if parent is not None and parent not in names and thread_named(self._store, parent) is not None:
                self._beyond.append(
                    f"the journal of thread {quoted(parent)}, which ran {quoted(name)} as its child and has its result"
                )

    def _require_free(self, number: int, name: str) -> None:
        run = self._store.run(number)
        if run is None or run.status != "running" or run.owner is None:
            return
        clock = self._store.clock()
        if run.clock == clock.id and not clock.has_reached(run.lease_until) and not process.is_dead(run.owner):
            raise LeaseHeld(
                f"thread {quoted(name)} is held by a process; nothing was erased. "
                "Call hf.cancel(), or wait until the run ends."
            )

    # -- the data of these threads ------------------------------------------------------------------------------------

    def _values_of(self, going: dict[int, str]) -> set[bytes]:
        values: set[bytes] = set()
        for number, name in going.items():
            try:
                values |= blobs_of(self._store, number)
            except Damaged:
                self._beyond.append(f"thread {quoted(name)} was damaged, so it is not known which blobs it used")
        return values

    def _forks_left(self, going: dict[int, str]) -> set[str]:
        others = {fork for number in going for fork in self._store.forks(number) if fork not in going}
        return {name for fork in others if (name := name_of(self._store, fork)) is not None}

    def _drop(self, number: int, name: str) -> None:
        with self._context.lock(name):
            try:
                self._context.drop(number)
            except NotFound:
                return  # another process has just dropped it

    def _note_damage(self, removed: Removed) -> None:
        self._beyond += [
            f"the thread with number {number}: damaged cells were left unchanged. They may contain data "
            "of erased threads."
            for number in sorted(removed.damaged)
        ]
        if removed.is_unfinished:
            self._beyond.append("blobs were not removed: threads kept changing meanwhile. Erase again.")
        elif removed.used is None:
            self._beyond.append(
                "blobs were not removed: a thread that is left is damaged, so it is not known which of them it uses. "
                "hf.verify() lists the damage."
            )


def _search(store: Searching, metadata: dict[str, Any]) -> tuple[set[int], dict[int, int]] | None:
    found: set[int] = set()
    unread: dict[int, int] = {}
    part = _encoded_part(metadata)
    after = 0
    while True:
        page = store.search(part, after=after)
        if page is None:
            return None
        found.update(number for number, row in page.found if number not in found and _has(row, metadata))
        unread |= page.unread
        after = page.last
        if not after:
            return found, {number: count for number, count in unread.items() if number not in found}


def _encoded_part(metadata: dict[str, Any]) -> bytes:
    """Bytes that are part of the encoded metadata of every checkpoint with these entries."""
    for name, value in metadata.items():
        if type(value) in (str, int, bool, NoneType):  # values that are equal have equal bytes
            return msgpack.encode(name) + msgpack.encode(value)
    return b""


def _has(checkpoint: CheckpointRow, metadata: dict[str, Any]) -> bool:
    encoded = metas.decode(checkpoint).metadata
    found: dict[str, Any] = msgpack.decode(encoded) if encoded else {}
    return all(name in found and _is_equal(found[name], value) for name, value in metadata.items())


def _is_equal(one: object, other: object) -> bool:
    # 1 == True == 1.0, but they are different entries.
    return type(one) is type(other) and one == other


def _parent(store: Store, number: int) -> str | None:
    """The thread whose run started that of another as its child."""
    run = store.run(number)
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
        row = checkpoint_at(store, number, seq)
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
