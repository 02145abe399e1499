"""How large a store is, what it would take to keep a full copy of the state at each step, and how it grows."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.looking.nearest import existing
from holdfast.stores.abilities import BackingUp, Rewrapping
from holdfast.stores.contract import Store, ThreadRow
from holdfast.threads.history import listed
from holdfast.threads.metadata import decode, moment

_PAGE: Final = 500
_BESIDE: Final = ("-wal", "-shm")  # what SQLite keeps beside its file


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What was saved on a day, in UTC: how many checkpoints, and how large their states are."""

    day: str
    checkpoints: int
    bytes: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Of a store, or of one thread.

    `stored` is what the store takes on disk, None where that cannot be told or only one thread was asked about.
    `copies` is what the states of all checkpoints take when each is written out, as other systems do; `newest` what the
    heads alone take. `statuses` are those that threads were last saved with: how their runs stand now is not looked at.
    `saved` is by how many times `stored` is smaller than `copies`. `days` are the last days on which something was
    saved, oldest first. `lost` are sentences about what could not be read.
    """

    threads: int
    checkpoints: int
    stored: int | None
    copies: int
    newest: int
    saved: float | None
    statuses: dict[str, int]
    days: tuple[Day, ...]
    lost: tuple[str, ...]


def stats(
    hf: Holdfast,
    thread: str | None = None,
    *,
    days: int = 30,
    progress: Callable[[int], None] | None = None,
) -> Stats:
    """Look at every checkpoint of a store, or of one thread. `progress` is told how many threads were looked at."""
    hf._session.check_open()
    counting = _Counting(hf._session.store)
    if thread is not None:
        counting.count(existing(hf, thread))
    else:
        after: str | None = None
        try:
            while page := hf._session.store.threads(prefix="", after=after, limit=_PAGE):
                for row in page:
                    counting.count(row)
                    if progress is not None:
                        progress(counting.threads)
                after = page[-1].name
        except Damaged as damage:
            counting.lost.append(str(damage))
    stored = stored_bytes(hf) if thread is None else None
    return Stats(
        threads=counting.threads,
        checkpoints=counting.checkpoints,
        stored=stored,
        copies=counting.copies,
        newest=counting.newest,
        saved=round(counting.copies / stored, 2) if stored else None,
        statuses=dict(sorted(counting.statuses.items())),
        days=tuple(
            Day(day=day, checkpoints=count, bytes=size) for day, (count, size) in sorted(counting.days.items())[-days:]
        ),
        lost=tuple(counting.lost),
    )


def stored_bytes(hf: Holdfast) -> int | None:
    """What a store takes on disk, all namespaces of it; None where it is in no file or folder."""
    store = hf._session.store
    plain = store.plain if isinstance(store, Rewrapping) else store
    if not isinstance(plain, BackingUp):
        return None
    path = plain.path
    if os.path.isdir(path):
        return sum(_size(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)
    return _size(path) + sum(_size(path + ending) for ending in _BESIDE)


def _size(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_size
    return 0


class _Counting:
    """What was counted so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.threads = 0
        self.checkpoints = 0
        self.copies = 0
        self.newest = 0
        self.statuses: dict[str, int] = {}
        self.days: dict[str, tuple[int, int]] = {}
        self.lost: list[str] = []

    def count(self, thread: ThreadRow) -> None:
        self.threads += 1
        self.newest += thread.summary.size
        status = thread.summary.status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        for row in listed(self._store, thread, page=min(_PAGE, thread.count + 1)):
            if isinstance(row, Damaged):
                self.lost.append(str(row))
                continue
            try:
                meta = decode(row)
                day = f"{moment(meta.created_at):%Y-%m-%d}"
            except Damaged as damage:
                self.lost.append(str(damage))
                continue
            self.checkpoints += 1
            self.copies += meta.size
            count, size = self.days.get(day, (0, 0))
            self.days[day] = (count + 1, size + meta.size)
