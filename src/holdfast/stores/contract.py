"""The store contract: the verbs every store implements and the records they exchange.

A store moves bytes. It knows threads, checkpoints, logs of cells and blobs. It does not know states, messages or
frameworks. Every verb is atomic and thread-safe. `holdfast.testing.StoreContract` tests this contract and runs on every
store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal, Protocol

import msgspec

from holdfast.errors import Conflict, Damaged
from holdfast.stores.contract_runs import Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.types import Problem


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A contiguous range of cells in one log. Cells are always addressed by spans.

    `first` and `last` are the `seq` of the commits that wrote the range. A store uses them to find the cells by key,
    without an index. They stay valid when segments are merged. Inside Refs, `thread` 0 means the thread that owns the
    record, so a thread's records do not depend on its number. A span passed to a verb of the store gives the thread's
    number.
    """

    thread: int
    log: int
    start: int
    count: int
    first: int
    last: int


class Refs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All spans and blobs that a skeleton or a node cell refers to, unencoded, so that a sweep decodes no cells."""

    spans: tuple[Span, ...] = ()
    blobs: tuple[bytes, ...] = ()


NO_REFS = Refs()


class Append(msgspec.Struct, frozen=True, gc=False):
    """Cells that one commit appends to one log. `refs` is empty, or has one entry per cell."""

    log: int
    start: int
    cells: tuple[bytes, ...]
    refs: tuple[Refs, ...] = ()


class Block(msgspec.Struct, frozen=True, gc=False):
    """Consecutive cells in `data`, from offset `start` on, with the given lengths."""

    data: bytes
    start: int
    lengths: Sequence[int]


class Cells(msgspec.Struct, frozen=True, gc=False):
    """Cells read from the store, in the order of their span. `refs` is empty if the cells were stored without refs.

    Cells are returned as blocks of the segments that hold them. Splitting thousands of cells only to join neighbours
    again would be most of the work of loading a state.
    """

    blocks: Sequence[Block]
    refs: Sequence[Refs]

    @property
    def cells(self) -> list[bytes]:
        """Each cell as separate bytes."""
        cells: list[bytes] = []
        for block in self.blocks:
            at = block.start
            for length in block.lengths:
                cells.append(block.data[at : at + length])
                at += length
        return cells


class Blob(msgspec.Struct, frozen=True, gc=False):
    """A blob: a large value stored once per namespace under the sha256 of its bytes, in pieces of at most 8 MiB."""

    digest: bytes
    pieces: tuple[bytes, ...]


class Position(msgspec.Struct, frozen=True, gc=False):
    """The position of a thread: its number, its head, the number of its last move, and the last `seq` assigned."""

    thread: int
    head: int
    move: int
    last: int


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A checkpoint as stored. A deleted checkpoint is a tombstone: it keeps seq, id, parent, step, move and digest.

    `parent` is (thread number, seq); thread number 0 means the same thread. `move` is the number of the move that made
    the checkpoint the head.
    """

    seq: int
    id: bytes
    parent: tuple[int, int] | None
    step: int
    move: int
    digest: bytes
    label: str | None = None
    meta: bytes = b""
    refs: Refs = NO_REFS
    skeleton: bytes = b""
    deleted: bool = False


class Summary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a thread's head that a listing of threads shows."""

    step: int
    status: str
    agent: str | None
    size: int
    updated_at: int


class ThreadRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A thread as stored. `count` is the number of checkpoints that are not deleted."""

    name: str
    position: Position
    head_id: bytes
    count: int
    summary: Summary


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One save: a checkpoint, its new cells and blobs, and the thread's new head. All of it is stored, or nothing.

    `expect` is the position the thread must have. None means that the thread must not exist; the commit creates it.
    `row.seq` is `expect.last + 1` and `row.move` is `expect.move + 1` (both 1 for a new thread).

    `bases` are the checkpoints, as (thread number, seq), whose cells this commit reuses; they are not the bases that a
    handle keeps in memory. Each must still exist, because otherwise a sweep could drop those cells. `origins` are the
    numbers of other threads whose cells the new checkpoint refers to. The thread is registered as a fork of each
    origin, and of every thread the origin is a fork of, which protects those cells from sweeps. A blob that is already
    stored is not stored again; it is stamped with the current epoch (`start_epoch`).

    Inside a run, `fence` must be the fence the run still has (`LeaseLost` if not), `entries` are journal entries
    written with the checkpoint, and `run` replaces the run's record. Without a fence, `run` creates the record of a
    thread that has no run (`Conflict` if it has one). With neither, a run with an unexpired lease makes the commit fail
    with `LeaseHeld`. Lease errors take precedence over a conflict about `expect`. A fence is valid until the run is
    claimed again or ended: an expired lease only allows others to claim. `run` never moves the end of a lease backwards
    (`update_run`).
    """

    name: str
    expect: Position | None
    row: CheckpointRow
    appends: tuple[Append, ...]
    blobs: tuple[Blob, ...]
    summary: Summary
    bases: tuple[tuple[int, int], ...] = ()
    origins: tuple[int, ...] = ()
    fence: int | None = None
    run: RunRow | None = None
    entries: tuple[Entry, ...] = ()


class Live(msgspec.Struct, frozen=True):
    """The cells of a thread that a sweep must keep: these spans, and every commit after `horizon`.

    `horizon` is the last seq of the thread before it was read. `blobs` are the digests of all blobs that the thread's
    checkpoints use, in their own references or through cells of any thread; None if the caller did not look for them.
    """

    spans: tuple[Span, ...]
    horizon: int
    blobs: frozenset[bytes] | None = None


class Swept(msgspec.Struct, frozen=True):
    """The result of a sweep: cells dropped, segments merged, damaged segments left unchanged."""

    dropped: int = 0
    merged: int = 0
    damaged: int = 0


class Collected(msgspec.Struct, frozen=True):
    """The result of `sweep_blobs`: the digests of the blobs it dropped, or the threads that must be swept first."""

    dropped: tuple[bytes, ...] = ()
    unswept: tuple[int, ...] = ()


class Hasher(Protocol):
    """A hash in progress, with the interface of hashlib and hmac."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class Hashing(Protocol):
    """The hash functions for blob addresses and checkpoint digests: plain, or keyed in an encrypted store."""

    def address(self, data: bytes) -> bytes:
        """The digest under which the store keeps a blob with these bytes."""
        ...

    def signature(self) -> Hasher:
        """A new hash for the digest of a checkpoint."""
        ...


class _Plain:
    def address(self, data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    def signature(self) -> Hasher:
        return hashlib.sha256()


PLAIN: Final[Hashing] = _Plain()


class KeyRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A data key of an encrypted store, encrypted by the user's key called `name`, which the store does not have.

    In a listing, a record that cannot be read has an empty name and an empty wrapped key.
    """

    id: bytes
    name: str
    wrapped: bytes


def key_changed() -> Conflict:
    """The error for a stored key that is not the expected one."""
    return Conflict("the wrapped key was replaced or removed by another process; nothing was changed. Read it again.")


class Store(Protocol):
    """One store, opened on one namespace."""

    encoding: Literal["packed", "text"]
    hashing: Hashing

    # -- reading: each verb sees one consistent snapshot ------------------------------------------------------------

    def thread(self, name: str) -> ThreadRow | None:
        """The thread, or None if two independent lookups agree that it does not exist. `Damaged` if they disagree."""
        ...

    def threads(self, *, prefix: str, after: str | None, limit: int) -> list[ThreadRow]:
        """A page of threads, ordered by the UTF-8 bytes of their names.

        An unreadable thread may be skipped. If one was skipped, the empty page at the end raises `Damaged` instead.
        """
        ...

    def checkpoint(self, thread: int, seq: int) -> CheckpointRow | None:
        """One complete checkpoint; None if that seq was never assigned. A tombstone has empty meta and skeleton."""
        ...

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[CheckpointRow]:
        """A page of checkpoints with seq below `before`, newest first, without refs, skeletons and tombstones.

        An unreadable checkpoint may be skipped. If one was skipped, the empty page at the end raises `Damaged` instead.
        With `label` or `step`, no match older than an unreadable checkpoint is returned, because the unreadable one may
        match, too.
        """
        ...

    def refs(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow]:
        """A page of checkpoints with seq above `after`, oldest first: with refs, without meta, skeletons, tombstones.

        An encrypted store keeps plain labels in the sealed meta only. Here it returns tokens instead of labels.
        """
        ...

    def walk(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
        """At most `limit` complete checkpoints with seq above `after`, oldest first, including tombstones.

        An unreadable checkpoint is represented by its error. Fewer than `limit` are returned only at the end. `Damaged`
        if not even the number of checkpoints can be read.
        """
        ...

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        """The cells of each span, verified by their checksums. `Damaged` if any cell is missing or wrong."""
        ...

    def blob(self, digest: bytes) -> list[bytes]:
        """The pieces of a blob, verified by its digest. `Damaged` if the blob is missing or wrong."""
        ...

    def last(self, thread: int) -> int:
        """The last seq assigned in a thread, tombstones included; 0 if the thread does not exist."""
        ...

    def forks(self, thread: int) -> list[int]:
        """Numbers of the threads that were forked from this thread, directly or indirectly, and use its cells."""
        ...

    def clock(self) -> Clock:
        """The current time on the clock that this store's leases use."""
        ...

    def run(self, thread: int) -> RunRow | None:
        """The run of a thread, or None if it never had one."""
        ...

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        """A page of runs in these statuses with the names of their threads, oldest first.

        The order is (updated_at, thread); the page starts above `after`. A run whose status cannot be read may be
        skipped. A call with `statuses=()` looks for such runs: it raises `Damaged` if there is one, and otherwise
        returns an empty page.
        """
        ...

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        """Waiting runs whose wake time has passed, with the names of their threads, longest overdue first.

        A wake time on this store's clock is compared with that clock. For a wake time on another clock, `wake_wall` is
        compared with the wall clock. Runs that are not due cost nothing, however many there are.
        """
        ...

    def entries(self, thread: int, *, after: int, limit: int) -> list[Entry]:
        """A page of a thread's journal, ordered by number, with numbers above `after`."""
        ...

    def find_entries(self, thread: int, topic: str) -> list[Entry]:
        """The entries of a thread's journal with this topic, ordered by number. Other entries cost nothing."""
        ...

    def last_entry(self, thread: int) -> int:
        """The number of the newest entry in a thread's journal; 0 if the journal is empty."""
        ...

    # -- writing: each verb is one durable transaction --------------------------------------------------------------

    def commit(self, commit: Commit) -> Position:
        """Store a checkpoint and make it the head. `Conflict` if the thread is not at `expect` or a base is missing."""
        ...

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        """Make an earlier checkpoint the head; this is a numbered move, too. `Conflict`, `NotFound`, `LeaseHeld`."""
        ...

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        """Replace the whole record of a run with `row`, whose fence is one higher than that of `expect`.

        If `expect` is None, the record is created with fence 1. `Conflict` if the stored record is not exactly
        `expect`: another process claimed, renewed or ended the run. `NotFound` if the thread does not exist. The caller
        decides, by `clock`, whether a lease has ended. Listings of threads show the new status.
        """
        ...

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        """Extend a lease and, if `progress` is given, store the progress that the run reported.

        `LeaseLost` if the run has another fence or is not running.
        """
        ...

    def update_run(self, row: RunRow) -> None:
        """Replace the record of a run that still has this fence and is running. `LeaseLost` if not.

        Listings of threads show the new status. If the run stays running on the same clock, the later of the stored and
        the new lease end is kept: a write that was prepared before a renewal must not undo the renewal.
        """
        ...

    def suspend(self, row: RunRow, entry: Entry | None, last: int) -> int:
        """Replace the record of a run as `update_run` does, and write the question it waits for; return its number.

        `entry` is a new journal entry, or replaces the entry of its number (`NotFound` if there is none). The record's
        `question` becomes the number of `entry`, or 0 if `entry` is None, whatever `row` contains. `Conflict`, with
        nothing written, if the newest journal entry is not number `last`: an entry was posted from outside, and it may
        be the one the run is about to wait for. So no answer can be lost between asking and waiting.
        """
        ...

    def journal(self, thread: int, fence: int, rows: Sequence[Entry]) -> list[int]:
        """Append entries to the journal and return their numbers.

        An entry that has a number replaces the entry of that number (`NotFound` if there is none). `LeaseLost`, with
        nothing written, if the run has another fence or is not running.
        """
        ...

    def post(self, thread: int, row: Entry, *, last: int | None = None, run: RunRow | None = None) -> int:
        """Append an entry to the journal from outside the run, without a fence; return its number.

        Used for answers, cancellations, and the results of a worker that lost its lease. The entry always gets a new
        number, whatever number `row` has. `Conflict` if `last` is given and is not the number of the newest entry, or
        if `run` is given and is not the run's record (for example because the run has started to wait). `NotFound` if
        the thread has no run.
        """
        ...

    def settle(
        self,
        thread: int,
        number: int,
        expect: EntryStatus,
        row: Entry,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        """Replace a journal entry in status `expect`, without a fence, because its outcome was decided from outside.

        `Conflict` if the entry has another status, or if `run` is given and is not exactly the thread's run: a worker
        may have claimed it and be deciding the entry itself. `NotFound` if the entry does not exist. `then` replaces
        the record of the run in the same transaction, by the rules of a claim that expects `run`; it requires `run`.
        """
        ...

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        """Turn checkpoints into tombstones; return how many were not tombstones yet. `Protected` if one is the head."""
        ...

    def sweep(self, thread: int, live: Live) -> Swept:
        """Drop segments that hold no live cells. Works in short transactions.

        If `live` has blobs, also merge small segments into large ones, without dead cells, and record the blobs for
        `sweep_blobs`. They are recorded if the thread waits for a sweep (see there) and `live.horizon` is not below the
        last seq that the thread had when it started to wait. Segments that cannot be verified are not changed.
        """
        ...

    def start_epoch(self) -> int:
        """Start a new epoch and return it. From now on, blobs that commits contain or refer to are stamped with it."""
        ...

    def sweep_blobs(self, epoch: int) -> Collected:
        """Drop blobs that no sweep recorded and whose stamp is older than `epoch`, unless threads wait for a sweep.

        The threads that wait are returned, and nothing is dropped then. The first call for an epoch lets each thread
        wait that was changed since its last sweep, or has a fork that was changed. A store may let every thread wait. A
        thread also waits if its record is damaged, and after each commit with `origins`: the blobs that such a commit
        finds in other threads get no stamp.
        """
        ...

    def drop(self, thread: int) -> None:
        """Remove a thread with its checkpoints, run and journal. Its name is free at once. Cells that forks use stay.

        `LeaseHeld` if a run's lease on the thread has not ended.
        """
        ...

    # -- wrapped keys of an encrypted namespace: small, few, and read once per handle --------------------------------

    def key(self, id: bytes) -> KeyRow | None:
        """The wrapped key with this id."""
        ...

    def keys(self, *, after: bytes, limit: int) -> list[KeyRow]:
        """A page of wrapped keys with ids above `after`, ordered by id. An unreadable key has an empty name."""
        ...

    def put_key(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        """Store a wrapped key unless its id is already stored; return the key that is stored then.

        With `expect`, replace exactly that key. `Conflict` if another key is stored under the id, or none.
        """
        ...

    def remove_key(self, id: bytes, expect: KeyRow | None = None) -> None:
        """Remove a wrapped key if it exists. With `expect`, only if that key is stored."""
        ...

    # -- maintenance: short transactions; readers and writers continue ----------------------------------------------

    def name_of(self, thread: int) -> str | None:
        """The name of a thread; None if it has no name or does not exist. `Damaged` if it cannot be read."""
        ...

    def names(self) -> dict[int, str]:
        """The names, by thread number, of the threads that have a name and an undamaged record."""
        ...

    def thread_numbers(self) -> list[int]:
        """Every thread number of this namespace, including dropped threads that still hold cells for forks."""
        ...

    def reclaim(self) -> None:
        """Return freed space to the file system."""
        ...

    def scrub(self) -> tuple[str, ...]:
        """Remove dropped and swept data from the store's own files; describe each place where copies may remain.

        `ErasePending` if a read in progress still needs the old files: call it again later. Takes time in proportion to
        the size of the store, and writers may have to wait.
        """
        ...

    def check(self) -> Iterator[Problem]:
        """Check the store's own structures (indexes, keys, counters) without reading the cells."""
        ...

    def close(self) -> None:
        """Release all resources. Later calls raise `Closed`; closing again does nothing."""
        ...
