"""PostgreSQL's errors in Holdfast's terms, and which of them pass by trying again."""

from __future__ import annotations

import re
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

# The transaction was rolled back, and may go through when it is run again.
_AGAIN: Final = frozenset(("40001", "40P01"))
# The server goes down, comes up, or has no room for another connection; or it lost its own way to the data.
_AWAY: Final = frozenset(("57P01", "57P02", "57P03", "57P05", "53300", "40003")) | {
    # A transaction that its process left alone for too long: the server has cut it off.
    "25P03",
    "25P04",
}
_CONNECTION: Final = "08"
# After these there is no connection any more, whatever it is that ended it.
_ENDING: Final = ("FATAL", "PANIC")
# An error of a connection that could not be made has no code: what the server says, in the language that it mostly has.
# In another one, it is tried again for as long as a server that is away.
_NOT_LET_IN: Final = re.compile(
    r"FATAL: .*(authentication failed|does not exist|no pg_hba\.conf entry|is not permitted to log in)"
)
_BUSY: Final = frozenset(("55P03", "57014"))
_READ_ONLY: Final = frozenset(("25006", "42501"))
_NO_STORE: Final = frozenset(("42P01", "3F000", "42703"))
_SEQUENCE_LIMIT: Final = "2200H"


def is_conflict(error: psycopg.Error) -> bool:
    """Whether the transaction was rolled back only because of others that ran at the same time."""
    return error.sqlstate in _AGAIN


def is_away(error: psycopg.Error) -> bool:
    """Whether the connection is gone, or could not be made, for reasons that may pass."""
    if error.sqlstate is not None:
        return (
            error.sqlstate in _AWAY
            or error.sqlstate.startswith(_CONNECTION)
            or error.diag.severity_nonlocalized in _ENDING
        )
    # libpq's own errors carry no code: a lost connection, a refused one, one that nobody answers.
    return isinstance(error, psycopg.OperationalError) and not _is_not_let_in(error)


def _is_not_let_in(error: psycopg.Error) -> bool:
    return error.sqlstate is None and _NOT_LET_IN.search(str(error)) is not None


def is_absent(error: psycopg.Error) -> bool:
    """Whether the server knows no such statement or function, or this role may not use it."""
    return (error.sqlstate or "")[:2] in ("42", "0A")


def translate(error: psycopg.Error, where: str) -> HoldfastError:
    """The error to raise from `error`. A server's messages may quote values, so only their kind is told."""
    state = error.sqlstate or ""
    what = f"{type(error).__name__}, SQLSTATE {state}" if state else type(error).__name__
    if _is_not_let_in(error):
        return StoreError(
            f"{where}: not let in by the server; check the user, the password and the name of the database. Nothing "
            "was changed"
        )
    if is_away(error):
        return StoreError(f"{where}: the database cannot be reached ({what}); nothing was changed. Try again")
    if state in _AGAIN or state in _BUSY:
        return Busy(f"{where}: the database was too busy for too long ({what}); nothing was changed. Try again")
    if state in _READ_ONLY:
        return ReadOnly(
            f"{where}: this connection may not do that ({what}); nothing was changed. docs/postgres.md lists the "
            "rights a role needs; a standby takes no writes"
        )
    if state in _NO_STORE:
        return NotAStore(f"{where}: the tables of the store are not there, or not as they were made ({what})")
    if state in ("XX001", "XX002"):
        return Damaged(f"{where}: the database is damaged ({what}); restore it from a backup")
    if state == _SEQUENCE_LIMIT:
        return TooLarge(f"{where}: the store has given out all its thread numbers; nothing was changed")
    if state == "53100":
        return StoreFull(f"{where}: no room for the write ({what}); nothing was changed. Free space, then try again")
    if state.startswith("54"):
        return TooLarge(f"{where}: something is larger than PostgreSQL can store ({what}); nothing was changed")
    if state.startswith("23"):
        return Damaged(f"{where}: the tables contradict each other ({what}); run a check to see what is hurt")
    if state == "22003" or (not state and isinstance(error, psycopg.DataError)):
        return InvalidArgument(f"{where}: a number does not fit 64 bits; nothing was changed")
    return StoreError(f"{where}: PostgreSQL failed ({what}); nothing was changed")


def unknown(where: str) -> OutcomeUnknown:
    """The error of a write whose answer was lost, and that could not be looked for."""
    return OutcomeUnknown(
        f"{where}: the connection was lost while the write was committed, and whether it happened could not be found "
        "out; open the store again and look"
    )
