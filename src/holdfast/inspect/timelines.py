"""The timeline of a thread: its checkpoints with their branches, calls, crashes and resumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Holdfast
from holdfast.ids import to_text
from holdfast.inspect import graphs
from holdfast.inspect.call_records import END, Call, call_of, is_held, is_shown, rows_between
from holdfast.inspect.damage import Readable
from holdfast.inspect.lanes import Branch, Lanes
from holdfast.inspect.references import FoundCheckpoint, existing, find
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, PastClaim, RunRow
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import checkpoint_of, moment
from holdfast.threads.scan import thread_numbered
from holdfast.threads.thread import checked_limit
from holdfast.types import Checkpoint, Status

_PAGE: Final = 500


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """A resume of the run at this checkpoint. `after` is "crash" if the process had died, else the run's status.

    `fence` is that of the claim. `answered` counts the calls that were replayed from the journal, as far as later
    entries show.
    """

    at: datetime
    fence: int
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

    `open_calls` are the calls after the head, which no checkpoint includes yet. `is_held` is True if a process holds
    the run, so that they may be under way; `interrupted` is True if their process died. `graph` is the status of a
    LangGraph graph, with the nodes that run next. Only the first page has these.
    `unmarked` counts the oldest of the `resumed` resumes, which no step shows because only the newest are stored.
    `lost` are messages about unreadable records.
    """

    thread: str
    count: int
    head: int
    forked_from: str | None
    steps: tuple[Step, ...]
    before: int | None
    open_calls: tuple[Call, ...]
    is_held: bool
    interrupted: bool
    graph: graphs.GraphState | None
    resumed: int
    crashed: int
    unmarked: int
    branches: tuple[Branch, ...]
    lost: tuple[str, ...]


def timeline(hf: Holdfast, thread: str, *, before: int | None = None, limit: int = 200, calls: bool = True) -> Timeline:
    """Return the steps of a thread below the seq `before`, newest first. Raises NotFound if there is no thread.

    Without `calls` the journal is not read. The steps of a LangGraph graph are those of its checkpoints: that which
    created the thread is left out.
    """
    return _timeline(hf, thread, before=before, limit=limit, calls=calls)


def _timeline(
    hf: Holdfast, thread: str, *, before: int | None, limit: int, calls: bool, is_whole: bool = False
) -> Timeline:
    """Return a timeline. If `is_whole`, the checkpoint that created the thread of a graph is in it."""
    checked_limit(limit)
    if before is not None and (type(before) is not int or before < 1):
        raise InvalidArgument("before must be a seq: a whole number, 1 or more")
    row = existing(hf, thread)
    readable = Readable(hf)
    store = readable.store
    rows, is_end = _rows(readable, row, before, limit)
    lanes = Lanes.of(readable, row, down_to=rows[-1].seq if rows else None)
    run = store.run(row.position.thread)
    is_graph = row.summary.agent == graphs.AGENT
    by_seq = _calls(readable, row, lanes, rows) if calls and run is not None and not is_graph else {}
    resumptions = _resumptions(readable, row, run, lanes, rows)
    origin, forks = _kin(readable, row)
    steps = tuple(
        _step(row, each, lanes, tuple(by_seq.get(each.seq, ())), tuple(resumptions.get(each.seq, ())), forks)
        for each in rows
    )
    is_first = before is None
    graph: graphs.GraphState | None = None
    if is_graph:
        steps = tuple(_of_graph(readable, row, steps, calls=calls, is_whole=is_whole))
        graph = readable.tried(lambda: graphs.graph_state(store, row)) if is_first else None
        held = graph is not None and graph.status == "running"
        is_interrupted = graph is not None and graph.status == "interrupted" and graph.is_dead
    else:
        held = is_first and is_held(store, run)
        is_interrupted = is_first and run is not None and run.status == "running" and not held
    return Timeline(
        thread=row.name,
        count=row.count,
        head=row.position.head,
        forked_from=origin,
        steps=steps,
        before=None if is_end or not rows else rows[-1].seq,
        open_calls=_open_calls(store, row) if is_first and calls and run is not None else (),
        is_held=held,
        interrupted=is_interrupted,
        graph=graph,
        resumed=0 if run is None else run.resumed,
        crashed=0 if run is None else run.crashed,
        unmarked=0 if run is None else max(run.resumed - len(run.claims), 0),
        branches=tuple(lanes.branches),
        lost=readable.lost,
    )


def _of_graph(
    readable: Readable, row: ThreadRow, steps: tuple[Step, ...], *, calls: bool, is_whole: bool
) -> Iterator[Step]:
    """Yield the steps of a LangGraph graph with the nodes that ran and the calls of their tools."""
    known = graphs.shown_steps(readable, row, [step.checkpoint for step in steps])
    for step in steps:
        if step.checkpoint.seq in known:
            nodes, entries = known[step.checkpoint.seq]
            shown = tuple(call_of(entry) for entry in entries if calls and is_shown(entry.kind, entry.status))
            yield replace(step, checkpoint=replace(step.checkpoint, trigger=nodes), calls=shown)
        elif is_whole:
            yield step


def step_of(hf: Holdfast, checkpoint: Checkpoint) -> Step:
    """Return the row of one checkpoint. Raises NotFound if it was deleted."""
    found = _timeline(hf, checkpoint.thread, before=checkpoint.seq + 1, limit=1, calls=True, is_whole=True)
    if not found.steps or found.steps[0].checkpoint.id != checkpoint.id:
        # Deleted meanwhile: load raises NotFound.
        hf.thread(checkpoint.thread).load(checkpoint)
    return found.steps[0]


def neighbour(hf: Holdfast, checkpoint: Checkpoint, by: int) -> str | None:
    """Return the id of the checkpoint that is `by` seqs later; None if there is none, or it was deleted."""
    number = existing(hf, checkpoint.thread).position.thread
    row = Readable(hf).checkpoint(number, checkpoint.seq + by)
    return None if row is None or row.deleted else to_text(row.id)


def sampled(hf: Holdfast, thread: str, most: int) -> list[Checkpoint]:
    """Return at most so many evenly spaced ancestors of the head, oldest first."""
    readable, row = Readable(hf), existing(hf, thread)
    lanes, head = Lanes.of(readable, row), row.position.head
    count = min(head, most)
    seqs = (1 + round(at * (head - 1) / max(count - 1, 1)) for at in range(count))
    found = [readable.checkpoint(row.position.thread, seq) for seq in seqs if lanes.leads_to_head(seq)]
    return [checkpoint_of(row.name, each) for each in found if each and not each.deleted and readable.meta(each)]


def _rows(readable: Readable, thread: ThreadRow, before: int | None, limit: int) -> tuple[list[CheckpointRow], bool]:
    """Return a page of checkpoints, and whether it is the last page."""
    rows: list[CheckpointRow] = []
    for row, _ in readable.checkpoints(thread, before=before, page=limit + 1):
        if len(rows) == limit:
            return rows, False
        rows.append(row)
    return rows, True


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


def _calls(readable: Readable, thread: ThreadRow, lanes: Lanes, rows: list[CheckpointRow]) -> dict[int, list[Call]]:
    """Return the calls of a page by the seq of the checkpoint that ended their step.

    Calls of a step that was open when its branch was abandoned belong to the last checkpoint of the branch.
    """
    if not rows:
        return {}
    number = thread.position.thread
    oldest = rows[-1]
    below = _before(readable, number, oldest)
    high = (branch_of(rows[0]), _last_step(thread, lanes, rows[0]))
    found: dict[int, list[Call]] = {}
    ordered = rows[::-1]
    at = 0
    for entry in rows_between(readable.store, number, below, high):
        place = (entry.branch, entry.step)
        while at < len(ordered) - 1 and (branch_of(ordered[at]), ordered[at].step) < place:
            following = ordered[at + 1]
            if branch_of(following) > entry.branch:
                break  # its step was open when the branch was abandoned
            at += 1
        found.setdefault(ordered[at].seq, []).append(call_of(entry))
    return found


def _before(readable: Readable, number: int, row: CheckpointRow) -> tuple[int, int]:
    """Return the (branch, step) up to which calls belong to earlier checkpoints."""
    if row.seq > 1:
        older = readable.checkpoint(number, row.seq - 1)
        if older is not None and branch_of(older) == branch_of(row):
            return (branch_of(older), older.step)
    return (branch_of(row), -1)


def _last_step(thread: ThreadRow, lanes: Lanes, row: CheckpointRow) -> int:
    """Return the last step whose calls belong to a checkpoint: its own, or all after it if its branch was abandoned."""
    extent = lanes.extent(branch_of(row))
    is_last = extent is not None and extent[1] == row.seq
    if is_last and branch_of(row) != branch_of(thread.position):
        return END
    return row.step


def _open_calls(store: Store, thread: ThreadRow) -> tuple[Call, ...]:
    if thread.summary.agent == graphs.AGENT:
        entries = graphs.tool_entries(store, thread.name, thread.summary.updated_at)
        return tuple(call_of(entry) for entry in entries if is_shown(entry.kind, entry.status))
    branch, step = branch_of(thread.position), thread.summary.step
    rows = rows_between(store, thread.position.thread, (branch, step), (branch, END))
    return tuple(call_of(row) for row in rows)


def _resumptions(
    readable: Readable, thread: ThreadRow, run: RunRow | None, lanes: Lanes, rows: list[CheckpointRow]
) -> dict[int, list[Resumption]]:
    shown = {row.seq: row for row in rows}
    found: dict[int, list[Resumption]] = {}
    for claim in () if run is None else run.claims:
        head = shown.get(claim.head)
        if head is not None:
            after: Literal["crash"] | Status = "crash" if claim.found == "running" else claim.found
            answered = _answered(readable, thread.position.thread, claim, head, lanes)
            resumption = Resumption(at=moment(claim.at), fence=claim.fence, after=after, answered=answered)
            found.setdefault(claim.head, []).append(resumption)
    return found


def _answered(readable: Readable, number: int, claim: PastClaim, head: CheckpointRow, lanes: Lanes) -> int:
    """Count the calls that were replayed for a claim, as far as later entries show.

    A program makes its calls in order. So calls before an entry that this or a later claim recorded were replayed, and
    so were all older calls of a step that was completed.
    """
    extent = lanes.extent(claim.branch)
    closing = None if extent is None else max(claim.head + 1, extent[0])
    closed = None if extent is None or closing is None or closing > extent[1] else readable.checkpoint(number, closing)
    high = (claim.branch, END if closed is None else closed.step)
    entries = list(rows_between(readable.store, number, (claim.branch, head.step), high))
    written = [entry.number for entry in entries if (entry.ended_at or entry.started_at) > claim.at]
    until = max(written, default=0) if closed is None else END
    return sum(
        _was_known(entry) and entry.ended_at is not None and entry.ended_at <= claim.at and entry.number < until
        for entry in entries
    )


def _was_known(entry: Entry) -> bool:
    return entry.status in ("done", "given_up") and entry.kind != "undo"


# -- forks -------------------------------------------------------------------------------------------------------------


def kin(hf: Holdfast, thread: ThreadRow) -> tuple[str | None, dict[int, list[str]]]:
    """Return the origin of a fork as a reference, and the names of the thread's forks by the seq they start at."""
    return _kin(Readable(hf), thread)


def parent_of(hf: Holdfast, checkpoint: Checkpoint) -> FoundCheckpoint | None:
    """Return the parent of a checkpoint, which may be in the thread it was forked from; None if it was deleted."""
    own = f"{checkpoint.thread}@{checkpoint.parent}"
    origin = kin(hf, existing(hf, checkpoint.thread))[0] if checkpoint.seq == 1 else None
    with suppress(NotFound):
        return None if checkpoint.parent is None else find(hf, origin or own)
    return None


def _kin(readable: Readable, thread: ThreadRow) -> tuple[str | None, dict[int, list[str]]]:
    number = thread.position.thread
    first = readable.checkpoint(number, 1)
    origin = None if first is None or first.parent is None or not first.parent[0] else first.parent
    forked: dict[int, int] = {}
    for fork in readable.store.forks(number):
        started = readable.checkpoint(fork, 1)
        if started is not None and started.parent is not None and started.parent[0] == number:
            forked[fork] = started.parent[1]
    names = _names(readable.store, {*forked, *(() if origin is None else (origin[0],))})
    forks: dict[int, list[str]] = {}
    for fork, seq in forked.items():
        if fork in names:
            forks.setdefault(seq, []).append(names[fork])
    return None if origin is None else _origin(readable, origin, names), forks


def _origin(readable: Readable, origin: tuple[int, int], names: dict[int, str]) -> str:
    name = names.get(origin[0], "")
    row = readable.checkpoint(*origin)
    return f"{name}@{origin[1] if row is None else to_text(row.id)}"


def _names(store: Store, numbers: Iterable[int]) -> dict[int, str]:
    """Return the names of threads by number, without deleted and unreadable threads."""
    found = {number: thread_numbered(store, number).name for number in numbers}
    return {number: name for number, name in found.items() if isinstance(name, str)}
