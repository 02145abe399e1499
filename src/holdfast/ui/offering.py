"""Checks whether an action is possible on a thread now, used by the forms and by the actions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.errors import Conflict, Damaged, HoldfastError, InvalidArgument, NotFound
from holdfast.looking.nearest import existing
from holdfast.runs.record import is_free, queued
from holdfast.threads import branches
from holdfast.threads.refs import find_row
from holdfast.types import Checkpoint
from holdfast.ui.view import View


class Resumable(NamedTuple):
    """A run that can be queued for a worker with its handler."""

    handler: str
    stands: tuple[str, int]
    queue: Callable[[], None]


def resumable(view: View, thread: str) -> Resumable:
    """Return the run of a thread if it can be queued. Raises NotFound, InvalidArgument or Conflict if not."""
    store = view.hf.context.store
    run = store.run(existing(view.hf, thread).position.thread)
    if run is None:
        raise NotFound("this thread has no run to resume")
    if run.handler is None:
        raise InvalidArgument(
            "the run has no handler, so no worker can take it; resume it with the Python code shown on this page"
        )
    if run.status in ("completed", "queued", "waiting") or (run.status == "running" and not is_free(store, run)):
        raise Conflict(f"the run is {run.status}, so it cannot be resumed")

    def queue() -> None:
        # The user has seen why earlier attempts failed, so the count starts again.
        store.claim(run, replace(queued(run), attempt=0, owner=None, lease_until=0))

    return Resumable(run.handler, (run.status, run.fence), queue)


def cancellable(view: View, thread: str) -> None:
    """Raise NotFound if a thread has no run, Conflict if the run has ended."""
    run = view.hf.context.store.run(existing(view.hf, thread).position.thread)
    if run is None:
        raise NotFound("this thread has no run to cancel")
    if run.status in ("completed", "halted"):
        raise Conflict(f"the run is {run.status}, so it cannot be cancelled")


def can_be_resumed(view: View, thread: str) -> bool:
    with suppress(NotFound, InvalidArgument, Conflict, Damaged):
        resumable(view, thread)
        return True
    return False


def can_be_cancelled(view: View, thread: str) -> bool:
    with suppress(NotFound, Conflict, Damaged):
        cancellable(view, thread)
        return True
    return False


def can_be_labelled(view: View, checkpoint: Checkpoint) -> bool:
    try:
        labellable(view, checkpoint)
    except HoldfastError:
        return False
    return True


def labellable(view: View, checkpoint: Checkpoint) -> None:
    """Raise Conflict if a checkpoint cannot be labelled because its thread has a run."""
    store = view.hf.context.store
    row = existing(view.hf, checkpoint.thread)
    branches.require_run_unaffected(store, row, find_row(store, row, checkpoint))
