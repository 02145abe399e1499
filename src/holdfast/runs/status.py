"""The run of a thread as users see it: its status, its journal, its result and its progress."""

from __future__ import annotations

from typing import Any

from holdfast import types
from holdfast.codec import msgpack
from holdfast.runs.record import UNFINISHED, effect_of, is_free
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.threads import scan
from holdfast.threads.metadata import moment
from holdfast.types import Effect, RunInfo


def effects_of(store: Store, thread: ThreadRow) -> list[Effect]:
    """The calls in the journal of a thread, oldest first."""
    return [effect_of(row) for row in scan.entries(store, thread.position.thread) if row.kind != "write"]


def info_of(store: Store, thread: ThreadRow) -> RunInfo | None:
    """The run of a thread as users see it; None if it has none."""
    run = store.run(thread.position.thread)
    if run is None:
        return None
    return RunInfo(
        thread=thread.name,
        status=run.status,
        interrupted=run.status in UNFINISHED and is_free(store, run),
        reason=run.reason,
        attempt=run.attempt,
        turn=run.turn,
        handler=run.handler,
        version=run.version,
        since=moment(run.updated_at),
        result=result_in(run),
        priority=run.priority,
    )


def result_in(run: RunRow) -> Any:
    """The result of a completed run; None if it has none."""
    return None if run.status != "completed" or run.result is None else msgpack.decode(run.result)


def progress_of(store: Store, thread: ThreadRow) -> types.Progress | None:
    """The progress that the run of a thread last reported."""
    run = store.run(thread.position.thread)
    if run is None or run.progress is None:
        return None
    stored = run.progress
    return types.Progress(done=stored.done, total=stored.total, note=stored.note, at=moment(stored.at))
