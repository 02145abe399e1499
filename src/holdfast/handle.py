"""The handle: an open store, and what can be done with all of it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.crypto.cipher import Cipher
from holdfast.errors import Closed, InvalidArgument, NotFound, Protected
from holdfast.ids import to_text
from holdfast.maintenance import Keeping
from holdfast.policy import AfterToolCall, Policy
from holdfast.redaction import Redaction
from holdfast.runs import past, status, waits
from holdfast.runs.claim import Claiming, Terms
from holdfast.runs.drivers import is_async
from holdfast.runs.guards import Guard
from holdfast.runs.past import Effects
from holdfast.runs.run import Run, RunBlock
from holdfast.runs.tools import Outcome, Tools
from holdfast.runs.worker import Server, Worker
from holdfast.stores.contract import Store, ThreadRow
from holdfast.text import shown
from holdfast.threads import erase, gc
from holdfast.threads.context import Session
from holdfast.threads.diff import Diff, diff
from holdfast.threads.metadata import checked_status, moment
from holdfast.threads.migration import M
from holdfast.threads.refs import find_row, split_reference
from holdfast.threads.retention import Retention
from holdfast.threads.thread import Ref, Thread, checked_limit, checked_name, saver_of
from holdfast.types import Effect, Erased, Interrupted, Progress, Question, RunInfo, Stuck, ThreadInfo
from holdfast.urls import Durability, open_store

if TYPE_CHECKING:
    from holdfast.aio.handle import AsyncHoldfast
    from holdfast.aio.run import AsyncRun

MAX_STATE_BYTES = 1 << 30  # the largest state a save accepts
BASE_BYTES = 256 << 20  # how many bytes of states a handle holds to find changes
_PAGE = 200


class Holdfast(Keeping):
    """An open store. Get it from `holdfast.open`; close it, or use it as a context manager. Any thread may use it."""

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
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidArgument("retention must be a holdfast.Retention")
        for name, size in (("max_state_bytes", max_state_bytes), ("base_bytes", base_bytes)):
            if type(size) is not int or size < 0:
                raise InvalidArgument(f"{name} must be a whole number of bytes")
        self._retention = retention
        self._maintenance = gc.Maintenance(self._apply_retention)
        self._session = Session(
            store,
            namespace=namespace,
            base_bytes=base_bytes,
            max_state_bytes=max_state_bytes,
            saved=self._saved,
            redaction=Redaction(redact),
        )
        self._tools = Tools(tools)
        self._aio: AsyncHoldfast | None = None

    def __repr__(self) -> str:
        return f"Holdfast({self._session.store!r})"

    @property
    def aio(self) -> AsyncHoldfast:
        """The async view of this handle: the same verbs, awaited."""
        if self._aio is None:
            # asyncio takes longer to import than all of Holdfast: only those who use it pay for it.
            from holdfast.aio.handle import AsyncHoldfast  # noqa: PLC0415

            self._aio = AsyncHoldfast(self)
        return self._aio

    def thread(self, name: str, type: Any = None, schema_version: int | None = None) -> Thread:
        """A handle on a thread, which need not exist yet.

        `type` says how states that are instances of a dataclass, a msgspec, attrs or pydantic class come back.
        `schema_version` is kept with each checkpoint. States of older versions are migrated when they are loaded;
        Incompatible if that cannot be done.
        """
        self._session.check_open()
        return Thread(self._session, name, type, schema_version)

    def migration(self, from_: int, to: int) -> Callable[[M], M]:
        """A decorator for a function that takes a plain state of schema version `from_` and returns one of `to`.

        Used by this handle for threads and runs with a `schema_version`. The stored state stays what it is.
        """
        self._session.check_open()
        return self._session.migrations.registering(from_, to)

    def threads(
        self, prefix: str | None = None, status: str | None = None, limit: int | None = None, after: str | None = None
    ) -> Iterator[ThreadInfo]:
        """The threads of this namespace by name, as their heads show them. `after` a name to get the next page."""
        self._session.check_open()
        checked_limit(limit)
        for name, text in (("prefix", prefix), ("after", after)):
            if text is not None and type(text) is not str:
                raise InvalidArgument(f"{name} must be a str")
        if status is not None:
            checked_status(status)
        return self._threads(prefix or "", status, limit, after)

    def _threads(self, prefix: str, status: str | None, limit: int | None, after: str | None) -> Iterator[ThreadInfo]:
        left = limit
        while left is None or left > 0:
            page = _PAGE if left is None or status is not None else min(left, _PAGE)
            rows = self._session.store.threads(prefix=prefix, after=after, limit=page)
            for row in rows:
                if status is None or row.summary.status == status:
                    yield _info(row)
                    if left is not None:
                        left -= 1
                        if not left:
                            return
            # The empty page at the end tells of those that could not be listed.
            if not rows:
                return
            after = rows[-1].name

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
        effects: Effects | None = None,
        schema_version: int | None = None,
        guards: Iterable[Guard] = (),
        on_resume: Callable[[Run], Any] | None = None,
    ) -> RunBlock:
        """Resume a thread's run, or start one: `with hf.run("name", start=state) as run`.

        LeaseHeld if another worker holds it for longer than `wait` seconds, NotFound if there is nothing to resume and
        no `start`. A worker that dies is replaced at once if that can be known, else when its `lease` ends.
        With a `turn`, the id of a request, say, the same id resumes or gives the result it had, and a new one begins
        where the last ended; Unfinished if that has not. `effects`: "live" calls tools, "recorded" only those that
        read, "ask" asks before irreversible ones; a fork asks unless it is told otherwise.
        Incompatible if an unfinished run was begun by another `version`, or its state cannot be migrated to
        `schema_version`: then nobody has claimed it.
        `guards` halt the run before the call that would be too many: see LoopGuard and Budget. `on_resume` is given a
        run that was begun before, ahead of the block.
        """
        terms = Terms(lease=lease, wait=wait, agent=agent, version=version, turn=turn)
        claiming = self._claiming(thread, terms, start, type, policy, tools, effects, schema_version, guards, on_resume)
        return RunBlock(claiming)

    def _claiming(
        self,
        thread: str,
        terms: Terms,
        start: Any,
        type: Any,
        policy: Policy | None,
        tools: Iterable[Callable[..., Any]] | None,
        effects: Effects | None,
        schema_version: int | None,
        guards: Iterable[Guard],
        on_resume: Callable[[Any], Any] | None,
    ) -> Claiming:
        self._session.check_open()
        return Claiming(
            self._session,
            thread,
            self._tools if tools is None else Tools(tools, self._tools),
            AfterToolCall() if policy is None else policy,
            terms,
            start=start,
            has_start=start is not None,
            type=type,
            effects=effects,
            schema_version=schema_version,
            guards=guards,
            on_resume=on_resume,
        )

    def effects(self, thread: str) -> list[Effect]:
        """The journal of a thread: every call that was recorded, oldest first. NotFound if there is no thread."""
        return status.effects_of(self._session.store, self._row(thread))

    def run_info(self, thread: str) -> RunInfo | None:
        """What the run of a thread is doing, or how it ended and why; None if the thread has none."""
        return status.info_of(self._session.store, self._row(thread))

    def interrupted(self) -> Iterator[Interrupted]:
        """The runs whose owner is gone, and what a resume would do with each."""
        self._session.check_open()
        return status.interrupted(self._session.store, self._tools)

    def settle(self, thread: str, effect: Effect | int, outcome: Outcome) -> None:
        """Say what became of an effect in doubt: Happened(result), NotDone() or GiveUp(). Its run can then go on."""
        row = self._row(thread)
        status.settle(self._session.store, row, effect, outcome, self._session.redaction)
        waits.wake_parents(self._session.store, self._session.store.run(row.position.thread))

    def waiting(self, name: str | None = None) -> Iterator[Question]:
        """What runs wait for: questions of `run.wait`, of one name or all, and calls in doubt; longest first."""
        self._session.check_open()
        return waits.waiting(self._session.store, name)

    def progress(self, thread: str) -> Progress | None:
        """How far the run of a thread last said it is; None if it said nothing since it was last claimed."""
        return status.progress_of(self._session.store, self._row(thread))

    def stuck(self, older_than: float = 300.0) -> Iterator[Stuck]:
        """The runs that have got nowhere for so many seconds, and why: see `Stuck`."""
        self._session.check_open()
        return status.stuck(self._session.store, older_than)

    def answer(self, thread: str, name: str, value: Any, by: str | None = None) -> None:
        """Answer a question of `run.wait`, also before it is asked. The first answer holds; another is a Conflict.

        AskedByChild, which says whom to answer, if it is a child of the thread's run that asks that.
        """
        redact = self._session.redaction.value
        waits.answer(self._session.store, self._row(thread), name, redact(value), redact(by))

    def cancel(self, thread: str, reason: str) -> None:
        """Halt a run: at once if nobody holds it, else its next call raises Cancelled. Conflict if it is completed."""
        waits.cancel(self._session.store, self._row(thread), self._session.redaction.value(reason))

    def undo(self, thread: str, *, to: Ref) -> list[Effect]:
        """Take back, newest first, what a thread did after a checkpoint, by the `undo=` of its tools; what was undone.

        Conflict, with nothing undone, if something irreversible has none, is in doubt, or the thread is being run.
        Nothing is rewound by it.
        """
        row = self._row(thread)
        store = self._session.store
        at, namespace = find_row(store, row, to), self._session.namespace
        return past.undo(store, self._tools, row, at, namespace, self._session.redaction)

    def submit(self, handler: str, thread: str, *, start: Any, version: str | None = None) -> None:
        """Queue a run for any worker that has the handler. Again with the same start it changes nothing."""
        self._session.check_open()
        saver = saver_of(Thread(self._session, thread))
        status.submit(self._session.store, saver, thread, handler, start, version)

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
        """A worker that claims and runs what is queued, interrupted or woken, oldest first. Call its `run()`.

        Handlers are functions of a Run, or async ones of an AsyncRun; those share one event loop.
        With `health`, a host and a port, it answers `GET /live` and `GET /ready` there. Port 0 means any free one;
        `worker.health` says which.
        """
        self._session.check_open()
        server: Server | None = None
        if isinstance(handlers, Mapping) and any(callable(each) and is_async(each) for each in handlers.values()):
            from holdfast.aio.worker import AsyncServer  # noqa: PLC0415 - as for aio

            server = AsyncServer()
        return Worker(
            self._session,
            self._tools,
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
        self._session.check_open()
        checked_name(thread)
        row = self._session.store.thread(thread)
        if row is None:
            raise NotFound(f"there is no thread {shown(thread)}; hf.threads() lists what there is")
        return row

    def diff(self, a: str, b: str) -> Diff:
        """What changed between two checkpoints of any threads, named like "thread@-1", "thread@label", "thread@12"."""
        states = []
        for text in (a, b):
            name, ref = split_reference(text)
            states.append(self.thread(name)._plain_state(ref))
        return diff(*states)

    def erase(
        self, thread: str | None = None, *, metadata: dict[str, Any] | None = None, forks: bool = False
    ) -> Erased:
        """Remove all about a thread, or about each with a checkpoint that has this metadata, from the files, too.

        Its children go with it, its forks only with `forks`; the answer says what is left. LeaseHeld, with nothing
        changed, if one is being run. ErasePending if a reader has to end first. Called again, it goes on.
        """
        self._session.check_open()
        return erase.erase(self._session, thread, metadata, forks=forks)

    def optimize(self) -> gc.Optimized:
        """Merge small segments, drop what nothing names any more, give space back to the file system."""
        self._session.check_open()
        self._maintenance.run_now()
        return gc.optimize(self._session.store)

    def maintain(self) -> None:
        """Apply the handle's retention now to the threads saved to since the last time, instead of soon."""
        self._session.check_open()
        self._maintenance.run_now()

    def close(self) -> None:
        """Finish maintenance and release everything. Closing again does nothing."""
        try:
            self._session.check_open()
        except Closed:
            return
        try:
            self._maintenance.stop()
        finally:
            self._session.close()

    def __enter__(self) -> Self:
        self._session.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _saved(self, name: str) -> None:
        if self._retention is not None:
            self._maintenance.note(name)

    def _apply_retention(self, name: str) -> None:
        if self._retention is None:
            return
        try:
            Thread(self._session, name).prune(self._retention)
        except (NotFound, Protected):
            # Dropped meanwhile, or rewound to what was to go: then there is nothing to do, or next time.
            return


def open(  # noqa: A001 - the firm name, as in gzip.open
    url: str | os.PathLike[str] | None = None,
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
    """Open a store, creating it if it is not there.

    `url` is a path, "sqlite:///path", "dir:path" or "memory:"; None means $HOLDFAST_STORE, else a file in the user's
    data folder.
    `durability`: "full" survives power loss, "normal" may lose the last saves to it, "off" may lose the store to it;
    none of them loses a save to a killed process. `retention` is applied in the background; by default nothing is
    ever deleted. States over `max_state_bytes` are refused. `base_bytes` bounds the memory that finding changes takes.
    `cipher` encrypts all that is stored but names, times and sizes; None means the keys in $HOLDFAST_KEY, if it is set.
    `redact` changes every text but names before it is stored: `holdfast.redaction.api_keys`, or a function of yours.

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


def _info(row: ThreadRow) -> ThreadInfo:
    return ThreadInfo(
        name=row.name,
        head=to_text(row.head_id),
        seq=row.position.head,
        step=row.summary.step,
        status=checked_status(row.summary.status),
        agent=row.summary.agent,
        size=row.summary.size,
        count=row.count,
        updated_at=moment(row.summary.updated_at),
    )
