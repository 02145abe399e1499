"""One tool call of a graph: the journal of its thread, its result or its question."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec
from langchain_core.messages import AIMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from holdfast.adapters.langgraph.records import namespace_of, thread_id_of
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.serde import Values
from holdfast.adapters.langgraph.shared_run import Asked
from holdfast.adapters.langgraph.tool_journal import (
    CHECKPOINTER,
    CHECKPOINTS,
    POLL_SECONDS,
    Awaited,
    Awaiting,
    Blocking,
    Unsettled,
    desks,
    lineage_of,
)
from holdfast.codec import msgpack
from holdfast.errors import Conflict, InvalidArgument, Unsupported
from holdfast.handle import Holdfast
from holdfast.runs.drivers import Uncalled, is_async
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome, Tool

# Keys of LangGraph's config for a task.
_READ: Final = "__pregel_read"
_DURABILITY: Final = "__pregel_durability"
_BETWEEN: Final = "|"


class ToolCall(msgspec.Struct, frozen=True):
    """A call as LangChain makes it: its id, config and input."""

    id: str | None
    config: RunnableConfig
    given: Any


_current: Final[ContextVar[ToolCall | None]] = ContextVar("holdfast_tool_call", default=None)


def current_call() -> ToolCall | None:
    """The call that the current task is making."""
    return _current.get()


@contextmanager
def calling(call: ToolCall | None) -> Generator[None]:
    """Note the call that the current task is making."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


class WrappedTool(msgspec.Struct, frozen=True):
    """A tool whose calls are recorded. `injected` are its arguments that LangGraph adds to those of the model.

    `asks`: whether a call that may repeat one of an abandoned branch is asked about.
    """

    hf: Holdfast
    tool: BaseTool
    declared: Tool
    injected: frozenset[str]
    lease: float
    wait: float
    asks: bool


class JournaledCall:
    """A call with validated arguments, which is made once."""

    def __init__(
        self,
        wrapped: WrappedTool,
        values: Values,
        call: ToolCall,
        act: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """`act` is the tool's function, to be called with `args` and `kwargs`."""
        if not call.id:
            raise InvalidArgument(
                f"{wrapped.tool.name} was called without a tool call id, so it could not be recorded; nothing was "
                "done. Call the original tool if the call need not be recorded."
            )
        self._hf = wrapped.hf
        self._values = values
        self._tool = wrapped.tool
        self._declared = wrapped.declared
        self._config = call.config
        self._act = functools.partial(act, *args)
        self._kwargs = kwargs
        self._wait = wrapped.wait
        self._bubbling: GraphBubbleUp | None = None
        self._problem: str | None = None  # why the last answer was refused
        self._desk = desks.of(wrapped.hf.context, thread_id_of(call.config), wrapped.lease)
        self._given = _given_by_model(call.given, wrapped.injected)
        self._key = _key(call.config, call.id)
        self._lineage = lineage_of(call.config) if wrapped.asks else None

    def made(self) -> Any:
        """Return the result of the tool: the recorded one, or that of a call made now."""
        if is_async(self._declared.probe or _nothing):
            raise InvalidArgument(f"the probe of {self._tool.name} is async; use ainvoke or astream")
        driver = Blocking()
        return driver.run(self._made(driver, msgspec.structs.replace(self._declared, function=self._acting)))

    async def amade(self) -> Any:
        """The same as `made`, for an async call."""
        in_thread = runs_in_thread(self._tool)
        declared = msgspec.structs.replace(self._declared, function=self._aacting, in_thread=in_thread)
        return await self._made(Awaiting(), declared)

    async def _made(self, driver: Blocking, declared: Tool) -> Any:
        awaited = self._awaited()
        while awaited is not None and not await driver.do(awaited.is_stored):
            await driver.sleep(POLL_SECONDS)
        while True:
            try:
                made = await self._desk.call(driver, declared, self._given, self._key, self._wait, self._lineage)
                return self._result(made)
            except Uncalled as ended:
                raise self._bubbling or ended from None
            except Unsettled as unsettled:
                asked = unsettled.asked
            for effect, outcome, force in self._answers(asked):
                try:
                    await driver.do(functools.partial(self._hf.settle, self._desk.name, effect, outcome, force=force))
                except Conflict as refused:  # it was settled elsewhere meanwhile, or may still act
                    self._problem = str(refused)

    # -- the call ---------------------------------------------------------------------------------------------------

    def _acting(self, **given: Any) -> Any:
        key = self._taken_key(given)
        with calling(None), self._interruptible():
            return self._recorded(self._act(**self._kwargs, **key))

    async def _aacting(self, **given: Any) -> Any:
        key = self._taken_key(given)
        with calling(None), self._interruptible():
            return self._recorded(await self._act(**self._kwargs, **key))

    @contextmanager
    def _interruptible(self) -> Generator[None]:
        """Treat a tool that interrupts the graph as not called: LangGraph runs it again from its start.

        LangGraph stores its question; the journal does not.
        """
        try:
            yield
        except GraphBubbleUp as bubbling:
            self._bubbling = bubbling
            raise Uncalled from None

    def _taken_key(self, given: dict[str, Any]) -> dict[str, Any]:
        self._kwargs.pop("idempotency_key", None) if self._declared.takes_key else None
        return {"idempotency_key": given.pop("idempotency_key")} if self._declared.takes_key else {}

    def _recorded(self, result: Any) -> Any:
        """Convert a result to the form that is recorded."""
        if self._has_artifact and isinstance(result, tuple) and len(result) == 2:
            content, artifact = result
            kept: Any = {"content": _content(content), "artifact": artifact}
        else:
            kept = _content(result)
        try:
            return self._values.to_plain(kept, f"tool.{self._tool.name}")
        except Unsupported:
            return kept  # the journal rejects it, and its error says that the tool was called

    def _result(self, recorded: Any) -> Any:
        """Convert a recorded result, or the result in an answer, back."""
        result = self._values.from_plain(recorded, f"tool.{self._tool.name}")
        if not self._has_artifact:
            return result
        if isinstance(result, dict) and result.keys() == {"content", "artifact"}:
            return result["content"], result["artifact"]
        return result, None

    @property
    def _has_artifact(self) -> bool:
        return self._tool.response_format == "content_and_artifact"

    # -- in doubt ---------------------------------------------------------------------------------------------------

    def _answers(self, asked: Asked) -> Iterator[tuple[int, Outcome, bool]]:
        """Interrupt the graph to ask for the outcome of a call, or whether to make it.

        The answer may also settle another call in doubt.
        """
        question: dict[str, Any] = {
            "question": "in doubt",
            "thread": self._desk.name,
            "effect": asked.number,
            "tool": asked.name,
            "arguments": asked.arguments,
            "answers": ["happened", "not_done", "give_up"],
        }
        if asked.may_repeat:
            question = {**question, "question": "may repeat", "reason": asked.reason}
        if self._problem is not None:
            question = {**question, "problem": self._problem}
        while True:
            answer = interrupt(question)
            try:
                effect, outcome = _parsed(answer)
            except InvalidArgument as refused:
                question = {**question, "problem": str(refused)}
                continue
            yield effect, outcome, isinstance(answer, dict) and answer.get("force") is True
            if effect == asked.number:
                return

    # -- the checkpoint with the tool call --------------------------------------------------------------------------

    def _awaited(self) -> Awaited | None:
        """The checkpoint that contains the tool call, if it may not be stored yet.

        With durability="async" LangGraph stores the checkpoint while it calls the tool. After a crash in between, it
        would ask the model again, and the new tool call would not be recognised as the one already made.
        """
        if self._declared.effect == "read":
            return None
        said: Mapping[str, Any] = self._config.get("configurable", {})
        if said.get(_DURABILITY) == "exit":
            raise InvalidArgument(
                f'{self._tool.name} was not called: with durability="exit" the call could be repeated after a crash. '
                'Use "sync" or "async".'
            )
        saver = said.get(CHECKPOINTER)
        namespace = namespace_of(self._config).rpartition(_BETWEEN)[0]
        checkpoint = (said.get(CHECKPOINTS) or {}).get(namespace)
        if not isinstance(saver, HoldfastSaver) or checkpoint is None:
            return None
        return Awaited(saver.core.thread(thread_id_of(self._config), namespace), checkpoint, self._tool.name)


def injected_into(tool: BaseTool) -> frozenset[str]:
    """The names of the arguments that LangGraph adds to those of the model."""
    schema: Any = tool.get_input_schema()
    return frozenset(schema.model_fields) - frozenset(tool.args)


def _given_by_model(given: Any, injected: frozenset[str]) -> dict[str, Any]:
    """The arguments that the model wrote."""
    if not isinstance(given, dict):
        return {"input": given}
    return {name: value for name, value in given.items() if name not in injected and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    try:
        msgpack.check(value)
    except Unsupported:
        return False
    return True


def _key(config: RunnableConfig, id: str) -> str:
    """The key of a call in the journal. It includes the message id: call ids may repeat from message to message."""
    said = config.get("configurable", {})
    read = said.get(_READ)
    seen: tuple[Any, ...] = getattr(read, "args", ())
    values: Any = read(list(seen[1]), False) if read is not None and len(seen) > 1 else {}
    for value in values.values() if isinstance(values, dict) else ():
        for message in reversed(value) if isinstance(value, list) else ():
            if isinstance(message, AIMessage) and message.id and any(call["id"] == id for call in message.tool_calls):
                return f"{message.id}/{id}"
    return f"{namespace_of(config)}/{id}"


def _content(result: Any) -> Any:
    """A result that can be recorded: as it is, or converted as LangChain does for the content of a message."""
    outputs = result if isinstance(result, list) and result else [result]
    if all(isinstance(each, ToolOutputMixin) for each in outputs) or _is_plain(result):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except Exception:  # noqa: BLE001 - an object may raise anything
        return str(result)


def runs_in_thread(tool: BaseTool) -> bool:
    """Whether `ainvoke` calls a sync function in a thread, because the tool has no async one."""
    coroutine: Any = getattr(tool, "coroutine", _nothing)
    if coroutine is not _nothing:  # a tool that was made from functions
        return coroutine is None
    return not any("_arun" in vars(kind) for kind in type(tool).__mro__[: type(tool).__mro__.index(BaseTool)])


def _parsed(answer: Any) -> tuple[int, Outcome]:
    """Parse an answer: the number of the call, and its outcome."""
    if not isinstance(answer, dict) or type(answer.get("effect")) is not int:
        raise InvalidArgument(
            'answer with {"effect": number, "outcome": …}; the number ensures that the answer is for this call'
        )
    effect = answer["effect"]
    match answer.get("outcome"):
        case "happened":
            msgpack.check(answer.get("result"))
            return effect, Happened(answer.get("result"))
        case "not_done":
            return effect, NotDone()
        case "give_up":
            return effect, GiveUp()
        case _:
            raise InvalidArgument('outcome must be "happened" (with a "result"), "not_done" or "give_up"')


def _nothing() -> None: ...
