"""The audit log of a store: decisions of people that no journal holds, in a thread of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import Conflict, InvalidArgument
from holdfast.threads.context import Context
from holdfast.threads.thread import Thread

ACTIONS: Final = "holdfast/actions"
"""The thread that holds the audit log."""

_TRIES: Final = 20


def record_action(context: Context, who: str, action: str, details: dict[str, Any], *, agent: str) -> None:
    """Record who does what, and when. Record an action before it is done.

    Conflict if other processes keep writing to the log, InvalidArgument if its thread holds something else. The action
    must not be carried out then.
    """
    made: dict[str, Any] = {"at": datetime.now(UTC), "who": who, "action": action, **details}
    for _ in range(_TRIES):
        thread = Thread(context, ACTIONS)
        known = thread.latest()
        try:
            done = _actions(None if known is None else known.state)
            thread.save({"actions": [*done, made]}, trigger="page", status="idle", agent=agent)
        except Conflict:
            continue  # another action was recorded at the same time
        return
    raise Conflict(
        f"the action could not be recorded in {ACTIONS!r} because other processes keep writing to it; "
        "nothing was done. Try again."
    )


def _actions(state: Any) -> list[Any]:
    if state is None:
        return []
    if type(state) is not dict or set(state) != {"actions"} or type(state["actions"]) is not list:
        raise InvalidArgument(
            f"thread {ACTIONS!r} is reserved for the audit log but holds something else, so the action cannot be "
            "recorded; nothing was done. Fork that thread under another name, and drop it."
        )
    actions: list[Any] = state["actions"]
    return actions
