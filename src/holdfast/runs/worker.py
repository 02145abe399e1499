"""Worker: claim and run what is queued, interrupted or due."""

from __future__ import annotations

import functools
import inspect
import random
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec.structs import replace

from holdfast.errors import Conflict, Damaged, HoldfastError, InvalidArgument, OutcomeUnknown, Replaced, StoreError
from holdfast.policy import AfterToolCall
from holdfast.runs.claiming import Terms, is_free, presumed_until
from holdfast.runs.drivers import is_async
from holdfast.runs.entering import Claiming
from holdfast.runs.family import wake_parents
from holdfast.runs.guards.limits import Guard, checked_guards
from holdfast.runs.journal import behind, now
from holdfast.runs.run import Run, RunBlock
from holdfast.runs.tools import Tools
from holdfast.stores.abilities import Announcing
from holdfast.stores.running import Clock, RunRow
from holdfast.threads.context import Session

if TYPE_CHECKING:
    from holdfast.runs.health import Health


class Stop:
    """An event that is set once, with which work may be announced before: each announcement lets one loop go."""

    def __init__(self, loops: int) -> None:
        self._loops = loops
        self._announced = 0
        self._is_set = False
        # Its lock may be taken again by the thread that has it, such as by the handler of a signal.
        self._changed = threading.Condition()

    def set(self) -> None:
        """Let all go, now and from now on."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def is_set(self) -> bool:
        return self._is_set

    def announce(self) -> None:
        """Let one go that waits, or comes to wait. Of many, no more are remembered than there are loops."""
        with self._changed:
            self._announced = min(self._announced + 1, self._loops)
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Wait until let go, and no longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_set or self._announced, seconds)
            self._announced = max(self._announced - 1, 0)


STALE_SECONDS = 60.0  # a look at the store that takes longer hangs: no store waits so long for anything


class Pulse:
    """What the loops of a worker are doing: looking at the store, since when, or running something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._last = self._begun
        self._looks: dict[int, float] = {}
        self._running: list[Callable[[], bool]] = []
        self._unread = False
        self._unwritten: float | None = None

    def look(self) -> None:
        """The loop in this thread is about to look at the store."""
        self._look(threading.get_ident())

    def _look(self, loop: int) -> None:
        with self._lock:
            self._last = self._looks[loop] = time.monotonic()

    def looked(self, *, is_well: bool) -> None:
        """A look has ended; whether the store answered all that was asked."""
        with self._lock:
            self._unread = not is_well

    def wrote(self, *, is_well: bool) -> None:
        """Something was written, or could not be because of the store."""
        with self._lock:
            self._unwritten = None if is_well else time.monotonic()

    def end(self) -> None:
        """The loop in this thread has ended."""
        with self._lock:
            self._looks.pop(threading.get_ident(), None)

    @contextmanager
    def running(self, loop: int, is_failing: Callable[[], bool]) -> Generator[None]:
        """The loop in a thread runs something. How long that takes is not its affair; that it cannot be stored is."""
        with self._lock:
            self._looks.pop(loop, None)
            self._running.append(is_failing)
        try:
            yield
        finally:
            self._look(loop)
            with self._lock:
                self._running.remove(is_failing)

    def is_beating(self) -> bool:
        """Whether every loop that looks at the store began to do so not long ago."""
        with self._lock:
            return all(time.monotonic() - begun <= STALE_SECONDS for begun in self._looks.values())

    def is_storing(self) -> bool:
        """Whether the store did, as far as is known, the last that it was to do.

        A write that failed is forgotten after a while: where nothing is to be written, none can show that it works.
        """
        with self._lock:
            if self._unwritten is not None and time.monotonic() - self._unwritten > STALE_SECONDS:
                self._unwritten = None
            return not (self._unread or self._unwritten is not None or any(fails() for fails in self._running))

    def numbers(self) -> dict[str, float]:
        with self._lock:
            now = time.monotonic()
            return {
                "running": len(self._running),
                "last_look_seconds": round(now - self._last, 3),
                "uptime_seconds": round(now - self._begun, 3),
            }


_ATTRIBUTE = "__holdfast_guards__"
F = TypeVar("F", bound=Callable[..., Any])


def handler(*, guards: Iterable[Guard]) -> Callable[[F], F]:
    """Declare what the runs of a handler are held to; the function itself stays as it is.

    In a worker, its `guards` stand in for those of their kind that the worker has for all. InvalidArgument as for the
    guards of a run.

    >>> from holdfast import Budget
    >>> @handler(guards=[Budget(steps=20)])
    ... def shopper(run): ...
    """
    checked = checked_guards(guards)

    def declare(function: F) -> F:
        if not callable(function):
            raise InvalidArgument("a handler is a function of a run")
        try:
            setattr(function, _ATTRIBUTE, checked)
        except AttributeError as error:  # a bound method, a builtin
            raise InvalidArgument("nothing can be declared about this; write a function around it") from error
        return function

    return declare


def guards_of(function: Callable[..., Any], common: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """The guards of a handler's runs: its own, and of the kinds that it has not, the common ones."""
    while isinstance(function, functools.partial) and not hasattr(function, _ATTRIBUTE):
        function = function.func
    own: tuple[Guard, ...] = getattr(function, _ATTRIBUTE, ())
    kinds = {type(guard) for guard in own}
    return (*own, *(guard for guard in common if type(guard) not in kinds))


_PAGE = 50
_IDLE_SECONDS = 0.5  # between two looks when there is nothing to do
_BACKOFF_SECONDS = (1.0, 5.0, 30.0, 120.0)

Handler = Callable[[Any], Any]
Entered = Callable[[], AbstractContextManager[None]]


class Server(Protocol):
    """Who runs async handlers: nobody in this layer can await."""

    def serve(self, claiming: Claiming, handler: Handler, entered: Entered) -> None:
        """Claim a run, let its handler run it within what `entered` gives, and finish it."""
        ...

    def close(self) -> None:
        """Nothing is served any more, until it is again."""
        ...


class Worker:
    """Runs handlers until it is told to stop. `SIGTERM` lets what is running end its step, then the worker ends."""

    def __init__(
        self,
        session: Session,
        tools: Tools,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int,
        versions: Collection[str | None] | None,
        lease: float,
        attempts: int,
        guards: Iterable[Guard] = (),
        health: tuple[str, int] | None = None,
        server: Server | None = None,
    ) -> None:
        """`server` is needed for async handlers."""
        if (
            not isinstance(handlers, Mapping)
            or not handlers
            or not all(type(name) is str and callable(handler) for name, handler in handlers.items())
        ):
            raise InvalidArgument("a worker needs handlers: a dict of names and functions of a run")
        if type(concurrency) is not int or concurrency < 1:
            raise InvalidArgument("concurrency must be a whole number, 1 or more")
        if type(attempts) is not int or attempts < 1:
            raise InvalidArgument("attempts must be a whole number, 1 or more")
        if isinstance(versions, str) or not all(type(each) in (str, type(None)) for each in versions or ()):
            raise InvalidArgument("versions must be a list of texts; None in it stands for runs without a version")
        self._session = session
        self._tools = tools
        self._handlers = dict(handlers)
        self._concurrency = concurrency
        self._versions = None if versions is None else frozenset(versions)
        self._terms = Terms(lease=lease)
        self._attempts = attempts
        self._guards = checked_guards(guards)
        self._server = server
        self._stop = Stop(concurrency)
        self._woken_first = False
        self._outrun = False  # whether another worker was faster since there was last nothing to do
        self._failure: BaseException | None = None
        self._pulse = Pulse()
        self._health = None if health is None else self._listening(health)

    def _listening(self, address: tuple[str, int]) -> Health:
        # An HTTP server takes long to import: only those who ask for one pay for it.
        from holdfast.runs.health import Health  # noqa: PLC0415

        store = self._session.store
        return Health(
            address,
            self._pulse,
            ask_store=lambda: store.runs(statuses=("queued",), after=(0, 0), limit=1),
            is_draining=self.is_stopping,
        )

    @property
    def health(self) -> tuple[str, int] | None:
        """Where the health endpoint listens, if there is one."""
        return None if self._health is None else self._health.address

    def stop(self) -> None:
        """Claim nothing more; what is running is given back at the end of its step."""
        self._stop.set()

    def run(self, *, until_idle: bool = False) -> None:
        """Work until stopped; with `until_idle`, until there is nothing that could be claimed now."""
        store = self._session.store
        hush = store.listen(self._stop.announce) if isinstance(store, Announcing) and not until_idle else None
        previous = self._listen()
        ended: list[threading.Event] = []
        if self._health is not None:
            self._health.start()
        try:
            for number in range(self._concurrency):
                event = threading.Event()
                name = f"holdfast-worker-{number}"
                threading.Thread(target=self._work_and_say, args=(until_idle, event), name=name).start()
                ended.append(event)
            _await(ended)
        except BaseException:
            # Interrupted: drain, or the threads would work on without anybody to stop them.
            self._stop.set()
            _await(ended)
            raise
        finally:
            if hush is not None:
                hush()
            self._stop_listening(previous)
            if self._server is not None:
                self._server.close()
            if self._health is not None:
                self._health.stop()
        if self._failure is not None:
            raise self._failure

    def _listen(self) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return None

        return signal.signal(signal.SIGTERM, lambda _number, _frame: self._stop.set())

    def _stop_listening(self, previous: Any) -> None:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)

    def _work_and_say(self, until_idle: bool, ended: threading.Event) -> None:
        try:
            self._work(until_idle)
        finally:
            self._pulse.end()
            ended.set()

    def _work(self, until_idle: bool) -> None:
        while not self._stop.is_set():
            self._pulse.look()
            try:
                found = self._one()
            except (Damaged, OutcomeUnknown, Replaced) as failure:
                # Neither passes by waiting; going on would look like working.
                self._failure = failure
                self._stop.set()
                return
            except StoreError:
                # Locked or restarting: the loop is what makes recovery certain, so it goes on.
                self._pulse.looked(is_well=False)
                found = False
                until_idle_now = False
            except BaseException as failure:  # noqa: BLE001 - raised again by run(), in the thread that called it
                self._failure = failure
                self._stop.set()
                return
            else:
                self._pulse.looked(is_well=True)
                until_idle_now = until_idle
            if not found:
                if until_idle_now:
                    return
                self._stop.wait(_IDLE_SECONDS)

    def _one(self) -> bool:
        """Claim and run the oldest run there is; whether there was one."""
        for name, row in self._due():
            self._pulse.look()
            if row.attempt >= self._attempts and row.status != "waiting":  # who waited did not fail
                self._bury(row)
                continue
            if self._handle(name, row):
                return True
            self._outrun = True
        self._outrun = False
        return False

    def _due(self) -> Iterator[tuple[str, RunRow]]:
        # In turns: runs that wake again and again must not keep out what was queued, nor the other way round.
        self._woken_first = not self._woken_first
        if self._woken_first:
            yield from self._woken()
            yield from self._queued()
        else:
            yield from self._queued()
            yield from self._woken()

    def _queued(self) -> Iterator[tuple[str, RunRow]]:
        """The runs of ours that are queued or interrupted, oldest first."""
        store = self._session.store
        after = (0, 0)
        while page := store.runs(statuses=("queued", "running"), after=after, limit=_PAGE):
            clock = store.clock()
            # Who was just outrun would be again by those who go for the same run: each begins somewhere else.
            start = random.randrange(len(page)) if self._outrun else 0  # noqa: S311 - nothing is kept secret by it
            for name, row in page[start:] + page[:start]:
                if row.status == "queued" and row.parent is not None:
                    wake_parents(store, row)  # whoever answered the child may have died before that
                if self._is_ours(row) and is_free(store, row, clock) and _is_awake(row, clock):
                    yield name, row
            last = page[-1][1]
            after = (last.updated_at, last.thread)

    def _woken(self) -> Iterator[tuple[str, RunRow]]:
        """The runs of ours that waited for a time which has come."""
        limit = _PAGE
        seen = 0
        while len(page := self._session.store.woken(limit=limit)) > seen:
            yield from (found for found in page[seen:] if self._is_ours(found[1]))
            # Those of other workers may be the longest overdue: look behind them.
            seen, limit = len(page), limit * 2

    def _is_ours(self, row: RunRow) -> bool:
        return row.handler in self._handlers and (self._versions is None or row.version in self._versions)

    def _handle(self, name: str, row: RunRow) -> bool:
        """Claim a run and let its handler run it. False if another worker was faster."""
        handler = self._handlers[row.handler or ""]
        claiming = Claiming(
            self._session,
            name,
            self._tools,
            AfterToolCall(),
            self._terms,
            start=None,
            has_start=False,
            type=None,
            keeper=self,
            expect=row,
            guards=guards_of(handler, self._guards),
        )
        claimed = False
        loop = threading.get_ident()

        @contextmanager
        def entered() -> Generator[None]:
            nonlocal claimed
            claimed = True
            self._pulse.wrote(is_well=True)
            with self._pulse.running(loop, claiming.is_failing):
                yield

        try:
            if self._server is not None and is_async(handler):
                self._server.serve(claiming, handler, entered)
            else:
                _serve(claiming, handler, entered)
        except Replaced:
            raise  # the file it reads is not the one that others write
        except Exception as error:  # noqa: BLE001 - its reason is on the run's record, and later runs must not wait for this one
            if any(isinstance(each, StoreError) and not isinstance(each, Damaged) for each in behind(error)):
                self._pulse.wrote(is_well=False)
            return claimed
        self._pulse.wrote(is_well=True)
        return True

    def is_stopping(self) -> bool:
        """See `Keeper`."""
        return self._stop.is_set()

    def after_failure(self, row: RunRow) -> RunRow:
        """See `Keeper`: try again later, or give up."""
        if row.attempt >= self._attempts:
            return replace(row, status="dead")
        clock = self._session.store.clock()
        seconds = _BACKOFF_SECONDS[min(row.attempt, len(_BACKOFF_SECONDS)) - 1]
        return replace(row, status="queued", clock=clock.id, wake_at=clock.now + round(seconds * 1000))

    def _bury(self, row: RunRow) -> None:
        reason = row.reason or f"its process died {row.attempt} times without reaching a checkpoint"
        dead = replace(row, status="dead", owner=None, lease_until=0, reason=reason, fence=row.fence + 1)
        dead = replace(dead, presumed_until=presumed_until(self._session.store, row), updated_at=now())
        with suppress(Conflict):  # somebody else has it by now
            self._session.store.claim(row, dead)


def _is_awake(row: RunRow, clock: Clock) -> bool:
    return not row.wake_at or row.clock != clock.id or row.wake_at <= clock.now


def _serve(claiming: Claiming, handler: Handler, entered: Entered) -> None:
    with RunBlock(claiming) as run:
        with entered():
            result = _handled(handler, run)
        if run.status == "running":
            run.finish(result)


def _handled(handler: Handler, run: Run) -> Any:
    try:
        result = handler(run)
    except BaseException as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from error
    if inspect.iscoroutine(result):
        result.close()
        raise HoldfastError("the handler gave a coroutine, and was called with a sync run; declare it with async def")
    return result


def failure_of(error: BaseException) -> HoldfastError | None:
    """What to raise for an error that ends its handler, not the worker and all that others submitted."""
    # asyncio's is told by its name: importing it takes longer than all of Holdfast.
    if isinstance(error, SystemExit | GeneratorExit) or type(error).__name__ == "CancelledError":
        return HoldfastError(f"the handler ended by {type(error).__name__}")
    return None


def _await(ended: list[threading.Event]) -> None:
    """Wait until all have ended. By events: a `join` that Ctrl-C interrupts takes its thread for ended."""
    for event in ended:
        while not event.wait(0.2):  # so that a signal reaches the main thread
            pass
