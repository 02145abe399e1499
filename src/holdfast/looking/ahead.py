"""What a rewind would go back past: what the runs of a thread did after a checkpoint, and nobody has undone."""

from __future__ import annotations

import msgspec

from holdfast.handle import Holdfast
from holdfast.looking.nearest import existing
from holdfast.threads.effects import Action, actions_ahead
from holdfast.threads.refs import find_row
from holdfast.types import Checkpoint


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done, or may have been, by the thread itself or a child of it.

    `must_confirm`: it cannot be taken back, so a rewind past it has to be confirmed.
    """

    thread: str
    number: int
    step: int
    name: str
    effect: str
    status: str
    must_confirm: bool


def effects_ahead(hf: Holdfast, thread: str, checkpoint: str | Checkpoint) -> list[Ahead]:
    """What a rewind of a thread to a checkpoint would go back past, oldest first. NotFound if there is none."""
    row = existing(hf, thread)
    store = hf._session.store
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
