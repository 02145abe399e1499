"""The records that a format yields: checkpoints, unreadable parts and remarks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.types import Status, Usage


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint of another system.

    `key` identifies it within its thread; None if `id` is unique there. `parent` is the key of its parent; None means
    the checkpoint before it. `created_at` is None if the source has no valid time; that is reported, and the original
    value belongs into `rest`. `rest` holds all other fields of the source and is stored under `$imported`. `remarks`
    are reported. `is_head` marks the checkpoint that the thread resumes from, by default the last one. `new_messages`
    is given if the list `messages` of the state is that of the parent followed by so many new ones: only these are then
    compared and encoded.
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
    new_messages: int | None = None


class Unreadable(msgspec.Struct, frozen=True):
    """A part of a thread that is not imported. `item` names it, such as a file or a line; None is the whole thread."""

    item: str | None
    reason: str


class Remark(msgspec.Struct, frozen=True):
    """Something unusual in a thread, by which nothing is lost."""

    item: str | None
    reason: str


Entry = Record | Unreadable | Remark
