"""The process that holds a run: its identity, whether it is dead, and freeing its thread."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from holdfast.errors import Conflict, LeaseHeld
from holdfast.stores.contract import Store
from holdfast.stores.running import Owner

_START_TIME_FIELD = 19  # of /proc/PID/stat, counted from behind the command's closing parenthesis


def this_process() -> Owner:
    """The process that asks. Not cached over fork(): a child is another owner."""
    return _process(os.getpid())


@functools.lru_cache(maxsize=4)
def _process(pid: int) -> Owner:
    found = _stat(pid)
    return Owner(os.uname().nodename, _boot(), _pid_namespace(), pid, 0 if found is None else found[1])


def is_dead(owner: Owner) -> bool:
    """Whether the process is proven to be gone. False if that cannot be known from here: then its lease decides."""
    here = this_process()
    if (owner.host, owner.boot, owner.pid_namespace) != (here.host, here.boot, here.pid_namespace):
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is there, and not ours
    found = _stat(owner.pid)
    if found is None:
        return False
    state, started = found
    # Dead and only waiting to be noticed by its parent; or a number in use again, by a process that started later.
    return state in ("Z", "X") or owner.started not in (0, started)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _stat(pid: int) -> tuple[str, int] | None:
    """A process's state, and when it started, in ticks since boot; None if there is no /proc that says so."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[_START_TIME_FIELD])


T = TypeVar("T")


def unless_dead(store: Store, thread: int, verb: Callable[[], T]) -> T:
    """Do something to a thread; once more if it is held by a process that is proven dead. `LeaseHeld` if not proven.

    The run stays as it is, interrupted; only its lease is taken away.
    """
    try:
        return verb()
    except LeaseHeld:
        run = store.run(thread)
        if run is None or run.owner is None or not is_dead(run.owner):
            raise
        try:
            store.claim(run, replace(run, owner=None, lease_until=0, fence=run.fence + 1))
        except Conflict:
            raise LeaseHeld("another worker has just taken the thread; nothing was changed") from None
        return verb()
