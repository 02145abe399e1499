"""Excerpts of threads for exports: a checkpoint with its state, branches, usage and open calls, redacted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.inspect import (
    Branch,
    FoundCheckpoint,
    Lanes,
    Readable,
    RecordedCall,
    existing,
    find,
    kin,
    open_calls,
    state_of,
    thread_line,
    usage_of,
)
from holdfast.redaction import Redaction
from holdfast.runs.guards import sum_of_usage
from holdfast.stores.contract import ThreadRow
from holdfast.stores.contract_runs import Entry
from holdfast.threads.ancestry import Ancestry
from holdfast.threads.metadata import decode, moment
from holdfast.threads.scan import checkpoint_at
from holdfast.types import Checkpoint, Effect, Usage

_PAGE: Final = 200
# Names identify things. They are not redacted in the store, so they are not redacted here.
_NAMES: Final = frozenset({"thread", "id", "parent", "digest", "effect", "status", "trigger"})


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an export of one checkpoint, redacted.

    `status` is that of the thread if the checkpoint is its head, else that saved with the checkpoint. `usage` is that
    of the checkpoint or, if it has none, the sum over the model calls that led to it. `open_calls` are the calls made
    since the checkpoint, which only the head has, and `is_held` is whether a process makes them now. `branches` are
    those of the thread, each with whether it leads to the checkpoint; `branch` is the number of its own, from 1. `lost`
    has a sentence for each part that cannot be read.
    """

    checkpoint: Checkpoint
    is_head: bool
    status: str
    reason: str | None
    agent: str | None
    started_at: datetime | None
    branch: int
    branches: tuple[tuple[Branch, bool], ...]
    usage: Usage | None
    model_calls: int
    open_calls: tuple[RecordedCall, ...]
    is_held: bool
    lost: tuple[str, ...]

    @property
    def thread(self) -> str:
        return self.checkpoint.thread

    @property
    def effects(self) -> list[Effect]:
        """The open calls as journal entries."""
        return [call.effect for call in self.open_calls]


class ExcerptReader:
    """Reads what exports show from a store, and redacts it with `redact`."""

    def __init__(self, hf: Holdfast, redact: Callable[[str], str] | None) -> None:
        hf.context.check_open()
        self._hf = hf
        self._redaction = Redaction(redact)

    def read(self, reference: str) -> Excerpt:
        """Read what a reference names. NotFound as for `find`, Damaged if the whole checkpoint is unreadable."""
        hf, text = self._hf, self._redaction.message
        found = find(hf, reference)
        row = existing(hf, found.thread)
        loaded, now = state_of(hf, found), thread_line(hf, row)
        is_head = row.position.head == found.checkpoint.seq
        readable = Readable(hf)
        models = [
            each for each in self._leading(readable, row, found) if each.kind == "model" and each.status == "done"
        ]
        calls = open_calls(hf, found.thread) if is_head else None
        lanes = Lanes.of(readable, row)
        branch, leading = lanes.branch(found.checkpoint.seq), Lanes(lanes.branches, found.checkpoint.seq)
        spent = [used for each in models if (used := usage_of(each)) is not None]
        lost = [f"{each.path} cannot be read: {each.why}" for each in loaded.lost]
        lost += dict.fromkeys([*readable.lost, *(() if calls is None else calls.lost)])
        reason = now.reason if is_head and now.reason is not None else loaded.reason
        agent = loaded.agent or now.agent
        return Excerpt(
            checkpoint=self.redacted(loaded),
            is_head=is_head,
            status=now.status if is_head else loaded.status,
            reason=None if reason is None else text(reason),
            agent=None if agent is None else text(agent),
            started_at=_started_at(hf, row),
            branch=1 if branch is None else lanes.branches.index(branch) + 1,
            branches=tuple((each, leading.leads_to_head(each.first)) for each in lanes.branches),
            usage=loaded.usage or (functools.reduce(sum_of_usage, spent) if spent else None),
            model_calls=len(models),
            open_calls=() if calls is None else tuple(self._redacted_call(each) for each in calls.calls),
            is_held=calls is not None and calls.is_held,
            lost=tuple(map(text, lost)),
        )

    def kin(self, excerpt: Excerpt) -> tuple[str | None, tuple[str, ...]]:
        """The checkpoint that the thread was forked from, as a reference, and the names of the thread's known forks."""
        origin, forks = kin(self._hf, existing(self._hf, excerpt.thread))
        return origin, tuple(name for _, names in sorted(forks.items()) for name in names)

    def journal(self, excerpt: Excerpt) -> Iterator[Entry]:
        """The journal entries that led to a checkpoint, oldest first; for the head also the open ones.

        Entries from before a fork are in the journal of the original thread and are not included.
        """
        found = find(self._hf, f"{excerpt.thread}@{excerpt.checkpoint.id}")
        yield from self._leading(Readable(self._hf), existing(self._hf, excerpt.thread), found)

    def redacted(self, value: Any) -> Any:
        """Redact a plain value or a record of the store."""
        if isinstance(value, msgspec.Struct) and not isinstance(value, Usage):
            fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _NAMES}
            return replace(value, **{name: self.redacted(each) for name, each in fields.items()})
        return self._redaction.value(value)

    def _redacted_call(self, call: RecordedCall) -> RecordedCall:
        return replace(call, effect=self.redacted(call.effect), call=self.redacted(call.call))

    def _leading(self, readable: Readable, row: ThreadRow, found: FoundCheckpoint) -> Iterator[Entry]:
        number, store, seq = row.position.thread, readable.store, found.checkpoint.seq
        last = store.last_entry(number)
        checkpoint = None if row.position.head == seq or not last else checkpoint_at(store, number, seq)
        line = Ancestry.of(store, row.position) if checkpoint is None else Ancestry.to(store, number, checkpoint)
        for after in range(0, last, _PAGE):
            page = store.entries(number, after=after, limit=_PAGE)
            yield from (each for each in page if each.status != "late" and line.holds(each.branch, each.step))


def _started_at(hf: Holdfast, row: ThreadRow) -> datetime | None:
    try:
        first = checkpoint_at(hf.context.store, row.position.thread, 1)
        return None if first is None or first.deleted else moment(decode(first).created_at)
    except Damaged:
        return None
