"""Workers and the queue: which process runs what, and which runs wait for a worker or for a time."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from holdfast.handle import Holdfast
from holdfast.inspect.call_records import question_of
from holdfast.inspect.damage import Readable
from holdfast.runs.record import each_run, is_free
from holdfast.runs.waits import SLEEP
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Clock, RunRow
from holdfast.threads.metadata import moment

_MOST: Final = 500  # runs of each kind


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a process holds, or that waits for a worker or a time.

    `since` is its last change. `lease` is for how many seconds it is still held if it is not renewed. `due` is when a
    run that waits continues by itself. `is_asking` is True for a run that waits for a person. `reason` is why the last
    attempt of a queued run failed.
    """

    thread: str
    handler: str | None
    agent: str | None
    version: str | None
    attempt: int
    priority: int
    since: datetime
    lease: float | None
    due: datetime | None
    is_asking: bool
    reason: str | None


class WorkerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds runs."""

    host: str
    pid: int
    runs: tuple[WorkItem, ...]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that hold runs, the queue in the order in which workers take it, and the runs that wait.

    `is_cut` is True if there are more runs than were read. `lost` are messages about unreadable records.
    """

    workers: tuple[WorkerProcess, ...]
    queued: tuple[WorkItem, ...]
    waiting: tuple[WorkItem, ...]
    is_cut: bool
    lost: tuple[str, ...]


def work(hf: Holdfast) -> Work:
    """Return the work of a store: running, queued and waiting runs."""
    readable = Readable(hf)
    store = readable.store
    clock = store.clock()
    found = {status: list(islice(each_run(store, (status,)), _MOST + 1)) for status in ("running", "queued", "waiting")}
    workers: dict[tuple[str, int], list[WorkItem]] = {}
    for name, run in found["running"][:_MOST]:
        if run.owner is not None and not is_free(store, run, clock):
            workers.setdefault((run.owner.host, run.owner.pid), []).append(_item(store, name, run, clock))
    queued = sorted(found["queued"][:_MOST], key=lambda each: (-each[1].priority, each[1].updated_at))
    return Work(
        workers=tuple(
            WorkerProcess(host=host, pid=pid, runs=tuple(runs)) for (host, pid), runs in sorted(workers.items())
        ),
        queued=tuple(_item(store, name, run, clock) for name, run in queued),
        waiting=tuple(_item(store, name, run, clock) for name, run in found["waiting"][:_MOST]),
        is_cut=any(len(runs) > _MOST for runs in found.values()),
        lost=readable.lost,
    )


def _item(store: Store, name: str, run: RunRow, clock: Clock) -> WorkItem:
    is_held = run.status == "running" and run.lease_until and run.clock == clock.id
    question = question_of(store, run)
    return WorkItem(
        thread=name,
        handler=run.handler,
        agent=run.agent,
        version=run.version,
        attempt=run.attempt,
        priority=run.priority,
        since=moment(run.updated_at),
        lease=max(run.lease_until - clock.now, 0) / 1000 if is_held else None,
        due=due_of(run, clock),
        is_asking=question is not None and question.name != SLEEP,
        reason=run.reason if run.status == "queued" else None,
    )


def due_of(run: RunRow, clock: Clock) -> datetime | None:
    """Return when a run that waits for a time continues; None if it waits for none, or the time has passed."""
    if not run.wake_at:
        return None
    if run.clock != clock.id:
        due = moment(run.wake_wall)
        return due if due.timestamp() > time.time() else None
    if run.wake_at <= clock.now:
        return None
    return moment(int((time.time() + (run.wake_at - clock.now) / 1000) * 1_000_000))
