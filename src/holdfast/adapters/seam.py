"""The interface for adapters of agent frameworks: record the model calls and tool calls of a framework in a run.

An adapter asks `current()` for the seam of the current run. Outside a run it is None, and the adapter changes nothing:

    seam = current()
    if seam is None:
        return await call_model(request)
    return await seam.model("writer", lambda: call_model(request), request=request)

`docs/how-to/adapters.md` shows an adapter of 60 lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from msgspec.structs import replace

from holdfast.adapters.seam_calls import Conversion, as_stream, async_body, calls_of, declared, sync_body
from holdfast.aio.run import AsyncRun
from holdfast.aio.run import begin as begin_async
from holdfast.aio.run import drive as drive_async
from holdfast.aio.run import end as end_async
from holdfast.codec import msgpack
from holdfast.errors import InvalidArgument
from holdfast.runs.call_keys import STRAND
from holdfast.runs.calls import OnChange
from holdfast.runs.context import Suspended
from holdfast.runs.core import RunCore
from holdfast.runs.current import SCOPE, current_run
from holdfast.runs.drivers import Call, Finished, Uncalled, begin, drive, end
from holdfast.runs.guards import ModelCall
from holdfast.runs.identity import own_key
from holdfast.runs.results import Codec
from holdfast.runs.run import Run
from holdfast.runs.suspensions import suspended_by

__all__ = ["PLAIN", "Begun", "Codec", "Declarations", "Seam", "checked", "current"]

Declarations = Mapping[str, Mapping[str, Any]]
"""Options of `holdfast.tool` by the names of tools, and `errors`: "outcome" or "doubt"."""


def _as_is(value: Any) -> Any:
    return value


PLAIN: Final = Codec("plain/1", _as_is, _as_is)
"""Records plain data as it is."""


def current() -> Seam | None:
    """Return the seam of the current run; None outside a run, and after the run has ended."""
    run = current_run()
    return None if run is None or not run.core.is_open else Seam(run)


def checked(declare: Declarations | None) -> Declarations:
    """Check declarations when an agent is made, not when a tool is called. InvalidArgument names the tool."""
    declare = {} if declare is None else declare
    for name, options in declare.items():
        if type(name) is not str or not isinstance(options, Mapping):
            raise InvalidArgument("declare must be a dict of tool names, each with a dict of options of holdfast.tool")
        if options.get("errors", "outcome") not in ("outcome", "doubt"):
            raise InvalidArgument(f'declare: {name}: errors must be "outcome" or "doubt"')
        try:
            declared(name, _as_is, options)
        except (InvalidArgument, TypeError) as error:
            raise InvalidArgument(f"declare: {name}: {error}") from error
    return declare


class Seam:
    """The current run, for an adapter. Verbs that end in `_sync` are for frameworks that are not async."""

    def __init__(self, run: Run | AsyncRun) -> None:
        self.run: Final = run
        self._core: Final[RunCore] = run.core
        self._under_way = calls_of(run.core)

    # -- models ---------------------------------------------------------------------------------------------------

    async def model(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        request: Any,
        codec: Codec | None = PLAIN,
        on_change: OnChange = "recorded",
    ) -> Any:
        """Call a model and record its reply, or return the recorded one.

        `name` is that of the agent. The reply is found by the digest of `request`, which is plain data, and by how many
        requests of this agent in this scope were equal. If the program now sends another request than the process
        before it, `on_change` decides: "recorded" returns the next recorded reply of the agent, "rerun" calls the
        model, "refuse" raises EffectMismatch. Without a `codec`, the reply is recorded as by `run.model`.
        """
        body = async_body(function, None, SCOPE.get())
        async with self._inside():
            with self._core.calls().context.watch.model_call(is_home=None) as watched:
                call = self._model(name, body, request, codec, on_change, watched)
                return await drive_async(call, self._core.observed("model"))

    def model_sync(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        request: Any,
        codec: Codec | None = PLAIN,
        on_change: OnChange = "recorded",
    ) -> Any:
        """See `model`."""
        body = sync_body(function, None, SCOPE.get())
        with self._inside_sync(), self._core.calls().context.watch.model_call(is_home=None) as watched:
            call = self._model(name, body, request, codec, on_change, watched)
            return drive(call, self._core.observed("model"))

    async def stream(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        request: Any,
        final: Callable[[list[Any]], Any],
        chunks: Callable[[Any], Iterable[Any]],
        codec: Codec | None = PLAIN,
        on_change: OnChange = "recorded",
    ) -> AsyncGenerator[Any, None]:
        """Yield the chunks of a model call as they arrive, and record only the whole reply, `final(chunks)`.

        A recorded reply is yielded as `chunks(reply)`. If the stream is left before its end, nothing is recorded.
        """
        begun = await self.begin_model(name, request=request, codec=codec, on_change=on_change)
        if begun.is_recorded:
            for chunk in chunks(begun.recorded):
                yield chunk
            return
        taken: list[Any] = []
        try:
            async for chunk in as_stream(function()):
                taken.append(chunk)
                yield chunk
            reply = final(taken)
        except Exception as error:
            await begun.failed(error)
            raise
        except BaseException:
            begun.not_called_sync()
            raise
        await begun.done(reply)

    def stream_sync(
        self,
        name: str,
        function: Callable[[], Iterable[Any]],
        *,
        request: Any,
        final: Callable[[list[Any]], Any],
        chunks: Callable[[Any], Iterable[Any]],
        codec: Codec | None = PLAIN,
        on_change: OnChange = "recorded",
    ) -> Iterator[Any]:
        """See `stream`."""
        begun = self.begin_model_sync(name, request=request, codec=codec, on_change=on_change)
        if begun.is_recorded:
            yield from chunks(begun.recorded)
            return
        taken: list[Any] = []
        try:
            for chunk in function():
                taken.append(chunk)
                yield chunk
            reply = final(taken)
        except Exception as error:
            begun.failed_sync(error)
            raise
        except BaseException:
            begun.not_called_sync()
            raise
        begun.done_sync(reply)

    def _model(
        self,
        name: str,
        body: Callable[..., Any],
        request: Any,
        codec: Codec | None,
        on_change: OnChange,
        watched: ModelCall | None = None,
    ) -> Call:
        calls = self._core.calls()
        recorded = calls.context.redaction.value(request)
        msgpack.check(recorded, is_state=False)
        digest = hashlib.sha256(msgpack.encode_sorted(recorded)).hexdigest()
        return calls.model(
            body,
            (digest,),
            {},
            key=None,
            type=codec,
            on_change=on_change,
            caller=STRAND,
            watched=watched,
            name=name,
        )

    # -- tools ----------------------------------------------------------------------------------------------------

    async def tool(
        self,
        name: str,
        function: Callable[[], Any],
        arguments: Mapping[str, Any],
        *,
        key: str,
        declare: Declarations | None = None,
        codec: Codec = PLAIN,
        said: Callable[[Any], Any] = _as_is,
        caught: Callable[[Exception], Any] | None = None,
    ) -> Any:
        """Call a tool and record its result, or return the recorded one.

        `key` tells the calls of a tool apart: the id that the model gave the call. `arguments` are plain data, for the
        journal, for a probe and for a person. What a person, a probe or `give_up` reported is returned as
        `said(result)`. With `caught`, an exception becomes the value to record, unless the tool is declared with
        `errors="doubt"`. An exception that `caught` raises again is handled as in `run.tool`.

        If the call has to wait for a person, no new call starts, those under way end, and then `Waiting` is raised.
        """
        conversion = Conversion(codec)
        async with self._inside():
            call = self._tool(name, function, arguments, key, declare, conversion, caught, async_body)
            result = await drive_async(call, self._core.observed("tool"))
        return result if conversion.is_loaded else said(result)

    def tool_sync(
        self,
        name: str,
        function: Callable[[], Any],
        arguments: Mapping[str, Any],
        *,
        key: str,
        declare: Declarations | None = None,
        codec: Codec = PLAIN,
        said: Callable[[Any], Any] = _as_is,
        caught: Callable[[Exception], Any] | None = None,
    ) -> Any:
        """See `tool`."""
        conversion = Conversion(codec)
        with self._inside_sync():
            call = self._tool(name, function, arguments, key, declare, conversion, caught, sync_body)
            result = drive(call, self._core.observed("tool"))
        return result if conversion.is_loaded else said(result)

    def _tool(
        self,
        name: str,
        function: Callable[[], Any],
        arguments: Mapping[str, Any],
        key: str,
        declare: Declarations | None,
        conversion: Conversion,
        caught: Callable[[Exception], Any] | None,
        body_of: Callable[..., Callable[..., Any]],
    ) -> Call:
        options = (declare or {}).get(name, {})
        key = self._under_way.own_key(self._core.step, name, key)
        caught = None if options.get("errors") == "doubt" else caught
        body = body_of(function, caught, f"{SCOPE.get()}{name}:{key}/")
        chosen = replace(declared(name, body, options), result=conversion)
        return self._core.calls().tool(chosen, arguments, key, caller=STRAND)

    def settle_doubts(self, names: Collection[str], declare: Declarations | None = None) -> None:
        """Wait for a person at once if calls of these tools are in doubt that only a person can decide.

        Call it before the framework is started: then all questions are asked together. Otherwise each is asked when the
        framework makes its call again.
        """
        context, scope = self._core.calls().context, SCOPE.get()
        found = [
            row
            for row in context.journal.doubtful()
            if row.fence != context.lease.fence and row.name in names
            if (own_key(row.key) or "").rpartition("/")[0] == scope.rstrip("/")
            if _in_doubt((declare or {}).get(row.name, {})) == "ask"
        ]
        if found:
            first, *others = map(suspended_by, found)
            first.also = tuple(row for each in others for row in each.rows)
            raise context.suspend(first)

    # -- calls in two parts: for frameworks with hooks before and after a call ------------------------------------

    async def begin_model(
        self, name: str, *, request: Any, codec: Codec | None = PLAIN, on_change: OnChange = "recorded"
    ) -> Begun:
        """Start a model call that the framework makes itself: see `Begun`."""
        call = self._model(name, _never_async, request, codec, on_change)
        async with self._inside():
            return self._begun(call, await begin_async(call))

    def begin_model_sync(
        self, name: str, *, request: Any, codec: Codec | None = PLAIN, on_change: OnChange = "recorded"
    ) -> Begun:
        """See `begin_model`."""
        call = self._model(name, _as_is, request, codec, on_change)
        with self._inside_sync():
            return self._begun(call, begin(call))

    async def begin_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        declare: Declarations | None = None,
        codec: Codec = PLAIN,
        said: Callable[[Any], Any] = _as_is,
    ) -> Begun:
        """Start a tool call that the framework makes itself: see `Begun`. A probe is called here."""
        conversion = Conversion(codec)
        call = self._tool(name, _nothing, arguments, key, declare, conversion, None, async_body)
        async with self._inside():
            state = await begin_async(call)
        return self._begun(call, state, None if conversion.is_loaded else said)

    def begin_tool_sync(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        declare: Declarations | None = None,
        codec: Codec = PLAIN,
        said: Callable[[Any], Any] = _as_is,
    ) -> Begun:
        """See `begin_tool`."""
        conversion = Conversion(codec)
        call = self._tool(name, _nothing, arguments, key, declare, conversion, None, sync_body)
        with self._inside_sync():
            state = begin(call)
        return self._begun(call, state, None if conversion.is_loaded else said)

    def _begun(self, call: Call, state: object, said: Callable[[Any], Any] | None = None) -> Begun:
        if isinstance(state, Finished):
            return Begun(call, ExitStack(), is_recorded=True, recorded=said(state.result) if said else state.result)
        stack = ExitStack()
        stack.callback(self._under_way.end, self._under_way.start())
        return Begun(call, stack)

    @contextmanager
    def nested(self, name: str, key: str) -> Generator[None]:
        """A scope for an agent that another one calls as a tool. The call itself is not recorded, those inside are."""
        with self.run.scope(f"{name}:{self._under_way.own_key(self._core.step, name, key)}"):
            yield

    def new_id(self, what: str) -> str:
        """A text that differs each time, and is the same after a restart: for the ids that a framework makes."""
        number = self._under_way.count(self._core.step, "", what)
        return f"{self._core.thread}:{self._core.step}:{SCOPE.get()}{what}:{number}"

    # -- suspension -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _inside(self) -> AsyncGenerator[None]:
        face = self.run.aio if isinstance(self.run, Run) else self.run
        with self._under_way.inside() as number, face.tasks.inside():
            try:
                yield
            except Suspended:
                await self._under_way.quiet(number)
                raise

    @contextmanager
    def _inside_sync(self) -> Generator[None]:
        with self._under_way.inside() as number:
            try:
                yield
            except Suspended:
                self._under_way.wait_for_quiet(number)
                raise


class Begun:
    """A call that was started. If `is_recorded`, the framework must not make it: `recorded` is its result.

    Otherwise the framework makes the call, and the adapter ends it with one of `done`, `failed` and `not_called`.
    """

    def __init__(self, call: Call, stack: ExitStack, *, is_recorded: bool = False, recorded: Any = None) -> None:
        self.is_recorded: Final = is_recorded
        self.recorded: Final = recorded
        self._call = call
        self._stack = stack

    async def done(self, result: Any) -> Any:
        """Record the result, and return it as recorded."""
        with self._stack:
            return await end_async(self._call, result)

    async def failed(self, error: Exception) -> None:
        """Record that the call failed. `Waiting` if the declaration of its tool leaves it to a person."""
        with self._stack, _but(error):
            await end_async(self._call, error=error)

    async def not_called(self) -> None:
        """Record that the framework did not make the call."""
        with self._stack, suppress(Uncalled):
            await end_async(self._call, error=Uncalled())

    def done_sync(self, result: Any) -> Any:
        """See `done`."""
        with self._stack:
            return end(self._call, result)

    def failed_sync(self, error: Exception) -> None:
        """See `failed`."""
        with self._stack, _but(error):
            end(self._call, error=error)

    def not_called_sync(self) -> None:
        """See `not_called`."""
        with self._stack, suppress(Uncalled):
            end(self._call, error=Uncalled())


@contextmanager
def _but(error: Exception) -> Generator[None]:
    """Raise every error but this one: the framework raises it itself."""
    try:
        yield
    except Exception as raised:
        if raised is not error:
            raise


def _in_doubt(options: Mapping[str, Any]) -> str:
    """The declared decision about a call in doubt."""
    return declared("tool", _as_is, options).in_doubt


def _nothing() -> None: ...


async def _never_async(_: Any) -> None: ...
