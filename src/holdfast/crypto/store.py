"""A store behind a cipher: what it is given is sealed, what it gives back is opened. Any store can be behind it.

Maintenance needs no key: what refers to what, and how much, is in clear, and cells are sealed one by one, so segments
are merged and swept without being opened.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from holdfast.crypto import records
from holdfast.crypto.ring import Ring
from holdfast.crypto.sealing import Seal, key_id
from holdfast.errors import Conflict, Damaged, NotEncrypted
from holdfast.stores import contract as c
from holdfast.stores.abilities import Announcing
from holdfast.stores.hashing import Hasher, Hashing
from holdfast.stores.keys import KeyRow
from holdfast.stores.running import Clock, EffectRow, EffectStatus, Progress, RunRow
from holdfast.stores.walking import walk

# A piece with its seal has to fit into the 8 MiB that stores take.
_PIECE: Final = (8 << 20) - 64
_AGENT: Final = b"agent\0"
_THREADS_KNOWN: Final = 10_000


class SealedStore:
    """Implements `holdfast.stores.contract.Store` on another one. `NotEncrypted` for what that holds in clear."""

    def __init__(self, store: c.Store, ring: Ring) -> None:
        self._store = store
        self._ring = ring
        self.encoding: Literal["packed", "text"] = store.encoding
        self.hashing: Hashing = _KeyedHashing(ring)
        # Which data key a thread has. It never gets another.
        self._keys: OrderedDict[int, bytes] = OrderedDict()

    def __repr__(self) -> str:
        return f"{self._store!r}, encrypted"

    @property
    def plain(self) -> c.Store:
        """The store behind the cipher."""
        return self._store

    def over(self, store: c.Store) -> SealedStore:
        """Another store behind the same cipher. An empty one gets the keys of digests and values."""
        if not store.keys(after=b"", limit=1):
            self._ring.found(store)
        return SealedStore(store, self._ring.beside(store))

    # -- reading ----------------------------------------------------------------------------------------------------

    def thread(self, name: str) -> c.ThreadRow | None:
        row = self._store.thread(name)
        return None if row is None else self._open_thread(row)

    def threads(self, *, prefix: str, after: str | None, limit: int) -> list[c.ThreadRow]:
        return [self._open_thread(row) for row in self._store.threads(prefix=prefix, after=after, limit=limit)]

    def checkpoint(self, thread: int, seq: int) -> c.CheckpointRow | None:
        row = self._store.checkpoint(thread, seq)
        return None if row is None else self._open_checkpoint(thread, row)

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
        return [self._opened(thread, row) for row in walk(self._store, thread, after=after, limit=limit)]

    def _opened(self, thread: int, row: c.CheckpointRow | Damaged) -> c.CheckpointRow | Damaged:
        if isinstance(row, Damaged):
            return row
        try:
            return self._open_checkpoint(thread, row)
        except (Damaged, NotEncrypted) as error:
            return Damaged(str(error))

    def cells(self, spans: Sequence[c.Span]) -> list[c.Cells]:
        return [self._open_cells(span, read) for span, read in zip(spans, self._store.cells(spans), strict=True)]

    def value(self, digest: bytes) -> list[bytes]:
        sealed = self._store.value(digest)
        opened: list[bytes] = []
        for index, piece in enumerate(sealed):
            if key_id(piece) != self._ring.records.id:
                raise Damaged(f"shared value {digest.hex()} was put in another one's place")
            opened.append(self._ring.records.open(piece, records.value_place(index, len(sealed))))
        return opened

    def last(self, thread: int) -> int:
        return self._store.last(thread)

    def forks(self, thread: int) -> list[int]:
        return self._store.forks(thread)

    def clock(self) -> Clock:
        return self._store.clock()

    def run(self, thread: int) -> RunRow | None:
        row = self._store.run(thread)
        return None if row is None else self._open_run(row)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        found = self._store.runs(statuses=statuses, after=after, limit=limit)
        return [(name, self._open_run(row)) for name, row in found]

    def woken(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return [(name, self._open_run(row)) for name, row in self._store.woken(limit=limit)]

    def effects(self, thread: int, *, after: int, limit: int) -> list[EffectRow]:
        return [self._open_entry(thread, row) for row in self._store.effects(thread, after=after, limit=limit)]

    def marked(self, thread: int, mark: str) -> list[EffectRow]:
        token = self._ring.token(b"mark", mark)
        return [self._open_entry(thread, row) for row in self._store.marked(thread, token)]

    def last_effect(self, thread: int) -> int:
        return self._store.last_effect(thread)

    # -- writing ----------------------------------------------------------------------------------------------------

    def commit(self, commit: c.Commit) -> c.Position:
        if commit.expect is not None:
            return self._store.commit(self._sealed(commit, self._seal_of(commit.expect.thread)))
        # The key is stored before what it seals. One without a thread, should this end between the two, is nobody's.
        seal = self._ring.new()
        try:
            position = self._store.commit(self._sealed(commit, seal))
        except Conflict:
            self._ring.remove(seal.id)
            raise
        self._know(position.thread, seal.id)
        return position

    def rewind(self, expect: c.Position, *, to: int, summary: c.Summary) -> c.Position:
        return self._store.rewind(expect, to=to, summary=self._seal_summary(summary))

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        self._store.claim(self._seal_run_or_none(expect), self._seal_run(row))

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        if progress is not None:
            progress = records.seal_progress(progress, self._ring.records)
        self._store.renew(thread, fence, until, progress)

    def update_run(self, row: RunRow) -> None:
        self._store.update_run(self._seal_run(row))

    def park(self, row: RunRow, entry: EffectRow | None, last: int) -> int:
        sealed = None if entry is None else self._seal_entry(row.thread, entry)
        return self._store.park(self._seal_run(row), sealed, last)

    def journal(self, thread: int, fence: int, rows: Sequence[EffectRow]) -> list[int]:
        return self._store.journal(thread, fence, [self._seal_entry(thread, row) for row in rows])

    def tell(self, thread: int, row: EffectRow, *, last: int | None = None, run: RunRow | None = None) -> int:
        sealed = self._seal_entry(thread, row)
        return self._store.tell(thread, sealed, last=last, run=self._seal_run_or_none(run))

    def settle(
        self,
        thread: int,
        number: int,
        expect: EffectStatus,
        row: EffectRow,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        sealed = self._seal_entry(thread, row)
        self._store.settle(thread, number, expect, sealed, self._seal_run_or_none(run), self._seal_run_or_none(then))

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        return self._store.delete(thread, seqs)

    def sweep(self, thread: int, live: c.Live) -> int:
        return self._store.sweep(thread, live)

    def mark_values(self) -> int:
        return self._store.mark_values()

    def sweep_values(self, live: Collection[bytes], epoch: int) -> int:
        return self._store.sweep_values(live, epoch)

    def drop(self, thread: int) -> None:
        """The key goes with the thread, unless forks still use its cells: what is left on a disk cannot be read."""
        id = self._key_of(thread)
        self._store.drop(thread)
        self._keys.pop(thread, None)
        # Asked after the drop: until then somebody may have forked it, and nobody can any more.
        if id is not None and not self._store.forks(thread):
            self._ring.remove(id)

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def key(self, id: bytes) -> KeyRow | None:
        return self._store.key(id)

    def keys(self, *, after: bytes, limit: int) -> list[KeyRow]:
        return self._store.keys(after=after, limit=limit)

    def put_key(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        return self._store.put_key(row, expect)

    def remove_key(self, id: bytes) -> None:
        self._store.remove_key(id)

    def rewrap(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every data key by the cipher's current key; how many were not."""
        return self._ring.rewrap(progress)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def thread_numbers(self) -> list[int]:
        return self._store.thread_numbers()

    def compact(self, thread: int, live: c.Live) -> c.Compacted:
        return self._store.compact(thread, live)

    def reclaim(self) -> None:
        self._store.reclaim()

    def scrub(self) -> tuple[str, ...]:
        return self._store.scrub()

    def check(self) -> Iterator[c.Problem]:
        return self._store.check()

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """See `Announcing`."""
        if isinstance(self._store, Announcing):
            return self._store.listen(heard)
        return lambda: None

    def close(self) -> None:
        self._store.close()

    # -- which key ---------------------------------------------------------------------------------------------------

    def _know(self, thread: int, id: bytes) -> None:
        self._keys[thread] = id
        if len(self._keys) > _THREADS_KNOWN:
            self._keys.popitem(last=False)

    def _key_of(self, thread: int) -> bytes | None:
        """The id of a thread's data key: its newest checkpoint that was not deleted says so."""
        id = self._keys.get(thread)
        if id is None:
            for row in self._store.checkpoints(thread, before=None, limit=1):
                id = records.key_of_checkpoint(row)
                if id is not None:
                    self._know(thread, id)
        return id

    def _seal_of(self, thread: int) -> Seal:
        id = self._key_of(thread)
        if id is None:
            # Nothing will be stored for a thread that is not there: the store says so in its own way.
            return self._ring.records
        return self._ring.seal(id)

    def _opening(self, thread: int, id: bytes) -> Seal:
        """The seal of something that was read. `Damaged` if it is another thread's: all of a thread has one key."""
        known = self._keys.get(thread)
        if known is None:
            self._know(thread, id)
        elif known != id:
            raise Damaged(f"a record of thread number {thread} is sealed by the key of another thread")
        return self._ring.seal(id)

    # -- records -----------------------------------------------------------------------------------------------------

    def _sealed(self, commit: c.Commit, seal: Seal) -> c.Commit:
        label = commit.row.label
        token = None if label is None else self._ring.token(b"label", label)
        return replace(
            commit,
            row=records.seal_checkpoint(commit.row, token, seal),
            runs=tuple([records.seal_run_of_cells(run, seal) for run in commit.runs]),
            values=tuple([self._seal_value(value) for value in commit.values]),
            summary=self._seal_summary(commit.summary),
            run=self._seal_run_or_none(commit.run),
            effects=tuple([self._entry_sealed_by(seal, row) for row in commit.effects]),
        )

    def _open_checkpoint(self, thread: int, row: c.CheckpointRow) -> c.CheckpointRow:
        id = records.key_of_checkpoint(row)
        return row if id is None else records.open_checkpoint(row, self._opening(thread, id))

    def _open_cells(self, span: c.Span, read: c.Cells) -> c.Cells:
        opened: list[bytes] = []
        seal: Seal | None = None
        at = span.start
        for cell in read.cells:
            id = key_id(cell)
            if seal is None or seal.id != id:
                seal = self._opening(span.thread, id)
            opened.append(seal.open(cell, records.cell_place(span.log, at)))
            at += 1
        block = c.Block(b"".join(opened), 0, list(map(len, opened)))
        return c.Cells([block] if opened else [], read.refs)

    def _seal_value(self, value: c.SharedValue) -> c.SharedValue:
        return c.SharedValue(value.digest, sealed_pieces(b"".join(value.pieces), self._ring.records))

    def _seal_summary(self, summary: c.Summary) -> c.Summary:
        if summary.agent is None:
            return summary
        return replace(summary, agent=records.seal_text(summary.agent, self._ring.records, _AGENT))

    def _open_thread(self, row: c.ThreadRow) -> c.ThreadRow:
        agent = row.summary.agent
        if agent is None:
            return row
        opened = records.open_text(agent, self._ring.records, _AGENT)
        return replace(row, summary=replace(row.summary, agent=opened))

    def _seal_run(self, row: RunRow) -> RunRow:
        return records.seal_run(row, self._ring.records)

    def _seal_run_or_none(self, row: RunRow | None) -> RunRow | None:
        return None if row is None else self._seal_run(row)

    def _open_run(self, row: RunRow) -> RunRow:
        if key_id(row.sealed) != self._ring.records.id:
            raise Damaged(f"the run of thread number {row.thread} is sealed by the key of something else")
        return records.open_run(row, self._ring.records)

    def _seal_entry(self, thread: int, row: EffectRow) -> EffectRow:
        return self._entry_sealed_by(self._seal_of(thread), row)

    def _entry_sealed_by(self, seal: Seal, row: EffectRow) -> EffectRow:
        token = None if row.mark is None else self._ring.token(b"mark", row.mark)
        return records.seal_entry(row, token, seal)

    def _open_entry(self, thread: int, row: EffectRow) -> EffectRow:
        return records.open_entry(row, self._opening(thread, key_id(row.sealed)))


class _KeyedHashing:
    """Addresses and digests that say nothing to whoever has not the keys."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def address(self, data: bytes) -> bytes:
        """That of the sealed bytes, which are always the same for the same value: stores check what they read by it."""
        hasher = hashlib.sha256()
        for piece in sealed_pieces(data, self._ring.records):
            hasher.update(piece)
        return hasher.digest()

    def signature(self) -> Hasher:
        return self._ring.signature()


def sealed_pieces(data: bytes, seal: Seal) -> tuple[bytes, ...]:
    """A shared value, cut and sealed."""
    view = memoryview(data)
    starts = range(0, len(data), _PIECE)
    return tuple(
        [
            seal.seal(bytes(view[start : start + _PIECE]), records.value_place(index, len(starts)))
            for index, start in enumerate(starts)
        ]
    )
