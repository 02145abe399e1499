"""Read verbs: from the replayed threads, and from the logs where more is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

from msgspec.structs import replace

from holdfast.codec.jsontext import from_texts
from holdfast.errors import Damaged
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.lines import Damage
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, Entry, RunRow
from holdfast.stores.log.namespace import ThreadLog
from holdfast.stores.log.plan import LogVerbs, read
from holdfast.stores.log.replay import NO_SUMMARY, LinePlace, ReplayedThread, Row

# Lines this close to each other are read together, up to this much of a file at a time. That is small enough to stay in
# the processor's cache while it is decoded.
_GAP: Final = 16 << 10
_STRETCH: Final = 256 << 10


class ReadVerbs(LogVerbs):
    """The read verbs of the contract."""

    @read
    def thread(self, name: str) -> c.ThreadRow | None:
        found = self._space.named(name)
        if found is None:
            return None
        try:
            return _listed(found.thread, name)
        except Damaged as damage:
            damage.known = _known(found.thread, name)
            raise

    @read
    def threads(
        self, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
    ) -> list[c.ThreadRow]:
        if newest is None:
            rows = self._each_listed(prefix, after, contains)
        else:
            rows = iter(c.newest_first(self._each_listed(prefix, None, contains), newest, after))
        page = list(islice(rows, max(limit, 0)))
        if not page and limit > 0:
            self._space.require_listed(prefix)
        return page

    def _each_listed(self, prefix: str, after: str | None, contains: str = "") -> Iterator[c.ThreadRow]:
        wanted = contains.casefold()
        for found in self._space.listed(prefix, after):
            if wanted not in (found.thread.name or "").casefold():
                continue
            try:
                yield _listed(found.thread, found.thread.name or "")
            except Damaged as damage:
                self._space.skipped[found.key] = damage

    @read
    def names(self) -> dict[int, str]:
        return {row.position.thread: row.name for row in self._each_listed("", None)}

    @read
    def name_of(self, thread: int) -> str | None:
        found = self._space.numbered(thread)
        return None if found is None else found.thread.name

    @read
    def checkpoint(self, thread: int, seq: int) -> c.CheckpointRow | None:
        found = self._space.numbered(thread)
        if found is None or found.thread.name is None or seq < 1:
            return None
        row = found.thread.rows.get(seq)
        if row is None and seq > found.thread.at.last:
            return None
        found.thread.require(seq)
        return None if row is None else _whole(found, row)

    @read
    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[c.CheckpointRow]:
        found = self._space.numbered(thread)
        if found is None or found.thread.name is None:
            return []
        rows = found.thread.rows
        if label is None and step is None:
            seqs = (seq for seq in sorted(rows, reverse=True) if before is None or seq < before)
            wanted: Iterator[int] = (seq for seq in seqs if found.thread.has(seq) and seq not in found.thread.doubtful)
        else:
            wanted = _matching(found.thread, before, label, step)
        whole = (_whole(found, rows[seq]) for seq in wanted)
        page = [replace(row, refs=c.NO_REFS, skeleton=b"") for row in islice(whole, max(limit, 0))]
        if not page and limit > 0 and label is None and step is None:
            found.thread.require_all()
        return page

    @read
    def refs(self, thread: int, *, after: int, limit: int) -> list[c.CheckpointRow]:
        """See the contract. A gap is `Damaged`: a sweep would drop the cells of a missing checkpoint."""
        found = self._space.numbered(thread)
        if found is None or found.thread.name is None:
            return []
        page: list[c.CheckpointRow] = []
        for seq in range(max(after, 0) + 1, found.thread.at.last + 1):
            if len(page) >= limit:
                break
            row = found.thread.rows.get(seq)
            if row is None:
                raise found.thread.missing(f"checkpoint {seq}")
            if row.place is not None:
                page.append(replace(_whole(found, row), meta=b"", skeleton=b""))
        return page

    @read
    def walk(self, thread: int, *, after: int, limit: int) -> list[c.CheckpointRow | Damaged]:
        found = self._space.numbered(thread)
        if found is None or found.thread.name is None:
            return []
        last = found.thread.at.last
        seqs = range(after + 1, min(after + limit, last) + 1)
        lines = _lines(found, [row.place for seq in seqs if (row := found.thread.rows.get(seq)) and row.place])
        return [_walked(found, seq, lines) for seq in seqs]

    @read
    def cells(self, spans: Sequence[c.Span]) -> list[c.Cells]:
        found: list[c.Cells] = []
        for number, some in groupby(spans, key=lambda span: span.thread):
            log = self._space.numbered(number)
            if log is None:
                raise Damaged(f"cells of the thread with number {number} are missing: the thread does not exist")
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
    def last(self, thread: int) -> int:
        found = self._space.numbered(thread)
        return 0 if found is None else found.thread.at.last

    @read
    def forks(self, thread: int) -> list[int]:
        return [] if self._space.numbered(thread) is None else self._space.forks(thread)

    @read
    def thread_numbers(self) -> list[int]:
        found = [log.thread for log in self._space.all_read()]
        return sorted(thread.number for thread in found if not thread.is_gone or any(thread.logs.values()))

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
        wanted = sorted(
            ((row.updated_at, thread.number), thread.name or "", row)
            for thread, row in self._all_runs()
            if row.status in statuses and (row.updated_at, thread.number) > after
        )
        if not statuses:
            self._require_runs()
        return [(name, row) for _, name, row in wanted[: max(limit, 0)]]

    @read
    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        clock, wall = self._clock(), self._wall()
        late = [
            (rules.overdue(row, clock, wall), thread, row) for thread, row in self._all_runs() if rules.is_timed(row)
        ]
        due = sorted((-by, thread.number, thread.name or "", row) for by, thread, row in late if by >= 0)
        return [(name, row) for _, _, name, row in due[: max(limit, 0)]]

    def _all_runs(self) -> Iterator[tuple[ReplayedThread, RunRow]]:
        for found in self._space.everything():
            thread = found.thread
            damages = (thread.run_damage, thread.stand_damage, thread.tail_damage)
            if thread.run_row is not None and thread.name is not None and damages == (None, None, None):
                yield thread, thread.run_row

    def _require_runs(self) -> None:
        """`Damaged` if there is an unreadable run."""
        for found in self._space.everything():
            if not found.thread.is_gone and found.thread.run is not None:
                _ = found.thread.at
        for unread in self._space.unread:
            raise unread.error

    @read
    def entries(self, thread: int, *, after: int, limit: int) -> list[Entry]:
        found = self._space.numbered(thread)
        if found is None:
            return []
        newest, first = found.thread.last_entry, max(after, 0) + 1
        return _entries(found, range(first, min(first + max(limit, 0), newest + 1)))

    @read
    def find_entries(self, thread: int, topic: str) -> list[Entry]:
        found = self._space.numbered(thread)
        if found is None:
            return []
        if len(found.thread.entries) < found.thread.last_entry:
            raise found.thread.missing(f"journal entry {found.thread.lost_entries[0]}, which may have this topic,")
        return _entries(found, [at for at, entry in sorted(found.thread.entries.items()) if entry.topic == topic])

    @read
    def last_entry(self, thread: int) -> int:
        found = self._space.numbered(thread)
        return 0 if found is None else found.thread.last_entry


# -- threads and checkpoints ------------------------------------------------------------------------------------------


def _listed(found: ReplayedThread, name: str) -> c.ThreadRow:
    at = found.at
    return c.ThreadRow(name=name, position=found.position, head_id=ln.unhex(at.id), count=at.count, summary=at.summary)


def _known(found: ReplayedThread, name: str) -> c.ThreadRow:
    """The thread as it was before the damage. It has no head if the damage may have hidden a rewind."""
    at = found.stand
    head, move, last, count = (at.head, at.move, at.last, at.count) if at is not None else (0, 0, 0, 0)
    position = c.Position(found.number, 0 if found.may_be_rewound else head, move, last)
    summary = NO_SUMMARY if at is None else at.summary
    return c.ThreadRow(name=name, position=position, head_id=b"", count=count, summary=summary)


def _whole(found: ThreadLog, row: Row) -> c.CheckpointRow:
    if row.place is None:
        return jsonl.read_tombstone(row.head)
    return jsonl.read_checkpoint(found.line(*row.place))


def _walked(found: ThreadLog, seq: int, lines: dict[int, memoryview]) -> c.CheckpointRow | Damaged:
    """A checkpoint, or the error from reading it."""
    try:
        found.thread.require(seq)
        row = found.thread.rows[seq]
        if row.place is None:
            return jsonl.read_tombstone(row.head)
        line = lines[row.place.offset]
        if not ln.is_whole(line):
            raise Damaged(str(Damage(found.path, *row.place)))
        return jsonl.read_checkpoint(line)
    except Damaged as damage:
        return damage


def _matching(thread: ReplayedThread, before: int | None, label: str | None, step: int | None) -> Iterator[int]:
    last = thread.at.last
    for seq in range(last if before is None else min(last, before - 1), 0, -1):
        row = thread.rows.get(seq)
        if row is None:
            thread.require(seq)
        elif (
            row.place is not None
            and (label is None or row.head.label == label)
            and (step is None or row.head.step == step)
        ):
            thread.require(seq)
            yield seq


def _entries(found: ThreadLog, numbers: Sequence[int]) -> list[Entry]:
    places = [(number, found.thread.entries.get(number)) for number in numbers]
    for number, entry in places:
        if entry is None:
            raise found.thread.missing(f"journal entry {number}")
    return [jsonl.read_entry(found.line(*entry.place)) for _, entry in places if entry is not None]


# -- lines that are read together -------------------------------------------------------------------------------------


def _lines(found: ThreadLog, places: Sequence[LinePlace]) -> dict[int, memoryview]:
    """Lines by their offset, not verified. Neighbours are read together."""
    lines: dict[int, memoryview] = {}
    for start, data, some in _read(found, places):
        lines.update((at, data[at - start : at - start + length]) for at, length in some)
    return lines


def _cells(found: ThreadLog, spans: Sequence[c.Span]) -> Iterator[c.Cells]:
    """The verified cells of each span."""
    wanted = [found.thread.find(span) for span in spans]
    packed: list[bytes] = []
    refs: dict[int, c.Refs] = {}
    for start, data, some in _read(found, [LinePlace(cell.offset, cell.length) for cells in wanted for cell in cells]):
        texts: list[bytes | memoryview] = []
        for at, length in some:
            line = data[at - start : at - start + length]
            if not ln.is_whole(line):
                raise Damaged(str(Damage(found.path, at, length)))
            text, named = ln.cell_text(line)
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


def _read(found: ThreadLog, places: Sequence[LinePlace]) -> Iterator[tuple[int, memoryview, Sequence[LinePlace]]]:
    """Stretches of the log that hold these places, each with its offset and the places in it."""
    at = 0
    while at < len(places):
        start, length = places[at]
        end = start + length
        stop = at + 1
        while stop < len(places) and 0 <= places[stop].offset - end < _GAP and end - start < _STRETCH:
            end = places[stop].offset + places[stop].length
            stop += 1
        yield start, memoryview(found.get(start, end - start)), places[at:stop]
        at = stop
