"""What a log says: a thread as it stands after its groups, and where in the file its records lie.

Nothing large is kept: cells, skeletons, metadata and results are read from the file when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.stores import contract as c
from holdfast.stores.directory import lines as framing
from holdfast.stores.directory import records as r
from holdfast.stores.directory.form import Form
from holdfast.stores.directory.lines import Damage, Line
from holdfast.stores.running import RunRow

NO_SUMMARY: Final = c.Summary(step=0, status="", agent=None, size=0, updated_at=0)


Group = Sequence[tuple[Line, r.Replayed]]


class Place(NamedTuple):
    """Where a line lies in its file, without its line break."""

    offset: int
    length: int


class Cell(NamedTuple):
    """Sorted by `at`, the position in its log."""

    at: int
    seq: int
    offset: int
    length: int


class Row(NamedTuple):
    """A checkpoint: what listings look for, and where the rest of it is. A tombstone has no place."""

    head: r.CheckpointHead
    place: Place | None


class Entry(NamedTuple):
    status: str
    mark: str | None
    place: Place


@dataclass(slots=True)
class Thread:
    """A thread. One that was dropped has no name and no rows; it stays for the cells that its forks use."""

    number: int = 0
    name: str | None = None
    is_gone: bool = False
    stand: r.Stand | None = None
    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    logs: dict[int, list[Cell]] = field(default_factory=dict[int, list[Cell]])
    entries: dict[int, Entry] = field(default_factory=dict[int, Entry])
    last_entry: int = 0
    origins: set[int] = field(default_factory=set[int])
    run_row: RunRow | None = None
    damages: list[Damage] = field(default_factory=list[Damage])
    run_damage: Damage | None = None
    stand_damage: Damage | None = None
    tail_damage: Damage | None = None

    @property
    def position(self) -> c.Position:
        at = self.at
        return c.Position(self.number, at.head, at.move, at.last)

    @property
    def at(self) -> r.Stand:
        """Where it stands. `Damaged` if the last record that says so is."""
        damage = self.tail_damage or self.stand_damage
        if damage is not None:
            raise Damaged(f"{damage}, which may have been the newest record of its thread")
        if self.stand is None:
            raise Damaged(f"thread number {self.number} does not say where it stands")
        return self.stand

    @property
    def run(self) -> RunRow | None:
        damage = self.tail_damage or self.run_damage
        if damage is not None:
            raise Damaged(f"{damage}, which may have been the newest record of its run")
        return self.run_row

    def has(self, seq: int) -> bool:
        row = self.rows.get(seq)
        return row is not None and row.place is not None

    def missing(self, what: str) -> Damaged:
        """The error for something that should be there: it names the damage, if there is any."""
        where = "; ".join(map(str, self.damages[:3])) or "no line of its log is damaged"
        return Damaged(f"{what} of thread number {self.number} is missing from the store. {where}")

    def find(self, span: c.Span) -> Sequence[Cell]:
        """The cells of a span. `Damaged` if one is missing."""
        cells = self.logs.get(span.log, [])
        start = bisect_left(cells, (span.start,))
        found = cells[start : start + max(span.count, 0)]
        if len(found) != span.count or (found and found[-1].at != span.start + span.count - 1):
            at = next((i for i, cell in enumerate(found) if cell.at != span.start + i), len(found))
            raise self.missing(f"cell {span.start + at} of log {span.log}")
        return found


class Replay:
    """Follows the log of a thread (`log.Sink`)."""

    def __init__(self, path: str, form: Form) -> None:
        self._path = path
        self._form = form
        self.thread = Thread()

    def reset(self) -> None:
        self.thread = Thread()

    def take(self, group: Group, end: r.End, bad: Sequence[Damage]) -> None:
        apply(self.thread, group, self._form)
        conclude(self.thread, end, [record for _, record in group], bad)

    def lose(self, group: Group, bad: Sequence[Damage]) -> None:
        """A group has lost its end: what it said of where the thread stands, and perhaps of its run, is not known."""
        apply(self.thread, group, self._form)
        self.thread.damages += bad
        self.thread.stand_damage = bad[-1]
        if len(bad) > 1 or any(isinstance(record, r.RunLine) for _, record in group):
            self.thread.run_damage = bad[-1]

    def stop(self, damage: Damage | None) -> None:
        self.thread.tail_damage = damage


def apply(thread: Thread, group: Group, form: Form) -> None:
    """Carry out what the lines of a group say, its end not among them."""
    for line, record in group:
        # Most lines are cells.
        if type(record) is r.CellHead:
            cells = thread.logs.get(record.log)
            if cells is None:
                cells = thread.logs[record.log] = []
            cells.append(Cell(record.at, record.seq, line.offset, line.length))
            continue
        match record:
            case r.CheckpointHead():
                thread.rows[record.seq] = Row(record, Place(line.offset, line.length))
                thread.origins.update(record.origins)
            case r.EffectHead():
                mark = r.mark_of(record)
                thread.entries[record.number] = Entry(record.status, mark, Place(line.offset, line.length))
                thread.last_entry = max(thread.last_entry, record.number)
            case r.RunLine():
                thread.run_row = r.read_run(record, form)
                thread.run_damage = None
            case r.DeleteLine():
                for seq in record.seqs:
                    if seq in thread.rows:
                        thread.rows[seq] = buried(thread.rows[seq])
            case r.TombstoneLine():
                head = r.CheckpointHead(
                    seq=record.seq,
                    id=record.id,
                    digest=record.digest,
                    step=record.step,
                    move=record.move,
                    parent=record.parent,
                )
                thread.rows[record.seq] = Row(head, None)
            case r.SweepLine():
                for log, start, count in record.cells:
                    cells = thread.logs.get(log, [])
                    del cells[bisect_left(cells, (start,)) : bisect_left(cells, (start + count,))]
            case r.ThreadLine():
                r.require_known(record.format)
                thread.number, thread.name = record.number, r.read_name(record)
                thread.origins.update(record.origins)
                if record.gone:
                    forget(thread)
            case r.DropLine():
                forget(thread)
            case _:
                continue


def conclude(thread: Thread, end: r.End, good: Iterable[r.Replayed], bad: Sequence[Damage]) -> None:
    """What the end of a group says: where the thread stands now, and what is lost where lines are damaged."""
    thread.number = end.number
    if end.at is not None:
        thread.stand = end.at
        thread.stand_damage = None
    if bad:
        thread.damages += bad
        found = [r.LETTERS[type(record)] for record in good]
        written = framing.counts(end.of)
        if found.count("r") < sum(count for kind, count in written if kind == "r"):
            thread.run_damage = bad[0]
        if found.count("x") < sum(count for kind, count in written if kind == "x"):
            forget(thread)


def forget(thread: Thread) -> None:
    """The thread was dropped: only its cells are left, and how far it got."""
    thread.name, thread.is_gone = None, True
    thread.rows, thread.entries, thread.last_entry = {}, {}, 0
    thread.run_row = thread.run_damage = None


def buried(row: Row) -> Row:
    return Row(replace(row.head, label=None, origins=()), None)
