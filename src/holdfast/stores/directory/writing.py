"""Write verbs for a thread's history: check everything, then plan the lines to append."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.errors import AlreadyExists, Conflict, InvalidArgument, NotFound, Protected
from holdfast.stores import contract as c
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock, Entry, RunRow
from holdfast.stores.directory import records as r
from holdfast.stores.directory.form import Form
from holdfast.stores.directory.replay import Thread
from holdfast.stores.directory.space import Followed, Sealed, Space, sealed

T = TypeVar("T")

_LARGEST_PIECE: Final = 8 * 2**20


class Plan(NamedTuple, Generic[T]):
    """The lines that a verb will append, and its result. Without lines there is nothing to do.

    `creates` is the name of the thread to create; otherwise the lines go to the log that is `followed`.
    """

    answer: T
    lines: Sequence[Sealed] = ()
    at: r.Stand | None = None
    followed: Followed | None = None
    creates: str | None = None
    number: int = 0
    values: Sequence[c.Blob] = ()
    origins: tuple[int, ...] = ()
    entry: int = 0  # the highest number of a journal entry in the lines


class Prepared(NamedTuple):
    """A commit, with the lines that can be made without reading the store."""

    commit: c.Commit
    cells: Sequence[Sealed]
    line: r.CheckpointLine


def prepare(commit: c.Commit, form: Form) -> Prepared:
    _check_form(commit)
    cells = [
        sealed(
            r.CellLine(
                seq=commit.row.seq,
                log=run.log,
                at=run.start + i,
                cell=msgspec.Raw(form.to_text(cell)),
                refs=r.show_refs(run.refs[i]) if run.refs else None,
            )
        )
        for run in commit.appends
        for i, cell in enumerate(run.cells)
    ]
    return Prepared(commit, cells, r.show_checkpoint(commit.row, (), form))


def commit(space: Space, prepared: Prepared, clock: Callable[[], Clock]) -> Plan[c.Position]:
    made = prepared.commit
    found = space.named(made.name)
    thread = found.thread if found is not None else None
    _check_run(space, made, found, clock)
    if thread is not None and made.expect is None:
        raise AlreadyExists("a thread with that name already exists; nothing was stored")
    if (thread.position if thread is not None else None) != made.expect:
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    if not all(_has(space, number, seq) for number, seq in made.bases):
        raise Conflict(
            "a checkpoint whose cells this commit reuses was deleted; nothing was stored. Call latest() and save again."
        )
    origins = _origins(space, made)
    before = thread or Thread()
    _check_appends(made.appends, before)
    check_numbers(before, made.entries)

    number = before.number or space.free_number()
    lines = list(prepared.cells)
    entries, numbers = journaled(before, made.entries)
    lines += [sealed(r.show_effect(entry, space.form)) for entry in entries]
    if made.run is not None:
        row = replace(made.run, thread=number)
        lines.append(sealed(r.show_run(rules.keep_lease(before.run, row) if before.run else row, space.form)))
    new = tuple(sorted(origin for origin in origins if origin not in before.origins and origin != number))
    lines.append(sealed(replace(prepared.line, origins=new)))
    at = r.Stand(
        head=made.row.seq,
        id=made.row.id.hex(),
        move=made.row.move,
        last=made.row.seq,
        count=(thread.at.count if thread is not None else 0) + 1,
        summary=made.summary,
    )
    answer = c.Position(number, at.head, at.move, at.last)
    creates = made.name if thread is None else None
    return Plan(answer, lines, at, found, creates, number, made.blobs, new, max(numbers, default=0))


def rewind(
    space: Space, expect: c.Position, to: int, summary: c.Summary, clock: Callable[[], Clock]
) -> Plan[c.Position]:
    found = space.numbered(expect.thread)
    if found is None:
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    thread = found.thread
    rules.require_free(thread.run, clock())
    if thread.is_gone or thread.position != expect:
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    if not thread.has(to):
        raise NotFound(f"checkpoint {to} of the thread does not exist or was deleted; nothing was changed")
    at = replace(thread.at, head=to, id=thread.rows[to].head.id, move=thread.at.move + 1, summary=summary)
    answer = c.Position(thread.number, at.head, at.move, at.last)
    return Plan(answer, [sealed(r.RewindLine(to=to))], at, found)


def delete(space: Space, number: int, seqs: Collection[int]) -> Plan[int]:
    found = require(space, number)
    gone = sorted({seq for seq in seqs if found.thread.has(seq)})
    if found.thread.at.head in gone:
        raise Protected(
            "the head of a thread cannot be deleted; nothing was changed. Rewind or drop the thread instead."
        )
    if not gone:
        return Plan(0)
    at = replace(found.thread.at, count=found.thread.at.count - len(gone))
    return Plan(len(gone), [sealed(r.DeleteLine(seqs=tuple(gone)))], at, found)


def drop(space: Space, number: int, clock: Callable[[], Clock]) -> Plan[list[int]]:
    """Plan to drop a thread. The result is the list of threads that may no longer be needed."""
    found = require(space, number)
    rules.require_free(found.thread.run, clock())
    affected = [number, *sorted(found.thread.origins)]
    return Plan(affected, [sealed(r.DropLine())], found.thread.at, found)


# -- checks ---------------------------------------------------------------------------------------------------------


def require(space: Space, number: int) -> Followed:
    """The thread, which must exist and not be dropped."""
    found = space.numbered(number)
    if found is None or found.thread.is_gone:
        raise NotFound(f"the thread with number {number} does not exist; nothing was changed")
    return found


def check_numbers(thread: Thread, rows: Sequence[Entry]) -> None:
    for row in rows:
        if row.number and not 1 <= row.number <= thread.last_entry:
            raise rules.no_entry(thread.number, row.number)


def journaled(thread: Thread, rows: Sequence[Entry]) -> tuple[list[Entry], list[int]]:
    """Entries with numbers assigned, and those numbers."""
    last = thread.last_entry if rows else 0
    entries: list[Entry] = []
    for row in rows:
        if not row.number:
            last += 1
        entries.append(row if row.number else replace(row, number=last))
    return entries, [entry.number for entry in entries]


def run_of(space: Space, number: int) -> RunRow | None:
    found = space.numbered(number)
    return None if found is None else found.thread.run


def _has(space: Space, number: int, seq: int) -> bool:
    found = space.numbered(number)
    return found is not None and found.thread.has(seq)


def _origins(space: Space, made: c.Commit) -> set[int]:
    origins: set[int] = set()
    for number in made.origins:
        found = space.numbered(number)
        if found is None:
            raise Conflict(
                "a thread whose cells this commit uses no longer exists; nothing was stored. "
                "Call latest() and save again."
            )
        origins |= {number} | found.thread.origins
    return origins


def _check_run(space: Space, made: c.Commit, found: Followed | None, clock: Callable[[], Clock]) -> None:
    if made.expect is None:
        run = None
    elif found is not None and found.thread.number == made.expect.thread:
        run = found.thread.run
    else:
        run = run_of(space, made.expect.thread)
    if made.fence is not None:
        rules.require_fence(run, made.fence)
    elif made.run is not None:
        rules.require_none(run)
    else:
        rules.require_free(run, clock())


def _check_form(made: c.Commit) -> None:
    last, move = (made.expect.last, made.expect.move) if made.expect else (0, 0)
    if (made.row.seq, made.row.move) != (last + 1, move + 1):
        raise InvalidArgument("a commit's seq and move must follow those it expects; nothing was stored")
    if made.row.deleted:
        raise InvalidArgument("a commit cannot contain a deleted checkpoint; nothing was stored")
    if any(run.refs and len(run.refs) != len(run.cells) for run in made.appends):
        raise InvalidArgument("an append's refs must be empty or have one entry per cell; nothing was stored")
    if any(len(piece) > _LARGEST_PIECE for value in made.blobs for piece in value.pieces):
        raise InvalidArgument("a piece of a blob is larger than 8 MiB; nothing was stored")
    rules.check_form(made)


def _check_appends(runs: Sequence[c.Append], thread: Thread) -> None:
    """`InvalidArgument` if an append overlaps existing cells, because spans over them would be ambiguous."""
    ends: dict[int, int] = {}
    for run in runs:
        if run.cells:
            cells = thread.logs.get(run.log)
            if run.start < ends.get(run.log, cells[-1].at + 1 if cells else 0):
                raise InvalidArgument(f"log {run.log} already has cells at {run.start}; nothing was stored")
            ends[run.log] = run.start + len(run.cells)
