"""Read verbs: from the replayed threads, and from the log files where more is needed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, Entry, RunRow
from holdfast.stores.directory import records as r
from holdfast.stores.directory.lines import Damage, cell_text, is_whole
from holdfast.stores.directory.replay import NO_SUMMARY, Cell, Row, Thread
from holdfast.stores.directory.space import Followed, Space

# Cells this close to each other are read together, up to this much of a file at a time. That is small enough to stay in
# the processor's cache while it is decoded.
_GAP: Final = 16 << 10
_STRETCH: Final = 256 << 10


def thread(space: Space, name: str) -> c.ThreadRow | None:
    found = space.named(name)
    if found is None:
        return None
    try:
        return _listed(found.thread, name)
    except Damaged as damage:
        damage.known = _known(found.thread, name)
        raise


def threads(space: Space, prefix: str, after: str | None, limit: int) -> list[c.ThreadRow]:
    """A page of threads. An unreadable thread is skipped and reported at the end of the listing."""
    page = list(islice(_each_listed(space, prefix, after), limit))
    if not page and limit:
        space.require_told(prefix)
    return page


def _each_listed(space: Space, prefix: str, after: str | None) -> Iterator[c.ThreadRow]:
    for found in space.listed(prefix, after):
        try:
            yield _listed(found.thread, found.thread.name or "")
        except Damaged as damage:
            space.untold[found.folder] = damage


def _known(found: Thread, name: str) -> c.ThreadRow:
    """The thread as it was before the damage. It has no head if the damage may have hidden a rewind."""
    at = found.stand
    head, move, last, count = (at.head, at.move, at.last, at.count) if at is not None else (0, 0, 0, 0)
    position = c.Position(found.number, 0 if found.may_be_rewound else head, move, last)
    summary = NO_SUMMARY if at is None else at.summary
    return c.ThreadRow(name=name, position=position, head_id=b"", count=count, summary=summary)


def _listed(found: Thread, name: str) -> c.ThreadRow:
    at = found.at
    return c.ThreadRow(
        name=name,
        position=found.position,
        head_id=r.unhex(at.id),
        count=at.count,
        summary=at.summary,
    )


def checkpoint(space: Space, number: int, seq: int) -> c.CheckpointRow | None:
    found = space.numbered(number)
    if found is None or found.thread.name is None or seq < 1:
        return None
    row = found.thread.rows.get(seq)
    if row is None and seq > found.thread.at.last:
        return None
    found.thread.require(seq)
    return None if row is None else _whole(space, found, row)


def _whole(space: Space, found: Followed, row: Row) -> c.CheckpointRow:
    if row.place is None:
        head = row.head
        return c.CheckpointRow(
            seq=head.seq,
            id=r.unhex(head.id),
            parent=head.parent,
            digest=r.unhex(head.digest),
            step=head.step,
            move=head.move,
            deleted=True,
        )
    return r.read_checkpoint(found.log.line(*row.place), space.form)


def checkpoints(
    space: Space, number: int, before: int | None, limit: int, label: str | None, step: int | None
) -> list[c.CheckpointRow]:
    """A page of checkpoints. With a label or step, `Damaged` if the newest match may be a lost checkpoint.

    Otherwise lost checkpoints are skipped, and the empty page at the end raises `Damaged` instead.
    """
    found = space.numbered(number)
    if found is None or found.thread.name is None:
        return []
    thread = found.thread
    if label is None and step is None:
        seqs = (seq for seq in sorted(thread.rows, reverse=True) if before is None or seq < before)
        wanted: Iterator[int] = (seq for seq in seqs if thread.has(seq) and seq not in thread.doubtful)
    else:
        wanted = _matching(thread, before, label, step)
    rows = (_whole(space, found, thread.rows[seq]) for seq in wanted)
    page = [replace(row, refs=c.NO_REFS, skeleton=b"") for row in islice(rows, max(limit, 0))]
    if not page and limit > 0 and label is None and step is None:
        thread.require_all()
    return page


def _matching(thread: Thread, before: int | None, label: str | None, step: int | None) -> Iterator[int]:
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


def refs(space: Space, number: int, after: int, limit: int) -> list[c.CheckpointRow]:
    """A page of checkpoints with refs. A gap is `Damaged`: a sweep would drop the cells of a missing checkpoint."""
    found = space.numbered(number)
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
            page.append(replace(_whole(space, found, row), meta=b"", skeleton=b""))
    return page


def last(space: Space, number: int) -> int:
    found = space.numbered(number)
    return 0 if found is None else found.thread.at.last


def name_of(space: Space, number: int) -> str | None:
    found = space.numbered(number)
    return None if found is None else found.thread.name


def forks(space: Space, number: int) -> list[int]:
    return [] if space.numbered(number) is None else space.forks(number)


def thread_numbers(space: Space) -> list[int]:
    return sorted(
        found.thread.number for found in space.all_told() if not found.thread.is_gone or any(found.thread.logs.values())
    )


# -- cells ----------------------------------------------------------------------------------------------------------


def cells(space: Space, spans: Sequence[c.Span]) -> list[c.Cells]:
    return [_cells(space, span) for span in spans]


def _cells(space: Space, span: c.Span) -> c.Cells:
    found = space.numbered(span.thread)
    if found is None:
        raise Damaged(f"cells of the thread with number {span.thread} are missing: the thread does not exist")
    read: list[bytes] = []
    references: dict[int, c.Refs] = {}
    for bodies in _stretches(found, found.thread.find(span)):
        texts: list[bytes | memoryview] = []
        for body in bodies:
            text = cell_text(body)
            if text is None:
                line = r.cell_line(body)
                references[len(read) + len(texts)] = r.read_refs(line.refs)
                text = memoryview(line.cell)
            texts.append(text)
        read += space.form.from_texts(texts)
    refs = [references.get(i, c.NO_REFS) for i in range(len(read))] if references else []
    return c.Cells([c.Block(b"".join(read), 0, list(map(len, read)))], refs)


def _stretches(found: Followed, wanted: Sequence[Cell]) -> Iterator[list[memoryview]]:
    """The verified lines, in the order of the file. Neighbouring lines are read together."""
    at = 0
    while at < len(wanted):
        start = wanted[at].offset
        end = start + wanted[at].length
        stop = at + 1
        while stop < len(wanted) and 0 <= wanted[stop].offset - end < _GAP and end - start < _STRETCH:
            end = wanted[stop].offset + wanted[stop].length
            stop += 1
        data = memoryview(os.pread(found.log.descriptor(), end - start, start))
        bodies = [data[cell.offset - start : cell.offset - start + cell.length] for cell in wanted[at:stop]]
        for cell, body in zip(wanted[at:stop], bodies, strict=True):
            if not is_whole(body):
                raise Damaged(str(Damage(found.log.path, cell.offset, cell.length)))
        yield bodies
        at = stop


# -- runs -----------------------------------------------------------------------------------------------------------


def run(space: Space, number: int) -> RunRow | None:
    found = space.numbered(number)
    return None if found is None else found.thread.run


def runs(space: Space, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
    """A page of runs. A run with a lost record is skipped; a call with `statuses=()` raises `Damaged` for it."""
    wanted = sorted(
        (row.updated_at, number, name)
        for number, name, row in _all_runs(space)
        if row.status in statuses and (row.updated_at, number) > after
    )
    if not statuses:
        _require_runs(space)
    return _with_names(space, [(number, name) for _, number, name in wanted[:limit]])


def woken(space: Space, clock: Clock, wall: int, limit: int) -> list[tuple[str, RunRow]]:
    due = sorted(
        (-late, number, name)
        for number, name, row in _all_runs(space)
        if rules.is_timed(row) and (late := rules.overdue(row, clock, wall)) >= 0
    )
    return _with_names(space, [(number, name) for _, number, name in due[:limit]])


def _all_runs(space: Space) -> Iterator[tuple[int, str, RunRow]]:
    for found in space.everything():
        thread = found.thread
        damages = (thread.run_damage, thread.stand_damage, thread.tail_damage)
        if thread.run_row is not None and thread.name is not None and damages == (None, None, None):
            yield thread.number, thread.name, thread.run_row


def _require_runs(space: Space) -> None:
    """`Damaged` if there is an unreadable run."""
    for found in space.everything():
        if not found.thread.is_gone and found.thread.run is not None:
            _ = found.thread.at
    for unread in space.unread:
        raise unread.error


def _with_names(space: Space, page: Sequence[tuple[int, str]]) -> list[tuple[str, RunRow]]:
    found = [(name, run(space, number)) for number, name in page]
    return [(name, row) for name, row in found if row is not None]


def effects(space: Space, number: int, after: int, limit: int) -> list[Entry]:
    found = space.numbered(number)
    if found is None:
        return []
    newest = found.thread.last_entry
    return [effect(space, found, at) for at in range(max(after, 0) + 1, min(max(after, 0) + limit, newest) + 1)]


def marked(space: Space, number: int, mark: str) -> list[Entry]:
    found = space.numbered(number)
    if found is None:
        return []
    if len(found.thread.entries) < found.thread.last_entry:
        raise found.thread.missing(f"journal entry {found.thread.lost_entries[0]}, which may have this topic,")
    return [effect(space, found, at) for at, entry in sorted(found.thread.entries.items()) if entry.mark == mark]


def effect(space: Space, found: Followed, number: int) -> Entry:
    entry = found.thread.entries.get(number)
    if entry is None:
        raise found.thread.missing(f"journal entry {number}")
    return r.read_effect(found.log.line(*entry.place), space.form)


def last_effect(space: Space, number: int) -> int:
    found = space.numbered(number)
    return 0 if found is None else found.thread.last_entry
