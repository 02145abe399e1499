"""A run: one durable execution on a thread, that goes on where the last process left it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.errors import HoldfastError, InvalidArgument, LeaseLost, StoreError
from holdfast.policy import Event, Policy
from holdfast.records import Checkpoint, Effect, Status
from holdfast.runs.calls import Calls, OnChange, Parked
from holdfast.runs.claiming import Terms, claim
from holdfast.runs.journal import Journal, now
from holdfast.runs.lease import Lease
from holdfast.runs.recovery import effect_of, queue_answered
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


class Run:
    """A run that this process holds, inside `with hf.run(…) as run`. See `docs/runs.md`."""

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
        keeper: Keeper | None = None,
    ) -> None:
        self._session = session
        self._saver = saver_of(thread)
        self._thread = thread
        self._lease = lease
        self._row = row
        self._policy = policy
        self._keeper = keeper
        self.resumed = resumed
        self.attempt = row.attempt
        self._status: Status = row.status
        self._result = None if row.result is None else packed.decode(row.result)
        head = thread.latest()
        if head is None:
            raise HoldfastError("the thread of a run is gone")
        self.state: Any = head.state
        self.age = max(0.0, time.time() - head.created_at.timestamp())
        self._saved_step = head.step
        self._saved_at = time.monotonic()
        self._step = head.step + 1
        self._calls: Calls | None = None
        if lease is not None:
            journal = Journal(session.store, lease, row.branch, head.step)
            identity = msgspec.msgpack.encode((session.namespace, thread.name, row.created_at))
            self._journal = journal
            self._calls = Calls(journal, lease, tools, identity)
            self._calls.open_step(self._step)

    @property
    def status(self) -> Status:
        return self._status

    @property
    def result(self) -> Any:
        """What the run was finished with; None before."""
        return self._result

    @property
    def changed(self) -> tuple[Effect, ...]:
        """The recorded calls that were asked for with other arguments than they were made with."""
        return () if self._calls is None else tuple(map(effect_of, self._calls.changed))

    @property
    def step(self) -> int:
        """The step that is open."""
        return self._step

    # -- steps ------------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[int]:
        """The numbers of the steps to do, without end. Each turn closes the step before it."""
        first = True
        while self._is_open():
            if not first:
                self._close_step()
                if not self._is_open():
                    return
                if self._keeper is not None and self._keeper.is_stopping():
                    raise Stopped
            first = False
            yield self._step

    def save(self) -> Checkpoint:
        """Close the step here, whatever the policy: what was called so far is never answered from the journal again."""
        self._held()
        return self._write_checkpoint("running", "save")

    def finish(self, result: Any = None) -> None:
        """Complete the run with a result, and store the state."""
        lease = self._held()
        packed.check(result)
        encoded = packed.encode(result)
        row = replace(released(lease.row, "completed"), result=encoded)
        self._write_checkpoint("completed", "finish", row)
        self._result = packed.decode(encoded)
        self._end("completed")

    def halt(self, reason: str) -> None:
        """Stop the run for a reason. The state is not stored: run again, it goes on from its last checkpoint."""
        if type(reason) is not str or not reason:
            raise InvalidArgument("halt needs a reason")
        lease = self._held()
        self._session.store.update_run(released(lease.row, "halted", reason))
        self._end("halted")

    # -- calls ------------------------------------------------------------------------------------------------------

    def model(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        type: Any = None,
        on_change: OnChange = "recorded",
        **kwargs: Any,
    ) -> Any:
        """Call a model and record its reply, or give the recorded one. Keyword arguments go to the function."""
        return self._open_calls().model(function, args, kwargs, key=key, type=type, on_change=on_change)

    def tool(self, named: str | Callable[..., Any], args: Any = None, key: str | None = None) -> Any:
        """Call a tool by name or function with arguments by name, or give the recorded result."""
        return self._open_calls().tool(named, args, key)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _is_open(self) -> bool:
        return self._calls is not None

    def _open_calls(self) -> Calls:
        return self._held_calls()[1]

    def _held(self) -> Lease:
        return self._held_calls()[0]

    def _held_calls(self) -> tuple[Lease, Calls]:
        if self._lease is None or self._calls is None:
            raise HoldfastError(f"the run is {self._status}: nothing more can be done in it")
        if self._calls.asked is not None:
            raise Parked  # whoever caught it the first time cannot go on either
        self._lease.check()
        return self._lease, self._calls

    def _close_step(self) -> None:
        calls = self._open_calls()
        calls.require_ended()
        seconds = time.monotonic() - self._saved_at
        events: list[Event] = [*calls.events, "step"]
        if any(
            self._policy.should_save(event, self._step, saved_step=self._saved_step, seconds=seconds)
            for event in events
        ):
            self._write_checkpoint("running", "step")
        else:
            self._step += 1
            calls.open_step(self._step)

    def _write_checkpoint(self, status: Status, trigger: str, row: RunRow | None = None) -> Checkpoint:
        lease, calls = self._held_calls()
        calls.require_ended()
        if row is None and lease.row.attempt > 1:
            # A checkpoint is progress: what failed before it does not count against what comes after.
            row = replace(lease.row, attempt=1, updated_at=now())
        given = {"step": self._step, "status": status, "trigger": trigger, "agent": self._row.agent}
        plain, details = self._saver.request(self.state, given)
        save = self._saver.prepare(plain, details, None)
        waiting = self._journal.take_waiting()
        try:
            checkpoint = self._saver.commit(save, fence=lease.fence, run=row, effects=waiting)
        except BaseException:
            self._journal.put_back(waiting)
            raise
        if row is not None:
            lease.changed(attempt=row.attempt, updated_at=row.updated_at)
        self._journal.forget(self._step)
        self._saved_step = self._step
        self._saved_at = time.monotonic()
        self._step += 1
        calls.open_step(self._step)
        return checkpoint

    def _end(self, status: Status) -> None:
        self._status = status
        self._calls = None
        if self._lease is not None:
            self._lease.stop()

    def _leave(self, error: BaseException | None) -> bool:
        """Give the run back when its block ends; whether the error is dealt with."""
        if self._lease is None or self._calls is None:
            return False
        asked = self._calls.asked
        status: Status
        reason: str | None = None
        if asked is not None and (error is None or isinstance(error, Parked)):
            status, reason = "waiting", f"in doubt: {asked.row.name}, call {asked.row.number}; hf.settle decides"
        elif error is None:
            status = "idle"
        elif isinstance(error, LeaseLost):
            self._end("running")
            return False
        elif not isinstance(error, Exception):
            status = "queued" if self._row.handler is not None else "idle"
        else:
            status, reason = "failed", reason_of(error)
        self._lease.stop()
        row = released(self._lease.row, status, reason)
        if status in ("idle", "queued"):
            # A clean release is no failure: many deployments in a row must not bury a run that takes its time.
            row = replace(row, attempt=max(row.attempt - 1, 0))
        if status == "failed" and self._keeper is not None:
            row = self._keeper.after_failure(row)
        try:
            self._session.store.update_run(row)
        except (LeaseLost, StoreError):
            # The run is another's, or the store cannot be reached: then its lease ends by itself.
            if error is None:
                raise
        self._end(row.status)
        if asked is not None and status == "waiting":
            self._look_for_answer(asked.row)
        return isinstance(error, Parked | Stopped)

    def _look_for_answer(self, row: EffectRow) -> None:
        """Queue the run if it was answered before it began to wait: nobody else would notice."""
        store = self._session.store
        with suppress(StoreError):
            if store.effects(self._row.thread, after=row.number - 1, limit=1)[0].status != "in_doubt":
                queue_answered(store, self._row.thread)


def released(row: RunRow, status: Status, reason: str | None = None) -> RunRow:
    """The record of a run that its worker gives back."""
    return replace(row, status=status, owner=None, lease_until=0, updated_at=now(), reason=reason)


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


class RunBlock:
    """What `hf.run(…)` gives: claims the run when its block is entered, gives it back when the block is left."""

    def __init__(
        self,
        session: Session,
        name: str,
        tools: Tools,
        policy: Policy,
        terms: Terms,
        *,
        start: Any,
        has_start: bool,
        type: Any,
        keeper: Keeper | None = None,
        expect: RunRow | None = None,
    ) -> None:
        """`expect` is the record that the run must still have: a worker decided by it."""
        if not isinstance(policy, Policy):
            raise InvalidArgument("policy must be a holdfast.Policy")
        self._session = session
        self._thread = Thread(session, name, type)
        self._tools = tools
        self._policy = policy
        self._terms = terms
        self._start = start
        self._has_start = has_start
        self._keeper = keeper
        self._expect = expect
        self._run: Run | None = None

    def __enter__(self) -> Run:
        if self._run is not None:
            raise InvalidArgument("a run's block cannot be entered twice; call hf.run again")
        store = self._session.store
        claimed = claim(
            store,
            saver_of(self._thread),
            self._thread.name,
            self._start,
            self._terms,
            has_start=self._has_start,
            expect=self._expect,
        )
        try:
            self._run = Run(
                self._session,
                self._thread,
                claimed.lease,
                claimed.row,
                self._tools,
                self._policy,
                resumed=claimed.resumed,
                keeper=self._keeper,
            )
        except BaseException as error:
            if claimed.lease is not None:
                claimed.lease.stop()
                with suppress(LeaseLost, StoreError):
                    row = released(claimed.lease.row, "failed", reason_of(error))
                    store.update_run(row if self._keeper is None else self._keeper.after_failure(row))
            raise
        return self._run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._run is not None and self._run._leave(error)
