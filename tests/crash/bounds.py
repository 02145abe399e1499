"""A part of a test held to some memory or time: what would take all that there is fails instead, and can be named."""

from __future__ import annotations

import resource
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def held_to(most: int) -> Generator[None]:
    """AssertionError if what happens in here wants more bytes than that beyond what the process has already."""
    limits = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    wanted = [limit for limit in (soft, hard, held + most) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(wanted), hard))
    try:
        yield
    except MemoryError as error:
        raise AssertionError(f"it takes more than {most >> 20} MiB of memory") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


class TooSlow(BaseException):
    """It took more than its time. No error: nobody should catch it who catches those."""


@contextmanager
def soon(seconds: int) -> Generator[None]:
    """TooSlow if what happens in here goes on for longer. In the main thread only."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
