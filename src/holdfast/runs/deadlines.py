"""Deadlines of calls and waits, and whether a call may still act."""

from __future__ import annotations

from holdfast.errors import Conflict
from holdfast.runs.record import now
from holdfast.stores.contract_runs import Clock, Deadline, Entry
from holdfast.threads.metadata import moment
from holdfast.threads.process import is_alive


def may_act(entry: Entry, clock: Clock) -> bool:
    """Whether a call certainly may still act: before its deadline, or in a process that is alive."""
    if entry.deadline is not None and not has_passed(entry.deadline, clock):
        return True
    return entry.owner is not None and is_alive(entry.owner)


def require_over(entry: Entry, clock: Clock, advice: str) -> None:
    """Conflict if a call may still act."""
    if not may_act(entry, clock):
        return
    if entry.deadline is not None and not has_passed(entry.deadline, clock):
        until = f"until {moment(entry.deadline.wall).isoformat(sep=' ', timespec='seconds')}"
    else:
        until = f"because process {entry.owner.pid} is still running its function" if entry.owner is not None else ""
    raise Conflict(
        f"{entry.name} (call {entry.number}) may still act {until}; nothing was changed. If it is called again now, it "
        f"may happen twice. {advice}, or pass force=True if you know that it can no longer act."
    )


def has_passed(deadline: Deadline, clock: Clock) -> bool:
    """Whether a time has passed. If its clock no longer exists, the wall clock decides."""
    return clock.has_reached(deadline.at) if clock.id == deadline.clock else now() >= deadline.wall


def on_clock(deadline: Deadline, clock: Clock) -> Deadline:
    """The same time on a clock. If its own clock no longer exists, it is computed from the wall clock."""
    if deadline.clock == clock.id:
        return deadline
    return Deadline(clock.id, clock.now + max((deadline.wall - now()) // 1000, 0), deadline.wall)


def deadline_in(seconds: float, clock: Clock) -> Deadline:
    """The time in so many seconds."""
    return Deadline(clock.id, clock.now + round(seconds * 1000), now() + round(seconds * 1_000_000))
