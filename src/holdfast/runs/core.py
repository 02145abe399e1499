"""What a run is made of, whoever drives it: state, steps, boundaries and end. `Run` and `AsyncRun` are faces of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Cancelled, Conflict, Halted, HoldfastError, InvalidArgument, LeaseLost, StoreError
from holdfast.observer import CallKind, Observed, RunObservation
from holdfast.policy import Event, Policy
from holdfast.runs.answers import pending_cancel
from holdfast.runs.calls import Calls
from holdfast.runs.claiming import turn_mark
from holdfast.runs.drivers import Call
from holdfast.runs.guards.limits import Guard
from holdfast.runs.guards.watch import Watch
from holdfast.runs.journal import Journal, behind, now, open_entries, text_of
from holdfast.runs.lease import Lease
from holdfast.runs.leaving import Stopped, decisive, given_back, heard, released
from holdfast.runs.past import Effects, Past
from holdfast.runs.progress import said
from holdfast.runs.recovery import effect_of
from holdfast.runs.tool_calls import Parked, asking
from holdfast.runs.tools import Tools, tool_of
from holdfast.stores.running import EffectRow, RunRow
from holdfast.threads.context import Session
from holdfast.threads.thread import Thread, saver_of
from holdfast.types import Checkpoint, Effect, Status

T = TypeVar("T")

# What checkpoints that a run writes say of how they came. After any other, its journal is closed.
_OWN_TRIGGERS = ("start", "submit", "step", "save", "finish", "fork")


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
        observation: RunObservation | None = None,
        guards: tuple[Guard, ...] = (),
    ) -> None:
        self._session = session
        self._saver = saver_of(thread)
        self.thread = thread.name
        self.branch = row.branch
        self._lease = lease
        self._row = row
        self._policy = policy
        self._keeper = keeper
        self._tools = tools
        self._observation = observation
        self.resumed = resumed
        self.attempt = row.attempt
        self.status: Status = row.status
        self.result = None if row.result is None else msgpack.decode(row.result)
        head = thread.latest()
        if head is None and lease is not None:
            raise HoldfastError("the thread of a run is gone")
        self.state: Any = None if head is None else head.state
        self.age = 0.0 if head is None else max(0.0, time.time() - head.created_at.timestamp())
        self.fresh = head is not None and head.seq == row.began
        self._saved_step = 0 if head is None else head.step
        self.step = self._saved_step + 1
        self._saved_at = time.monotonic()
        self._calls: Calls | None = None
        self._cancel: EffectRow | None = None
        self._parked: Parked | None = None
        if lease is None or head is None:
            return
        unsettled = None
        if head.trigger not in _OWN_TRIGGERS and row.closed_at != head.seq:
            unsettled = self._close_for(head, lease)
            row = self._row = lease.row
        watch = Watch(guards, session.store, row)
        self._journal = Journal(session.store, lease, row.branch, head.step, watch.stamp)
        self._cancel = pending_cancel(session.store, row)
        names = (name.encode("utf-8", "surrogatepass") for name in (session.namespace, thread.name))
        identity = msgspec.msgpack.encode((*names, row.created_at))
        past = Past(session.store, thread.name, effects)
        self._calls = Calls(
            session.store, self._journal, lease, tools, past, identity, watch, session.redaction, can_await=can_await
        )
        self._calls.open_step(self.step)
        if unsettled is not None:
            self._calls.parked = asking(unsettled)

    def _close_for(self, head: Checkpoint, lease: Lease) -> EffectRow | None:
        """Close all entries for a head that was saved from outside the run: its state knows nothing of their steps.

        One that may have acted, and of which nobody knows, has to be settled all the same.
        """
        store, row = self._session.store, lease.row
        last = store.last_effect(row.thread)
        rows = open_entries(store, row.thread, row.closed, last, -1, row.branch)
        store.update_run(lease.changed(closed=last, closed_at=head.seq))
        newest = {(entry.step, entry.key): entry for entry in rows}.values()
        return next((e for e in newest if e.kind == "irreversible" and e.status in ("begun", "in_doubt")), None)

    @property
    def changed(self) -> tuple[Effect, ...]:
        """See `Run.changed`."""
        return () if self._calls is None else tuple(map(effect_of, self._calls.changed))

    @property
    def created_at(self) -> int:
        """What tells the run from one that a thread of the same name had before it was dropped."""
        return self._row.created_at

    @property
    def lease_seconds(self) -> float:
        """For how long the run is held without a renewal."""
        return self._held()[0].seconds

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

    def observed(self, kind: CallKind, named: object = None, *, is_stream: bool = False) -> Observed | None:
        """What lets an observer see a call; None if there is no observer."""
        if self._observation is None:
            return None
        tool = tool_of(named) if callable(named) else None
        if isinstance(named, str):
            tool = self._tools.get(named)  # what is not registered may be anything that a model wrote
        name = None if tool is None else tool.name
        return self._observation.calling(kind, name, step=self.step, is_stream=is_stream)

    @contextmanager
    def hooking(self) -> Generator[None]:
        """While a hook runs: its calls need keys, or they would be answered with what the block's were."""
        keys = self._held()[1].keys
        keys.are_needed = True
        try:
            yield
        finally:
            keys.are_needed = False

    # -- boundaries -------------------------------------------------------------------------------------------------

    # Each verb that writes the state is in two parts: what is done before the first await of an async run, when the
    # state is as its caller left it, and what may be done in another thread.

    def closing(self) -> Callable[[], None]:
        """Begin to close the open step, as the policy says. Stopped, in the end, if the worker is to end."""
        _, calls = self._held()
        seconds = time.monotonic() - self._saved_at
        events: list[Event] = [*calls.events, "step"]
        write: Callable[[], object]
        if any(
            self._policy.should_save(event, self.step, saved_step=self._saved_step, seconds=seconds) for event in events
        ):
            write = self._writing("running", "step")
        else:
            write = self._boundary(calls, lambda: self._open_next(calls))

        def close() -> None:
            write()
            if self._keeper is not None and self._keeper.is_stopping():
                raise Stopped

        return close

    def saving(self) -> Callable[[], Checkpoint]:
        """Begin what `Run.save` does."""
        return self._writing("running", "save")

    def finishing(self, result: Any) -> Callable[[], None]:
        """Begin what `Run.finish` does."""
        lease, _ = self._held()
        msgpack.check(result)
        encoded = msgpack.encode(self._session.redaction.value(result))
        row = replace(released(lease.counted(), "completed"), result=encoded)
        write = self._writing("completed", "finish", row, self._turn_done(lease.row.turn, encoded))

        def finish() -> None:
            write()
            self.result = msgpack.decode(encoded)
            self._end("completed")

        return finish

    def halt(self, reason: str) -> None:
        """See `Run.halt`."""
        if type(reason) is not str or not reason:
            raise InvalidArgument("halt needs a reason")
        lease, _ = self._heeding()
        reason = self._session.redaction.text(reason)
        self._session.store.update_run(released(lease.last_row(), "halted", reason))
        self._end("halted")

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        """See `Run.progress`."""
        self._held()[0].say(said(done, total, self._session.redaction.value(note)))

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
        if row is None and (lease.row.attempt > 1 or lease.has_uncounted):
            # A checkpoint is progress: what failed before it does not count against what comes after.
            row = replace(lease.counted(), attempt=1, updated_at=now())

        def write() -> Checkpoint:
            waiting = self._journal.take_waiting()
            unsaid = lease.unsaid
            run = row or lease.row if unsaid is not None else row
            if run is not None:
                run = replace(run, progress=lease.row.progress)
            try:
                checkpoint = self._saver.commit(save, fence=lease.fence, run=run, effects=(*waiting, *effects))
            except BaseException:
                self._journal.put_back(waiting)
                raise
            self.fresh = False
            lease.said(unsaid)
            if row is not None:
                lease.changed(attempt=row.attempt, updated_at=row.updated_at)
                lease.note_counted(row)
            self._journal.forget(self.step)
            self._saved_step = self.step
            self._saved_at = time.monotonic()
            self._open_next(calls)
            return checkpoint

        boundary = self._boundary(calls, write)
        try:
            calls.require_none_in_doubt()
            request = self._saver.request(
                self.state, step=self.step, status=status, trigger=trigger, agent=self._row.agent
            )
            save = self._saver.prepare(request, None)
        except BaseException:
            calls.keys.reopen_step()
            raise
        return boundary

    def _boundary(self, calls: Calls, work: Callable[[], T]) -> Callable[[], T]:
        """Close the open step for calls; what then does the work, unless the run was cancelled, in whatever thread."""
        calls.keys.close_step()

        def end_step() -> T:
            try:
                self._heeding()
                return work()
            except BaseException:
                calls.keys.reopen_step()
                raise

        return end_step

    def _open_next(self, calls: Calls) -> None:
        self.step += 1
        calls.open_step(self.step)

    # -- the end ----------------------------------------------------------------------------------------------------

    def end_calls(self) -> None:
        """Begin to leave the block of a sync run: calls that other threads are in cannot be stopped, so they end first.

        Interrupted in that, the run is nobody's: it was not given back, and its lease ends by itself.
        """
        if self._calls is None:
            return
        try:
            self._calls.keys.end()
        except BaseException:
            self._end("running")
            raise

    def leave(self, error: BaseException | None) -> bool:
        """Give the run back when its block ends; whether the error is dealt with.

        Of a group of errors those that only end the block are kept back: raises the others.
        """
        if self._left_by(decisive(error)):
            return True
        to_hear = heard(error)
        if to_hear is not error and to_hear is not None:
            raise to_hear from None
        return False

    def _left_by(self, error: BaseException | None) -> bool:
        if self._lease is None or self._calls is None:
            return False
        parked = self._calls.parked
        if isinstance(error, Cancelled) and self._cancel is None:
            self._cancel = pending_cancel(self._session.store, self._row)  # a child heard of it first
        if self._cancel is not None and not isinstance(error, LeaseLost):
            self._halt(self._lease, self._cancel)
            return isinstance(error, Parked | Stopped)
        if parked is not None and (error is None or isinstance(error, Parked)):
            self._park(self._lease, parked)
            return True
        if isinstance(error, LeaseLost):
            self._end("running")
            return False
        halted = self._calls.watch.halted
        if halted is not None and (error is None or any(isinstance(each, Halted) for each in behind(error))):
            self._guarded(self._lease, halted)
            return False
        if isinstance(error, Exception):
            self._calls.reopen(error)
        self._lease.stop()
        row = self._left(self._lease.last_row(), error)
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
            failed = released(row, "failed", text_of(error, self._session.redaction))
            return failed if self._keeper is None else self._keeper.after_failure(failed)
        return given_back(row, is_queued=error is not None and row.handler is not None)

    def _park(self, lease: Lease, parked: Parked) -> None:
        """Let the run wait, in the same moment in which its question can be seen."""
        lease.stop()
        store = self._session.store
        self._journal.flush()  # the question was asked by what was read, or failed, before it
        row = released(lease.last_row(), "waiting", parked.reason)
        row = replace(row, wake_at=parked.wake_at, wake_wall=parked.wake_wall)
        try:
            if parked.last is None and self._journal.heed(at_once=True):
                raise Conflict("something was told from outside")
            # Only after that look: what a checkpoint carried is in the journal, and was not counted.
            store.park(row, parked.row, self._journal.last if parked.last is None else parked.last)
        except Conflict:
            # Something was told meanwhile. It may be the answer: whoever takes the run next looks, and waits if not.
            row = replace(released(lease.last_row(), "queued"), attempt=max(lease.row.attempt - 1, 0))
            store.update_run(row)
        self._parked = parked
        self._end(row.status)

    def _halt(self, lease: Lease, cancel: EffectRow) -> None:
        """End a run that was cancelled, in the same moment in which that is done with."""
        lease.stop()
        row = released(lease.last_row(), "halted", cancel.error)
        while True:
            try:
                self._session.store.park(row, replace(cancel, status="done"), self._journal.last)
                break
            except Conflict:
                self._journal.heed(at_once=True)
        self._end("halted")

    def _guarded(self, lease: Lease, reason: str) -> None:
        """End a run that a guard stopped."""
        lease.stop()
        with suppress(LeaseLost, StoreError):  # then its lease ends by itself, and a guard stops it again
            self._journal.flush()
            self._session.store.update_run(released(lease.last_row(), "halted", reason))
        self._end("halted")

    def wait_of_parent(self, reason: str) -> Parked:
        """How the parent of this run waits while it does."""
        if self.status == "queued":  # its answer came while it was about to wait
            return Parked(None, reason, self._session.store.clock().now, now())
        parked = self._parked
        return Parked(None, reason) if parked is None else Parked(None, reason, parked.wake_at, parked.wake_wall)

    def _end(self, status: Status) -> None:
        self.status = status
        self._calls = None
        if self._lease is not None:
            self._lease.stop()


def waits_in_hook(status: Status) -> HoldfastError:
    """What a caller hears whose block cannot begin, because the hook of its run has to wait."""
    return HoldfastError(f"the run is {status}: its on_resume has to wait; run it again when that is over")
