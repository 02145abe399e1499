"""Read verbs: from the replayed threads, and from the logs where more is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby, islice
from typing import Final, Literal

from holdfast.codec.jsontext import from_texts
from holdfast.errors import Damaged, HoldfastError
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, Entry, RunRow
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.plan import LogVerbs, read
from holdfast.stores.log.replay import NO_SUMMARY, Place, ReplayedThread

# Lines this close to each other are read together, up to this much of a file at a time. That is small enough to stay in
# the processor's cache while it is decoded.
_GAP: Final = 16 << 10
_STRETCH: Final = 256 << 10


class ReadVerbs(LogVerbs):
    """The read verbs of the contract."""

    @read
    def head(self, name: str) -> c.Head | None:
        found = self._space.named(name)
        if found is None:
            return None
        try:
            thread = _listed(found.thread, name)
        except Damaged as damage:
            damage.known = _known(found.thread, name)
            raise
        at = thread.position.head
        return c.Head(thread, _walk(found, [at])[0])

    @read
    def threads(
        self, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
    ) -> list[c.ThreadRow]:
        if newest is None:
            rows = self._each_listed(prefix, after, contains)
        else:
            rows = iter(_newest_first(self._each_listed(prefix, None, contains), newest, after))
        page = list(islice(rows, max(limit, 0)))
        if not page and limit > 0:
            self._space.require_listed(prefix)
        return page

    def _each_listed(self, prefix: str, after: str | None, contains: str = "") -> Iterator[c.ThreadRow]:
        wanted = contains.casefold()
        for found in self._space.listed(prefix, after):
            if wanted not in (found.thread.name or "").casefold():
                continue
            with suppress(Damaged):
                yield _listed(found.thread, found.thread.name or "")

    @read
    def numbered(self, *, after: int | None, limit: int) -> list[c.NumberedThread]:
        above = after or 0
        with suppress(HoldfastError):  # one thread, whose number is known: the others need not be read
            one = self._space.numbered(above + 1) if limit == 1 else None
            if one is not None and _is_numbered(one.thread):
                return [_numbered(one)]
        found = {log.thread.number: _numbered(log) for log in self._space.everything() if _is_numbered(log.thread)}
        for unread in self._space.unread:
            if unread.number is not None:
                damage = unread.refusal()
                found[unread.number] = c.NumberedThread(unread.number, damage, damage)
        page = [found[number] for number in sorted(found) if number > above][: max(limit, 0)]
        if not page and limit > 0 and self._space.unread:
            raise self._space.unread[0].refusal()
        return page

    @read
    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[c.CheckpointRow]:
        found = self._space.numbered(thread)
        if found is None or found.thread.name is None:
            return []
        wanted = _matching(found.thread, before, label, step)
        page = _readable(_walk(found, list(islice(wanted, max(limit, 0))), "meta"))
        if not page and limit > 0 and label is None and step is None:
            found.thread.require_all()
        return page

    @read
    def walk(self, thread: int, *, after: int, limit: int, refs_only: bool = False) -> list[c.CheckpointRow | Damaged]:
        found = self._space.numbered(thread)
        if found is None or found.thread.name is None:
            return []
        first = max(after, 0) + 1
        lost: list[c.CheckpointRow | Damaged] = []
        try:
            last = found.thread.at.last
        except Damaged as damage:  # the checkpoints before it are known, and the damage represents those after them
            last = found.thread.rows.last
            if limit < 1 or first > last + 1:
                raise
            lost.append(damage)
        known = _walk(found, range(first, min(first + limit - 1, last) + 1), "refs" if refs_only else None)
        return [*known, *lost][: max(limit, 0)]

    @read
    def cells(self, spans: Sequence[c.Span]) -> list[c.Cells]:
        found: list[c.Cells] = []
        for number, some in groupby(spans, key=lambda span: span.thread):
            log = self._space.numbered(number)
            if log is None:
                raise rules.cells_lost(number)
            found += _cells(log, list(some))
        return found

    @read
    def blob(self, digest: bytes) -> list[bytes]:
        found = self._blobs.read(digest)
        if found is not None:
            return found
        name = digest.hex()
        for log in self._space.everything():  # or it is in the log of a thread that was exported and copied here
            if name in log.thread.blobs:
                return list(log.blob(name).pieces)
        raise Damaged(f"blob {name} is missing")

    @read
    def forks(self, thread: int) -> list[int]:
        return self._space.forks(thread)

    def clock(self) -> Clock:
        self._locks.ready()
        return self._clock()

    # -- runs -------------------------------------------------------------------------------------------------------

    @read
    def run(self, thread: int) -> RunRow | None:
        found = self._space.numbered(thread)
        return None if found is None else found.thread.run

    @read
    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        if not statuses:
            self._require_runs()
            return []
        wanted = sorted(
            ((row.updated_at, thread.number), thread.name or "", row)
            for thread, row in self._runs(statuses)
            if row.status in statuses and (row.updated_at, thread.number) > after
        )
        return [(name, row) for _, name, row in wanted[: max(limit, 0)]]

    @read
    def queue(self, *, handlers: Collection[str], after: tuple[int, int, int], limit: int) -> list[tuple[str, RunRow]]:
        if self._hints is not None:
            return [(thread.name or "", row) for thread, row in self._hints.queue(handlers, after, limit)]
        wanted = sorted(
            (rules.queue_place(row), thread.name or "", row)
            for thread, row in self._space.runs()
            if rules.is_ready(row) and rules.queue_of(row) in handlers and rules.queue_place(row) > after
        )
        return [(name, row) for _, name, row in wanted[: max(limit, 0)]]

    @read
    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        clock, wall = self._clock(), self._wall()
        runs = self._space.runs() if self._hints is None else self._hints.due(limit)
        late = [(rules.overdue(row, clock, wall), thread, row) for thread, row in runs if rules.is_timed(row)]
        due = sorted((-row.priority, -by, thread.number, thread.name or "", row) for by, thread, row in late if by >= 0)
        return [(name, row) for *_, name, row in due[: max(limit, 0)]]

    def _require_runs(self) -> None:
        """`Damaged` if there is an unreadable run."""
        for found in self._space.everything():
            if not found.thread.is_gone and found.thread.run is not None:
                _ = found.thread.at
        for unread in self._space.unread:
            raise unread.error

    @read
    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        found = self._space.numbered(thread)
        if found is None:
            return []
        newest, first = found.thread.last_entry, max(after, 0) + 1
        if topic is None:
            return _entries(found, range(first, min(first + max(limit, 0), newest + 1)))
        if len(found.thread.entries) < newest:
            raise found.thread.missing(f"journal entry {found.thread.lost_entries[0]}, which may have this topic,")
        numbers = (number for number in found.thread.entries.tagged(hash(topic)) if number >= first)
        rows = (row for number in numbers for row in _entries(found, [number]) if row.topic == topic)
        return list(islice(rows, max(limit, 0)))

    @read
    def last_entry(self, thread: int) -> int:
        found = self._space.numbered(thread)
        return 0 if found is None else found.thread.last_entry


# -- threads and checkpoints ------------------------------------------------------------------------------------------


def _newest_first(rows: Iterable[c.ThreadRow], newest: int, after: str | None) -> list[c.ThreadRow]:
    """The threads that `threads` returns with `newest`, in order."""
    kept = [
        row
        for row in rows
        if row.summary.updated_at < newest or (row.summary.updated_at == newest and (after is None or row.name > after))
    ]
    return sorted(kept, key=lambda row: (-row.summary.updated_at, row.name))


def _listed(found: ReplayedThread, name: str) -> c.ThreadRow:
    at = found.at
    return c.ThreadRow(name=name, position=found.position, head_id=ln.unhex(at.id), count=at.count, summary=at.summary)


def _known(found: ReplayedThread, name: str) -> c.ThreadRow:
    """The thread as it was before the damage. It has no head if the damage may have hidden a rewind."""
    at = found.record
    head, move, last, count = (at.head, at.move, at.last, at.count) if at is not None else (0, 0, 0, 0)
    position = c.Position(found.number, 0 if found.may_be_rewound else head, move, last)
    summary = NO_SUMMARY if at is None else at.summary
    return c.ThreadRow(name=name, position=position, head_id=b"", count=count, summary=summary)


def _numbered(found: ThreadLog) -> c.NumberedThread:
    thread = found.thread
    try:
        return c.NumberedThread(thread.number, thread.name, thread.at.last)
    except Damaged as damage:
        return c.NumberedThread(thread.number, thread.name, damage)


def _is_numbered(thread: ReplayedThread) -> bool:
    """Whether a thread was not dropped, or still holds cells."""
    return not thread.is_gone or any(thread.logs.values())


def _walk(
    found: ThreadLog, seqs: Sequence[int], only: Literal["meta", "refs"] | None = None
) -> list[c.CheckpointRow | Damaged]:
    """Checkpoints, or the errors from reading them. The cells of one that may have been deleted are still needed."""
    thread = found.thread
    places = {seq: place for seq in seqs if (place := thread.rows.get(seq))}
    lines = _lines(found, list(places.values()))
    walked: list[c.CheckpointRow | Damaged] = []
    for seq in seqs:
        try:
            place = places.get(seq)
            if place is None or (seq in thread.doubtful and only != "refs"):
                place = thread.require(seq)
            line = found.verified(place, lines[place])
            walked.append(jsonl.read_tombstone(line) if thread.is_deleted(seq) else jsonl.read_checkpoint(line, only))
        except Damaged as damage:
            walked.append(damage)
    return walked


def _readable(walked: Sequence[c.CheckpointRow | Damaged]) -> list[c.CheckpointRow]:
    for row in walked:
        if isinstance(row, Damaged):
            raise row
    return [row for row in walked if isinstance(row, c.CheckpointRow)]


def _matching(thread: ReplayedThread, before: int | None, label: str | None, step: int | None) -> Iterator[int]:
    """The checkpoints of a listing, newest first. With a filter, `Damaged` at one that is missing and may match."""
    wanted = (
        row.number
        for row in thread.rows.below(before)
        if step in (None, row.tag)
        and label in (None, thread.labels.get(row.number))
        and not thread.is_deleted(row.number)
    )
    if label is None and step is None:
        return (seq for seq in wanted if seq not in thread.doubtful)
    lost = thread.rows.missing(thread.at.last)[::-1] if len(thread.rows) < thread.at.last else ()
    unknown = (seq for seq in lost if before is None or seq < before)
    return (thread.require(seq).number for seq in merge(wanted, unknown, reverse=True))


def _entries(found: ThreadLog, numbers: Sequence[int]) -> list[Entry]:
    lines = _lines(found, [found.thread.entry(number) for number in numbers])
    return [jsonl.read_entry(found.verified(place, line)) for place, line in lines.items()]


# -- lines that are read together -------------------------------------------------------------------------------------


def _lines(found: ThreadLog, places: Sequence[Place]) -> dict[Place, memoryview]:
    """Lines by their places, not verified."""
    return {place: line for some in _read(found, places) for place, line in some}


def _cells(found: ThreadLog, spans: Sequence[c.Span]) -> Iterator[c.Cells]:
    """The verified cells of each span."""
    wanted = [found.thread.find(span) for span in spans]
    packed: list[bytes] = []
    refs: dict[int, c.Refs] = {}
    for some in _read(found, [cell for cells in wanted for cell in cells]):
        texts: list[bytes | memoryview] = []
        for place, line in some:
            text, named = ln.cell_text(found.verified(place, line))
            if named is not None:
                refs[len(packed) + len(texts)] = jsonl.read_refs(named)
            texts.append(text)
        packed += from_texts(texts)
    at = 0
    for cells in wanted:
        own = packed[at : at + len(cells)]
        of = range(at, at + len(cells))
        block = c.Block(b"".join(own), 0, list(map(len, own)))
        yield c.Cells([block], [refs.get(i, c.NO_REFS) for i in of] if refs and any(i in refs for i in of) else [])
        at += len(cells)


def _read(found: ThreadLog, places: Sequence[Place]) -> Iterator[list[tuple[Place, memoryview]]]:
    """Lines, not verified, in the order of their places. Neighbours are read together, as one stretch of the log."""
    at = 0
    while at < len(places):
        start = places[at].offset
        end = start + places[at].length
        stop = at + 1
        while stop < len(places) and 0 <= places[stop].offset - end < _GAP and end - start < _STRETCH:
            end = places[stop].offset + places[stop].length
            stop += 1
        data = memoryview(found.get(start, end - start))
        yield [(place, data[place.offset - start : place.offset - start + place.length]) for place in places[at:stop]]
        at = stop
