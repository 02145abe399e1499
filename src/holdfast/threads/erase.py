"""Erasing: everything about a subject leaves the store, and its files. What stays, and why, is told.

Threads are dropped first, each in one transaction; what follows finds by itself what is left to do. So it can be cut
off anywhere, and called again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Damaged, ErasePending, InvalidArgument, LeaseHeld, NotFound
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.running import EffectRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads import process
from holdfast.threads.context import Session
from holdfast.threads.gc import live_cells, live_values, values_of
from holdfast.types import Erased

_PAGE = 200


def erase(session: Session, thread: str | None, metadata: dict[str, Any] | None, *, forks: bool) -> Erased:
    """Remove all about a thread, or about every thread one of whose checkpoints has these metadata entries.

    Their children go with them, their forks only if `forks`. LeaseHeld, with nothing changed, if one of them is being
    run; ErasePending if a reader keeps what was removed in the store's files.
    """
    if (thread is None) == (metadata is None):
        raise InvalidArgument("erase takes the name of a thread, or metadata=, and not both")
    if thread is not None and (type(thread) is not str or not thread):
        raise InvalidArgument("a thread's name is a text that is not empty")
    return _Erasing(session, is_thorough=metadata is not None).erase(thread, _checked(session, metadata), forks)


def plan(session: Session, thread: str | None, metadata: dict[str, Any] | None, *, forks: bool) -> Erased:
    """What `erase` would remove and leave, as far as that can be told. Nothing is changed; LeaseHeld as there."""
    if (thread is None) == (metadata is None):
        raise InvalidArgument("erase takes the name of a thread, or metadata=, and not both")
    return _Erasing(session, is_thorough=False).plan(thread, _checked(session, metadata), forks)


def _checked(session: Session, metadata: dict[str, Any] | None) -> dict[str, Any]:
    """What metadata has to have, as it would have been recorded."""
    if metadata is None:
        return {}
    if not metadata:
        raise InvalidArgument("metadata= that is empty would erase everything: say what it has to have")
    metas.checked_metadata(metadata)
    wanted: dict[str, Any] = session.redaction.value(metadata)
    return wanted


class _Erasing:
    """One call: what it found, and what it could not do."""

    def __init__(self, session: Session, *, is_thorough: bool) -> None:
        """`is_thorough`: all threads are swept, not only those that shared something with what goes."""
        self._session = session
        self._store = session.store
        self._is_thorough = is_thorough
        self._beyond: list[str] = []

    def erase(self, thread: str | None, metadata: dict[str, Any], forks: bool) -> Erased:
        known = {row.position.thread: row for row in _threads(self._store)}
        if thread is None:
            subjects = [number for number, row in known.items() if self._is_about(row, metadata)]
        else:
            found = self._store.thread(thread)
            subjects = [] if found is None else [found.position.thread]
            # Nothing there: a call that was cut off may have left what only a look at everything finds.
            self._is_thorough = self._is_thorough or not subjects
        going = self._with_kin(subjects, known, forks=forks)
        for number in going:
            self._require_free(known[number])
        self._parents_left(going, known)
        values = self._values_of(going, known)
        left = {fork for number in going for fork in self._store.forks(number) if fork in known and fork not in going}
        touched = self._origins_of(going)
        for number in sorted(going, reverse=True):  # forks and children before what they come from
            self._drop(known[number])
        kept = self._sweep(touched)
        erased = Erased(
            threads=tuple(sorted(known[number].name for number in going)),
            forks_left=tuple(sorted(known[number].name for number in left)),
            values_kept=tuple(sorted(digest.hex() for digest in values & kept)),
            beyond=tuple(self._beyond),
        )
        try:
            return replace(erased, beyond=(*erased.beyond, *self._store.scrub()))
        except ErasePending as pending:
            pending.erased = erased
            raise

    def plan(self, thread: str | None, metadata: dict[str, Any], forks: bool) -> Erased:
        known = {row.position.thread: row for row in _threads(self._store)}
        going = self._with_kin(
            [n for n, row in known.items() if (row.name == thread if thread else self._is_about(row, metadata))],
            known,
            forks=forks,
        )
        for number in going:
            self._require_free(known[number])
        self._parents_left(going, known)
        left = {fork for number in going for fork in self._store.forks(number) if fork in known and fork not in going}
        return Erased(
            threads=tuple(sorted(known[number].name for number in going)),
            forks_left=tuple(sorted(known[number].name for number in left)),
            values_kept=(),
            beyond=tuple(self._beyond),
        )

    # -- who goes -----------------------------------------------------------------------------------------------------

    def _is_about(self, row: ThreadRow, metadata: dict[str, Any]) -> bool:
        unread = 0
        for checkpoint in _checkpoints(self._store, row):
            if isinstance(checkpoint, Damaged):
                unread += 1
            elif self._has(checkpoint, metadata):
                return True
        if unread:
            self._beyond.append(
                f"thread {quoted(row.name)}: {unread} checkpoints cannot be read, so their metadata is unknown"
            )
        return False

    def _has(self, checkpoint: CheckpointRow, metadata: dict[str, Any]) -> bool:
        encoded = metas.decode(checkpoint).metadata
        found: dict[str, Any] = msgpack.decode(encoded) if encoded else {}
        return all(name in found and _is_equal(found[name], value) for name, value in metadata.items())

    def _with_kin(self, subjects: list[int], known: dict[int, ThreadRow], *, forks: bool) -> set[int]:
        """The subjects, their children, and the children's; with `forks`, the forks of all these."""
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
        return going

    def _children(self, row: ThreadRow) -> Iterator[str]:
        """The names of the threads that a thread's runs began as their children, as far as its journal can be read."""
        unread = 0
        for entry in _journal(self._store, row.position.thread):
            if isinstance(entry, Damaged):
                unread += 1
            elif entry.kind == "child" and _parent(self._store, self._store.thread(entry.name)) == row.name:
                yield entry.name
        if unread:
            self._beyond.append(
                f"thread {quoted(row.name)}: {unread} entries of its journal cannot be read, so nobody knows whether "
                "they began children"
            )

    def _parents_left(self, going: set[int], known: dict[int, ThreadRow]) -> None:
        """Say who had a child that goes, and stays: what the child was given and gave is in its journal."""
        names = {known[number].name for number in going}
        for number in sorted(going):
            parent = _parent(self._store, known[number])
            if parent is not None and parent not in names and self._store.thread(parent) is not None:
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
                f"thread {quoted(row.name)} is being run, and nothing was erased; hf.cancel it, or wait until it ends"
            )

    # -- what goes with them ------------------------------------------------------------------------------------------

    def _values_of(self, going: set[int], known: dict[int, ThreadRow]) -> set[bytes]:
        values: set[bytes] = set()
        for number in going:
            try:
                values |= values_of(self._store, number)
            except Damaged:
                self._beyond.append(
                    f"thread {quoted(known[number].name)} was damaged, so nobody knows which shared values it had"
                )
        return values

    def _origins_of(self, going: set[int]) -> set[int]:
        """The other threads whose cells are used by what goes: those that only it used are to go, too."""
        others = [number for number in self._store.thread_numbers() if number not in going] if going else []
        return {number for number in others if going.intersection(self._store.forks(number))}

    def _drop(self, row: ThreadRow) -> None:
        number = row.position.thread
        with self._session.lock(row.name):
            try:
                self._session.drop(number)
            except NotFound:
                return  # another process has just dropped it

    def _sweep(self, touched: set[int]) -> set[bytes]:
        """Remove cells and values that nothing names any more; the values that are left."""
        # After the threads are gone: what they brought until then is not younger than this.
        epoch = self._store.mark_values()
        named = {row.position.thread for row in _threads(self._store)}
        for number in self._store.thread_numbers():
            if self._is_thorough or number in touched or number not in named:
                self._sweep_cells(number)
        try:
            kept = live_values(self._store)
            self._store.sweep_values(kept, epoch)
        except Damaged:
            self._beyond.append(
                "shared values were not removed: what is left is damaged, so nobody knows which of them it uses; "
                "hf.verify() says what is"
            )
            return set()
        return kept

    def _sweep_cells(self, number: int) -> None:
        try:
            live = live_cells(self._store, number)
            # Before the sweep: what is compacted goes cell by cell, and leaves the files.
            damaged = self._store.compact(number, live).damaged
            self._store.sweep(number, live)
        except Damaged:
            damaged = 1
        if damaged:
            self._beyond.append(
                f"thread number {number}: what is damaged was left as it is, and may hold what it shared with others"
            )


def _threads(store: Store) -> Iterator[ThreadRow]:
    after: str | None = None
    while page := store.threads(prefix="", after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


def _checkpoints(store: Store, row: ThreadRow) -> Iterator[CheckpointRow | Damaged]:
    """The checkpoints of a thread, newest first, with their metadata; in the place of one, what is wrong with it."""
    number = row.position.thread
    before = row.position.last + 1
    while before > 1:
        try:
            page = store.checkpoints(number, before=before, limit=_PAGE)
        except Damaged:
            before -= 1
            yield from _one(store, number, before)
            continue
        yield from page
        before = page[-1].seq if len(page) == _PAGE else 1


def _one(store: Store, number: int, seq: int) -> Iterator[CheckpointRow | Damaged]:
    try:
        row = store.checkpoint(number, seq)
    except Damaged as damage:
        yield damage
        return
    if row is not None and not row.deleted:
        yield row


def _journal(store: Store, number: int) -> Iterator[EffectRow | Damaged]:
    """The entries of a thread's journal; in the place of one, what is wrong with it."""
    last = store.last_effect(number)
    after = 0
    while after < last:
        try:
            page = store.effects(number, after=after, limit=_PAGE)
        except Damaged:
            yield from _entry(store, number, after + 1)
            after += 1
            continue
        yield from page
        after += max(len(page), 1)


def _entry(store: Store, number: int, entry: int) -> Iterator[EffectRow | Damaged]:
    try:
        yield from store.effects(number, after=entry - 1, limit=1)
    except Damaged as damage:
        yield damage


def _parent(store: Store, row: ThreadRow | None) -> str | None:
    """The thread whose run began that of another as its child."""
    run = None if row is None else store.run(row.position.thread)
    return None if run is None else run.parent


def _is_equal(one: object, other: object) -> bool:
    # 1 == True == 1.0, and none of them is meant by the others.
    return type(one) is type(other) and one == other
