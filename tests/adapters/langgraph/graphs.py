"""Graphs as people write them, none of which knows of Holdfast."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import create_react_agent
from langgraph.types import Send, interrupt

Saver = BaseCheckpointSaver[Any]


class Scripted(BaseChatModel):
    """A chat model that says the next line of its script: as many as the conversation has replies already."""

    lines: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Scripted:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        spoken = sum(isinstance(message, AIMessage) for message in messages)
        said = self.lines[spoken % len(self.lines)]
        calls = [{**one, "id": f"{one['id']}-{spoken}"} for one in said.tool_calls]
        line = AIMessage(said.content, id=f"ai-{spoken}", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=line)])


def call(name: str, number: int, **args: Any) -> ToolCall:
    return {"name": name, "args": args, "id": f"call-{number}", "type": "tool_call"}


# What a tool answers has an id here: else LangGraph gives it one while it is being stored.
CallId = Annotated[str, InjectedToolCallId]


@tool
def add(a: int, b: int, call_id: CallId) -> ToolMessage:
    """Add two numbers."""
    return ToolMessage(str(a + b), tool_call_id=call_id, id=f"tool-{call_id}")


@tool
def look_up(word: str, call_id: CallId) -> ToolMessage:
    """Look a word up."""
    return ToolMessage(f"{word}: " + "known " * 20, tool_call_id=call_id, id=f"tool-{call_id}")


LINES = [
    AIMessage("I look.", tool_calls=[call("add", 1, a=1, b=2), call("look_up", 2, word="hold")]),
    AIMessage("Again.", tool_calls=[call("look_up", 3, word="fast")]),
    AIMessage("It is three."),
]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Count(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    number: int


def chat(saver: Saver) -> Any:
    """One node that answers."""

    def answer(state: Chat) -> dict[str, Any]:
        number = len(state["messages"])
        return {"messages": [AIMessage(f"reply {number} " + "word " * 30, id=f"reply-{number}")]}

    graph = StateGraph(Chat)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def react(saver: Saver) -> Any:
    return create_react_agent(Scripted(lines=LINES), [add, look_up], checkpointer=saver)


def agent(saver: Saver) -> Any:
    return create_agent(Scripted(lines=LINES), [add, look_up], checkpointer=saver)


def map_reduce(saver: Saver) -> Any:
    """A fan-out of tasks, each with a state of its own, and a join."""

    def fan(state: Count) -> list[Send]:
        return [Send("work", {"number": number, "log": list(state["log"])}) for number in range(state["number"])]

    def work(state: Count) -> dict[str, Any]:
        return {"log": [f"work {state['number']} of {len(state['log'])}"]}

    def join(state: Count) -> dict[str, Any]:
        return {"log": [f"joined {len(state['log'])}"]}

    graph = StateGraph(Count)
    graph.add_node("begin", lambda state: {"log": ["begin"]})
    graph.add_node("work", work)
    graph.add_node("join", join)
    graph.add_edge(START, "begin")
    graph.add_conditional_edges("begin", fan, ["work"])
    graph.add_edge("work", "join")
    return graph.compile(checkpointer=saver)


def with_subgraph(remembers: bool) -> Callable[[Saver], Any]:
    """A graph in a graph, which asks; it has a memory of its own, or begins anew each time."""

    def build(saver: Saver) -> Any:
        def ask(state: Count) -> dict[str, Any]:
            return {"log": [f"answered {interrupt({'question': state.get('number')})}"]}

        inner = StateGraph(Count)
        inner.add_node("before", lambda state: {"log": [f"inner {len(state.get('log', []))}"]})
        inner.add_node("ask", ask)
        inner.add_edge(START, "before")
        inner.add_edge("before", "ask")
        outer = StateGraph(Count)
        outer.add_node("first", lambda state: {"number": state.get("number", 0) + 1})
        outer.add_node("inner", inner.compile(checkpointer=True if remembers else None))
        outer.add_node("last", lambda state: {"log": ["last"]})
        outer.add_edge(START, "first")
        outer.add_edge("first", "inner")
        outer.add_edge("inner", "last")
        return outer.compile(checkpointer=saver)

    return build


def asking(saver: Saver) -> Any:
    """Two nodes that ask at once, then one that asks twice."""

    def ask(name: str) -> Any:
        return lambda state: {"log": [f"{name} {interrupt(name)}"]}

    def twice(state: Count) -> dict[str, Any]:
        return {"log": [f"{interrupt('first')} and {interrupt('second')}"]}

    graph = StateGraph(Count)
    graph.add_node("left", ask("left"))
    graph.add_node("right", ask("right"))
    graph.add_node("twice", twice)
    for side in ("left", "right"):
        graph.add_edge(START, side)
        graph.add_edge(side, "twice")
    return graph.compile(checkpointer=saver)


def steps(saver: Saver) -> Any:
    """Three nodes in a row."""
    graph = StateGraph(Count)
    for name in ("one", "two", "three"):
        graph.add_node(name, lambda state, name=name: {"log": [f"{name} of {state.get('number')}"]})
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("two", "three")
    return graph.compile(checkpointer=saver)


def merge_files(old: dict[str, str] | None, new: dict[str, str | None] | None) -> dict[str, str]:
    merged: dict[str, Any] = {**(old or {}), **(new or {})}
    return {name: text for name, text in merged.items() if text is not None}


class Files(TypedDict, total=False):
    files: Annotated[dict[str, Any], merge_files]
    turn: int


def files(saver: Saver) -> Any:
    """An agent that writes, edits and removes files in its state."""

    def edit(state: Files) -> dict[str, Any]:
        turn = state["turn"]
        return {"files": {f"new-{turn}": f"text {turn}", f"new-{turn - 3}": None, "log": "line\n" * turn}}

    graph = StateGraph(Files)
    graph.add_node("edit", edit)
    graph.add_edge(START, "edit")
    return graph.compile(checkpointer=saver)


def failing(saver: Saver) -> Any:
    """A node that fails at first, after one that must not be run again for it."""
    calls: list[str] = []

    def good(state: Count) -> dict[str, Any]:
        calls.append("good")
        return {"log": [f"good {calls.count('good')}"]}

    def bad(state: Count) -> dict[str, Any]:
        calls.append("bad")
        if calls.count("bad") == 1:
            raise ValueError("not yet")
        return {"log": [f"bad {calls.count('bad')}"]}

    graph = StateGraph(Count)
    graph.add_node("good", good)
    graph.add_node("bad", bad)
    graph.add_node("end", lambda state: {"log": ["end"]})
    graph.add_edge(START, "good")
    graph.add_edge("good", "bad")
    graph.add_edge("bad", "end")
    return graph.compile(checkpointer=saver)


def functional(saver: Saver) -> Any:
    """The same without a graph: a function of tasks, which knows what it answered before."""

    @task
    def double(number: int) -> int:
        return 2 * number

    @entrypoint(checkpointer=saver)
    def work(number: int, *, previous: list[int] | None = None) -> Any:
        doubled = [double(at) for at in range(number)]
        answer = interrupt("go on?")
        return entrypoint.final(value=answer, save=[*(previous or []), *(one.result() for one in doubled)])

    return work


def append(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


def merge(state: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return merged


def delta(frequency: int) -> Callable[[Saver], Any]:
    """Two nodes at once and one after them, whose channels are stored as their changes."""
    make: Any = TypedDict  # of what is only known here, which a type checker cannot follow
    schema = make(
        "schema",
        {
            "line": Annotated[list, DeltaChannel(append, snapshot_frequency=frequency)],
            "table": Annotated[dict, DeltaChannel(merge, snapshot_frequency=frequency + 1)],
            "turn": int,
        },
    )

    def build(saver: Saver) -> Any:
        def left(state: Any) -> dict[str, Any]:
            return {"line": [f"left {state['turn']} after {len(state['line'])}"], "table": {"left": state["turn"]}}

        def right(state: Any) -> dict[str, Any]:
            return {"line": [f"right {state['turn']}"], "table": {f"right-{state['turn']}": len(state["table"])}}

        def end(state: Any) -> dict[str, Any]:
            return {"line": [f"end of {len(state['line'])} and {len(state['table'])}"]}

        graph = StateGraph(schema)
        graph.add_node("left", left)
        graph.add_node("right", right)
        graph.add_node("end", end)
        graph.add_edge(START, "left")
        graph.add_edge(START, "right")
        graph.add_edge("left", "end")
        graph.add_edge("right", "end")
        graph.add_edge("end", END)
        return graph.compile(checkpointer=saver)

    return build
