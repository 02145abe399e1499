"""Suspensions of a run because of a call: in doubt, waiting for its time, or waiting for permission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.codec import jsontext
from holdfast.redaction import Redaction
from holdfast.runs.context import Suspended
from holdfast.stores.contract_runs import Deadline, Entry
from holdfast.threads.metadata import moment

_CALL_CHARACTERS: Final = 300  # of a call in a message
_SHOWN: Final = 5  # earlier calls in a question


def suspended_by(entry: Entry, about: Entry | None = None) -> Suspended:
    """The suspension of a run until a call in doubt is settled. `about` is a call that cannot be made before."""
    return Suspended(
        replace(entry, status="in_doubt"),
        f"in doubt: {entry.name} (call {entry.number}) has no recorded outcome; settle it with hf.settle",
        about=about,
    )


def log_failure(entry: Entry, error: BaseException, redaction: Redaction) -> None:
    """Log the error that left a call in doubt, with its traceback, redacted."""
    import logging  # noqa: PLC0415 - it takes long to import, and is rarely needed
    import traceback  # noqa: PLC0415

    message = (
        f"{entry.name} raised an error, so call {entry.number} is in doubt and the run waits. Settle it with "
        'hf.settle. If an error of this tool means that nothing was done, declare it in not_done=, or errors="result".'
    )
    text = "".join(traceback.format_exception(error))
    redacted = redaction.message(text)
    logger = logging.getLogger("holdfast")
    if redacted == text:
        logger.error("%s", message, exc_info=error)
    else:
        logger.error("%s\n%s", message, redacted)


def waiting_for(entry: Entry, until: Deadline) -> Suspended:
    """The suspension of a run until the probe of a call can be called again, or until the call can be made again."""
    when = moment(until.wall).isoformat(sep=" ", timespec="seconds")
    return Suspended(
        None,
        f"{entry.name} (call {entry.number}) has no recorded outcome and may still act; the run waits until {when}",
        wake_at=until.at,
        wake_wall=until.wall,
        about=entry,
    )


def repeating(entry: Entry, earlier: Sequence[tuple[Entry, str, object]]) -> Suspended:
    """The suspension of a run until a person allows a call that may repeat earlier ones, each with its place."""
    shown = [f"{place} called it with {_text_of_call(row.call)} (call {row.number})" for row, place, _ in earlier]
    more = [f"{len(shown) - _SHOWN} more calls"] if len(shown) > _SHOWN else []
    before = "; ".join([*more, *shown[-_SHOWN:]])
    why = f"may repeat what was done: {before}; now it is called with {_text_of_call(entry.call)}"
    return asking_first(entry, why)


def _text_of_call(call: bytes | None) -> str:
    """The arguments of a call in a message."""
    text = "unknown arguments" if call is None else jsontext.to_text(call).decode(errors="replace")
    return text if len(text) <= _CALL_CHARACTERS else f"{text[:_CALL_CHARACTERS]}…"


def asking_first(entry: Entry, why: str = "waits for permission") -> Suspended:
    """The suspension of a run until a person allows a call."""
    return Suspended(
        replace(entry, status="asked"),
        f"{entry.name} {why}; allow it with hf.settle(THREAD, NUMBER, NotDone())",
    )
