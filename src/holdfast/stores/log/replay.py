"""Replay a log: build the thread that its groups describe, with the places of its lines.

The lines are not kept. They are read from the file when needed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.lines import Damage
from holdfast.intervals import Intervals
from holdfast.stores import contract as c
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted

Item = tuple[int, int, ln.Replayed]
"""The position and length of a line, without its line break, and its record."""

Group = Sequence[Item]

# Kinds of lines, as in `ln.LETTERS`. `POSITION` is the end of a group.
POSITION, RUN, ENTRY, FORK, DELETE = "@refd"

_ENTRIES: Final = {ln.EntryHead, ln.EntryLine}

TOMBSTONE: Final = -1
"""The tag of a checkpoint whose line is a tombstone."""

NO_SUMMARY: Final = c.Summary(step=0, status="", agent=None, size=0, updated_at=0)


class Place(NamedTuple):
    """The place of a line in its file, without its line break.

    `number` is the position of a cell in its log, the seq of a checkpoint, or the number of an entry. `tag` is the seq
    of a cell's commit, the step of a checkpoint, or the hash of an entry's topic.
    """

    number: int
    tag: int
    offset: int
    length: int


class Places:
    """The places of lines, ordered by number. Each takes 32 bytes, so a handle hardly grows with a log."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = array("q")  # four integers for each place

    def __len__(self) -> int:
        return len(self._data) // 4

    def __iter__(self) -> Iterator[Place]:
        data = self._data
        return map(Place, data[0::4], data[1::4], data[2::4], data[3::4])

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    @property
    def last(self) -> int:
        """The highest number; 0 if there is none."""
        return self._data[-4] if self._data else 0

    @property
    def size(self) -> int:
        """The bytes of all lines, with their line breaks."""
        return sum(self._data[3::4]) + len(self)

    def between(self, start: int, stop: int) -> list[Place]:
        """The places at these indexes."""
        part = self._data[4 * start : 4 * stop]
        return list(map(Place, part[0::4], part[1::4], part[2::4], part[3::4]))

    def index(self, number: int) -> int:
        """The index of the first place with this number or a higher one."""
        data = self._data
        guess = number - data[0] if data else 0  # right if no number is missing
        if 0 <= guess < len(data) // 4 and data[4 * guess] == number:
            return guess
        return bisect_left(range(len(data) // 4), number, key=lambda at: data[4 * at])

    def get(self, number: int) -> Place | None:
        at = 4 * self.index(number)
        return Place(*self._data[at : at + 4]) if at < len(self._data) and self._data[at] == number else None

    def missing(self, last: int) -> list[int]:
        """The numbers from 1 to `last` that have no place."""
        return sorted(set(range(1, last + 1)).difference(self._data[0::4]))

    def tagged(self, tag: int) -> list[int]:
        """The numbers of the places with this tag."""
        return [number for number, each in zip(self._data[0::4], self._data[1::4], strict=True) if each == tag]

    def below(self, number: int | None) -> Iterator[Place]:
        """The places with lower numbers, highest first; all if it is None."""
        at = len(self) if number is None else self.index(number)
        for stop in range(at, 0, -256):
            yield from reversed(self.between(max(0, stop - 256), stop))

    def append(self, number: int, tag: int, offset: int, length: int) -> None:
        self._data.extend((number, tag, offset, length))

    def put(self, number: int, tag: int, offset: int, length: int) -> None:
        """Add a place, or replace the one with this number."""
        place = (number, tag, offset, length)
        if number > self.last:
            self._data.extend(place)
        else:
            self._data[4 * self.index(number) : 4 * self.index(number + 1)] = array("q", place)

    def remove(self, start: int, end: int) -> None:
        del self._data[4 * self.index(start) : 4 * self.index(end)]


@dataclass(slots=True)
class ReplayedThread:
    """A thread. A dropped thread has no name and no rows; it stays for the cells that its forks use."""

    path: str = ""
    number: int = 0
    name: str | None = None
    is_gone: bool = False
    key: str = ""  # the id of its data key, in hex
    record: ln.ThreadRecord | None = None
    rows: Places = field(default_factory=Places)  # checkpoints and tombstones
    deleted: Intervals = field(default_factory=Intervals)  # their lines may be those of the checkpoints
    labels: dict[int, str] = field(default_factory=dict[int, str])
    logs: dict[int, Places] = field(default_factory=lambda: defaultdict[int, Places](Places))
    entries: Places = field(default_factory=Places)
    blobs: dict[str, Places] = field(default_factory=lambda: defaultdict[str, Places](Places))
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
    has_lost: bool = False  # groups were lost since the last one with an end line

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
    def has_known_run(self) -> bool:
        """Whether it is known what the run of the thread is, and that the thread exists."""
        return self.is_placed and RUN not in self.doubts

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
        return self.entries.missing(self.newest_entry)

    def entry(self, number: int) -> Place:
        found = self.entries.get(number)
        if found is None:
            raise self.missing(f"journal entry {number}")
        return found

    def require(self, seq: int) -> Place:
        """The place of a checkpoint. `Damaged` if it is missing, or if it is not known whether it was deleted."""
        if seq in self.doubtful:
            raise Damaged(
                f"{self.doubtful[seq]}; they may be the record that checkpoint {seq} was deleted. If it was, delete it "
                "again."
            )
        found = self.rows.get(seq)
        if found is None:
            raise self.missing(f"checkpoint {seq}")
        return found

    def require_all(self) -> None:
        """`Damaged` if any checkpoint is missing or in doubt."""
        for seq in self.doubtful:
            self.require(seq)
        if len(self.rows) < self.at.last:
            self.require(self.rows.missing(self.at.last)[0])

    def is_deleted(self, seq: int) -> bool:
        return self.deleted.holds(seq, seq + 1)

    def has(self, seq: int) -> bool:
        """Whether a checkpoint exists and is not deleted."""
        return seq in self.rows and not self.is_deleted(seq)

    def live(self) -> list[Place]:
        """The checkpoints that are not deleted."""
        return [row for row in self.rows if not self.is_deleted(row.number)]

    def missing(self, what: str) -> Damaged:
        """The error for a missing record. It names the damage, if there is any."""
        where = "; ".join(map(str, self.damages[:3])) or "no line of its log is damaged"
        return Damaged(f"{what} of {self.shown} is missing ({where})")

    def find(self, span: c.Span) -> list[Place]:
        """The cells of a span. `Damaged` if one is missing."""
        cells = self.logs.get(span.log) or Places()
        start = cells.index(span.start)
        # A damaged span may name billions of cells.
        found = cells.between(start, start + min(max(span.count, 0), len(cells)))
        numbers = [cell.number for cell in found]
        if len(found) < span.count or numbers != list(range(span.start, span.start + span.count)):
            at = next((at for at, got in enumerate(numbers, span.start) if got != at), span.start + len(found))
            raise self.missing(f"cell {at} of log {span.log}")
        return found

    # -- replay -----------------------------------------------------------------------------------------------------

    def take(self, group: Group, end: ln.End, bad: Sequence[Damage], start: int, stop: int) -> None:
        """A group: its undamaged lines, its end line, its damaged lines, and where it starts and ends in the file."""
        kinds = {type(record) for _, _, record in group}
        if self.number and ln.ThreadHeader in kinds:
            raise Damaged(
                f"{self.path}: the file has several threads, so it is an export and not the log of a thread. Move it "
                "out of the store and import it."
            )
        # Copies of a log were joined, or two processes wrote at once. Which one is right cannot be determined. A number
        # that exceeds the bytes so far must be damaged. It is not used: counting up to it would take too long.
        is_repeated = bool(self.groups) and end.group <= self.groups
        # The cells of a dropped thread are not counted from its first checkpoint.
        last = 0 if end.at is None or not end.at.head else end.at.last
        highest = max(end.entry, last, 0 if kinds.isdisjoint(_ENTRIES) else _newest(group))
        if is_repeated or highest > stop:
            self._distrust(Damage(self.path, start, stop - start))
            return
        if self.groups and end.group > self.groups + 1 and not self.has_lost:
            self._distrust(Damage(self.path, start, stop - start))
        self.has_lost = False
        known = self.newest_entry
        self.number, self.groups = end.number, end.group
        self._apply(group)
        self.newest_entry = max(self.newest_entry, end.entry)
        if end.at is not None and not (end.at.head or self.is_gone):  # its `last` was not compared with the bytes
            self._distrust(Damage(self.path, start, stop - start))
        elif end.at is not None:
            self.record = end.at
            self.doubts.pop(POSITION, None)
        if bad:
            self.damages += bad
            lost = _lost(group, end)
            # A lost new entry is noticed by its number. Which entry a lost change was for cannot be determined.
            lost[ENTRY] -= sum(number > known for number in self.lost_entries)
            self._doubt("".join(kind for kind in (RUN, ENTRY, FORK, DELETE) if lost[kind] > 0), bad[0])
        if self.doubtful and self.record is not None:
            self.doubtful.pop(self.record.head, None)

    def lose(self, group: Group, bad: Sequence[Damage], *, is_end: bool) -> None:
        """Lines of one or more groups whose end line is damaged. `is_end` if only end lines are damaged."""
        self.has_lost = True
        if group and _newest(group) > max(bad[-1].offset + bad[-1].length, sum(group[-1][:2])):
            self._distrust(bad[-1])
            return
        self._apply(group)
        self.damages += bad
        self.may_be_rewound = not is_end or _rewinds(group)
        if not is_end:
            self._doubt(POSITION + RUN + ENTRY + FORK + DELETE, bad[-1])
        else:
            self._doubt(POSITION + (RUN if any(isinstance(each, ln.RunLine) for _, _, each in group) else ""), bad[-1])

    def stop(self, damage: Damage | None, group: Group) -> None:
        """The damage after the last complete group, if any, and the undamaged lines there."""
        self.tail_damage = damage
        if damage is not None:
            self.may_be_rewound = not group or _rewinds(group)

    def _distrust(self, where: Damage) -> None:
        """Treat everything as unknown that later groups do not record again."""
        self.damages.append(where)
        self.may_be_rewound = True
        self._doubt(POSITION + RUN + ENTRY + FORK, where)

    def _doubt(self, kinds: str, where: Damage) -> None:
        """Take note that the newest lines of these kinds may be lost."""
        self.doubts.update(dict.fromkeys(kinds, where))
        if DELETE in kinds:
            self.doubtful.update((row.number, where) for row in self.live())

    def _apply(self, group: Group) -> None:
        """Apply the lines of a group, without its end line."""
        for offset, length, record in group:
            if isinstance(record, ln.CellHead):  # most lines are cells
                self.logs[record.log].append(record.at, record.seq, offset, length)
                continue
            match record:
                case ln.CheckpointHead():
                    self.rows.put(record.seq, record.step, offset, length)
                    if record.label is not None:
                        self.labels[record.seq] = record.label
                    if record.origins:
                        self.origins.update(record.origins)
                case ln.EntryHead():
                    self.entries.put(record.number, hash(jsonl.topic_of(record)), offset, length)
                    self.newest_entry = max(self.newest_entry, record.number)
                case ln.RunLine():
                    run = jsonl.read_run(record)
                    if self.number and run.thread != self.number:
                        raise Damaged(f"the run of {self.shown} belongs to another thread")
                    self.run_row = run
                    self.doubts.pop(RUN, None)
                case ln.DeleteLine():
                    for seq in record.seqs:
                        if seq in self.rows:
                            self._delete(seq)
                case ln.TombstoneLine():
                    self.rows.put(record.seq, TOMBSTONE, offset, length)
                    self._delete(record.seq)
                case ln.SweepLine():
                    for log, start, count in record.cells:
                        self.logs[log].remove(start, start + count)
                case ln.ForkLine():
                    self.forks.add(record.number)
                case ln.StampLine():
                    self.stamps.update(dict.fromkeys(record.blobs, record.epoch))
                case ln.ThreadHeader():
                    self.number, self.is_gone = self.number or record.number, record.gone
                    ln.require_known(record.format)
                    self.name = None if record.gone else jsonl.read_name(record.name, record.is_escaped)
                    self.origins.update(record.origins)
                    self.key = record.key
                case ln.BlobHead():
                    self.blobs[record.digest].append(record.piece, 0, offset, length)
                case _:
                    continue

    def _delete(self, seq: int) -> None:
        self.deleted.add(seq, seq + 1)
        self.labels.pop(seq, None)
        self.doubtful.pop(seq, None)


def _newest(group: Group) -> int:
    return max((record.number for _, _, record in group if isinstance(record, ln.EntryHead)), default=0)


def _rewinds(group: Group) -> bool:
    return any(isinstance(record, ln.RewindLine) for _, _, record in group)


def _lost(group: Group, end: ln.End) -> Counter[str]:
    """How many lines of each kind a group has lost."""
    written = Counter[str]()
    for kind, count in ln.counts(end.of):
        written[kind] += count
    written.subtract(ln.LETTERS[type(record)] for _, _, record in group)
    return written
