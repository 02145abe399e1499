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
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Self

from msgspec.structs import replace

from holdfast.adapters.seam_calls import BegunCall, Emit, OutcomeCodec, call_events, calls_of, declared, require
from holdfast.adapters.seam_modes import AWAITING, BLOCKING, Mode, as_stream, in_thread, stream_in_thread
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.codec import msgpack
from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.runs.block_end import Waiting
from holdfast.runs.call_keys import FRAMEWORK_CALLER
from holdfast.runs.calls import OnChange
from holdfast.runs.core import RunCore
from holdfast.runs.doubt import suspended_to_settle
from holdfast.runs.drivers import SCOPE, Call, Finished, current_run
from holdfast.runs.guards import WatchedCall
from holdfast.runs.identity import own_key
from holdfast.runs.results import Codec
from holdfast.runs.run import Run

__all__ = [
    "PLAIN",
    "BegunCall",
    "Codec",
    "Declarations",
    "Emit",
    "Seam",
    "approval_question",
    "call_events",
    "checked",
    "current",
    "durable_turn",
    "refusal_of",
    "require",
    "turns",
]

Declarations = Mapping[str, Mapping[str, Any]]
"""Options of `holdfast.tool` by the names of tools, and `errors`: "outcome" or "doubt"."""

_IDLE_SECONDS: Final = 60.0  # how long a turn waits for calls; after that, the save reports that calls are under way


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

    def __init__(self, run: Run | AsyncRun, mode: Mode = AWAITING) -> None:
        self.run: Final = run
        self._core: Final[RunCore] = run.core
        self._under_way = calls_of(run.core)
        self._mode: Final = mode

    @property
    def blocking(self) -> Self:
        """This seam, with coroutines that never wait: its sync verbs are made of them."""
        return type(self)(self.run, BLOCKING)

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
        body = self._mode.body(function, SCOPE.get())
        async with self._inside():
            with self._core.calls().watched("model") as watched:
                call = self._model(name, body, request, codec, on_change, watched)
                return await self._mode.drive(call)

    model_sync = in_thread(model)

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
            async with aclosing(as_stream(function())) as source:
                async for chunk in source:
                    taken.append(chunk)
                    yield chunk
            reply = final(taken)
        except Exception as error:
            await begun.failed(error)
            raise
        except BaseException:
            begun.not_called_sync()  # a stream that is left cannot wait
            raise
        await begun.done(reply)

    stream_sync = stream_in_thread(stream)

    def _model(
        self,
        name: str,
        body: Callable[..., Any],
        request: Any,
        codec: Codec | None,
        on_change: OnChange,
        watched: WatchedCall | None = None,
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
            caller=FRAMEWORK_CALLER,
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
        `said(result)`.

        With `caught`, an exception becomes the value to record, unless the tool is declared with `errors="doubt"`.
        Without it, the exception of a tool that is declared with `errors="outcome"` is recorded, and raised each time,
        unless `not_done=` or `retry=` is declared for it.
        Any other exception is handled as in `run.tool`.

        If the call has to wait for a person, no new call starts, those under way end, and then `Waiting` is raised.
        """
        outcome = OutcomeCodec(codec)
        async with self._inside():
            with self._core.calls().watched("tool") as watched:
                call = self._tool(name, function, arguments, key, declare, outcome, caught, watched)
                result = await self._mode.drive(call)
        outcome.raise_error()
        return result if outcome.is_loaded else said(result)

    tool_sync = in_thread(tool)

    def _tool(
        self,
        name: str,
        function: Callable[[], Any],
        arguments: Mapping[str, Any],
        key: str,
        declare: Declarations | None,
        outcome: OutcomeCodec,
        caught: Callable[[Exception], Any] | None = None,
        watched: WatchedCall | None = None,
    ) -> Call:
        options = (declare or {}).get(name, {})
        key = self._under_way.own_key(self._core.step, name, key)
        match options.get("errors"):
            case "doubt":
                caught = None
            case "outcome" if caught is None:
                caught = partial(outcome.caught, declared(name, _as_is, options))
            case _:
                pass
        body = self._mode.body(function, f"{SCOPE.get()}{name}:{key}/", caught)
        chosen = replace(declared(name, body, options), result=outcome)
        return self._core.calls().tool(chosen, arguments, key, caller=FRAMEWORK_CALLER, watched=watched)

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
            first, *others = map(suspended_to_settle, found)
            first.more_entries = tuple(entry for each in others for entry in each.entries)
            raise context.suspend(first)

    def accept(self, keys: Collection[str]) -> None:
        """Count calls of earlier processes as asked for: the framework has their results and does not ask again."""
        journal = self._core.calls().context.journal
        journal.accept_unrepeated([row for row in journal.unrepeated() if own_key(row.key) in keys])

    # -- calls in two parts: for frameworks with hooks before and after a call ------------------------------------

    async def begin_model(
        self, name: str, *, request: Any, codec: Codec | None = PLAIN, on_change: OnChange = "recorded"
    ) -> BegunCall:
        """Start a model call that the framework makes itself: see `BegunCall`."""
        call = self._model(name, self._mode.body(_nothing, ""), request, codec, on_change)
        return await self._begun(call)

    begin_model_sync = in_thread(begin_model)

    async def begin_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        declare: Declarations | None = None,
        codec: Codec = PLAIN,
        said: Callable[[Any], Any] = _as_is,
    ) -> BegunCall:
        """Start a tool call that the framework makes itself: see `BegunCall`. A probe is called here."""
        outcome = OutcomeCodec(codec)
        call = self._tool(name, _nothing, arguments, key, declare, outcome)
        return await self._begun(call, lambda result: result if outcome.is_loaded else said(result))

    begin_tool_sync = in_thread(begin_tool)

    async def _begun(self, call: Call, result_of: Callable[[Any], Any] = _as_is) -> BegunCall:
        async with self._inside():
            state = await self._mode.begin(call)
            if isinstance(state, Finished):
                return BegunCall(call, self._mode, ExitStack(), is_recorded=True, recorded=result_of(state.result))
            stack = ExitStack()
            stack.callback(self._under_way.end, self._under_way.start())
            return BegunCall(call, self._mode, stack)

    @contextmanager
    def nested(self, name: str, key: str) -> Generator[None]:
        """A scope for an agent that another one calls as a tool. The call itself is not recorded, those inside are."""
        with self.run.scope(f"{name}:{self._under_way.own_key(self._core.step, name, key)}"):
            yield

    def new_id(self, what: str) -> str:
        """A text that differs each time, and is the same after a restart: for the ids that a framework makes."""
        number = self._under_way.count(self._core.step, SCOPE.get(), "", what)
        return f"{self._core.thread}:{self._core.step}:{SCOPE.get()}{what}:{number}"

    # -- turns ----------------------------------------------------------------------------------------------------

    async def turn(self, agent: object, state: Callable[[], Mapping[str, Any]]) -> None:
        """Close the open step before a model call of an agent in a block of `turns()`; elsewhere do nothing.

        `state` returns what to put into the state of the run: the messages so far, as plain data. Only the first
        `agent` that is passed in the block has turns. An agent inside a tool has none.
        """
        block = _turns.get()
        if block is None or block.run.core is not self._core or SCOPE.get() != block.scope:
            return
        if not block.is_next(agent):
            return
        await self._mode.poll(lambda: self._under_way.is_idle, _IDLE_SECONDS)  # a guardrail may have its own model call
        self.run.state.update(state())
        with self._mode.inside(self.run):
            await self._mode.work(self._core.prepare_save())

    turn_sync = in_thread(turn)

    # -- questions ------------------------------------------------------------------------------------------------

    async def ask(self, questions: Iterable[tuple[str, Any]]) -> list[Any]:
        """Ask questions, all at once, each a name and a payload, and return the answers. `Waiting` if one is missing.

        Each question has its own answer: names that repeat are numbered, as in "approve c1 (2)".
        """
        answers: list[Any] = []
        waiting: Waiting | None = None
        for name, payload in questions:
            try:
                with self._mode.inside(self.run):
                    wait = partial(self._core.calls().wait, self._own_name(name), payload, None)
                    answers.append(await self._mode.work(wait))
            except Waiting as asked:
                waiting = asked
        if waiting is not None:
            raise waiting
        return answers

    ask_sync = in_thread(ask)

    def _own_name(self, name: str) -> str:
        """The name of a question that no other one in the step has, in any scope."""
        number = self._under_way.count(self._core.step, "run.wait", name)
        return name if number == 1 else self._own_name(f"{name} ({number})")

    async def refusals(self, calls: Iterable[tuple[str, str, Any]]) -> list[str | None]:
        """Ask about calls that need approval, all at once, and return why each is refused; None if it is approved.

        A call is its id, its tool and its arguments.
        """
        return list(map(refusal_of, await self.ask(approval_question(*call) for call in calls)))

    refusals_sync = in_thread(refusals)

    # -- suspension -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _inside(self) -> AsyncGenerator[None]:
        with self._under_way.inside() as number, self._mode.inside(self.run):
            try:
                yield
            except Waiting:
                await self._mode.poll(lambda: self._under_way.is_quiet(number))
                raise


def approval_question(call_id: str, tool: str, arguments: Any) -> tuple[str, Any]:
    """The question about a call that needs approval, "approve ID". The answer is True, or a text that says why not."""
    return f"approve {call_id}", {"tool": tool, "arguments": arguments}


def refusal_of(answer: Any) -> str | None:
    """The reason why a call is refused; None if it is approved. Only True approves it."""
    return None if answer is True else str(answer or "The call was not approved.")


def _in_doubt(options: Mapping[str, Any]) -> str:
    """The declared decision about a call in doubt."""
    return declared("tool", _as_is, options).in_doubt


def _nothing() -> None: ...


# -- turns -------------------------------------------------------------------------------------------------------------


class Turns:
    """A block in which an agent's model turns are steps."""

    def __init__(self, run: Run | AsyncRun) -> None:
        self.run: Final = run
        self.scope: Final = SCOPE.get()
        self._agent: object = None

    def is_next(self, agent: object) -> bool:
        """Whether this is the agent of the block, and its first turn was before."""
        if self._agent is None:
            self._agent = agent
            return False
        return self._agent == agent


_turns: Final[ContextVar[Turns | None]] = ContextVar("holdfast_turns", default=None)


@contextmanager
def turns() -> Generator[None]:
    """A block in which each model turn of an agent ends with a checkpoint, which has the messages so far.

    So the thread's history shows the conversation turn by turn, and it can be forked at a turn or rewound to it. After
    a crash the run resumes from before the block, and the calls are answered from the journal.
    """
    run = current_run()
    if run is None or type(run.state) is not dict:
        raise InvalidArgument("turns() needs a run whose state is a dict")
    token = _turns.set(Turns(run))
    try:
        yield
    finally:
        _turns.reset(token)


async def durable_turn(
    hf: Holdfast | AsyncHoldfast,
    thread: str,
    turn: str | None,
    agent: str | None,
    body: Callable[[AsyncRun], Awaitable[Any]],
) -> Any:
    """Run `body` in a run of the thread, and return what it returns: plain data, recorded as the result of the run.

    `Unfinished` if the run waits for a person. The same call resumes it, also in another process, and returns the
    recorded result when the run is completed.
    """
    aio = hf.aio if isinstance(hf, Holdfast) else hf
    async with aio.run(thread, start={"messages": []}, turn=turn, agent=agent) as run:
        async for _ in run.steps():
            with turns():
                result = await body(run)
            await run.finish(result)
    return run.result if run.status == "completed" else await aio.result(thread, turn=turn)
