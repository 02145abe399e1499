"""What a run is made of, whoever drives it: state, steps, boundaries and end. `Run` and `AsyncRun` are faces of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.errors import Cancelled, Conflict, HoldfastError, InvalidArgument, LeaseLost, StoreError
from holdfast.policy import Event, Policy
from holdfast.records import Checkpoint, Effect, Status
from holdfast.runs.acting import Parked
from holdfast.runs.answers import pending_cancel
from holdfast.runs.calls import Calls
from holdfast.runs.claiming import turn_mark
from holdfast.runs.failures import text_of
from holdfast.runs.invoking import Call
from holdfast.runs.journal import Journal, now
from holdfast.runs.lease import Lease
from holdfast.runs.past import Effects, Past
from holdfast.runs.recovery import effect_of
from holdfast.runs.tools import Tools
from holdfast.stores.running import EffectRow, RunRow
from holdfast.threads.session import Session
from holdfast.threads.thread import Thread, saver_of


class Stopped(BaseException):
    """Ends a run's block at the end of a step because its worker is to end. Another worker goes on with it."""


class Keeper(Protocol):
    """Who looks after a run from outside its block: a worker."""

    def is_stopping(self) -> bool:
        """Whether the run is to be given back at the end of its step."""
        ...

    def after_failure(self, row: RunRow) -> RunRow:
        """What becomes of a run that failed. It is written with the failure: a crash in between would leave it so."""
        ...


class RunCore:
    """A run that this process holds: everything but who invokes what users wrote."""

    def __init__(
        self,
        session: Session,
        thread: Thread,
        lease: Lease | None,
        row: RunRow,
        tools: Tools,
        policy: Policy,
        *,
        resumed: bool,
        effects: Effects | None = None,
        can_await: bool = False,
        keeper: Keeper | None = None,
    ) -> None:
        self._session = session
        self._saver = saver_of(thread)
        self.thread = thread.name
        self._lease = lease
        self._row = row
        self._policy = policy
        self._keeper = keeper
        self.resumed = resumed
        self.attempt = row.attempt
        self.status: Status = row.status
        self.result = None if row.result is None else packed.decode(row.result)
        head = thread.latest()
        if head is None:
            raise HoldfastError("the thread of a run is gone")
        self.state: Any = head.state
        self.age = max(0.0, time.time() - head.created_at.timestamp())
        self.fresh = head.seq == row.began
        self.step = head.step + 1
        self._saved_step = head.step
        self._saved_at = time.monotonic()
        self._calls: Calls | None = None
        self._cancel: EffectRow | None = None
        if lease is not None:
            self._journal = Journal(session.store, lease, row.branch, head.step)
            self._cancel = pending_cancel(session.store, row.thread)
            identity = msgspec.msgpack.encode((session.namespace, thread.name, row.created_at))
            past = Past(session.store, thread.name, effects)
            self._calls = Calls(session.store, self._journal, lease, tools, past, identity, can_await=can_await)
            self._calls.open_step(self.step)

    @property
    def changed(self) -> tuple[Effect, ...]:
        """See `Run.changed`."""
        return () if self._calls is None else tuple(map(effect_of, self._calls.changed))

    @property
    def is_open(self) -> bool:
        """Whether more can be done in this run."""
        return self._calls is not None

    def calls(self) -> Calls:
        """What makes calls, if the run may make any. LeaseLost, Parked, HoldfastError if it may not."""
        return self._heeding()[1]

    def calling(self, make: Callable[[Calls], Call]) -> Call:
        """A call, made only if the run may make any when it is begun."""
        return (yield from make(self.calls()))

    # -- boundaries -------------------------------------------------------------------------------------------------

    # Each verb that writes the state is in two parts: what is done before the first await of an async run, when the
    # state is as its caller left it, and what may be done in another thread.

    def closing(self) -> Callable[[], None]:
        """Begin to close the open step, as the policy says. Stopped, in the end, if the worker is to end."""
        _, calls = self._heeding()
        calls.require_ended()
        seconds = time.monotonic() - self._saved_at
        events: list[Event] = [*calls.events, "step"]
        if any(
            self._policy.should_save(event, self.step, saved_step=self._saved_step, seconds=seconds) for event in events
        ):
            write = self._writing("running", "step")
        else:
            write = None

        def close() -> None:
            if write is not None:
                write()
            else:
                self._open_next(calls)
            if self._keeper is not None and self._keeper.is_stopping():
                raise Stopped

        return close

    def saving(self) -> Callable[[], Checkpoint]:
        """Begin what `Run.save` does."""
        self._heeding()
        return self._writing("running", "save")

    def finishing(self, result: Any) -> Callable[[], None]:
        """Begin what `Run.finish` does."""
        lease, _ = self._heeding()
        packed.check(result)
        encoded = packed.encode(result)
        row = replace(released(lease.row, "completed"), result=encoded)
        write = self._writing("completed", "finish", row, self._turn_done(lease.row.turn, encoded))

        def finish() -> None:
            write()
            self.result = packed.decode(encoded)
            self._end("completed")

        return finish

    def halt(self, reason: str) -> None:
        """See `Run.halt`."""
        if type(reason) is not str or not reason:
            raise InvalidArgument("halt needs a reason")
        lease, _ = self._heeding()
        self._session.store.update_run(released(lease.row, "halted", reason))
        self._end("halted")

    def _held(self) -> tuple[Lease, Calls]:
        if self._lease is None or self._calls is None:
            raise HoldfastError(f"the run is {self.status}: nothing more can be done in it")
        if self._calls.parked is not None:
            raise self._calls.parked  # whoever caught it the first time cannot go on either
        self._lease.check()
        return self._lease, self._calls

    def _heeding(self) -> tuple[Lease, Calls]:
        """What the run has to work with, unless it was cancelled."""
        held = self._held()
        if self._cancel is None:
            self._cancel = next((row for row in self._journal.heed() if row.kind == "cancel"), None)
        if self._cancel is not None:
            raise Cancelled(f"the run was cancelled: {self._cancel.error}")
        return held

    def wait(self, name: str, payload: Any, timeout: float | None) -> Any:
        """See `Run.wait`."""
        return self.calls().wait(name, payload, timeout)

    def sleep(self, seconds: float) -> None:
        """See `Run.sleep`."""
        self.calls().sleep(seconds)

    def _turn_done(self, turn: str | None, result: bytes) -> tuple[EffectRow, ...]:
        """What tells those who ask for this turn again what came of it."""
        if turn is None:
            return ()
        mark = turn_mark(turn)
        row = self._journal.new(self.step, mark, turn, "turn", "done", b"")
        return (replace(row, mark=mark, result=result, ended_at=now()),)

    def _writing(
        self, status: Status, trigger: str, row: RunRow | None = None, effects: tuple[EffectRow, ...] = ()
    ) -> Callable[[], Checkpoint]:
        """Lay out a checkpoint of the state as it is now; what then writes it."""
        lease, calls = self._held()
        calls.require_ended()
        if row is None and lease.row.attempt > 1:
            # A checkpoint is progress: what failed before it does not count against what comes after.
            row = replace(lease.row, attempt=1, updated_at=now())
        given = {"step": self.step, "status": status, "trigger": trigger, "agent": self._row.agent}
        plain, details = self._saver.request(self.state, given)
        save = self._saver.prepare(plain, details, None)

        def write() -> Checkpoint:
            waiting = self._journal.take_waiting()
            try:
                checkpoint = self._saver.commit(save, fence=lease.fence, run=row, effects=(*waiting, *effects))
            except BaseException:
                self._journal.put_back(waiting)
                raise
            self.fresh = False
            if row is not None:
                lease.changed(attempt=row.attempt, updated_at=row.updated_at)
            self._journal.forget(self.step)
            self._saved_step = self.step
            self._saved_at = time.monotonic()
            self._open_next(calls)
            return checkpoint

        return write

    def _open_next(self, calls: Calls) -> None:
        self.step += 1
        calls.open_step(self.step)

    # -- the end ----------------------------------------------------------------------------------------------------

    def leave(self, error: BaseException | None) -> bool:
        """Give the run back when its block ends; whether the error is dealt with."""
        if self._lease is None or self._calls is None:
            return False
        parked = self._calls.parked
        if self._cancel is not None and not isinstance(error, LeaseLost):
            self._halt(self._lease, self._cancel)
            return isinstance(error, Parked | Stopped)
        if parked is not None and (error is None or isinstance(error, Parked)):
            self._park(self._lease, parked)
            return True
        if isinstance(error, LeaseLost):
            self._end("running")
            return False
        if isinstance(error, Exception):
            self._calls.reopen(error)
        self._lease.stop()
        row = self._left(self._lease.row, error)
        try:
            self._session.store.update_run(row)
        except (LeaseLost, StoreError):
            # The run is another's, or the store cannot be reached: then its lease ends by itself.
            if error is None:
                raise
        self._end(row.status)
        return isinstance(error, Stopped)

    def _left(self, row: RunRow, error: BaseException | None) -> RunRow:
        """The record of a run whose block was left without an end."""
        if isinstance(error, Exception):
            failed = released(row, "failed", text_of(error))
            return failed if self._keeper is None else self._keeper.after_failure(failed)
        is_queued = error is not None and row.handler is not None
        # A clean release is no failure: many deployments in a row must not bury a run that takes its time.
        return replace(released(row, "queued" if is_queued else "idle"), attempt=max(row.attempt - 1, 0))

    def _park(self, lease: Lease, parked: Parked) -> None:
        """Let the run wait, in the same moment in which its question can be seen."""
        lease.stop()
        store = self._session.store
        row = replace(released(lease.row, "waiting", parked.reason), wake_at=parked.wake_at, wake_wall=parked.wake_wall)
        try:
            store.park(row, parked.row, self._journal.last)
        except Conflict:
            # Something was told meanwhile. It may be the answer: whoever takes the run next looks, and waits if not.
            row = replace(released(lease.row, "queued"), attempt=max(lease.row.attempt - 1, 0))
            store.update_run(row)
        self._end(row.status)

    def _halt(self, lease: Lease, cancel: EffectRow) -> None:
        """End a run that was cancelled, in the same moment in which that is done with."""
        lease.stop()
        while True:
            try:
                self._session.store.park(
                    released(lease.row, "halted", cancel.error), replace(cancel, status="done"), self._journal.last
                )
                break
            except Conflict:
                self._journal.heed()
        self._end("halted")

    def _end(self, status: Status) -> None:
        self.status = status
        self._calls = None
        if self._lease is not None:
            self._lease.stop()


def released(row: RunRow, status: Status, reason: str | None = None) -> RunRow:
    """The record of a run that its worker gives back."""
    return replace(row, status=status, owner=None, lease_until=0, updated_at=now(), reason=reason)
