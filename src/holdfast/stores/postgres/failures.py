"""Translate errors of PostgreSQL to errors of Holdfast, tell which of them a retry may solve, and pause before it."""

from __future__ import annotations

import random
import re
import time
from typing import Final

import psycopg

from holdfast.errors import (
    Busy,
    Damaged,
    HoldfastError,
    InvalidArgument,
    NotAStore,
    OutcomeUnknown,
    ReadOnly,
    StoreError,
    StoreFull,
    TooLarge,
)
from holdfast.signals import sleep
from holdfast.stores import rules
from holdfast.stores.postgres.connection import Unanswered
from holdfast.time_limit import is_exhausted

# The transaction was rolled back and may succeed when it is repeated.
_AGAIN: Final = frozenset(("40001", "40P01"))
# The server is starting, stopping or out of connections, or lost access to its data.
_AWAY: Final = frozenset(("57P01", "57P02", "57P03", "57P05", "53300", "40003")) | {
    # The server ended a transaction that was idle for too long.
    "25P03",
    "25P04",
}
_CONNECTION: Final = "08"
# After these the connection is gone, whatever the reason.
_ENDING: Final = ("FATAL", "PANIC")
# A failed connection attempt has no code, so the message is compared, in English. A refusal in another language is
# retried as if the server were unreachable.
_NOT_LET_IN: Final = re.compile(
    r"FATAL: .*(authentication failed|does not exist|no pg_hba\.conf entry|is not permitted to log in)"
)
_BUSY: Final = frozenset(("55P03", "57014"))
_READ_ONLY: Final = frozenset(("25006", "42501"))
_NO_STORE: Final = frozenset(("42P01", "3F000", "42703"))
_SEQUENCE_LIMIT: Final = "2200H"
# Seconds between attempts.
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


def is_conflict(error: psycopg.Error) -> bool:
    """Whether the transaction was rolled back only because of concurrent transactions."""
    return error.sqlstate in _AGAIN


def is_away(error: psycopg.Error) -> bool:
    """Whether the connection is lost or could not be made, for a reason that may be temporary."""
    if error.sqlstate is not None:
        return (
            error.sqlstate in _AWAY
            or error.sqlstate.startswith(_CONNECTION)
            or error.diag.severity_nonlocalized in _ENDING
        )
    # Errors of libpq have no code: a lost or refused connection, or a timeout.
    return isinstance(error, psycopg.OperationalError) and not _is_not_let_in(error)


def _is_not_let_in(error: psycopg.Error) -> bool:
    return error.sqlstate is None and _NOT_LET_IN.search(str(error)) is not None


def is_damage(error: psycopg.Error) -> bool:
    """Whether a page of a table or an index cannot be read."""
    return error.sqlstate in ("XX001", "XX002")


def is_absent(error: psycopg.Error) -> bool:
    """Whether the server does not have the statement or function, or this role may not use it."""
    return (error.sqlstate or "")[:2] in ("42", "0A")


def translate(error: psycopg.Error, where: str) -> HoldfastError:
    """The error to raise from `error`. The server's messages may quote values, so only the kind of error is given."""
    state = error.sqlstate or ""
    what = f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__
    if _is_not_let_in(error):
        return StoreError(
            f"{where}: the server refused the connection; nothing was changed. Check the user, the password and the "
            "name of the database."
        )
    if isinstance(error, Unanswered):
        return StoreError(
            f"{where}: the server, or a pooler or network before it, accepted a statement and did not answer within "
            f"{error.seconds:.1f} seconds; nothing was changed. Try again. If statements take longer, set "
            "answer_timeout= in the URL."
        )
    if is_away(error):
        return StoreError(f"{where}: the database cannot be reached ({what}); nothing was changed. Try again.")
    if state in _AGAIN or state in _BUSY:
        return Busy(f"{where}: the database was busy for too long ({what}); nothing was changed. Try again.")
    if state in _READ_ONLY:
        return ReadOnly(
            f"{where}: this connection has no permission ({what}), or the server is a read-only standby; nothing was "
            "changed. docs/reference/postgres.md lists the permissions that a role needs."
        )
    if state in _NO_STORE:
        return NotAStore(
            f"{where}: the tables of the store are missing or were altered ({what}); nothing was changed. Restore them "
            "from a backup, or open another schema."
        )
    if is_damage(error):
        return Damaged(f"{where}: the database is damaged ({what}). Restore it from a backup.")
    if state == _SEQUENCE_LIMIT:
        return TooLarge(f"{where}: the store has no thread numbers left; nothing was changed")
    if state == "53100":
        return StoreFull(
            f"{where}: no space left for the write ({what}); nothing was changed. Free space and try again."
        )
    if state.startswith("54"):
        return TooLarge(f"{where}: a record is larger than PostgreSQL can store ({what}); nothing was changed")
    if state.startswith("23"):
        return rules.tables_differ(where, what)
    if state == "22003" or (not state and isinstance(error, psycopg.DataError)):
        return InvalidArgument(f"{where}: a number does not fit 64 bits; nothing was changed")
    return StoreError(
        f"{where}: PostgreSQL failed ({what}); nothing was changed. The log of the server says more about it."
    )


def unknown(where: str) -> OutcomeUnknown:
    """The error for a write whose result was lost and could not be looked up."""
    return OutcomeUnknown(
        f"{where}: the connection was lost during the commit, so the write may or may not have happened. "
        "Open the store again to find out."
    )


class Backoff:
    """Pauses between attempts, each longer than the one before, until so many seconds after the first failure.

    The time of the first attempt does not count: after a long silence, one more attempt on another connection must be
    possible, or a lost answer would not be looked for.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline: float | None = None
        self._pause = _FIRST_PAUSE

    def wait(self) -> bool:
        """Wait before the next attempt. Returns False at once if there is no time left for one."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if now + self._pause > self._deadline or is_exhausted():
            return False
        sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that two processes do not collide again
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return True
