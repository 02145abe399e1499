"""Model calls, streams and tool calls of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Literal, get_args

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.codec.typed import StateType, state_type
from holdfast.errors import Conflict, EffectMismatch, InvalidArgument, Unsupported
from holdfast.observer import CallKind
from holdfast.runs.arguments import checked_seconds, checked_text
from holdfast.runs.block_end import Waiting
from holdfast.runs.call_keys import CallKeys
from holdfast.runs.context import RunContext
from holdfast.runs.doubt import suspended_to_settle
from holdfast.runs.drivers import CALL, SCOPE, Call, Invocation, is_async, pause
from holdfast.runs.earlier_calls import Lineage
from holdfast.runs.guards import UNWATCHED, WatchedCall
from holdfast.runs.identity import KEY_SEPARATOR, MODEL, STREAM, WHOLE, Given, Started, escaped, identity_in, name_of
from holdfast.runs.journal import RESULT_REDACTED, Journal
from holdfast.runs.open_entries import place_of
from holdfast.runs.record import text_of
from holdfast.runs.results import chunk_types, encoded_result, require_storable, restored_chunks
from holdfast.runs.retry import Retry, RetryState, checked_retry
from holdfast.runs.tool_calls import ToolCall
from holdfast.runs.tools import Tool, checked_arguments, tool_of
from holdfast.runs.waits import SLEEP, WAIT, sleep, wait
from holdfast.stores.contract_runs import Entry
from holdfast.text import to_utf8

_POLL_SECONDS: Final = 0.05

OnChange = Literal["recorded", "rerun", "refuse"]


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

    def require_all_repeated(self, until: int | None) -> None:
        """Suspend the run if a step would close over recorded calls that acted and that the program did not repeat.

        An earlier process made these calls. The program has changed since, or it takes another path. `until` is the
        last step that is closed; None at the end of the run. A person answers True if the calls are to stay as they
        are. After any other answer the run asks again, and waits.
        """
        context, journal = self.context, self.context.journal
        rows = journal.unrepeated(until)
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
                is_kept = wait(context, name, calls, None, f"{WAIT}{KEY_SEPARATOR}{name}") is True
            except Waiting as suspended:
                suspended.reason = (
                    f"the program did not repeat {names}, which an earlier process called. Resume the run with "
                    f"the program of that process, or keep what was done: answer {name!r} with True (hf.answer)"
                )
                context.suspend(suspended)
                raise
            times += 1
            name = f"{first} ({times})"  # after another answer than True
        journal.accept_unrepeated(rows)

    def require_none_in_doubt(self, until: int | None = None) -> None:
        """Suspend the run if an irreversible call has an unknown outcome: a checkpoint would close it.

        The program caught the error, or took another path than the process that died. `until` is the last step that is
        closed, if the checkpoint is one that the program repeats: it will repeat the calls of later steps.
        """
        for row in self.context.journal.doubtful():
            if until is not None and row.step > until:
                continue
            tool = self.context.tools.of(row.name, row.key)
            if tool is None or tool.in_doubt in ("ask", "probe"):
                self.context.suspended = suspended_to_settle(row)
                raise self.context.suspended

    @contextmanager
    def call_under_way(
        self,
        identity: str,
        key: str | None,
        digest: bytes = b"",
        exact: bytes = b"",
        caller: object = None,
        *,
        can_be_left: bool = False,
    ) -> Generator[Started]:
        """A call, which is under way inside this block."""
        outer = CALL.get()
        if key is None and outer is not None and outer.journal is self.context.journal:
            # Calls inside a tool are counted apart: a resume that does not call the tool makes only the others.
            digest = hashlib.sha256(digest + to_utf8(outer.entry.key)).digest()
        started, undo_start = self.keys.start(identity, key, digest, exact, caller, can_be_left=can_be_left)
        try:
            yield started
        except GeneratorExit:
            raise  # the caller dropped the call and continues: its next call is another one
        except BaseException as error:
            # A failed call that is made again is the same call, as in a replay. It counts in the step in which it was
            # started: a stream that was left open may fail in a later step.
            undo_start()
            if isinstance(error, Waiting):
                self.context.suspend(error)
            raise
        finally:
            if not can_be_left:
                self.keys.end_call(started.key)

    def watched(
        self, kind: CallKind, named: object = None, *, is_main: bool | None = None, is_stream: bool = False
    ) -> AbstractContextManager[WatchedCall | None]:
        """A call that is made inside this block, as guards and the observer see it. None if there are none of them.

        `named` is the tool. `is_main` is as in `Watch.calling`.
        """
        watch = self.context.watch
        if not watch.is_watching:
            return UNWATCHED
        tool = tool_of(named) if callable(named) else None
        if isinstance(named, str):
            tool = self.context.tools.get(named)  # a name that is not registered may be any text of a model
        name, step = None if tool is None else tool.name, self.context.step
        return watch.calling(kind, name, step=step, is_main=is_main, is_stream=is_stream)

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
        watched: WatchedCall | None,
        retry: Retry | None = None,
        name: str | None = None,
    ) -> Call:
        """The recorded reply, or a new one, recorded before it is returned. `retry` makes a failed call again.

        `watched` is from `watched()`. `name` is that of the agent that calls its model, instead of the function.
        """
        context, journal = self.context, self.context.journal
        context.require_active()
        if not callable(function):
            raise InvalidArgument("run.model takes a function and its arguments; nothing was called")
        if on_change not in get_args(OnChange):
            raise InvalidArgument('on_change must be "recorded", "rerun" or "refuse"; nothing was called')
        self._refuse_async(function)
        conversion = type if type is None or isinstance(type, StateType) else state_type(type)
        retry = checked_retry(retry)
        tries = None if retry is None else RetryState(context, retry)
        context.events.add("model")
        given = Given(function, args, kwargs, context.redaction)
        scope = SCOPE.get()
        identity = given.identity if name is None else escaped(f"{scope}{name}")
        key = scope + key if isinstance(key, str) and key else key
        with self.call_under_way(f"{MODEL}{identity}", key, given.digest, given.exact, caller) as started:
            entry = self._entry(started, function, given, on_change, tries, name)
            if entry.result is not None or entry.status == "unstored":
                return journal.recorded(entry, conversion)
            while True:
                if tries is not None:
                    yield from tries.wait(entry)
                    entry = tries.next(entry)
                while context.watch.has_guards and not context.watch.enter(entry, watched):
                    yield Invocation(pause, (_POLL_SECONDS,), is_internal=True)
                    context.require_active()
                journal.write_results()
                context.lease.check()
                try:
                    reply = yield Invocation(self._function(function, watched), given.args, given.kwargs)
                except Exception as error:
                    if tries is None or not tries.allow(error):
                        journal.fail(entry, error)
                        raise
                    ended = replace(entry, status="failed", error=text_of(error, context.redaction))
                    journal.note(error, journal.end(tries.failed(ended)))
                    context.watch.leave(watched)
                else:
                    return journal.record(entry, reply, conversion, when="soon" if started.is_last else "now")

    @contextmanager
    def streaming(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        key: str | None,
        final: Callable[[list[Any]], Any] | None,
        caller: object,
    ) -> Generator[Stream]:
        """The chunks of a model call: the recorded ones, or new ones, which are recorded at the end.

        With `final`, only the whole reply is recorded, `final(chunks)`. If the block is left before the end, nothing
        is recorded.
        """
        if not callable(function):
            raise InvalidArgument("run.stream takes a function and its arguments; nothing was called")
        if final is not None and not callable(final):
            raise InvalidArgument("final must be a function that takes the list of chunks; nothing was called")
        context, journal = self.context, self.context.journal
        context.events.add("model")
        given = Given(function, args, kwargs, context.redaction)
        # A program that now records the whole reply, or no longer does, gets no record of the other kind.
        identity = f"{STREAM}{given.identity}" if final is None else f"{STREAM}{WHOLE}{given.identity}"
        key = SCOPE.get() + key if isinstance(key, str) and key else key
        with (
            self.watched("model", is_stream=True) as watched,
            self.call_under_way(identity, key, given.digest, given.exact, caller, can_be_left=True) as started,
        ):
            entry = self._entry(started, function, given, "recorded")
            if entry.result is not None or entry.status == "unstored":
                whole = final is not None
                recorded = [journal.recorded(entry)] if whole else restored_chunks(entry, journal.recorded_plain(entry))
                yield Stream(journal, entry, given, recorded)
                return
            if context.watch.has_guards:
                context.watch.enter(entry)
            journal.write_results()
            context.lease.check()
            if watched is not None:
                watched.note_called()
            interceptor, thread = context.watch.interceptor, context.lease.row.thread
            ended = None
            if interceptor is not None:
                ended = interceptor.stream(function, given.digest, thread=thread, step=context.step)
            try:
                yield Stream(journal, entry, given, None, final, ended)
            except Exception as error:
                journal.fail(entry, error)
                raise

    def _function(self, function: Callable[..., Any], watched: WatchedCall | None) -> Callable[..., Any]:
        """The function to call for a model call that is made now."""
        if watched is not None:
            watched.note_called()
        interceptor, thread = self.context.watch.interceptor, self.context.lease.row.thread
        return function if interceptor is None else interceptor.model(function, thread=thread, step=self.context.step)

    def _entry(
        self,
        started: Started,
        function: Callable[..., Any],
        given: Given,
        on_change: OnChange,
        tries: RetryState | None = None,
        name: str | None = None,
    ) -> Entry:
        """The recorded entry of a model call, or a new one to record its reply in."""
        context, journal = self.context, self.context.journal
        new = journal.new(context.step, started.key, name or name_of(function), "model", "done", given.digest)
        known = journal.find(context.step, started.key)
        if known is None and started.own_key is None and (started.is_alone or name is not None):
            # The arguments may have changed, as in a prompt with the time in it. Then this call is the next one of its
            # function.
            identity, is_outside = identity_in(started.key), self.keys.is_outside
            known = journal.unrepeated_reply(identity, new, is_outside=is_outside)
            if known is not None:
                journal.accept_unrepeated([known])
            elif self.keys.is_before_loops:
                known = journal.kept_reply(context.step, identity, new.inside)
        if self.keys.is_outside and started.own_key is None:
            self.keys.note_model(identity_in(started.key))
        if known is None and started.own_key is not None and started.is_alone:
            context.changed += journal.unrepeated_of_key(context.step, started.own_key)  # replies to another function
        if known is not None:
            if name is None:  # a framework handles its own errors, and calls again
                journal.raise_again(known)
            if known.status in ("not_done", "failed"):
                if tries is not None:
                    tries.resume(known)
                known = None
        if known is not None:
            context.require_same(place_of(known), known.name, given.digest, function, is_named=False)
        if known is not None and known.arguments != given.digest:
            context.changed.append(known)
            if on_change == "refuse":
                raise EffectMismatch(
                    f"the request of a model call of {new.name} differs from the recorded one (call {known.number}); "
                    "nothing was called. Resume the run with the program and the input that made the recorded request."
                )
            if on_change == "rerun":
                if known.step != context.step or journal.has_acted(context.step):
                    raise Conflict(
                        "the arguments of a model call changed after its step acted on the first reply. Nothing was "
                        'called; use the recorded reply (on_change="recorded").'
                    )
                new = replace(new, key=known.key)  # its reply replaces the recorded one
                known = None
        entry = known or new
        if on_change == "rerun":
            journal.note_changing(entry)
        context.answered[place_of(entry)] = given.digest, function
        return entry

    # -- tools ----------------------------------------------------------------------------------------------------

    def tool(
        self,
        named: str | Callable[..., Any] | Tool,
        args: object,
        key: str | None,
        *,
        caller: object,
        lineage: Lineage | None = None,
        watched: WatchedCall | None = None,
    ) -> Call:
        """The recorded result of a tool, or that of a call made now. `watched` is from `watched()`."""
        context = self.context
        context.require_active()
        tool = named if isinstance(named, Tool) else context.tools.find(named)
        if tool.is_pending:
            tool = tool.resolved()
        if tool.result is not None:
            require_storable(tool.name, tool.result, context.redaction)
        given = checked_arguments(args)
        msgpack.check(given, is_state=False)
        if context.redaction.placeholder is not None:  # another thread may add a text after the redaction
            given = msgpack.decode(msgpack.encode(given))
        context.events.add("tool")
        self._refuse_async(tool.function, tool.probe)
        call = ToolCall(context, tool, given, context.step, lineage)
        if key is None and not call.is_distinct and tool.effect != "read":
            raise InvalidArgument(
                f"{tool.name} was not called: it acts, and redaction changes its arguments, so a resume could not tell "
                "calls apart that differ in what is redacted. Pass key=, made of something that is not secret."
            )
        exact = b"" if call.is_distinct else call.exact
        key = SCOPE.get() + key if isinstance(key, str) and key else key
        with self.call_under_way(tool.identity, key, call.digest, exact, caller) as started:
            interceptor, thread = context.watch.interceptor, context.lease.row.thread
            if interceptor is not None:
                tool = interceptor.tool(tool, thread=thread, step=context.step, key=started.key)
            return (yield from call.make(started, tool, watched))

    def _refuse_async(self, *functions: Callable[..., Any] | None) -> None:
        if self.context.can_await:
            return
        for function in functions:
            if function is not None and is_async(function):
                raise InvalidArgument(
                    "a sync run cannot await an async function; nothing was called. Use `async with hf.aio.run(…)`, or "
                    "a function that is not async."
                )

    # -- waits ----------------------------------------------------------------------------------------------------

    def wait(self, name: str, payload: Any, timeout: float | None) -> Any:
        """The answer to a question. Suspends the run until there is one."""
        self.context.require_active(to_ask=True)
        checked_text("the name of a question", name)
        seconds = None if timeout is None else checked_seconds("timeout", timeout)
        self.keys.require_none_under_way("a run cannot wait", f"{WAIT}{KEY_SEPARATOR}")  # not other questions
        with self.call_under_way(WAIT, name) as started:
            return wait(self.context, name, payload, seconds, started.key)

    def sleep(self, seconds: float) -> None:
        """Suspend the run until so many seconds have passed."""
        self.context.require_active()
        seconds = checked_seconds("seconds", seconds)
        self.keys.require_none_under_way("a run cannot sleep", SLEEP)
        with self.call_under_way(SLEEP, None) as started:
            sleep(self.context, seconds, started.key)


class Stream:
    """The chunks of one model call."""

    def __init__(
        self,
        journal: Journal,
        entry: Entry,
        given: Given,
        recorded: list[Any] | None,
        final: Callable[[list[Any]], Any] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """`recorded` are the chunks of a call that is in the journal; None if the call is to be made.

        `ended` is called at the end, before the reply is recorded.
        """
        self._ended = ended
        self.given: Final = given
        self.recorded: Final = recorded
        self._journal = journal
        self._entry = entry
        self._final = final
        self._passed: list[Any] = []  # chunks for `final`
        self._taken: list[bytes] = []
        self._types: list[str | None] = []
        self._is_redacted = False

    def take(self, chunk: Any) -> Any:
        """Add a chunk and return it as a replay will. Unsupported, with its path, if it cannot be recorded.

        With `final`, chunks are not recorded, so they may be any objects and are returned as they are.
        """
        if self._final is None:
            return self._add(chunk)
        self._passed.append(chunk)
        return chunk

    def _add(self, chunk: Any) -> Any:
        try:
            encoded = encoded_result(chunk, None, self._journal.redaction)
        except Unsupported as refused:
            what = "a chunk" if self._final is None else "the whole reply"
            why = f"{what} of {self._entry.name} cannot be recorded: {refused.problem}"
            raise Unsupported(refused.path, why) from refused
        self._taken.append(encoded.data)
        self._types.append(encoded.type)
        self._is_redacted = self._is_redacted or encoded.is_redacted
        plain = msgpack.decode(encoded.data)
        return plain if encoded.conversion is None else encoded.conversion.from_plain(plain)

    def end(self) -> None:
        """Record the chunks at the end of the stream, or with `final` the whole reply."""
        if self._ended is not None:
            self._ended()
        if self._final is not None:
            self._add(self._final(self._passed))
            self._record(self._taken[0], self._types[0])
            return
        chunks = b"".join((msgpack.array_header(len(self._taken)), *self._taken))
        self._record(chunks, chunk_types(self._types))

    def _record(self, encoded: bytes, type_name: str | None) -> None:
        redacted = RESULT_REDACTED if self._is_redacted else 0
        self._journal.record_encoded(replace(self._entry, redacted=redacted, type=type_name), encoded)
