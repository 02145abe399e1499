"""Wrap the tools of a graph with a journal: a finished call is not repeated, an interrupted one is in doubt.

After a crash LangGraph runs the interrupted node again, with every tool in it. A wrapped tool records that it is about
to be called, and its result. When it is called again for the same tool call, it returns the recorded result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, tool

from holdfast.adapters.langgraph.allowed_types import serde_for
from holdfast.adapters.langgraph.checkpoint_format import checked_thread_id, journal_name
from holdfast.adapters.langgraph.journaled_calls import (
    GraphCall,
    JournaledCall,
    WrappedTool,
    calling,
    current_call,
    injected_into,
)
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.serde import Values
from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.runs.tools import Tool, takes_key, tool_of
from holdfast.runs.tools import tool as declare_tool

_MARK: Final = "__holdfast_wrapped__"


def wrap_tools(
    tools: Iterable[BaseTool | Callable[..., Any]],
    store: Holdfast | HoldfastSaver,
    *,
    declare: Mapping[str, Mapping[str, Any]] | None = None,
    lease: float = 30.0,
    wait: float = 0.0,
    effects: Literal["live"] | None = None,
) -> list[BaseTool]:
    """Return copies of the tools whose calls are recorded in a journal, for `ToolNode` and agents.

    Declare the effect of a tool with `@holdfast.tool(…)` below `@tool`, or in `declare`, by the tool's name:
    `{"search": {"effect": "read"}}`. A tool without a declaration is irreversible. A call is identified by its thread,
    its message and its tool call id. If a call is in doubt and its policy is "ask", the graph is interrupted. So it is
    if an irreversible tool without `identity=` was called on a branch that time travel has left, with other arguments,
    unless `effects="live"` says that the calls are new ones.

    Pass the graph's saver as `store`, so that no tool acts before the checkpoint with the tool call is stored.
    LeaseHeld, before the tool acts, if another process keeps calling the thread's tools for longer than `wait` seconds.
    """
    journal = Journaling(store, declare, lease=lease, wait=wait, effects=effects)
    return [journal.wrapped(each if isinstance(each, BaseTool) else tool(each)) for each in tools]


def tools_thread(thread_id: object) -> str:
    """The name of the thread with the journal of a LangGraph thread's tools, for `hf.effects` or `hf.settle`.

    >>> tools_thread("essay")
    'essay%tools'
    """
    return journal_name(checked_thread_id(thread_id))


class Journaling:
    """Wraps tools that share a journal."""

    def __init__(
        self,
        store: Holdfast | HoldfastSaver,
        declare: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        lease: float,
        wait: float,
        effects: Literal["live"] | None,
    ) -> None:
        if effects not in (None, "live"):
            raise InvalidArgument('effects must be "live" or None')
        if isinstance(store, HoldfastSaver):
            self._saver: HoldfastSaver | None = store
            self._hf = store.hf
        elif isinstance(store, Holdfast):
            self._saver = None
            self._hf = store
        else:
            raise InvalidArgument("store must be a HoldfastSaver, or a handle of holdfast.open")
        self._options = {name: dict(options) for name, options in (declare or {}).items()}
        self._own_values = Values(serde_for(), is_default=True)
        self._lease = lease
        self._wait = wait
        self._asks = effects is None

    def wrapped(self, given: BaseTool) -> BaseTool:
        """Return a copy of the tool whose calls are recorded; the tool itself if it is wrapped already."""
        if _MARK in given.__dict__:
            return given
        copy = given.model_copy()
        kind: Any = type(given)
        wrapped = WrappedTool(
            self._hf, copy, self._declared(given), injected_into(given), self._lease, self._wait, self._asks
        )

        def journaled(call: GraphCall, act: Callable[..., Any], args: Any, kwargs: Any) -> JournaledCall:
            values = self._own_values if self._saver is None else self._saver.values
            return JournaledCall(wrapped, values, call, act, args, kwargs)

        @functools.wraps(given.run)
        def run(tool_input: Any, *args: Any, **options: Any) -> Any:
            with calling(_call_of(tool_input, options)):
                return kind.run(copy, tool_input, *args, **options)

        @functools.wraps(given.arun)
        async def arun(tool_input: Any, *args: Any, **options: Any) -> Any:
            with calling(_call_of(tool_input, options)):
                return await kind.arun(copy, tool_input, *args, **options)

        @functools.wraps(given._run)  # pyright: ignore[reportPrivateUsage] - what LangChain tools override
        def inner(*args: Any, **kwargs: Any) -> Any:
            call, act = current_call(), functools.partial(kind._run, copy)
            return act(*args, **kwargs) if call is None else journaled(call, act, args, kwargs).made()

        @functools.wraps(given._arun)  # pyright: ignore[reportPrivateUsage] - as above
        async def ainner(*args: Any, **kwargs: Any) -> Any:
            call, act = current_call(), functools.partial(kind._arun, copy)
            return await (act(*args, **kwargs) if call is None else journaled(call, act, args, kwargs).amade())

        # Between run and _run, the tool's own class validates arguments and turns results into messages.
        for name, value in {"run": run, "arun": arun, "_run": inner, "_arun": ainner, _MARK: True}.items():
            object.__setattr__(copy, name, value)  # pydantic models accept only their fields
        return copy

    def _declared(self, given: BaseTool) -> Tool:
        own = given._run  # pyright: ignore[reportPrivateUsage] - as above
        function = getattr(given, "func", None) or getattr(given, "coroutine", None) or own
        declared = tool_of(function, has_result=False)
        if (options := self._options.get(given.name)) is not None:
            if "name" in options:
                raise InvalidArgument(f"declare: the name of tool {given.name} cannot be changed")
            declared = tool_of(declare_tool(**options)(_stand_in()))
        act = declared.act
        if act is not None:
            act.require(given.args)
            act = msgspec.structs.replace(act, defaults=_defaults_of(given))
        return msgspec.structs.replace(
            declared,
            act=act,
            name=given.name,
            identity=given.name,
            takes_key=takes_key(function),
            result=None,
            is_pending=False,
        )


def _defaults_of(given: BaseTool) -> dict[str, Any]:
    """The arguments of a tool that the model may leave out."""
    schema: Any = given.get_input_schema()
    fields = schema.model_fields
    shown = {name: field for name, field in fields.items() if name in given.args and not field.is_required()}
    return {name: field.get_default(call_default_factory=True) for name, field in shown.items()}


def _stand_in() -> Callable[..., None]:
    """A function to attach a declaration to; the tool's own function may be shared or missing."""

    def called(**given: Any) -> None:
        del given

    return called


def _call_of(tool_input: Any, options: dict[str, Any]) -> GraphCall:
    return GraphCall(options.get("tool_call_id"), ensure_config(options.get("config")), tool_input)
