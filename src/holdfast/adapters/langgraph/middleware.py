"""Middleware for LangChain agents that records tool calls in a journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.tool_wrapper import Journaling
from holdfast.handle import Holdfast

_KNOWN_MAX: Final = 256  # a limit, because tools may be created for each call


class HoldfastTools(AgentMiddleware[Any, Any, Any]):
    """Record all tool calls of an agent: `create_agent(…, middleware=[HoldfastTools(saver)])`.

    See `wrap_tools` for the effect and the arguments. Put it last in the list, so that other middleware, such as
    retries, is around it.
    """

    def __init__(
        self,
        store: Holdfast | HoldfastSaver,
        *,
        declare: Mapping[str, Mapping[str, Any]] | None = None,
        lease: float = 30.0,
        wait: float = 0.0,
        effects: Literal["live"] | None = None,
    ) -> None:
        super().__init__()
        self._journaling = Journaling(store, declare, lease=lease, wait=wait, effects=effects)
        self._known: dict[int, tuple[BaseTool, BaseTool]] = {}

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        return handler(self._wrapped(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        return await handler(self._wrapped(request))

    def _wrapped(self, request: ToolCallRequest) -> ToolCallRequest:
        tool = request.tool
        if tool is None:
            return request
        given, wrapped = self._known.get(id(tool), (None, None))
        if given is not tool or wrapped is None:
            wrapped = self._journaling.wrapped(tool)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[id(tool)] = (tool, wrapped)
        return request.override(tool=wrapped)
