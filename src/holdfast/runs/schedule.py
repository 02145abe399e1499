"""Schedules: runs that start again and again. A schedule is a run of its own, which sleeps until the next time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

import msgspec

from holdfast.errors import Conflict, InvalidArgument, NotFound, NotInstalled
from holdfast.runs.run import Run
from holdfast.runs.work_queue import submit
from holdfast.text import quoted
from holdfast.threads.context import Context
from holdfast.threads.scan import thread_named
from holdfast.threads.thread import Thread, checked_name
from holdfast.types import ScheduleInfo

HANDLER: Final = "holdfast.schedule"
FOLDER: Final = "schedules/"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a schedule: a run to start, every so many seconds or by a cron expression."""

    handler: str
    start: Any
    every: float | None = None
    cron: str | None = None
    timezone: str = "UTC"
    version: str | None = None

    def check(self) -> None:
        """InvalidArgument unless there is a next time."""
        if (self.every is None) == (self.cron is None):
            raise InvalidArgument("a schedule needs either every= or cron=")
        if self.every is not None and (type(self.every) not in (int, float) or not 1 <= self.every <= 366 * 86_400):
            raise InvalidArgument("every must be seconds, from 1 to a year")
        self.after(_now())

    def after(self, at: datetime) -> datetime:
        """The first time after another."""
        return at + timedelta(seconds=self.every) if self.every is not None else self._cron(at)

    def newest(self, first: datetime, now: datetime) -> datetime:
        """The last time from `first` up to now. `first` if the wall clock of this machine has not reached it."""
        if self.every is None:
            return max(first, self._cron(now + timedelta(seconds=1), reverse=True))
        missed = max(math.floor((now - first).total_seconds() / self.every), 0)
        return first + timedelta(seconds=missed * self.every)

    def _cron(self, at: datetime, *, reverse: bool = False) -> datetime:
        try:
            from cronsim import CronSim, CronSimError  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise NotInstalled(
                'cron= needs the extra "cron"; nothing was scheduled. Run pip install "holdfast[cron]".'
            ) from error
        try:
            return next(CronSim(self.cron or "", at.astimezone(_zone(self.timezone)), reverse=reverse))
        except (CronSimError, StopIteration) as error:
            raise InvalidArgument(f"{quoted(self.cron or '')} is not a cron expression with a next time") from error


def _now() -> datetime:
    return datetime.fromtimestamp(math.floor(time.time()), UTC)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only needed for cron expressions

    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"timezone {name!r} is not the name of a time zone, like 'Europe/Berlin'") from error


def add(context: Context, name: str, schedule: Schedule) -> None:
    """Store a schedule. Stored again, the same changes nothing; another one is a Conflict."""
    checked_name(name)
    schedule.check()
    thread = Thread(context, f"{FOLDER}{name}")
    plan = msgspec.to_builtins(schedule) | {"start": thread.saver.plain(schedule.start)}
    following = schedule.after(_now())
    state = {"plan": plan, "next": following.isoformat(), "last": None}
    try:
        submit(context.store, thread.saver, thread.name, HANDLER, state, None, following)
    except Conflict:
        found = thread.latest()
        if found is None or found.state.get("plan") != plan:
            raise Conflict(
                f"schedule {quoted(name)} exists with another plan; nothing was changed. Remove it with "
                f"hf.unschedule({quoted(name)}), or use another name."
            ) from None


def remove(context: Context, name: str) -> None:
    """Remove a schedule. Runs that it started are not changed."""
    checked_name(name)
    if thread_named(context.store, f"{FOLDER}{name}") is None:
        raise NotFound(f"there is no schedule {quoted(name)}; hf.schedules() lists them")
    Thread(context, f"{FOLDER}{name}").drop()


def listed(context: Context, names: Iterator[str]) -> Iterator[ScheduleInfo]:
    """The schedules of these threads."""
    for name in names:
        found = Thread(context, name).latest()
        if found is not None and "plan" in found.state:
            plan, last = found.state["plan"], found.state["last"]
            yield ScheduleInfo(
                name=name.removeprefix(FOLDER),
                handler=plan["handler"],
                every=plan["every"],
                cron=plan["cron"],
                timezone=plan["timezone"],
                version=plan["version"],
                next=datetime.fromisoformat(found.state["next"]),
                last=None if last is None else datetime.fromisoformat(last),
            )


def handler(context: Context) -> Callable[[Run], None]:
    """Make the handler of schedules, which every worker has."""

    def keep(run: Run) -> None:
        schedule = msgspec.convert(run.state["plan"], Schedule)
        for _ in run.steps():
            first = datetime.fromisoformat(run.state["next"])
            run.sleep(max(first.timestamp() - time.time(), 0.0))
            # For all the times that no worker was there for, one run is started.
            due = schedule.newest(first, _now())
            thread = f"{run.thread.removeprefix(FOLDER)}/{due.isoformat(timespec='seconds')}"
            saver = Thread(context, thread).saver
            submit(context.store, saver, thread, schedule.handler, schedule.start, schedule.version)
            run.state |= {"last": due.isoformat(), "next": schedule.after(due).isoformat()}
            run.save()

    return keep
