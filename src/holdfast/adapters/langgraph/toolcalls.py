"""One call of a tool of a graph: what it is found by, what is recorded of it, and who is asked when it is in doubt."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

import msgspec
from langchain_core.messages import AIMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from holdfast.adapters.langgraph.journaling import Unsettled, desks
from holdfast.adapters.langgraph.naming import namespace_of, thread_id_of
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.track import Track
from holdfast.adapters.langgraph.values import from_plain, to_plain
from holdfast.adapters.shared_run import Asked
from holdfast.aio.executor import to_the_end
from holdfast.codec import msgpack
from holdfast.errors import Conflict, HoldfastError, InvalidArgument, Unsupported
from holdfast.handle import Holdfast
from holdfast.runs.drivers import Uncalled, is_async
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome, Tool

_POLL_SECONDS: Final = 0.005
_PATIENCE: Final = 10.0  # seconds in which a checkpoint that is being stored is there
_PATIENCE_BELOW: Final = 1.0  # a subgraph may have none
# Where LangGraph tells a task of its surroundings.
_READ: Final = "__pregel_read"
_DURABILITY: Final = "__pregel_durability"
_CHECKPOINTER: Final = "__pregel_checkpointer"
_CHECKPOINTS: Final = "checkpoint_map"
_BETWEEN: Final = "|"


class Noted(msgspec.Struct, frozen=True):
    """A call as LangChain makes it, until the tool's function is reached."""

    id: str | None
    config: RunnableConfig
    given: Any


class _Now:
    """The call that this task is about to make."""

    def __init__(self) -> None:
        self._noted: ContextVar[Noted | None] = ContextVar("holdfast_tool_call", default=None)

    def noted(self) -> Noted | None:
        return self._noted.get()

    @contextmanager
    def noting(self, noted: Noted | None) -> Generator[None]:
        token = self._noted.set(noted)
        try:
            yield
        finally:
            self._noted.reset(token)


now: Final = _Now()


class Journaled:
    """A call whose arguments were checked, and that is made once."""

    def __init__(
        self,
        hf: Holdfast,
        serde: SerializerProtocol,
        tool: BaseTool,
        declared: Tool,
        injected: frozenset[str],
        noted: Noted,
        act: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        lease: float,
        wait: float,
    ) -> None:
        """`act` is the tool's function, which takes `args` and `kwargs`."""
        if not noted.id:
            raise InvalidArgument(
                f"{tool.name} was called without a tool call id, by which it is found again; nothing was done. "
                "Call the tool that was wrapped instead, if it need not be"
            )
        self._hf = hf
        self._serde = serde
        self._tool = tool
        self._declared = declared
        self._noted = noted
        self._act = functools.partial(act, *args)
        self._kwargs = kwargs
        self._wait = wait
        self._bubbling: GraphBubbleUp | None = None
        self._desk = desks.of(hf._session, thread_id_of(noted.config), lease)
        self._given = _given_by_model(noted.given, injected)
        self._key = _key(noted.config, noted.id)

    def made(self) -> Any:
        """What the tool gives, now or when it was called before."""
        if is_async(self._declared.probe or _nothing):
            raise InvalidArgument(f"the probe of {self._tool.name} has to be awaited; use ainvoke or astream")
        awaited = self._awaited()
        while awaited is not None and not awaited.is_stored():
            time.sleep(_POLL_SECONDS)
        declared = msgspec.structs.replace(self._declared, function=self._acting)
        while True:
            try:
                return self._result(self._desk.call(declared, self._given, self._key, self._wait))
            except Uncalled as ended:
                raise self._bubbling or ended from None
            except Unsettled as unsettled:
                asked = unsettled.asked
            for effect, outcome in self._answers(asked):
                with suppress(Conflict):  # somebody else has said it meanwhile
                    self._hf.settle(self._desk.name, effect, outcome)

    async def amade(self) -> Any:
        """As `made`, of a tool that is awaited."""
        awaited = self._awaited()
        while awaited is not None and not await to_the_end(awaited.is_stored):  # noqa: ASYNC110 - it is in the store
            await asyncio.sleep(_POLL_SECONDS)
        declared = msgspec.structs.replace(self._declared, function=self._aacting)
        while True:
            try:
                return self._result(await self._desk.acall(declared, self._given, self._key, self._wait))
            except Uncalled as ended:
                raise self._bubbling or ended from None
            except Unsettled as unsettled:
                asked = unsettled.asked
            for effect, outcome in self._answers(asked):
                with suppress(Conflict):
                    await to_the_end(functools.partial(self._hf.settle, self._desk.name, effect, outcome))

    # -- the call ---------------------------------------------------------------------------------------------------

    def _acting(self, **given: Any) -> Any:
        key = self._taken_key(given)
        with now.noting(None), self._interruptible():
            if given == self._given:
                return self._recorded(self._act(**self._kwargs, **key))
            return self._recorded(self._tool.run(**self._other(given, key)))

    async def _aacting(self, **given: Any) -> Any:
        key = self._taken_key(given)
        with now.noting(None), self._interruptible():
            if given == self._given:
                return self._recorded(await self._act(**self._kwargs, **key))
            return self._recorded(await self._tool.arun(**self._other(given, key)))

    @contextmanager
    def _interruptible(self) -> Generator[None]:
        """A tool that interrupts the graph is run again from its beginning, by LangGraph's rules: it was not called.

        What it asks is LangGraph's to keep, and no part of the journal.
        """
        try:
            yield
        except GraphBubbleUp as bubbling:
            self._bubbling = bubbling
            raise Uncalled from None

    def _taken_key(self, given: dict[str, Any]) -> dict[str, Any]:
        self._kwargs.pop("idempotency_key", None) if self._declared.takes_key else None
        return {"idempotency_key": given.pop("idempotency_key")} if self._declared.takes_key else {}

    def _other(self, given: dict[str, Any], key: dict[str, Any]) -> dict[str, Any]:
        """How the call that is in doubt is made again, where the model's words for it were changed since."""
        return {"tool_input": {**self._noted.given, **given, **key}, "config": self._noted.config}

    def _recorded(self, result: Any) -> Any:
        """What is recorded of a result."""
        if self._has_artifact and isinstance(result, tuple) and len(result) == 2:
            content, artifact = result
            kept: Any = {"content": _content(content), "artifact": artifact}
        else:
            kept = _content(result)
        try:
            return to_plain(self._serde, kept, f"tool.{self._tool.name}")
        except Unsupported:
            return kept  # the journal refuses it, and says that the tool was called

    def _result(self, recorded: Any) -> Any:
        """What the tool gave, from what was recorded of it, or said by somebody who was asked."""
        result = from_plain(self._serde, recorded, f"tool.{self._tool.name}")
        if not self._has_artifact:
            return result
        if isinstance(result, dict) and result.keys() == {"content", "artifact"}:
            return result["content"], result["artifact"]
        return result, None

    @property
    def _has_artifact(self) -> bool:
        return self._tool.response_format == "content_and_artifact"

    # -- in doubt ---------------------------------------------------------------------------------------------------

    def _answers(self, asked: Asked) -> Iterator[tuple[int, Outcome]]:
        """What somebody says of the call, by the graph's interrupt; of another call in doubt, too, if they name it."""
        question: dict[str, Any] = {
            "question": "in doubt",
            "thread": self._desk.name,
            "effect": asked.number,
            "tool": asked.name,
            "arguments": asked.arguments,
            "answers": ["happened", "not_done", "give_up"],
        }
        while True:
            answer = interrupt(question)
            try:
                effect, outcome = _parsed(answer)
            except InvalidArgument as refused:
                question = {**question, "problem": str(refused)}
                continue
            yield effect, outcome
            if effect == asked.number:
                return

    # -- the checkpoint that asked for it ---------------------------------------------------------------------------

    def _awaited(self) -> _Awaited | None:
        """The checkpoint that has the tool call in it, if it may not be stored yet.

        With durability="async" LangGraph stores it while it calls the tool. Killed before that is done, it would ask
        the model again, and nobody could tell that what it then asks for was done.
        """
        if self._declared.effect == "read":
            return None
        said: Mapping[str, Any] = self._noted.config.get("configurable", {})
        if said.get(_DURABILITY) == "exit":
            raise InvalidArgument(
                f'{self._tool.name} was not called: with durability="exit" nothing is stored that it could be found '
                'by after a crash; use "sync" or "async"'
            )
        saver = said.get(_CHECKPOINTER)
        namespace = namespace_of(self._noted.config).rpartition(_BETWEEN)[0]
        checkpoint = (said.get(_CHECKPOINTS) or {}).get(namespace)
        if not isinstance(saver, HoldfastSaver) or checkpoint is None:
            return None
        return _Awaited(saver._core.track(thread_id_of(self._noted.config), namespace), checkpoint, self._tool.name)


class _Awaited:
    """A checkpoint that is being stored."""

    def __init__(self, track: Track, id: str, tool: str) -> None:
        self._track = track
        self._id = id
        self._tool = tool
        self._deadline = time.monotonic() + (_PATIENCE_BELOW if track.namespace else _PATIENCE)

    def is_stored(self) -> bool:
        """Whether it is, or will not be: a subgraph may have no checkpoints. HoldfastError if it has to be."""
        with self._track.line:
            if self._track.row_of(self._track.look(), self._id) is not None:
                return True
        is_late = time.monotonic() > self._deadline
        if is_late and not self._track.namespace:
            raise HoldfastError(f"{self._tool} was not called: the checkpoint that asks for it is not stored")
        return is_late


def injected_into(tool: BaseTool) -> frozenset[str]:
    """The arguments that LangGraph adds to those of the model."""
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
    """What a call is found by: the message that asked for it, as ids of calls may begin anew with each message."""
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
    """A result as LangChain makes the content of a message of it, if it cannot be kept as it is."""
    outputs = result if isinstance(result, list) and result else [result]
    if all(isinstance(each, ToolOutputMixin) for each in outputs) or _is_plain(result):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except Exception:  # noqa: BLE001 - whatever an object raises that is no JSON
        return str(result)


def _parsed(answer: Any) -> tuple[int, Outcome]:
    """What was said of a call, and of which."""
    if not isinstance(answer, dict) or type(answer.get("effect")) is not int:
        raise InvalidArgument(
            'answer with {"effect": its number, "outcome": …}, so that it is not said of another call'
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
            raise InvalidArgument('the outcome is "happened", with a "result", "not_done" or "give_up"')


def _nothing() -> None: ...
