"""Tools of Google ADK whose calls are recorded in the current run."""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Final

from google.adk.events.event_actions import EventActions
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow._base_node import BaseNode
from pydantic_core import to_jsonable_python

from holdfast.adapters.seam import Codec, Declarations, Seam, current
from holdfast.codec import msgpack
from holdfast.errors import Unsupported

_ORIGINAL: Final = "holdfast_original"  # attributes of durable tools
_DECLARE: Final = "holdfast_declare"
_classes: dict[type[Any], type[Any]] = {}


def durable_tool(tool: Any, declare: Declarations) -> Any:
    """A copy of an entry of an agent's `tools` whose calls are recorded: a function, a tool or a toolset."""
    tool = getattr(tool, _ORIGINAL, tool)
    if isinstance(tool, BaseNode):
        return tool  # its agents have durable models and tools themselves
    if not isinstance(tool, BaseTool | BaseToolset):
        tool = FunctionTool(func=tool)
    kind = type(tool)
    if kind not in _classes:
        _classes[kind] = _toolset_class(kind) if isinstance(tool, BaseToolset) else _tool_class(kind)
    made = copy.copy(tool)
    made.__class__ = _classes[kind]
    setattr(made, _ORIGINAL, tool)
    setattr(made, _DECLARE, declare)
    return made


def _toolset_class(kind: type[Any]) -> type[Any]:
    class Durable(kind):  # type: ignore[misc]  # a class that is only known at run time
        async def get_tools_with_prefix(self, readonly_context: Any = None) -> list[Any]:
            found = await super().get_tools_with_prefix(readonly_context)
            return [durable_tool(tool, getattr(self, _DECLARE)) for tool in found]

    Durable.__name__, Durable.__qualname__ = kind.__name__, kind.__qualname__
    return Durable


def _tool_class(kind: type[Any]) -> type[Any]:
    class Durable(kind):  # type: ignore[misc]  # as above
        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
            seam = current()
            if seam is None:
                return await super().run_async(args=args, tool_context=tool_context)
            call: Any = partial(super().run_async, args=args, tool_context=tool_context)
            if isinstance(self, AgentTool) and self.include_plugins:
                with seam.nested(self.name, tool_context.function_call_id):
                    return await call()
            return await _recorded(seam, self, call, args, tool_context)

    Durable.__name__, Durable.__qualname__ = kind.__name__, kind.__qualname__
    return Durable


def _declared(tool: Any) -> Declarations:
    """The declarations, with one for a tool of ADK itself: what it does can be done again."""
    declare: Declarations = getattr(tool, _DECLARE)
    home = getattr(getattr(tool, "func", tool), "__module__", None) or ""
    if tool.name in declare or not home.startswith("google.adk."):
        return declare
    return {tool.name: {"effect": "idempotent"}}


async def _recorded(seam: Seam, tool: Any, call: Any, args: Any, context: Any) -> Any:
    """Call a tool, with its result and its actions recorded."""

    async def made() -> dict[str, Any]:
        result = await call()
        actions = context.actions.model_dump(mode="json", exclude_defaults=True)
        return {"result": _plain(result), "actions": actions} if actions else {"result": _plain(result)}

    found = await seam.tool(
        tool.name,
        made,
        to_jsonable_python(dict(args), serialize_unknown=True),
        key=context.function_call_id or "direct",
        declare=_declared(tool),
        codec=_OUTCOME,
        said=lambda said: {"result": said},
    )
    actions = EventActions.model_validate(found.get("actions", {}))
    for key, value in actions.state_delta.items():
        context.state[key] = value
    for field in actions.model_fields_set - {"state_delta"}:
        setattr(context.actions, field, getattr(actions, field))
    return found["result"]


def _plain(result: Any) -> Any:
    try:
        msgpack.check(result, is_state=False)
    except Unsupported:
        return to_jsonable_python(result, serialize_unknown=True)
    return result


_OUTCOME: Final = Codec("google_adk.ToolResult/1", lambda value: value, lambda value: value)
