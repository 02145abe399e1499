"""Parents and children as a store has them: which threads are whose, and who waits for whom."""

from __future__ import annotations

from holdfast.errors import Conflict
from holdfast.runs.recovery import queued
from holdfast.stores.contract import Store
from holdfast.stores.running import RunRow

CHILD_MARK = "child"


def thread_of(parent: str, name: str, branch: int) -> str:
    """The name of a child's thread. After a rewind of its parent, it is another one."""
    return f"{parent}/{name}" if not branch else f"{parent}/{name}~{branch}"


def name_of(thread: str) -> str:
    """The name that the child of a thread was given."""
    return thread.rpartition("/")[2].partition("~")[0]


def wake_parents(store: Store, run: RunRow | None) -> None:
    """Queue the runs that wait because a child of theirs did."""
    while run is not None and run.parent is not None:
        thread = store.thread(run.parent)
        run = None if thread is None else store.run(thread.position.thread)
        if run is not None and run.status == "waiting":
            if run.question:
                return  # it waits for something else, and so do those above it: its answer wakes them
            try:
                store.claim(run, queued(run))
            except Conflict:
                return  # somebody took it up: then it sees its child by itself


def open_children(store: Store, thread: int) -> list[str]:
    """The threads of the children that a run has begun and that did not complete."""
    return [row.name for row in store.marked(thread, CHILD_MARK) if row.status in ("begun", "failed")]
