"""Exit codes of the command line, and the code of each error."""

from __future__ import annotations

import enum

from holdfast.errors import Conflict, HoldfastError, InvalidArgument, LeaseHeld, LeaseLost, NotFound


class Exit(enum.IntEnum):
    """The exit codes of every command. Scripts rely on them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    IN_DOUBT = 5
    INTERRUPTED = 130  # as shells report SIGINT
    UNREAD = 141  # as shells report SIGPIPE


_CODES: tuple[tuple[type[HoldfastError], Exit], ...] = (
    (InvalidArgument, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (LeaseHeld, Exit.CONFLICT),
    (LeaseLost, Exit.CONFLICT),
)


def exit_code(error: HoldfastError) -> Exit:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.ERROR)
