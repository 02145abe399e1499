"""The timeline of a thread: its checkpoints in order with their branches as lanes, their calls, crashes and resumes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.errors import Damaged, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.ids import to_text
from holdfast.looking.calls import Call, call_of, rows_between
from holdfast.looking.lanes import Branch, Lanes
from holdfast.looking.nearest import existing
from holdfast.runs.record import is_free
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.running import Claim, EffectRow, RunRow
from holdfast.stores.walking import name_of
from holdfast.threads.ancestry import branch_of
from holdfast.threads.history import listed
from holdfast.threads.metadata import checkpoint_of, decode, moment
from holdfast.threads.thread import checked_limit
from holdfast.types import Checkpoint, Status

_PAGE: Final = 500


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody went on with the run from this checkpoint. `after` says what the run was then.

    "crash" means that the process before was gone; else it is the status that the run was left in. `answered` are the
    calls, of those the journal had then, that were answered from it instead of being made again, as far as what was
    done later shows.
    """

    at: datetime
    attempt: int
    after: Literal["crash"] | Status
    answered: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a timeline: a checkpoint, where it stands, and the calls that led to it.

    `lane` is where it is drawn, `passing` the lanes that pass it by, `joining` those that come from above and end in
    it. `is_current` says that it is the head or leads to it; others were abandoned by a rewind. `resumptions`
    happened after it, before what came next.
    """

    checkpoint: Checkpoint
    branch: int
    parent: int
    lane: int
    passing: tuple[int, ...]
    joining: tuple[int, ...]
    is_head: bool
    is_current: bool
    calls: tuple[Call, ...]
    resumptions: tuple[Resumption, ...]
    forks: tuple[str, ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a thread's steps, newest first. `before` is what to ask for to get the next page, None at the end.

    `open_calls` are those of the step that no checkpoint has closed, and `interrupted` says that who made them is gone;
    both belong above the head, and only the first page has them. `unmarked` are resumes, the oldest of `resumed`, that
    no step tells of, as only the newest are kept. `lost` are sentences about what cannot be read.
    """

    thread: str
    count: int
    head: int
    forked_from: str | None
    steps: tuple[Step, ...]
    before: int | None
    open_calls: tuple[Call, ...]
    interrupted: bool
    resumed: int
    crashed: int
    unmarked: int
    branches: tuple[Branch, ...]
    lost: tuple[str, ...]


def timeline(hf: Holdfast, thread: str, *, before: int | None = None, limit: int = 200, calls: bool = True) -> Timeline:
    """The steps of a thread below the seq `before`, newest first. NotFound if there is no thread.

    Without `calls` the journal is not read.
    """
    checked_limit(limit)
    if before is not None and (type(before) is not int or before < 1):
        raise InvalidArgument("before must be a seq: a whole number, 1 or more")
    row = existing(hf, thread)
    store = hf._session.store
    rows, lost, is_end = _rows(store, row, before, limit)
    lanes = Lanes.of(store, row, down_to=rows[-1].seq if rows else None)
    run = _run(store, row, lost)
    by_seq = _calls(store, row, lanes, rows, lost) if calls and run is not None else {}
    resumptions = _resumptions(store, row, run, lanes, rows)
    origin, forks = _kin(store, row)
    steps = tuple(
        _step(row, each, lanes, tuple(by_seq.get(each.seq, ())), tuple(resumptions.get(each.seq, ())), forks)
        for each in rows
    )
    is_first = before is None
    return Timeline(
        thread=row.name,
        count=row.count,
        head=row.position.head,
        forked_from=origin,
        steps=steps,
        before=None if is_end or not rows else rows[-1].seq,
        open_calls=_open_calls(store, row, lost) if is_first and calls and run is not None else (),
        interrupted=is_first and run is not None and run.status == "running" and is_free(store, run),
        resumed=0 if run is None else run.resumed,
        crashed=0 if run is None else run.crashed,
        unmarked=0 if run is None else max(run.resumed - len(run.claims), 0),
        branches=tuple(lanes.branches),
        lost=tuple(lost),
    )


def step_of(hf: Holdfast, checkpoint: Checkpoint) -> Step:
    """The row of one checkpoint. NotFound if it is not there any more."""
    found = timeline(hf, checkpoint.thread, before=checkpoint.seq + 1, limit=1)
    if not found.steps or found.steps[0].checkpoint.id != checkpoint.id:
        # Deleted meanwhile: the thread says so.
        hf.thread(checkpoint.thread).load(checkpoint)
    return found.steps[0]


def _rows(
    store: Store, thread: ThreadRow, before: int | None, limit: int
) -> tuple[list[CheckpointRow], dict[str, None], bool]:
    """A page of checkpoints, what could not be read, in sentences, and whether it is the last."""
    rows: list[CheckpointRow] = []
    lost: dict[str, None] = {}
    for row in listed(store, thread, before=before, page=min(limit + 1, _PAGE)):
        damage = row if isinstance(row, Damaged) else _unreadable(row)
        if damage is not None:
            lost[str(damage)] = None
        elif len(rows) == limit:
            return rows, lost, False
        elif not isinstance(row, Damaged):
            rows.append(row)
    return rows, lost, True


def _unreadable(row: CheckpointRow) -> Damaged | None:
    try:
        decode(row)
    except Damaged as damage:
        return damage
    return None


def _step(
    thread: ThreadRow,
    row: CheckpointRow,
    lanes: Lanes,
    calls: tuple[Call, ...],
    resumptions: tuple[Resumption, ...],
    forks: dict[int, list[str]],
) -> Step:
    place = lanes.place(row.seq)
    return Step(
        checkpoint=checkpoint_of(thread.name, row),
        branch=branch_of(row),
        parent=0 if row.parent is None or row.parent[0] else row.parent[1],
        lane=place.lane,
        passing=place.passing,
        joining=place.joining,
        is_head=row.seq == thread.position.head,
        is_current=lanes.leads_to_head(row.seq),
        calls=calls,
        resumptions=resumptions,
        forks=tuple(forks.get(row.seq, ())),
    )


def _run(store: Store, thread: ThreadRow, lost: dict[str, None]) -> RunRow | None:
    try:
        return store.run(thread.position.thread)
    except Damaged as damage:
        lost[str(damage)] = None
        return None


def _calls(
    store: Store, thread: ThreadRow, lanes: Lanes, rows: list[CheckpointRow], lost: dict[str, None]
) -> dict[int, list[Call]]:
    """The calls of a page, by the seq of the checkpoint that closed them, or was the last of a branch that was left."""
    if not rows:
        return {}
    number = thread.position.thread
    oldest = rows[-1]
    below = _before(store, number, oldest)
    high = (branch_of(rows[0]), _last_step(thread, lanes, rows[0]))
    found: dict[int, list[Call]] = {}
    ordered = rows[::-1]
    at = 0
    for entry in rows_between(store, number, below, high, lost):
        place = (entry.branch, entry.step)
        while at < len(ordered) - 1 and (branch_of(ordered[at]), ordered[at].step) < place:
            following = ordered[at + 1]
            if branch_of(following) > entry.branch:
                break  # its step was left open when the branch was
            at += 1
        found.setdefault(ordered[at].seq, []).append(call_of(entry))
    return found


def _before(store: Store, number: int, row: CheckpointRow) -> tuple[int, int]:
    """The place up to which calls belong to what came before a checkpoint."""
    if row.seq > 1:
        older = _readable(store, number, row.seq - 1)
        if older is not None and branch_of(older) == branch_of(row):
            return (branch_of(older), older.step)
    return (branch_of(row), -1)


def _last_step(thread: ThreadRow, lanes: Lanes, row: CheckpointRow) -> int:
    """Up to which step calls belong to a checkpoint: to its own, or to all, where a branch was left after it."""
    extent = lanes.extent(branch_of(row))
    is_last = extent is not None and extent[1] == row.seq
    if is_last and branch_of(row) != branch_of(thread.position):
        return 1 << 62
    return row.step


def _open_calls(store: Store, thread: ThreadRow, lost: dict[str, None]) -> tuple[Call, ...]:
    branch, step = branch_of(thread.position), thread.summary.step
    rows = rows_between(store, thread.position.thread, (branch, step), (branch, 1 << 62), lost)
    return tuple(call_of(row) for row in rows)


def _resumptions(
    store: Store, thread: ThreadRow, run: RunRow | None, lanes: Lanes, rows: list[CheckpointRow]
) -> dict[int, list[Resumption]]:
    shown = {row.seq: row for row in rows}
    found: dict[int, list[Resumption]] = {}
    for claim in () if run is None else run.claims:
        head = shown.get(claim.head)
        if head is not None:
            after: Literal["crash"] | Status = "crash" if claim.found == "running" else claim.found
            answered = _answered(store, thread.position.thread, claim, head, lanes)
            resumption = Resumption(at=moment(claim.at), attempt=claim.fence, after=after, answered=answered)
            found.setdefault(claim.head, []).append(resumption)
    return found


def _answered(store: Store, number: int, claim: Claim, head: CheckpointRow, lanes: Lanes) -> int:
    """How many calls a claim was answered from the journal, as far as what it wrote itself shows.

    A program makes its calls in order: what stands before something that this claim, or a later one, recorded was
    answered to it, and all of a step that was closed.
    """
    extent = lanes.extent(claim.branch)
    closing = None if extent is None else max(claim.head + 1, extent[0])
    closed = None if extent is None or closing is None or closing > extent[1] else _readable(store, number, closing)
    high = (claim.branch, (1 << 62) if closed is None else closed.step)
    entries = list(rows_between(store, number, (claim.branch, head.step), high, {}))
    written = [entry.number for entry in entries if (entry.ended_at or entry.begun_at) > claim.at]
    until = max(written, default=0) if closed is None else 1 << 62
    return sum(
        _was_known(entry) and entry.ended_at is not None and entry.ended_at <= claim.at and entry.number < until
        for entry in entries
    )


def _readable(store: Store, number: int, seq: int) -> CheckpointRow | None:
    try:
        return store.checkpoint(number, seq)
    except Damaged:
        return None


def _was_known(entry: EffectRow) -> bool:
    return entry.status in ("done", "given_up") and entry.kind != "undo"


def _kin(store: Store, thread: ThreadRow) -> tuple[str | None, dict[int, list[str]]]:
    """What a thread was forked from, as a reference, and the names of its forks by the seq that each was forked at."""
    number = thread.position.thread
    first = _readable(store, number, 1)
    origin = None if first is None or first.parent is None or not first.parent[0] else first.parent
    forked: dict[int, int] = {}
    for fork in store.forks(number):
        begun = _readable(store, fork, 1)
        if begun is not None and begun.parent is not None and begun.parent[0] == number:
            forked[fork] = begun.parent[1]
    names = _names(store, {*forked, *(() if origin is None else (origin[0],))})
    forks: dict[int, list[str]] = {}
    for fork, seq in forked.items():
        if fork in names:
            forks.setdefault(seq, []).append(names[fork])
    return None if origin is None else _origin(store, origin, names), forks


def _origin(store: Store, origin: tuple[int, int], names: dict[int, str]) -> str:
    name = names.get(origin[0], "")
    row = _readable(store, *origin)
    return f"{name}@{origin[1] if row is None else to_text(row.id)}"


def _names(store: Store, numbers: Iterable[int]) -> dict[int, str]:
    """The names of threads by number; those that are gone, or whose record cannot be read, have none."""
    names: dict[int, str] = {}
    for number in numbers:
        with suppress(Damaged):
            name = name_of(store, number)
            if name is not None:
                names[number] = name
    return names
