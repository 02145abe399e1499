"""Collect what a transcript shows of a checkpoint: state, branches, usage and open calls, redacted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.inspect import (
    Branch,
    FoundCheckpoint,
    Lanes,
    Readable,
    existing,
    find,
    is_doubtful,
    kin,
    state_of,
    thread_line,
    usage_of,
)
from holdfast.redaction import Redaction
from holdfast.runs.open_entries import open_entries
from holdfast.runs.record import effect_of
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry
from holdfast.threads.ancestry import Ancestry, branch_of
from holdfast.threads.metadata import decode, moment
from holdfast.threads.scan import checkpoint_at
from holdfast.types import Checkpoint, Effect, Usage

_PAGE: Final = 200
_ACTING: Final = ("idempotent", "irreversible")
# Names identify things. They are not redacted in the store, so they are not redacted here.
_NAMES: Final = frozenset({"thread", "id", "parent", "digest", "effect", "status", "trigger"})


class BranchTold(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of a thread.

    `number` counts from 1; `of` is the number of the branch in the journal. `first` and `last` are its checkpoints,
    `parent` the one it started from, or 0. `leads` says whether it leads to the exported checkpoint.
    """

    number: int
    of: int
    first: int
    last: int
    parent: int
    leads: bool


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a transcript, redacted.

    `standing` is the status of the thread if the checkpoint is its head, else the status saved with the checkpoint.
    `usage` is that of the checkpoint or, if it has none, the sum over the model calls that led to it. `open_calls` are
    the calls made since the checkpoint, which only the head has; a call whose outcome is unknown is in doubt. `lost`
    has a sentence for each part that cannot be read.
    """

    checkpoint: Checkpoint
    is_head: bool
    standing: str
    reason: str | None
    agent: str | None
    begun_at: datetime | None
    branch: int
    branches: tuple[BranchTold, ...]
    usage: Usage | None
    model_calls: int
    open_calls: tuple[Effect, ...]
    lost: tuple[str, ...]

    @property
    def thread(self) -> str:
        return self.checkpoint.thread


class Gatherer:
    """Read the contents of transcripts from a store, and redact them."""

    def __init__(self, hf: Holdfast, redaction: Redaction) -> None:
        self._hf = hf
        self._store: Store = hf.context.store
        self._redaction = redaction

    def gather(self, reference: str) -> Told:
        """Read what a reference names. NotFound as for `find`, Damaged if the whole checkpoint is unreadable."""
        found = find(self._hf, reference)
        row = existing(self._hf, found.thread)
        loaded = state_of(self._hf, found)
        is_head = row.position.head == found.checkpoint.seq
        lost = [f"{each.path} cannot be read: {each.why}" for each in loaded.lost]
        now = thread_line(self._hf, row)
        calls, spent = 0, loaded.usage
        open_calls: tuple[Effect, ...] = ()
        try:
            calls, counted = self._spent(row, found)
            spent = loaded.usage or counted
            open_calls = self._open(row, is_held=now.status == "running") if is_head else ()
        except Damaged as damage:
            lost.append(f"the journal cannot be read: {damage}")
        lanes = Lanes.of(Readable(self._hf), row)
        branch = lanes.branch(found.checkpoint.seq)
        return Told(
            checkpoint=self._redacted(loaded),
            is_head=is_head,
            standing=now.status if is_head else loaded.status,
            reason=self._told(now.reason if is_head and now.reason is not None else loaded.reason),
            agent=self._told(loaded.agent or now.agent),
            begun_at=self._begun_at(row),
            branch=1 if branch is None else lanes.branches.index(branch) + 1,
            branches=tuple(_told(lanes.branches, found.checkpoint.seq)),
            usage=spent,
            model_calls=calls,
            open_calls=tuple(self._redacted(each) for each in open_calls),
            lost=tuple(map(self._redaction.message, lost)),
        )

    def kin(self, conversation: Told) -> tuple[str | None, tuple[str, ...]]:
        """The checkpoint that the thread was forked from, as a reference, and the names of the thread's known forks."""
        origin, forks = kin(self._hf, existing(self._hf, conversation.thread))
        return origin, tuple(name for _, names in sorted(forks.items()) for name in names)

    def journal(self, conversation: Told) -> Iterator[Entry]:
        """The journal entries that led to a checkpoint, oldest first; for the head also the open ones.

        Entries from before a fork are in the journal of the original thread and are not included.
        """
        row = existing(self._hf, conversation.thread)
        yield from self._leading(row, conversation.checkpoint.seq, is_head=conversation.is_head)

    def redacted(self, value: Any) -> Any:
        """Redact a plain value or a record of the store."""
        return self._redacted(value)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _leading(self, row: ThreadRow, seq: int, *, is_head: bool) -> Iterator[Entry]:
        number, store = row.position.thread, self._store
        last = store.last_entry(number)
        checkpoint = None if is_head or not last else checkpoint_at(store, number, seq)
        line = Ancestry.of(store, row.position) if checkpoint is None else Ancestry.to(store, number, checkpoint)
        after = 0
        while after < last:
            page = store.entries(number, after=after, limit=_PAGE)
            if not page:
                return
            yield from (each for each in page if each.status != "late" and line.holds(each.branch, each.step))
            after = page[-1].number

    def _spent(self, row: ThreadRow, found: FoundCheckpoint) -> tuple[int, Usage | None]:
        """The number of completed model calls that led to a checkpoint, and the sum of their usage."""
        is_head = row.position.head == found.checkpoint.seq
        calls = 0
        total: Usage | None = None
        for entry in self._leading(row, found.checkpoint.seq, is_head=is_head):
            if entry.kind == "model" and entry.status == "done":
                calls += 1
                used = usage_of(entry)
                total = used if total is None or used is None else _sum(total, used)
        return calls, total

    def _open(self, row: ThreadRow, *, is_held: bool) -> tuple[Effect, ...]:
        number, store = row.position.thread, self._store
        run = store.run(number)
        closed = 0 if run is None else run.closed
        rows = open_entries(store, number, closed, store.last_entry(number), row.summary.step, branch_of(row.position))
        newest = {(each.step, each.key): each for each in rows}.values()
        return tuple(effect_of(_decided(each, is_held=is_held)) for each in newest)

    def _begun_at(self, row: ThreadRow) -> datetime | None:
        try:
            first = checkpoint_at(self._store, row.position.thread, 1)
            return None if first is None or first.deleted else moment(decode(first).created_at)
        except Damaged:
            return None

    def _told(self, text: str | None) -> str | None:
        return None if text is None else self._redaction.message(text)

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, msgspec.Struct) and not isinstance(value, Usage):
            fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _NAMES}
            return msgspec.structs.replace(value, **{name: self._redacted(each) for name, each in fields.items()})
        return self._redaction.value(value)


def _decided(row: Entry, *, is_held: bool) -> Entry:
    """Set the status of a call that is in doubt: it was started, and no process holds the run."""
    is_unknown = is_doubtful(row.kind, row.status, is_held=is_held)
    if is_unknown or (row.kind in _ACTING and row.status == "asked"):
        return msgspec.structs.replace(row, status="in_doubt")
    return row


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cached=one.cached + other.cached,
        total=(one.total or one.input + one.output) + (other.total or other.input + other.output),
        cost=one.cost + other.cost,
        currency=one.currency,
    )


def _told(branches: list[Branch], seq: int) -> Iterator[BranchTold]:
    lanes = Lanes(branches, seq)
    for number, branch in enumerate(branches, 1):
        yield BranchTold(
            number=number,
            of=branch.number,
            first=branch.first,
            last=branch.last,
            parent=branch.parent,
            leads=lanes.leads_to_head(branch.first),
        )
