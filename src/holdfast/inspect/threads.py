"""List the threads of a store with the status of their runs, in pages."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, unquote_to_bytes

import msgspec

from holdfast.errors import Damaged, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.inspect import graphs
from holdfast.inspect.calls import is_doubtful
from holdfast.inspect.whole import whole
from holdfast.runs.guards import spent
from holdfast.runs.open_entries import open_entries
from holdfast.runs.record import each_run, is_free, now
from holdfast.runs.waits import SLEEP
from holdfast.stores.abilities import Totalling
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Clock, Entry, RunRow
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import STATUSES, decode, moment
from holdfast.threads.scan import numbered, thread_named
from holdfast.threads.thread import checked_limit
from holdfast.types import Usage

Standing = Literal[
    "queued",
    "running",
    "waiting",
    "idle",
    "released",
    "completed",
    "failed",
    "halted",
    "dead",
    "interrupted",
    "in doubt",
]
"""The shown status of a thread: that of its run, or "interrupted" or "in doubt", which are derived from it."""

Order = Literal["name", "newest", "oldest", "largest", "longest"]

_PAGE: Final = 500
_DERIVED: Final = ("interrupted", "in doubt")
_CAN_DOUBT: Final = ("running", "waiting", "failed", "dead", "halted", "idle", "released", "queued")
_DIGITS: Final = 20
_LATEST: Final = (1 << 63) - 1


class ThreadLine(msgspec.Struct, frozen=True, kw_only=True):
    """One thread. `standing` is its shown status, `in_doubt` the number of its calls in doubt.

    `tokens` and `cost` come from the head or, if it has none, from its model calls; None if neither records them.
    `waits_for` is the name of the open question or of the call in doubt. `resumed` and `crashed` count the resumes and
    crashes of its run. Without a run, `standing` is the status of the last save. `tags` are those of the head.
    """

    name: str
    agent: str | None
    standing: Standing
    reason: str | None
    step: int
    count: int
    size: int
    tokens: int | None
    cost: float | None
    currency: str
    updated_at: datetime
    in_doubt: int
    waits_for: str | None
    resumed: int
    crashed: int
    parent: str | None
    handler: str | None
    version: str | None
    priority: int
    has_run: bool
    tags: tuple[str, ...]


class ThreadPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of threads. Pass `after` to get the next page; it is None at the end.

    `lost` is a message if threads could not be listed.
    """

    threads: tuple[ThreadLine, ...]
    after: str | None
    lost: str | None


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The number of threads of a store, and how many a list of each shown status has.

    "saved" counts the threads without a run. A thread in another status with calls in doubt is also "in doubt".

    `lost` is a message if some threads could not be counted.
    """

    threads: int
    standings: dict[str, int]
    lost: str | None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for threads. All given conditions must hold. Ages are seconds since the last change.

    `tag` is a tag of the head. `has_run` is False for threads that are only saved, True for those with a run.
    """

    prefix: str = ""
    contains: str = ""
    standing: Standing | None = None
    older_than: float | None = None
    newer_than: float | None = None
    agent: str | None = None
    tag: str | None = None
    has_run: bool | None = None

    def __post_init__(self) -> None:
        if self.standing is not None and self.standing not in get_args(Standing):
            raise InvalidArgument(f"status must be one of {', '.join(get_args(Standing))}")


def threads(
    hf: Holdfast,
    which: Filter | None = None,
    *,
    order: Order = "name",
    after: str | None = None,
    limit: int = 100,
) -> ThreadPage:
    """Return a page of threads, by name, last change, size or number of steps.

    By name, reading starts where the previous page ended. The store finds the newest threads itself, unless there are
    other conditions than for the name. Other orders read every thread, but not its run. `after` is the `after` of the
    previous page; in the order by name it is a name.
    """
    hf.context.check_open()
    checked_limit(limit)
    if order not in get_args(Order):
        raise InvalidArgument(f"order must be one of {', '.join(get_args(Order))}")
    if after is not None and type(after) is not str:
        raise InvalidArgument("after must be the `after` of the previous page")
    store = hf.context.store
    listing = _Listing(store, which or Filter())
    found: list[ThreadLine] = []
    following: str | None = None
    last: str | None = None
    for row in listing.rows(order, after, limit):
        line = listing.line(row)
        if listing.has_standing(line):
            if len(found) == limit:
                following = last
                break
            found.append(line)
            last = row.name if order == "name" else f"{_KEYS[order](row)[0]}:{quote(_bytes(row.name), safe='')}"
    return ThreadPage(threads=tuple(found), after=following, lost=listing.lost)


def tally(hf: Holdfast) -> Tally:
    """Count the threads of the whole store by shown status.

    The store counts all threads in one query. Only unfinished runs are read one by one, because some of their shown
    statuses are derived.
    """
    hf.context.check_open()
    return _Listing(hf.context.store, Filter()).tally()


def thread_line(hf: Holdfast, row: ThreadRow) -> ThreadLine:
    """Return one thread as lists show it."""
    return _Listing(hf.context.store, Filter()).line(row)


class _Listing:
    """One listing of the threads of a store."""

    def __init__(self, store: Store, which: Filter) -> None:
        self._store = store
        self._which = which
        self._now = now()
        self._clock: Clock | None = None
        self.lost: str | None = None

    def tally(self) -> Tally:
        found = Counter(self._statuses())
        total = found.total()
        saved = found.pop("running", 0)
        try:
            for name, run in each_run(self._store, _CAN_DOUBT):
                if run.status == "running":
                    saved -= 1
                    found[self._standing_of_run(run)] += 1
                question = self._question(run)
                asks = question is not None and question.kind != "wait"
                found["waiting"] -= asks
                found["in doubt"] += asks or self._has_doubts(name, run)
        except Damaged as damage:
            self.lost = str(damage)
        found["saved"] = saved  # may be off by the threads that changed meanwhile: the runs are read later
        shown = {name: count for name, count in found.items() if count > 0}
        return Tally(threads=total, standings=shown, lost=self.lost)

    def _has_doubts(self, name: str, run: RunRow) -> bool:
        if self._store.last_entry(run.thread) <= run.closed:
            return False
        row = thread_named(self._store, name)
        return row is not None and bool(self._doubtful(row, run))

    def _statuses(self) -> Iterable[str] | dict[str, int]:
        """Return the number of threads by status of the last save, or those statuses."""
        if isinstance(self._store, Totalling):
            with suppress(Damaged):
                return self._store.tally()
        return (row.summary.status for row in self._each())

    def rows(self, order: Order, after: str | None, limit: int) -> Iterator[ThreadRow]:
        """Yield candidates in order; more than `limit` if the run of each has to be read to decide."""
        is_derived = self._which.standing in _DERIVED
        if not is_derived and (order == "name" or (order == "newest" and self._has_only_names)):
            above = (_LATEST, after) if order == "name" or after is None else _newest_in(after)
            yield from filter(self._is_meant, self._each(above[1], limit, None if order == "name" else above[0]))
            return
        kept = filter(self._is_meant, self._of_runs() if is_derived else self._each())
        key = _KEYS[order]
        if after is not None:
            last = _bytes(after) if order == "name" else _key_in(after)
            kept = filter(lambda row: key(row) > last, kept)
        # For these conditions the run or the head decides, so more than `limit` candidates are needed.
        is_certain = self._which.standing not in (*_DERIVED, "running", "waiting")
        is_certain = is_certain and self._which.tag is None and self._which.has_run is None
        is_certain = is_certain and self._which.standing is None  # that of a graph is derived
        yield from heapq.nsmallest(limit + 1, kept, key=key) if is_certain else sorted(kept, key=key)

    @property
    def _has_only_names(self) -> bool:
        """Whether the store can decide all conditions."""
        return self._which == Filter(prefix=self._which.prefix, contains=self._which.contains)

    def _each(self, after: str | None = None, limit: int = _PAGE, newest: int | None = None) -> Iterator[ThreadRow]:
        # One more than is shown tells whether there are more. With other conditions, any number may be dropped.
        page = limit + 1 if self._has_only_names else _PAGE
        which = self._which
        while True:
            try:
                rows = self._store.threads(
                    prefix=which.prefix, after=after, limit=page, contains=which.contains, newest=newest
                )
            except Damaged as damage:
                self.lost = str(damage)
                yield from self._one_by_one(after, newest)
                return
            if not rows:
                return
            yield from rows
            after, newest = rows[-1].name, None if newest is None else rows[-1].summary.updated_at

    def _one_by_one(self, after: str | None, newest: int | None) -> Iterator[ThreadRow]:
        """Yield the readable threads after a place, one by one: a damaged thread makes a whole page unreadable."""
        if newest is not None:
            key = _KEYS["newest"]
            rows = sorted(self._one_by_one(None, None), key=key)
            yield from (row for row in rows if key(row) > (-newest, _bytes(after or "")))
            return
        names: set[str] = set()
        with suppress(Damaged):
            for each in numbered(self._store):
                if isinstance(each.name, str) and each.name.startswith(self._which.prefix):
                    names.add(each.name)
        for name in sorted(names, key=_bytes):
            if after is None or _bytes(name) > _bytes(after):
                with suppress(Damaged):
                    row = thread_named(self._store, name)
                    if row is not None:
                        yield row

    def _of_runs(self) -> Iterator[ThreadRow]:
        """Yield the threads whose runs may be interrupted or have calls in doubt."""
        statuses = ("running",) if self._which.standing == "interrupted" else _CAN_DOUBT
        try:
            for name, run in each_run(self._store, statuses):
                if self._standing_of_run(run) == "interrupted" or self._which.standing == "in doubt":
                    row = thread_named(self._store, name)
                    if row is not None and name.startswith(self._which.prefix):
                        yield row
        except Damaged as damage:
            self.lost = str(damage)
        yield from (row for row in self._each() if row.summary.agent == graphs.AGENT)

    def _is_meant(self, row: ThreadRow) -> bool:
        """Whether a thread passes the conditions that need no run."""
        which = self._which
        age = (self._now - row.summary.updated_at) / 1_000_000
        if graphs.is_part(self._store, row, f"{which.prefix} {which.contains}"):
            return False
        is_saved = which.standing is not None and which.standing not in _DERIVED and row.summary.agent != graphs.AGENT
        if is_saved and row.summary.status != which.standing:
            return False
        return (
            which.contains.casefold() in row.name.casefold()
            and (which.older_than is None or age >= which.older_than)
            and (which.newer_than is None or age <= which.newer_than)
            and (which.agent is None or row.summary.agent == which.agent)
        )

    def has_standing(self, line: ThreadLine) -> bool:
        """Whether a thread has the wanted status or, if that is "in doubt", has calls in doubt."""
        wanted = self._which.standing
        if wanted == "running" and not line.has_run:
            return False  # "running" is the default status of a save; the thread has no run
        if self._which.has_run is not None and line.has_run != self._which.has_run:
            return False
        if self._which.tag is not None and self._which.tag not in line.tags:
            return False
        return wanted is None or line.standing == wanted or (wanted == "in doubt" and line.in_doubt > 0)

    def line(self, row: ThreadRow) -> ThreadLine:
        run: RunRow | None = None
        doubtful: Sequence[object] = []
        standing: Standing = _STANDINGS.get(row.summary.status, "idle")
        waits_for: str | None = None
        with suppress(Damaged):  # the thread is still listed; `verify` reports the damage
            run = self._store.run(row.position.thread)
            if run is not None:
                standing = self._standing_of_run(run)
                doubtful = self._doubtful(row, run)
                question = self._question(run)
                if question is not None and question.name != SLEEP:
                    waits_for = question.name
                    if question.kind != "wait":
                        standing = "in doubt"
            if row.summary.agent == graphs.AGENT and (graph := graphs.graph_state(self._store, row)) is not None:
                standing = graph.status
                doubtful = [question.effect for question in graph.questions if question.effect is not None]
                waits_for = next((question.node for question in graph.questions), None)
        usage, tags = self._of_head(row, run)
        return ThreadLine(
            name=row.name,
            agent=row.summary.agent or (None if run is None else run.agent),
            standing=standing,
            reason=None if run is None else run.reason,
            step=row.summary.step,
            count=row.count,
            size=row.summary.size,
            tokens=None if usage is None else usage.total or usage.input + usage.output,
            cost=None if usage is None or not usage.cost else usage.cost,
            currency="USD" if usage is None else usage.currency,
            updated_at=moment(row.summary.updated_at),
            in_doubt=len(doubtful),
            waits_for=waits_for,
            resumed=0 if run is None else run.resumed,
            crashed=0 if run is None else run.crashed,
            parent=None if run is None else run.parent,
            handler=None if run is None else run.handler,
            version=None if run is None else run.version,
            priority=0 if run is None else run.priority,
            has_run=run is not None,
            tags=tags,
        )

    def _standing_of_run(self, run: RunRow) -> Standing:
        if run.status != "running":
            return run.status
        if self._clock is None:
            self._clock = self._store.clock()
        return "interrupted" if is_free(self._store, run, self._clock) else "running"

    def _doubtful(self, row: ThreadRow, run: RunRow) -> list[Entry]:
        """Return the calls in doubt. In a run that a process holds, started calls are under way, not in doubt."""
        last = self._store.last_entry(run.thread) if run.status != "completed" else 0
        if last <= run.closed:
            return []
        store = whole(self._store, {})  # the views of the journal report the damage
        rows = open_entries(store, run.thread, run.closed, last, row.summary.step, branch_of(row.position))
        newest = {(entry.step, entry.key): entry for entry in rows}.values()
        is_held = self._standing_of_run(run) == "running"
        return [entry for entry in newest if is_doubtful(entry.kind, entry.status, is_held=is_held)]

    def _question(self, run: RunRow) -> Entry | None:
        if run.status != "waiting" or not run.question:
            return None
        rows = self._store.entries(run.thread, after=run.question - 1, limit=1)
        return rows[0] if rows else None

    def _of_head(self, row: ThreadRow, run: RunRow | None) -> tuple[Usage | None, tuple[str, ...]]:
        """Return the usage that the head or the journal records, and the tags of the head."""
        number = row.position.thread
        with suppress(Damaged):
            rows = self._store.checkpoints(number, before=row.position.head + 1, limit=1)
            meta = decode(rows[0]) if rows else None
            usage = None if meta is None else meta.usage
            tags = () if meta is None else tuple(meta.tags)
            return usage if usage is not None or run is None else spent(self._store, number), tags
        return None, ()


_STANDINGS: Final[dict[str, Standing]] = dict(STATUSES.items())
_KEYS: Final[dict[str, Callable[[ThreadRow], Any]]] = {
    "name": lambda row: _bytes(row.name),
    "newest": lambda row: (-row.summary.updated_at, _bytes(row.name)),
    "oldest": lambda row: (row.summary.updated_at, _bytes(row.name)),
    "largest": lambda row: (-row.summary.size, _bytes(row.name)),
    "longest": lambda row: (-row.summary.step, _bytes(row.name)),
}


def _key_in(after: str) -> tuple[int, bytes]:
    """Parse the end of a page in an order other than by name. It stays valid when the thread there changes."""
    number, colon, name = after.partition(":")
    try:
        if colon and len(number) <= _DIGITS:
            return int(number), unquote_to_bytes(name)
    except ValueError:
        pass
    raise InvalidArgument("after must be the `after` of the previous page in the same order")


def _newest_in(after: str) -> tuple[int, str]:
    """Parse the end of a page of the newest threads: the last change of the thread there, and its name."""
    number, name = _key_in(after)
    try:
        return -number, name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise InvalidArgument("after must be the `after` of the previous page in the same order") from None


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
