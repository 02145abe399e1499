"""Figures: size and growth of a store, compared with full copies, and tokens and cost of a thread per model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import compress, repeat
from typing import Any, Final

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import Damaged, HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect.call_records import usage_of
from holdfast.inspect.damage import Readable
from holdfast.inspect.references import existing
from holdfast.stores.abilities import BackingUp, Rewrapping, Totalling
from holdfast.stores.contract import ThreadRow
from holdfast.stores.contract_runs import Entry
from holdfast.threads import scan
from holdfast.threads.metadata import moment, sizes_of
from holdfast.types import Usage

_PAGE: Final = 500
_DAY: Final = 86_400_000_000  # µs
_BESIDE: Final = ("-wal", "-shm")  # suffixes of SQLite's other files
_ENTRIES_MOST: Final = 20_000  # the newest; older ones are not read
_POINTS: Final = 120

# -- a store ----------------------------------------------------------------------------------------------------------


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
    readable = Readable(hf)
    counting = _Counting(readable)
    if thread is not None:
        counting.count(existing(hf, thread))
    elif (total := _total(readable, progress)) is not None:
        counting = total
    else:
        for row in scan.threads(readable.store):
            counting.count(row)
            if progress is not None:
                progress(counting.threads)
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
        lost=readable.lost,
    )


def _total(readable: Readable, progress: Callable[[int], None] | None) -> _Counting | None:
    """Count the whole store at once; None if the store cannot do that, or something is damaged."""
    store = readable.sound
    if not isinstance(store, Totalling):
        return None
    found = _Counting(readable)
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

    def __init__(self, readable: Readable) -> None:
        self._readable = readable
        self.threads = 0
        self.checkpoints = 0
        self.copies = 0
        self.newest = 0
        self.statuses: dict[str, int] = {}
        self.days: dict[str, tuple[int, int]] = {}

    def count(self, thread: ThreadRow) -> None:
        self.threads += 1
        self.newest += thread.summary.size
        status = thread.summary.status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        for _, meta in self._readable.checkpoints(thread, page=thread.count + 1):
            day = self._readable.tried(partial(_day, meta.created_at))
            if day is not None:
                self.checkpoints += 1
                self.copies += meta.size
                count, size = self.days.get(day, (0, 0))
                self.days[day] = (count + 1, size + meta.size)


# -- the models of a thread -------------------------------------------------------------------------------------------


class ModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded replies of one model: their number, tokens and cost, and its totals over time.

    `model` is the name that the replies report, or the name of the call. Each of `points` is a time and the tokens and
    the cost up to it.
    """

    model: str
    calls: int
    input: int
    output: int
    cached: int
    cost: float
    currency: str
    seconds: float
    points: tuple[tuple[datetime, int, float], ...]

    @property
    def tokens(self) -> int:
        return self.input + self.output


class ThreadSpending(msgspec.Struct, frozen=True, kw_only=True):
    """The models of a thread, those with the most tokens first. `skipped` counts older journal entries not read."""

    models: tuple[ModelUse, ...]
    skipped: int


def spending(hf: Holdfast, thread: str) -> ThreadSpending:
    """Return what a thread used per model. Raises NotFound if there is no such thread."""
    store = Readable(hf).store  # the views of the journal report the damage
    number = existing(hf, thread).position.thread
    last = store.last_entry(number)
    first = max(last - _ENTRIES_MOST, 0)
    used: dict[tuple[str, str], list[tuple[Entry, Usage]]] = {}
    for after in range(first, last, _PAGE):
        for row in store.entries(number, after=after, limit=_PAGE):
            if row.kind == "model" and row.status == "done":
                usage = usage_of(row) or Usage()
                used.setdefault((_model(row), usage.currency), []).append((row, usage))
    models = [_use(model, currency, rows) for (model, currency), rows in used.items()]
    return ThreadSpending(models=tuple(sorted(models, key=lambda each: (-each.tokens, each.model))), skipped=first)


def _use(model: str, currency: str, rows: list[tuple[Entry, Usage]]) -> ModelUse:
    return ModelUse(
        model=model,
        calls=len(rows),
        input=sum(usage.input for _, usage in rows),
        output=sum(usage.output for _, usage in rows),
        cached=sum(usage.cached for _, usage in rows),
        cost=sum(usage.cost for _, usage in rows),
        currency=currency,
        seconds=sum(max((row.ended_at or row.started_at) - row.started_at, 0) for row, _ in rows) / 1_000_000,
        points=tuple(_points(rows)),
    )


def _points(rows: list[tuple[Entry, Usage]]) -> Iterator[tuple[datetime, int, float]]:
    every = max(len(rows) // _POINTS, 1)
    tokens, cost = 0, 0.0
    for index, (row, usage) in enumerate(rows, 1):
        tokens += usage.total or usage.input + usage.output
        cost += usage.cost
        if index % every == 0 or index == len(rows):
            yield moment(row.ended_at or row.started_at), tokens, cost


def _model(row: Entry) -> str:
    """Return the name of the model that a reply reports."""
    try:
        reply: Any = None if row.result is None else msgpack.decode(row.result)
    except HoldfastError:
        reply = None
    for each in (reply, reply[-1] if type(reply) is list and reply else None):
        if type(each) is dict and type(each.get("model")) is str and each["model"]:
            return str(each["model"])
    return row.name
