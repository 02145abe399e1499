"""The effects that a rewind would not undo: those recorded after a checkpoint."""

from __future__ import annotations

import msgspec

from holdfast.handle import Holdfast
from holdfast.inspect.nearest import existing
from holdfast.threads.effects import Action, actions_ahead
from holdfast.threads.refs import find_row
from holdfast.types import Checkpoint


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
    deeds = actions_ahead(store, row, find_row(store, row, checkpoint))
    return [_ahead(deed) for deed in deeds if isinstance(deed, Action)]


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
