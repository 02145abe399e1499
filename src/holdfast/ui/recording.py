"""The record of what was done by the page: who, what and when, in a thread that the page itself cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import Conflict, HoldfastError, InvalidArgument
from holdfast.handle import Holdfast

ACTIONS: Final = "holdfast/actions"
"""The thread in which what was done by the page is kept."""

_KEPT: Final = ("thread", "id", "name", "effect", "outcome", "keep_last")
_TRIES: Final = 20


def record(hf: Holdfast, who: str, action: str, form: Mapping[str, str], failed: HoldfastError | None = None) -> None:
    """Keep who did what, and when; without what was given: that is where it was given to.

    Conflict if others write all the time, InvalidArgument if the thread is not such a record: then it must not be done.
    """
    deed: dict[str, Any] = {"at": datetime.now(UTC), "who": who, "action": action}
    deed |= {name: form[name] for name in _KEPT if name in form}
    if failed is not None:
        deed["failed"] = type(failed).__name__
    for _ in range(_TRIES):
        thread = hf.thread(ACTIONS)
        known = thread.latest()
        try:
            done = _actions(None if known is None else known.state)
            thread.save({"actions": [*done, deed]}, trigger="page", status="idle", agent="holdfast ui")
        except Conflict:
            continue  # somebody else did something in that moment
        return
    raise Conflict(f"it could not be recorded in {ACTIONS!r}, to which others write all the time; nothing was done")


def require_not_the_record(*names: str | None) -> None:
    """InvalidArgument if one of the threads is the record: who could change it here could do something and deny it."""
    if ACTIONS in names:
        raise InvalidArgument(f"{ACTIONS!r} is the record of what this page does; the page does not change it")


def _actions(state: Any) -> list[Any]:
    if state is None:
        return []
    if type(state) is not dict or set(state) != {"actions"} or type(state["actions"]) is not list:
        raise InvalidArgument(
            f"thread {ACTIONS!r} holds something else than what this page did, so nothing is done: it would not be "
            "recorded. Fork that thread under another name and drop it"
        )
    actions: list[Any] = state["actions"]
    return actions
