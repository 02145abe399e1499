"""Calls in doubt: whether a call can still act, and the table that decides about it."""

from __future__ import annotations

from typing import Literal

from holdfast.runs.deadlines import has_passed
from holdfast.runs.drivers import is_async
from holdfast.runs.tools import Effect, GiveUp, Happened, InDoubt, NotDone, NotYet, Tool, is_outcome
from holdfast.stores.contract_runs import Clock, Entry
from holdfast.threads.process import is_alive, is_dead

Answer = Literal["happened", "not_done", "not_yet", "give_up", "unknown"]
Acting = Literal["until", "over", "ended", "presumed", "running"]
Doubt = Literal["probe", "happened", "rerun", "wait", "ask", "give_up"]


def doubt_for(effect: Effect, in_doubt: InDoubt, answer: Answer | None, acting: Acting) -> Doubt:
    """The decision about a call with an unknown outcome: by its tool, its probe's answer, and whether it can still act.

    A table to read from top to bottom. `answer` is None if the probe was not called yet.
    """
    match (in_doubt, answer, acting):
        case ("give_up", _, _) | (_, "give_up", _):
            return "give_up"
        case ("ask", _, _):
            return "ask"
        # It happened, whatever else is known. So a probe is called at once, and only its "not done" has to wait.
        case ("probe", None, _):
            return "probe"
        case ("probe", "happened", _):
            return "happened"
        case ("probe", "not_yet", _):
            return "wait"
        case ("probe", "unknown", _):
            return "ask"
        # From here on, the call would be made again: "rerun" is declared, or the probe says "not done". An idempotent
        # call may be made again at any time: with the same idempotency key, both calls are one.
        case _ if effect != "irreversible":
            return "rerun"
        case (_, _, "until"):
            return "wait"
        case (_, _, "over"):
            return "rerun"
        # A tool that is declared "rerun" may act twice, but not at the same time.
        case ("rerun", _, "ended" | "presumed"):
            return "rerun"
        case _:
            return "ask"


def answer_of(value: object) -> Answer:
    """The answer that a probe returned."""
    if isinstance(value, Happened):
        return "happened"
    if isinstance(value, NotYet) or value is NotYet:
        return "not_yet"
    return "not_done" if is_outcome(value, NotDone) else "give_up" if is_outcome(value, GiveUp) else "unknown"


def acting_of(entry: Entry, clock: Clock, tool: Tool) -> Acting:
    """Whether a call can still act.

    - "until": until its deadline, which is ahead.
    - "over": it cannot. Its deadline has passed, and its function does not run, or cannot act after its deadline.
    - "ended": its function does not run, but there is no deadline for what it has sent.
    - "presumed": its deadline has passed, and it is unknown whether its process is alive.
    - "running": its function may be running, for an unknown time.
    """
    deadline, owner = entry.deadline, entry.owner
    if deadline is not None and not has_passed(deadline, clock):
        return "until"
    was_restarted = deadline is not None and deadline.clock != clock.id
    if owner is None or was_restarted or is_dead(owner):
        return "ended" if deadline is None else "over"
    if deadline is None or (is_alive(owner) and not is_bounded(tool)):
        return "running"
    return "over" if is_bounded(tool) else "presumed"


def is_bounded(tool: Tool) -> bool:
    """Whether a call cannot act after its deadline even if its process is alive.

    The thread of a sync function cannot be stopped, so its timeout alone does not ensure that.
    """
    return tool.probe_after is not None or (is_async(tool.function) and not tool.in_thread)
