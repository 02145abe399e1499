"""The timeline of a thread: its checkpoints with their branches, calls, crashes and resumes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.errors import Damaged, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.ids import to_text
from holdfast.inspect import graphs
from holdfast.inspect.calls import Call, call_of, rows_between
from holdfast.inspect.lanes import Branch, Lanes
from holdfast.inspect.nearest import existing
from holdfast.runs.record import is_free
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, PastClaim, RunRow
from holdfast.threads.ancestry import branch_of
from holdfast.threads.history import listed
from holdfast.threads.metadata import checkpoint_of, decode, moment
from holdfast.threads.scan import checkpoint_at, thread_numbered
from holdfast.threads.thread import checked_limit
from holdfast.types import Checkpoint, Status

_PAGE: Final = 500


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """A resume of the run at this checkpoint. `after` is "crash" if the process had died, else the run's status.

    `answered` counts the calls that were replayed from the journal, as far as later entries show.
    """

    at: datetime
    attempt: int
    after: Literal["crash"] | Status
    answered: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a timeline: a checkpoint, its place in the drawing, and the calls of its step.

    `lane` is where it is drawn, `passing` are the lanes that pass it, `joining` those from above that join it.
    `is_current` is True for the head and its ancestors; a rewind abandoned the others. `resumptions` happened between
    this checkpoint and the next.
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
    """A page of a thread's steps, newest first. Pass `before` to get the next page; it is None at the end.

    `open_calls` are the calls after the head, which no checkpoint includes yet. `interrupted` is True if their process
    died. Only the first page has both. `unmarked` counts the oldest of the `resumed` resumes, which no step shows
    because only the newest are stored. `lost` are messages about unreadable records.
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
    """Return the steps of a thread below the seq `before`, newest first. Raises NotFound if there is no thread.

    Without `calls` the journal is not read.
    """
    checked_limit(limit)
    if before is not None and (type(before) is not int or before < 1):
        raise InvalidArgument("before must be a seq: a whole number, 1 or more")
    row = existing(hf, thread)
    store = hf.context.store
    rows, lost, is_end = _rows(store, row, before, limit)
    lanes = Lanes.of(store, row, down_to=rows[-1].seq if rows else None)
    run = _run(store, row, lost)
    by_seq = _calls(store, row, lanes, rows, lost) if calls and run is not None else {}
    resumptions = _resumptions(store, row, run, lanes, rows)
    origin, forks = kin(store, row)
    steps = tuple(
        _step(row, each, lanes, tuple(by_seq.get(each.seq, ())), tuple(resumptions.get(each.seq, ())), forks)
        for each in rows
    )
    is_first = before is None
    open_calls = _open_calls(store, row, lost) if is_first and calls and run is not None else ()
    is_interrupted = is_first and run is not None and run.status == "running" and is_free(store, run)
    if row.summary.agent == graphs.AGENT:
        steps, open_calls = _of_graph(hf, row, steps, calls=calls)
        graph = graphs.graph_state(store, row) if is_first else None
        is_interrupted = graph is not None and graph.status == "interrupted" and graph.is_dead
    return Timeline(
        thread=row.name,
        count=row.count,
        head=row.position.head,
        forked_from=origin,
        steps=steps,
        before=None if is_end or not rows else rows[-1].seq,
        open_calls=open_calls,
        interrupted=is_interrupted,
        resumed=0 if run is None else run.resumed,
        crashed=0 if run is None else run.crashed,
        unmarked=0 if run is None else max(run.resumed - len(run.claims), 0),
        branches=tuple(lanes.branches),
        lost=tuple(lost),
    )


def _of_graph(
    hf: Holdfast, row: ThreadRow, steps: tuple[Step, ...], *, calls: bool
) -> tuple[tuple[Step, ...], tuple[Call, ...]]:
    """Return the steps of a LangGraph graph with the nodes that ran and their tool calls, and the calls after them."""
    known = graphs.shown_steps(hf, row, [step.checkpoint for step in steps])
    shown = tuple(
        replace(
            step,
            checkpoint=replace(step.checkpoint, trigger=known[step.checkpoint.seq][0]),
            calls=known[step.checkpoint.seq][1] if calls else (),
        )
        for step in steps
        if step.checkpoint.seq in known
    )
    is_newest = bool(steps) and steps[0].is_head
    return shown, graphs.calls_since(hf, row.name, steps[0].checkpoint.created_at) if calls and is_newest else ()


def step_of(hf: Holdfast, checkpoint: Checkpoint) -> Step:
    """Return the row of one checkpoint. Raises NotFound if it was deleted."""
    found = timeline(hf, checkpoint.thread, before=checkpoint.seq + 1, limit=1)
    if not found.steps or found.steps[0].checkpoint.id != checkpoint.id:
        # Deleted meanwhile: load raises NotFound.
        hf.thread(checkpoint.thread).load(checkpoint)
    return found.steps[0]


def _rows(
    store: Store, thread: ThreadRow, before: int | None, limit: int
) -> tuple[list[CheckpointRow], dict[str, None], bool]:
    """Return a page of checkpoints, messages about unreadable ones, and whether it is the last page."""
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
    """Return the calls of a page by the seq of the checkpoint that ended their step.

    Calls of a step that was open when its branch was abandoned belong to the last checkpoint of the branch.
    """
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
                break  # its step was open when the branch was abandoned
            at += 1
        found.setdefault(ordered[at].seq, []).append(call_of(entry))
    return found


def _before(store: Store, number: int, row: CheckpointRow) -> tuple[int, int]:
    """Return the (branch, step) up to which calls belong to earlier checkpoints."""
    if row.seq > 1:
        older = _readable(store, number, row.seq - 1)
        if older is not None and branch_of(older) == branch_of(row):
            return (branch_of(older), older.step)
    return (branch_of(row), -1)


def _last_step(thread: ThreadRow, lanes: Lanes, row: CheckpointRow) -> int:
    """Return the last step whose calls belong to a checkpoint: its own, or all after it if its branch was abandoned."""
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


def _answered(store: Store, number: int, claim: PastClaim, head: CheckpointRow, lanes: Lanes) -> int:
    """Count the calls that were replayed for a claim, as far as later entries show.

    A program makes its calls in order. So calls before an entry that this or a later claim recorded were replayed, and
    so were all older calls of a step that was completed.
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
        return checkpoint_at(store, number, seq)
    except Damaged:
        return None


def _was_known(entry: Entry) -> bool:
    return entry.status in ("done", "given_up") and entry.kind != "undo"


def kin(store: Store, thread: ThreadRow) -> tuple[str | None, dict[int, list[str]]]:
    """Return the origin of a fork as a reference, and the names of the thread's forks by the seq they start at."""
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
    """Return the names of threads by number, without deleted and unreadable threads."""
    names: dict[int, str] = {}
    for number in numbers:
        with suppress(Damaged):
            name = thread_numbered(store, number).name
            if isinstance(name, str):
                names[number] = name
    return names
