"""Worker: claim and run the runs that are queued, interrupted or due."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from holdfast.errors import Conflict, Damaged, LimitReached, OutcomeUnknown, Replaced, StoreError
from holdfast.runs import schedule
from holdfast.runs.arguments import checked_count
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.drivers import is_async
from holdfast.runs.guards import Guard
from holdfast.runs.handlers import Entered, Handler, Handlers, serve
from holdfast.runs.lease import deadline_in
from holdfast.runs.open_entries import doubts_of
from holdfast.runs.record import causes, ended_from_outside
from holdfast.runs.tools import Tools
from holdfast.runs.work_queue import WorkQueue
from holdfast.stores.abilities import Announcing
from holdfast.stores.contract_runs import RunRow
from holdfast.threads.context import Context
from holdfast.threads.scan import thread_named

if TYPE_CHECKING:
    from holdfast.runs.health import Health


class LoopSignal:
    """Stops all loops of a worker. Before that, each announcement of work wakes one loop."""

    def __init__(self, loops: int) -> None:
        self._loops = loops
        self._announced = 0
        self._is_set = False
        # Its lock is reentrant: a signal handler may run in the thread that holds it.
        self._changed = threading.Condition()

    def set(self) -> None:
        """Wake all loops, now and from now on."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def is_set(self) -> bool:
        return self._is_set

    def announce(self) -> None:
        """Wake one loop that waits, or the next one to wait. At most one announcement per loop is kept."""
        with self._changed:
            self._announced = min(self._announced + 1, self._loops)
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Wait until woken, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_set or self._announced, seconds)
            self._announced = max(self._announced - 1, 0)


STALE_SECONDS = 60.0  # a loop that waits longer for a read counts as hanging. All stores have shorter time limits


class Activity:
    """The activity of a worker's loops: each reads the store, since some time, or runs something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._last = self._started
        self._looks: dict[int, float] = {}
        self._running: list[Callable[[], bool]] = []
        self._is_read_failing = False
        self._write_failed_at: float | None = None

    def look(self) -> None:
        """Note that the loop in this Python thread is about to look at the store."""
        self._look(threading.get_ident())

    def _look(self, loop: int) -> None:
        with self._lock:
            self._last = self._looks[loop] = time.monotonic()

    def looked(self, *, is_well: bool) -> None:
        """Note the end of a look, and whether the store answered."""
        with self._lock:
            self._is_read_failing = not is_well

    def wrote(self, *, is_well: bool) -> None:
        """Note a write, and whether the store accepted it."""
        with self._lock:
            self._write_failed_at = None if is_well else time.monotonic()

    def end(self) -> None:
        """Note that the loop in this Python thread has ended."""
        with self._lock:
            self._looks.pop(threading.get_ident(), None)

    @contextmanager
    def running(self, loop: int, is_failing: Callable[[], bool]) -> Generator[None]:
        """Note that the loop in a thread runs something. It may take any time, but `is_failing` makes it unready."""
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
        """Whether no loop hangs in a look at the store."""
        with self._lock:
            return all(time.monotonic() - since <= STALE_SECONDS for since in self._looks.values())

    def is_storing(self) -> bool:
        """Whether the last read and the last write of the store succeeded.

        A failed write is forgotten after a while: without new work, no later write can show that the store recovered.
        """
        with self._lock:
            if self._write_failed_at is not None and time.monotonic() - self._write_failed_at > STALE_SECONDS:
                self._write_failed_at = None
            return not (
                self._is_read_failing or self._write_failed_at is not None or any(fails() for fails in self._running)
            )

    def numbers(self) -> dict[str, float]:
        with self._lock:
            now = time.monotonic()
            return {
                "running": len(self._running),
                "last_look_seconds": round(now - self._last, 3),
                "uptime_seconds": round(now - self._started, 3),
            }


_BACKOFF_SECONDS = (1.0, 5.0, 30.0, 120.0)


class AsyncHandlerRunner(Protocol):
    """Runs async handlers, which this layer cannot await."""

    def serve(self, request: ClaimRequest, handler: Handler, entered: Entered) -> None:
        """Claim a run, call its handler inside the context manager `entered()`, and finish the run."""
        ...

    def close(self) -> None:
        """Release what serving needed. `serve` may be called again."""
        ...


class Worker:
    """Runs handlers until it is stopped. On `SIGTERM`, the runs that it holds end their step, then the worker ends."""

    def __init__(
        self,
        context: Context,
        tools: Tools,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int,
        versions: Collection[str | None] | None,
        lease: float,
        attempts: int,
        guards: Iterable[Guard] = (),
        health: tuple[str, int] | None = None,
        server: AsyncHandlerRunner | None = None,
    ) -> None:
        """`server` is needed for async handlers."""
        self._handlers = Handlers(handlers, versions, guards, {schedule.HANDLER: schedule.handler(context)})
        self._concurrency = checked_count("concurrency", concurrency)
        self._attempts = checked_count("attempts", attempts)
        self._context = context
        self._tools = tools
        self._terms = ClaimTerms(lease=lease)
        self._server = server
        self._stop = LoopSignal(concurrency)
        self._queue = WorkQueue(context.store, self._handlers)
        self._failure: BaseException | None = None
        self._activity = Activity()
        self._health = None if health is None else self._listening(health)

    def _listening(self, address: tuple[str, int]) -> Health:
        # Imported on demand: http.server takes long to import.
        from holdfast.runs.health import Health  # noqa: PLC0415

        store = self._context.store
        return Health(
            address,
            self._activity,
            ask_store=lambda: store.runs(statuses=("queued",), after=(0, 0), limit=1),
            is_draining=self.is_stopping,
        )

    @property
    def health(self) -> tuple[str, int] | None:
        """The address of the health endpoint, if there is one."""
        return None if self._health is None else self._health.address

    def stop(self) -> None:
        """Claim nothing more. Running runs are released at the end of their step."""
        self._stop.set()

    def run(self, *, until_idle: bool = False) -> None:
        """Work until stopped; with `until_idle`, until nothing can be claimed."""
        store = self._context.store
        end_listening = store.listen(self._stop.announce) if isinstance(store, Announcing) and not until_idle else None
        previous = self._listen()
        ended: list[threading.Event] = []
        if self._health is not None:
            self._health.start()
        try:
            for number in range(self._concurrency):
                event = threading.Event()
                name = f"holdfast-worker-{number}"
                threading.Thread(target=self._work_and_report, args=(until_idle, event), name=name).start()
                ended.append(event)
            _await(ended)
        except BaseException:
            # Interrupted: drain, or the threads would continue with nothing left to stop them.
            self._stop.set()
            _await(ended)
            raise
        finally:
            if end_listening is not None:
                end_listening()
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

    def _work_and_report(self, until_idle: bool, ended: threading.Event) -> None:
        try:
            self._work(until_idle)
        finally:
            self._activity.end()
            ended.set()

    def _work(self, until_idle: bool) -> None:
        while not self._stop.is_set():
            self._activity.look()
            try:
                found = self._one()
            except BaseException as failure:  # noqa: BLE001 - raised again by run(), in the caller's thread
                # If waiting does not help, the worker ends: a loop that never works would look healthy.
                if not isinstance(failure, StoreError) or isinstance(failure, Damaged | OutcomeUnknown | Replaced):
                    self._failure = failure
                    self._stop.set()
                    return
                # Locked or restarting: recovery depends on this loop, so it continues.
                self._activity.looked(is_well=False)
                self._stop.wait(self._queue.pause())
                continue
            self._activity.looked(is_well=True)
            if found:
                continue
            if until_idle:
                return
            self._stop.wait(self._queue.pause())

    def _one(self) -> bool:
        """Claim and run the first run that can be claimed; whether there was one."""
        for name, row in self._queue:
            self._activity.look()
            if row.attempt >= self._attempts and row.status != "waiting":  # waiting is not a failure
                self._mark_dead(name, row)
                continue
            if self._handle(name, row):
                return True
            self._queue.lost_race |= self._queue.is_open(row)
        self._queue.lost_race = False
        return False

    def _handle(self, name: str, row: RunRow) -> bool:
        """Claim a run and call its handler. False if another worker was faster, or the handler is at its limit."""
        handler = self._handlers.of(row)
        if handler is None:
            return False
        options = self._handlers.options(handler)
        request = options.request(self._context, name, self._terms, self._tools, row, supervisor=self)
        claimed = False
        loop = threading.get_ident()

        @contextmanager
        def entered() -> Generator[None]:
            nonlocal claimed
            claimed = True
            self._activity.wrote(is_well=True)
            with self._activity.running(loop, request.is_failing):
                yield

        try:
            if self._server is not None and is_async(handler):
                self._server.serve(request, handler, entered)
            else:
                serve(request, handler, entered)
        except Replaced:
            raise  # the store's file was replaced
        except Exception as error:  # noqa: BLE001 - the run's record has the reason; other runs must not wait
            if isinstance(error, LimitReached) and not claimed:
                self._queue.block(row, error)
                return False
            if any(isinstance(each, StoreError) and not isinstance(each, Damaged) for each in causes(error)):
                self._activity.wrote(is_well=False)
        else:
            claimed = True
            self._activity.wrote(is_well=True)
        if claimed:
            self._queue.ended(row)
        return claimed

    def is_stopping(self) -> bool:
        """See `Supervisor`."""
        return self._stop.is_set()

    def after_failure(self, row: RunRow) -> RunRow:
        """See `Supervisor`: try again later, or give up."""
        if row.attempt >= self._attempts:
            return replace(row, status="dead")
        seconds = _BACKOFF_SECONDS[min(row.attempt, len(_BACKOFF_SECONDS)) - 1]
        until = deadline_in(seconds, self._context.store.clock())
        return replace(row, status="queued", clock=until.clock, wake_at=until.at, wake_wall=until.wall)

    def _mark_dead(self, name: str, row: RunRow) -> None:
        times = "once" if row.attempt == 1 else f"{row.attempt} times"
        reason = row.reason or f"its process died {times} without reaching a checkpoint"
        store = self._context.store
        dead = ended_from_outside(row, "dead", reason)
        thread = thread_named(store, name)
        if thread is not None:
            dead = replace(dead, doubts=doubts_of(store, row, thread))
        with suppress(Conflict):  # another worker has it
            store.claim(row, dead)


def _await(ended: list[threading.Event]) -> None:
    """Wait until all have ended. With events, because an interrupted `join` counts its thread as ended."""
    for event in ended:
        while not event.wait(0.2):  # so that a signal reaches the main thread
            pass
