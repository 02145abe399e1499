"""Rebuild one thread in another store, commit by commit."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.delta.draft import Skeleton
from holdfast.errors import Damaged
from holdfast.ids import new_id
from holdfast.stores.contract import (
    Append,
    Blob,
    CheckpointRow,
    Commit,
    Position,
    Refs,
    Span,
    Store,
    Summary,
)
from holdfast.stores.contract_runs import ActRow, Entry, RunRow
from holdfast.threads import metadata as metas
from holdfast.threads.effects import IDENTITY_REDACTED, act_key, claim_rank, is_released_by
from holdfast.threads.metadata import Meta
from holdfast.threads.save import summary_of
from holdfast.threads.scan import checkpoint_at

_DELETED_AT_ONCE: Final = 200
_NO_DIGEST: Final = bytes(32)
GONE: Final = (1 << 31) - 1  # a number that no thread has, for threads that were not copied
_REWINDS_MAX: Final = 100_000

BlobsFor = Callable[[Iterable[Refs]], tuple[Blob, ...]]
"""Returns the blobs to store with a commit that has these references."""

_encode_skeleton = msgspec.msgpack.Encoder().encode


class Replica:
    """A thread that is being rebuilt. Pass it the commits of the source in order, unchanged."""

    def __init__(
        self,
        target: Store,
        name: str,
        number: int,
        numbers: dict[int, int],
        *,
        blobs_for: BlobsFor,
        addresses: Mapping[bytes, bytes] | None = None,
        kept_seqs: Mapping[int, Sequence[int]] | None = None,
        at: Position | None = None,
        acts: dict[bytes, bytes] | None = None,
    ) -> None:
        """`number` is the one in the source. `numbers` maps numbers of the source to those of the target.

        `addresses` maps the digests of blobs that have another digest in the target. `kept_seqs` has each thread of the
        source of which only some commits are copied, with the seqs of these commits: in the target they get the seqs 1,
        2, …. `at` is the position of a replica that exists already. `acts` gets the key in the target for the key of
        each act in the source, and the caller copies the claims. Without `acts`, the replica claims the acts of its
        journal itself.
        """
        self._target = target
        self._name = name
        self._number = number
        self._numbers = numbers
        self._blobs_for = blobs_for
        self._addresses: Mapping[bytes, bytes] = {} if addresses is None else addresses
        self._kept_seqs: Mapping[int, Sequence[int]] = {} if kept_seqs is None else kept_seqs
        self._at = at
        self._acts = acts
        self._step = 0
        self._time = 0
        self._digests: dict[int, bytes] = {}
        self._forgotten: set[int] = set()
        self.redigested = 0
        """How many checkpoints have another digest than in the source."""
        if at is not None:
            numbers[number] = at.thread

    @property
    def at(self) -> Position:
        """The position of the replica."""
        if self._at is None:
            raise ValueError("a thread without commits cannot be copied")
        return self._at

    def commit(
        self,
        seq: int,
        row: CheckpointRow | None,
        appends: Sequence[Append],
        *,
        wrote: Sequence[Append] | None,
        summary: Summary | None = None,
        run: RunRow | None = None,
        entries: Iterable[Entry] = (),
    ) -> CheckpointRow:
        """Repeat the commit of a checkpoint with these cells, and return the row that is stored.

        `wrote` are the cells that its digest covers. Without them the checkpoint is not kept: a stub is stored, which
        `forget` makes a tombstone. `summary`, `run` and `entries` are given with the last commit.
        """
        move = self._move_for(row)
        appends = [self._append(each) for each in appends]
        if row is not None and wrote is not None:
            made = self._kept(row, move, [self._append(each) for each in wrote])
            described = summary_of(row, metas.decode(row))
        else:
            made, described = self._stub(seq, row, move)
        named = [made.refs, *(refs for each in appends for refs in each.refs)]
        thread = 0 if self._at is None else self._at.thread
        made_entries = () if run is None else tuple(map(self._entry, itertools.count(1), entries))
        self._at = self._target.commit(
            Commit(
                name=self._name,
                expect=self._at,
                row=made,
                appends=tuple(appends),
                blobs=self._blobs_for(named),
                summary=summary or described,
                origins=tuple(sorted({span.thread for refs in named for span in refs.spans if span.thread})),
                run=None if run is None else replace(run, thread=thread),
                entries=made_entries,
                last_entry=None if run is None else 0,
            )
        )
        self._numbers[self._number] = self._at.thread
        if self._acts is None:
            claim_acts(self._target, self._at.thread, made_entries)
        self._step, self._time = made.step, (summary or described).updated_at
        self._digests[seq] = made.digest
        return made

    def lead_to(self, head: int, move: int, summary: Summary | None) -> None:
        """Repeat the rewinds that were made after the last save, or rewind to the checkpoint that is now the head."""
        at = self.at
        if head != at.head or at.move < move:
            self._rewound(head, min(max(move, at.move + 1), at.move + _REWINDS_MAX), summary)

    def forget(self, seqs: Sequence[int]) -> None:
        """Make tombstones of checkpoints, none of which is the head."""
        for start in range(0, len(seqs), _DELETED_AT_ONCE):
            self._target.delete(self.at.thread, seqs[start : start + _DELETED_AT_ONCE])
        self._forgotten.update(seqs)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _kept(self, row: CheckpointRow, move: int, wrote: Iterable[Append]) -> CheckpointRow:
        made = replace(row, move=move, parent=self._parent(row), refs=self._refs(row.refs))
        meta = metas.decode(row)
        parent = meta.parent_digest
        if row.parent is not None and not row.parent[0] and not parent:
            parent = self._digest(row.parent[1])
        digest = metas.digest_of(self._target.hashing, made, wrote, parent)
        self.redigested += digest != row.digest
        return replace(made, digest=digest)

    def _stub(self, seq: int, row: CheckpointRow | None, move: int) -> tuple[CheckpointRow, Summary]:
        """A placeholder for a checkpoint that is not kept, until it is made a tombstone."""
        meta = Meta(created_at=self._time, size=1)
        made = CheckpointRow(
            seq=seq,
            id=new_id(seq, self._time // 1000) if row is None else row.id,
            parent=None if row is None else self._parent(row),
            step=self._step if row is None else row.step,
            move=move,
            digest=_NO_DIGEST if row is None else row.digest,
            meta=metas.encode(meta),
            skeleton=_encode_skeleton(Skeleton(1, (0, 0), (), 1, msgpack.encode(None))),
        )
        return made, summary_of(made, meta)

    def _parent(self, row: CheckpointRow) -> tuple[int, int] | None:
        if row.parent is None or not row.parent[0]:
            return row.parent
        return self._numbers.get(row.parent[0], GONE), row.parent[1]

    def _digest(self, seq: int) -> bytes:
        if seq not in self._digests:
            row = None if self._at is None else checkpoint_at(self._target, self._at.thread, seq)
            self._digests[seq] = b"" if row is None else row.digest
        return self._digests[seq]

    # -- moves -------------------------------------------------------------------------------------------------------

    def _move_for(self, row: CheckpointRow | None) -> int:
        """The number of the move that adds a row. Rewinds that were made before it are repeated first."""
        at = self._at
        if at is None:
            return 1
        if row is not None and at.move + 1 < row.move <= at.move + _REWINDS_MAX:
            parent = row.parent
            to = parent[1] if parent is not None and not parent[0] and 1 <= parent[1] <= at.last else at.head
            at = self._rewound(at.head if to in self._forgotten else to, row.move - 1)
        return at.move + 1

    def _rewound(self, to: int, move: int, summary: Summary | None = None) -> Position:
        at = self.at
        summary = summary or self._summary(to)
        while at.move < move:
            at = self._target.rewind(at, to=to, summary=summary)
        self._at = at
        return at

    def _summary(self, seq: int) -> Summary:
        row = checkpoint_at(self._target, self.at.thread, seq)
        if row is None:
            raise Damaged(f"checkpoint {seq} was copied and cannot be found")
        return summary_of(row, metas.decode(row))

    # -- cells, blobs, numbers ---------------------------------------------------------------------------------------

    def _append(self, append: Append) -> Append:
        if not append.refs:
            return append
        return replace(append, refs=tuple(self._refs(refs) for refs in append.refs))

    def _refs(self, refs: Refs) -> Refs:
        blobs = tuple(self._addresses.get(each, each) for each in refs.blobs) if self._addresses else refs.blobs
        if blobs == refs.blobs and not self._kept_seqs and all(not span.thread for span in refs.spans):
            return refs
        return Refs(tuple(self._renumbered(span) for span in refs.spans), blobs)

    def _renumbered(self, span: Span) -> Span:
        source = span.thread or self._number
        number = 0 if source == self._number else self._numbers.get(source, GONE)
        first, last = span.first, span.last
        kept = self._kept_seqs.get(source)
        if kept is not None:
            first, last = bisect_left(kept, first) + 1, bisect_right(kept, last)
        return Span(number, span.log, span.start, span.count, first, last)

    def _entry(self, number: int, entry: Entry) -> Entry:
        act = entry.act
        if entry.identity is not None and entry.act is not None and not entry.redacted & IDENTITY_REDACTED:
            act = act_key(self._target.hashing, *entry.identity)  # the target may have another key
            if self._acts is not None:
                self._acts[entry.act] = act
        return replace(
            entry,
            number=number,
            act=act,
            matches_thread=self._numbers.get(entry.matches_thread, GONE) if entry.matches_thread else 0,
        )


def claim_acts(store: Store, thread: int, entries: Iterable[Entry]) -> None:
    """Claim the acts of a thread. Of several calls of an act, also of other threads, one that did it has the claim."""
    for entry in entries:
        if entry.act is None or entry.status == "asked" or (entry.matches_thread and entry.settled is None):
            continue
        row = ActRow(entry.act, thread, entry.number)
        found = store.put_act(entry.act, None, row)
        known = None if found in (None, row) else _entry_of(store, found)
        if found is not None and known is not None and not is_released_by(entry, known):
            ranks = claim_rank(store, found.thread, known), claim_rank(store, thread, entry)
            is_newer = ranks[0] == ranks[1] and known.started_at <= entry.started_at
            if ranks[0] < ranks[1] or is_newer or is_released_by(known, entry):
                store.put_act(entry.act, found, row)


def _entry_of(store: Store, claim: ActRow | None) -> Entry | None:
    if claim is None or store.run(claim.thread) is None:
        return None  # its thread was deleted
    return next(iter(store.entries(claim.thread, after=claim.number - 1, limit=1)), None)
