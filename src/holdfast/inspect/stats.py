"""Size and growth of a store, compared with full copies of every state."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import compress, repeat
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.inspect.nearest import existing
from holdfast.stores.abilities import BackingUp, Rewrapping, Totalling
from holdfast.stores.contract import Store, ThreadRow
from holdfast.threads.history import listed
from holdfast.threads.metadata import decode, moment, sizes_of

_PAGE: Final = 500
_DAY: Final = 86_400_000_000  # µs
_BESIDE: Final = ("-wal", "-shm")  # suffixes of SQLite's other files


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The number of checkpoints saved on a UTC day, and the size of their states."""

    day: str
    checkpoints: int
    bytes: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a store, or of one thread.

    `stored` is the size on disk, None if it is unknown or for one thread. `copies` is the size of the states of all
    checkpoints as full copies, `newest` that of the heads alone. `saved` is `copies` divided by `stored`. `statuses`
    counts threads by the status of their last save, not by the current status of their runs. `days` are the last days
    with saves, oldest first. `lost` are messages about unreadable records.
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
    """Read the metadata of every checkpoint of a store or a thread. `progress` is called with the threads done."""
    hf.context.check_open()
    store = hf.context.store
    counting = _Counting(store)
    if thread is not None:
        counting.count(existing(hf, thread))
    elif (total := _total(store, progress)) is not None:
        counting = total
    else:
        after: str | None = None
        try:
            while page := store.threads(prefix="", after=after, limit=_PAGE):
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


def _total(store: Store, progress: Callable[[int], None] | None) -> _Counting | None:
    """Count the whole store at once; None if the store cannot do that, or something is damaged."""
    if not isinstance(store, Totalling):
        return None
    found = _Counting(store)
    days: dict[int, tuple[int, int]] = {}

    def read(metas: Sequence[bytes], heads: Sequence[bool]) -> None:
        times, sizes = sizes_of([meta for meta in metas if meta])
        found.newest += sum(compress(sizes, [head for meta, head in zip(metas, heads, strict=True) if meta]))
        is_one_day = bool(times) and min(times) // _DAY == max(times) // _DAY  # nearly always
        groups = [(times[0], len(sizes), sum(sizes))] if is_one_day else zip(times, repeat(1), sizes, strict=False)
        for time, more, size in groups:
            count, total = days.get(time // _DAY, (0, 0))
            days[time // _DAY] = count + more, total + size
        for _ in range(sum(heads)):
            found.threads += 1
            if progress is not None:
                progress(found.threads)

    try:
        totals = store.totals(read)
        if totals.size != found.newest:
            return None
        found.days = {_day(day * _DAY): figures for day, figures in days.items()}
    except Damaged:
        return None
    found.statuses = totals.statuses
    found.checkpoints = sum(count for count, _ in days.values())
    found.copies = sum(size for _, size in days.values())
    return found


def _day(microseconds: int) -> str:
    return f"{moment(microseconds):%Y-%m-%d}"


def stored_bytes(hf: Holdfast) -> int | None:
    """Return the size of a store on disk, with all namespaces; None if it is not a file or folder."""
    store = hf.context.store
    underlying = store.underlying if isinstance(store, Rewrapping) else store
    if not isinstance(underlying, BackingUp):
        return None
    path = underlying.path
    if os.path.isdir(path):
        return sum(_size(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)
    return _size(path) + sum(_size(path + ending) for ending in _BESIDE)


def _size(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_size
    return 0


class _Counting:
    """The counts so far."""

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
                day = _day(meta.created_at)
            except Damaged as damage:
                self.lost.append(str(damage))
                continue
            self.checkpoints += 1
            self.copies += meta.size
            count, size = self.days.get(day, (0, 0))
            self.days[day] = (count + 1, size + meta.size)
