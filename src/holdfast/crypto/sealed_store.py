"""SealedStore: a store whose contents are encrypted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeVar, overload

from msgspec.structs import replace

from holdfast.crypto import records
from holdfast.crypto.keyring import Keyring
from holdfast.crypto.records import KeyedHashing, ThreadKey
from holdfast.crypto.seal import Seal, key_id
from holdfast.crypto.thread_keys import ThreadKeys
from holdfast.errors import Damaged, NotEncrypted
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.abilities import Announcing, Scanned, Scanning, Searched, Searching
from holdfast.stores.contract import Hashing
from holdfast.stores.contract_runs import ActClaim, ClaimLimit, Entry, EntryStatus, Progress, RunRow

K = TypeVar("K", str, int)

_SKIPPED_MAX: Final = 1_000

# The owner of the records of a missing thread. The store rejects the write itself.
_NO_THREAD: Final = ThreadKey(b"", "")


class SealedStore:
    """Implements `holdfast.stores.contract.Store` on another store. `NotEncrypted` for unencrypted records in it."""

    def __init__(self, store: c.Store, keyring: Keyring) -> None:
        self._store = store
        self._keyring = keyring
        # These verbs handle nothing that is sealed.
        self.numbered = store.numbered
        self.forks = store.forks
        self.clock = store.clock
        self.last_entry = store.last_entry
        self.delete = store.delete
        self.sweep = store.sweep
        self.sweep_blobs = store.sweep_blobs
        self.acts = store.acts
        self.put_act = store.put_act
        self.keys = store.keys
        self.put_key = store.put_key
        self.reclaim = store.reclaim
        self.check = store.check
        self.close = store.close
        self.rewrap = keyring.rewrap
        self.encoding: Literal["packed", "text"] = store.encoding
        self.hashing: Hashing = KeyedHashing(keyring)
        self._thread_keys = ThreadKeys(store, keyring)
        # The newest of the unreadable records that listings skipped.
        self._skipped_threads: deque[str] = deque(maxlen=_SKIPPED_MAX)
        self._skipped_runs: deque[int] = deque(maxlen=_SKIPPED_MAX)

    def __repr__(self) -> str:
        return f"{self._store!r}, encrypted"

    @property
    def underlying(self) -> c.Store:
        """The underlying store."""
        return self._store

    def over(self, store: c.Store) -> SealedStore:
        """See `Rewrapping`."""
        return SealedStore(store, self._keyring.for_copy(store))

    # -- reading ----------------------------------------------------------------------------------------------------

    def head(self, name: str) -> c.Head | None:
        try:
            found = self._store.head(name)
            if found is None:
                return None
            thread = self._open_thread(found.thread)
            return c.Head(thread, self._opened(thread.position.thread, found.checkpoint))
        except Damaged as damage:
            damage.known = damage.known and self._salvaged(damage.known)
            raise

    def threads(
        self, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
    ) -> list[c.ThreadRow]:
        while page := self._store.threads(prefix=prefix, after=after, limit=limit, contains=contains, newest=newest):
            if readable := [row for row in map(self._open_listed_thread, page) if row is not None]:
                return readable
            after, newest = page[-1].name, None if newest is None else page[-1].summary.updated_at
        _require_readable(self._skipped_threads, self.head)
        return []

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[c.CheckpointRow]:
        token = self._token(b"label", label)
        found = self._store.checkpoints(thread, before=before, limit=limit, label=token, step=step)
        return [self._open_checkpoint(thread, row) for row in found]

    def walk(self, thread: int, *, after: int, limit: int, refs_only: bool = False) -> list[c.CheckpointRow | Damaged]:
        rows = self._store.walk(thread, after=after, limit=limit, refs_only=refs_only)
        return rows if refs_only else [self._opened(thread, row) for row in rows]

    def _opened(self, thread: int, row: c.CheckpointRow | Damaged) -> c.CheckpointRow | Damaged:
        if isinstance(row, Damaged):
            return row
        try:
            return self._open_whole(thread, row)
        except (Damaged, NotEncrypted) as error:
            return Damaged(str(error))

    def search(self, having: bytes, *, after: int) -> Searched | None:
        """See `Searching`. Every checkpoint is opened: sealed metadata cannot be searched."""
        page = self._store.search(b"", after=after) if isinstance(self._store, Searching) else None
        if page is None:
            return None
        found: list[tuple[int, c.CheckpointRow]] = []
        unread = Counter(page.unread)
        for thread, row in page.found:
            try:
                opened = self._open_checkpoint(thread, row)
            except (Damaged, NotEncrypted):
                unread[thread] += 1
            else:
                if having in opened.meta:
                    found.append((thread, opened))
        return Searched(found, dict(unread), page.last)

    def cells(self, spans: Sequence[c.Span]) -> list[c.Cells]:
        return [self._open_cells(span, read) for span, read in zip(spans, self._store.cells(spans), strict=True)]

    def blob(self, digest: bytes) -> list[bytes]:
        return records.open_blob(self._store.blob(digest), self._keyring.records)

    def run(self, thread: int) -> RunRow | None:
        row = self._store.run(thread)
        return None if row is None else self._open_run(thread, row)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        while page := self._store.runs(statuses=statuses, after=after, limit=limit):
            if readable := self._open_runs(page):
                return readable
            after = page[-1][1].updated_at, page[-1][1].thread
        if not statuses:
            _require_readable(self._skipped_runs, self.run)
        return []

    def queue(self, *, handlers: Collection[str], after: tuple[int, int, int], limit: int) -> list[tuple[str, RunRow]]:
        tokens = [self._keyring.token(b"handler", name) for name in handlers]
        while page := self._store.queue(handlers=tokens, after=after, limit=limit):
            if readable := self._open_runs(page):
                return readable
            after = rules.queue_place(page[-1][1])
        return []

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return self._open_runs(self._store.due(limit=limit))

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        page = self._store.entries(thread, after=after, limit=limit, topic=self._token(b"topic", topic))
        return [self._open_entry(thread, row) for row in page]

    def _open_entry(self, thread: int, row: Entry) -> Entry:
        opened: Entry
        (opened,) = records.ENTRY.open(row, self._thread_keys.seal(thread, key_id(row.sealed)))
        return opened

    # -- writing ----------------------------------------------------------------------------------------------------

    @overload
    def commit(self, commit: c.Commit, /) -> c.Position: ...

    @overload
    def commit(self, commit: Sequence[c.Commit], /) -> list[c.Position]: ...

    def commit(self, commit: c.Commit | Sequence[c.Commit]) -> c.Position | list[c.Position]:
        commits = (commit,) if isinstance(commit, c.Commit) else commit
        sealed: list[c.Commit] = []
        for each in commits:
            if each.expect is not None:
                sealed.append(self._sealed(each, self._seal_of(each.expect.thread)))
            else:
                seal, key = self._keyring.new()
                sealed.append(replace(self._sealed(each, seal), key=key))
        positions = [self._store.commit(sealed[0])] if isinstance(commit, c.Commit) else self._store.commit(sealed)
        for each, position in zip(sealed, positions, strict=True):
            if each.key is not None:
                self._thread_keys.learn(position.thread, each.key.id, each.name)
        return positions[0] if isinstance(commit, c.Commit) else positions

    def rewind(self, expect: c.Position, *, to: int, summary: c.Summary) -> c.Position:
        sealed = records.seal_summary(summary, self._owner(expect.thread), self._keyring.records)
        return self._store.rewind(expect, to=to, summary=sealed)

    def claim(self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> c.Claimed:
        row = rules.start_lease(row, self._store.clock)
        if limit is not None:
            limit = replace(limit, handler=self._keyring.token(b"handler", limit.handler))
        return replace(self._store.claim(self._as_stored(expect), self._seal_run(row), limit), run=row)

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        if progress is not None:
            progress = records.seal_progress(progress, self._owner(thread), self._keyring.records)
        self._store.renew(thread, fence, until, progress)

    def journal(
        self,
        thread: int,
        fence: int | None,
        entries: Sequence[Entry],
        *,
        last: int | None,
        run: RunRow | None = None,
        claims: Sequence[ActClaim] = (),
    ) -> None:
        sealed = self._seal_entries(self._seal_of(thread), entries)
        then = None if run is None else self._seal_run(run)
        self._store.journal(thread, fence, sealed, last=last, run=then, claims=claims)

    def post(
        self,
        thread: int,
        row: Entry,
        *,
        status: EntryStatus | None = None,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        [sealed] = self._seal_entries(self._seal_of(thread), [row])
        follows = None if then is None else self._seal_run(then)
        self._store.post(thread, sealed, status=status, run=self._as_stored(run), then=follows)

    def drop(self, thread: int) -> None:
        """Drop a thread. Its key is removed with its last cells; remains on a disk are unreadable then."""
        self._store.drop(thread)
        self._thread_keys.forget(thread)

    # -- many threads -----------------------------------------------------------------------------------------------

    def scan(self, numbers: Sequence[int]) -> dict[int, Scanned]:
        """See `Scanning`. If the underlying store cannot scan, every thread is left out."""
        found: dict[int, Scanned] = {}
        for number, one in (self._store.scan(numbers) if isinstance(self._store, Scanning) else {}).items():
            with suppress(Damaged, NotEncrypted):
                rows = [self._open_whole(number, row) for row in one.checkpoints]
                run = None if one.run is None else self._open_run(number, one.run)
                found[number] = Scanned(rows, run, [self._open_entry(number, e) for e in one.entries], one.has_forks)
        return found

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `Announcing`."""
        if isinstance(self._store, Announcing):
            return self._store.listen(wake)
        return lambda: None

    # -- keys and tokens --------------------------------------------------------------------------------------------

    def _seal_of(self, thread: int) -> Seal:
        id = self._thread_keys.key(thread)
        # Without a key the thread does not exist, and the store rejects the write itself.
        return self._keyring.records if id is None else self._keyring.seal(id)

    def _owner(self, thread: int) -> ThreadKey:
        return self._thread_keys.owner(thread) or _NO_THREAD

    def _token(self, kind: bytes, text: str | None) -> str | None:
        return None if text is None else self._keyring.token(kind, text)

    # -- records -----------------------------------------------------------------------------------------------------

    def _sealed(self, commit: c.Commit, seal: Seal) -> c.Commit:
        owner = ThreadKey(seal.id, commit.name)
        token = self._token(b"label", commit.row.label)
        return replace(
            commit,
            row=records.seal_checkpoint(commit.row, token, owner, self._origins(commit), seal),
            appends=tuple([records.seal_cells(append, seal) for append in commit.appends]),
            blobs=tuple([records.seal_blob(blob, self._keyring.records) for blob in commit.blobs]),
            summary=records.seal_summary(commit.summary, owner, self._keyring.records),
            run=None if commit.run is None else self._sealed_run(commit.run, owner),
            entries=self._seal_entries(seal, commit.entries),
        )

    def _origins(self, commit: c.Commit) -> records.Origins:
        """The keys of the other threads whose cells a commit uses."""
        named = [commit.row.refs, *(refs for append in commit.appends for refs in append.refs)]
        others = {span.thread for refs in named for span in refs.spans if span.thread}
        keys = [(thread, self._thread_keys.key(thread)) for thread in sorted(others)]
        return tuple([(thread, key) for thread, key in keys if key is not None])

    def _open_whole(self, thread: int, row: c.CheckpointRow) -> c.CheckpointRow:
        if not row.deleted and not row.skeleton:
            raise Damaged(f"checkpoint {row.seq} of the thread with number {thread} has no skeleton")
        return self._open_checkpoint(thread, row)

    def _open_checkpoint(self, thread: int, row: c.CheckpointRow) -> c.CheckpointRow:
        id = records.key_of_checkpoint(row)
        if row.deleted:
            return row
        if id is None or not row.meta:
            raise Damaged(f"checkpoint {row.seq} of the thread with number {thread} has no sealed content")
        opened = records.open_checkpoint(row, self._thread_keys.seal(thread, id))
        self._thread_keys.learn(thread, id, opened.thread)
        for origin, key in opened.origins:
            self._thread_keys.learn(origin, key)
        return opened.row

    def _open_cells(self, span: c.Span, read: c.Cells) -> c.Cells:
        opened: list[bytes] = []
        seal: Seal | None = None
        learned = b""
        at = span.start
        for index, cell in enumerate(read.cells):
            id = key_id(cell)
            if seal is None or seal.id != id:
                seal = self._thread_keys.seal(span.thread, id)
            refs = read.refs[index] if read.refs else c.NO_REFS
            opened.append(seal.open(cell, records.cell_place(span.log, at, refs)))
            if id != learned:
                self._thread_keys.learn(span.thread, id)
                learned = id
            at += 1
        block = c.Block(b"".join(opened), 0, list(map(len, opened)))
        return c.Cells([block] if opened else [], read.refs)

    def _open_thread(self, row: c.ThreadRow) -> c.ThreadRow:
        number = row.position.thread
        try:
            summary, owner = records.open_summary(row.summary, row.name, self._keyring.records)
            self._thread_keys.learn(number, *owner)
        except (Damaged, NotEncrypted) as error:
            self._thread_keys.owner(number)  # raises if the whole thread is unencrypted
            damage = Damaged(f"the record of the thread with number {number} does not belong to its name: {error}")
            damage.known = row
            raise damage from error
        return replace(row, summary=summary)

    def _open_listed_thread(self, row: c.ThreadRow) -> c.ThreadRow | None:
        try:
            return self._open_thread(row)
        except (Damaged, NotEncrypted):
            self._skipped_threads.append(row.name)
            return self._salvaged(row)

    def _salvaged(self, row: c.ThreadRow) -> c.ThreadRow | None:
        """A thread without its agent, unless its checkpoints have another thread's name."""
        try:
            owner = self._thread_keys.owner(row.position.thread)
        except (Damaged, NotEncrypted):
            owner = None  # nothing else of the thread can be read either
        if owner is not None and owner.name != row.name:
            return None
        return replace(row, summary=replace(row.summary, agent=None))

    def _seal_run(self, row: RunRow) -> RunRow:
        return self._sealed_run(row, self._owner(row.thread))

    def _sealed_run(self, row: RunRow, owner: ThreadKey) -> RunRow:
        """A sealed run. A token of the handler for which it is claimed stays readable."""
        handler = self._token(b"handler", rules.queue_of(row))
        return records.seal_run(row, owner, self._keyring.records, handler)

    def _as_stored(self, expect: RunRow | None) -> RunRow | None:
        """The stored form of an expected run. Another handle may have sealed the same content to other bytes."""
        if expect is None:
            return None
        stored = self._store.run(expect.thread)
        if stored is not None and self._open_run(expect.thread, stored) == expect:
            return stored
        return self._seal_run(expect)

    def _open_run(self, thread: int, row: RunRow) -> RunRow:
        """The run of a thread. `Damaged` if it belongs to another thread."""
        opened, owner = records.open_run(row, self._keyring.records)
        if self._thread_keys.key(thread) is not None:
            self._thread_keys.learn(thread, *owner)
        return opened

    def _open_runs(self, page: list[tuple[str, RunRow]]) -> list[tuple[str, RunRow]]:
        """The readable runs of a page, with the names of their threads."""
        readable: list[tuple[str, RunRow]] = []
        for name, row in page:
            try:
                opened, owner = records.open_run(row, self._keyring.records)
                if owner.name != name:
                    raise Damaged(f"the run of the thread with number {row.thread} belongs to another thread")
                self._thread_keys.learn(row.thread, *owner)
                readable.append((name, opened))
            except (Damaged, NotEncrypted):
                self._skipped_runs.append(row.thread)
        return readable

    def _seal_entries(self, seal: Seal, rows: Iterable[Entry]) -> tuple[Entry, ...]:
        return tuple([records.ENTRY.seal(row, seal, topic=self._token(b"topic", row.topic)) for row in rows])


def _require_readable(skipped: deque[K], read: Callable[[K], object]) -> None:
    """Raise the error of the first skipped record that still cannot be read."""
    for key in list(skipped):
        read(key)
        with suppress(ValueError):  # another thread may have removed it
            skipped.remove(key)
