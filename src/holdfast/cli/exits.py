"""How a command ends: its exit code, which scripts rely on, and the code each error stands for."""

from __future__ import annotations

import enum

from holdfast.errors import Conflict, HoldfastError, InvalidArgument, LeaseHeld, LeaseLost, NotFound


class Exit(enum.IntEnum):
    """The exit codes of every verb."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    IN_DOUBT = 5
    INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended
    UNREAD = 141  # and for one that wrote to a pipe which nobody reads any more


_CODES: tuple[tuple[type[HoldfastError], Exit], ...] = (
    (InvalidArgument, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (LeaseHeld, Exit.CONFLICT),
    (LeaseLost, Exit.CONFLICT),
)


def exit_code(error: HoldfastError) -> Exit:
    """The code that a command ends with when this error ends it."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.ERROR)
