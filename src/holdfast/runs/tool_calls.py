"""Tool calls: write the intent, call the tool, record the result, and decide about calls in doubt."""

from __future__ import annotations

import functools
import hashlib
import math
from typing import Any, Final, Literal

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import ActHeld, CallTimedOut, EffectMismatch, LeaseLost, NotRecorded, ToolNotDone
from holdfast.runs import acts
from holdfast.runs.block_end import Waiting
from holdfast.runs.context import RunContext
from holdfast.runs.doubt import (
    ProbeAnswer,
    can_act_of,
    decide_doubt,
    log_failure,
    probe_answer,
    require_expected,
    suspended_for_permission,
    suspended_for_repeat,
    suspended_to_settle,
    suspended_until,
)
from holdfast.runs.drivers import Call, CurrentCall, Invocation, ToolThread, Uncalled, pause
from holdfast.runs.earlier_calls import EarlierCalls, GraphEarlierCalls, Lineage
from holdfast.runs.guards import WatchedCall
from holdfast.runs.identity import Started, idempotency_key
from holdfast.runs.journal import CALL_REDACTED, RESULT_REDACTED, When
from holdfast.runs.lease import deadline_in, local_seconds, now, on_clock
from holdfast.runs.open_entries import place_of
from holdfast.runs.record import error_of, text_of
from holdfast.runs.results import PLAIN_TYPE
from holdfast.runs.retry import SHORT_SECONDS, RetryState
from holdfast.runs.tools import EffectKind, Happened, NotYet, Tool, takes_key, unknown_outcome
from holdfast.stores.contract_runs import ActRow, Clock, Deadline, Entry, EntryStatus
from holdfast.threads.effects import IDENTITY_REDACTED, TOOL_BYTES, act_key

_INTENT_SECONDS: Final = 0.5  # seconds between the intent and its call

Decision = Literal["replay", "read", "act", "confirm", "doubt"]
NextAction = Literal["call", "probe", "wait_deadline", "wait_act", "return", "raise"]


def decision_for(status: EntryStatus | None, effect: EffectKind) -> Decision:
    """The decision about a call, by the status of its newest journal entry (None: no entry) and its effect kind.

    A table to read from top to bottom.
    """
    match (status, effect):
        # The call has ended: return its result. The journal raises if it has none, as for "unstored". A "late" entry is
        # kept for a person and is never among the open entries.
        case ("done" | "given_up" | "unstored" | "late", _):
            return "replay"
        # Never called, or nothing was done: call it. An action is first looked up among those of abandoned branches.
        case (None | "failed" | "not_done", "read"):
            return "read"
        case (None | "failed" | "not_done", _):
            return "act"
        # Not called yet: a person was asked for permission and has not answered.
        case ("asked", _):
            return "confirm"
        # Started, outcome unknown: `decide_doubt` decides.
        case ("started" | "in_doubt", _):
            return "doubt"


class ToolCall:
    """One tool call of a run."""

    def __init__(
        self, context: RunContext, tool: Tool, given: dict[str, Any], step: int, lineage: Lineage | None = None
    ) -> None:
        self._context = context
        self._earlier: EarlierCalls = context.earlier_calls
        if lineage is not None and tool.effect == "irreversible" and tool.act is None:
            self._earlier = GraphEarlierCalls(context.store, context.thread, lineage, context.earlier_calls)
        self._journal = context.journal
        self._tool = tool
        self._given = given
        self._retry_state = None if tool.retry is None else RetryState(context, tool.retry)
        self._cause: BaseException | None = None  # the error that left this call in doubt
        self._result: Any = None
        self._running: ToolThread | None = None  # of the try that is running, if it may outlive the call
        self._pause = 0.0  # the seconds for which this try has waited
        # What is known of the call, from which the entry of its next try is made; and the entry of the running try.
        self._entry = self._with_call(self._journal.new(step, "", tool.name, tool.effect, "started", b""))
        if tool.act is not None:
            identity = tool.act.text(given, tool.name)
            key = act_key(context.store.hashing, tool.identity, identity)
            shown_identity = context.redaction.message(identity)
            redacted = self._entry.redacted | (IDENTITY_REDACTED if shown_identity != identity else 0)
            self._entry = replace(self._entry, act=key, identity=(tool.identity, shown_identity), redacted=redacted)
        self._claim: ActRow | None = None  # the claim of the same act that this call replaces
        self._act_wait_until = 0.0  # until when this call waits for the same act of another
        self._current_try = self._entry
        # The digest that distinguishes calls without a key. Arguments that were redacted may have equal digests.
        act = self._entry.act
        self.digest: Final = self._entry.arguments if act is None else act[TOOL_BYTES:]
        self.is_distinct: Final = act is not None or not self._entry.redacted
        self.exact: Final = digest_of(given) if self._entry.redacted else b""  # not stored: it could confirm a guess

    def make(self, started: Started, tool: Tool, watched: WatchedCall | None) -> Call:
        """The recorded result, or that of a call of `tool` now. Waiting if a person has to decide."""
        self._started, self._tool, self._watched = started, tool, watched
        outside = self._journal.outside.get(started.key, 0)
        self._entry = self._current_try = replace(self._entry, key=started.key, outside=outside)
        place, exact, tool = place_of(self._entry), self.exact or self._entry.arguments, self._tool
        if place in self._context.answered:
            self._context.require_same(place, tool.name, exact, tool.function, is_named=tool.is_named)
        is_acting = self._tool.effect != "read"
        nothing_done: tuple[type[BaseException], ...] = (ToolNotDone, *self._tool.not_done) if is_acting else ()
        with self._context.lease.limit:
            next_action = self._first()
        while next_action != "return":
            if self._retry_state is not None and next_action == "call":
                yield from self._retry_state.wait(self._entry)
            if next_action == "probe":
                answered = yield self._probe()
                next_action = self._decide(answered, probe_answer(answered))
                continue
            if next_action == "wait_deadline":
                yield Invocation(pause, (self._pause,), is_internal=True)
                self._context.require_active()
                next_action = self._decide() if self._entry.act is None else self._again()
                continue
            if next_action == "wait_act":
                yield Invocation(pause, (acts.POLL_SECONDS,), is_internal=True)
                self._context.require_active()
                next_action = self._again()
                continue
            try:
                invocation = self._start()
            except ActHeld:
                next_action = self._again()  # another call has just claimed the act
                continue
            try:
                result = yield invocation
            except Uncalled:
                if self._current_try.number:
                    self._journal.end(replace(self._current_try, status="not_done", owner=None, deadline=None))
                raise
            except nothing_done as error:
                next_action = self._failed(error, "not_done")
                if next_action == "raise":
                    raise
            except Exception as error:
                is_unknown = is_acting and (self._tool.effect == "irreversible" or isinstance(error, CallTimedOut))
                next_action = self._failed(error, "in_doubt" if is_unknown else "failed")
                if next_action == "raise":
                    raise
            else:
                self._journal.running.pop(self._current_try.number, None)
                entry = replace(self._current_try, status="done", owner=None, deadline=None)
                # A crash before the result is written costs a rerun or a probe.
                can_wait = self._tool.act is None and self._tool.in_doubt in ("rerun", "probe") and started.is_last
                when: When = "with next" if not is_acting else "soon" if can_wait else "now"
                self._result = self._journal.record(entry, result, self._tool.result, is_declared=True, when=when)
                next_action = "return"
        self._context.answered[place] = exact, self._tool.function
        return self._result

    # -- before the call ------------------------------------------------------------------------------------------

    def _first(self) -> NextAction:
        entry, tool = self._entry, self._tool
        known = self._journal.find(entry.step, entry.key)
        if known is not None:
            self._journal.raise_again(known)
            if known.arguments != entry.arguments or known.act not in (None, entry.act):
                known = self._changed(known)
            if self._retry_state is not None:
                self._retry_state.resume(known)
        status = None if known is None or self._is_stale(known) else known.status
        decision = decision_for(status, tool.effect)
        if decision == "read":
            tool.check(self._given)
            self._entry = replace(entry, call=None)
            return "call"
        if decision == "act" or known is None:
            return self._act(known)
        if decision == "replay":
            self._result = self._journal.recorded(known, tool.result)
            return "return"
        if tool.act is not None and known.act is not None:
            return self._act(known)  # another call may have done the act meanwhile
        return self._confirm(known) if decision == "confirm" else self._doubt(known)

    def _changed(self, known: Entry) -> Entry | None:
        """Decide about a recorded call that the program repeats with other arguments."""
        if known.status == "not_done":
            return None  # it did not happen, so this is another call
        is_same_call = known.arguments == self._entry.arguments and not known.redacted & CALL_REDACTED
        if is_same_call or (known.act is not None and known.act == self._entry.act):
            return known  # the same act in other words, or `identity=` or `redact=` was changed
        if self._tool.effect != "read":
            raise EffectMismatch(
                f"{self._tool.name} is recorded with key {self._started.own_key!r} and other arguments (call "
                f"{known.number}); nothing was called. Pass the recorded arguments, or give this call another key."
            )
        self._context.changed.append(known)
        return known

    def _require_expected(self) -> None:
        """Refuse a new call that may be a changed form of a recorded one."""
        entry, started = self._entry, self._started
        unrepeated = self._journal.unrepeated(entry.step) if started.is_alone or entry.inside is not None else ()
        if unrepeated:
            require_expected(entry, self._tool, started, unrepeated)

    def _require_new(self, entry: Entry) -> None:
        """Ask a person about an irreversible call that may repeat, in other words, a call of another branch or turn.

        If the tool declares an identity, that decides instead.
        """
        tool, calls = self._tool, self._earlier
        if tool.effect != "irreversible" or tool.act is not None or calls.is_only_recorded:
            return
        earlier = calls.similar(tool.identity)
        if earlier:
            raise suspended_for_repeat(entry, earlier)

    def _is_stale(self, known: Entry) -> bool:
        """Whether a read of an earlier claim is too old, and nothing depends on it yet."""
        max_age = self._tool.max_age
        is_of_earlier_claim = known.fence != self._context.lease.fence
        if max_age is None or known.kind != "read" or known.ended_at is None or not is_of_earlier_claim:
            return False
        return now() - known.ended_at > max_age * 1_000_000 and not self._journal.decided_after(known)

    def _act(self, known: Entry | None) -> NextAction:
        """Call a tool that acts, unless an abandoned branch has called it, or the run may not."""
        tool, calls = self._tool, self._earlier
        tool.check(self._given)
        if tool.act is not None:
            next_action = self._same_act(known)
            if next_action is not None:
                return next_action
        if tool.in_doubt in ("ask", "probe"):
            same = self._journal.doubtful_like(tool.identity, self._entry.arguments)
            if same is not None:
                # The same call under another key, as from a model that numbers its calls anew. It may have happened.
                raise suspended_to_settle(same, blocked_call=self._entry)
        entry = self._entry = replace(self._entry, valid_after=self._journal.last_invalid_number(self._entry))
        if isinstance(calls, GraphEarlierCalls):
            entry = self._entry = replace(entry, place=calls.place)
        if known is not None and known.status != "asked":
            # It was tried before, or a person allowed it.
            if known.settled == "allowed" and tool.effect == "irreversible":
                calls.note_allowed(tool.identity, known)
            if not known.matches_thread and not known.redacted & CALL_REDACTED:
                is_of_closed_step = known.step != entry.step  # the idempotency key is that of the first try
                self._entry = replace(entry, matches=known.matches or (known.number if is_of_closed_step else 0))
            return "call"
        self._require_expected()
        done = calls.take(tool.identity, entry.arguments)
        is_again = done is not None and entry.act is not None  # the act was found to be free
        if done is None or (is_again and (done.act == entry.act or done.released is not None)):
            if tool.effect == "irreversible":
                if calls.effects == "ask":
                    raise suspended_for_permission(entry)
                if calls.has_similar:
                    self._require_new(entry)
            return "call"
        entry = replace(entry, matches=done.number, matches_thread=done.matches_thread)
        if done.redacted & CALL_REDACTED and not calls.is_only_recorded:
            raise suspended_for_permission(entry, "may have been called before, with arguments that were redacted")
        if done.result is not None:
            self._journal.end(replace(entry, status=done.status, result=done.result, type=done.type))
            self._result = self._journal.recorded(done, tool.result)
            return "return"
        if calls.is_of_origin(entry):
            raise suspended_for_permission(entry, "may have been called by the thread that this one was forked from")
        entry = replace(entry, status="in_doubt", deadline=done.deadline, owner=done.owner)
        return self._doubt(self._journal.end(entry))

    def _again(self) -> NextAction:
        """Decide again about a call with an act: another call may have claimed the act meanwhile."""
        return self._act(self._journal.find(self._entry.step, self._entry.key))

    def _same_act(self, known: Entry | None) -> NextAction | None:
        """Decide about a call whose act another call may have claimed. None if the act is free."""
        if known is not None and known.act is not None:  # `identity=` may have been changed since
            known = replace(known, act=self._entry.act, identity=self._entry.identity)
        is_open = known is not None and known.status in ("started", "in_doubt", "asked")
        self._entry = replace(self._entry, number=known.number if known is not None and is_open else 0)
        claimed = acts.claim_of(self._context.store, self._entry.act or b"")
        self._claim = None if claimed is None else claimed.row
        if claimed is not None and claimed.entry is not None and claimed.status not in ("released", "undone"):
            # Until the act is released or undone, each of its calls has the same idempotency key.
            self._entry = replace(self._entry, idempotency_key=claimed.entry.idempotency_key)
        own = self._context.lease.row.thread
        is_own = claimed is not None and (claimed.row.thread, claimed.row.number) == (own, self._entry.number)
        was_started = known is not None and acts.was_started(known, is_own=is_own)
        status = None if claimed is None else claimed.status
        decision = acts.decision_for(status, is_own=is_own, was_started=was_started)
        if known is not None and decision == "doubt":
            return self._doubt(known)
        if claimed is None or decision == "free":
            return None
        if decision == "wait":
            return self._await(claimed)
        entry = self._matching(claimed)
        if claimed.entry is None:
            why = "may have happened: a deleted thread has claimed the act, and its result is not kept"
            raise suspended_for_permission(entry, why)
        if decision == "result":
            acts.require_recorded(self._context.store, claimed, self._tool.name)
            redacted = entry.redacted & ~RESULT_REDACTED | claimed.entry.redacted & RESULT_REDACTED
            done = replace(entry, status="done", result=claimed.entry.result, type=claimed.entry.type)
            self._journal.accept_inner(self._journal.end(replace(done, settled=None, redacted=redacted)))
            if claimed.row.thread == own:
                self._journal.accept_unrepeated([claimed.entry])  # the program has repeated it, with another key
            self._result = self._journal.recorded(claimed.entry, self._tool.result)
            return "return"
        first = next((row for row in self._journal.entries() if row.number == entry.matches), None)
        if claimed.row.thread == own and first is not None and self._tool.in_doubt in ("ask", "probe"):
            raise suspended_to_settle(first)  # one question for both calls
        entry = replace(entry, status="in_doubt", deadline=claimed.entry.deadline, owner=claimed.entry.owner)
        return self._doubt(self._journal.end(entry))

    def _matching(self, claimed: acts.ClaimedAct) -> Entry:
        """The entry of this call, which matches that of the claim."""
        row, own = claimed.row, self._context.lease.row.thread
        entry = replace(self._entry, matches=row.number, matches_thread=0 if row.thread == own else row.thread)
        if row.thread == own and 0 < entry.number <= row.number and claimed.entry is not None:
            # An entry may only match an entry before it. The claim may be of a rerun of this call with another key.
            is_rerun = self._context.earlier_calls.first(claimed.entry).number == entry.number
            entry = replace(entry, matches=0) if is_rerun else replace(entry, number=0)
        return entry

    def _await(self, claimed: acts.ClaimedAct) -> NextAction:
        """Wait for the same act of another call. ActUnderWay if that takes too long."""
        self._act_wait_until = self._act_wait_until or local_seconds() + (self._tool.bound or acts.WAIT_SECONDS)
        if local_seconds() < self._act_wait_until:
            return "wait_act"
        raise acts.under_way_error(self._context.store, claimed, self._tool.name, self._context.thread)

    def _confirm(self, entry: Entry) -> NextAction:
        """Ask for permission again, unless the run no longer needs it."""
        self._require_expected()
        self._require_new(entry)
        if self._context.earlier_calls.effects == "ask" or (entry.matches and entry.redacted & CALL_REDACTED):
            raise suspended_for_permission(entry)
        self._entry = replace(self._with_call(entry), matches=0, matches_thread=0)
        return "call"

    # -- the call -------------------------------------------------------------------------------------------------

    def _start(self) -> Invocation:
        """Write the intent of a call that acts. Every call of a tool starts here."""
        context, tool = self._context, self._tool
        if context.watch.has_guards:
            context.watch.enter(self._entry)
        if self._retry_state is not None:
            self._entry = self._retry_state.next(self._entry)
        self._current_try, self._pause = self._entry, 0.0
        if tool.effect == "read":
            self._journal.write_results()
        else:
            if context.earlier_calls.is_only_recorded:
                raise NotRecorded(
                    f'{tool.name} was not called: it has no recorded result, and effects="recorded"; nothing was '
                    'changed. Run with effects="ask" or "live" to call it.'
                )
            # The intent is the fence check: the store refuses a process that lost its lease before it acts.
            is_irreversible = tool.effect == "irreversible"
            owner = context.lease.row.owner if is_irreversible else self._entry.owner
            entry = replace(self._entry, status="started", fence=context.lease.fence, started_at=now(), owner=owner)
            entry = replace(entry, ended_at=None, error=None, deadline=None, released=None)
            is_bounded = is_irreversible and (tool.timeout or tool.probe_after) is not None
            claim = None if entry.act is None else (self._claim,)
            if entry.act is not None and entry.idempotency_key is None and tool.needs_key:
                entry = replace(entry, idempotency_key=self._key_of(entry))
            if is_irreversible or self._needs_intent(entry):
                write = self._write_bounded if is_bounded else self._journal.write
                with context.lease.limit:
                    self._current_try = write(entry, claim=claim)
            else:
                self._current_try = entry
                self._journal.write_results()
        try:
            context.lease.check()
        except LeaseLost:
            if self._current_try.number:
                self._journal.end(replace(self._current_try, status="not_done", owner=None, deadline=None))
            raise
        given = self._with_key(self._current_try) if tool.takes_key else self._copy()
        make_key = functools.partial(self._key_of, self._current_try)
        attempt = self._current_try.tries + 1
        current = CurrentCall(tool.name, self._started.own_key, attempt, make_key, self._journal, self._current_try)
        if self._watched is not None:
            self._watched.note_called()
        acts = tool.effect != "read"
        return Invocation(tool.function, (), given, tool.timeout, running=self._running, acts=acts, call=current)

    def _needs_intent(self, entry: Entry) -> bool:
        """Whether the intent of an idempotent call must be stored before it. Without, a resume makes the call again."""
        if self._tool.in_doubt != "rerun":
            return True  # a crash must leave the call in doubt
        if entry.number or entry.matches:
            return True  # it was tried before
        if entry.outside or self._journal.has_topics:
            return True  # outside of steps, or in a run whose step is never closed, the key is found by the intent
        # After a read or a failure, a resume might make the call with other arguments: the intent is written with their
        # entries. After a save, the intent shows a resume that the save was made.
        return self._journal.has_undecided(entry.step)

    def _write_bounded(self, entry: Entry, *, claim: tuple[ActRow | None] | None) -> Entry:
        """Write the intent of a call with the time until which it can act."""
        context, tool, journal = self._context, self._tool, self._journal
        bound, within, took = tool.bound or 0.0, _INTENT_SECONDS, math.inf
        while took > within:
            if took < math.inf:
                within = took * 2  # the store is slow, and the call would start later than its deadline allows for
            started = local_seconds()
            entry = journal.write(replace(entry, deadline=context.lease.deadline(within + bound)), claim=claim)
            took = local_seconds() - started
        if tool.timeout is not None:
            self._running = journal.running[entry.number] = ToolThread(
                bound, (ToolNotDone, *tool.not_done), tool.result
            )
        return entry

    def _failed(self, error: BaseException, status: Literal["failed", "not_done", "in_doubt"]) -> NextAction:
        """Record how the call failed, and whether it is made again."""
        tool, journal = self._tool, self._journal
        if tool.errors == "result" and self._is_answer(error, status):
            result = {"error": text_of(error, self._context.redaction)}
            ended = replace(self._current_try, status="done", type=PLAIN_TYPE)
            if status == "not_done":
                ended = replace(ended, act=None)  # the act is free
            self._result = journal.record(ended, result, when="with next" if tool.effect == "read" else "now")
            return "return"
        if status == "in_doubt":
            self._cause = error
            # An irreversible call that may have happened is not made again because of an error.
            can_rerun = tool.effect != "irreversible" and tool.in_doubt in ("rerun", "give_up")
            tries = self._left(error) if can_rerun else None
            doubtful = self._doubtful(error)
            self._entry = journal.end(doubtful if tries is None else tries.failed(doubtful))
            if tries is not None:
                return "call"
            if tool.in_doubt == "rerun":
                return "raise"
            try:
                return self._decide()
            except Waiting:
                # The program does not get the error, and the block ends silently.
                log_failure(self._entry, error, self._context.redaction)
                raise
        journal.running.pop(self._current_try.number, None)
        tries = self._left(error)
        if tries is None and tool.effect == "read" and isinstance(error, Exception):
            journal.fail(self._current_try, error)
            return "raise"
        ended = replace(
            self._current_try, status=status, error=text_of(error, self._context.redaction), owner=None, deadline=None
        )
        journal.note(error, journal.end(ended if tries is None else tries.failed(ended)))
        return "raise" if tries is None else "call"

    def _left(self, error: BaseException) -> RetryState | None:
        """The state of this call's retries, if it is made again after this error; else None."""
        return self._retry_state if self._retry_state is not None and self._retry_state.allow(error) else None

    def _is_answer(self, error: BaseException, status: Literal["failed", "not_done", "in_doubt"]) -> bool:
        """Whether an error of a tool with errors="result" is its result: the function ended, and is not retried."""
        if not isinstance(error, Exception) or isinstance(error, LeaseLost | CallTimedOut):
            return False
        return status == "in_doubt" or self._left(error) is None

    def _doubtful(self, error: BaseException) -> Entry:
        """The entry of a call that failed with an unknown outcome."""
        entry = replace(self._current_try, status="in_doubt", error=text_of(error, self._context.redaction))
        running = self._running
        if running is None or not running.is_started or running.has_returned:
            self._journal.running.pop(entry.number, None)
            entry = replace(entry, owner=None)
            if not (self._tool.in_thread and isinstance(error, CallTimedOut)):
                return entry
        # It runs for longer than declared, so it is unknown until when it can act.
        return entry if self._tool.probe_after is not None else replace(entry, deadline=None)

    # -- in doubt -------------------------------------------------------------------------------------------------

    def _doubt(self, entry: Entry) -> NextAction:
        """Decide about a call that an earlier process started and whose outcome is unknown."""
        self._entry = entry
        if entry.matches_thread and entry.act is None:
            # Another thread made the call with its own idempotency key, so a probe or a rerun would be of another call.
            raise suspended_to_settle(entry)
        return self._decide()

    def _decide(self, answered: object = None, answer: ProbeAnswer | None = None) -> NextAction:
        """Do what the table of calls in doubt says."""
        context, tool, entry = self._context, self._tool, self._entry
        clock = context.store.clock()
        match decide_doubt(tool.effect, tool.in_doubt, answer, can_act_of(entry, clock, tool)):
            case "probe":
                return "probe"
            case "happened":
                assert isinstance(answered, Happened)  # noqa: S101 - the answer says so
                entry = replace(entry, status="done", settled="probe", owner=None, deadline=None, released=None)
                self._result = self._journal.record(
                    entry, answered.result, tool.result, is_declared=True, is_reported=True
                )
                acts.take_over(context.store, context.lease.row.thread, entry)
                return "return"
            case "give_up":
                entry = replace(entry, status="given_up", settled="give_up")
                if entry.act is None:  # else the act is free when the call can no longer act
                    entry = replace(entry, owner=None, deadline=None)
                self._result = self._journal.record(entry, unknown_outcome(tool.name))
                return "return"
            case "rerun" if answer is None:
                self._entry = replace(acts.next_try(entry), settled="rerun")
                return "call"
            case "rerun":
                return self._not_done()
            case "wait":
                seconds = answered.seconds if isinstance(answered, NotYet) else NotYet().seconds
                later = deadline_in(seconds, clock) if answer == "not_yet" else entry.deadline
                return self._wait(later or deadline_in(seconds, clock), clock)
            case "ask":
                raise suspended_to_settle(entry)

    def _wait(self, until: Deadline, clock: Clock) -> NextAction:
        """Wait until the call can no longer act: here if that is soon, else suspended."""
        until = on_clock(until, clock)
        left = (until.at - clock.now) / 1000
        if self._pause or left > SHORT_SECONDS:
            raise suspended_until(self._entry, until)
        self._pause = max(left, 0.001)
        return "wait_deadline"

    def _probe(self) -> Invocation:
        probe = self._tool.probe
        if probe is None:
            raise suspended_to_settle(self._entry)
        self._journal.write_results()
        given = self._with_key(self._entry) if takes_key(probe) else self._copy()
        return Invocation(probe, (), given, is_internal=True)

    def _not_done(self) -> NextAction:
        """Record that the probe found nothing. The call is made again if its process died, or if a retry is left."""
        entry, journal = self._entry, self._journal
        cause = self._cause
        if cause is None and entry.error is not None:  # an earlier claim received the error, and waited
            cause = error_of(entry.error)
        tries = None if cause is None else self._left(cause)
        is_final = cause is not None and tries is None
        ended = replace(entry, status="not_done", settled="probe", heard=is_final, owner=None, deadline=None)
        ended = journal.end(ended if tries is None else tries.failed(ended))
        if cause is not None and is_final:
            journal.note(cause, ended)
            journal.accept_inner(ended, can_be_repeated=True)  # as for a recorded failure that is raised again
            raise cause
        self._entry = replace(acts.next_try(entry), number=0, ended_at=None, replayed=(0, 0))
        return "call"

    # -- entries --------------------------------------------------------------------------------------------------

    def _with_call(self, entry: Entry) -> Entry:
        """An entry with the arguments of this call. Their digest is of the redacted form, so it reveals no secret."""
        recorded = self._context.redaction.arguments(self._given)
        call = msgpack.encode(recorded)
        redacted = entry.redacted & IDENTITY_REDACTED | (0 if recorded is self._given else CALL_REDACTED)
        return replace(entry, call=call, arguments=digest_of(recorded), redacted=redacted)

    def _with_key(self, entry: Entry) -> dict[str, Any]:
        """The arguments with the idempotency key of an entry."""
        return {**self._copy(), "idempotency_key": self._key_of(entry)}

    def _key_of(self, entry: Entry) -> str:
        """The idempotency key of a call. That of an act is stored with its first call."""
        if entry.idempotency_key is not None:
            return entry.idempotency_key
        if entry.act is None:
            entry = self._context.earlier_calls.first(entry)  # if an abandoned branch made the first call
        return idempotency_key(self._context.run_id, entry)

    def _copy(self) -> dict[str, Any]:
        """The arguments as a copy, as results are: what a function does to them is not repeated in a replay."""
        encoded = self._entry.call
        if encoded is None or self._entry.redacted & CALL_REDACTED:
            encoded = msgpack.encode(self._given)
        copy: dict[str, Any] = msgpack.decode(encoded)
        return copy


def digest_of(given: dict[str, Any]) -> bytes:
    """A digest of the arguments of a tool. The order of names does not matter, as in a comparison of dicts."""
    return hashlib.sha256(msgpack.encode_sorted(given)).digest()
