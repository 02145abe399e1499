"""Tools of a graph with the rules of a run: what was finished is not called again, what was in flight is in doubt.

LangGraph runs a node that was cut off again, and every tool in it. A tool that is wrapped here writes down that it is
about to be called, and what it gave; called again for the same tool call, it gives that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.allowing import serde_for
from holdfast.adapters.langgraph.naming import checked_thread_id, journal_name
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.toolcalls import Journaled, Noted, injected_into, now
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
) -> list[BaseTool]:
    """The tools with a journal, for `ToolNode` and whatever makes one. The given ones stay as they are.

    What a tool does to the world is said with `@holdfast.tool(…)` below `@tool`, or in `declare`, by the tool's name:
    `{"search": {"effect": "read"}}`. One that nobody declared anything about is irreversible. A call is found again by
    its thread, its message and its tool call id. In doubt, with the policy "ask", the graph is interrupted.

    Give the graph's saver: then no tool acts before the checkpoint that asked for it is stored. LeaseHeld, before it
    acts, if another process has been calling tools of the thread for longer than `wait` seconds.
    """
    journal = Journaling(store, declare, lease=lease, wait=wait)
    return [journal.wrapped(each if isinstance(each, BaseTool) else tool(each)) for each in tools]


def tools_thread(thread_id: object) -> str:
    """The thread that holds the journal of a LangGraph thread's tools, for `hf.effects`, `hf.settle` and the like.

    >>> tools_thread("essay")
    'essay%tools'
    """
    return journal_name(checked_thread_id(thread_id))


class Journaling:
    """Wraps tools, with what they share."""

    def __init__(
        self,
        store: Holdfast | HoldfastSaver,
        declare: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        lease: float,
        wait: float,
    ) -> None:
        if isinstance(store, HoldfastSaver):
            self._saver: HoldfastSaver | None = store
            self._hf = store.hf
        elif isinstance(store, Holdfast):
            self._saver = None
            self._hf = store
        else:
            raise InvalidArgument("the journal of tools is kept by a HoldfastSaver, or a handle of holdfast.open")
        self._options = {name: dict(options) for name, options in (declare or {}).items()}
        self._own_serde: SerializerProtocol = serde_for(())
        self._lease = lease
        self._wait = wait

    def wrapped(self, given: BaseTool) -> BaseTool:
        """A copy of the tool whose calls are journaled; the tool itself if they are."""
        if _MARK in given.__dict__:
            return given
        copy = given.model_copy()
        kind: Any = type(given)
        declared = self._declared(given)
        injected = injected_into(given)

        def journaled(noted: Noted, act: Callable[..., Any], args: Any, kwargs: Any) -> Journaled:
            serde = self._own_serde if self._saver is None else self._saver.serde
            return Journaled(
                self._hf, serde, copy, declared, injected, noted, act, args, kwargs, lease=self._lease, wait=self._wait
            )

        @functools.wraps(given.run)
        def run(tool_input: Any, *args: Any, **options: Any) -> Any:
            with now.noting(_noted(tool_input, options)):
                return kind.run(copy, tool_input, *args, **options)

        @functools.wraps(given.arun)
        async def arun(tool_input: Any, *args: Any, **options: Any) -> Any:
            with now.noting(_noted(tool_input, options)):
                return await kind.arun(copy, tool_input, *args, **options)

        @functools.wraps(given._run)
        def inner(*args: Any, **kwargs: Any) -> Any:
            noted = now.noted()
            act = functools.partial(kind._run, copy)
            return act(*args, **kwargs) if noted is None else journaled(noted, act, args, kwargs).made()

        @functools.wraps(given._arun)
        async def ainner(*args: Any, **kwargs: Any) -> Any:
            noted = now.noted()
            act = functools.partial(kind._arun, copy)
            return await (act(*args, **kwargs) if noted is None else journaled(noted, act, args, kwargs).amade())

        # Between the outer and the inner ones, the tool's own class checks arguments and makes messages of results.
        for name, value in {"run": run, "arun": arun, "_run": inner, "_arun": ainner, _MARK: True}.items():
            object.__setattr__(copy, name, value)  # a model of pydantic's takes no others than its fields
        return copy

    def _declared(self, given: BaseTool) -> Tool:
        function = getattr(given, "func", None) or getattr(given, "coroutine", None) or given._run
        declared = tool_of(function)
        if (options := self._options.get(given.name)) is not None:
            if "name" in options:
                raise InvalidArgument(f"declare: the tool {given.name} has its name already")
            declared = tool_of(declare_tool(**options)(_stand_in()))
        return msgspec.structs.replace(declared, name=given.name, takes_key=takes_key(function))


def _stand_in() -> Callable[..., None]:
    """A function to declare something about, where the tool's own may be shared, or none."""

    def called(**given: Any) -> None:
        del given

    return called


def _noted(tool_input: Any, options: dict[str, Any]) -> Noted:
    return Noted(options.get("tool_call_id"), ensure_config(options.get("config")), tool_input)
