"""Calls in doubt: whether a call can still act, the table that decides about it, and the question to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec.structs import replace

from holdfast.codec import jsontext
from holdfast.errors import EffectMismatch
from holdfast.redaction import Redaction
from holdfast.runs.block_end import Waiting
from holdfast.runs.drivers import is_async
from holdfast.runs.identity import Started, identity_in, own_key
from holdfast.runs.lease import has_passed
from holdfast.runs.tools import EffectKind, GiveUp, Happened, InDoubt, NotDone, NotYet, Tool, is_outcome
from holdfast.stores.contract_runs import Clock, Deadline, Entry
from holdfast.threads.metadata import moment
from holdfast.threads.process import is_alive, is_dead

ProbeAnswer = Literal["happened", "not_done", "not_yet", "give_up", "unknown"]
CanAct = Literal["before_deadline", "cannot_act", "function_ended", "process_unknown", "maybe_running"]
"""Whether a call can still act:

- "before_deadline": it can until its deadline, which is ahead.
- "cannot_act": its deadline has passed, and its function does not run, or cannot act after its deadline.
- "function_ended": its function does not run, but there is no deadline for what it has sent.
- "process_unknown": its deadline has passed, and it is unknown whether its process is alive.
- "maybe_running": its function may be running, for an unknown time.
"""
DoubtDecision = Literal["probe", "happened", "rerun", "wait", "ask", "give_up"]


def decide_doubt(effect: EffectKind, in_doubt: InDoubt, answer: ProbeAnswer | None, can_act: CanAct) -> DoubtDecision:
    """The decision about a call with an unknown outcome: by its tool, its probe's answer, and whether it can still act.

    A table to read from top to bottom. `answer` is None if the probe was not called yet.
    """
    match (in_doubt, answer, can_act):
        case ("give_up", _, _) | (_, "give_up", _):
            return "give_up"
        case ("ask", _, _):
            return "ask"
        # If the probe finds that the call happened, nothing else matters. So it is called at once. Only "not done" may
        # have to wait until the call can no longer act.
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
        case (_, _, "before_deadline"):
            return "wait"
        case (_, _, "cannot_act"):
            return "rerun"
        # A tool that is declared "rerun" may act twice, but not at the same time.
        case ("rerun", _, "function_ended" | "process_unknown"):
            return "rerun"
        case _:
            return "ask"


def probe_answer(value: object) -> ProbeAnswer:
    """The answer that a probe returned."""
    if isinstance(value, Happened):
        return "happened"
    if isinstance(value, NotYet) or value is NotYet:
        return "not_yet"
    return "not_done" if is_outcome(value, NotDone) else "give_up" if is_outcome(value, GiveUp) else "unknown"


def can_act_of(entry: Entry, clock: Clock, tool: Tool) -> CanAct:
    """Whether a call can still act."""
    deadline, owner = entry.deadline, entry.owner
    if deadline is not None and not has_passed(deadline, clock):
        return "before_deadline"
    was_restarted = deadline is not None and deadline.clock != clock.id
    if owner is None or was_restarted or is_dead(owner):
        return "function_ended" if deadline is None else "cannot_act"
    if deadline is None or (is_alive(owner) and not is_bounded(tool)):
        return "maybe_running"
    return "cannot_act" if is_bounded(tool) else "process_unknown"


def is_bounded(tool: Tool) -> bool:
    """Whether a call cannot act after its deadline even if its process is alive.

    The thread of a sync function cannot be stopped, so its timeout alone does not ensure that.
    """
    return tool.probe_after is not None or (is_async(tool.function) and not tool.in_thread)


# -- runs that wait because of a call -----------------------------------------------------------------------------

_CALL_CHARACTERS: Final = 300  # of a call in a message
_SHOWN: Final = 5  # earlier calls in a question


def suspended_to_settle(entry: Entry, blocked_call: Entry | None = None) -> Waiting:
    """The suspension of a run until a call in doubt is settled. `blocked_call` is one that cannot be made before."""
    return Waiting(
        replace(entry, status="in_doubt"),
        f"in doubt: {entry.name} (call {entry.number}) has no recorded outcome; settle it with hf.settle",
        blocked_call=blocked_call,
    )


def log_failure(entry: Entry, error: BaseException, redaction: Redaction) -> None:
    """Log the error that left a call in doubt, with its traceback, redacted."""
    import logging  # noqa: PLC0415 - it takes long to import, and is rarely needed
    import traceback  # noqa: PLC0415

    message = (
        f"{entry.name} raised an error, so call {entry.number} is in doubt and the run waits. Settle it with "
        "hf.settle. If this error means that nothing was done, list it in not_done=. To return errors to the model, "
        'declare errors="result".'
    )
    text = "".join(traceback.format_exception(error))
    redacted = redaction.message(text)
    logger = logging.getLogger("holdfast")
    if redacted == text:
        logger.error("%s", message, exc_info=error)
    else:
        logger.error("%s\n%s", message, redacted)


def suspended_until(entry: Entry, until: Deadline) -> Waiting:
    """The suspension of a run until the probe of a call can be called again, or until the call can be made again."""
    when = moment(until.wall).isoformat(sep=" ", timespec="seconds")
    return Waiting(
        None,
        f"{entry.name} (call {entry.number}) has no recorded outcome and may still act; the run waits until {when}",
        wake_at=until.at,
        wake_wall=until.wall,
        blocked_call=entry,
    )


def suspended_for_repeat(entry: Entry, earlier: Sequence[tuple[Entry, str, object]]) -> Waiting:
    """The suspension of a run until a person allows a call that may repeat earlier ones, each with its place."""
    shown = [f"{place} called it with {_text_of_call(row.call)} (call {row.number})" for row, place, _ in earlier]
    more = [f"{len(shown) - _SHOWN} more calls"] if len(shown) > _SHOWN else []
    before = "; ".join([*more, *shown[-_SHOWN:]])
    why = f"may repeat what was done: {before}; now it is called with {_text_of_call(entry.call)}"
    return suspended_for_permission(entry, why)


def _text_of_call(call: bytes | None) -> str:
    """The arguments of a call in a message."""
    text = "unknown arguments" if call is None else jsontext.to_text(call).decode(errors="replace")
    return text if len(text) <= _CALL_CHARACTERS else f"{text[:_CALL_CHARACTERS]}…"


def suspended_for_permission(entry: Entry, why: str = "waits for permission") -> Waiting:
    """The suspension of a run until a person allows a call."""
    return Waiting(
        replace(entry, status="asked"),
        f"{entry.name} {why}; allow it with hf.settle(THREAD, NUMBER, NotDone())",
    )


def require_expected(entry: Entry, tool: Tool, started: Started, unrepeated: Sequence[Entry]) -> None:
    """Refuse a new call that may be a changed form of a call that an earlier process recorded.

    Only recorded calls that the program has not repeated count. EffectMismatch if the new call has another function,
    Waiting if only a person can tell. `started` is the new call. `unrepeated` are the recorded calls.

    Concurrent calls come in any order, so a call that is not made alone is only compared if it is inside a tool and
    has no key, with equal calls elsewhere: its key in the journal changes with the arguments of the tool.
    """
    key = started.own_key
    for row in unrepeated:
        if row.step != entry.step or row.kind == "child":
            continue
        is_same_tool = identity_in(row.key) == tool.identity
        is_same_call = row.arguments == entry.arguments
        its_key = own_key(row.key)
        if not started.is_alone:
            is_elsewhere = row.inside is None or row.inside[1] not in started.under_way
            if not (is_same_tool and is_same_call and is_elsewhere and key is its_key is None):
                continue
        if row.act is not None and entry.act is not None and row.act != entry.act and not is_same_call:
            continue  # another act
        if not is_same_tool and key == its_key and (key is not None or is_same_call):
            what = "without a key and with the same arguments" if key is None else f"with key {key!r}"
            raise EffectMismatch(
                f"an earlier process called {identity_in(row.key)} {what} (call {row.number}), and this program "
                f"calls {tool.identity} instead; nothing was called. Resume the run with the program that made the "
                "call. If this is another call, give it a key of its own."
            )
        if is_same_tool and (is_same_call or (key is None and its_key is None)):
            differs = "with other arguments"
            if is_same_call:
                differs = "in another tool or in none" if key is its_key is None else "with another key"
            raise suspended_for_permission(
                entry,
                f"may be call {row.number} of an earlier process, which the program has not repeated, {differs}",
            )
