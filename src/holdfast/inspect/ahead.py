"""The effects that a rewind would not undo: those recorded after a checkpoint."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.handle import Holdfast
from holdfast.inspect import graphs
from holdfast.inspect.calls import Call
from holdfast.inspect.nearest import existing
from holdfast.threads import metadata as metas
from holdfast.threads.effects import Action, actions_ahead
from holdfast.threads.refs import find_row
from holdfast.types import Checkpoint

_ACTING: Final = ("idempotent", "irreversible")


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that was or may have been made, by the thread itself or by a child run.

    `must_confirm` is True if it is irreversible; a rewind past it must be confirmed.
    """

    thread: str
    number: int
    step: int
    name: str
    effect: str
    status: str
    must_confirm: bool


def effects_ahead(hf: Holdfast, thread: str, checkpoint: str | Checkpoint) -> list[Ahead]:
    """Return the effects after a checkpoint, oldest first. Raises NotFound if there is no such checkpoint."""
    row = existing(hf, thread)
    store = hf.context.store
    if row.summary.agent == graphs.AGENT:
        since = metas.moment(metas.decode(find_row(store, row, checkpoint)).created_at)
        return [_of_graph(row.name, call) for call in graphs.calls_since(hf, row.name, since) if call.kind in _ACTING]
    deeds = actions_ahead(store, row, find_row(store, row, checkpoint))
    return [_ahead(deed) for deed in deeds if isinstance(deed, Action)]


def _of_graph(thread: str, call: Call) -> Ahead:
    return Ahead(
        thread=thread,
        number=call.number,
        step=call.step,
        name=call.name,
        effect=call.kind,
        status=call.status,
        must_confirm=call.kind == "irreversible",
    )


def _ahead(deed: Action) -> Ahead:
    return Ahead(
        thread=deed.thread.name,
        number=deed.entry.number,
        step=deed.entry.step,
        name=deed.entry.name,
        effect=deed.entry.kind,
        status=deed.outcome.status,
        must_confirm=deed.entry.kind == "irreversible",
    )
