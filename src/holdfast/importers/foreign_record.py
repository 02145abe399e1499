"""What a format of another system gives: its checkpoints as records, and what is to be said of the others."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.types import Status, Usage


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint of another system.

    `key` tells it from the others of its thread where `id` need not; None if `id` does. `parent` is the key of another,
    None for the one before it. `created_at` is None where the source has no time that is one; that is told, and
    what it has instead belongs into `rest`. `rest` is what the source says of it besides, and is kept; `remarks` are
    told. `is_head`: the source goes on from here; if none is, from the last.
    """

    id: str
    step: int
    created_at: datetime | None
    state: Any
    key: str | None = None
    parent: str | None = None
    status: Status = "running"
    reason: str | None = None
    trigger: str = "import"
    label: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    agent: str | None = None
    usage: Usage | None = None
    resume_hint: str | None = None
    rest: dict[str, Any] = {}
    remarks: tuple[str, ...] = ()
    is_head: bool = False


class Unreadable(msgspec.Struct, frozen=True):
    """A part of a thread that is left behind. `item` says which: a file, a line; None for all that there is."""

    item: str | None
    reason: str


class Remark(msgspec.Struct, frozen=True):
    """Something of a thread that is to be known, and costs nothing."""

    item: str | None
    reason: str


Entry = Record | Unreadable | Remark
