"""Replay a log: build the thread that its groups describe, with the file offsets of its records.

Large parts (cells, skeletons, metadata, results) are not kept. They are read from the file when needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.lines import Damage
from holdfast.stores import contract as c
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted

Item = tuple[int, int, ln.Replayed]
"""The position and length of a line, without its line break, and its record."""

Group = Sequence[Item]

# Kinds of lines, as in `ln.LETTERS`. `POSITION` is the end of a group.
POSITION, RUN, ENTRY, FORK, DELETE = "@refd"

NO_SUMMARY: Final = c.Summary(step=0, status="", agent=None, size=0, updated_at=0)


class LinePlace(NamedTuple):
    """The offset and length of a line in its file, without its line break."""

    offset: int
    length: int


class Cell(NamedTuple):
    """A cell's place in the file. Sorted by `at`, the position in its log."""

    at: int
    seq: int
    offset: int
    length: int


class Row(NamedTuple):
    """A checkpoint: the fields for listings, and the place of its line. A tombstone has no place."""

    head: ln.CheckpointHead | ln.TombstoneLine
    place: LinePlace | None


class EntryPlace(NamedTuple):
    status: str
    topic: str | None
    place: LinePlace


@dataclass(slots=True)
class ReplayedThread:
    """A thread. A dropped thread has no name and no rows; it stays for the cells that its forks use."""

    number: int = 0
    name: str | None = None
    is_gone: bool = False
    record: ln.ThreadRecord | None = None
    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    logs: dict[int, list[Cell]] = field(default_factory=dict[int, list[Cell]])
    entries: dict[int, EntryPlace] = field(default_factory=dict[int, EntryPlace])
    blobs: dict[str, list[LinePlace]] = field(default_factory=dict[str, list[LinePlace]])
    newest_entry: int = 0  # as far as known; `last_entry` raises if there may be more
    groups: int = 0
    origins: set[int] = field(default_factory=set[int])
    forks: set[int] = field(default_factory=set[int])  # threads that may use cells of this one
    stamps: dict[str, int] = field(default_factory=dict[str, int])  # by blob: the epoch in which it was last written
    run_row: RunRow | None = None
    damages: list[Damage] = field(default_factory=list[Damage])
    doubtful: dict[int, Damage] = field(default_factory=dict[int, Damage])  # checkpoints that may have been deleted
    doubts: dict[str, Damage] = field(default_factory=dict[str, Damage])  # by the kind of a line that may be lost
    tail_damage: Damage | None = None
    may_be_rewound: bool = False  # by the lost record, if that was the newest

    @property
    def shown(self) -> str:
        """The thread in a message: its name, or its number if the name is not known."""
        return f"the thread with number {self.number}" if self.name is None else f"thread {quoted(self.name)}"

    @property
    def position(self) -> c.Position:
        at = self.at
        return c.Position(self.number, at.head, at.move, at.last)

    @property
    def is_placed(self) -> bool:
        """Whether the thread's position is known."""
        return self.tail_damage is None and POSITION not in self.doubts

    @property
    def at(self) -> ln.ThreadRecord:
        """The thread's position. `Damaged` if the newest record of it may be damaged."""
        self._require(POSITION, "the newest position of the thread")
        if self.record is None:
            raise Damaged(f"the log of {self.shown} does not record the thread's position")
        return self.record

    @property
    def run(self) -> RunRow | None:
        self._require(RUN, "the newest record of the thread's run")
        return self.run_row

    @property
    def last_entry(self) -> int:
        """The number of the newest journal entry. `Damaged` if unknown entries may have been lost."""
        self._require(ENTRY, "an entry of the thread's journal")
        return self.newest_entry

    def _require(self, kind: str, what: str) -> None:
        damage = self.tail_damage or self.doubts.get(kind)
        if damage is not None:
            raise Damaged(f"{damage}; {what} may be lost. Run hf.verify().")

    @property
    def lost_entries(self) -> list[int]:
        """The numbers of journal entries that were assigned but are missing."""
        return [number for number in range(1, self.newest_entry + 1) if number not in self.entries]

    def require(self, seq: int) -> None:
        """`Damaged` if a checkpoint is missing, or if it is not known whether it was deleted."""
        if seq in self.doubtful:
            raise Damaged(
                f"{self.doubtful[seq]}; they may be the record that checkpoint {seq} was deleted. If it was, delete it "
                "again."
            )
        if seq not in self.rows:
            raise self.missing(f"checkpoint {seq}")

    def require_all(self) -> None:
        """`Damaged` if any checkpoint is missing or in doubt."""
        for seq in self.doubtful:
            self.require(seq)
        if len(self.rows) < self.at.last:
            self.require(next(seq for seq in range(1, self.at.last + 1) if seq not in self.rows))

    def has(self, seq: int) -> bool:
        row = self.rows.get(seq)
        return row is not None and row.place is not None

    def missing(self, what: str) -> Damaged:
        """The error for a missing record. It names the damage, if there is any."""
        where = "; ".join(map(str, self.damages[:3])) or "no line of its log is damaged"
        return Damaged(f"{what} of {self.shown} is missing ({where})")

    def find(self, span: c.Span) -> Sequence[Cell]:
        """The cells of a span. `Damaged` if one is missing."""
        cells = self.logs.get(span.log, [])
        start = bisect_left(cells, (span.start,))
        found = cells[start : start + max(span.count, 0)]
        # The length is compared first: a damaged span may name billions of cells.
        if len(found) < span.count or [cell.at for cell in found] != list(range(span.start, span.start + span.count)):
            at = next((i for i, cell in enumerate(found) if cell.at != span.start + i), len(found))
            raise self.missing(f"cell {span.start + at} of log {span.log}")
        return found


class Replay:
    """Replays the log of a thread."""

    def __init__(self) -> None:
        self.thread = ReplayedThread()
        self._has_lost = False  # groups were lost since the last one with an end line

    def take(self, group: Group, end: ln.End, bad: Sequence[Damage], where: Damage) -> None:
        """A group: its undamaged lines, its end line, its damaged lines, and its place in the file."""
        thread = self.thread
        if thread.number and any(type(record) is ln.ThreadHeader for _, _, record in group):
            raise Damaged(
                f"{where.path}: the file has several threads, so it is an export and not the log of a thread. Move it "
                "out of the store and import it."
            )
        # Copies of a log were joined, or two processes wrote at once. Which one is right cannot be determined.
        is_repeated = bool(thread.groups) and end.group <= thread.groups
        # The cells of a dropped thread are not counted from its first checkpoint.
        last = 0 if end.at is None or not end.at.head else end.at.last
        highest = max(end.entry, last, _newest(group))
        if is_repeated or _is_beyond(highest, where):
            self._distrust(where)
            return
        if thread.groups and end.group > thread.groups + 1 and not self._has_lost:
            self._distrust(where)
        self._has_lost = False
        known = thread.newest_entry
        apply(thread, group)
        self._conclude(end, group, bad, known)

    def lose(self, group: Group, bad: Sequence[Damage], *, is_end: bool) -> None:
        """Lines of one or more groups whose end line is damaged. `is_end` if only end lines are damaged."""
        self._has_lost = True
        if _is_beyond(_newest(group), bad[-1]) and _is_beyond(_newest(group), Damage(bad[-1].path, *group[-1][:2])):
            self._distrust(bad[-1])
            return
        apply(self.thread, group)
        self.thread.damages += bad
        self.thread.may_be_rewound = not is_end or _rewinds(group)
        if not is_end:
            self._doubt(POSITION + RUN + ENTRY + FORK + DELETE, bad[-1])
        else:
            self._doubt(POSITION + (RUN if any(isinstance(each, ln.RunLine) for _, _, each in group) else ""), bad[-1])

    def _distrust(self, where: Damage) -> None:
        """Treat everything as unknown that later groups do not record again."""
        self.thread.damages.append(where)
        self.thread.may_be_rewound = True
        self._doubt(POSITION + RUN + ENTRY + FORK, where)

    def _doubt(self, kinds: str, where: Damage) -> None:
        """Take note that the newest lines of these kinds may be lost."""
        thread = self.thread
        thread.doubts.update(dict.fromkeys(kinds, where))
        if DELETE in kinds:
            thread.doubtful.update((seq, where) for seq, row in thread.rows.items() if row.place is not None)

    def _conclude(self, end: ln.End, group: Group, bad: Sequence[Damage], known: int) -> None:
        """Apply the end line of a group: the thread's new position, and what damaged lines may have contained.

        `known` is the number of the newest journal entry before the group.
        """
        thread = self.thread
        thread.number, thread.groups = end.number, end.group
        thread.newest_entry = max(thread.newest_entry, end.entry)
        if end.at is not None:
            thread.record = end.at
            thread.doubts.pop(POSITION, None)
        if bad:
            thread.damages += bad
            lost = _lost(group, end)
            # A lost new entry is noticed by its number. Which entry a lost change was for cannot be determined.
            lost[ENTRY] -= sum(number > known for number in thread.lost_entries)
            self._doubt("".join(kind for kind in (RUN, ENTRY, FORK, DELETE) if lost[kind] > 0), bad[0])
        if thread.doubtful and thread.record is not None:
            thread.doubtful.pop(thread.record.head, None)

    def stop(self, damage: Damage | None, group: Group) -> None:
        """The damage after the last complete group, if any, and the undamaged lines there."""
        self.thread.tail_damage = damage
        if damage is not None:
            self.thread.may_be_rewound = not group or _rewinds(group)


def _newest(group: Group) -> int:
    return max((record.number for _, _, record in group if type(record) is ln.EntryHead), default=0)


def _is_beyond(number: int, place: Damage) -> bool:
    """Whether a number exceeds the possible count of lines up to this place, so that it must be damaged.

    Such a number must not be used: counting up to it would take too long.
    """
    return number > place.offset + place.length  # every line takes at least one byte


def _rewinds(group: Group) -> bool:
    return any(isinstance(record, ln.RewindLine) for _, _, record in group)


def apply(thread: ReplayedThread, group: Group) -> None:
    """Apply the lines of a group, without its end line."""
    for offset, length, record in group:
        # Most lines are cells.
        if type(record) is ln.CellHead:
            cells = thread.logs.get(record.log)
            if cells is None:
                cells = thread.logs[record.log] = []
            cells.append(Cell(record.at, record.seq, offset, length))
            continue
        match record:
            case ln.CheckpointHead():
                thread.rows[record.seq] = Row(record, LinePlace(offset, length))
                thread.origins.update(record.origins)
            case ln.EntryHead():
                topic = jsonl.topic_of(record)
                thread.entries[record.number] = EntryPlace(record.status, topic, LinePlace(offset, length))
                thread.newest_entry = max(thread.newest_entry, record.number)
            case ln.RunLine():
                run = jsonl.read_run(record)
                if run.thread != thread.number:
                    raise Damaged(f"the run of {thread.shown} belongs to another thread")
                thread.run_row = run
                thread.doubts.pop(RUN, None)
            case ln.DeleteLine():
                for seq in record.seqs:
                    if seq in thread.rows:
                        thread.rows[seq] = Row(jsonl.show_tombstone(jsonl.read_tombstone(thread.rows[seq].head)), None)
                        thread.doubtful.pop(seq, None)
            case ln.TombstoneLine():
                thread.rows[record.seq] = Row(record, None)
            case ln.SweepLine():
                for log, start, count in record.cells:
                    cells = thread.logs.get(log, [])
                    del cells[bisect_left(cells, (start,)) : bisect_left(cells, (start + count,))]
            case ln.ForkLine():
                thread.forks.add(record.number)
            case ln.StampLine():
                thread.stamps.update(dict.fromkeys(record.blobs, record.epoch))
            case ln.ThreadHeader():
                thread.number, thread.is_gone = record.number, record.gone
                ln.require_known(record.format)
                thread.name = None if record.gone else jsonl.read_name(record.name, record.is_escaped)
                thread.origins.update(record.origins)
            case ln.BlobHead():
                thread.blobs.setdefault(record.digest, []).append(LinePlace(offset, length))
            case _:
                continue


def _lost(group: Group, end: ln.End) -> Counter[str]:
    """How many lines of each kind a group has lost."""
    written = Counter[str]()
    for kind, count in ln.counts(end.of):
        written[kind] += count
    written.subtract(ln.LETTERS[type(record)] for _, _, record in group)
    return written
