"""Progress: how far a run says it is. It rides with what is written anyway, and is no promise."""

from __future__ import annotations

import math

from holdfast import types
from holdfast.errors import InvalidArgument
from holdfast.runs.journal import now
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.running import Progress
from holdfast.threads.metadata import moment


def said(done: object, total: object, note: object) -> Progress:
    """What a run says of how far it is, checked."""
    if note is not None and type(note) is not str:
        raise InvalidArgument("progress: note must be a text")
    return Progress(_amount("done", done), None if total is None else _amount("total", total), note, now())


def progress_of(store: Store, thread: ThreadRow) -> types.Progress | None:
    """What the run of a thread last said, as users get to see it."""
    run = store.run(thread.position.thread)
    if run is None or run.progress is None:
        return None
    stored = run.progress
    return types.Progress(done=stored.done, total=stored.total, note=stored.note, at=moment(stored.at))


def _amount(name: str, number: object) -> float:
    if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number < math.inf:
        raise InvalidArgument(f"progress: {name} must be a number, 0 or more")
    return float(number)
