"""Interrupted runs: those that were left unfinished. List them, and resume those for which a program has handlers."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import InvalidArgument, LeaseHeld
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.handlers import Handler, Handlers, checked_count
from holdfast.runs.open_entries import is_saved_outside, open_entries, place_of, unsettled_before
from holdfast.runs.record import DOUBTFUL, UNFINISHED, each_run, effect_of, is_free, resume_step
from holdfast.runs.run import RunBlock
from holdfast.runs.status import info_of
from holdfast.runs.tools import Tools
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads.ancestry import branch_of
from holdfast.threads.context import Context
from holdfast.threads.metadata import moment
from holdfast.threads.scan import thread_named
from holdfast.types import InterruptedRun, RunInfo


def interrupted(store: Store, tools: Tools) -> Iterator[InterruptedRun]:
    """The runs that were left unfinished, oldest first, and what a resume would do with each."""
    for name, row in each_run(store, UNFINISHED):
        # A child that was released or failed is left to its parent, which may wait or continue without it.
        if is_free(store, row) and (row.parent is None or row.status == "running"):
            thread = thread_named(store, name)
            if thread is not None:
                yield _interrupted(store, tools, thread, row)


def _interrupted(store: Store, tools: Tools, thread: ThreadRow, row: RunRow) -> InterruptedRun:
    step = resume_step(row, thread)
    branch = branch_of(thread.position)
    last = store.last_entry(row.thread)
    if is_saved_outside(store, row, thread):  # a resume asks about a call in doubt, and closes all others
        unsettled = unsettled_before(store, row, last)
        rows = [] if unsettled is None else [unsettled]
    else:
        rows = open_entries(store, row.thread, row.closed, last, step, branch)
    open_rows = {place_of(effect): effect for effect in rows}.values()  # the newest of each call
    unended = [e for e in open_rows if e.status in DOUBTFUL]
    replayed = sum(e.status == "done" for e in open_rows)
    plan = [f"resume after step {step}", f"answer {replayed} call{'s' * (replayed != 1)} from the journal"]
    plan += [_next_action(tools, effect) for effect in unended]
    doubtful = [e for e in unended if e.kind != "child"]
    if row.parent is not None:
        plan.append(f"only through its parent, {quoted(row.parent)}")
    if row.version is not None:
        plan.append(f"needs a worker of version {quoted(row.version)}")
    return InterruptedRun(
        thread=thread.name,
        status=row.status,
        reason=row.reason,
        step=step,
        attempt=row.attempt,
        since=moment(row.updated_at),
        in_doubt=tuple(effect_of(effect) for effect in doubtful),
        plan="; ".join(plan),
    )


def _next_action(tools: Tools, entry: Entry) -> str:
    """The action of a resume for a call that has no recorded result."""
    if entry.kind == "child":
        return f"resume the child {quoted(entry.name)}"
    call = f"{entry.name} (call {entry.number})"
    if entry.kind == "undo":
        return f"the undo of {call} is in doubt: settle it with hf.settle"
    if entry.status == "unstored":
        return f"{call} was made and its result could not be stored: settle it with hf.settle"
    tool = tools.of(entry.name, entry.key)
    if tool is None:
        return f"{call} is in doubt, and its tool is not registered here"
    return f"{call} is in doubt: in_doubt={tool.in_doubt!r}"


# -- resuming them --------------------------------------------------------------------------------------------------


class Recovery:
    """The interrupted runs for which a program has handlers, each to be resumed once."""

    def __init__(self, context: Context, tools: Tools, handlers: Handlers, *, lease: float, attempts: int) -> None:
        self._attempts = checked_count("attempts", attempts)
        self._terms = ClaimTerms(lease=lease)
        self._context = context
        self._tools = tools
        self._handlers = handlers

    def due(self) -> list[tuple[ClaimRequest, Handler]]:
        """The requests to claim them. A run that failed in so many attempts is left to a person."""
        store = self._context.store
        found: list[tuple[ClaimRequest, Handler]] = []
        for name, row in each_run(store, UNFINISHED):
            handler = self._handlers.of(row)
            if handler is not None and row.attempt < self._attempts and is_free(store, row):
                options = self._handlers.options(handler)
                request = options.request(self._context, name, self._terms, self._tools, row)
                found.append((request, handler))
        return found

    def info(self, request: ClaimRequest) -> Iterator[RunInfo]:
        """The status of a run that was resumed, unless its thread was dropped meanwhile."""
        thread = thread_named(self._context.store, request.thread)
        found = None if thread is None else info_of(self._context.store, thread)
        if found is not None:
            yield found

    def run(self) -> list[RunInfo]:
        """Resume the runs one after the other. The status of each afterwards."""
        if self._handlers.has_async:
            raise InvalidArgument("recover cannot await async handlers; use hf.aio.recover")
        resumed: list[RunInfo] = []
        for request, handler in self.due():
            if resume(request, handler):
                resumed += self.info(request)
        return resumed


def resume(request: ClaimRequest, handler: Handler) -> bool:
    """Run one run. False if another process was faster. If the handler fails, the run's record has the reason."""
    try:
        with RunBlock(request) as run:
            result = handler(run)
            if run.status == "running":
                run.finish(result)
    except LeaseHeld:
        return False
    except Exception:  # noqa: BLE001 - the other runs must not wait for this one
        return True
    return True
