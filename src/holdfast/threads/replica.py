"""A replica: a thread that is made again in another store, commit by commit, from wherever it stands there.

A store gives out the numbers of its threads itself, and may address shared values otherwise. What names another thread
or a value is rewritten, and so gets another digest; all else keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.errors import Damaged
from holdfast.identity import new_id
from holdfast.state.draft import Skeleton
from holdfast.stores.contract import CheckpointRow, Commit, Position, Refs, Run, SharedValue, Span, Store, Summary
from holdfast.stores.running import EffectRow, RunRow
from holdfast.threads import meta as metas
from holdfast.threads.meta import Meta
from holdfast.threads.saving import summary_of

_DELETED_AT_ONCE: Final = 200
_NO_DIGEST: Final = bytes(32)
_GONE: Final = (1 << 31) - 1  # a thread that is in no store: the number of one that was not copied
_REWINDS_MAX: Final = 100_000

Bring = Callable[[Iterable[Refs]], tuple[SharedValue, ...]]
"""The shared values that are to be stored with a commit which names these."""

_skeletons = msgspec.msgpack.Encoder()


class Replica:
    """One thread on its way. It is given the commits of the source in order, as they are there."""

    def __init__(
        self,
        target: Store,
        name: str,
        number: int,
        numbers: dict[int, int],
        *,
        bring: Bring,
        addresses: Mapping[bytes, bytes] | None = None,
        at: Position | None = None,
    ) -> None:
        """`number` is that of the source; `numbers` says what became of others, and learns of this.

        `at` is where the replica stands already; `addresses` has the shared values that are addressed otherwise.
        """
        self._target = target
        self._name = name
        self._number = number
        self._numbers = numbers
        self._bring = bring
        self._addresses: Mapping[bytes, bytes] = {} if addresses is None else addresses
        self._at = at
        self._step = 0
        self._time = 0
        self._digests: dict[int, bytes] = {}
        self._forgotten: set[int] = set()
        self.redigested = 0
        """How many checkpoints have another digest than they had."""
        if at is not None:
            numbers[number] = at.thread

    @property
    def at(self) -> Position:
        """Where it stands."""
        if self._at is None:
            raise ValueError("a thread without commits cannot be copied")
        return self._at

    def commit(
        self,
        seq: int,
        row: CheckpointRow | None,
        runs: Sequence[Run],
        *,
        wrote: Sequence[Run] | None,
        summary: Summary | None = None,
        run: RunRow | None = None,
        entries: Iterable[EffectRow] = (),
    ) -> CheckpointRow:
        """Make the commit of a checkpoint again, with its cells; what is stored.

        `wrote` are those of the cells that its digest is of; None for one that is not to be kept: then a stub is
        stored, which `forget` makes a tombstone. `summary`, `run` and `entries` come with the last one.
        """
        move = self._move_for(row)
        runs = [self._run(each) for each in runs]
        if row is not None and wrote is not None:
            made = self._kept(row, move, [self._run(each) for each in wrote])
            shown = summary_of(row, metas.decode(row))
        else:
            made, shown = self._stub(seq, row, move)
        named = [made.refs, *(refs for each in runs for refs in each.refs)]
        thread = 0 if self._at is None else self._at.thread
        self._at = self._target.commit(
            Commit(
                name=self._name,
                expect=self._at,
                row=made,
                runs=tuple(runs),
                values=self._bring(named),
                summary=summary or shown,
                origins=tuple(sorted({span.thread for refs in named for span in refs.spans if span.thread})),
                run=None if run is None else replace(run, thread=thread),
                effects=tuple(self._entry(entry) for entry in entries) if run is not None else (),
            )
        )
        self._numbers[self._number] = self._at.thread
        self._step, self._time = made.step, (summary or shown).updated_at
        self._digests[seq] = made.digest
        return made

    def lead_to(self, head: int, move: int, summary: Summary | None) -> None:
        """Make the rewinds that were made after the last save, or one to what the thread is to go on from."""
        at = self.at
        if head != at.head or at.move < move:
            self._rewound(head, min(max(move, at.move + 1), at.move + _REWINDS_MAX), summary)

    def forget(self, seqs: Sequence[int]) -> None:
        """Make tombstones of checkpoints, none of which is the head."""
        for start in range(0, len(seqs), _DELETED_AT_ONCE):
            self._target.delete(self.at.thread, seqs[start : start + _DELETED_AT_ONCE])
        self._forgotten.update(seqs)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _kept(self, row: CheckpointRow, move: int, wrote: Iterable[Run]) -> CheckpointRow:
        made = replace(row, move=move, parent=self._parent(row), refs=self._refs(row.refs))
        meta = metas.decode(row)
        parent = meta.parent_digest
        if row.parent is not None and not row.parent[0] and not parent:
            parent = self._digest(row.parent[1])
        digest = metas.digest_of(self._target.hashing, made, wrote, parent)
        self.redigested += digest != row.digest
        return replace(made, digest=digest)

    def _stub(self, seq: int, row: CheckpointRow | None, move: int) -> tuple[CheckpointRow, Summary]:
        """What stands for a checkpoint that is not there any more, until it is made a tombstone."""
        meta = Meta(created_at=self._time, size=1)
        made = CheckpointRow(
            seq=seq,
            id=new_id(seq, self._time // 1000) if row is None else row.id,
            parent=None if row is None else self._parent(row),
            step=self._step if row is None else row.step,
            move=move,
            digest=_NO_DIGEST if row is None else row.digest,
            meta=metas.encode(meta),
            skeleton=_skeletons.encode(Skeleton(1, (0, 0), (), 1, packed.encode(None))),
        )
        return made, summary_of(made, meta)

    def _parent(self, row: CheckpointRow) -> tuple[int, int] | None:
        if row.parent is None or not row.parent[0]:
            return row.parent
        return self._numbers.get(row.parent[0], _GONE), row.parent[1]

    def _digest(self, seq: int) -> bytes:
        if seq not in self._digests:
            row = None if self._at is None else self._target.checkpoint(self._at.thread, seq)
            self._digests[seq] = b"" if row is None else row.digest
        return self._digests[seq]

    # -- moves -------------------------------------------------------------------------------------------------------

    def _move_for(self, row: CheckpointRow | None) -> int:
        """The number of the move that brings a row; rewinds that were made before it are made first."""
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
        shown = summary or self._shown(to)
        while at.move < move:
            at = self._target.rewind(at, to=to, summary=shown)
        self._at = at
        return at

    def _shown(self, seq: int) -> Summary:
        row = self._target.checkpoint(self.at.thread, seq)
        if row is None:
            raise Damaged(f"checkpoint {seq} was copied and cannot be found")
        return summary_of(row, metas.decode(row))

    # -- cells, values, numbers --------------------------------------------------------------------------------------

    def _run(self, run: Run) -> Run:
        if not run.refs:
            return run
        return replace(run, refs=tuple(self._refs(refs) for refs in run.refs))

    def _refs(self, refs: Refs) -> Refs:
        values = tuple(self._addresses.get(each, each) for each in refs.values) if self._addresses else refs.values
        if values == refs.values and all(not span.thread for span in refs.spans):
            return refs
        return Refs(tuple(self._renumbered(span) for span in refs.spans), values)

    def _renumbered(self, span: Span) -> Span:
        if not span.thread:
            return span
        number = 0 if span.thread == self._number else self._numbers.get(span.thread, _GONE)
        return Span(number, span.log, span.start, span.count, span.first, span.last)

    def _entry(self, entry: EffectRow) -> EffectRow:
        return replace(entry, number=0, of=self._numbers.get(entry.of, _GONE) if entry.of else 0)
