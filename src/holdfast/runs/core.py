"""The core of a run: its state, its steps and its end. `Run` and `AsyncRun` add the verbs."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import (
    Cancelled,
    Conflict,
    Halted,
    HoldfastError,
    LeaseLost,
    OutcomeUnknown,
    StoreError,
)
from holdfast.observer import RunObservation
from holdfast.policy import Event
from holdfast.runs.arguments import check_value, checked_text
from holdfast.runs.block_end import Stopped, Waiting, decisive, without_silent
from holdfast.runs.calls import Calls
from holdfast.runs.context import RunContext, RunSettings, left_row, run_ended_error
from holdfast.runs.doubt import suspended_to_settle
from holdfast.runs.lease import Lease, now
from holdfast.runs.open_entries import close_entries, pending_cancel
from holdfast.runs.record import causes, effect_of, progress_of, released_row
from holdfast.runs.settlement import record_running
from holdfast.runs.waits import has_answer
from holdfast.signals import shield
from holdfast.stores.contract import Head, Position
from holdfast.stores.contract_runs import Boundary, Entry, RunRow
from holdfast.threads.ancestry import boundary_of, branch_of
from holdfast.threads.context import Context
from holdfast.threads.save import RUN_TRIGGERS
from holdfast.threads.thread import Thread
from holdfast.types import Checkpoint, Effect, Status

T = TypeVar("T")


class RunCore:
    """The part of a run that sync and async runs share: its state, its steps and its end."""

    def __init__(
        self,
        context: Context,
        thread: Thread,
        row: RunRow,
        settings: RunSettings,
        *,
        lease: Lease | None,
        resumed: bool,
        head: Head | None = None,
        last: int = 0,
        can_await: bool = False,
        observation: RunObservation | None = None,
    ) -> None:
        """Load the state of a claimed run, and its open journal entries. `lease` is None if the run is completed.

        `head` is the thread with its head at the claim, and `last` the number of the newest entry then.
        """
        self.thread: Final = thread.name
        self.resumed: Final = resumed
        self.attempt: Final = row.attempt
        self.status: Status = row.status
        self.result = None if row.result is None else msgpack.decode(row.result)
        self._shared = context
        self._saver = thread.saver
        self._settings = settings
        self._lease = lease
        self._calls: Calls | None = None
        self._suspended: Waiting | None = None
        self.children_before: set[str] = set()  # threads of the children that earlier claims started
        self._changed: list[Entry] = []
        loaded = thread.latest() if head is None else thread.saver.load_claimed(head)
        if lease is not None and head is not None:
            row = self._on_current_branch(lease, head.thread.position)
        self._row = row
        self._resolve_unknown_commit: Callable[[], None] | None = None  # finds a checkpoint with an unknown outcome
        self._resolving: Final = threading.Lock()
        self.branch: Final = row.branch
        self._head = loaded
        boundary = row.boundary
        if boundary is not None:
            boundary = None if lease is None or head is None else boundary_of(row, head.thread.position)
        if boundary is not None and boundary.seq != boundary.head:
            loaded = thread.saver.load_boundary(row.thread, boundary.seq)
        # The seq of the checkpoint from which a resume would start, and the last step that it would not repeat.
        self._boundary = (0, 0) if loaded is None else (loaded.seq, loaded.step if boundary is None else boundary.step)
        # Whether the boundary is in or after a loop of steps. If so, the saves before that loop are repetitions.
        self._is_in_loop = row.is_in_loop and loaded is not None and loaded.trigger in ("step", "save")
        self._has_resumed_in_loop: Final = self._is_in_loop
        self._has_resumed_at_save: Final = loaded is not None and loaded.trigger == "save"
        self.state: Any = None if loaded is None else loaded.state
        self.age = 0.0 if loaded is None else max(0.0, time.time() - loaded.created_at.timestamp())
        self.fresh = loaded is not None and loaded.seq <= row.began
        self._saved_step = 0 if loaded is None else loaded.step
        self._saved_at = time.monotonic()
        self.step = self._boundary[1] + 1
        if lease is None or loaded is None:
            return
        unsettled = None
        if boundary is None and loaded.trigger not in RUN_TRIGGERS and row.closed_at != loaded.seq:
            unsettled = close_entries(context.store, lease, loaded.seq, last)
            self._row = lease.row
        run_context = RunContext(
            context, thread.name, lease, self._boundary[1], last, settings, can_await=can_await, observation=observation
        )
        unsettled = unsettled or run_context.journal.undoing
        if unsettled is not None:
            run_context.suspended = suspended_to_settle(unsettled)
        self._calls = Calls(run_context)
        run_context.journal.is_after_save = self._has_resumed_at_save
        self.children_before = run_context.journal.children_before
        self._changed = run_context.changed

    def _on_current_branch(self, lease: Lease, position: Position) -> RunRow:
        """The run's record on the branch of its thread, which may have been rewound just before the claim."""
        branch = branch_of(position)
        if branch != lease.row.branch:
            row = lease.changed(branch=branch, boundary=None)
            self._shared.store.journal(row.thread, row.fence, (), last=None, run=row)
        return lease.row

    @property
    def changed(self) -> tuple[Effect, ...]:
        """See `Run.changed`."""
        return tuple(map(effect_of, self._changed))

    @property
    def created_at(self) -> int:
        """The time of its creation, which identifies the run among those of dropped threads of the same name."""
        return self._row.created_at

    @property
    def is_open(self) -> bool:
        """Whether more can be done in this run."""
        return self._calls is not None

    def calls(self) -> Calls:
        """The calls of the run. HoldfastError if it has ended.

        A call after a checkpoint with an unknown outcome belongs to the next step if that was written.
        """
        if self._resolve_unknown_commit is not None:
            self._resolve_commit()
        if self._calls is None:
            raise run_ended_error(self.thread, self.status)
        return self._calls

    def _calls_if_held(self) -> Calls:
        """The calls of the run, which this process certainly holds."""
        calls = self.calls()
        calls.context.require_held()
        return calls

    @contextmanager
    def in_hook(self) -> Generator[None]:
        """Require keys while a hook runs: without keys, it would get the recorded results of calls in the block."""
        keys = self._calls_if_held().keys
        keys.are_needed = True
        try:
            with self.in_steps(is_hook=True):
                yield
        finally:
            keys.are_needed = False

    def start_program(self) -> None:
        """Note that a program makes the calls of the run, at first outside of steps."""
        if self._calls is not None:
            self._calls.keys.leave_loop()

    @contextmanager
    def in_steps(self, *, is_hook: bool = False) -> Generator[None]:
        """A loop of steps. Calls outside of all loops are answered for the whole turn."""
        keys = self.calls().keys
        keys.enter_loop(is_hook=is_hook)
        try:
            yield
        finally:
            keys.leave_loop()

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        """See `Run.progress`."""
        context = self._calls_if_held().context
        context.lease.report(progress_of(done, total, context.redaction.value(note)))

    # -- boundaries -----------------------------------------------------------------------------------------------

    # Writing is split in two: `prepare_*` copies the state at once; the function that it returns may run in another
    # Python thread.
    #
    # A program that resumes before its head repeats the saves up to the head. A repeated save writes nothing: its
    # checkpoint is stored.

    def prepare_step_end(self) -> Callable[[], None]:
        """Prepare to close the open step by the policy. The returned function raises Stopped if the worker stops."""
        calls = self._calls_if_held()
        supervisor, context = self._settings.supervisor, calls.context
        write: Callable[[], object]
        is_due = self._is_due(*context.events, "step")
        is_saved = not is_due and self._is_saved(calls)
        is_due = is_due or (not is_saved and self._is_due(*context.saved_events))
        # Not while recorded calls of later steps are still to be repeated. A resume reads the journal backwards to the
        # newest entry of a closed step. If a call of this step was made again, its entry is newer than those calls:
        # the resume would not find them.
        if is_due and not self._is_replaying and not context.journal.has_calls_after(self.step):
            write = self._prepare_checkpoint("running", "step")
        else:
            calls.keys.close_step()
            write = self._closing_step(calls, lambda: self._pass_step(calls, is_saved=is_saved), self.step)

        def close() -> None:
            write()
            context.saved_events.clear()
            if supervisor is not None and supervisor.is_stopping():
                raise Stopped

        return close

    def _is_due(self, *events: Event) -> bool:
        """Whether the policy saves at the end of a step with these events."""
        due, seconds = self._settings.policy.should_save, time.monotonic() - self._saved_at
        return any(due(event, self.step, saved_step=self._saved_step, seconds=seconds) for event in events)

    def prepare_save(self) -> Callable[[], Checkpoint]:
        """Prepare `Run.save`."""
        head = self._head
        if head is None or not self._is_replaying:
            return self._prepare_checkpoint("running", "save")
        calls = self._calls_if_held()
        step = self.step - self._is_repeated_save(calls)
        calls.keys.close_step()

        def pass_save() -> Checkpoint:
            calls.require_none_in_doubt(step)
            saved = self._saver.replayed(self._row.thread, step)
            self._note_saved(calls, step)
            return saved or replace(head, state=None)

        return self._closing_step(calls, pass_save, step)

    def _is_repeated_save(self, calls: Calls) -> bool:
        """Whether a resumed program repeats a save from before its open step. It leaves that step open."""
        keys, journal = calls.keys, calls.context.journal
        if keys.is_before_loops and self._has_resumed_in_loop:
            return True
        if keys.is_after_loops and journal.has_unrepeated(self.step, self.step):
            return True
        # The run resumes at a save, and the calls that followed that save are recorded. The program saves before it has
        # repeated any of them: this is the same save again.
        return self._has_resumed_at_save and not journal.has_called and journal.has_unrepeated(self.step)

    @property
    def _is_at_head(self) -> bool:
        """Whether a resume would start from the head."""
        return self._head is not None and self._head.seq == self._boundary[0]

    @property
    def _is_replaying(self) -> bool:
        """Whether the open step was saved already, and is repeated because the run resumed before it."""
        return self._head is not None and not self._is_at_head and self.step <= self._head.step

    def _is_saved(self, calls: Calls) -> bool:
        """Whether `run.save()` saved all calls of the open step, and the state has not changed since."""
        if self._is_at_head or self._is_replaying or calls.context.journal.has_calls_after(self._boundary[1]):
            return False
        with suppress(HoldfastError):  # the state cannot be stored as it is now
            return self._saver.is_stored(self.state)
        return False

    def _pass_step(self, calls: Calls, *, is_saved: bool) -> None:
        """Close a step without a checkpoint. If a save stored all of it, the program can resume from here."""
        if is_saved and self._head is not None:
            self._boundary = (self._head.seq, self.step)  # the next write stores that
            self._is_in_loop = True
        self._open_next(calls)

    def _note_saved(self, calls: Calls, step: int) -> None:
        """Note that a step is saved, and open the next."""
        self.fresh = False
        calls.context.journal.close(step)
        self._saved_step = self.step = step
        self._saved_at = time.monotonic()
        self._open_next(calls)

    def prepare_finish(self, result: Any) -> Callable[[], object]:
        """Prepare `Run.finish`."""
        context = self._calls_if_held().context
        check_value("the result of the run", result)
        encoded = msgpack.encode(context.redaction.copy(result))
        row = released_row(context.journal.counted(context.lease.row), "completed")
        earlier = tuple(number for number in row.doubts if number <= row.closed)
        row = replace(row, result=encoded, boundary=None, kept=(), is_in_loop=False, doubts=earlier)
        if self._is_replaying and self._head is not None:
            self.step = self._head.step + 1  # the program ends earlier than it did before

        def completed() -> None:
            self.result = msgpack.decode(encoded)
            self._end("completed")

        return self._prepare_checkpoint("completed", "finish", row, context.turn_entry(self.step, encoded), completed)

    def _prepare_checkpoint(
        self,
        status: Status,
        trigger: str,
        row: RunRow | None = None,
        entries: tuple[Entry, ...] = (),
        then: Callable[[], None] | None = None,
    ) -> Callable[[], Checkpoint]:
        """Prepare a checkpoint of the state as it is now; the returned function writes it, and calls `then`."""
        self._resolve_commit()
        calls = self._calls_if_held()
        lease, journal = calls.context.lease, calls.context.journal
        # A save does not close its step. If calls were made since the boundary, a resume must repeat them to get here,
        # so it starts from the boundary and not from this checkpoint.
        is_behind = trigger == "save" and not (self._is_at_head and not journal.has_calls_after(self._boundary[1]))
        is_repeated = trigger == "save" and self._is_repeated_save(calls)
        step = self.step - is_repeated
        calls.keys.close_step()
        try:
            calls.require_none_in_doubt()
            request = self._saver.request(
                self.state, is_of_run=True, step=step, status=status, trigger=trigger, agent=self._row.agent
            )
            save = self._saver.prepare(request, None)
            boundary = Boundary(save.commit.row.seq, *self._boundary) if is_behind else None
            if row is None and (lease.row.attempt > 1 or journal.has_uncounted or boundary != lease.row.boundary):
                # A checkpoint is progress: failures before it do not count for later attempts.
                attempt = lease.row.attempt if is_repeated else 1
                row = replace(journal.counted(lease.row), attempt=attempt, updated_at=now(), boundary=boundary)
        except BaseException:
            calls.keys.reopen_step()
            raise

        def note(run: RunRow | None, checkpoint: Checkpoint) -> None:
            if run is not None:
                self._note_record(calls.context, run)
            self._head = checkpoint
            journal.is_after_save = trigger == "save"
            if not is_behind:
                self._boundary = (checkpoint.seq, checkpoint.step)
                self._is_in_loop = self._is_in_loop or not calls.keys.is_before_loops
            journal.kept.note_closed(self._boundary[1])
            self._note_saved(calls, step)
            if then is not None:
                then()

        def write() -> Checkpoint:
            progress = lease.unstored_progress
            run = row if status == "completed" else self._record_at(calls, row, step, is_behind=is_behind)
            if run is not None or progress is not None:
                run = replace(run or lease.row, progress=lease.row.progress)
            commit = functools.partial(self._saver.commit, save, lease.fence, run)
            note_commit = functools.partial(note, run)
            self._resolve_unknown_commit = lambda: journal.resolve_commit(lambda: self._saver.found(save), note_commit)
            try:
                checkpoint = journal.commit(commit, *entries)
            except HoldfastError as error:
                if not isinstance(error, OutcomeUnknown):
                    self._resolve_unknown_commit = None  # nothing was written
                raise
            lease.progress_stored(progress)
            note_commit(checkpoint)
            self._resolve_unknown_commit = None
            return checkpoint

        return self._closing_step(calls, write, None if status == "completed" else step)

    def _record_at(self, calls: Calls, row: RunRow | None, step: int, *, is_behind: bool) -> RunRow | None:
        """The run's record, changed for a checkpoint of a step; None if it stays as it is stored.

        `row` has the other changes; None if there are none. `is_behind`: a resume starts before the checkpoint.
        """
        kept = calls.context.journal.kept_at(self._boundary[1] if is_behind else step)
        is_in_loop = self._is_in_loop or not (is_behind or calls.keys.is_before_loops)
        stored = calls.context.lease.row
        if (kept, is_in_loop) == (stored.kept, stored.is_in_loop):
            return row
        return replace(row or stored, kept=kept, is_in_loop=is_in_loop)

    def _note_record(self, context: RunContext, row: RunRow) -> None:
        """Note that the run's record was stored with a checkpoint."""
        context.journal.note_counted(context.lease.row, row)
        context.lease.note(
            attempt=row.attempt,
            updated_at=row.updated_at,
            replayed=row.replayed,
            boundary=row.boundary,
            kept=row.kept,
            is_in_loop=row.is_in_loop,
        )

    def _resolve_commit(self) -> None:
        """Find out whether a checkpoint with an unknown outcome was written, and note it if it was."""
        with shield, self._resolving:
            resolve = self._resolve_unknown_commit
            if resolve is not None:
                resolve()
                self._resolve_unknown_commit = None

    def _closing_step(self, calls: Calls, work: Callable[[], T], until: int | None) -> Callable[[], T]:
        """Return a function that does `work` while the step accepts no calls. Cancelled if the run was cancelled.

        `work` closes the steps up to `until`, or all if it is None. If it fails, the step accepts calls again.
        """

        def end_step() -> T:
            with shield:  # no interrupt between a write and its note in memory
                try:
                    calls.context.require_active()
                    calls.require_all_repeated(until)
                    return work()
                except BaseException:
                    calls.keys.reopen_step()
                    raise

        return end_step

    def _open_next(self, calls: Calls) -> None:
        self.step += 1
        calls.open_step(self.step)

    # -- the end --------------------------------------------------------------------------------------------------

    def halt(self, reason: str) -> None:
        """See `Run.halt`."""
        checked_text("reason", reason, "; nothing was changed")
        context = self.calls().context
        context.require_active()
        with shield:
            context.journal.write_results()
            context.journal.put_run(released_row(self._final_row(context), "halted", context.redaction.text(reason)))
            self._end("halted")

    def end_calls(self) -> None:
        """Wait for the calls of other Python threads, which cannot be stopped, before the block of a sync run is left.

        If this is interrupted, the run is not released, and its lease expires.
        """
        if self._calls is None:
            return
        try:
            self._calls.keys.end()
        except BaseException:
            self._end("running")
            raise

    def leave(self, error: BaseException | None) -> bool:
        """Release the run when its block ends, and return whether the error is handled.

        From a group of errors, those that only end the block are removed; the others are raised.
        """
        if self._leave(decisive(error)):
            return True
        remaining = without_silent(error)
        if remaining is not error and remaining is not None:
            raise remaining from None
        return False

    def _leave(self, error: BaseException | None) -> bool:
        if self._lease is None or self._calls is None:
            return False
        context, journal = self._calls.context, self._calls.context.journal
        if not context.lease.fence:
            self._end("running")
            if error is None:
                context.lease.check()
            return False
        try:
            self._resolve_commit()
            journal.write_results()
            if self.is_open and isinstance(error, Cancelled) and journal.cancel is None:
                journal.cancel = pending_cancel(context.store, self._row)  # a child has read the cancellation first
        except BaseException as failed:
            # It is unknown where the run resumes, so its record stays as it is, and its lease expires.
            self._end("running")
            if error is None or not isinstance(failed, StoreError | LeaseLost):
                raise
            return False
        if not self.is_open:
            return False  # it was completed, and the store did not report that
        if journal.cancel is not None and not isinstance(error, LeaseLost):
            self._end_cancelled(context, journal.cancel)
            return isinstance(error, Waiting | Stopped)
        if context.suspended is not None and (error is None or isinstance(error, Waiting)):
            self._suspend(context, context.suspended)
            return True
        if isinstance(error, LeaseLost):
            self._end("running")
            return False
        halted = context.watch.halted
        if halted is not None and (error is None or any(isinstance(each, Halted) for each in causes(error))):
            self._end_halted(context, halted)
            return False
        if isinstance(error, Exception):
            journal.reopen(error)
        context.lease.stop()
        row = self._final_row(context)
        if error is None and not self._is_replaying and not journal.has_calls_after(self._boundary[1]):
            # The block was left after a save, so the next one starts from there.
            row = replace(row, boundary=None, kept=(), is_in_loop=False)
        row = left_row(row, error, self._settings, context.redaction)
        try:
            journal.put_run(row)
        except (LeaseLost, StoreError):
            # Another process has the run, or the store cannot be reached: then the lease expires.
            if error is None:
                raise
        self._end(row.status)
        return isinstance(error, Stopped)

    def _suspend(self, context: RunContext, suspended: Waiting) -> None:
        """Let the run wait, in the same transaction that shows its question."""
        lease, journal = context.lease, context.journal
        lease.stop()
        posted = journal.flush()  # reads and failures that led to the question
        row = released_row(self._final_row(context), "waiting", suspended.reason)
        row = replace(row, wake_at=suspended.wake_at, wake_wall=suspended.wake_wall)
        try:
            last = suspended.seen_until
            if last is None or last != journal.last:  # calls at the same time have written since
                posted += journal.poll(at_once=True)
                last = journal.last
                if posted or has_answer(context, suspended.entries):
                    raise Conflict("an entry was posted from outside")
            questions = journal.numbered(suspended.entries, last)
            if questions:
                numbers = [question.number for question in questions]
                row = replace(row, question=numbers[0], also=tuple(numbers[1:]))
            journal.put_run(row, *questions, last=last)
        except Conflict:
            # An entry was posted meanwhile. It may be the answer: the next worker looks, and waits if it is not.
            row = replace(released_row(self._final_row(context), "queued"), attempt=max(lease.row.attempt - 1, 0))
            journal.put_run(row)
        self._suspended = suspended
        self._end(row.status)

    def _end_cancelled(self, context: RunContext, cancel: Entry) -> None:
        """Halt a run that was cancelled, in the same transaction that ends the cancellation."""
        context.lease.stop()
        row = released_row(self._final_row(context), "halted", cancel.error)
        context.journal.put_run(row, replace(cancel, status="done"))
        self._end("halted")

    def _end_halted(self, context: RunContext, reason: str) -> None:
        """Halt a run that a guard stopped."""
        context.lease.stop()
        with suppress(LeaseLost, StoreError):  # then its lease expires, and the guard stops it again
            context.journal.flush()
            context.journal.put_run(released_row(self._final_row(context), "halted", reason))
        self._end("halted")

    def suspension_of_parent(self, reason: str) -> Waiting:
        """The suspension of the parent of this run, which waits as long as this one."""
        if self.status == "queued":  # the answer was posted while the run was about to wait
            return Waiting(None, reason, self._shared.store.clock().now, now())
        own = self._suspended
        return Waiting(None, reason) if own is None else Waiting(None, reason, own.wake_at, own.wake_wall)

    def _final_row(self, context: RunContext) -> RunRow:
        row = context.journal.counted(context.lease.final_row())
        doubts = [entry.number for entry in context.journal.unsettled()]
        row = replace(row, doubts=(*(number for number in row.doubts if number <= row.closed), *doubts))
        head = self._head
        row = replace(row, kept=context.journal.kept_at(self._boundary[1]), is_in_loop=self._is_in_loop)
        if head is None or self._boundary == (head.seq, head.step):
            return replace(row, boundary=None)
        return replace(row, boundary=Boundary(head.seq, *self._boundary))

    def _end(self, status: Status) -> None:
        self.status = status
        if self._calls is not None:
            context = self._calls.context
            context.ended = status
            self._calls = None
            for number, running in context.journal.running.items():
                if running.is_started:
                    running.when_returned(functools.partial(record_running, self._shared, self._row, number, running))
        if self._lease is not None:
            self._lease.stop()
