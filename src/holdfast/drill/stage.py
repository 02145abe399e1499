"""The stage on which an agent acts: each call of a run is recorded in the world log, and can be disturbed.

It is the interceptor of the handle. So every call of every run is recorded, including those of children.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.codec.typed import StateType
from holdfast.drill.faults import Injector, RateLimited
from holdfast.drill.points import Countdown
from holdfast.drill.world import Called, EndedCall, StartedCall, WorldLog, stored
from holdfast.errors import InvalidArgument, ToolNotDone
from holdfast.runs.drivers import is_async
from holdfast.runs.identity import Given, name_of
from holdfast.runs.record import error_of, text_of
from holdfast.runs.tools import Tool, takes_key, tool_of

Signature = tuple[int, int, str, str, str]
_TIMEOUT_SECONDS = 0.05  # of a call that acts after it
_LATE_SECONDS = 0.3
_PATIENCE_SECONDS = 10.0


class Unplayable(ToolNotDone):
    """The recorded run has no result for a call. The call was not made, so it leaves no run in doubt."""


class Book:
    """The results of the calls of a recorded run, to be played back."""

    def __init__(self, calls: Sequence[Called]) -> None:
        self._ended: dict[Signature, list[EndedCall]] = {}
        self._given: Counter[Signature] = Counter()
        for called in calls:
            if called.ended is not None:
                self._ended.setdefault(_signature(called.started), []).append(called.ended)

    def give(self, started: StartedCall) -> Any:
        """The result of a call. Unplayable if it was never made, or if its result could not be stored."""
        signature = _signature(started)
        known = self._ended.get(signature)
        if known is None:
            raise Unplayable(
                f"{started.name} cannot be played back: the recorded run did not call it with these arguments in step "
                f"{started.step}; drill this agent without recorded=True"
            )
        ended = known[min(self._given[signature], len(known) - 1)]
        self._given[signature] += 1
        if ended.error is not None:
            raise error_of(ended.error)
        if ended.result is None:
            raise Unplayable(
                f"the result of {started.name} cannot be played back; drill this agent without recorded=True"
            )
        return msgpack.decode(ended.result)


class Stage:
    """An `Interceptor`: decides which function is called for a call, and records it."""

    def __init__(
        self,
        log: WorldLog,
        countdown: Countdown,
        fakes: Mapping[str, Callable[..., Any]],
        *,
        live: bool,
        book: Book | None,
        slow: int = 0,
        faults: Injector | None = None,
    ) -> None:
        """With a `book`, no function is called: its results are returned.

        `slow` is the number of the call with a timeout that acts after it; 0 for none. `faults` injects a fault.
        """
        self._log = log
        self._countdown = countdown
        self._fakes = fakes
        self._live = live
        self._book = book
        self._slow = slow
        self._faults = faults or Injector()
        self._numbers = itertools.count(1)
        self._slow_calls: list[threading.Event] = []
        self._timed: dict[tuple[int, int, str], str] = {}
        self.refused: InvalidArgument | None = None

    def tool(self, tool: Tool, *, thread: int, step: int, key: str) -> Tool:
        """The tool with the function to call here. InvalidArgument if that would be the agent's own function."""
        fake = self._fakes.get(tool.name)
        if fake is None and not self._live and self._book is None:
            self.refused = InvalidArgument(
                f"{tool.name} was not called: it is the agent's own tool, and a drill calls tools repeatedly; pass a "
                f"function that replaces it (fakes=), or allow it with live=True"
            )
            raise self.refused
        function = tool.function if fake is None else fake
        started = StartedCall(
            call=0,
            kind=tool.effect,
            name=tool.name,
            arguments="",
            thread=thread,
            step=step,
            entry=key,
            may_give_up=tool.in_doubt == "give_up",
        )
        nothing_done: tuple[type[BaseException], ...] = (ToolNotDone, *tool.not_done)
        slow = self._is_slow(tool, function, started)
        watched = self._watched(
            _late(function) if slow else function, started, tool.function, nothing_done, tool.result
        )
        changed: dict[str, Any] = {"function": watched}
        if slow:
            changed = {"function": self._noted(watched), "timeout": _TIMEOUT_SECONDS}
        if tool.probe is not None:
            changed["probe"] = self._watched(
                self._probe(tool, fake, started), replace(started, kind="probe"), tool.probe
            )
        return replace(tool, **changed)

    def _is_slow(self, tool: Tool, function: Callable[..., Any], started: StartedCall) -> bool:
        """Whether a call is the one that acts after its timeout. An async function is cancelled, so it cannot."""
        if tool.timeout is None or tool.effect == "read" or is_async(function):
            return False
        place = (started.thread, started.step, started.entry)
        self._timed.setdefault(place, _shown(started))
        return list(self._timed).index(place) + 1 == self._slow

    def _noted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose end is waited for."""

        @functools.wraps(function)
        def noted(**given: Any) -> Any:
            ended = threading.Event()
            self._slow_calls.append(ended)
            try:
                return function(**given)
            finally:
                ended.set()

        return noted

    @property
    def timed(self) -> list[str]:
        """The calls that may act after their timeouts."""
        return list(self._timed.values())

    def await_slow(self) -> None:
        """Wait until a call that acts after its timeout has acted."""
        for ended in self._slow_calls:
            ended.wait(_PATIENCE_SECONDS)

    def model(self, function: Callable[..., Any], *, thread: int, step: int) -> Callable[..., Any]:
        """A model function, wrapped."""
        started = StartedCall(
            call=0, kind="model", name=name_of(function), arguments="", thread=thread, step=step, entry=""
        )
        return self._watched(function, started, function)

    def stream(self, function: Callable[..., Any], digest: bytes, *, thread: int, step: int) -> Callable[[], None]:
        """Record a stream. The call ends with the stream."""
        if self._book is not None:
            raise InvalidArgument("a stream cannot be played back; drill this agent without recorded=True")
        name, arguments = name_of(function), digest.hex()
        started = self._begin(
            StartedCall(call=0, kind="model", name=name, arguments=arguments, thread=thread, step=step, entry="")
        )
        return lambda: self._end(started, EndedCall(call=started.call))

    def _probe(self, tool: Tool, fake: Callable[..., Any] | None, started: StartedCall) -> Callable[..., Any]:
        """The probe for a tool in doubt: its own, that of its fake, or the world log."""
        if self._book is None:
            probe = tool.probe if fake is None else tool_of(fake).probe
            if probe is not None:
                return probe

        def look(**_: Any) -> Any:
            return self._log.truth(started.thread, started.step, started.entry)

        return look

    def _watched(
        self,
        function: Callable[..., Any],
        about: StartedCall,
        shown_as: Callable[..., Any],
        nothing_done: tuple[type[BaseException], ...] = (),
        declared: StateType | None = None,
    ) -> Callable[..., Any]:
        """The function, with its calls recorded. `nothing_done` are the errors that mean that it did nothing.

        `declared` is the type of its results, if they are not plain data.
        """
        has_key = takes_key(function)

        def failed(started: StartedCall, error: BaseException) -> None:
            is_not_done = isinstance(error, (*nothing_done, RateLimited))
            self._end(started, EndedCall(call=started.call, error=text_of(error), not_done=is_not_done))

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[StartedCall, dict[str, Any]]:
            if about.kind == "model":
                return self._begin(replace(about, arguments=Given(function, args, kwargs).digest.hex())), kwargs
            given = {name: value for name, value in kwargs.items() if name != "idempotency_key"}
            arguments = hashlib.sha256(msgpack.encode(given)).hexdigest()
            started = self._begin(replace(about, arguments=arguments, key=kwargs.get("idempotency_key")))
            return started, kwargs if has_key else given

        def call(*args: Any, **kwargs: Any) -> Any:
            started, kwargs = begin(args, kwargs)
            is_faulty = self._faults.meets(started.kind, _shown(started))
            try:
                if is_faulty:
                    self._faults.before()
                result = self._perform(function, started, args, kwargs, declared)
            except BaseException as error:
                failed(started, error)
                raise
            if inspect.isawaitable(result):
                return awaited(result, started, is_faulty)
            return ended(result, started, is_faulty)

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await call(*args, **kwargs)

        async def awaited(result: Any, started: StartedCall, is_faulty: bool) -> Any:
            try:
                value = await result
            except BaseException as error:
                failed(started, error)
                raise
            return ended(value, started, is_faulty)

        def ended(value: Any, started: StartedCall, is_faulty: bool) -> Any:
            self._end(started, EndedCall(call=started.call, result=stored(value, declared)))
            return self._faults.after(value) if is_faulty else value

        made = call_async if is_async(function) and not self._is_played(about) else call
        # Signature and name are those of the agent's own function, because Holdfast checks them.
        return functools.wraps(shown_as)(made)

    def _is_played(self, about: StartedCall) -> bool:
        return self._book is not None and about.kind != "probe"

    def _perform(
        self,
        function: Callable[..., Any],
        started: StartedCall,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        declared: StateType | None,
    ) -> Any:
        if self._book is not None and self._is_played(started):
            try:
                plain = self._book.give(started)
                with suppress(InvalidArgument):  # the function returned plain data instead
                    return plain if declared is None else declared.from_plain(plain)
                return plain
            except Unplayable as unplayable:
                self.refused = InvalidArgument(str(unplayable))
                raise
        return function(*args, **kwargs)

    def _begin(self, started: StartedCall) -> StartedCall:
        started = replace(started, call=next(self._numbers))
        self._countdown.tick(f"before {_shown(started)}")
        self._log.write(started)
        return started

    def _end(self, started: StartedCall, ended: EndedCall) -> None:
        self._log.write(ended)
        self._countdown.tick(f"after {_shown(started)}")


def _late(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, acting after the timeout of its call."""

    @functools.wraps(function)
    def late(*args: Any, **kwargs: Any) -> Any:
        time.sleep(_LATE_SECONDS)
        return function(*args, **kwargs)

    return late


def _shown(started: StartedCall) -> str:
    match started.kind:
        case "model":
            what = f"the model call {started.name}"
        case "probe":
            what = f"the probe of {started.name}"
        case _:
            what = f"the call of {started.name}"
    return f"{what}, step {started.step}"


def _signature(started: StartedCall) -> Signature:
    return started.thread, started.step, started.kind, started.name, started.arguments
