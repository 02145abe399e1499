"""Agents whose tools do something to the world: they write it into a file, which nobody but the tests reads."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import BaseTool, InjectedToolArg, tool
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition

import holdfast
from holdfast import Happened, NotDone
from holdfast.adapters.langgraph import HoldfastSaver, wrap_tools
from holdfast.adapters.langgraph.middleware import HoldfastTools
from tests.adapters.langgraph.graphs import Chat, Scripted, call

Way = Literal["agent", "react", "graph"]
Death = Literal["before", "after"]

LINES = [
    AIMessage("First.", tool_calls=[call("note", 1, text="first")]),
    AIMessage("Then.", tool_calls=[call("act", 2, amount=3)]),
    AIMessage("Done."),
]
INPUT: dict[str, Any] = {"messages": [HumanMessage("go", id="input")]}
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}}
Key = Annotated[str, InjectedToolArg]


class World:
    """A file with what was done, one line for each time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def do(self, *what: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(" ".join(map(str, what)) + "\n")

    @property
    def done(self) -> list[str]:
        return self.path.read_text("utf-8").splitlines() if self.path.exists() else []


class Forgetful(Scripted):
    """A model whose ids of calls begin anew with each message."""

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        said = super()._generate(messages, *args, **options)
        line: Any = said.generations[0].message
        line.tool_calls = [{**one, "id": one["id"].rpartition("-")[0]} for one in line.tool_calls]
        return said


def build(
    saver: HoldfastSaver,
    tools: Sequence[BaseTool],
    way: Way = "agent",
    lines: list[AIMessage] | None = None,
    speaker: type[Scripted] = Scripted,
) -> Any:
    """An agent with the journal, made in each of the ways in which people make them."""
    model = speaker(lines=lines or LINES)
    if way == "agent":
        return create_agent(model, list(tools), middleware=[HoldfastTools(saver)], checkpointer=saver)
    if way == "react":
        return create_react_agent(model, wrap_tools(tools, saver), checkpointer=saver)

    def answer(state: Chat) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(Chat)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode(wrap_tools(tools, saver)))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def tools_of(world: World, policy: str, death: Death | None) -> list[BaseTool]:
    """A note, and an act whose process dies before or after it."""

    def die(at: Death) -> None:
        if death == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def has_happened(amount: int, idempotency_key: str) -> Happened | NotDone:
        return Happened("as the probe says") if f"act {amount} {idempotency_key}" in world.done else NotDone()

    options: dict[str, dict[str, Any]] = {
        "read": {"effect": "read"},
        "rerun": {"effect": "idempotent"},
        "probe": {"effect": "irreversible", "probe": has_happened, "probe_after": 0.5},
        "ask": {"effect": "irreversible"},
        "give_up": {"effect": "irreversible", "in_doubt": "give_up"},
    }

    @tool
    def note(text: str) -> str:
        """Note something. Nobody declared what it does: it must not happen twice."""
        world.do("note", text)
        return f"noted {text}"

    @tool
    @holdfast.tool(**options[policy])
    def act(amount: int, idempotency_key: Key = "") -> dict[str, Any]:
        """Act."""
        die("before")
        world.do("act", amount, idempotency_key)
        die("after")
        return {"acted": amount}

    return [note, act]


def once(world: World) -> BaseTool:
    @tool
    def once(text: str) -> str:
        """Do something that must not happen twice."""
        world.do("once", text)
        return f"did {text}"

    return once


def said(state: Any) -> list[str]:
    return [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]


def go(graph: Any, given: Any, *, is_async: bool, durability: str = "sync") -> Any:
    if is_async:
        return asyncio.run(graph.ainvoke(given, CONFIG, durability=durability))
    return graph.invoke(given, CONFIG, durability=durability)


def first_process(
    url: str, namespace: str, path: Path, policy: str, death: Death, way: Way, is_async: bool, durability: str
) -> None:
    """Begin, and die in the second tool."""
    with holdfast.open(url, namespace=namespace) as handle:
        graph = build(HoldfastSaver(handle), tools_of(World(path), policy, death), way)
        go(graph, INPUT, is_async=is_async, durability=durability)
