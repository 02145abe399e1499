"""The watch over one run: the point that every call passes.

Guards count its calls and refuse the one that is one too many, the observer follows them, and the interceptor replaces
their functions.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Halted, InvalidArgument
from holdfast.observer import CallKind, Interceptor, Observation, RunObservation
from holdfast.runs.guards.budget import Budget, Meter
from holdfast.runs.guards.loops import LoopGuard, Recent
from holdfast.runs.guards.usage import Spending
from holdfast.runs.record import CALLS
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads import scan

Guard: TypeAlias = LoopGuard | Budget


def checked_guards(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """The guards of a run: at most one of each kind."""
    if isinstance(guards, LoopGuard | Budget):
        raise InvalidArgument("guards must be a list or tuple, also for a single guard")
    try:
        checked = tuple(guards)
    except TypeError:
        raise InvalidArgument("guards must be a list or tuple of holdfast.LoopGuard and holdfast.Budget") from None
    for guard in checked:
        if not isinstance(guard, LoopGuard | Budget):
            raise InvalidArgument("guards must be holdfast.LoopGuard or holdfast.Budget")
    if len({type(guard) for guard in checked}) < len(checked):
        raise InvalidArgument("a run takes at most one LoopGuard and one Budget; put all limits into one Budget")
    return checked


class WatchedCall:
    """A call of a run. Its outer call is the model call whose function makes it, if there is one."""

    __slots__ = ("inner_calls", "is_in_flight", "is_made", "observation", "outer", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch: Final = watch
        self.outer: WatchedCall | None = None
        self.observation: Observation | None = None
        self.inner_calls = 0  # how many calls its function makes now
        self.is_in_flight = False
        self.is_made = False

    def note_called(self) -> None:
        """Note that the function is about to be called: the call is not answered from the journal."""
        if self.observation is not None and not self.is_made:
            self.observation.update(replayed=False)
        self.is_made = True


UNWATCHED: Final = nullcontext[None]()  # a call that no guard counts and no observer follows
_current: Final[ContextVar[WatchedCall | None]] = ContextVar("model call", default=None)


class Watch:
    """Counts the calls of one run. After a crash, all counts are read from the journal."""

    def __init__(
        self,
        guards: tuple[Guard, ...],
        store: Store,
        row: RunRow,
        observation: RunObservation | None = None,
        interceptor: Interceptor | None = None,
    ) -> None:
        self.interceptor: Final = interceptor
        self._observation = observation
        self.halted: str | None = None  # why a guard refused a call
        self._lock = threading.Lock()
        self._store = store
        self._thread = row.thread
        self._spending: Spending | None = None  # read from the journal with the first reply
        self._recent: Recent | None = None
        self.meter: Meter | None = None
        self._main_call: WatchedCall | None = None  # the innermost call of the thread that entered the block
        for guard in guards:
            if isinstance(guard, LoopGuard):
                self._recent = Recent(guard, row.branch)
            else:
                self.meter = Meter(guard, row.held)
        self.has_guards: Final = bool(guards)
        # Whether a guard or an observer has to know which calls are under way.
        self.is_watching: Final = observation is not None or self.meter is not None
        if guards:
            for entry in scan.entries(store, row.thread, row.closed):
                self._read(entry)

    @contextmanager
    def calling(
        self, kind: CallKind, name: str | None, *, step: int, is_main: bool | None, is_stream: bool
    ) -> Generator[WatchedCall]:
        """A call, for `enter`, which is under way inside this block.

        `is_main` is whether the caller is the Python thread that entered the run's block; None in an async run. The
        observer learns whether the call was made or replayed. It learns neither if the call raises before its function
        is called: then it was refused, it waits, or it raises a recorded error.
        """
        call = WatchedCall(self)
        # No call waits for a stream, because its caller may make other calls before it ends.
        is_counted = self.meter is not None and kind == "model" and not is_stream
        with self._counting(call, is_main=is_main) if is_counted else UNWATCHED:
            if self._observation is None:
                yield call
                return
            with self._observation.calling(kind, name, step=step, is_stream=is_stream) as observation:
                call.observation = observation
                try:
                    yield call
                except GeneratorExit:  # the caller left a stream
                    if not call.is_made:
                        observation.update(replayed=True)
                    raise
                if not call.is_made:
                    observation.update(replayed=True)

    @contextmanager
    def _counting(self, call: WatchedCall, *, is_main: bool | None) -> Generator[None]:
        """Count a model call. For model calls that are made inside this block, it is the outer call.

        Python threads of a pool do not inherit the context. For their calls, the call that the main thread is in counts
        as the outer call. If that is wrong, the only effect is that they do not wait for that call.
        """
        outer = _current.get()
        while outer is not None and outer.watch is not self:
            outer = outer.outer
        if outer is None and is_main is False:
            outer = self._main_call
        call.outer = outer
        if is_main:
            self._main_call = call
        token = _current.set(call)
        with self._lock:
            self._change(outer, 1)
        try:
            yield
        finally:
            self.leave(call)
            with self._lock:
                self._change(outer, -1)
            _current.reset(token)
            if is_main:
                self._main_call = outer

    def _change(self, call: WatchedCall | None, number: int) -> None:
        """Note that a call is made inside another one, or that it ended.

        The outer call is not in flight meanwhile. Else the inner call could wait for it, while it waits for the inner.
        """
        if call is None or self.meter is None:
            return
        before = call.inner_calls
        call.inner_calls += number
        if call.is_in_flight:
            self.meter.in_flight += (not call.inner_calls) - (not before)

    def enter(self, entry: Entry, call: WatchedCall | None = None) -> bool:
        """Let a call be made. Halted if a guard refuses it: then nothing is called or written.

        `call` is from `calling`; None for tools and streams. False if it has to wait for calls in flight, which may use
        up the budget. Needed only if `has_guards`.
        """
        with self._lock:
            if call is not None and self.meter is not None and self.meter.may_be_used_up():
                return False
            reason = None if self.meter is None else self.meter.exceeded(entry)
            if reason is None and self._recent is not None:
                reason = self._recent.repeated()
            if reason is not None:
                self.halted = reason
                raise Halted(f"{reason}; the run is halted and its work is kept. hf.run with other guards resumes it.")
            self._note(entry)
            if call is not None and self.meter is not None:
                call.is_in_flight = True
                self.meter.in_flight += 1
            return True

    def leave(self, call: WatchedCall | None) -> None:
        """Note that a call which `enter` let through has ended."""
        if call is None or self.meter is None:
            return
        with self._lock:
            if call.is_in_flight:
                call.is_in_flight = False
                self.meter.in_flight -= not call.inner_calls

    def replied(self, entry: Entry, reply: Any) -> Entry:
        """Count a model's reply; its entry with its usage and the sum of the thread."""
        with self._lock:
            if self._recent is not None or self.meter is not None:
                # Decoded anew: the user's `usage` may change it.
                entry = self._counted(entry, reply if entry.result is None else msgpack.decode(entry.result))
            spending = self._spending = self._spending or Spending(self._store, self._thread)
        return spending.with_sum(entry, reply)

    def _note(self, entry: Entry) -> None:
        if self.meter is not None:
            self.meter.count_step(entry)
        if self._recent is not None:
            self._recent.note(entry)

    def _counted(self, entry: Entry, reply: Any) -> Entry:
        if self.meter is not None:
            entry = replace(entry, usage=self.meter.count(entry, reply))
        if self._recent is not None and entry.status != "late":
            self._recent.replied(entry, reply)
        return entry

    def _read(self, entry: Entry) -> None:
        """Count an entry of an earlier claim."""
        if self.meter is not None:
            self.meter.held = max(self.meter.held, entry.held)
        if entry.kind not in CALLS:
            return
        if entry.status != "late":
            self._note(entry)
        if entry.kind == "model" and entry.result is not None:
            self._counted(entry, msgpack.decode(entry.result))
