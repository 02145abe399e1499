"""What can be done with a thread as it stands. What would be refused is not offered, by the same rule."""

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
    """A run that a worker could go on with: one that has its handler, once it is queued."""

    handler: str
    stands: tuple[str, int]
    queue: Callable[[], None]


def resumable(view: View, thread: str) -> Resumable:
    """The run of a thread, if a worker could go on with it. NotFound, InvalidArgument or Conflict if none could."""
    store = view.hf._session.store
    run = store.run(existing(view.hf, thread).position.thread)
    if run is None:
        raise NotFound("no run was begun on this thread: there is nothing to resume")
    if run.handler is None:
        raise InvalidArgument(
            "its run names no handler, so no worker can take it; go on with it by the line of code shown"
        )
    if run.status in ("completed", "queued", "waiting") or (run.status == "running" and not is_free(store, run)):
        raise Conflict(f"its run is {run.status}: there is nothing to resume")

    def queue() -> None:
        # Whoever asks for it has seen why the attempts before failed: they do not count.
        store.claim(run, replace(queued(run), attempt=0, owner=None, lease_until=0))

    return Resumable(run.handler, (run.status, run.fence), queue)


def cancellable(view: View, thread: str) -> None:
    """NotFound if a thread has no run that could be halted, Conflict if that has ended."""
    run = view.hf._session.store.run(existing(view.hf, thread).position.thread)
    if run is None:
        raise NotFound("no run was begun on this thread: there is nothing to cancel")
    if run.status in ("completed", "halted"):
        raise Conflict(f"its run is {run.status}: there is nothing to cancel")


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
    """Conflict if a checkpoint cannot be labelled: its thread has a run."""
    store = view.hf._session.store
    row = existing(view.hf, checkpoint.thread)
    branches._require_no_run(store, row, find_row(store, row, checkpoint))
