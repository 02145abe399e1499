"""The list of a store's threads with the status of their runs, in pages, and their number by status."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, unquote_to_bytes

import msgspec

from holdfast.errors import Damaged, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.inspect import graphs
from holdfast.inspect.call_records import is_doubtful, open_rows, question_of
from holdfast.inspect.damage import Readable, name_bytes
from holdfast.runs.guards import spent
from holdfast.runs.lease import now
from holdfast.runs.record import each_run, is_free
from holdfast.runs.waits import SLEEP
from holdfast.stores.abilities import Totalling
from holdfast.stores.contract import ThreadRow
from holdfast.stores.contract_runs import Clock, Entry, RunRow
from holdfast.threads.metadata import STATUSES, moment
from holdfast.threads.scan import thread_named
from holdfast.threads.thread import checked_limit
from holdfast.types import Usage

ThreadStatus = Literal[
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
    """One thread. `status` is its shown status, `in_doubt` the number of its calls in doubt.

    `tokens` and `cost` come from the head or, if it has none, from its model calls; None if neither records them.
    `waits_for` is the name of the open question or of the call in doubt. `resumed` and `crashed` count the resumes and
    crashes of its run. Without a run, `status` is the status of the last save. A LangGraph graph counts as a run.
    `tags` are those of the head.
    """

    name: str
    agent: str | None
    status: ThreadStatus
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

    `lost` are messages about unreadable records.
    """

    threads: tuple[ThreadLine, ...]
    after: str | None
    lost: tuple[str, ...]


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The number of threads of a store, and how many a list of each shown status has.

    "saved" counts the threads without a run. A thread in another status with calls in doubt is also "in doubt".

    `agents` are the names of the agents of the threads. `lost` are messages about unreadable records.
    """

    threads: int
    statuses: dict[str, int]
    agents: tuple[str, ...]
    lost: tuple[str, ...]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for threads. All given conditions must hold. Ages are seconds since the last change.

    `tag` is a tag of the head. `has_run` is False for threads that are only saved, True for those with a run.
    """

    prefix: str = ""
    contains: str = ""
    status: ThreadStatus | None = None
    older_than: float | None = None
    newer_than: float | None = None
    agent: str | None = None
    tag: str | None = None
    has_run: bool | None = None

    def __post_init__(self) -> None:
        if self.status is not None and self.status not in get_args(ThreadStatus):
            raise InvalidArgument(f"status must be one of {', '.join(get_args(ThreadStatus))}")


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
    checked_limit(limit)
    if order not in get_args(Order):
        raise InvalidArgument(f"order must be one of {', '.join(get_args(Order))}")
    if after is not None and type(after) is not str:
        raise InvalidArgument("after must be the `after` of the previous page")
    listing = _Listing(Readable(hf), which or Filter())
    found: list[ThreadLine] = []
    following: str | None = None
    last: str | None = None
    for row in listing.rows(order, after, limit):
        line = listing.line(row)
        if listing.has_status(line):
            if len(found) == limit:
                following = last
                break
            found.append(line)
            last = row.name if order == "name" else f"{_KEYS[order](row)[0]}:{quote(name_bytes(row.name), safe='')}"
    return ThreadPage(threads=tuple(found), after=following, lost=listing.lost)


def tally(hf: Holdfast) -> Tally:
    """Count the threads of the whole store by shown status.

    The store counts all threads in one query. Only unfinished runs are read one by one, because some of their shown
    statuses are derived.
    """
    return _Listing(Readable(hf), Filter()).tally()


def thread_line(hf: Holdfast, row: ThreadRow) -> ThreadLine:
    """Return one thread as lists show it."""
    return _Listing(Readable(hf), Filter()).line(row)


class _Listing:
    """One listing of the threads of a store."""

    def __init__(self, readable: Readable, which: Filter) -> None:
        self._readable = readable
        self._store = readable.store
        self._which = which
        self._now = now()
        self._clock: Clock | None = None

    @property
    def lost(self) -> tuple[str, ...]:
        return self._readable.lost

    def tally(self) -> Tally:
        counts = self._counts()
        found: Counter[str] = Counter()
        for (status, _), count in counts.items():
            found[status] += count
        # A graph's status is in its writes. The threads of its tools and subgraphs are not listed.
        of_graphs: Counter[str] = Counter()
        apart: set[str] = set()
        if any(agent == graphs.AGENT for _, agent in counts):
            for row in self._each():
                graph = self._graph(row)
                is_listed = self._is_meant(row)
                if is_listed and graph is None:
                    continue
                apart.add(row.name)
                found[row.summary.status] -= 1
                if is_listed and graph is not None:
                    of_graphs[graph.status] += 1
        total = found.total() + of_graphs.total()
        saved = found.pop("running", 0)
        found += of_graphs
        for name, run in each_run(self._store, _CAN_DOUBT):
            if name in apart:
                continue
            if run.status == "running":
                saved -= 1
                found[self._status_of_run(run)] += 1
            question = question_of(self._store, run)
            asks = question is not None and question.kind != "wait"
            found["waiting"] -= asks
            found["in doubt"] += asks or self._has_doubts(name, run)
        found["saved"] = saved  # may be off by the threads that changed meanwhile: the runs are read later
        shown = {name: count for name, count in found.items() if count > 0}
        agents = sorted({agent for _, agent in counts if agent})
        return Tally(threads=total, statuses=shown, agents=tuple(agents), lost=self.lost)

    def _has_doubts(self, name: str, run: RunRow) -> bool:
        if self._store.last_entry(run.thread) <= run.closed:
            return False
        row = thread_named(self._store, name)
        return row is not None and bool(self._doubtful(row, run))

    def _counts(self) -> Mapping[tuple[str, str | None], int]:
        """Return the number of threads by agent and status of the last save."""
        if isinstance(self._store, Totalling):
            with suppress(Damaged):
                return self._store.tally()
        return Counter((row.summary.status, row.summary.agent) for row in self._each())

    def rows(self, order: Order, after: str | None, limit: int) -> Iterator[ThreadRow]:
        """Yield candidates in order; more than `limit` if the run of each has to be read to decide."""
        is_derived = self._which.status in _DERIVED
        if not is_derived and (order == "name" or (order == "newest" and self._has_only_names)):
            above = (_LATEST, after) if order == "name" or after is None else _newest_in(after)
            yield from filter(self._is_meant, self._each(above[1], limit, None if order == "name" else above[0]))
            return
        kept = filter(self._is_meant, self._of_runs() if is_derived else self._each())
        key = _KEYS[order]
        if after is not None:
            last = name_bytes(after) if order == "name" else _key_in(after)
            kept = filter(lambda row: key(row) > last, kept)
        # For these conditions the run, the head or a graph decides, so more than `limit` candidates are needed.
        is_certain = self._which.status is None and self._which.tag is None and self._which.has_run is None
        yield from heapq.nsmallest(limit + 1, kept, key=key) if is_certain else sorted(kept, key=key)

    @property
    def _has_only_names(self) -> bool:
        """Whether the store can decide all conditions."""
        return self._which == Filter(prefix=self._which.prefix, contains=self._which.contains)

    def _each(self, after: str | None = None, limit: int = _PAGE, newest: int | None = None) -> Iterator[ThreadRow]:
        # One more than is shown tells whether there are more. With other conditions, any number may be dropped.
        page = limit + 1 if self._has_only_names else _PAGE
        which = self._which
        while rows := self._store.threads(
            prefix=which.prefix, after=after, limit=page, contains=which.contains, newest=newest
        ):
            yield from rows
            after, newest = rows[-1].name, None if newest is None else rows[-1].summary.updated_at

    def _of_runs(self) -> Iterator[ThreadRow]:
        """Yield the threads whose runs may be interrupted or have calls in doubt."""
        statuses = ("running",) if self._which.status == "interrupted" else _CAN_DOUBT
        for name, run in each_run(self._store, statuses):
            if self._status_of_run(run) == "interrupted" or self._which.status == "in doubt":
                row = thread_named(self._store, name)
                if row is not None and name.startswith(self._which.prefix) and row.summary.agent != graphs.AGENT:
                    yield row
        yield from (row for row in self._each() if row.summary.agent == graphs.AGENT)

    def _is_meant(self, row: ThreadRow) -> bool:
        """Whether a thread passes the conditions that need no run."""
        which = self._which
        age = (self._now - row.summary.updated_at) / 1_000_000
        if graphs.is_part(self._store, row, f"{which.prefix} {which.contains}"):
            return False
        is_saved = which.status is not None and which.status not in _DERIVED and row.summary.agent != graphs.AGENT
        if is_saved and row.summary.status != which.status:
            return False
        return (
            which.contains.casefold() in row.name.casefold()
            and (which.older_than is None or age >= which.older_than)
            and (which.newer_than is None or age <= which.newer_than)
            and (which.agent is None or row.summary.agent == which.agent)
        )

    def has_status(self, line: ThreadLine) -> bool:
        """Whether a thread has the wanted status or, if that is "in doubt", has calls in doubt."""
        wanted = self._which.status
        if wanted == "running" and not line.has_run:
            return False  # "running" is the default status of a save; the thread has no run
        if self._which.has_run is not None and line.has_run != self._which.has_run:
            return False
        if self._which.tag is not None and self._which.tag not in line.tags:
            return False
        return wanted is None or line.status == wanted or (wanted == "in doubt" and line.in_doubt > 0)

    def line(self, row: ThreadRow) -> ThreadLine:
        run = self._store.run(row.position.thread)
        doubtful: Sequence[object] = []
        status: ThreadStatus = _SAVED.get(row.summary.status, "idle")
        waits_for: str | None = None
        reason = None if run is None else run.reason
        graph = self._graph(row)
        if graph is not None:
            status = graph.status
            reason = graph.errors[-1] if graph.errors else None
            doubtful = [question.effect for question in graph.questions if question.effect is not None]
            waits_for = next((question.node for question in graph.questions), None)
        elif run is not None:
            status = self._status_of_run(run)
            doubtful = self._doubtful(row, run)
            question = question_of(self._store, run)
            if question is not None and question.name != SLEEP:
                waits_for = question.name
                if question.kind != "wait":
                    status = "in doubt"
        usage, tags = self._of_head(row, run)
        return ThreadLine(
            name=row.name,
            agent=row.summary.agent or (None if run is None else run.agent),
            status=status,
            reason=reason,
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
            has_run=run is not None or graph is not None,
            tags=tags,
        )

    def _graph(self, row: ThreadRow) -> graphs.GraphState | None:
        if row.summary.agent != graphs.AGENT:
            return None
        return self._readable.tried(lambda: graphs.graph_state(self._store, row))

    def _status_of_run(self, run: RunRow) -> ThreadStatus:
        if run.status != "running":
            return run.status
        if self._clock is None:
            self._clock = self._store.clock()
        return "interrupted" if is_free(self._store, run, self._clock) else "running"

    def _doubtful(self, row: ThreadRow, run: RunRow) -> list[Entry]:
        """Return the calls in doubt. In a run that a process holds, started calls are under way, not in doubt."""
        if run.status == "completed" or self._store.last_entry(run.thread) <= run.closed:
            return []
        is_held = self._status_of_run(run) == "running"
        rows = open_rows(self._store, row, run)
        return [entry for entry in rows if is_doubtful(entry.kind, entry.status, is_held=is_held)]

    def _of_head(self, row: ThreadRow, run: RunRow | None) -> tuple[Usage | None, tuple[str, ...]]:
        """Return the usage that the head or the journal records, and the tags of the head."""
        number = row.position.thread
        rows = self._store.checkpoints(number, before=row.position.head + 1, limit=1)
        meta = self._readable.meta(rows[0]) if rows else None
        usage = None if meta is None else meta.usage
        tags = () if meta is None else tuple(meta.tags)
        return usage if usage is not None or run is None else spent(self._store, number), tags


_SAVED: Final[dict[str, ThreadStatus]] = dict(STATUSES.items())
_KEYS: Final[dict[str, Callable[[ThreadRow], Any]]] = {
    "name": lambda row: name_bytes(row.name),
    "newest": lambda row: (-row.summary.updated_at, name_bytes(row.name)),
    "oldest": lambda row: (row.summary.updated_at, name_bytes(row.name)),
    "largest": lambda row: (-row.summary.size, name_bytes(row.name)),
    "longest": lambda row: (-row.summary.step, name_bytes(row.name)),
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
