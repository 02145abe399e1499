"""The store contract: the verbs every store implements and the records they exchange.

A store moves bytes. It knows threads, checkpoints, logs of cells and blobs. It does not know states, messages or
frameworks. Every verb is atomic and thread-safe. `holdfast.testing.StoreContract` tests this contract and runs on every
store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal, Protocol, overload

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract_runs import ActClaim, ActRow, ClaimLimit, Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.types import Problem


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A contiguous range of cells in one log.

    `first` and `last` are the `seq` of the commits that wrote the range. A store finds the cells by them, without an
    index. They stay valid when segments are merged. Inside Refs, `thread` 0 means the thread that owns the record. A
    span passed to a verb of the store has the thread's number.
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

    Neighbours are in one block: splitting thousands of cells would be most of the work of loading a state.
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


class Head(msgspec.Struct, frozen=True):
    """A thread and its head checkpoint, read in one snapshot. An unreadable checkpoint is represented by its error."""

    thread: ThreadRow
    checkpoint: CheckpointRow | Damaged

    @property
    def row(self) -> CheckpointRow:
        """The checkpoint. `Damaged` if it cannot be read, or was deleted, which no store allows."""
        if isinstance(self.checkpoint, Damaged):
            raise self.checkpoint
        if self.checkpoint.deleted:
            raise Damaged(f"checkpoint {self.checkpoint.seq} is deleted, but it is the head of its thread")
        return self.checkpoint


class NumberedThread(msgspec.Struct, frozen=True):
    """A thread in the order of numbers: its name, None if it was dropped, and the last seq assigned.

    Errors represent a name or a seq that cannot be read.
    """

    number: int
    name: str | Damaged | None
    last: int | Damaged


class KeyRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A data key of an encrypted store, encrypted by the user's key called `name`, which the store does not have.

    A record that cannot be read has an empty name.
    """

    id: bytes
    name: str
    wrapped: bytes


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One save: a checkpoint, its new cells and blobs, and the thread's new head. All of it is stored, or nothing.

    `expect` is the position the thread must have. None means that the thread must not exist; the commit creates it.
    `row.seq` is `expect.last + 1` and `row.move` is `expect.move + 1` (both 1 for a new thread).

    `bases` are the checkpoints, as (thread number, seq), whose cells this commit reuses. Each must still exist, because
    otherwise a sweep could drop those cells. `origins` are the numbers of other threads whose cells the new checkpoint
    refers to. The thread is registered as a fork of each origin, and of every thread the origin is a fork of, which
    protects those cells from sweeps. A blob that is already stored is only stamped with the current epoch
    (`Store.sweep_blobs`).

    Inside a run, `fence` must be the fence of the run (else `LeaseLost`). `entries`, `last_entry` and `run` are those
    of `Store.journal`; the journal of a new thread ends with entry 0. Without a fence, `run` creates the record of a
    thread that has no run (else `Conflict`). With neither, `LeaseHeld` if the thread has a run with an unexpired lease;
    then `JournalAhead` if it has a run that is not completed and `last_entry` is not given: the commit closes the
    journal of that run, so its writer must have read it. Lease errors take precedence over a conflict about `expect`.
    A fence is valid until the run is claimed again or ended: an expired lease only allows others to claim.

    `key` is the wrapped key of a thread that the commit creates. The store removes it when nothing is left of the
    thread, not even cells that forks use.
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
    last_entry: int | None = None
    key: KeyRow | None = None


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The result of a claim: the thread's position, the run's new record, and the number of the newest entry."""

    position: Position
    run: RunRow
    last_entry: int


class Live(msgspec.Struct, frozen=True):
    """The cells of a thread that a sweep must keep: these spans, and every commit after `horizon`.

    `horizon` is the last seq of the thread before it was read. `blobs` are the digests of all blobs that the thread's
    checkpoints use, also through cells; None if the caller did not look for them. `token` is the thread's token from
    `Collected.unswept`, read before the thread.
    """

    spans: tuple[Span, ...]
    horizon: int
    blobs: frozenset[bytes] | None = None
    token: int | None = None


class Swept(msgspec.Struct, frozen=True):
    """The result of a sweep: cells dropped, segments merged, damaged segments left unchanged."""

    dropped: int = 0
    merged: int = 0
    damaged: int = 0


class Collected(msgspec.Struct, frozen=True):
    """The result of `sweep_blobs`: the digests of the blobs that it dropped and of those that threads use.

    If threads must be swept first, `unswept` has them, each with a token for `Live`, and nothing was dropped.
    `epoch` is the one that the call started.
    """

    dropped: frozenset[bytes] = frozenset()
    used: frozenset[bytes] = frozenset()
    unswept: dict[int, int] = {}
    epoch: int = 0


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
    signature = staticmethod(hashlib.sha256)

    def address(self, data: bytes) -> bytes:
        return hashlib.sha256(data).digest()


PLAIN: Final[Hashing] = _Plain()


class Store(Protocol):
    """One store, opened on one namespace."""

    # "packed": cells may be any bytes. "text": the store converts cells to JSON, so they must be encoded values.
    encoding: Literal["packed", "text"]
    # A store uses `PLAIN`. Only a store that encrypts another one has its own.
    hashing: Hashing

    # -- reading: each verb sees one consistent snapshot ------------------------------------------------------------

    def head(self, name: str) -> Head | None:
        """A thread and its head, or None if two independent lookups agree that the thread does not exist.

        `Damaged` if they disagree, or if the record of the thread cannot be read.
        """
        ...

    def threads(
        self, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
    ) -> list[ThreadRow]:
        """A page of threads, ordered by name (UTF-8 bytes), with names above `after`.

        With `newest` (µs since 1970), ordered by last change, newest first, then by name: threads changed before
        `newest`, and those changed at `newest` whose name is above `after`. With `contains`, only threads with this
        text in their names, compared without case (`str.casefold`).

        An unreadable thread may be skipped. If one was skipped, the empty page at the end raises `Damaged` instead.
        """
        ...

    def numbered(self, *, after: int | None, limit: int) -> list[NumberedThread]:
        """A page of threads with numbers above `after`, ordered by number.

        Includes dropped threads that still hold cells for forks. If it is not known what some thread needs, the empty
        page at the end raises `Damaged` instead: a caller that removes data reads to the end first.
        """
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

    def walk(self, thread: int, *, after: int, limit: int, refs_only: bool = False) -> list[CheckpointRow | Damaged]:
        """At most `limit` checkpoints with seq above `after`, oldest first, including tombstones.

        They are complete, or with `refs_only` without meta and skeletons; a tombstone has neither. An unreadable
        checkpoint is represented by its error. Fewer than `limit` are returned only at the end. `Damaged` if their
        number cannot be read.
        """
        ...

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        """The cells of each span, verified by their checksums. `Damaged` if any cell is missing or wrong."""
        ...

    def blob(self, digest: bytes) -> list[bytes]:
        """A blob, verified by its digest, in pieces of at most 8 MiB. `Damaged` if the blob is missing or wrong."""
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
        """A page of runs in these statuses with the names of their threads, ordered by (updated_at, thread).

        The page starts above `after`. A run whose status cannot be read may be skipped. With `statuses=()`, the page is
        empty; `Damaged` if there is such a run.
        """
        ...

    def queue(self, *, handlers: Collection[str], after: tuple[int, int, int], limit: int) -> list[tuple[str, RunRow]]:
        """A page of the runs that workers with these handlers may claim at once, with the names of their threads.

        They are queued without a wake time, released or failed. A run's handler is `rules.queue_of`. The order is
        (-priority, updated_at, thread), and the page starts above `after`. Very many runs may be queued: a store should
        use an index.
        """
        ...

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        """Waiting and queued runs whose wake time has passed, with the names of their threads.

        Those with a higher priority come first, then those that are longest overdue.
        A wake time on this store's clock is compared with that clock. For a wake time on another clock, `wake_wall` is
        compared with the wall clock. Very many runs may not be due: a store should use an index.
        """
        ...

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        """A page of a thread's journal, ordered by number, with numbers above `after`.

        With `topic`, only the entries with this topic, found through an index. Fewer than `limit` only at the end.
        """
        ...

    def last_entry(self, thread: int) -> int:
        """The number of the newest entry in a thread's journal; 0 if the journal is empty."""
        ...

    def acts(
        self, *, key: bytes | None = None, prefix: bytes = b"", after: bytes | None = None, limit: int
    ) -> list[ActRow]:
        """A page of claimed acts: only that with `key`, or those whose keys start with `prefix`.

        The order is the store's own. `after` is the key of the last row of the page before. A claim outlives its
        thread: then the row has a thread number that no thread has.
        """
        ...

    # -- writing: each verb is one durable transaction --------------------------------------------------------------

    @overload
    def commit(self, commit: Commit, /) -> Position:
        """Store a checkpoint and make it the head.

        `Conflict` if the thread is not at `expect`, or if a base or an origin no longer exists. `AlreadyExists` if
        `expect` is None and a thread has the name. `InvalidArgument` if the commit contradicts itself, or has a value
        that the store cannot hold. `TooLarge` if the thread, a journal or the new cells exceed a limit of the store.
        `Commit` says when `LeaseLost`, `LeaseHeld` and the errors of `journal` are raised.
        """
        ...

    @overload
    def commit(self, commit: Sequence[Commit], /) -> list[Position]:
        """Store commits of different threads together: all of them, or none if one of them fails.

        The errors are those of one commit. `InvalidArgument` if two are for one thread, if there are none, or if there
        are several and the store can only commit one at a time (`rules.only`).
        """
        ...

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        """Make an earlier checkpoint the head; this is a numbered move, too.

        `LeaseHeld` if a run's lease on the thread has not ended. `Conflict` if the thread is not at `expect`.
        `NotFound` if the checkpoint does not exist or was deleted. `TooLarge` if the thread can have no more moves.
        """
        ...

    def claim(self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> Claimed:
        """Replace the whole record of a run with `row`, whose fence is one higher than that of `expect`.

        If `expect` is None, the record is created with fence 1. `Conflict` if the stored record is not exactly
        `expect`. `NotFound` if the thread does not exist. `InvalidArgument` if `row` has another thread than `expect`,
        or a wrong fence. The caller decides, by `clock`, whether a lease has ended. Listings of threads show the new
        status. If `row` has an owner and no clock, its `lease_until` is the length of the lease, which the store counts
        from its own clock (`rules.start_lease`).

        With `limit`, the same transaction counts the other runs of its handler that are running and whose leases have
        not ended, and the limited claims for its handler within the last `within` ms of the store's clock.
        `LimitReached` if the claim would exceed the limit.
        """
        ...

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        """Extend a lease and, if `progress` is given, store the progress that the run reported.

        `LeaseLost` if the run has another fence or is not running.
        """
        ...

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
        """Write journal entries inside a run, and replace the run's record if `run` is given.

        `last` is the number of the newest entry that the writer has seen. New entries have the numbers `last` + 1,
        `last` + 2 and so on. An entry with a lower number replaces the entry of that number. `Conflict` if the journal
        has a newer entry than `last`: it may be the answer that the run is about to wait for. If `last` is None, the
        newest entry is not compared, and every entry replaces one. `NotFound` if an entry to replace does not exist.
        `InvalidArgument` if the numbers are not as described. `LeaseLost`, before `Conflict` and `NotFound`, if the run
        has another fence or is not running.

        Each of `claims` claims the act of an entry, in the same transaction. `ActHeld`, after the errors above, if
        the act is claimed by another entry than the claim expects.
        `InvalidArgument` if a claim is not for one of `entries` with an act that no other of the claims has.

        Without a fence, the entries are written from outside the run, whatever its status, and `run` is not given.
        `NotFound` if the thread has no run.

        Listings of threads show the new status of `run`. If the run stays running on the same clock, the later of the
        stored and the new lease end is kept: a write that was prepared before a renewal must not undo the renewal.
        """
        ...

    def post(
        self,
        thread: int,
        row: Entry,
        *,
        status: EntryStatus | None = None,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        """Write one journal entry from outside the run, without a fence.

        Without `status`, `row` is a new entry. `Conflict` if its number does not follow that of the newest entry. With
        `status`, it replaces the entry of its number, which must have this status; `Conflict` if it has another.
        `NotFound` if that entry does not exist, or if the thread has no run. `Conflict` if `run` is given and is not
        exactly the run's record. `then` replaces that record. Its fence is one higher than that of `run`, and it is not
        running, because only a claim starts a lease. `InvalidArgument` if not, or if the number is below 1.
        """
        ...

    def put_act(self, key: bytes, expect: ActRow | None, row: ActRow | None) -> ActRow | None:
        """If the claim of an act is `expect`, replace it by `row`. Return the claim that is stored then.

        For copies of threads and for claims whose thread was dropped; a run claims with `journal`.
        `InvalidArgument` if `row` has another key.
        """
        ...

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        """Turn checkpoints into tombstones; return how many were not tombstones yet.

        `Protected` if one is the head. `NotFound` if the thread does not exist. Seqs that do not exist are ignored.
        """
        ...

    def sweep(self, thread: int, live: Live) -> Swept:
        """Drop segments that hold no live cells. Works in short transactions.

        If `live` has blobs, also merge small segments, leaving out dead cells. And record the blobs for `sweep_blobs`,
        if the thread is unswept (see there) and was read since it was marked: `live.horizon` is not below its last seq
        at that time. Segments that cannot be verified are not changed.
        """
        ...

    def sweep_blobs(self, epoch: int | None = None) -> Collected:
        """Drop blobs that no sweep recorded and whose stamp is older than `epoch`, unless threads are unswept.

        Without `epoch`, start a new one and drop nothing: from now on, every blob in `Commit.blobs` is stamped with it.
        The next calls pass the epoch that was returned.

        If there are unswept threads, they are returned, and nothing is dropped. The first call for an epoch marks
        threads as unswept: those that changed since their last sweep, gained or lost a fork, or have a fork that
        deleted checkpoints. A store may also mark every thread. A thread is also unswept if the record of its last
        sweep is damaged, and after each commit with `origins`, because the blobs that it takes over are not stamped.
        """
        ...

    def drop(self, thread: int) -> None:
        """Remove a thread with its checkpoints, run and journal. Its name is free at once.

        Cells that forks use stay, and so do its claims of acts: the acts have happened.

        `NotFound` if the thread does not exist. `LeaseHeld` if a run's lease on the thread has not ended.
        """
        ...

    # -- wrapped keys of an encrypted namespace: small, few, and read once per handle --------------------------------

    def keys(self, *, id: bytes | None = None, after: bytes = b"", limit: int) -> list[KeyRow]:
        """A page of wrapped keys with ids above `after`, ordered by id; with `id`, only that key.

        An unreadable key has an empty name.
        """
        ...

    def put_key(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        """If the key stored under an id is `expect`, replace it by `row`. Return the key that is stored then.

        `expect=None` stores a new key, `row=None` removes one.
        """
        ...

    # -- maintenance: short transactions; readers and writers continue ----------------------------------------------

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        """Return freed space to the file system.

        With `scrub`, also remove dropped and swept data from the store's own files, and describe each place where
        copies may remain. `ErasePending` if a read in progress still needs the old files: call it again later.
        """
        ...

    def check(self) -> Iterator[Problem]:
        """Check the store's own structures (indexes, keys, counters) without reading the cells."""
        ...

    def close(self) -> None:
        """Release all resources. Later calls raise `Closed`; closing again does nothing."""
        ...
