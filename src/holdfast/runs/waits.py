"""Waiting inside a run: for an answer, or for time to pass, without a process."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.errors import InvalidArgument, WaitTimedOut
from holdfast.runs.acting import Parked
from holdfast.runs.journal import Journal, now
from holdfast.runs.lease import Lease
from holdfast.runs.recording import Recorder
from holdfast.stores.contract import Store
from holdfast.stores.running import Deadline, EffectRow

WAIT = "run.wait"
SLEEP = "run.sleep"


class Waits:
    """Asks, and takes answers, for one run."""

    def __init__(self, store: Store, journal: Journal, recorder: Recorder, lease: Lease) -> None:
        self._store = store
        self._journal = journal
        self._recorder = recorder
        self._lease = lease

    def wait(self, name: str, payload: Any, timeout: float | None, step: int, key: str) -> Any:
        """The answer to a question, if there is one; else the run is parked until there is."""
        known = self._journal.find(step, key)
        if known is not None and known.status != "asked":
            if known.status == "failed":
                raise WaitTimedOut(f"nobody answered {name!r} in time")
            return self._recorder.recorded(known)
        if known is None:
            packed.check(payload)
            known = self._question(name, packed.encode(payload), timeout, step, key)
        answer = self._answer(known)
        if answer is not None:
            taken = replace(known, status="done", result=answer.result, by=answer.by, matches=answer.number)
            self._journal.write(replace(taken, ended_at=now()), replace(answer, status="done"))
            return self._recorder.recorded(taken)
        if self._has_passed(known.deadline):
            self._recorder.end(replace(known, status="failed"))
            raise WaitTimedOut(f"nobody answered {name!r} in time")
        raise _parked(known, f"waits for an answer to {name!r}")

    def sleep(self, seconds: float, step: int, key: str) -> None:
        """Go on when so much time has passed; until then the run is parked."""
        known = self._journal.find(step, key)
        if known is None:
            known = self._question(SLEEP, None, seconds, step, key)
        if known.status == "done":
            return
        if not self._has_passed(known.deadline):
            raise _parked(known, "sleeps")
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
        return next((row for row in rows if row.kind == "answer" and row.status == "asked"), None)

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
    if type(seconds) not in (int, float) or not 0 <= float(str(seconds)) < math.inf:
        raise InvalidArgument(f"{what} must be seconds, 0 or more")
    return float(str(seconds))


def _parked(question: EffectRow, reason: str) -> Parked:
    deadline = question.deadline
    if deadline is None:
        return Parked(question, reason)
    return Parked(question, reason, wake_at=deadline.at, wake_wall=deadline.wall)
