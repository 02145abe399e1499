"""Tool calls: the journal has the intent before a call and the result after it; a table decides what is done."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import CallTimedOut, EffectMismatch, LeaseLost, NotRecorded, ToolNotDone, Unsupported
from holdfast.runs.context import RunContext, Suspended
from holdfast.runs.drivers import Call, Invocation, Uncalled
from holdfast.runs.identity import Started, digest_of, identity_in, own_key
from holdfast.runs.journal import CALL_REDACTED
from holdfast.runs.record import now, text_of
from holdfast.runs.tools import Effect, GiveUp, Happened, InDoubt, NotDone, Tool, is_outcome, takes_key, unknown_outcome
from holdfast.stores.contract_runs import Entry, EntryStatus

_POLL_SECONDS: Final = 0.05

# Calls that timed out, by run and entry, with a function that says whether they are still running in this process.
_TIMED_OUT: Final[dict[tuple[bytes, int], Callable[[], bool]]] = {}

Decision = Literal["replay", "read", "act", "confirm", "rerun", "probe", "ask", "give_up"]
Next = Literal["call", "probe", "return", "raise"]


def decision_for(status: EntryStatus | None, effect: Effect, in_doubt: InDoubt) -> Decision:
    """The decision about a call, by the status of its newest journal entry (None: no entry) and its tool's declaration.

    A table to read from top to bottom.
    """
    match (status, effect, in_doubt):
        # The call has ended: return its result. The journal raises if it has none, as for "unstored". A "late" entry is
        # kept for a person and is never among the open entries.
        case ("done" | "given_up" | "unstored" | "late", _, _):
            return "replay"
        # Never called, or nothing was done: call it. An action is first looked up among those of abandoned branches.
        case (None | "failed" | "not_done", "read", _):
            return "read"
        case (None | "failed" | "not_done", _, _):
            return "act"
        # Not called yet: a person was asked for permission and has not answered.
        case ("asked", _, _):
            return "confirm"
        # Started, outcome unknown: the tool's declaration decides.
        case ("begun" | "in_doubt", _, "rerun"):
            return "rerun"
        case ("begun" | "in_doubt", _, "probe"):
            return "probe"
        case ("begun" | "in_doubt", _, "ask"):
            return "ask"
        case ("begun" | "in_doubt", _, "give_up"):
            return "give_up"


class ToolCall:
    """One tool call of a run."""

    def __init__(self, context: RunContext, tool: Tool, given: dict[str, Any], step: int) -> None:
        self._context = context
        self._journal = context.journal
        self._tool = tool
        self._given = given
        self._retries = tool.retry
        self._cause: BaseException | None = None  # the error that left this call in doubt
        self._result: Any = None
        # `_entry`: the template of the next try. `_try`: the try that is running.
        self._entry = self._with_call(self._journal.new(step, "", tool.name, tool.effect, "begun", b""))
        self._try = self._entry
        self.digest: Final = self._entry.arguments

    def make(self, started: Started) -> Call:
        """The recorded result, or that of a call made now. Suspended if a person has to decide."""
        self._started = started
        self._entry = self._try = replace(self._entry, key=started.key)
        place, exact = (self._entry.step, self._entry.key), self._entry.arguments
        if self._entry.redacted:
            exact = digest_of(self._given)
        self._context.require_same(self._entry, exact, self._tool.function, is_named=self._tool.is_named)
        acts = self._tool.effect != "read"
        nothing_done: tuple[type[BaseException], ...] = (ToolNotDone, *self._tool.not_done) if acts else ()
        following = self._first()
        while following != "return":
            if following == "probe":
                following = self._probed((yield self._probe()))
                continue
            invocation = self._start()
            try:
                result = yield invocation
            except Uncalled:
                if acts:
                    self._journal.end(replace(self._try, status="not_done"))
                raise
            except nothing_done as error:
                following = self._failed(error, "not_done")
                if following == "raise":
                    raise
            except Exception as error:
                is_unknown = acts and (self._tool.effect == "irreversible" or isinstance(error, CallTimedOut))
                following = self._failed(error, "in_doubt" if is_unknown else "failed")
                if following == "raise":
                    raise
            else:
                entry = replace(self._try, status="done")
                self._result = self._journal.record(entry, result, with_next=not acts)
                following = "return"
        self._context.answered[place] = exact, self._tool.function
        return self._result

    # -- before the call ------------------------------------------------------------------------------------------

    def _first(self) -> Next:
        entry, tool = self._entry, self._tool
        known = self._journal.ask(entry.step, entry.key)
        if known is not None:
            self._journal.raise_again(known)
            if known.arguments != entry.arguments:
                known = self._changed(known)
        if known is None:
            decision = decision_for(None, tool.effect, tool.in_doubt)
        else:
            decision = decision_for(None if self._is_stale(known) else known.status, tool.effect, tool.in_doubt)
        if decision == "read":
            tool.check(self._given)
            self._entry = replace(entry, call=None)
            return "call"
        if decision == "act" or known is None:
            return self._act(known)
        if decision == "replay":
            self._result = self._journal.recorded(known)
            return "return"
        return self._confirm(known) if decision == "confirm" else self._doubt(known)

    def _changed(self, known: Entry) -> Entry | None:
        """Decide about a recorded call that is asked for with other arguments."""
        if known.status == "not_done":
            return None  # it did not happen, so this is another call
        if self._tool.effect != "read":
            raise EffectMismatch(
                f"{self._tool.name} is recorded with key {self._started.own_key!r} and other arguments (call "
                f"{known.number}); nothing was called. Pass the recorded arguments, or give this call another key."
            )
        self._context.changed.append(known)
        return known

    def _require_expected(self) -> None:
        """Refuse a new call that may be a recorded one, changed: one that an earlier process made and that the program
        has not asked for again. EffectMismatch for another function, Suspended if only a person can tell.

        Calls at the same time come in any order, so only those that are made one after the other are compared.
        """
        if not self._started.is_alone:
            return
        entry, key = self._entry, self._started.own_key
        for row in self._journal.unasked(entry.step):
            if row.step != entry.step or row.kind == "child":
                continue
            is_same_tool = identity_in(row.key) == self._tool.identity
            is_same_call = row.arguments == entry.arguments
            its_key = own_key(row.key)
            if not is_same_tool and key == its_key and (key is not None or is_same_call):
                what = "without a key and with the same arguments" if key is None else f"with key {key!r}"
                raise EffectMismatch(
                    f"an earlier process called {identity_in(row.key)} {what} (call {row.number}), and this program "
                    f"calls {self._tool.identity} instead; nothing was called. Resume the run with the program that "
                    "made the call. If this is another call, give it a key of its own."
                )
            if is_same_tool and (is_same_call or (key is None and its_key is None)):
                raise _asking_first(
                    entry,
                    f"may be call {row.number} of an earlier process, which the program has not asked for again, with "
                    f"{'another key' if is_same_call else 'other arguments'}",
                )

    def _is_stale(self, known: Entry) -> bool:
        """Whether a read of an earlier claim is too old, and nothing depends on it yet."""
        max_age = self._tool.max_age
        is_of_earlier_claim = known.fence != self._context.lease.fence
        if max_age is None or known.kind != "read" or known.ended_at is None or not is_of_earlier_claim:
            return False
        return now() - known.ended_at > max_age * 1_000_000 and not self._journal.decided_after(known)

    def _act(self, known: Entry | None) -> Next:
        """Call a tool that acts, unless an abandoned branch has called it, or the run may not."""
        tool, past = self._tool, self._context.past
        tool.check(self._given)
        if tool.in_doubt in ("ask", "probe"):
            same = self._journal.doubtful_like(tool.identity, self._entry.arguments)
            if same is not None:
                # The same call under another key, as from a model that numbers its calls anew. It may have happened.
                raise suspended_by(same)
        entry = self._entry = replace(
            self._entry, valid_after=self._journal.newest_void(self._entry.step, self._entry.key)
        )
        if known is not None:
            # It was tried before, or a person allowed it.
            if not known.matches_thread and not known.redacted & CALL_REDACTED:
                self._entry = replace(entry, matches=known.matches)
            return "call"
        self._require_expected()
        done = past.take(tool.identity, entry.arguments)
        if done is None:
            if tool.effect == "irreversible" and past.effects == "ask":
                raise _asking_first(entry)
            return "call"
        entry = replace(entry, matches=done.number, matches_thread=done.matches_thread)
        if done.redacted & CALL_REDACTED and past.effects != "recorded":
            raise _asking_first(entry, "may have been called before, with arguments that were redacted")
        if done.result is not None:
            self._journal.end(replace(entry, status=done.status, result=done.result))
            self._result = self._journal.recorded(done)
            return "return"
        if past.is_of_origin(entry):
            raise _asking_first(entry, "may have been called by the thread that this one was forked from")
        return self._doubt(self._journal.end(replace(entry, status="in_doubt")))

    def _confirm(self, entry: Entry) -> Next:
        """Ask for permission again, unless the run now acts without."""
        self._require_expected()
        if self._context.past.effects == "ask" or (entry.matches and entry.redacted & CALL_REDACTED):
            raise _asking_first(entry)
        self._entry = replace(self._with_call(entry), matches=0, matches_thread=0)
        return "call"

    # -- the call -------------------------------------------------------------------------------------------------

    def _start(self) -> Invocation:
        """Write the intent of a call that acts. Every call of a tool starts here."""
        context, tool = self._context, self._tool
        context.watch.enter(self._entry)
        self._try = self._entry
        if tool.effect != "read":
            if context.past.effects == "recorded":
                raise NotRecorded(
                    f'{tool.name} was not called: it has no recorded result, and effects="recorded"; nothing was '
                    'changed. Run with effects="ask" or "live" to call it.'
                )
            # The intent is the fence check: the store refuses a worker that lost its lease before it acts.
            entry = replace(self._entry, status="begun", fence=context.lease.fence, begun_at=now())
            self._try = self._journal.write(replace(entry, ended_at=None, error=None))
        try:
            context.lease.check()
        except LeaseLost:
            if tool.effect != "read":
                self._journal.end(replace(self._try, status="not_done"))
            raise
        given = self._with_key(self._try) if tool.takes_key else self._copy()
        return Invocation(tool.function, (), given, tool.timeout)

    def _failed(self, error: BaseException, status: Literal["failed", "not_done", "in_doubt"]) -> Next:
        """Record how the call failed, and whether it is made again."""
        tool, journal = self._tool, self._journal
        if status == "in_doubt":
            self._cause = error
            self._entry = journal.end(replace(self._try, status=status, error=self._text_of(error)))
            if self._retries and tool.in_doubt in ("rerun", "give_up"):
                self._retries -= 1
                return "call"
            return "raise" if tool.in_doubt == "rerun" else self._decide()
        is_final = not self._retries or not isinstance(error, Exception) or isinstance(error, LeaseLost | Unsupported)
        if tool.effect == "read" and isinstance(error, Exception):
            journal.fail(self._try, error, is_heard=is_final)
        else:
            ended = replace(self._try, status=status, error=self._text_of(error), heard=is_final)
            journal.note(error, journal.end(ended))
        self._retries -= 1
        return "raise" if is_final else "call"

    # -- in doubt -------------------------------------------------------------------------------------------------

    def _doubt(self, entry: Entry) -> Next:
        """Decide about a call that an earlier process started and whose outcome is unknown."""
        self._entry = entry
        if entry.matches_thread:
            # Another thread made the call with its own idempotency key, so a probe or a rerun would be of another call.
            raise suspended_by(entry)
        return self._decide()

    def _decide(self) -> Next:
        """Do what the tool declares for calls in doubt."""
        tool = self._tool
        decision = decision_for("in_doubt", tool.effect, tool.in_doubt)
        if decision == "give_up":
            return self._give_up()
        if decision == "ask" or not self._await_presumed():
            raise suspended_by(self._entry)
        if decision == "probe":
            return "probe"
        self._entry = replace(self._entry, settled="rerun")
        return "call"

    def _probe(self) -> Invocation:
        probe = self._tool.probe
        if probe is None:
            raise suspended_by(self._entry)
        given = self._with_key(self._entry) if takes_key(probe) else self._copy()
        return Invocation(probe, (), given, is_probe=True)

    def _probed(self, answer: object) -> Next:
        """Settle a call by the answer of the tool's probe."""
        entry = self._entry
        if isinstance(answer, Happened):
            self._result = self._journal.record(replace(entry, status="done", settled="probe"), answer.result)
            return "return"
        if is_outcome(answer, NotDone) and not self._may_still_act(entry):
            self._journal.end(replace(entry, status="not_done", settled="probe"))
            self._entry = replace(entry, number=0, ended_at=None, replayed=(0, 0))
            if self._cause is None:
                return "call"
            if not self._retries:
                raise self._cause
            self._retries -= 1
            return "call"
        if is_outcome(answer, GiveUp):
            return self._give_up()
        raise suspended_by(entry)

    def _give_up(self) -> Next:
        entry = replace(self._entry, status="given_up", settled="give_up")
        self._result = self._journal.record(entry, unknown_outcome(self._tool.name))
        return "return"

    def _may_still_act(self, entry: Entry) -> bool:
        """Whether a call that timed out still runs in this process: then it may yet happen."""
        place = (self._context.identity, entry.number)
        if isinstance(self._cause, CallTimedOut) and self._cause.is_running is not None:
            _TIMED_OUT[place] = self._cause.is_running
        is_running = _TIMED_OUT.get(place)
        if is_running is not None and not is_running():
            del _TIMED_OUT[place]
            return False
        return is_running is not None

    def _await_presumed(self) -> bool:
        """Wait until the call of an owner that is only presumed dead must be over; False if there is no such time.

        Such an owner may still be inside the tool. It could start the call until its lease expired, and the tool's
        timeout limits how long the call took.
        """
        tool, lease = self._tool, self._context.lease
        until = lease.row.presumed_until
        if not until or self._entry.fence == lease.fence:
            return True
        if tool.timeout is None:
            # Concurrent calls with the same idempotency key are one. Nothing protects an irreversible tool.
            return tool.effect != "irreversible"
        until += round(tool.timeout * 1000)
        while not lease.has_passed(until):
            lease.check()
            time.sleep(_POLL_SECONDS)
        return True

    # -- entries --------------------------------------------------------------------------------------------------

    def _with_call(self, entry: Entry) -> Entry:
        """An entry with the arguments of this call. Their digest is of the redacted form, so it reveals no secret."""
        recorded = self._context.redaction.arguments(self._given)
        call = msgpack.encode(recorded)
        redacted = 0 if recorded is self._given else CALL_REDACTED
        return replace(entry, call=call, arguments=digest_of(recorded), redacted=redacted)

    def _with_key(self, entry: Entry) -> dict[str, Any]:
        """The arguments with the idempotency key of an entry."""
        entry = self._context.past.first(entry)  # the key of the first call, if an abandoned branch made it
        parts = (
            self._context.identity,
            entry.branch,
            entry.step,
            entry.key,
            entry.arguments,
            *((entry.valid_after,) if entry.valid_after else ()),
        )
        key = hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()
        return {**self._copy(), "idempotency_key": key}

    def _copy(self) -> dict[str, Any]:
        """The arguments as a copy, as results are: what a function does to them is not repeated in a replay."""
        encoded = self._entry.call
        if encoded is None or self._entry.redacted & CALL_REDACTED:
            encoded = msgpack.encode(self._given)
        copy: dict[str, Any] = msgpack.decode(encoded)
        return copy

    def _text_of(self, error: BaseException) -> str:
        return text_of(error, self._context.redaction)


def suspended_by(entry: Entry) -> Suspended:
    """The suspension of a run until a call in doubt is settled."""
    return Suspended(
        replace(entry, status="in_doubt"),
        f"in doubt: {entry.name} (call {entry.number}) has no recorded outcome; settle it with hf.settle",
    )


def _asking_first(entry: Entry, why: str = "waits for permission") -> Suspended:
    """The suspension of a run until a person allows a call."""
    return Suspended(
        replace(entry, status="asked"),
        f"{entry.name} {why}; allow it with hf.settle(THREAD, NUMBER, NotDone())",
    )
