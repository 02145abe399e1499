"""How a block is left: the one error that decides it, out of a group of tasks or threads too, and the run's record."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from holdfast.errors import Cancelled, LeaseLost
from holdfast.runs.journal import now
from holdfast.runs.tool_calls import Parked
from holdfast.stores.running import RunRow
from holdfast.types import Status


class Stopped(BaseException):
    """Ends a run's block at the end of a step because its worker is to end. Another worker goes on with it."""


_DECIDING = (LeaseLost, Cancelled)
_SILENT = (Parked, Stopped)


def decisive(error: BaseException | None) -> BaseException | None:
    """What a block was left by: the error, or of a group the one in it that says what becomes of the run.

    A run that is lost or cancelled is so whatever else failed; an interrupt ends the program; what failed, fails the
    run; and a run waits or stops only if all that is in the group does.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    each = list(_leaves(error))
    for kind in _DECIDING:
        if found := next((leaf for leaf in each if isinstance(leaf, kind)), None):
            return found
    for leaf in each:
        if not isinstance(leaf, Exception | Parked | Stopped) and not _is_cancelled_task(leaf):
            return leaf
    failed = error.subgroup(Exception)
    if failed is not None:
        return failed
    for silent in _SILENT:
        if waits := next((leaf for leaf in each if isinstance(leaf, silent)), None):
            return waits
    return error


def heard(error: BaseException | None) -> BaseException | None:
    """What the caller of a block hears: a group without what only ended the block, and is no error."""
    if not isinstance(error, BaseExceptionGroup) or not any(isinstance(leaf, _SILENT) for leaf in _leaves(error)):
        return error
    return error.subgroup(_is_heard) or error


def _is_heard(part: BaseException) -> bool:
    return not isinstance(part, (*_SILENT, BaseExceptionGroup))


def released(row: RunRow, status: Status, reason: str | None = None) -> RunRow:
    """The record of a run that its worker gives back."""
    return replace(row, status=status, owner=None, lease_until=0, updated_at=now(), reason=reason)


def given_back(row: RunRow, *, is_queued: bool) -> RunRow:
    """The record of a run that was released without a failure, by one who was interrupted or is done with it."""
    # That is no failed attempt: many deployments in a row must not bury a run that takes its time.
    return replace(released(row, "queued" if is_queued else "idle"), attempt=max(row.attempt - 1, 0))


def _is_cancelled_task(error: BaseException) -> bool:
    # By its name: importing asyncio takes longer than all of Holdfast.
    return type(error).__name__ == "CancelledError"


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
