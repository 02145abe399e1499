"""The reading verbs: from what was replayed, and from the lines themselves where there is more to read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.stores import contract as c
from holdfast.stores import leases
from holdfast.stores.directory import records as r
from holdfast.stores.directory.lines import Damage, cell_text, open_line
from holdfast.stores.directory.replay import Cell, Row, Thread
from holdfast.stores.directory.space import Followed, Space
from holdfast.stores.running import Clock, EffectRow, RunRow

# Cells that lie this close to each other are read at once, and so much of a file at a time.
_GAP: Final = 16 << 10
_STRETCH: Final = 8 << 20


def thread(space: Space, name: str) -> c.ThreadRow | None:
    found = space.named(name)
    return None if found is None else _listed(found.thread, name)


def threads(space: Space, prefix: str, after: str | None, limit: int) -> list[c.ThreadRow]:
    return [_listed(found.thread, found.thread.name or "") for found in islice(space.listed(prefix, after), limit)]


def _listed(found: Thread, name: str) -> c.ThreadRow:
    at = found.at
    return c.ThreadRow(
        name=name,
        position=found.position,
        head_id=bytes.fromhex(at.id),
        count=at.count,
        summary=at.summary,
    )


def checkpoint(space: Space, number: int, seq: int) -> c.CheckpointRow | None:
    found = space.numbered(number)
    if found is None or found.thread.name is None or seq < 1 or seq > found.thread.at.last:
        return None
    row = found.thread.rows.get(seq)
    if row is None:
        raise found.thread.missing(f"checkpoint {seq}")
    return _whole(space, found, row)


def _whole(space: Space, found: Followed, row: Row) -> c.CheckpointRow:
    if row.place is None:
        head = row.head
        return c.CheckpointRow(
            seq=head.seq,
            id=bytes.fromhex(head.id),
            parent=head.parent,
            digest=bytes.fromhex(head.digest),
            step=head.step,
            move=head.move,
            deleted=True,
        )
    return r.read_checkpoint(found.log.line(*row.place), space.form)


def checkpoints(
    space: Space, number: int, before: int | None, limit: int, label: str | None, step: int | None
) -> list[c.CheckpointRow]:
    found = space.numbered(number)
    if found is None:
        return []

    def wanted() -> Iterator[c.CheckpointRow]:
        for seq in sorted(found.thread.rows, reverse=True):
            row = found.thread.rows[seq]
            if (
                row.place is not None
                and (before is None or seq < before)
                and (label is None or row.head.label == label)
                and (step is None or row.head.step == step)
            ):
                yield replace(_whole(space, found, row), refs=c.NO_REFS, skeleton=b"")

    return list(islice(wanted(), max(limit, 0)))


def refs(space: Space, number: int, after: int, limit: int) -> list[c.CheckpointRow]:
    """Sweeping trusts this page: a checkpoint missing from it would lose its cells, so a gap is `Damaged`."""
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


def forks(space: Space, number: int) -> list[int]:
    return [] if space.numbered(number) is None else space.forks(number)


def thread_numbers(space: Space) -> list[int]:
    return sorted(
        found.thread.number
        for found in space.everything()
        if not found.thread.is_gone or any(found.thread.logs.values())
    )


# -- cells ----------------------------------------------------------------------------------------------------------


def cells(space: Space, spans: Sequence[c.Span]) -> list[c.Cells]:
    return [_cells(space, span) for span in spans]


def _cells(space: Space, span: c.Span) -> c.Cells:
    found = space.numbered(span.thread)
    if found is None:
        raise Damaged(f"thread number {span.thread}, whose cells are asked for, is not in the store")
    texts: list[bytes] = []
    references: list[c.Refs] = []
    is_bare = True
    for body in _bodies(found, found.thread.find(span)):
        text = cell_text(body)
        if text is None:
            line = r.cell_line(body)
            text = bytes(line.cell)
            references.append(r.read_refs(line.refs))
            is_bare = False
        else:
            references.append(c.NO_REFS)
        texts.append(text)
    read = space.form.from_texts(texts)
    return c.Cells([c.Block(b"".join(read), 0, list(map(len, read)))], [] if is_bare else references)


def _bodies(found: Followed, wanted: Sequence[Cell]) -> Iterator[bytes]:
    """The records of lines that lie in the order of the file, verified; neighbours are read at once."""
    at = 0
    while at < len(wanted):
        start = wanted[at].offset
        end = start + wanted[at].length
        stop = at + 1
        while stop < len(wanted) and 0 <= wanted[stop].offset - end < _GAP and end - start < _STRETCH:
            end = wanted[stop].offset + wanted[stop].length
            stop += 1
        data = os.pread(found.log.descriptor(), end - start, start)
        for cell in wanted[at:stop]:
            body = open_line(data[cell.offset - start : cell.offset - start + cell.length])
            if body is None:
                raise Damaged(str(Damage(found.log.path, cell.offset, cell.length)))
            yield body
        at = stop


# -- runs -----------------------------------------------------------------------------------------------------------


def run(space: Space, number: int) -> RunRow | None:
    found = space.numbered(number)
    return None if found is None else found.thread.run


def runs(space: Space, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
    wanted = sorted(
        (row.updated_at, number, name)
        for number, name, row in _all_runs(space)
        if row.status in statuses and (row.updated_at, number) > after
    )
    return _with_names(space, [(number, name) for _, number, name in wanted[:limit]])


def woken(space: Space, clock: Clock, wall: int, limit: int) -> list[tuple[str, RunRow]]:
    due = sorted(
        (-late, number, name)
        for number, name, row in _all_runs(space)
        if leases.is_timed(row) and (late := leases.overdue(row, clock, wall)) >= 0
    )
    return _with_names(space, [(number, name) for _, number, name in due[:limit]])


def _all_runs(space: Space) -> Iterator[tuple[int, str, RunRow]]:
    for found in space.everything():
        row = found.thread.run_row
        if row is not None and found.thread.name is not None:
            yield found.thread.number, found.thread.name, row


def _with_names(space: Space, page: Sequence[tuple[int, str]]) -> list[tuple[str, RunRow]]:
    found = [(name, run(space, number)) for number, name in page]
    return [(name, row) for name, row in found if row is not None]


def effects(space: Space, number: int, after: int, limit: int) -> list[EffectRow]:
    found = space.numbered(number)
    if found is None:
        return []
    newest = found.thread.last_entry
    return [effect(space, found, at) for at in range(max(after, 0) + 1, min(max(after, 0) + limit, newest) + 1)]


def marked(space: Space, number: int, mark: str) -> list[EffectRow]:
    found = space.numbered(number)
    if found is None:
        return []
    return [effect(space, found, at) for at, entry in sorted(found.thread.entries.items()) if entry.mark == mark]


def effect(space: Space, found: Followed, number: int) -> EffectRow:
    entry = found.thread.entries.get(number)
    if entry is None:
        raise found.thread.missing(f"journal entry {number}")
    return r.read_effect(found.log.line(*entry.place), space.form)


def last_effect(space: Space, number: int) -> int:
    found = space.numbered(number)
    return 0 if found is None else found.thread.last_entry
