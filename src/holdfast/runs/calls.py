"""Model calls, streams and tool calls of a run, and the keys by which a replay finds them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.codec.typed import StateType
from holdfast.errors import Conflict, InvalidArgument, Unsupported
from holdfast.interrupts import shield
from holdfast.observer import Observed
from holdfast.redaction import AS_IS, Redaction
from holdfast.runs.context import RunContext, Suspended
from holdfast.runs.drivers import Call, Invocation, is_async, pause
from holdfast.runs.journal import RESULT_REDACTED, Journal
from holdfast.runs.tool_calls import ToolCall, suspended_by
from holdfast.runs.tools import Tool, checked_arguments
from holdfast.runs.waits import SLEEP, WAIT, checked_name, checked_seconds, sleep, wait
from holdfast.stores.contract_runs import Entry

_POLL_SECONDS: Final = 0.05

NEED_KEYS: Final = (
    "calls made at the same time in one step need keys, because after a crash a replay could not tell them apart; "
    "pass key="
)

OnChange = Literal["recorded", "rerun"]
this_caller = threading.get_ident  # the caller of a sync run is the current thread


class _UnderWay(msgspec.Struct, frozen=True):
    """A call that is under way."""

    has_key: bool
    thread: threading.Thread


class CallKeys:
    """The keys of the open step, and its calls that are under way."""

    def __init__(self) -> None:
        self.are_needed = False  # whether calls without keys are refused
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._ordinals: dict[str, int] = {}
        self._caller: int | None = None
        self._under_way: dict[str, _UnderWay] = {}
        self._closed: str | None = None

    def open_step(self) -> None:
        with self._lock:
            self._ordinals = {}
            self._caller = None
            self._closed = None

    def close_step(self) -> None:
        """Refuse calls until the next step is opened or this one is reopened.

        InvalidArgument if calls are under way: a checkpoint would close them without their results.
        """
        with self._lock:
            if self._closed is not None:
                raise InvalidArgument(self._closed)
            self._require_none_under_way("a step cannot be closed")
            self._closed = "the step is being closed; make the next call when that is done"

    def reopen_step(self) -> None:
        """Accept calls again: the step could not be closed."""
        with self._lock:
            self._closed = None

    def require_none_under_way(self, what: str) -> None:
        """InvalidArgument if calls are under way."""
        with self._lock:
            self._require_none_under_way(what)

    def end(self) -> None:
        """Refuse further calls because the block ends, and wait for those of other threads."""
        with self._lock:
            self._closed = "the block of this run is ending: no more calls can be made in it"
            while self._is_in_another_thread():
                with shield.lifted():
                    self._ended.wait(_POLL_SECONDS)

    def _is_in_another_thread(self) -> bool:
        here = threading.current_thread()
        return any(call.thread is not here and call.thread.is_alive() for call in self._under_way.values())

    def start(self, name: str, key: str | None, caller: int | None, *, can_be_left: bool) -> tuple[str, dict[str, int]]:
        """Start a call; its full key, and the ordinals of its step. Refuses calls that a replay could not tell apart.

        `caller` is the thread that makes the call; None in async runs. A call that `can_be_left` half-way does not
        count as under way: its end is not reported.
        """
        if key is not None and (type(key) is not str or not key):
            raise InvalidArgument("the key of a call must be a non-empty string")
        with self._lock:
            if self._closed is not None:
                raise InvalidArgument(self._closed)
            full = self._ordinal(name, caller) if key is None else f"{name}/{key}"
            if full in self._under_way:
                raise InvalidArgument(f"two calls of {name!r} are under way with the same key; give each its own key")
            if not can_be_left:
                self._under_way[full] = _UnderWay(key is not None, threading.current_thread())
            return full, self._ordinals

    def is_calling(self) -> bool:
        """Whether a call of the current thread is under way."""
        with self._lock:
            return any(call.thread is threading.current_thread() for call in self._under_way.values())

    def retract(self, name: str, ordinals: dict[str, int]) -> None:
        """Count the last call without a key of a name as not made."""
        with self._lock:
            ordinals[name] -= 1

    def end_call(self, full: str) -> None:
        """Note that a call is over."""
        with self._lock:
            self._under_way.pop(full, None)
            self._ended.notify_all()

    def _ordinal(self, name: str, caller: int | None) -> str:
        if self.are_needed:
            raise InvalidArgument("calls in on_resume need keys, to be distinct from those of the block; pass key=")
        is_another = None not in (self._caller, caller) and self._caller != caller
        if is_another or any(not call.has_key for call in self._under_way.values()):
            raise InvalidArgument(NEED_KEYS)
        self._caller = self._caller if caller is None else caller
        ordinal = self._ordinals[name] = self._ordinals.get(name, 0) + 1
        return f"{name}#{ordinal}"

    def _require_none_under_way(self, what: str) -> None:
        if self._under_way:
            raise InvalidArgument(f"{what} while calls are under way in it; wait for their results")


class Calls:
    """Makes the calls of one run."""

    def __init__(self, context: RunContext) -> None:
        self.context: Final = context
        self.keys: Final = CallKeys()

    def open_step(self, step: int) -> None:
        self.context.step = step
        self.context.events.clear()
        self.context.journal.forget_errors()
        self.keys.open_step()

    def require_none_in_doubt(self) -> None:
        """Suspend the run if an irreversible call has an unknown outcome: a checkpoint would close it.

        The program caught the error, or took another way than the process that died.
        """
        for row in self.context.journal.doubtful():
            tool = self.context.tools.get(row.name)
            if tool is None or tool.in_doubt in ("ask", "probe"):
                self.context.suspended = suspended_by(row)
                raise self.context.suspended

    @contextmanager
    def making(self, name: str, key: str | None, caller: int | None, *, can_be_left: bool = False) -> Generator[str]:
        """The full key of a call, which is under way inside this block."""
        full, ordinals = self.keys.start(name, key, caller, can_be_left=can_be_left)
        try:
            yield full
        except GeneratorExit:
            raise  # its caller left it half-way and continues: the next call is another one
        except BaseException as error:
            if key is None:
                # A failed call that is made again is the same call, as in a replay. Counted in its own step: a call
                # that was left open may fail in the next one.
                self.keys.retract(name, ordinals)
            if isinstance(error, Suspended):
                self.context.suspend(error)
            raise
        finally:
            if not can_be_left:
                self.keys.end_call(full)

    # -- models ---------------------------------------------------------------------------------------------------

    def model(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        key: str | None,
        type: Any,
        on_change: OnChange,
        caller: int | None,
        is_nested: bool = False,
    ) -> Call:
        """The recorded reply, or a new one, recorded before it is returned.

        `is_nested` is whether an async call is made inside another one, so it must not wait for that one.
        """
        context, journal = self.context, self.context.journal
        context.require_active()
        is_nested = is_nested or (not context.can_await and self.keys.is_calling())
        if not callable(function):
            raise InvalidArgument("run.model takes a function and its arguments")
        if on_change not in ("recorded", "rerun"):
            raise InvalidArgument('on_change must be "recorded" or "rerun"')
        self._refuse_async(function)
        conversion = None if type is None else StateType(type)
        context.events.add("model")
        with self.making("model", key, caller) as full_key:
            entry = self._entry(full_key, function, (list(args), kwargs), on_change)
            if entry.result is not None or entry.status == "unstored":
                return journal.recorded(entry, conversion)
            while not context.watch.enter(entry, can_wait=not is_nested):
                yield Invocation(pause, (_POLL_SECONDS,), is_probe=True)
                context.require_active()
            try:
                context.lease.check()
                try:
                    reply = yield Invocation(function, args, kwargs)
                except Exception as error:
                    journal.fail(entry, error)
                    raise
                return journal.record(entry, reply, conversion)
            finally:
                context.watch.leave()

    @contextmanager
    def streaming(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        key: str | None,
        caller: int | None,
    ) -> Generator[Stream]:
        """The chunks of a model call: the recorded ones, or new ones, which are recorded at the end.

        If the block is left before the end, nothing is recorded.
        """
        if not callable(function):
            raise InvalidArgument("run.stream takes a function and its arguments")
        context, journal = self.context, self.context.journal
        context.events.add("model")
        with self.making("run.stream", key, caller, can_be_left=True) as full_key:
            entry = self._entry(full_key, function, (list(args), kwargs), "recorded")
            if entry.result is not None or entry.status == "unstored":
                yield Stream(journal, entry, journal.recorded(entry))
                return
            context.watch.enter(entry)
            try:
                context.lease.check()
                try:
                    yield Stream(journal, entry, None)
                except Exception as error:
                    journal.fail(entry, error)
                    raise
            finally:
                context.watch.leave()

    def _entry(self, key: str, function: Callable[..., Any], given: Any, on_change: OnChange) -> Entry:
        """The recorded entry of a model call, or a new one to record its reply in."""
        context, journal = self.context, self.context.journal
        arguments = digest_of(given, context.redaction)
        known = journal.find(context.step, key)
        if known is not None:
            journal.raise_again(known)
            if known.status in ("not_done", "failed"):
                known = None
        if known is not None and known.arguments != arguments:
            context.changed.append(known)
            if on_change == "rerun":
                if journal.has_acted(context.step):
                    raise Conflict(
                        "the arguments of a model call changed after its step acted on the first reply. Nothing was "
                        'called; use the recorded reply (on_change="recorded").'
                    )
                known = None
        return known or journal.new(context.step, key, name_of(function), "model", "done", arguments)

    # -- tools ----------------------------------------------------------------------------------------------------

    def tool(
        self, named: str | Callable[..., Any] | Tool, args: object, key: str | None, *, caller: int | None
    ) -> Call:
        """The recorded result of a tool, or that of a call made now."""
        context = self.context
        context.require_active()
        tool = named if isinstance(named, Tool) else context.tools.find(named)
        given = checked_arguments(args)
        msgpack.check(given)
        context.events.add("tool")
        self._refuse_async(tool.function, tool.probe)
        with self.making(tool.name, key, caller) as full_key:
            return (yield from ToolCall(context, tool, given, context.step, full_key).make())

    def _refuse_async(self, *functions: Callable[..., Any] | None) -> None:
        if self.context.can_await:
            return
        for function in functions:
            if function is not None and is_async(function):
                raise InvalidArgument(
                    "a sync run cannot await an async function; use `async with hf.aio.run(…)`, or a function that is "
                    "not async"
                )

    # -- waits ----------------------------------------------------------------------------------------------------

    def wait(self, name: str, payload: Any, timeout: float | None) -> Any:
        """The answer to a question. Suspends the run until there is one."""
        self.context.require_active()
        checked_name(name)
        seconds = None if timeout is None else checked_seconds("timeout", timeout)
        self.keys.require_none_under_way("a run cannot wait")
        with self.making(WAIT, name, None) as key:
            return wait(self.context, name, payload, seconds, key)

    def sleep(self, seconds: float) -> None:
        """Suspend the run until so many seconds have passed."""
        self.context.require_active()
        seconds = checked_seconds("sleep", seconds)
        self.keys.require_none_under_way("a run cannot sleep")
        with self.making(SLEEP, None, None) as key:
            sleep(self.context, seconds, key)


class Stream:
    """The chunks of one model call."""

    def __init__(self, journal: Journal, entry: Entry, recorded: list[Any] | None) -> None:
        """`recorded` are the chunks of a call that is in the journal; None if the call is to be made."""
        self.recorded: Final = recorded
        self._journal = journal
        self._entry = entry
        self._taken: list[bytes] = []
        self._is_redacted = False

    def take(self, chunk: Any) -> Any:
        """Add a chunk and return it as a replay will. Unsupported, with its path, if it cannot be recorded."""
        try:
            msgpack.check(chunk)
            recorded = self._journal.redaction.value(chunk)
            encoded = msgpack.encode(recorded)
        except Unsupported as refused:
            raise Unsupported(
                refused.path, f"a chunk of {self._entry.name} cannot be recorded: {refused.problem}"
            ) from refused
        self._taken.append(encoded)
        self._is_redacted = self._is_redacted or recorded is not chunk
        return msgpack.decode(encoded)

    def end(self) -> None:
        """Record the chunks at the end of the stream."""
        redacted = RESULT_REDACTED if self._is_redacted else 0
        chunks = [msgpack.decode(encoded) for encoded in self._taken]
        self._journal.record_encoded(replace(self._entry, redacted=redacted), msgpack.encode(chunks))


@contextmanager
def watched_stream(streaming: AbstractContextManager[Stream], observed: Observed | None) -> Generator[Stream]:
    """The chunks of a model call, reported to an observer if there is one."""
    if observed is None:
        with streaming as stream:
            yield stream
        return
    with observed as observation, streaming as stream:
        observation.tell(replayed=stream.recorded is not None)
        yield stream


def digest_of(arguments: Any, redaction: Redaction = AS_IS) -> bytes:
    """A digest of arguments as they are recorded; empty if they cannot be encoded, as with a client object."""
    try:
        return hashlib.sha256(msgpack.encode(redaction.value(arguments))).digest()
    except Unsupported:
        return b""


def name_of(function: Callable[..., Any]) -> str:
    """The name of a model function in the journal."""
    return getattr(function, "__qualname__", type(function).__name__)
