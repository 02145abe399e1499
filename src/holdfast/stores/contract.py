"""The store contract: what a store must do, in the records it moves.

A store moves bytes. It knows threads, checkpoints, logs of cells and shared values, and nothing of states, messages
or frameworks. Every verb is atomic and thread-safe; `holdfast.testing.StoreContract` is the executable form of this
page and runs on every store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.stores.hashing import Hashing
from holdfast.stores.keys import KeyRow
from holdfast.stores.running import Clock, EffectRow, EffectStatus, Progress, RunRow


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A contiguous range of one log's cells: how anything names cells.

    `first` and `last` are the `seq` of the commits that wrote the range. They let a store find the cells by key,
    without an index of its own, and stay true when segments are merged. Inside Refs, `thread` 0 means the thread that
    owns the record holding them, so a thread's own records do not depend on the number it was given; a span handed to
    a verb of the store names its thread by number.
    """

    thread: int
    log: int
    start: int
    count: int
    first: int
    last: int


class Refs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything a skeleton or a node cell points at, in clear, so that sweeping decodes nothing."""

    spans: tuple[Span, ...] = ()
    values: tuple[bytes, ...] = ()


NO_REFS = Refs()


class Run(msgspec.Struct, frozen=True, gc=False):
    """New cells appended to one log by one commit. `refs` is empty, or has one entry per cell."""

    log: int
    start: int
    cells: tuple[bytes, ...]
    refs: tuple[Refs, ...] = ()


class Block(msgspec.Struct, frozen=True, gc=False):
    """Cells that lie one behind the other in `data`, from `start` on, each of the length given."""

    data: bytes
    start: int
    lengths: Sequence[int]


class Cells(msgspec.Struct, frozen=True, gc=False):
    """Cells read back, in the order of their span. `refs` is empty where the cells were stored without.

    They come as they lie in the segments that hold them: cutting thousands of cells apart only to join neighbours again
    would be most of the work of loading a state.
    """

    blocks: Sequence[Block]
    refs: Sequence[Refs]

    @property
    def cells(self) -> list[bytes]:
        """Each cell by itself."""
        cells: list[bytes] = []
        for block in self.blocks:
            at = block.start
            for length in block.lengths:
                cells.append(block.data[at : at + length])
                at += length
        return cells


class SharedValue(msgspec.Struct, frozen=True, gc=False):
    """A large value, addressed by the sha256 of its bytes within the namespace, in pieces of at most 8 MiB."""

    digest: bytes
    pieces: tuple[bytes, ...]


class Position(msgspec.Struct, frozen=True, gc=False):
    """Where a thread stands: its number, head, number of the last move, and the last `seq` given out."""

    thread: int
    head: int
    move: int
    last: int


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A checkpoint as stored. A deleted one keeps seq, id, parent, step, move and digest: a tombstone.

    `parent` is (thread number, seq), with 0 for the thread itself. `move` is the number of the move that made it
    the head.
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
    """What a listing of threads shows of a thread's head."""

    step: int
    status: str
    agent: str | None
    size: int
    updated_at: int


class ThreadRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A thread as stored. `count` is the number of its checkpoints that are not deleted."""

    name: str
    position: Position
    head_id: bytes
    count: int
    summary: Summary


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One save: a checkpoint, its new cells and values, and the thread's new head, all or nothing.

    `expect` is the position the thread must be in; None means the thread must not exist, and is created.
    `row.seq` is `expect.last + 1` and `row.move` is `expect.move + 1` (1 and 1 for a new thread).
    `bases` are the checkpoints, as (thread number, seq), whose cells this commit builds on: each must still be
    there, or the cells it shares could be swept away under it. `origins` are the numbers of other threads whose cells
    the new checkpoint names: the thread is registered as a fork of each, and of whatever each is itself a fork of,
    which keeps those cells from being swept. A value already stored is not stored again but stamped (`mark_values`).

    Inside a run, `fence` is the fence of the run that the thread must still have (`LeaseLost` if not), `effects` are
    journal entries written with the checkpoint, and `run` replaces the run's record. Without a fence, `run` creates the
    record of a thread that has none (`Conflict` if it has). With neither, a run whose lease has not ended makes the
    commit `LeaseHeld`. Who lost a lease, or is kept out by one, is told so before anything about `expect`. A fence is
    good until the run is claimed or ended: an expired lease lets others claim, and nothing else. `run` does not move
    the end of a lease backwards (`update_run`).
    """

    name: str
    expect: Position | None
    row: CheckpointRow
    runs: tuple[Run, ...]
    values: tuple[SharedValue, ...]
    summary: Summary
    bases: tuple[tuple[int, int], ...] = ()
    origins: tuple[int, ...] = ()
    fence: int | None = None
    run: RunRow | None = None
    effects: tuple[EffectRow, ...] = ()


class Live(msgspec.Struct, frozen=True):
    """What may not be swept from a thread: spans of its cells, up to the commit `horizon`; later commits stay whole."""

    spans: tuple[Span, ...]
    horizon: int


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction did: segments merged away, segments left alone because they are damaged, cells dropped."""

    merged: int = 0
    damaged: int = 0
    dropped: int = 0


class Problem(msgspec.Struct, frozen=True):
    """One thing a check found wrong. `seqs` are the checkpoints it is known to hurt, empty if it may hurt any."""

    thread: str | None
    seqs: tuple[int, ...]
    what: str


class Store(Protocol):
    """One store, opened on one namespace."""

    encoding: Literal["packed", "text"]
    hashing: Hashing

    # -- reading: each verb sees one consistent snapshot ------------------------------------------------------------

    def thread(self, name: str) -> ThreadRow | None:
        """The thread, or None when two independent look-ups agree that there is none; else `Damaged`."""
        ...

    def threads(self, *, prefix: str, after: str | None, limit: int) -> list[ThreadRow]:
        """A page of threads in order of their names' UTF-8 bytes.

        Where one cannot be told it may be passed over; then the empty page at the end is `Damaged`.
        """
        ...

    def checkpoint(self, thread: int, seq: int) -> CheckpointRow | None:
        """One checkpoint, whole (a tombstone has empty meta and skeleton). None if that seq was never given out."""
        ...

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[CheckpointRow]:
        """A page of checkpoints, newest first, seq below `before`, without refs, skeletons and tombstones.

        Where one is lost it may be passed over, and the empty page at the end is `Damaged`; but who looks for a label
        or a step is never given one in front of which one is lost that may have it.
        """
        ...

    def refs(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow]:
        """A page of checkpoints, oldest first, seq above `after`: with refs, without meta, skeletons, tombstones.

        An encrypted store has its labels in clear nowhere else than beside the meta: here they are tokens.
        """
        ...

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        """The cells of each span, checked against their checksums. `Damaged` if any is missing or wrong."""
        ...

    def value(self, digest: bytes) -> list[bytes]:
        """The pieces of a shared value, checked against its digest. `Damaged` if it is missing or wrong."""
        ...

    def last(self, thread: int) -> int:
        """The last seq given out in a thread, tombstones included; 0 for a thread that is not there."""
        ...

    def forks(self, thread: int) -> list[int]:
        """Numbers of the threads that were forked, directly or not, from this one and use its cells."""
        ...

    def clock(self) -> Clock:
        """The time by which this store's leases run."""
        ...

    def run(self, thread: int) -> RunRow | None:
        """The run of a thread, or None if it never had one."""
        ...

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        """A page of runs in these statuses with their threads' names, oldest first.

        In order of (updated_at, thread), above `after`. One that cannot be told may be passed over; then asking for no
        status, which gives none, is `Damaged`.
        """
        ...

    def woken(self, *, limit: int) -> list[tuple[str, RunRow]]:
        """Runs that wait and whose wake time has come, with their threads' names, longest overdue first.

        A wake time on this store's clock is compared with that; one on another clock is told by its `wake_wall`, and
        compared with the wall clock. Runs whose time has not come cost nothing, however many they are.
        """
        ...

    def effects(self, thread: int, *, after: int, limit: int) -> list[EffectRow]:
        """A page of a thread's journal in order of number, above `after`."""
        ...

    def marked(self, thread: int, mark: str) -> list[EffectRow]:
        """The entries of a thread's journal with this mark, in order of number. Others cost nothing."""
        ...

    def last_effect(self, thread: int) -> int:
        """The number of the newest entry of a thread's journal; 0 if there is none."""
        ...

    # -- writing: each verb is one durable transaction --------------------------------------------------------------

    def commit(self, commit: Commit) -> Position:
        """Store a checkpoint and make it the head. `Conflict` if `expect` or a base is not as named."""
        ...

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        """Make an earlier checkpoint the head: a move of its own. `Conflict`, `NotFound`, `LeaseHeld`."""
        ...

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        """Replace the whole record of a run by `row`, whose fence is one higher; `expect` None creates it with fence 1.

        `Conflict` if the record is not exactly `expect`: somebody else claimed, renewed or ended it meanwhile. Listings
        of threads show the new status.
        `NotFound` if there is no such thread. Whether a lease has ended is the caller's to judge, by `clock`.
        """
        ...

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        """Move the end of a lease forwards, and store how far the run says it is, if it said so.

        `LeaseLost` if the fence is not the run's, or the run is not running.
        """
        ...

    def update_run(self, row: RunRow) -> None:
        """Replace the record of a run that still has this fence and is running. `LeaseLost` if not.

        Listings of threads show the new status. Where the run stays running on the same clock, the later end of the
        lease is kept, that which is stored or that of `row`: what was under way during a renewal does not take it back.
        """
        ...

    def park(self, row: RunRow, entry: EffectRow | None, last: int) -> int:
        """Replace the record of a run as `update_run` does, and write the question it waits for with it.

        `entry` is a new journal entry, or replaces that of its number (`NotFound` if there is none); the record gets
        its number as `question`, 0 where `entry` is None, whatever `row` says. The number. `Conflict`, with nothing
        written, if the newest journal entry is not number `last`: something was told from outside meanwhile, and may be
        what the run was about to wait for. So no answer falls between a question and the waiting for it.
        """
        ...

    def journal(self, thread: int, fence: int, rows: Sequence[EffectRow]) -> list[int]:
        """Append entries to the journal; their numbers. `LeaseLost`, with nothing written, if the fence is not the
        run's or the run is not running. Entries that have a number replace the entry of that number (`NotFound` if
        there is none).
        """
        ...

    def tell(self, thread: int, row: EffectRow, *, last: int | None = None, run: RunRow | None = None) -> int:
        """Append an entry to the journal from outside the run, needing no fence: an answer, a cancellation, what a
        worker that lost its lease has to say. Its number.

        Whatever number `row` has, it becomes a new entry. `Conflict` if `last` is given and is not the number of the
        newest entry, or `run` is given and is not the run's record: it began to wait meanwhile, say.
        `NotFound` if the thread has no run.
        """
        ...

    def settle(
        self,
        thread: int,
        number: int,
        expect: EffectStatus,
        row: EffectRow,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        """Replace a journal entry in status `expect` without a fence: somebody has decided it.

        `Conflict` if it is in another status, or the thread's run is not exactly `run` where that is given: a worker
        may have claimed it meanwhile and be deciding itself. `NotFound` if there is no such entry. `then` replaces the
        record of the run in the same moment, by the rules of a claim that expects `run`, which must be given.
        """
        ...

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        """Turn checkpoints into tombstones; how many were not yet. `Protected` if one is the head."""
        ...

    def sweep(self, thread: int, live: Live) -> int:
        """Drop stored segments none of whose cells is live; how many. Works in short transactions."""
        ...

    def mark_values(self) -> int:
        """Begin a new epoch: every value that a commit brings or finds from now on is stamped with it."""
        ...

    def sweep_values(self, live: Collection[bytes], epoch: int) -> int:
        """Drop shared values whose digest is not in `live` and whose stamp is older than `epoch`; how many.

        The stamp is what saves a value that a commit found, and so did not bring, after `live` was computed.
        """
        ...

    def drop(self, thread: int) -> None:
        """Forget a thread: its name is free at once; checkpoints, run and journal are gone. Cells that forks use stay.

        `LeaseHeld` if a run's lease on it has not ended.
        """
        ...

    # -- wrapped keys of an encrypted namespace: small, few, and read once per handle --------------------------------

    def key(self, id: bytes) -> KeyRow | None:
        """The wrapped key of this id."""
        ...

    def keys(self, *, after: bytes, limit: int) -> list[KeyRow]:
        """A page of wrapped keys in order of their ids, above `after`. One that cannot be read has no name."""
        ...

    def put_key(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        """Keep a wrapped key, or that of its id which is there already: whoever comes first decides. What is kept.

        With `expect` it replaces that one; `Conflict` if what is there is another, or nothing.
        """
        ...

    def remove_key(self, id: bytes, expect: KeyRow | None = None) -> None:
        """Forget a wrapped key, if it is there; where `expect` is given, only if that is what is there."""
        ...

    # -- maintenance: short transactions, beside readers and writers ------------------------------------------------

    def thread_numbers(self) -> list[int]:
        """Every thread number of this namespace, dropped threads that still hold cells for forks included."""
        ...

    def compact(self, thread: int, live: Live) -> Compacted:
        """Merge small segments into large ones, leaving out dead cells. Never rewrites what it cannot verify."""
        ...

    def reclaim(self) -> None:
        """Give freed space back to the file system."""
        ...

    def scrub(self) -> tuple[str, ...]:
        """Remove from the store's own files what was dropped and swept; what of it may be elsewhere, in words.

        `ErasePending` if a read that is under way needs them as they are: call it again. Takes as long as the store is
        large, and writers may have to wait.
        """
        ...

    def check(self) -> Iterator[Problem]:
        """Check the store's own structures (indexes, keys, counters), not the cells."""
        ...

    def close(self) -> None:
        """Release everything. Later calls raise `Closed`; closing again does nothing."""
        ...
