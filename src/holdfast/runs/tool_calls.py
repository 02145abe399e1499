"""Tools inside a step: intent before, result after, and what to do when nobody knows which."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import CallTimedOut, InvalidArgument, LeaseLost, NotRecorded, ToolNotDone, Unsupported
from holdfast.runs.drivers import Call, Invocation, Uncalled
from holdfast.runs.guards.watch import Watch
from holdfast.runs.journal import CALL_REDACTED, Journal, Recorder, now, text_of
from holdfast.runs.lease import Lease
from holdfast.runs.past import Past
from holdfast.runs.tools import GiveUp, Happened, NotDone, Tool, takes_key, unknown_outcome
from holdfast.stores.running import EffectRow

_POLL_SECONDS = 0.05
_LATE: dict[tuple[bytes, int], Callable[[], bool]] = {}  # calls that took too long, and whether they are still running


class Parked(BaseException):
    """Ends a run's block without ending the run: somebody has to answer first. Not an error, so nobody catches it."""

    def __init__(
        self, row: EffectRow | None, reason: str, wake_at: int = 0, wake_wall: int = 0, last: int | None = None
    ) -> None:
        """`row` is the journal entry that is to be answered; the times are those of the run's record.

        `last` is the newest entry when an answer was looked for, where that may come from outside.
        """
        super().__init__()
        self.last = last
        self.row = row
        self.reason = reason
        self.wake_at = wake_at
        self.wake_wall = wake_wall


class Acting:
    """Makes the tool calls of one run."""

    def __init__(
        self, journal: Journal, recorder: Recorder, lease: Lease, past: Past, identity: bytes, watch: Watch
    ) -> None:
        """`identity` tells this run from every other, for idempotency keys."""
        self._journal = journal
        self._past = past
        self._recorder = recorder
        self._lease = lease
        self._identity = identity
        self._watch = watch
        self._answered: dict[tuple[int, str], bytes] = {}
        self.changed: list[EffectRow] = []

    def call(self, tool: Tool, given: dict[str, Any], step: int, key: str) -> Call:
        """The recorded result, or that of a call made now."""
        new = self._called(self._journal.new(step, key, tool.name, tool.effect, "begun", b""), given)
        exact = hashlib.sha256(msgpack.encode(given)).digest() if new.redacted else new.arguments
        if self._answered.get((step, key), exact) != exact:
            raise InvalidArgument(
                f"{tool.name!r} was called with this key and other arguments in this step already; "
                "give each call a key of its own"
            )
        known = self._journal.find(step, key)
        if known is not None:
            self._recorder.raise_again(known)
            if known.arguments != new.arguments:
                self.changed.append(known)
        result = yield from self._result(tool, given, new, known)
        self._answered[step, key] = exact
        return result

    def _called(self, row: EffectRow, given: dict[str, Any]) -> EffectRow:
        """An entry of a call with these arguments. The digest is of what is recorded: no secret is guessed by it."""
        recorded = self._recorder.redaction.arguments(given)
        call = msgpack.encode(recorded)
        redacted = 0 if recorded is given else CALL_REDACTED
        return replace(row, call=call, arguments=hashlib.sha256(call).digest(), redacted=redacted)

    def _result(self, tool: Tool, given: dict[str, Any], row: EffectRow, known: EffectRow | None) -> Call:
        """`row` is the entry of a call to be made, `known` what the journal has of it."""
        if known is not None and known.status == "asked":
            return (yield from self._asked(tool, given, known))
        if known is not None and known.status in ("begun", "in_doubt"):
            return (yield from self._in_doubt(tool, given, known))
        is_new = known is None or known.status in ("not_done", "failed")
        if known is not None and not is_new and not self._is_stale(tool, known):
            return self._recorder.recorded(known)
        tool.check(given)
        if tool.effect == "read":
            return (yield from self._attempt(tool, given, replace(row, call=None)))
        is_careful = tool.in_doubt in ("ask", "probe")
        same = self._journal.doubtful_like(tool.name, row.arguments) if is_careful else None
        if same is not None:
            # The same call under another key, as models that begin their ids anew give it: it may have happened.
            raise asking(same)
        # If it is known, it was tried, or somebody who was asked said that it may be.
        return (yield from self._act(tool, given, row, is_allowed=known is not None))

    def _is_stale(self, tool: Tool, known: EffectRow) -> bool:
        """Whether what a read gave to a claim before this one is too old, and nobody has gone by it yet."""
        if tool.max_age is None or known.kind != "read" or known.fence == self._lease.fence or known.ended_at is None:
            return False
        return now() - known.ended_at > tool.max_age * 1_000_000 and not self._journal.decided_after(known)

    def _act(self, tool: Tool, given: dict[str, Any], row: EffectRow, *, is_allowed: bool) -> Call:
        """Call a tool that acts, unless that was done on a branch that was abandoned, or the run may not."""
        row = replace(row, since=self._journal.since(row.step, row.key))
        before = self._journal.find(row.step, row.key)
        if is_allowed and before is not None and not before.of and not before.redacted & CALL_REDACTED:
            row = replace(row, matches=before.matches)  # what it took the place of was not done, and is done now
        done = None if is_allowed else self._past.take(tool.name, row.arguments)
        if done is not None:
            row = replace(row, matches=done.number, of=done.of)
            if done.redacted & CALL_REDACTED and self._past.effects() != "recorded":
                raise _asking_before(row, "may have been called before, with arguments that were redacted")
            if done.result is not None:
                self._recorder.end(replace(row, status=done.status, result=done.result))
                return self._recorder.recorded(done)
            if self._past.is_of_origin(row):
                raise _asking_before(row, "may have been called by the thread that this one was forked from")
            return (yield from self._in_doubt(tool, given, self._recorder.end(replace(row, status="in_doubt"))))
        if not is_allowed and tool.effect == "irreversible" and self._past.effects() == "ask":
            raise _asking_before(row)
        return (yield from self._attempt(tool, given, row))

    def _asked(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Call:
        """A call that nobody has begun, because somebody was to be asked first, and did not answer."""
        if self._past.effects() == "ask" or (row.matches and row.redacted & CALL_REDACTED):
            raise _asking_before(row)
        row = replace(self._called(row, given), matches=0, of=0)
        return (yield from self._attempt(tool, given, row))

    def _attempt(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Call:
        """Call a tool, as often as it may be retried."""
        left = tool.retry
        while True:
            try:
                return (yield from self._call(tool, given, row, is_last=not left))
            except _Doubt as doubt:
                row = doubt.row
                if not left or tool.in_doubt not in ("rerun", "give_up"):
                    decided = yield from self._decide(tool, given, row, doubt.cause)
                    if isinstance(decided, _Answer):
                        return decided.result
                    if not left:
                        raise doubt.cause from None
                    row = decided
            except (LeaseLost, Unsupported):
                raise
            except Exception:  # whatever a tool raises: tried again while it may be, then the caller's
                if not left or (tool.effect == "irreversible" and not self._is_not_done(row)):
                    raise
            left -= 1

    def _is_not_done(self, row: EffectRow) -> bool:
        known = self._journal.find(row.step, row.key)
        return known is not None and known.status == "not_done"

    def _call(self, tool: Tool, given: dict[str, Any], row: EffectRow, *, is_last: bool) -> Call:
        self._watch.enter(row)
        if tool.effect == "read":
            return (yield from self._read(tool, given, row, is_last=is_last))
        if self._past.effects() == "recorded":
            # Here, where all ways to act meet: a new call, one that failed before, one in doubt.
            raise NotRecorded(
                f'{tool.name} was not called: there is no recorded result of it, and effects="recorded" only reads'
            )
        # The intent is the fence check: a worker that lost its lease is refused before it acts.
        row = self._journal.write(
            replace(row, status="begun", fence=self._lease.fence, begun_at=now(), ended_at=None, error=None)
        )
        try:
            self._lease.check()
        except LeaseLost:
            self._recorder.end(replace(row, status="not_done"))
            raise
        nothing_happened: tuple[type[BaseException], ...] = (ToolNotDone, *tool.not_done)
        try:
            result = yield self._invocation(tool, given, row)
        except Uncalled:
            self._recorder.end(replace(row, status="not_done"))
            raise
        except nothing_happened as error:
            row = self._recorder.end(replace(row, status="not_done", error=self._text_of(error), heard=is_last))
            self._recorder.note(error, row)
            raise
        except Exception as error:
            if tool.effect == "irreversible" or isinstance(error, CallTimedOut):
                row = self._recorder.end(replace(row, status="in_doubt", error=self._text_of(error)))
                raise _Doubt(row, error) from error
            row = self._recorder.end(replace(row, status="failed", error=self._text_of(error), heard=is_last))
            self._recorder.note(error, row)
            raise
        return self._recorder.record(replace(row, status="done"), result)

    def _text_of(self, error: BaseException) -> str:
        return text_of(error, self._recorder.redaction)

    def _read(self, tool: Tool, given: dict[str, Any], row: EffectRow, *, is_last: bool) -> Call:
        self._lease.check()
        try:
            result = yield self._invocation(tool, given, row)
        except Exception as error:
            self._recorder.fail(row, error, is_heard=is_last)
            raise
        return self._recorder.record(replace(row, status="done"), result, with_next=True)

    def _invocation(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Invocation:
        if tool.takes_key:
            given = {**given, "idempotency_key": self._idempotency_key(row)}
        return Invocation(tool.function, (), given, tool.timeout)

    # -- in doubt ---------------------------------------------------------------------------------------------------

    def _in_doubt(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Call:
        """The result of a call that another process began, and whose end nobody recorded."""
        if row.redacted & CALL_REDACTED:
            # What was recorded is not what the call was made with: only the program can still tell that.
            if self._called(row, given).arguments != row.arguments and tool.in_doubt != "give_up":
                raise asking(row)
        elif row.call is not None:
            # In doubt is the call that was made, whatever words the model has for it now.
            given = msgpack.decode(row.call)
        if row.of:
            # Another thread made the call, with a key of its own: neither a probe nor a rerun would be of that call.
            raise asking(row)
        decided = yield from self._decide(tool, given, row)
        if isinstance(decided, _Answer):
            return decided.result
        return (yield from self._attempt(tool, given, decided))

    def _decide(self, tool: Tool, given: dict[str, Any], row: EffectRow, cause: BaseException | None = None) -> Call:
        """The answer to a call in doubt, or the entry under which to make it again. Parks the run if nobody knows."""
        if tool.in_doubt == "give_up":
            return self._give_up(tool, row)
        if not self._await_presumed(tool, row):
            raise asking(row)
        if tool.in_doubt == "rerun":
            return replace(row, settled="rerun")
        answer = yield from self._probed(tool, given, row)
        if isinstance(answer, Happened):
            return _Answer(self._recorder.record(replace(row, status="done", settled="probe"), answer.result))
        if (isinstance(answer, NotDone) or answer is NotDone) and not self._may_still_act(row, cause):
            self._recorder.end(replace(row, status="not_done", settled="probe"))
            return replace(row, number=0, ended_at=None, known=(0, 0))
        if isinstance(answer, GiveUp) or answer is GiveUp:
            return self._give_up(tool, row)
        raise asking(row)

    def _may_still_act(self, row: EffectRow, cause: BaseException | None) -> bool:
        """Whether a call that took too long is still under way in this process: not done yet is no "not done"."""
        place = (self._identity, row.number)
        if isinstance(cause, CallTimedOut) and cause.is_running is not None:
            _LATE[place] = cause.is_running
        is_running = _LATE.get(place)
        if is_running is not None and not is_running():
            del _LATE[place]
            return False
        return is_running is not None

    def _await_presumed(self, tool: Tool, row: EffectRow) -> bool:
        """Wait until a call of an owner that is only presumed dead must be over; False if that cannot be told.

        Such an owner may be inside the tool still. It was refused nothing before its lease ended, and the tool's
        time-out bounds how much later it can act.
        """
        until = self._lease.row.presumed_until
        if not until or row.fence == self._lease.fence or tool.in_doubt == "ask":
            return True
        if tool.timeout is None:
            # The idempotency key makes calls beside each other one; nothing does that for an irreversible tool.
            return tool.effect != "irreversible"
        until += round(tool.timeout * 1000)
        while not self._lease.has_passed(until):
            self._lease.check()
            time.sleep(_POLL_SECONDS)
        return True

    def _probed(self, tool: Tool, given: dict[str, Any], row: EffectRow) -> Call:
        """What the tool's probe says of a call; None if there is none, or it does not know."""
        if tool.probe is None:
            return None
        if takes_key(tool.probe):
            given = {**given, "idempotency_key": self._idempotency_key(row)}
        return (yield Invocation(tool.probe, (), given, is_probe=True))

    def _give_up(self, tool: Tool, row: EffectRow) -> _Answer:
        row = replace(row, status="given_up", settled="give_up")
        return _Answer(self._recorder.record(row, unknown_outcome(tool.name)))

    def _idempotency_key(self, row: EffectRow) -> str:
        row = self._past.first(row)  # what the world knows a call by is the key that it was first made with
        parts = (self._identity, row.branch, row.step, row.key, *((row.since,) if row.since else ()))
        return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


def asking(row: EffectRow) -> Parked:
    """The run waits to hear what became of a call. `hf.waiting()` says which, with its arguments and since when."""
    return Parked(replace(row, status="in_doubt"), f"in doubt: {row.name}, call {row.number}; hf.settle decides")


def _asking_before(row: EffectRow, why: str = "is asked about before it is called") -> Parked:
    """The run waits to hear whether it may make a call."""
    return Parked(replace(row, status="asked"), f"{row.name} {why}; hf.settle(NotDone()) lets it be called")


class _Answer(NamedTuple):
    """How a call in doubt was decided."""

    result: Any


class _Doubt(Exception):
    """A call ended in a way that leaves open whether it happened."""

    def __init__(self, row: EffectRow, cause: Exception) -> None:
        super().__init__()
        self.row = row
        self.cause = cause
