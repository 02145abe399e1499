"""The measured graphs: one node that answers, with plain `add_messages` and with a DeltaChannel, and the prebuilt agent
that calls a tool every turn. Models follow a script that is generated before the measurement.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

# LangGraph's reducer for messages on a DeltaChannel; it has no public name yet.
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.prebuilt import create_react_agent

from bench.text import Writer

ASKED = 600  # characters of a user's message
FOUND = 600  # characters of a tool result
SAID = 2_000  # characters of a reply


class Turn(NamedTuple):
    """The texts of one turn."""

    asked: str
    found: str
    said: str


class Plain(TypedDict):
    """The state of LangGraph's tutorials."""

    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    """The same with a DeltaChannel, as LangGraph recommends, with the default snapshot frequency."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class Script(BaseChatModel):
    """A model that calls the tool after a user's message, and replies after the tool's result."""

    turns: list[Turn]

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Script:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        number = sum(isinstance(message, HumanMessage) for message in messages) - 1
        if isinstance(messages[-1], ToolMessage):
            reply = AIMessage(self.turns[number].said)
        else:
            call = {"name": "look_up", "args": {"number": number}, "id": f"call_{number}"}
            reply = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def conversation(turns: int, seed: int = 1) -> list[Turn]:
    """The texts of all turns. They are always the same, and compress like real text."""
    writer = Writer(seed)
    said: list[Turn] = []
    for _ in range(turns):
        writer.turn()
        said.append(Turn(*(writer.prose(length)[:length] for length in (ASKED, FOUND, SAID))))
    return said


def graph(kind: str, turns: list[Turn], saver: BaseCheckpointSaver[Any] | None, *, in_loop: bool = False) -> Any:
    """A compiled graph: `plain`, `delta` or `react`, with a checkpointer if there is a saver.

    In an event loop the node is a coroutine, because LangGraph would call a plain function in a thread.
    """
    if kind == "react":
        return _react(turns, saver)

    def answer(state: Any) -> dict[str, list[AIMessage]]:
        return {"messages": [AIMessage(turns[len(state["messages"]) // 2].said)]}

    async def answer_in_loop(state: Any) -> dict[str, list[AIMessage]]:
        return answer(state)

    builder: Any = StateGraph(Delta if kind == "delta" else Plain)
    builder.add_node("answer", answer_in_loop if in_loop else answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def _react(turns: list[Turn], saver: BaseCheckpointSaver[Any] | None) -> Any:
    @tool
    def look_up(number: int) -> str:
        """Look something up."""
        return turns[number].found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, but still widely used
        return create_react_agent(Script(turns=turns), [look_up], checkpointer=saver)
