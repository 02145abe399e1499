"""Holdfast: an open store, and `open()`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from holdfast import maintenance
from holdfast.crypto.cipher import Cipher
from holdfast.errors import Closed, InvalidArgument, NotFound
from holdfast.policy import Policy
from holdfast.redaction import Redaction
from holdfast.runs import acts, schedule, settlement, status, undo, waits, work_queue
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.drivers import is_async
from holdfast.runs.earlier_calls import CallMode
from holdfast.runs.guards import Guard
from holdfast.runs.handlers import Handlers, Recovery
from holdfast.runs.run import Run, RunBlock
from holdfast.runs.schedule import Schedule
from holdfast.runs.status import PENDING, ResultSearch
from holdfast.runs.tools import Outcome, Tools
from holdfast.runs.worker import AsyncHandlerRunner, Worker
from holdfast.signals import sleep
from holdfast.stores.contract import Store, ThreadRow
from holdfast.text import quoted
from holdfast.threads import erase, gc, scan, together
from holdfast.threads.context import Context
from holdfast.threads.diff import diff
from holdfast.threads.metadata import checked_status, thread_info
from holdfast.threads.migration import M
from holdfast.threads.refs import find_row, split_reference
from holdfast.threads.retention import BackgroundRetention, Retention
from holdfast.threads.thread import Ref, Thread, checked_limit, checked_name
from holdfast.threads.together import ThreadChange
from holdfast.threads.verify import verify
from holdfast.types import (
    Act,
    BackupResult,
    Checkpoint,
    Diff,
    Effect,
    EraseResult,
    InterruptedRun,
    OptimizeResult,
    PendingQuestion,
    Progress,
    RepairResult,
    RunInfo,
    ScheduleInfo,
    StuckRun,
    ThreadInfo,
    VerifyProgress,
    VerifyReport,
)
from holdfast.urls import Durability, open_store

if TYPE_CHECKING:
    from holdfast.aio.handle import AsyncHoldfast
    from holdfast.aio.run import AsyncRun

MAX_STATE_BYTES = 1 << 30  # the largest state a save accepts
BASE_BYTES = 256 << 20  # how many bytes of states a handle holds to find changes


class Holdfast:
    """An open store, made by `holdfast.open`. Close it, or use it as a context manager. It is thread-safe."""

    def __init__(
        self,
        store: Store,
        *,
        retention: Retention | None = None,
        max_state_bytes: int = MAX_STATE_BYTES,
        base_bytes: int = BASE_BYTES,
        namespace: str = "default",
        tools: Iterable[Callable[..., Any]] = (),
        redact: Callable[[str], str] | None = None,
    ) -> None:
        """Use `holdfast.open`, which opens the `store` and passes the rest on."""
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidArgument("retention must be a holdfast.Retention")
        for name, size in (("max_state_bytes", max_state_bytes), ("base_bytes", base_bytes)):
            if type(size) is not int or size < 0:
                raise InvalidArgument(f"{name} must be a whole number of bytes, 0 or more")
        self._retention = retention
        self._background = BackgroundRetention(self._apply_retention)
        self.context = Context(
            store,
            namespace=namespace,
            base_bytes=base_bytes,
            max_state_bytes=max_state_bytes,
            saved=None if retention is None else self._background.note,
            redaction=Redaction(redact),
        )
        self.tools = Tools(tools)
        self._aio: AsyncHoldfast | None = None

    def __repr__(self) -> str:
        return f"Holdfast({self.context.store!r})"

    @property
    def aio(self) -> AsyncHoldfast:
        """The async view of this handle: the same methods, awaited."""
        if self._aio is None:
            # asyncio takes longer to import than the rest of Holdfast.
            from holdfast.aio.handle import AsyncHoldfast  # noqa: PLC0415

            self._aio = AsyncHoldfast(self)
        return self._aio

    def thread(self, name: str, type: Any = None, schema_version: int | None = None) -> Thread:
        """Return a thread object. The thread need not exist yet.

        `type` is the class of the states: a dataclass, or a msgspec, attrs or pydantic class. Loaded states are
        instances of it. `schema_version` is stored with each checkpoint; states of older versions are migrated when
        they are loaded (`Incompatible` if no migration leads to this version).
        """
        self.context.check_open()
        return Thread(self.context, name, type, schema_version)

    def save_together(self, changes: Sequence[ThreadChange]) -> list[Checkpoint]:
        """Save to several threads in one commit: all of them are saved, or none. Return their checkpoints, in order.

        `changes` are a `SaveTo` or an `AppendTo` for each thread. The errors are those of `Thread.save`: `Conflict` if
        one of the threads is not as expected. If an append has a `unique` that its thread used before, the call is a
        repetition: nothing is saved, and the list is empty. `InvalidArgument` if the store keeps each thread in a
        log of its own: directories and buckets save one thread at a time.
        """
        return together.save_together(self.context, changes)

    def migration(self, from_: int, to: int) -> Callable[[M], M]:
        """Register a function that takes a plain state of schema version `from_` and returns one of version `to`.

        Use it as a decorator. It applies to threads and runs of this handle that have a `schema_version`. Stored states
        are not changed.
        """
        self.context.check_open()
        return self.context.migrations.registering(from_, to)

    def threads(
        self, prefix: str | None = None, status: str | None = None, limit: int | None = None, after: str | None = None
    ) -> Iterator[ThreadInfo]:
        """List the threads of this namespace in order of their names. Pass the last name as `after` for more."""
        self.context.check_open()
        checked_limit(limit)
        for name, text in (("prefix", prefix), ("after", after)):
            if text is not None and type(text) is not str:
                raise InvalidArgument(f"{name} must be a string")
        if status is not None:
            checked_status(status)
        page = scan.PAGE if limit is None or status is not None else min(limit, scan.PAGE)
        rows = scan.threads(self.context.store, prefix or "", after, page)
        return islice((thread_info(row) for row in rows if status is None or row.summary.status == status), limit)

    def run(
        self,
        thread: str,
        *,
        start: Any = None,
        type: Any = None,
        agent: str | None = None,
        version: str | None = None,
        policy: Policy | None = None,
        lease: float = 30.0,
        wait: float = 0.0,
        tools: Iterable[Callable[..., Any]] | None = None,
        turn: str | None = None,
        effects: CallMode | None = None,
        schema_version: int | None = None,
        guards: Iterable[Guard] = (),
        on_resume: Callable[[Run], Any] | None = None,
    ) -> RunBlock:
        """Resume a thread's run, or start one: `with hf.run("name", start=state) as run`.

        `LeaseHeld` if another process holds the run for longer than `wait` seconds. `NotFound` if there is nothing to
        resume and no `start`. If the process that holds a run dies, another one can resume the run: at once if the
        death can be proven, otherwise when the `lease` ends.

        `turn` is the id of a request. The same id resumes that turn or returns its result; a new id starts where the
        last turn ended (`Unfinished` if that turn has not ended).
        `effects` is "live" (call tools), "recorded" (call only tools that read) or "ask" (ask before calling an
        irreversible tool). By default, tools are called, and a person is asked about a call that may repeat one of an
        abandoned branch; on a fork, the default is "ask".
        `version` is the version of the program. `Incompatible`, before anything is claimed, if an unfinished run was
        started by another version or its state cannot be migrated to `schema_version`.
        `guards` halt the run before a call that exceeds a limit: see `LoopGuard` and `Budget`. `on_resume` is called
        with a resumed run before the block is entered.
        """
        terms = ClaimTerms(lease=lease, wait=wait, agent=agent, version=version, turn=turn)
        self.context.check_open()
        return RunBlock(
            ClaimRequest(
                self.context,
                thread,
                terms,
                tools=self.tools.extended(tools),
                start=start,
                type=type,
                policy=policy,
                effects=effects,
                schema_version=schema_version,
                guards=guards,
                on_resume=on_resume,
            )
        )

    def effects(self, thread: str) -> list[Effect]:
        """Return the journal of a thread, oldest first: calls, questions, answers, cancellations, turns.

        It leaves out what adapters of graphs write for themselves. `NotFound` if there is no such thread.
        """
        return status.effects_of(self.context.store, self._row(thread))

    def run_info(self, thread: str) -> RunInfo | None:
        """Return the status of a thread's run, and why it ended; None if the thread has no run."""
        return status.info_of(self.context.store, self._row(thread))

    def result(self, thread: str, *, turn: str | None = None, wait: float = 0.0) -> Any:
        """Return the result of a completed run, or of one of its turns, without claiming the run.

        `Unfinished` if there is no result within `wait` seconds, or at once if the run failed, was halted or is dead.
        `NotFound` if there is no run.
        """
        self.context.check_open()
        checked_name(thread)
        search = ResultSearch(self.context.store, thread, turn, wait)
        for pause in search.pauses():
            found = search.look()
            if found is not PENDING:
                return found
            sleep(pause)
        return search.look(is_last=True)

    def interrupted(self) -> Iterator[InterruptedRun]:
        """List the runs that were left unfinished, and what a resume would do with each: see `InterruptedRun`."""
        self.context.check_open()
        return status.interrupted(self.context.store, self.tools)

    def recover(
        self,
        handlers: Mapping[str, Callable[[Run], Any]],
        *,
        versions: Collection[str | None] | None = None,
        lease: float = 30.0,
        attempts: int = 5,
        guards: Iterable[Guard] = (),
    ) -> list[RunInfo]:
        """Resume each interrupted run that has a handler here, one after the other. Return their status afterwards.

        Call it when a program starts. Handlers are found by the run's handler or, for runs of `hf.run`, by its agent's
        name. Runs that other processes hold are left alone, as are runs that failed in `attempts` attempts.
        """
        self.context.check_open()
        found = Handlers(handlers, versions, guards)
        return Recovery(self.context, self.tools, found, lease=lease, attempts=attempts).run()

    def settle(
        self, thread: str, effect: Effect | int, outcome: Outcome, by: str | None = None, *, force: bool = False
    ) -> None:
        """Settle a call in doubt: `Happened(result)`, `NotDone()` or `GiveUp()`. Its run can then be resumed.

        `by` is the person or program that settles it; it is recorded with the call.
        `Conflict` for `NotDone()` while the call may still act; `force=True` settles it anyway.
        """
        row = self._row(thread)
        settlement.settle(
            self.context.store, row, effect, outcome, self.context.redaction, self.tools, by=by, force=force
        )
        waits.wake_parents(self.context.store, self.context.store.run(row.position.thread))

    def waiting(self, name: str | None = None) -> Iterator[PendingQuestion]:
        """List what runs wait for: questions of `run.wait`, all or of one name, and calls in doubt; oldest first."""
        self.context.check_open()
        return waits.waiting(self.context.store, name)

    def progress(self, thread: str) -> Progress | None:
        """Return the progress that the run of a thread last reported; None if it reported none since its last claim."""
        return status.progress_of(self.context.store, self._row(thread))

    def stuck(self, older_than: float = 300.0) -> Iterator[StuckRun]:
        """List the runs that made no progress for `older_than` seconds, and why: see `StuckRun`."""
        self.context.check_open()
        return status.stuck(self.context.store, older_than)

    def answer(self, thread: str, name: str, value: Any, by: str | None = None, *, early: bool = False) -> None:
        """Answer a question of `run.wait`.

        `Conflict` if the question was answered before, or if the run has not asked it. With `early=True`, an answer to
        a question that was not asked yet is kept for the first question of that name. `AskedByChild` if the question
        was asked by a child of the thread's run: the error names the child's thread.
        """
        redact = self.context.redaction.value
        waits.answer(self.context.store, self._row(thread), name, redact(value), redact(by), early=early)

    def cancel(self, thread: str, reason: str) -> None:
        """Halt a run. If a process holds it, the run's next call raises `Cancelled`. `Conflict` if it is completed."""
        waits.cancel(self.context.store, self._row(thread), self.context.redaction.value(reason))

    def undo(self, thread: str, *, to: Ref) -> list[Effect]:
        """Undo the calls that a thread made after a checkpoint, newest first, with the `undo=` of their tools.

        Return the calls that were undone. `Conflict`, with nothing undone, if the tool of an irreversible call has no
        `undo=`, a call is in doubt, or a process holds the thread. The thread is not rewound.
        """
        row = self._row(thread)
        store = self.context.store
        at, namespace = find_row(store, row, to), self.context.namespace
        return undo.undo(store, self.tools, row, at, namespace, self.context.redaction)

    def acts(self, tool: str | Callable[..., Any] | None = None) -> Iterator[Act]:
        """List the acts that calls have claimed, all or of one tool, in no particular order: see `Act`.

        A tool is given by its function or its name. Only tools with `identity=` claim acts.
        """
        self.context.check_open()
        return acts.list_acts(self.context.store, None if tool is None else self.tools.identity_of(tool))

    def release(self, act: Act | str, *, by: str, reason: str, force: bool = False) -> None:
        """Let an act happen again. `by` and `reason` are recorded with the call that claimed it.

        `Conflict` if the act is under way, if another call has claimed it since `act` was listed, or, without `force`,
        if its call may still act. An act that is free already is not changed. If the thread of its call was deleted,
        the decision is recorded in the thread `holdfast/actions`, and the claim is removed.
        """
        self.context.check_open()
        acts.release(self.context, act, by, reason, force=force)

    def submit(
        self,
        handler: str,
        thread: str,
        *,
        start: Any,
        version: str | None = None,
        type: Any = None,
        schema_version: int | None = None,
        at: datetime | None = None,
        priority: int = 0,
    ) -> None:
        """Queue a run for any worker that has the handler, at once or at the time `at`.

        Workers take runs with a higher `priority` first, from 100 to -100. Submitting the run again with the same
        `start` does nothing.
        `type` and `schema_version` are those of `start`, as for `hf.run`.
        """
        self.context.check_open()
        saver = Thread(self.context, thread, type, schema_version).saver
        work_queue.submit(self.context.store, saver, thread, handler, start, version, at, priority)

    def schedule(
        self,
        name: str,
        handler: str,
        *,
        start: Any,
        every: float | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        version: str | None = None,
    ) -> None:
        """Submit a run again and again: every so many seconds, or by a cron expression in a time zone.

        Workers submit the runs. Each run has a thread of its own, `NAME/TIME`. If no worker was running at several of
        these times, one run is submitted for all of them. Adding the same schedule again does nothing. `Conflict` if
        the name has another schedule.
        """
        self.context.check_open()
        plan = Schedule(handler=handler, start=start, every=every, cron=cron, timezone=timezone, version=version)
        schedule.add(self.context, name, plan)

    def schedules(self) -> Iterator[ScheduleInfo]:
        """List the schedules, in order of their names."""
        return schedule.listed(self.context, (info.name for info in self.threads(prefix=schedule.FOLDER)))

    def unschedule(self, name: str) -> None:
        """Remove a schedule. `NotFound` if there is none; `LeaseHeld` if a worker uses it at this moment."""
        self.context.check_open()
        schedule.remove(self.context, name)

    def worker(
        self,
        handlers: Mapping[str, Callable[[Run], Any] | Callable[[AsyncRun], Awaitable[Any]]],
        *,
        concurrency: int = 1,
        versions: Collection[str | None] | None = None,
        lease: float = 30.0,
        attempts: int = 5,
        guards: Iterable[Guard] = (),
        health: tuple[str, int] | None = None,
    ) -> Worker:
        """Return a worker for the runs that are queued, interrupted or due. Call its `run()`.

        Handlers are functions that take a `Run`, or async functions that take an `AsyncRun`; the async ones share one
        event loop. With `health=(host, port)` the worker answers `GET /live` and `GET /ready` there. Port 0 means any
        free port; `worker.health` has the address.
        """
        self.context.check_open()
        server: AsyncHandlerRunner | None = None
        if isinstance(handlers, Mapping) and any(callable(each) and is_async(each) for each in handlers.values()):
            from holdfast.aio.worker import AsyncServer  # noqa: PLC0415 - as for aio

            server = AsyncServer()
        return Worker(
            self.context,
            self.tools,
            handlers,
            concurrency=concurrency,
            versions=versions,
            lease=lease,
            attempts=attempts,
            guards=guards,
            health=health,
            server=server,
        )

    def _row(self, thread: str) -> ThreadRow:
        self.context.check_open()
        checked_name(thread)
        row = scan.thread_named(self.context.store, thread)
        if row is None:
            raise NotFound(f"there is no thread {quoted(thread)}; hf.threads() lists the threads")
        return row

    def diff(self, a: str, b: str) -> Diff:
        """Compare two checkpoints of any threads, named like "thread@-1", "thread@label" or "thread@12"."""
        states = []
        for text in (a, b):
            name, ref = split_reference(text)
            states.append(self.thread(name).load(ref).state)
        return diff(*states)

    def erase(
        self, thread: str | None = None, *, metadata: dict[str, Any] | None = None, forks: bool = False
    ) -> EraseResult:
        """Erase a thread, or every thread that has a checkpoint with this metadata, also from the store's files.

        Children are erased with their parent, forks only with `forks=True`; the result says what is left. `LeaseHeld`,
        with nothing changed, if a process holds one of the threads. `ErasePending` if a reader still uses the files:
        call `erase` again to finish.
        """
        self.context.check_open()
        return erase.erase(self.context, thread, metadata, forks=forks)

    def verify(
        self,
        *,
        deep: bool = True,
        fingerprint: str | None = None,
        progress: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        """Check everything stored: structures, checksums, digests, journals, and that everything referred to exists.

        With `deep=False`, cells are not read. With a `fingerprint` from `hf.fingerprint()`, also check that no thread
        has gone back to an older state or is missing (`InvalidArgument` if it is from another store). `progress` is
        called with a `VerifyProgress`.
        """
        self.context.check_open()
        return verify(self.context.store, self.context.namespace, deep=deep, fingerprint=fingerprint, progress=progress)

    def fingerprint(self) -> str:
        """Return a fingerprint of all threads, to keep outside the store. `verify(fingerprint=…)` compares with it.

        In an encrypted store the fingerprint is signed. `Damaged` if a thread cannot be read.
        """
        from holdfast.threads import fingerprint  # noqa: PLC0415 - only needed here

        self.context.check_open()
        return fingerprint.fingerprint(self.context.store, self.context.namespace)

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        verify: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> BackupResult:
        """Copy the store, as it is at one moment, to a new store of the same kind. Other processes may keep writing.

        All namespaces are copied, and encrypted data stays encrypted. The copy of this handle's namespace is verified;
        with `verify=False` its cells are not read. `progress` is called with the bytes done and the total.
        `AlreadyExists` if the target exists, `InvalidArgument` if it is in the store's own folder. After an error
        there is no copy.
        """
        self.context.check_open()
        return maintenance.backup(self.context, target, deep=verify, progress=progress)

    def repair(
        self, target: str | os.PathLike[str], *, progress: Callable[[VerifyProgress], None] | None = None
    ) -> RepairResult:
        """Copy everything readable in this namespace into a new store of any kind. This store is only read.

        Ids, order, labels, metadata, times, journals and runs are kept. Damaged checkpoints become tombstones, and the
        result lists them. `AlreadyExists` if the target has threads; `WrongKey` if it is encrypted already. Stop all
        writers of this store first.
        """
        self.context.check_open()
        return maintenance.repair(self.context, target, progress=progress)

    def rekey(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every data key with the cipher's current key. Return how many were changed. Stored data is not touched.

        Open every writer with the new current key first. Afterwards, older keys can be removed from the cipher.
        `progress` is called with the number of keys checked since its last call. `Damaged`, after all others were
        wrapped, if a key cannot be read. `Conflict` if another process keeps making keys with an older one.
        `NotEncrypted` if the store was opened without a cipher.
        """
        self.context.check_open()
        return maintenance.rekey(self.context.store, progress)

    def optimize(self) -> OptimizeResult:
        """Apply the handle's `retention`, merge small segments, remove unused data, and free the space."""
        self.context.check_open()
        pruned = self._background.run_now()
        return replace(gc.optimize(self.context.store), pruned=pruned)

    def maintain(self) -> None:
        """Apply the handle's `retention` now instead of in the background, and raise an error that occurred there."""
        self.context.check_open()
        self._background.run_now()

    def close(self) -> None:
        """Apply the handle's retention as `maintain` does, and close the store. Closing again does nothing."""
        try:
            self.context.check_open()
        except Closed:
            return
        try:
            self._background.stop()
        finally:
            self.context.close()

    def __enter__(self) -> Self:
        self.context.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _apply_retention(self, name: str) -> int:
        if self._retention is None:
            return 0
        try:
            return len(Thread(self.context, name).prune(self._retention).removed)
        except NotFound:  # the thread was dropped meanwhile
            return 0


def open(  # noqa: A001 - the firm name, as in gzip.open
    url: str | os.PathLike[str] | Store | None = None,
    *,
    namespace: str = "default",
    durability: Durability = "full",
    retention: Retention | None = None,
    max_state_bytes: int = MAX_STATE_BYTES,
    base_bytes: int = BASE_BYTES,
    tools: Iterable[Callable[..., Any]] = (),
    cipher: Cipher | None = None,
    redact: Callable[[str], str] | None = None,
) -> Holdfast:
    """Open a store. Create it if it does not exist.

    `url` is a path, "sqlite:///path", "dir:path", "postgresql://…", "s3://…", "gs://…", "az://…" or "memory:". None
    means $HOLDFAST_STORE, or a file in the user's data folder. It may also be a store object, or a URL whose scheme an
    installed package provides (docs/how-to/stores.md).
    `durability`: "full" survives a power loss, "normal" may lose the last saves in one, "off" may lose the store in
    one. A killed process loses nothing with any of them.
    `retention` is applied in the background; by default nothing is deleted. States larger than `max_state_bytes` are
    refused. `base_bytes` limits the memory used to find what changed between saves.
    `cipher` encrypts all content: states, metadata and journals. Names, ids, statuses, times and sizes stay in plain
    text (docs/how-to/encrypt.md). None means the keys in $HOLDFAST_KEY, if it is set. `redact` changes every text
    except names before it is stored: `holdfast.redaction.api_keys` or your own function.

    >>> with open("memory:") as hf:
    ...     hf.thread("greeting").save({"messages": ["hello"]}).step
    1
    """
    store = open_store(url, namespace=namespace, durability=durability, cipher=cipher)
    try:
        return Holdfast(
            store,
            retention=retention,
            max_state_bytes=max_state_bytes,
            base_bytes=base_bytes,
            namespace=namespace,
            tools=tools,
            redact=redact,
        )
    except BaseException:
        store.close()
        raise
