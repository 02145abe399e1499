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
    """It took more than its time. Not an Exception, so that no handler of errors catches it."""


@contextmanager
def soon(seconds: int) -> Generator[None]:
    """TooSlow if the block takes more processor time. In the main thread only.

    Other work of the machine does not count. A block that hangs ends with the test run: see faulthandler_timeout.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
