"""SealedStore: a store whose contents are encrypted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from holdfast.crypto import records, run_records
from holdfast.crypto.entry_numbers import Numbering
from holdfast.crypto.keyring import Ring
from holdfast.crypto.records import KeyedHashing, ThreadKey, open_value, seal_value
from holdfast.crypto.run_records import Passed, SealedRuns
from holdfast.crypto.seal import Seal, key_id
from holdfast.crypto.thread_keys import KEYS_LEFT, Owners, key_in_clear, remove_unused
from holdfast.errors import Conflict, Damaged, InvalidArgument, NotEncrypted, OutcomeUnknown, StoreError
from holdfast.stores import contract as c
from holdfast.stores.abilities import Announcing
from holdfast.stores.contract import Hashing, KeyRow
from holdfast.stores.contract_runs import Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.types import Problem


class SealedStore:
    """Implements `holdfast.stores.contract.Store` on another store. `NotEncrypted` for unencrypted records in it."""

    def __init__(self, store: c.Store, ring: Ring) -> None:
        self._store = store
        self._ring = ring
        self.encoding: Literal["packed", "text"] = store.encoding
        self.hashing: Hashing = KeyedHashing(ring)
        self._owners = Owners(store, ring)
        self._numbering = Numbering(store)
        self._unlisted: Passed[str] = Passed()
        self._runs = SealedRuns(store, ring, self._owners)

    def __repr__(self) -> str:
        return f"{self._store!r}, encrypted"

    @property
    def plain(self) -> c.Store:
        """The underlying store."""
        return self._store

    def over(self, store: c.Store) -> SealedStore:
        """See `Rewrapping`."""
        return SealedStore(store, self._ring.beside(store))

    # -- reading ----------------------------------------------------------------------------------------------------

    def thread(self, name: str) -> c.ThreadRow | None:
        try:
            row = self._store.thread(name)
            return None if row is None else self._open_thread(row)
        except Damaged as damage:
            damage.known = damage.known and self._salvaged(damage.known)
            raise

    def threads(self, *, prefix: str, after: str | None, limit: int) -> list[c.ThreadRow]:
        while page := self._store.threads(prefix=prefix, after=after, limit=limit):
            if told := self._unlisted.each(page, lambda row: row.name, self._open_thread, self._salvaged):
                return told
            after = page[-1].name
        self._unlisted.require_none(self.thread)
        return []

    def checkpoint(self, thread: int, seq: int) -> c.CheckpointRow | None:
        row = self._store.checkpoint(thread, seq)
        return None if row is None else self._open_whole(thread, row)

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[c.CheckpointRow]:
        token = None if label is None else self._ring.token(b"label", label)
        found = self._store.checkpoints(thread, before=before, limit=limit, label=token, step=step)
        return [self._open_checkpoint(thread, row) for row in found]

    def refs(self, thread: int, *, after: int, limit: int) -> list[c.CheckpointRow]:
        return self._store.refs(thread, after=after, limit=limit)

    def walk(self, thread: int, *, after: int, limit: int) -> list[c.CheckpointRow | Damaged]:
        """See `Walking`."""
        return [self._opened(thread, row) for row in self._store.walk(thread, after=after, limit=limit)]

    def _opened(self, thread: int, row: c.CheckpointRow | Damaged) -> c.CheckpointRow | Damaged:
        if isinstance(row, Damaged):
            return row
        try:
            return self._open_whole(thread, row)
        except (Damaged, NotEncrypted) as error:
            return Damaged(str(error))

    def cells(self, spans: Sequence[c.Span]) -> list[c.Cells]:
        return [self._open_cells(span, read) for span, read in zip(spans, self._store.cells(spans), strict=True)]

    def blob(self, digest: bytes) -> list[bytes]:
        return open_value(digest, self._store.blob(digest), self._ring.records)

    def last(self, thread: int) -> int:
        return self._store.last(thread)

    def forks(self, thread: int) -> list[int]:
        return self._store.forks(thread)

    def clock(self) -> Clock:
        return self._store.clock()

    def run(self, thread: int) -> RunRow | None:
        row = self._store.run(thread)
        return None if row is None else self._runs.open(thread, row)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        while page := self._store.runs(statuses=statuses, after=after, limit=limit):
            if told := self._runs.open_page(page):
                return told
            after = page[-1][1].updated_at, page[-1][1].thread
        if not statuses:
            self._runs.require_told()
        return []

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return self._runs.open_page(self._store.due(limit=limit))

    def entries(self, thread: int, *, after: int, limit: int) -> list[Entry]:
        return [self._open_entry(thread, row) for row in self._store.entries(thread, after=after, limit=limit)]

    def find_entries(self, thread: int, topic: str) -> list[Entry]:
        token = self._ring.token(b"mark", topic)
        return [self._open_entry(thread, row) for row in self._store.find_entries(thread, token)]

    def last_entry(self, thread: int) -> int:
        return self._store.last_entry(thread)

    # -- writing ----------------------------------------------------------------------------------------------------

    def commit(self, commit: c.Commit) -> c.Position:
        if commit.expect is not None:
            thread = commit.expect.thread
            due = self._numbering.foretold(thread, commit.fence, commit.entries)
            if commit.entries:
                self._numbering.forget(thread)
            return self._store.commit(self._sealed(commit, self._seal_of(thread), due))
        # The key is stored before the thread. If this is interrupted in between, `unused` removes the key later.
        seal = self._ring.new()
        try:
            position = self._store.commit(self._sealed(commit, seal, range(1, len(commit.entries) + 1)))
        except (Conflict, InvalidArgument):
            self._ring.remove(seal.id)
            raise
        try:
            self._ring.keep(seal.id)
        except StoreError as error:
            raise OutcomeUnknown("the thread was stored, but its data key may have been removed meanwhile") from error
        self._owners.learn(position.thread, seal.id, commit.name)
        return position

    def rewind(self, expect: c.Position, *, to: int, summary: c.Summary) -> c.Position:
        sealed = records.seal_summary(summary, self._runs.owner(expect.thread), self._ring.records)
        return self._store.rewind(expect, to=to, summary=sealed)

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        self._store.claim(self._runs.as_stored(expect), self._runs.seal(row))

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        self._store.renew(thread, fence, until, self._runs.seal_progress(thread, progress))

    def update_run(self, row: RunRow) -> None:
        self._store.update_run(self._runs.seal(row))

    def suspend(self, row: RunRow, entry: Entry | None, last: int) -> int:
        question = 0 if entry is None else entry.number or last + 1
        sealed = None if entry is None else self._seal_entry(row.thread, entry, question)
        number = self._store.suspend(self._runs.seal(replace(row, question=question)), sealed, last)
        self._numbering.keep(row.thread, row.fence, max(last, number))
        return number

    def journal(self, thread: int, fence: int, rows: Sequence[Entry]) -> list[int]:
        seal = self._seal_of(thread)
        return self._numbering.journal(thread, fence, rows, lambda row, due: self._entry_sealed_by(seal, row, due))

    def post(self, thread: int, row: Entry, *, last: int | None = None, run: RunRow | None = None) -> int:
        def write(newest: int) -> int:
            sealed = self._seal_entry(thread, row, newest + 1)
            return self._store.post(thread, sealed, last=newest, run=self._runs.as_stored(run))

        return self._numbering.tell(thread, last, write)

    def settle(
        self,
        thread: int,
        number: int,
        expect: EntryStatus,
        row: Entry,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        sealed = self._seal_entry(thread, row, number)
        follows = None if then is None else self._runs.seal(then)
        self._store.settle(thread, number, expect, sealed, self._runs.as_stored(run), follows)

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        return self._store.delete(thread, seqs)

    def sweep(self, thread: int, live: c.Live) -> int:
        return self._store.sweep(thread, live)

    def start_epoch(self) -> int:
        return self._store.start_epoch()

    def sweep_blobs(self, live: Collection[bytes], epoch: int) -> int:
        return self._store.sweep_blobs(live, epoch)

    def drop(self, thread: int) -> None:
        """Drop a thread and, unless forks still use its cells, its key. Remains on a disk are unreadable then."""
        try:
            id = key_in_clear(self._store, thread)
        except (Damaged, NotEncrypted):
            id = None  # `scrub` removes the key, because it is unused then
        self._store.drop(thread)
        self._owners.forget(thread)
        # Checked after the drop: before it, another process may have forked the thread; after it, none can.
        if id is not None and not self._store.forks(thread):
            self._ring.remove(id)

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def key(self, id: bytes) -> KeyRow | None:
        return self._store.key(id)

    def keys(self, *, after: bytes, limit: int) -> list[KeyRow]:
        return self._store.keys(after=after, limit=limit)

    def put_key(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        return self._store.put_key(row, expect)

    def remove_key(self, id: bytes, expect: KeyRow | None = None) -> None:
        self._store.remove_key(id, expect)

    def rewrap(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every data key with the cipher's current key; return how many had another."""
        return self._ring.rewrap(progress)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def name_of(self, thread: int) -> str | None:
        return self._store.name_of(thread)

    def names(self) -> dict[int, str]:
        return self._store.names()

    def thread_numbers(self) -> list[int]:
        return self._store.thread_numbers()

    def compact(self, thread: int, live: c.Live) -> c.Compacted:
        return self._store.compact(thread, live)

    def reclaim(self) -> None:
        self._remove_unused_keys()
        self._store.reclaim()

    def scrub(self) -> tuple[str, ...]:
        """Scrub the underlying store, and remove unused data keys."""
        return (*self._remove_unused_keys(), *self._store.scrub())

    def _remove_unused_keys(self) -> tuple[str, ...]:
        try:
            remove_unused(self._store, self._ring)
        except (Damaged, NotEncrypted):
            return (KEYS_LEFT,)
        return ()

    def check(self) -> Iterator[Problem]:
        return self._store.check()

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """See `Announcing`."""
        if isinstance(self._store, Announcing):
            return self._store.listen(heard)
        return lambda: None

    def close(self) -> None:
        self._store.close()

    # -- keys of threads ---------------------------------------------------------------------------------------------

    def _key_of(self, thread: int) -> bytes | None:
        """The id of a thread's data key."""
        return self._owners.key(thread)

    def _seal_of(self, thread: int) -> Seal:
        id = self._key_of(thread)
        if id is None:
            # The thread does not exist, and the store rejects the write itself.
            return self._ring.records
        return self._ring.seal(id)

    # -- records -----------------------------------------------------------------------------------------------------

    def _sealed(self, commit: c.Commit, seal: Seal, due: Iterable[int]) -> c.Commit:
        owner = ThreadKey(seal.id, commit.name)
        label = commit.row.label
        token = None if label is None else self._ring.token(b"label", label)
        return replace(
            commit,
            row=records.seal_checkpoint(commit.row, token, owner, self._origins(commit), seal),
            appends=tuple([records.seal_run_of_cells(run, seal) for run in commit.appends]),
            blobs=tuple([seal_value(value, self._ring.records) for value in commit.blobs]),
            summary=records.seal_summary(commit.summary, owner, self._ring.records),
            run=None if commit.run is None else self._runs.seal(commit.run, owner),
            entries=tuple([self._entry_sealed_by(seal, *each) for each in zip(commit.entries, due, strict=True)]),
        )

    def _origins(self, commit: c.Commit) -> tuple[tuple[int, bytes], ...]:
        """The keys of the other threads whose cells a commit uses."""
        named = [commit.row.refs, *(refs for run in commit.appends for refs in run.refs)]
        others = {span.thread for refs in named for span in refs.spans if span.thread}
        keys = [(thread, self._owners.key(thread)) for thread in sorted(others)]
        return tuple([(thread, key) for thread, key in keys if key is not None])

    def _open_whole(self, thread: int, row: c.CheckpointRow) -> c.CheckpointRow:
        if not row.deleted and not row.skeleton:
            raise Damaged(f"checkpoint {row.seq} of thread number {thread} has no skeleton")
        return self._open_checkpoint(thread, row)

    def _open_checkpoint(self, thread: int, row: c.CheckpointRow) -> c.CheckpointRow:
        id = records.key_of_checkpoint(row)
        if row.deleted:
            return row
        if id is None or not row.meta:
            raise Damaged(f"checkpoint {row.seq} of thread number {thread} has no sealed content")
        opened = records.open_checkpoint(row, self._owners.seal(thread, id))
        self._owners.learn(thread, id, opened.thread)
        for origin, key in opened.origins:
            self._owners.learn(origin, key)
        return opened.row

    def _open_cells(self, span: c.Span, read: c.Cells) -> c.Cells:
        opened: list[bytes] = []
        seal: Seal | None = None
        learned = b""
        at = span.start
        for index, cell in enumerate(read.cells):
            id = key_id(cell)
            if seal is None or seal.id != id:
                seal = self._owners.seal(span.thread, id)
            refs = read.refs[index] if read.refs else c.NO_REFS
            opened.append(seal.open(cell, records.cell_place(span.log, at, refs)))
            if id != learned:
                self._owners.learn(span.thread, id)
                learned = id
            at += 1
        block = c.Block(b"".join(opened), 0, list(map(len, opened)))
        return c.Cells([block] if opened else [], read.refs)

    def _open_thread(self, row: c.ThreadRow) -> c.ThreadRow:
        number = row.position.thread
        try:
            summary, owner = records.open_summary(row.summary, row.name, self._ring.records)
            self._owners.learn(number, *owner)
        except (Damaged, NotEncrypted) as error:
            self._owners.owner(number)  # raises if the whole thread is unencrypted
            damage = Damaged(f"the record of thread number {number} does not belong to its name: {error}")
            damage.known = row
            raise damage from error
        return replace(row, summary=summary)

    def _salvaged(self, row: c.ThreadRow) -> c.ThreadRow | None:
        """A thread without its agent, unless its checkpoints have another thread's name."""
        try:
            owner = self._owners.owner(row.position.thread)
        except (Damaged, NotEncrypted):
            owner = None  # nothing else of the thread can be read either
        if owner is not None and owner.name != row.name:
            return None
        return replace(row, summary=replace(row.summary, agent=None))

    def _seal_entry(self, thread: int, row: Entry, due: int) -> Entry:
        return self._entry_sealed_by(self._seal_of(thread), row, due)

    def _entry_sealed_by(self, seal: Seal, row: Entry, due: int) -> Entry:
        token = None if row.topic is None else self._ring.token(b"mark", row.topic)
        return run_records.seal_entry(row, due, token, seal)

    def _open_entry(self, thread: int, row: Entry) -> Entry:
        opened, due = self._entry_of(thread, row)
        self._numbering.check(thread, row.number, due, lambda other: self._entry_of(thread, other).due)
        return opened

    def _entry_of(self, thread: int, row: Entry) -> run_records.OpenedEntry:
        id = key_id(row.sealed)
        return run_records.open_entry(row, self._owners.seal(thread, id))
