"""Google ADK: agents whose model calls and tool calls are recorded in the current run.

    runner = Runner(app_name="shop", agent=agent, session_service=SERVICE, plugins=[HoldfastPlugin()])
    text = await run_durably(hf, agent, "Buy paper", thread="t")

`HoldfastSessionService` is in `google_adk_sessions`. See `docs/tutorials/google_adk.md`.
"""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from holdfast.adapters.seam import require

require("google-adk", "2.13", "3", "google-adk")

from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.flows.llm_flows.functions import AF_FUNCTION_CALL_ID_PREFIX, REQUEST_CONFIRMATION_FUNCTION_CALL_NAME
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from pydantic import ConfigDict
from pydantic_core import to_jsonable_python

from holdfast.adapters.google_adk_sessions import HoldfastSessionService
from holdfast.adapters.google_adk_tools import durable_tool
from holdfast.adapters.seam import Codec, Declarations, Emit, call_events, checked, current, durable_turn
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.handle import Holdfast

_REASON: Final = "holdfast_reason"  # of a refusal, in the payload of a confirmation

__all__ = ["HoldfastPlugin", "HoldfastSessionService", "run_durably"]


class HoldfastPlugin(BasePlugin):  # type: ignore[misc]  # the framework is not installed where types are checked
    """Records the model calls and tool calls of all agents of a runner in the current run.

    Outside a run it changes nothing. `declare` has the options of `holdfast.tool` by the names of tools. A tool that is
    not declared is irreversible: after a crash inside it, a person is asked.

    The calls are recorded below the callbacks of ADK: those of agents and of other plugins are called each time.
    """

    def __init__(self, *, declare: Declarations | None = None) -> None:
        super().__init__(name="holdfast")
        self.declare: Final = checked(declare)
        self._classes: dict[type[Any], type[Any]] = {}

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        self._adopt(invocation_context.agent)

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        self._adopt(agent)

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> Any:
        """Tell the model why a person has refused a call."""
        confirmation = tool_context.tool_confirmation
        if confirmation is None or confirmation.confirmed or not isinstance(confirmation.payload, dict):
            return None
        reason = confirmation.payload.get(_REASON)
        return None if reason is None else {"error": f"This tool call is rejected: {reason}"}

    def _adopt(self, agent: Any) -> None:
        """Make the model and the tools of an agent durable, and those of its sub-agents."""
        if isinstance(agent, LlmAgent):
            kind = type(agent)
            kind = kind.__mro__[1] if kind.__dict__.get("is_durable") else kind
            if kind not in self._classes:
                self._classes[kind] = _durable_class(kind, self)
            agent.__class__ = self._classes[kind]
            agent.tools = [durable_tool(tool, self.declare) for tool in agent.tools]
        for each in getattr(agent, "sub_agents", None) or ():
            self._adopt(each)


def _durable_class(kind: type[Any], plugin: HoldfastPlugin) -> type[Any]:
    """The class of an agent whose model is durable."""

    class Durable(kind):  # type: ignore[misc]  # a class that is only known at run time
        model_config = ConfigDict(defer_build=True)  # it validates nothing, and to build it takes half a second

        async def canonical_model_async(self, ctx: Any) -> Any:
            return _RecordedModel(self.name, await super().canonical_model_async(ctx), plugin.declare, ctx.session)

    Durable.is_durable = True
    Durable.__name__, Durable.__qualname__ = kind.__name__, kind.__qualname__
    return Durable


# -- models -----------------------------------------------------------------------------------------------------------


class _RecordedModel:
    """The model of an agent, with its replies recorded."""

    def __init__(self, agent: str, model: Any, declare: Declarations, session: Any) -> None:
        self._agent = agent
        self._model = model
        self._declare = declare
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[Any, None]:
        seam = current()
        if seam is None:
            async with aclosing(self._model.generate_content_async(llm_request, stream=stream)) as responses:
                async for response in responses:
                    yield response
            return
        seam.settle_doubts(list(llm_request.tools_dict), self._declare)
        await seam.turn(self._session.id, lambda: _kept(self._session))
        config = llm_request.config
        instruction = None if config is None else config.system_instruction
        request = [
            to_jsonable_python(instruction, exclude_none=True, serialize_unknown=True),
            [content.model_dump(mode="json", exclude_none=True) for content in llm_request.contents],
        ]

        async def call(emit: Emit) -> list[Any]:
            """Make the call. Partial responses are passed on, and the others are returned."""
            whole: list[Any] = []
            async with aclosing(self._model.generate_content_async(llm_request, stream=stream)) as responses:
                async for response in responses:
                    (emit if response.partial else whole.append)(response)
            _set_ids(whole)
            return whole

        async def recorded(emit: Emit) -> Any:
            return await seam.model(self._agent, lambda: call(emit), request=request, codec=_RESPONSES)

        # ADK calls the tools of a response before it asks for the next one, so all are recorded first.
        async with aclosing(call_events(recorded)) as events:
            async for event in events:
                for response in event if isinstance(event, list) else [event]:
                    yield response


def _set_ids(responses: list[Any]) -> None:
    """Give each function call the id that ADK would give it after the model call: so it is recorded."""
    for response in responses:
        for part in (response.content and response.content.parts) or ():
            if part.function_call and not part.function_call.id:
                part.function_call.id = f"{AF_FUNCTION_CALL_ID_PREFIX}{uuid.uuid4()}"


def _dumped_responses(responses: list[Any]) -> dict[str, Any]:
    usage: dict[str, Any] = {}
    for counts in (each.usage_metadata for each in responses if each.usage_metadata):
        names = {"input_tokens": counts.prompt_token_count, "output_tokens": counts.candidates_token_count}
        usage = {name: count for name, count in names.items() if count is not None}
    plain = [each.model_dump(mode="json", exclude_none=True) for each in responses]
    return {"responses": plain, "usage": usage}  # with the names that guards of Holdfast count


_RESPONSES: Final = Codec(
    "google_adk.LlmResponse/1",
    _dumped_responses,
    lambda plain: [LlmResponse.model_validate(each) for each in plain["responses"]],
)


# -- the two-line form ------------------------------------------------------------------------------------------------


async def run_durably(
    hf: Holdfast | AsyncHoldfast,
    agent: Any,
    message: Any = None,
    *,
    thread: str,
    turn: str | None = None,
    declare: Declarations | None = None,
    user_id: str = "user",
    **options: Any,
) -> Any:
    """Run an agent in a run of a thread, to its end, and return its final text, or its structured output.

    The same call after a crash resumes the run. `message` is a text or a `Content`. `turn` names a request of a
    conversation: its events and its state are kept in the state of the thread. On a fork, and after a rewind, the agent
    continues from them. If a tool needs confirmation, the run waits: `hf.answer(thread, "approve CALL_ID", True)`, or a
    text that says why not. `Unfinished` until then. `options` go to `Runner.run_async`.
    """
    plugin = HoldfastPlugin(declare=declare)
    content = types.UserContent(message) if isinstance(message, str) else message

    async def body(run: AsyncRun) -> Any:
        sessions = InMemorySessionService()
        made = await sessions.create_session(
            app_name=agent.name, user_id=user_id, session_id=thread, state=run.state.get("session")
        )
        stored = sessions.sessions[agent.name][user_id][made.id]
        stored.events = [Event.model_validate(record) for record in run.state["messages"]]
        runner = Runner(app_name=agent.name, agent=agent, session_service=sessions, plugins=[plugin])
        new: Any = content if run.fresh else None
        while True:
            events = [
                event
                async for event in runner.run_async(user_id=user_id, session_id=made.id, new_message=new, **options)
            ]
            asked = [call for event in events for call in event.get_function_calls() if _is_question(call)]
            if not asked:
                break
            new = await _answers(asked)
        run.state.update(_kept(await sessions.get_session(app_name=agent.name, user_id=user_id, session_id=made.id)))
        return _output(agent, events)

    return await durable_turn(hf, thread, turn, agent.name, body)


def _is_question(call: Any) -> bool:
    return bool(call.name == REQUEST_CONFIRMATION_FUNCTION_CALL_NAME)


def _output(agent: Any, events: list[Any]) -> Any:
    """The text of the last final response. With an output schema, its data."""
    finals = [event for event in events if event.is_final_response() and event.content and event.content.parts]
    text = "".join(part.text or "" for part in finals[-1].content.parts if not part.thought) if finals else ""
    return json.loads(text) if text and getattr(agent, "output_schema", None) is not None else text


def _kept(session: Any) -> dict[str, Any]:
    """The members of a run's state: the events of a session, and its state."""
    state = {key: value for key, value in session.state.items() if not key.startswith("temp:")}
    return {
        "messages": [event.model_dump(mode="json", exclude_none=True) for event in session.events],
        "session": to_jsonable_python(state, serialize_unknown=True),
    }


async def _answers(calls: list[Any]) -> Any:
    """Ask about all calls at once, and return the message with the answers."""
    seam = current()
    assert seam is not None  # noqa: S101 - in the block of a run
    originals = [call.args["originalFunctionCall"] for call in calls]
    refusals = await seam.refusals((each["id"], each["name"], each.get("args") or {}) for each in originals)
    parts: list[Any] = []
    for call, refusal in zip(calls, refusals, strict=True):
        reason = None if refusal is None else {_REASON: refusal}
        response = {"confirmed": refusal is None, "payload": reason}
        parts.append(
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=response))
        )
    return types.Content(role="user", parts=parts)
