"""The clock for leases on this machine: it cannot be set, counts suspended time, and has an id per boot."""

from __future__ import annotations

import ctypes
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from holdfast import forksafe
from holdfast.errors import StoreError
from holdfast.stores.contract_runs import Clock

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_OFFSETS: Final = Path("/proc/self/timens_offsets")
_LONGEST_ID: Final = 64
# Elsewhere (macOS), the monotonic clock counts suspended time.
_SOURCE: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class _TimeNamespace:
    """The time namespace of this process: a container may see the clock of its machine with an offset, in ms."""

    def __init__(self) -> None:
        self.read()

    def read(self) -> None:
        self.offset = 0
        with suppress(OSError, ValueError, IndexError):  # before Linux 5.6, and elsewhere
            for line in _OFFSETS.read_text(encoding="ascii").splitlines():
                name, seconds, nanoseconds = line.split()
                if name == "boottime":
                    self.offset = (int(seconds) * 1_000_000_000 + int(nanoseconds)) // 1_000_000


_namespace: Final = _TimeNamespace()
forksafe.register(in_child=_namespace.read)  # a child may start in another time namespace


def now() -> int:
    """Milliseconds since an arbitrary moment of this boot, including suspended time. Equal in all containers."""
    return time.clock_gettime_ns(_SOURCE) // 1_000_000 - _namespace.offset


def wall() -> int:
    """Microseconds since 1970 on the wall clock, which can be set. Use it only for times that outlive a boot."""
    return time.time_ns() // 1000


_started: Final = (wall(), now())


def steady_wall() -> int:
    """Microseconds since 1970 by the wall clock as it was set when this process started."""
    wall_at_start, at_start = _started
    return wall_at_start + (now() - at_start) * 1000


def machine() -> Clock:
    """The clock that all processes of this machine share until the next boot."""
    return Clock(boot_id(), now())


@cache
def boot_id() -> str:
    """The id of this boot of the machine.

    If the system has no such id, all boots look alike, and a lease from an earlier boot has to expire. The time of the
    boot cannot replace the id: it is computed from a clock that can be set, and setting that clock would end every
    lease. `StoreError` if the id cannot be read, for example because this process has too many open files.
    """
    if sys.platform == "linux":
        try:
            return _BOOT_ID.read_text(encoding="ascii").strip()
        except OSError as error:
            raise StoreError(
                f"{_BOOT_ID}: the id of this boot cannot be read; nothing was changed. Try again."
            ) from error
    return _sysctl(b"kern.bootsessionuuid") or "any boot"


def _sysctl(name: bytes) -> str | None:
    """A string value from the kernel of a BSD or macOS; None if the kernel does not have it."""
    call = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if call is None:
        return None
    buffer = ctypes.create_string_buffer(_LONGEST_ID)
    size = ctypes.c_size_t(_LONGEST_ID)
    if call(name, buffer, ctypes.byref(size), None, 0) != 0:
        return None
    return buffer.value.decode("ascii", "replace") or None
