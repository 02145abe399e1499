"""Convert checkpoints of Smooth's engine, which have an agent, an iteration and a whole conversation.

An agent becomes a thread. Smooth stores no parents: each checkpoint follows the one saved before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from holdfast.importers.foreign_file import Fields, as_object
from holdfast.importers.foreign_record import Record
from holdfast.importers.frame import Unusable
from holdfast.importers.lineage import waits_for


def record(
    *,
    id: str,
    agent: str,
    iteration: object,
    conversation: object,
    metadata: object,
    created_at: datetime | None,
    key: str | None = None,
    rest: dict[str, Any] | None = None,
) -> Record:
    """Make a record of a checkpoint. Unusable if its conversation or iteration is invalid."""
    if type(iteration) is not int or not 0 <= iteration < 2**63:
        raise Unusable("it has no iteration" if iteration is None else "its iteration is not a whole number")
    fields = Fields(as_object(conversation, "its conversation"))
    messages = [as_object(each, "one of its messages") for each in fields.items("messages")]
    state: dict[str, Any] = {"messages": messages}
    if (conversation_id := fields.take("id")) is not None:
        state["conversation_id"] = conversation_id
    state.update(fields.rest)
    kept = dict(rest or {})
    remarks: list[str] = []
    if type(metadata) is not dict:
        if metadata is not None:
            remarks.append("its metadata is not a JSON object; the original value is kept in $imported")
            kept["metadata"] = metadata
        metadata = {}
    return Record(
        id=id,
        key=key,
        step=iteration,
        created_at=created_at,
        state=state,
        metadata=metadata,
        agent=agent,
        resume_hint=waits_for(unanswered(messages)),
        rest=kept,
        remarks=tuple(remarks),
    )


def unanswered(messages: Iterable[dict[str, Any]]) -> int:
    """Count the tool calls without a result. Smooth saves after each result, so there may be some."""
    waiting: set[str] = set()
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if type(calls) is list else ():
            if type(call) is dict and type(call.get("id")) is str:
                waiting.add(call["id"])
        answered = message.get("tool_call_id")
        if type(answered) is str:
            waiting.discard(answered)
    return len(waiting)
