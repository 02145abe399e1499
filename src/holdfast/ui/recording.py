"""The audit log of the web UI's actions: who, what and when, in a thread that the web UI itself cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import Conflict, HoldfastError, InvalidArgument
from holdfast.handle import Holdfast

ACTIONS: Final = "holdfast/actions"
"""The thread that holds the audit log."""

_KEPT: Final = ("thread", "id", "name", "effect", "outcome", "keep_last")
_TRIES: Final = 20


def record(hf: Holdfast, who: str, action: str, form: Mapping[str, str], failed: HoldfastError | None = None) -> None:
    """Record who did what, and when. Answers and results are not recorded here; the action stores them.

    Raises Conflict if other processes keep writing to the log, InvalidArgument if its thread holds something else. The
    action must not be carried out then.
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
            continue  # another action was recorded at the same time
        return
    raise Conflict(
        f"the action could not be recorded in {ACTIONS!r} because other processes keep writing to it; "
        "nothing was done. Try again."
    )


def require_not_the_record(*names: str | None) -> None:
    """Raise InvalidArgument if one of the threads is the audit log: a user could act and then remove the evidence."""
    if ACTIONS in names:
        raise InvalidArgument(f"{ACTIONS!r} is the audit log of the web UI, which cannot change it; nothing was done")


def _actions(state: Any) -> list[Any]:
    if state is None:
        return []
    if type(state) is not dict or set(state) != {"actions"} or type(state["actions"]) is not list:
        raise InvalidArgument(
            f"thread {ACTIONS!r} is reserved for the audit log of the web UI but holds something else, so the action "
            "cannot be recorded; nothing was done. Fork that thread under another name, and drop it."
        )
    actions: list[Any] = state["actions"]
    return actions
