"""Model calls, streams and tool calls of a run, and the keys by which a replay finds them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.codec.typed import state_type
from holdfast.errors import Conflict, InvalidArgument, Unsupported
from holdfast.interrupts import shield
from holdfast.observer import Observed
from holdfast.runs.context import RunContext, Suspended
from holdfast.runs.drivers import Call, Invocation, is_async, pause
from holdfast.runs.identity import KEY, Given, Started, identity_in, name_of, unkeyed
from holdfast.runs.journal import RESULT_REDACTED, Journal
from holdfast.runs.open_entries import place_of
from holdfast.runs.results import chunk_types, encoded_result, require_storable, restored_chunks
from holdfast.runs.tool_calls import ToolCall, suspended_by
from holdfast.runs.tools import Tool, checked_arguments
from holdfast.runs.waits import SLEEP, WAIT, checked_name, checked_seconds, sleep, wait
from holdfast.stores.contract_runs import Entry

_POLL_SECONDS: Final = 0.05
_OUTSIDE: Final = " outside"  # after the key of a call outside of steps, where calls are counted

OnChange = Literal["recorded", "rerun"]
HOME: Final = "home"  # the caller of a run's block: the thread or task that entered it


class _UnderWay(msgspec.Struct, frozen=True):
    """A call that is under way."""

    thread: threading.Thread


class CallKeys:
    """The keys of the open step, and its calls that are under way."""

    def __init__(self, outside: dict[str, int]) -> None:
        """`outside` gets `Entry.outside` of the calls outside of steps, by key."""
        self.are_needed = False  # whether calls without keys are refused
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._counts: dict[str, int] = {}  # calls without keys in the open step, by function and arguments
        self._callers: dict[str, object] = {}  # and who made them
        self._under_way: dict[str, _UnderWay] = {}
        self._closed: str | None = None
        self._depth = 1  # how many loops of steps the program is in; a run that has no program is in one
        self._loops = 0  # how many it has entered
        self._sections = 0  # how many steps it has closed
        self._outside = outside
        self._uses: dict[str, tuple[int, int]] = {}  # by key: sections and loops before the last call outside of steps
        self._models: dict[str, bool] = {}  # functions called without a key outside of steps: whether also after a loop

    # -- where the program is -------------------------------------------------------------------------------------

    @property
    def is_outside(self) -> bool:
        """Whether the program is outside of all loops of steps."""
        return not self._depth

    @property
    def is_before_loops(self) -> bool:
        """Whether the program has not entered a loop of steps yet."""
        return not self._depth and not self._loops

    @property
    def is_after_loops(self) -> bool:
        """Whether the program is outside of all loops of steps, and was in one."""
        return not self._depth and self._loops > 0

    def enter_loop(self, *, is_hook: bool = False) -> None:
        """Note that the program enters a loop of steps, or a hook, whose calls are part of the open step.

        InvalidArgument if a resume could take the reply to a model call of an earlier round for that of this one.
        """
        with self._lock:
            if not self._depth and not is_hook and self._loops:
                repeated = [name for name, is_after_loop in self._models.items() if is_after_loop]
                if repeated:
                    raise InvalidArgument(
                        f"{repeated[0]} is called without a key before the first loop of run.steps() and between two "
                        "loops; after a crash a resume could not tell these calls apart. Pass key= to each of them."
                    )
            self._depth += 1
            self._loops += not is_hook

    def leave_loop(self) -> None:
        """Note that the program left the loop or the hook."""
        with self._lock:
            self._depth -= 1

    def note_model(self, identity: str) -> None:
        """Note a model call without a key outside of steps."""
        with self._lock:
            if not self._loops:
                self._models.setdefault(identity, False)
            elif identity in self._models:
                self._models[identity] = True

    def _note_place(self, full: str, identity: str) -> Callable[[], None]:
        """Note whether a call is outside of steps, and how often its key was used there before. Returns the reverse."""
        if self._depth or (identity == SLEEP and self._loops):  # a sleep between loops may be that of another round
            self._outside.pop(full, None)
            return _nothing
        before, number = self._uses.get(full), self._outside.get(full, 0)
        if before is not None and before[1] != self._loops:
            raise InvalidArgument(
                f"{identity} was called outside of run.steps() before, with the same key or without a key and with the "
                "same arguments, and a loop has run since. After a crash a resume could not tell these calls apart; "
                "nothing was called. Pass another key= (or name), or make the call inside the loop."
            )
        self._uses[full] = (self._sections, self._loops)
        self._outside[full] = max(number, 1) if before is None or before[0] == self._sections else number + 1

        def retract() -> None:
            self._outside[full] = number
            self._uses.pop(full)
            if before is not None:
                self._uses[full] = before

        return retract

    # -- steps ----------------------------------------------------------------------------------------------------

    def open_step(self, *, is_same: bool = False) -> None:
        """Open the next step, or after a save that leaves it open, the same one: then its own calls still count."""
        with self._lock:
            inside = [at for at in self._counts if not at.endswith(_OUTSIDE)] if is_same else []
            self._counts = {at: self._counts[at] for at in inside}
            self._callers = {at: self._callers[at] for at in inside}
            self._closed = None
            self._sections += 1

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

    def require_none_under_way(self, what: str, besides: str) -> None:
        """InvalidArgument if calls are under way whose keys do not start with `besides`."""
        with self._lock:
            self._require_none_under_way(what, besides)

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

    def start(
        self, identity: str, key: str | None, digest: bytes, caller: object, *, can_be_left: bool
    ) -> tuple[Started, Callable[[], None]]:
        """Start a call. The returned function counts it as not made. Refuses calls that a replay could not tell apart.

        `caller` is the thread or task that makes the call, or HOME; None if the order of calls means nothing. A call
        that `can_be_left` half-way does not count as under way: its end is not reported.
        """
        if key is not None and (type(key) is not str or not key):
            raise InvalidArgument("the key of a call must be a non-empty string")
        with self._lock:
            if self._closed is not None:
                raise InvalidArgument(self._closed)
            is_alone = caller is HOME and not self._under_way
            uncount = _nothing
            full = f"{identity}{KEY}{key}"
            if key is None:
                full, uncount = self._counted(identity, digest, caller)
            if full in self._under_way:
                raise InvalidArgument(
                    f"two calls of {identity!r} are under way with the same key; give each its own key"
                )
            displace = self._note_place(full, identity)

            def retract() -> None:
                uncount()
                displace()

            if not can_be_left:
                self._under_way[full] = _UnderWay(threading.current_thread())
            return Started(full, key, is_alone), retract

    def is_calling(self) -> bool:
        """Whether a call of the current thread is under way."""
        with self._lock:
            return any(call.thread is threading.current_thread() for call in self._under_way.values())

    def end_call(self, full: str) -> None:
        """Note that a call is over."""
        with self._lock:
            self._under_way.pop(full, None)
            self._ended.notify_all()

    def _counted(self, identity: str, digest: bytes, caller: object) -> tuple[str, Callable[[], None]]:
        """The key of a call without one. Equal calls are numbered, so they must have one caller and one order."""
        if self.are_needed:
            raise InvalidArgument("calls in on_resume need keys, to be distinct from those of the block; pass key=")
        first = unkeyed(identity, digest, 1)
        counts = self._counts
        place = first if self._depth else f"{first}{_OUTSIDE}"  # calls in the loop are counted for themselves
        count = counts.get(place, 0)
        is_under_way = count and unkeyed(identity, digest, count) in self._under_way
        if is_under_way or self._callers.setdefault(place, caller) is not caller:
            raise InvalidArgument(
                f"{identity} is called with the same arguments by several threads or tasks, and after a crash a replay "
                "could not tell these calls apart; nothing was called. Pass key= to each of them."
            )
        counts[place] = count + 1

        def retract() -> None:
            with self._lock:
                counts[place] -= 1

        return unkeyed(identity, digest, count + 1), retract

    def _require_none_under_way(self, what: str, besides: str | None = None) -> None:
        if any(besides is None or not key.startswith(besides) for key in self._under_way):
            raise InvalidArgument(f"{what} while calls are under way in it; wait for their results")


class Calls:
    """Makes the calls of one run."""

    def __init__(self, context: RunContext) -> None:
        self.context: Final = context
        self.keys: Final = CallKeys(context.journal.outside)

    def open_step(self, step: int) -> None:
        is_same = step == self.context.step
        self.context.step = step
        if not self.keys.is_outside:
            self.context.saved_events.update(self.context.events)
        self.context.events.clear()
        self.context.answered.clear()
        self.context.journal.forget_errors()
        self.keys.open_step(is_same=is_same)

    def require_none_unasked(self, until: int | None) -> None:
        """Suspend the run if a step would close over calls that acted, and that the program did not ask for again.

        An earlier process made them. The program has changed since, or it takes another way. `until` is the last step
        that is closed; None at the end of the run. A person answers True if the calls are to stay as they are. After
        any other answer the run asks again, and waits.
        """
        context, journal = self.context, self.context.journal
        rows = journal.unasked(until)
        if not rows:
            return
        numbers = ", ".join(str(row.number) for row in rows)
        first = f"keep {'call' if len(rows) == 1 else 'calls'} {numbers}"
        calls = [
            {
                "number": row.number,
                "name": row.name,
                "arguments": None if row.call is None else msgpack.decode(row.call),
            }
            for row in rows
        ]
        names = ", ".join(f"{row.name} (call {row.number})" for row in rows)
        name, is_kept, times = first, False, 1
        while not is_kept:
            try:
                is_kept = wait(context, name, calls, None, f"{WAIT}{KEY}{name}") is True
            except Suspended as suspended:
                suspended.reason = (
                    f"the program did not ask again for {names}, which an earlier process called in this step. Resume "
                    f"the run with the program that called it, or keep it as it is: hf.answer(THREAD, {name!r}, True)"
                )
                context.suspend(suspended)
                raise
            times += 1
            name = f"{first} ({times})"  # after another answer than True
        journal.accept_unasked(rows)

    def require_none_in_doubt(self) -> None:
        """Suspend the run if an irreversible call has an unknown outcome: a checkpoint would close it.

        The program caught the error, or took another way than the process that died.
        """
        for row in self.context.journal.doubtful():
            tool = self.context.tools.of(row.name, row.key)
            if tool is None or tool.in_doubt in ("ask", "probe"):
                self.context.suspended = suspended_by(row)
                raise self.context.suspended

    @contextmanager
    def making(
        self, identity: str, key: str | None, digest: bytes = b"", caller: object = None, *, can_be_left: bool = False
    ) -> Generator[Started]:
        """A call, which is under way inside this block."""
        started, retract = self.keys.start(identity, key, digest, caller, can_be_left=can_be_left)
        try:
            yield started
        except GeneratorExit:
            raise  # its caller left it half-way and continues: the next call is another one
        except BaseException as error:
            # A failed call that is made again is the same call, as in a replay. Counted in its own step: a call that
            # was left open may fail in the next one.
            retract()
            if isinstance(error, Suspended):
                self.context.suspend(error)
            raise
        finally:
            if not can_be_left:
                self.keys.end_call(started.key)

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
        caller: object,
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
        conversion = None if type is None else state_type(type)
        context.events.add("model")
        given = Given(function, args, kwargs, context.redaction)
        with self.making(f"model {given.identity}", key, given.digest, caller) as started:
            entry = self._entry(started, function, given, on_change)
            if entry.result is not None or entry.status == "unstored":
                return journal.recorded(entry, conversion)
            while not context.watch.enter(entry, can_wait=not is_nested):
                yield Invocation(pause, (_POLL_SECONDS,), is_probe=True)
                context.require_active()
            try:
                context.lease.check()
                try:
                    reply = yield Invocation(function, given.args, given.kwargs)
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
        caller: object,
    ) -> Generator[Stream]:
        """The chunks of a model call: the recorded ones, or new ones, which are recorded at the end.

        If the block is left before the end, nothing is recorded.
        """
        if not callable(function):
            raise InvalidArgument("run.stream takes a function and its arguments")
        context, journal = self.context, self.context.journal
        context.events.add("model")
        given = Given(function, args, kwargs, context.redaction)
        identity = f"run.stream {given.identity}"
        with self.making(identity, key, given.digest, caller, can_be_left=True) as started:
            entry = self._entry(started, function, given, "recorded")
            if entry.result is not None or entry.status == "unstored":
                yield Stream(journal, entry, given, restored_chunks(entry, journal.replayed(entry)))
                return
            context.watch.enter(entry, is_stream=True)
            context.lease.check()
            try:
                yield Stream(journal, entry, given, None)
            except Exception as error:
                journal.fail(entry, error)
                raise

    def _entry(self, started: Started, function: Callable[..., Any], given: Given, on_change: OnChange) -> Entry:
        """The recorded entry of a model call, or a new one to record its reply in."""
        context, journal = self.context, self.context.journal
        new = journal.new(context.step, started.key, name_of(function), "model", "done", given.digest)
        known = journal.ask(context.step, started.key)
        if known is None and started.own_key is None and started.is_alone:
            # A prompt with the time in it, say: the call is the next one of its function.
            is_outside = self.keys.is_outside
            known = journal.unasked_reply(context.step, identity_in(started.key), given.digest, is_outside=is_outside)
            if known is not None:
                journal.accept_unasked([known])
            elif self.keys.is_before_loops:
                known = journal.kept_reply(context.step, identity_in(started.key))
        if self.keys.is_outside and started.own_key is None:
            self.keys.note_model(identity_in(started.key))
        if known is None and started.own_key is not None and started.is_alone:
            context.changed += journal.unasked_of_key(context.step, started.own_key)  # another function has its reply
        if known is not None:
            journal.raise_again(known)
            if known.status in ("not_done", "failed"):
                known = None
        if known is not None:
            context.require_same(known, given.digest, function, is_named=False)
        if known is not None and known.arguments != given.digest:
            context.changed.append(known)
            if on_change == "rerun":
                if known.step != context.step or journal.has_acted(context.step):
                    raise Conflict(
                        "the arguments of a model call changed after its step acted on the first reply. Nothing was "
                        'called; use the recorded reply (on_change="recorded").'
                    )
                new = replace(new, key=known.key)  # its reply replaces the recorded one
                known = None
        entry = known or new
        context.answered[place_of(entry)] = given.digest, function
        return entry

    # -- tools ----------------------------------------------------------------------------------------------------

    def tool(self, named: str | Callable[..., Any] | Tool, args: object, key: str | None, *, caller: object) -> Call:
        """The recorded result of a tool, or that of a call made now."""
        context = self.context
        context.require_active()
        tool = named if isinstance(named, Tool) else context.tools.find(named)
        if tool.is_pending:
            tool = tool.resolved()
        if tool.result is not None:
            require_storable(tool.name, tool.result, context.redaction)
        given = checked_arguments(args)
        msgpack.check(given, is_state=False)
        context.events.add("tool")
        self._refuse_async(tool.function, tool.probe)
        call = ToolCall(context, tool, given, context.step)
        if key is None and call.is_redacted and tool.effect != "read":
            raise InvalidArgument(
                f"{tool.name} was not called: it acts, and redaction changes its arguments, so a resume could not tell "
                "calls apart that differ in what is redacted. Pass key=, made of something that is not secret."
            )
        with self.making(tool.identity, key, call.digest, caller) as started:
            return (yield from call.make(started))

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
        self.context.require_active(to_ask=True)
        checked_name(name)
        seconds = None if timeout is None else checked_seconds("timeout", timeout)
        self.keys.require_none_under_way("a run cannot wait", f"{WAIT}{KEY}")  # several questions can be asked at once
        with self.making(WAIT, name) as started:
            return wait(self.context, name, payload, seconds, started.key)

    def sleep(self, seconds: float) -> None:
        """Suspend the run until so many seconds have passed."""
        self.context.require_active()
        seconds = checked_seconds("sleep", seconds)
        self.keys.require_none_under_way("a run cannot sleep", SLEEP)
        with self.making(SLEEP, None) as started:
            sleep(self.context, seconds, started.key)


class Stream:
    """The chunks of one model call."""

    def __init__(self, journal: Journal, entry: Entry, given: Given, recorded: list[Any] | None) -> None:
        """`recorded` are the chunks of a call that is in the journal; None if the call is to be made."""
        self.given: Final = given
        self.recorded: Final = recorded
        self._journal = journal
        self._entry = entry
        self._taken: list[bytes] = []
        self._types: list[str | None] = []
        self._is_redacted = False

    def take(self, chunk: Any) -> Any:
        """Add a chunk and return it as a replay will. Unsupported, with its path, if it cannot be recorded."""
        try:
            encoded = encoded_result(chunk, None, self._journal.redaction)
        except Unsupported as refused:
            raise Unsupported(
                refused.path, f"a chunk of {self._entry.name} cannot be recorded: {refused.problem}"
            ) from refused
        self._taken.append(encoded.data)
        self._types.append(encoded.type)
        self._is_redacted = self._is_redacted or encoded.is_redacted
        plain = msgpack.decode(encoded.data)
        return plain if encoded.conversion is None else encoded.conversion.from_plain(plain)

    def end(self) -> None:
        """Record the chunks at the end of the stream."""
        redacted = RESULT_REDACTED if self._is_redacted else 0
        chunks = [msgpack.decode(encoded) for encoded in self._taken]
        entry = replace(self._entry, redacted=redacted, type=chunk_types(self._types))
        self._journal.record_encoded(entry, msgpack.encode(chunks))


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


def _nothing() -> None: ...
