"""The errors of results that could not be recorded."""

from __future__ import annotations

from holdfast.errors import StoreError
from holdfast.runs.open_entries import CALLS
from holdfast.stores.contract_runs import Entry


def unrecorded(row: Entry, error: StoreError) -> StoreError:
    """The error of a call that ended and could not be recorded. That of the store may say that nothing was changed."""
    if row.kind not in CALLS or row.status == "not_done":
        return error
    kind = type(error) if type(error).__module__ == StoreError.__module__ else StoreError
    return kind(
        f"{row.name} was called, and its result could not be recorded: {_problem(error)}; {consequence(row)}. "
        "Make the store writable again, then call hf.run again."
    )


def log_unrecorded(row: Entry, error: StoreError) -> None:
    """Log that a result cannot be recorded yet."""
    import logging  # noqa: PLC0415 - it takes long to import, and is rarely needed

    logging.getLogger("holdfast").warning(
        "the result of %s cannot be recorded and is tried again: %s", row.name, _problem(error)
    )


def _problem(error: StoreError) -> str:
    """The part of a store's message that names the failure. The rest is about the write, not about the call."""
    return f"{type(error).__name__}, {str(error).partition(';')[0]}"


def consequence(row: Entry) -> str:
    return "the call will be made again" if row.kind in ("model", "read") else "the call is in doubt"
