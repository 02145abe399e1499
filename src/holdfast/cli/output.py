"""Writing to stdout: encodings, closed pipes and full disks."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from holdfast.errors import HoldfastError


def write(text: str) -> None:
    """Write text to stdout and flush. Characters that its encoding lacks are escaped.

    Raises HoldfastError if the write fails, and BrokenPipeError, which ends a command silently, if the pipe is closed.
    """
    if sys.stdout is None:
        raise HoldfastError("stdout is closed; nothing was written")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        give_up()
        raise
    except OSError as error:
        give_up()
        raise HoldfastError(f"cannot write to stdout ({error.strerror}); the output is incomplete") from error


def give_up() -> None:
    """Redirect stdout to the null device, so that the interpreter's flush at exit does not fail again."""
    with suppress(OSError, ValueError):  # stdout may be an object without a file
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.dup2(nothing, sys.stdout.fileno())
        finally:
            os.close(nothing)
