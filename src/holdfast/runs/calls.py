"""Model calls, streams and the keys of calls."""

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
from holdfast.observer import Observed
from holdfast.redaction import AS_IS, Redaction
from holdfast.runs.drivers import Call, Invocation, is_async
from holdfast.runs.guards.watch import Watch
from holdfast.runs.journal import RESULT_REDACTED, Journal, Recorder
from holdfast.runs.lease import Lease
from holdfast.runs.past import Past
from holdfast.runs.tool_calls import Acting, Parked, asking
from holdfast.runs.tools import Tool, Tools, checked_arguments
from holdfast.runs.waits import SLEEP, WAIT, Waits, checked_name, checked_seconds
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectRow

_POLL_SECONDS: Final = 0.05

BESIDE: Final = (
    "calls that are made beside each other in one step need keys: after a crash nobody could tell which was which; "
    "pass key="
)


class _Made(msgspec.Struct, frozen=True):
    """A call that is under way."""

    has_key: bool
    thread: threading.Thread


class Keys:
    """The keys of the step that is open, and the calls that are under way in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._ordinals: dict[str, int] = {}
        self._caller: int | None = None
        self._under_way: dict[str, _Made] = {}
        self._closed: str | None = None
        self.are_needed = False

    def open_step(self) -> None:
        with self._lock:
            self._ordinals = {}
            self._caller = None
            self._closed = None

    def close_step(self) -> None:
        """No call can be made from here on, until a step is opened or this one is reopened.

        InvalidArgument if calls are under way: a checkpoint would hold them without their results.
        """
        with self._lock:
            self._require_open()
            self._require_none_under_way("a step cannot be closed")
            self._closed = "the step is being closed; wait until that is done before you go on in the next"

    def reopen_step(self) -> None:
        """The step could not be closed."""
        with self._lock:
            self._closed = None

    def require_none_under_way(self, what: str) -> None:
        """InvalidArgument if calls are under way."""
        with self._lock:
            self._require_none_under_way(what)

    def end(self) -> None:
        """The block is being left: no call is made any more, and those that other threads are in come to their end."""
        with self._lock:
            self._closed = "the block of this run is being left: no more calls can be made in it"
            while self._is_in_another_thread():
                self._ended.wait(_POLL_SECONDS)

    def _is_in_another_thread(self) -> bool:
        # What this thread began, or one that has ended, nobody is in any more.
        here = threading.current_thread()
        return any(made.thread is not here and made.thread.is_alive() for made in self._under_way.values())

    @contextmanager
    def making(self, name: str, key: str | None, caller: int | None, *, can_be_left: bool = False) -> Generator[str]:
        """A call's key, with its name in it. Refuses calls beside each other that a replay could not tell apart.

        `caller` is the thread that makes the call, or None where calls without keys are told by overlapping only. A
        call that `can_be_left` half-way does not count as under way: nobody says when that happened.
        """
        if key is not None and (type(key) is not str or not key):
            raise InvalidArgument("a call's key is a text that is not empty")
        with self._lock:
            self._require_open()
            full = self._ordinal(name, caller) if key is None else f"{name}/{key}"
            ordinals = self._ordinals
            if full in self._under_way:
                raise InvalidArgument(f"two calls of {name!r} are under way with the same key; give each its own")
            if not can_be_left:
                self._under_way[full] = _Made(key is not None, threading.current_thread())
        try:
            yield full
        except GeneratorExit:
            # Left half-way by its caller, who goes on: what comes next is another call.
            raise
        except BaseException:
            if key is None:
                # A call that failed and is made again is the same call, or a replay would count them otherwise. Of its
                # own step: one that is left open may fail in the next.
                with self._lock:
                    ordinals[name] -= 1
            raise
        finally:
            if not can_be_left:
                with self._lock:
                    self._under_way.pop(full, None)
                    self._ended.notify_all()

    def _ordinal(self, name: str, caller: int | None) -> str:
        if self.are_needed:
            raise InvalidArgument("calls in on_resume need keys, or they would be taken for the block's; pass key=")
        is_another = None not in (self._caller, caller) and self._caller != caller
        if is_another or any(not made.has_key for made in self._under_way.values()):
            raise InvalidArgument(BESIDE)
        self._caller = self._caller if caller is None else caller
        ordinal = self._ordinals[name] = self._ordinals.get(name, 0) + 1
        return f"{name}#{ordinal}"

    def _require_open(self) -> None:
        if self._closed is not None:
            raise InvalidArgument(self._closed)

    def _require_none_under_way(self, what: str) -> None:
        if self._under_way:
            raise InvalidArgument(f"{what} while calls are under way in it; wait for their results")


OnChange = Literal["recorded", "rerun"]


class Calls:
    """Makes the calls of one run and keeps the journal of them."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        lease: Lease,
        tools: Tools,
        past: Past,
        identity: bytes,
        watch: Watch,
        redaction: Redaction,
        *,
        can_await: bool,
    ) -> None:
        """`identity` tells this run from every other, for idempotency keys."""
        self.journal = journal
        self._lease = lease
        self._can_await = can_await
        self._tools = tools
        self.keys = Keys()
        self.watch = watch
        self.recorder = Recorder(journal, lease, watch, redaction)
        self._acting = Acting(journal, self.recorder, lease, past, identity, watch)
        self._waits = Waits(store, journal, self.recorder, lease)
        self.past = past
        self.step = 0
        self.events: set[Literal["model", "tool"]] = set()
        self._parks = threading.Lock()
        self.parked: Parked | None = None

    @property
    def changed(self) -> list[EffectRow]:
        """The recorded calls that were asked for with other arguments than they were made with."""
        return self._acting.changed

    def require_none_in_doubt(self) -> None:
        """Park the run if it may have acted and nobody knows: a checkpoint would close over that.

        The program caught what was raised, or came another way than the process that died.
        """
        for row in self.journal.doubtful():
            tool = self._tools.get(row.name)
            if tool is None or tool.in_doubt in ("ask", "probe"):
                self.parked = asking(row)
                raise self.parked

    def open_step(self, step: int) -> None:
        self.step = step
        self.keys.open_step()
        self.recorder.forget()
        self.events.clear()

    def reopen(self, error: BaseException) -> None:
        """See `Recorder.reopen`."""
        self.recorder.reopen(error)

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
    ) -> Call:
        """The recorded reply, or a new one, recorded before anybody sees it."""
        if not callable(function):
            raise InvalidArgument("run.model takes a function and its arguments")
        if on_change not in ("recorded", "rerun"):
            raise InvalidArgument('on_change must be "recorded" or "rerun"')
        self._refuse_async(function)
        conversion = None if type is None else StateType(type)
        self.events.add("model")
        with self.keys.making("model", key, caller) as full_key:
            row = self._begin(full_key, function, (list(args), kwargs), on_change)
            if row.result is not None or row.status == "unstored":
                return self.recorder.recorded(row, conversion)
            self.watch.enter(row)
            self._lease.check()
            try:
                reply = yield Invocation(function, args, kwargs)
            except Exception as error:
                self.recorder.fail(row, error)
                raise
            return self.recorder.record(row, reply, conversion)

    def tool(self, named: str | Callable[..., Any], args: object, key: str | None, *, caller: int | None) -> Call:
        """The recorded result, or that of a call made now: intent before, result after."""
        return (yield from self.making(self._tools.find(named), args, key, caller=caller))

    def making(self, tool: Tool, args: object, key: str | None, *, caller: int | None = None) -> Call:
        """As `tool`, of one that was found."""
        given = checked_arguments(args)
        msgpack.check(given)
        self.events.add("tool")
        self._refuse_async(tool.function, tool.probe)
        with self.keys.making(tool.name, key, caller) as full_key, self._parking():
            return (yield from self._acting.call(tool, given, self.step, full_key))

    def wait(self, name: str, payload: Any, timeout: float | None) -> Any:
        """The answer to a question; parks the run until there is one."""
        checked_name(name)
        seconds = None if timeout is None else checked_seconds("timeout", timeout)
        self.keys.require_none_under_way("a run cannot wait")
        with self.keys.making(WAIT, name, None) as key, self._parking():
            return self._waits.wait(name, payload, seconds, self.step, key)

    def sleep(self, seconds: float) -> None:
        """Parks the run until so much time has passed."""
        seconds = checked_seconds("sleep", seconds)
        self.keys.require_none_under_way("a run cannot sleep")
        with self.keys.making(SLEEP, None, None) as key, self._parking():
            self._waits.sleep(seconds, self.step, key)

    @contextmanager
    def _parking(self) -> Generator[None]:
        try:
            yield
        except Parked as parked:
            self.park(parked)
            raise

    def park(self, parked: Parked) -> Parked:
        """Let the run wait, for what it asks itself, and no longer than until the first of its children wakes."""
        with self._parks:
            known = self.parked
            if known is not None:
                chosen = known if parked.row is None else parked
                wakes = [each for each in (known, parked) if each.wake_at]
                first = min(wakes, key=lambda each: each.wake_at, default=chosen)
                parked = Parked(chosen.row, chosen.reason, first.wake_at, first.wake_wall, chosen.last)
            self.parked = parked
            return parked

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
        """The chunks of a model call: those recorded, or what takes new ones and records them at the end.

        Left before the end, nothing is recorded: it was in flight.
        """
        if not callable(function):
            raise InvalidArgument("run.stream takes a function and its arguments")
        self.events.add("model")
        with self.keys.making("run.stream", key, caller, can_be_left=True) as full_key:
            row = self._begin(full_key, function, (list(args), kwargs), "recorded")
            if row.result is not None or row.status == "unstored":
                yield Stream(self.recorder, row, self.recorder.recorded(row))
                return
            self.watch.enter(row)
            self._lease.check()
            try:
                yield Stream(self.recorder, row, None)
            except Exception as error:
                self.recorder.fail(row, error)
                raise

    def _refuse_async(self, *functions: Callable[..., Any] | None) -> None:
        if not self._can_await and any(function is not None and is_async(function) for function in functions):
            raise InvalidArgument(
                "a sync run cannot await what it calls; use `async with hf.aio.run(…)`, or a function that is not async"
            )

    def _begin(self, key: str, function: Callable[..., Any], given: Any, on_change: OnChange) -> EffectRow:
        """The recorded entry of a model call, or a new one to record its reply in."""
        arguments = _digest(given, self.recorder.redaction)
        known = self.journal.find(self.step, key)
        if known is not None:
            self.recorder.raise_again(known)
            if known.status in ("not_done", "failed"):
                known = None
        if known is not None and known.arguments != arguments:
            self.changed.append(known)
            if on_change == "rerun":
                if self.journal.has_begun(self.step):
                    raise Conflict(
                        "the arguments of a model call changed after its step had begun to act on the first reply; "
                        'take the recorded reply (on_change="recorded")'
                    )
                known = None
        if known is not None:
            return known
        return self.journal.new(self.step, key, _name(function), "model", "done", arguments)


class Stream:
    """The chunks of one model call, as they come."""

    def __init__(self, recorder: Recorder, row: EffectRow, recorded: list[Any] | None) -> None:
        """`recorded` are the chunks of a call that was made before; there is nothing to take then."""
        self.recorder = recorder
        self._row = row
        self._taken: list[bytes] = []
        self._is_redacted = False
        self.recorded = recorded

    def take(self, chunk: Any) -> Any:
        """A chunk as a replay will give it. Unsupported, with its path, for what cannot be recorded."""
        try:
            msgpack.check(chunk)
            recorded = self.recorder.redaction.value(chunk)
            encoded = msgpack.encode(recorded)
        except Unsupported as refused:
            raise Unsupported(
                refused.path, f"a chunk that {self._row.name} gave cannot be recorded: {refused.problem}"
            ) from refused
        self._taken.append(encoded)
        self._is_redacted = self._is_redacted or recorded is not chunk
        return msgpack.decode(encoded)

    def end(self) -> None:
        """There are no more chunks: record them."""
        redacted = RESULT_REDACTED if self._is_redacted else 0
        chunks = [msgpack.decode(encoded) for encoded in self._taken]
        self.recorder.record_encoded(replace(self._row, redacted=redacted), msgpack.encode(chunks))


@contextmanager
def watched_stream(streaming: AbstractContextManager[Stream], observed: Observed | None) -> Generator[Stream]:
    """The chunks of a model call, with an observer hearing of it."""
    if observed is None:
        with streaming as stream:
            yield stream
        return
    with observed as observation, streaming as stream:
        observation.tell(replayed=stream.recorded is not None)
        yield stream


def this_caller() -> int:
    """Who makes a call of a sync run."""
    return threading.get_ident()


def _digest(arguments: Any, redaction: Redaction = AS_IS) -> bytes:
    """A digest of arguments as they are recorded; of none if they hold something without bytes, such as a client."""
    try:
        return hashlib.sha256(msgpack.encode(redaction.value(arguments))).digest()
    except Unsupported:
        return b""


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
