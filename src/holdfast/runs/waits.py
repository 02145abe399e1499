"""Waiting inside a run: for an answer, or for time to pass, without a process."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Conflict, InvalidArgument, WaitTimedOut
from holdfast.runs.journal import Journal, Recorder, now
from holdfast.runs.lease import Lease
from holdfast.runs.tool_calls import Parked
from holdfast.stores.contract import Store
from holdfast.stores.running import Deadline, EffectRow

WAIT = "run.wait"
SLEEP = "run.sleep"
_MOST_SECONDS = 100 * 366 * 86_400


class Waits:
    """Asks, and takes answers, for one run."""

    def __init__(self, store: Store, journal: Journal, recorder: Recorder, lease: Lease) -> None:
        self._store = store
        self._journal = journal
        self._recorder = recorder
        self._lease = lease
        self._asked: dict[tuple[int, str], bytes] = {}

    def wait(self, name: str, payload: Any, timeout: float | None, step: int, key: str) -> Any:
        """The answer to a question, if there is one; else the run is parked until there is."""
        msgpack.check(payload)
        encoded = msgpack.encode(self._recorder.redaction.value(payload))
        if self._asked.setdefault((step, key), encoded) != encoded:
            raise InvalidArgument(
                f"{name!r} was asked in this step already, about something else; one answer must not answer both: "
                "give each question a name of its own"
            )
        known = self._journal.find(step, key)
        if known is None:
            known = self._question(name, encoded, timeout, step, key)
        while known.status == "asked":
            self._journal.flush()  # what was read, or failed, before it was asked
            last = self._journal.last  # before the look: what is told after it stands in the way of the waiting
            answer = self._answer(known)
            if answer is not None:
                known = replace(known, status="done", result=answer.result, by=answer.by, matches=answer.number)
                known = self._recorder.end(replace(known, ended_at=now()), replace(answer, status="done"))
            elif not self._has_passed(known.deadline):
                raise _parked(known, f"waits for an answer to {name!r}", last)
            else:
                known = self._give_up(known, last)
        if known.status == "failed":
            raise WaitTimedOut(f"nobody answered {name!r} in time")
        return self._recorder.recorded(known)

    def _give_up(self, question: EffectRow, last: int) -> EffectRow:
        """Record that nobody answered in time, unless somebody did just now."""
        failed = replace(question, status="failed", ended_at=now())
        try:
            return self._journal.write_expecting(failed, last)
        except Conflict:
            self._journal.heed(at_once=True)
            return question

    def sleep(self, seconds: float, step: int, key: str) -> None:
        """Go on when so much time has passed; until then the run is parked."""
        known = self._journal.find(step, key)
        if known is None:
            known = self._question(SLEEP, None, seconds, step, key)
        if known.status == "done":
            return
        if not self._has_passed(known.deadline):
            raise _parked(known, "sleeps", None)
        self._recorder.end(replace(known, status="done"))

    def _question(self, name: str, payload: bytes | None, timeout: float | None, step: int, key: str) -> EffectRow:
        row = self._journal.new(step, key, name, "wait", "asked", hashlib.sha256(payload or b"").digest())
        return replace(
            row,
            call=payload,
            mark=None if payload is None else mark_of(name),
            deadline=None if timeout is None else self._deadline(timeout),
        )

    def _answer(self, question: EffectRow) -> EffectRow | None:
        """An answer that was written while nobody waited, to this question or before any of its name."""
        rows = self._store.marked(self._lease.row.thread, question.mark) if question.mark else []
        closed = self._lease.row.closed  # what was answered before this turn is none of its business
        return next(
            (row for row in rows if row.kind == "answer" and row.status == "asked" and row.number > closed), None
        )

    def _deadline(self, seconds: float) -> Deadline:
        clock = self._store.clock()
        return Deadline(clock.id, clock.now + math.ceil(seconds * 1000), now() + math.ceil(seconds * 1_000_000))

    def _has_passed(self, deadline: Deadline | None) -> bool:
        if deadline is None:
            return False
        clock = self._store.clock()
        return clock.now >= deadline.at if clock.id == deadline.clock else now() >= deadline.wall


def mark_of(name: str) -> str:
    """Under what the questions of a name, and their answers, are found."""
    return f"wait/{name}"


def checked_name(name: object) -> str:
    if type(name) is not str or not name:
        raise InvalidArgument("a question is named by a text that is not empty")
    return name


def checked_seconds(what: str, seconds: object) -> float:
    if type(seconds) not in (int, float) or not 0 <= float(str(seconds)) <= _MOST_SECONDS:
        raise InvalidArgument(f"{what} must be seconds, from 0 to 100 years")
    return float(str(seconds))


def _parked(question: EffectRow, reason: str, last: int | None) -> Parked:
    deadline = question.deadline
    if deadline is None:
        return Parked(question, reason, last=last)
    return Parked(question, reason, wake_at=deadline.at, wake_wall=deadline.wall, last=last)
