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
    started = 0 if found is None else found[1]
    return Owner(os.uname().nodename, _boot(), _namespace_of("pid"), pid, started, _namespace_of("time"))


def is_dead(owner: Owner) -> bool:
    """Whether a process is proven to be dead. False if this machine cannot tell: then the lease decides."""
    return _is_alive(owner) is False


def is_alive(owner: Owner) -> bool:
    """Whether a process is proven to be alive."""
    return _is_alive(owner) is True


def _is_alive(owner: Owner) -> bool | None:
    """Whether a process is alive; None if this machine cannot prove either.

    Host names and process ids are not unique. Only the same boot and the same namespace of process ids prove anything.
    """
    here = this_process()
    if not (owner.boot and owner.pid_namespace):
        return None
    if (owner.host, owner.boot, owner.pid_namespace) != (here.host, here.boot, here.pid_namespace):
        return None
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # the process exists and belongs to another user
    found = _stat(owner.pid)
    if found is None:
        return None
    state, started = found
    if state in ("Z", "X"):  # its main thread has ended, and its parent has not collected it yet
        return None if _has_other_threads(owner.pid) else False
    if not owner.started or owner.time_namespace != here.time_namespace:
        return None  # each time namespace shows other start times
    return owner.started == started  # if it differs, the number is in use again by a process that started later


def free_if_dead(store: Store, thread: int, held: LeaseHeld) -> None:
    """Release the lease of a thread's run if its process is proven dead. Raise `held` otherwise.

    The run stays interrupted. LeaseHeld if another process claims it at the same moment.
    """
    run = store.run(thread)
    if run is None or run.owner is None or not is_dead(run.owner):
        if run is not None and run.owner == this_process():
            raise LeaseHeld("this process runs the thread; nothing was changed. Leave that block first.") from held
        raise held
    try:
        store.claim(run, replace(run, owner=None, lease_until=0, fence=run.fence + 1))
    except Conflict:
        raise LeaseHeld(
            "another process has just taken the thread; nothing was changed. Try again when its run has ended."
        ) from None


def _boot() -> str:
    """The id of this boot; empty on systems other than Linux, so there the lease decides."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace_of(kind: str) -> int:
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
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


def _has_other_threads(pid: int) -> bool:
    """Whether threads of a process are left after its main thread. They may still be in a system call."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False
