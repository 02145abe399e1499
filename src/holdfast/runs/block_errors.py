"""The error that decides how the block of a run ends, if several tasks or threads failed at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.errors import Cancelled, LeaseLost
from holdfast.runs.context import Suspended


class Stopped(BaseException):
    """Ends a run's block at the end of a step because its worker stops. Another worker resumes the run."""


_SILENT: Final = (Suspended, Stopped)


def decisive(error: BaseException | None) -> BaseException | None:
    """The error that decides about the run: the error itself, or one from a group of tasks or threads.

    In order of precedence: a lost or cancelled run; an interrupt, which ends the program; failures. A run waits or
    stops only if no other error is in the group.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    each = list(_leaves(error))
    for kind in (LeaseLost, Cancelled):
        if found := next((leaf for leaf in each if isinstance(leaf, kind)), None):
            return found
    for leaf in each:
        if not isinstance(leaf, Exception | Suspended | Stopped) and not _is_cancelled_task(leaf):
            return leaf
    failed = error.subgroup(Exception)
    if failed is not None:
        return failed
    for silent in _SILENT:
        if waits := next((leaf for leaf in each if isinstance(leaf, silent)), None):
            return waits
    return error


def without_silent(error: BaseException | None) -> BaseException | None:
    """The error for the caller of a block: a group without the exceptions that only ended the block."""
    if not isinstance(error, BaseExceptionGroup) or not any(isinstance(leaf, _SILENT) for leaf in _leaves(error)):
        return error
    return error.subgroup(_is_for_caller) or error


def _is_for_caller(part: BaseException) -> bool:
    return not isinstance(part, (*_SILENT, BaseExceptionGroup))


def _is_cancelled_task(error: BaseException) -> bool:
    # By its name: to import asyncio takes longer than to import Holdfast.
    return type(error).__name__ == "CancelledError"


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
