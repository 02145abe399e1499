"""The clock of a machine's leases: one that nobody can set, that counts suspended time, and that knows its boot."""

from __future__ import annotations

import ctypes
import sys
import time
from functools import cache
from pathlib import Path
from typing import Final

from holdfast.errors import StoreError
from holdfast.stores.running import Clock

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LONGEST_ID: Final = 64
# Elsewhere (macOS) the monotonic clock counts suspended time itself.
_SOURCE: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> int:
    """Milliseconds since some moment of this boot, suspended time included."""
    return time.clock_gettime_ns(_SOURCE) // 1_000_000


def wall() -> int:
    """Microseconds since 1970, by a clock that can be set: only for times that outlive a boot."""
    return time.time_ns() // 1000


def machine() -> Clock:
    """The clock that every process of this machine shares until the next boot."""
    return Clock(boot_id(), now())


@cache
def boot_id() -> str:
    """What tells this boot of the machine from every other.

    Where the system does not say, all boots look alike: a lease of an earlier boot is then waited for. The time of the
    boot would be no substitute: it is reckoned from a clock that can be set, and setting it would end every lease.
    `StoreError` if the system says, and could not be asked: this process has too many files open, for instance.
    """
    if sys.platform == "linux":
        try:
            return _BOOT_ID.read_text(encoding="ascii").strip()
        except OSError as error:
            raise StoreError(f"{_BOOT_ID}: this boot of the machine cannot be told from others; try again") from error
    return _sysctl(b"kern.bootsessionuuid") or "any boot"


def _sysctl(name: bytes) -> str | None:
    """A text that the kernel of a BSD or of macOS tells; None if it does not know it."""
    call = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if call is None:
        return None
    told = ctypes.create_string_buffer(_LONGEST_ID)
    size = ctypes.c_size_t(_LONGEST_ID)
    if call(name, told, ctypes.byref(size), None, 0) != 0:
        return None
    return told.value.decode("ascii", "replace") or None
