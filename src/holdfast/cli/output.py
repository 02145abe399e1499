"""Output: what a verb writes to stdout, whole or with an error, whatever stdout is."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from holdfast.errors import HoldfastError


def write(text: str) -> None:
    """Write to stdout, and through. What its encoding does not have is escaped.

    HoldfastError if it takes no more. BrokenPipeError, which ends a command without a word, if nobody reads any more.
    """
    if sys.stdout is None:
        raise HoldfastError("stdout is closed, so nothing can be written to it")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up()
        raise
    except OSError as error:
        _give_up()
        raise HoldfastError(f"stdout takes no more ({error.strerror})") from error


def _give_up() -> None:
    """Keep the interpreter from trying once more, with what is left in its buffer, when it ends."""
    with suppress(OSError, ValueError):  # of what stands for stdout and is no file
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.dup2(nothing, sys.stdout.fileno())
        finally:
            os.close(nothing)
