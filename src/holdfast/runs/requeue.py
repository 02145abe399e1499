"""Queue the run of a thread again for a worker, or the first run of a fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.errors import Conflict, InvalidArgument, NotFound
from holdfast.runs.record import is_free, now, queued
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.threads.ancestry import branch_of
from holdfast.threads.scan import checkpoint_at, thread_numbered


class Requeue(NamedTuple):
    """A run that can be queued for workers with its handler. `found` is what the decision is based on.

    `queue` raises Conflict if the run has changed since.
    """

    handler: str
    found: tuple[str, int]
    is_first: bool
    queue: Callable[[], None]


def requeue_of(store: Store, thread: ThreadRow) -> Requeue:
    """Return how to queue the run of a thread. A fork without a run gets one with the handler of its origin.

    NotFound if the thread has no run and is not a fork of a thread with one, InvalidArgument if the run has no handler,
    Conflict if it is completed, queued or waiting, or if a process holds it.
    """
    run = store.run(thread.position.thread)
    if run is None:
        return _first(store, thread)
    if run.handler is None:
        raise InvalidArgument("the run has no handler, so no worker can take it; resume it with the program")
    if run.status in ("completed", "queued", "waiting") or (run.status == "running" and not is_free(store, run)):
        raise Conflict(f"the run is {run.status}, so it cannot be resumed")

    def queue() -> None:
        # The person who resumes it has seen why earlier attempts failed, so the count starts again.
        store.claim(run, replace(queued(run), attempt=0, owner=None, lease_until=0))

    return Requeue(run.handler, (run.status, run.fence), is_first=False, queue=queue)


def _first(store: Store, thread: ThreadRow) -> Requeue:
    origin = _origin_run(store, thread)
    if origin is None:
        raise NotFound(f"thread {quoted(thread.name)} has no run to resume")
    handler, version = origin.handler, origin.version
    if handler is None:
        raise InvalidArgument("the run of the origin has no handler, so no worker can take the fork")
    position = thread.position
    row = RunRow(
        thread=position.thread,
        status="queued",
        fence=1,
        branch=branch_of(position),
        began=position.last,
        handler=handler,
        version=version,
        agent=origin.agent,
        created_at=now(),
        updated_at=now(),
    )

    def queue() -> None:
        store.claim(None, row)

    return Requeue(handler, ("fork", position.last), is_first=True, queue=queue)


def _origin_run(store: Store, thread: ThreadRow) -> RunRow | None:
    """Return the run of the thread that this one was forked from, or of its origin, if that has a run."""
    number, seen = thread.position.thread, set[int]()
    while number not in seen:
        seen.add(number)
        first = checkpoint_at(store, number, 1)
        if first is None or first.parent is None or not first.parent[0]:
            return None
        number = first.parent[0]
        if thread_numbered(store, number).name is None:
            return None
        run = store.run(number)
        if run is not None:
            return run
    return None
