"""The process that holds a run: its identity, whether it is dead, and releasing the lease of a dead one."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from msgspec.structs import replace

from holdfast.errors import Conflict, LeaseHeld
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Owner

_START_TIME_FIELD = 19  # of /proc/PID/stat, counted from the closing parenthesis of the command


def this_process() -> Owner:
    """The identity of the calling process. A forked child has another one."""
    return _process(os.getpid())


@functools.lru_cache(maxsize=4)
def _process(pid: int) -> Owner:
    found = _stat(pid)
    return Owner(os.uname().nodename, _boot(), _pid_namespace(), pid, 0 if found is None else found[1])


def is_dead(owner: Owner) -> bool:
    """Whether a process is proven to be dead. False if this machine cannot tell: then the lease decides."""
    here = this_process()
    if (owner.host, owner.boot, owner.pid_namespace) != (here.host, here.boot, here.pid_namespace):
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # the process exists and belongs to another user
    found = _stat(owner.pid)
    if found is None:
        return False
    state, started = found
    # A zombie that its parent has not collected yet, or a number in use again by a process that started later.
    return state in ("Z", "X") or owner.started not in (0, started)


def free_if_dead(store: Store, thread: int, held: LeaseHeld) -> None:
    """Release the lease of a thread's run if its process is proven dead. Raise `held` otherwise.

    The run stays interrupted. LeaseHeld if another worker takes it at the same moment.
    """
    run = store.run(thread)
    if run is None or run.owner is None or not is_dead(run.owner):
        if run is not None and run.owner == this_process():
            raise LeaseHeld("this process runs the thread; nothing was changed. Leave that block first.") from held
        raise held
    try:
        store.claim(run, replace(run, owner=None, lease_until=0, fence=run.fence + 1))
    except Conflict:
        raise LeaseHeld("another process has just taken the thread; nothing was changed") from None


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
    """The state of a process and its start time in ticks since boot; None if there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[_START_TIME_FIELD])
