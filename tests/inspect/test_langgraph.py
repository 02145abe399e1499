"""Threads that LangGraph wrote are shown as chats, at every checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.inspect import chat_of, threads, timeline


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def model(state: State) -> dict[str, Any]:
    if len(state["messages"]) < 2:
        call = {"id": "c1", "name": "look_up", "args": {"item": "ink"}}
        return {"messages": [AIMessage("Let me see.", tool_calls=[call])]}
    return {"messages": [AIMessage("Eleven.")]}


def tools(state: State) -> dict[str, Any]:
    return {"messages": [ToolMessage("11", tool_call_id="c1")]}


def goes_on(state: State) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


def test_a_graph_is_shown_as_a_chat(tmp_path: Path) -> None:
    graph: Any = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", goes_on)
    graph.add_edge("tools", "model")
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        app = graph.compile(checkpointer=HoldfastSaver(hf))
        app.invoke({"messages": [HumanMessage("How much is ink?")]}, {"configurable": {"thread_id": "t1"}})
        [line] = threads(hf).threads
        steps = timeline(hf, line.name).steps
        assert len(steps) == line.count - 1 == 5  # the input and four supersteps; not the creation
        chats = [chat_of(hf.thread(line.name).load(step.checkpoint).state) for step in steps]
    shown = chats[0]
    assert shown is not None
    assert [
        (message.role, [part.text for part in message.parts], [(call.name, call.result) for call in message.calls])
        for message in shown.messages
        if not message.calls
    ] == [("user", ["How much is ink?"], []), ("assistant", ["Eleven."], [])]
    [call] = shown.messages[1].calls
    assert (call.name, call.arguments) == ("look_up", {"item": "ink"})
    assert call.result is not None
    assert [part.text for part in call.result] == ["11"]
    assert all(message.id for message in shown.messages)
    totals = [chat.total for chat in chats if chat is not None]
    assert totals == sorted(totals, reverse=True)  # newest first, and it only grew
