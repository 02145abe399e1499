"""Submit a run to the queue of workers, to start at once or at a time."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from holdfast.errors import Conflict, InvalidArgument
from holdfast.runs.deadlines import deadline_in
from holdfast.runs.record import now, start_digest
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.threads.save import NEW, Saver
from holdfast.threads.scan import thread_named
from holdfast.types import Status

_HIGHEST_PRIORITY: Final = 100


def submit(
    store: Store,
    saver: Saver,
    name: str,
    handler: str,
    start: Any,
    version: str | None,
    at: datetime | None = None,
    priority: int = 0,
) -> None:
    """Queue a run for any worker, at once or at a time.

    Submitted again, the same start changes nothing; another one is a Conflict.
    """
    if type(handler) is not str or not handler:
        raise InvalidArgument("the name of a handler must be a non-empty string")
    if version is not None and (type(version) is not str or not version):
        raise InvalidArgument("version must be a non-empty string")
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidArgument("at must be a datetime with a time zone, like datetime.now(UTC) + timedelta(hours=1)")
    if type(priority) is not int or not -_HIGHEST_PRIORITY <= priority <= _HIGHEST_PRIORITY:
        raise InvalidArgument(f"priority must be a whole number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}")
    seconds = 0.0 if at is None else at.timestamp() - time.time()
    status: Status = "waiting" if seconds > 0 else "queued"
    request = saver.request(start, is_of_run=True, trigger="submit", step=0, status=status)
    digest = start_digest(request.state)
    row = RunRow(
        thread=0,
        status=status,
        fence=1,
        branch=0,
        began=1,
        handler=handler,
        version=version,
        start=digest,
        trace=saver.trace,
        created_at=now(),
        updated_at=now(),
        priority=priority,
    )
    if at is not None and seconds > 0:
        until = deadline_in(seconds, store.clock())
        reason = f"starts at {at.isoformat(sep=' ', timespec='seconds')}"
        row = replace(row, reason=reason, clock=until.clock, wake_at=until.at, wake_wall=until.wall)
    try:
        saver.commit(saver.prepare(request, NEW), run=row)
    except Conflict:
        thread = thread_named(store, name)
        known = None if thread is None else store.run(thread.position.thread)
        if known is None or known.start != digest or known.handler != handler:
            raise Conflict(
                f"thread {quoted(name)} exists with another start or handler; nothing was queued. "
                "Submit under another name."
            ) from None
