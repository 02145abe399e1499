"""Forks and rewinds of the saver: with open questions, subgraphs and tool calls, and without the origin."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, wrap_tools
from holdfast.errors import AlreadyExists
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers


class Outer(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


class Inner(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    seen: Annotated[list[int], operator.add]


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}}


def id_of(snapshot: Any) -> str:
    return str(snapshot.config["configurable"]["checkpoint_id"])


def remembering(saver: HoldfastSaver) -> Any:
    """A subgraph that counts its calls in a memory of its own, and asks."""
    inner: Any = StateGraph(Inner)
    inner.add_node("count", lambda state: {"seen": [len(state.get("seen", []))]})
    inner.add_node("ask", lambda state: {"log": [f"{interrupt('?')} {state['seen']}"]})
    inner.add_edge(START, "count")
    inner.add_edge("count", "ask")
    graph: Any = StateGraph(Outer)
    graph.add_node("child", inner.compile(checkpointer=True))
    graph.add_edge(START, "child")
    return graph.compile(checkpointer=saver)


def turn(graph: Any, answer: str, thread: str = "t") -> str:
    graph.invoke({"log": []}, config(thread), durability="sync")
    return last(graph, answer, thread)


def last(graph: Any, answer: str, thread: str = "t") -> str:
    found = graph.invoke(Command(resume=answer), config(thread), durability="sync")
    return str(found["log"][-1])


def test_a_fork_has_the_memory_of_the_subgraphs_and_the_open_question(savers: Savers) -> None:
    saver = savers.open()
    graph = remembering(saver)
    assert turn(graph, "a") == "a [0]"
    graph.invoke({"log": []}, config(), durability="sync")
    saver.fork("t", "other")
    saver.delete_thread("t")
    assert [task.interrupts[0].value for task in graph.get_state(config("other")).tasks] == ["?"]
    assert last(remembering(savers.open()), "b", "other") == "b [0, 1]"
    assert saver.hf.verify(deep=True).ok


def test_a_fork_of_an_older_checkpoint_has_the_subgraphs_as_they_were(savers: Savers) -> None:
    saver = savers.open()
    graph = remembering(saver)
    turn(graph, "a")
    at = id_of(graph.get_state(config()))
    turn(graph, "b")
    saver.fork("t", "other", at)
    assert turn(graph, "c", "other") == "c [0, 1]"
    assert turn(graph, "d") == "d [0, 1, 2]"


def test_a_rewind_takes_the_subgraphs_along(savers: Savers) -> None:
    saver = savers.open()
    graph = remembering(saver)
    turn(graph, "a")
    at = id_of(graph.get_state(config()))
    turn(graph, "b")
    turn(graph, "c")
    saver.rewind("t", at)
    assert graph.get_state(config()).values["log"] == ["a [0]"]
    assert turn(remembering(savers.open()), "d") == "d [0, 1]"
    assert saver.hf.verify(deep=True).ok


def test_after_a_rewind_to_before_a_subgraph_was_called_it_has_no_memory(savers: Savers) -> None:
    saver = savers.open()
    graph = remembering(saver)
    graph.invoke({"log": []}, config())
    graph.invoke(Command(resume="first"), config())
    before = [each for each in graph.get_state_history(config()) if each.next == ("child",)][-1]

    saver.rewind("t", id_of(before))
    graph.invoke(None, config())

    assert graph.invoke(Command(resume="again"), config())["log"] == ["again [0]"]
    assert savers.open().hf.verify(deep=True).ok


def test_a_rewind_of_a_delta_channel_has_its_value(savers: Savers) -> None:
    saver = savers.open()
    graph = graphs.delta(3)(saver)
    values = []
    for number in range(6):
        graph.invoke({"turn": number, "line": []}, config(), durability="sync")
        values.append((id_of(graph.get_state(config())), graph.get_state(config()).values))
    for id, value in reversed(values):
        saver.rewind("t", id)
        for one in (graph, graphs.delta(3)(savers.open())):
            assert one.get_state(config()).values == value


def test_what_does_not_exist_is_refused(local: Savers) -> None:
    saver = local.open()
    turn(remembering(saver), "a")
    with pytest.raises(holdfast.NotFound, match="nothing was changed"):
        saver.fork("t", "other", "unknown")
    with pytest.raises(holdfast.NotFound, match="nothing was changed"):
        saver.rewind("missing", "unknown")
    with pytest.raises(AlreadyExists, match="nothing was copied"):
        saver.fork("t", "t")


class Paying:
    """A graph whose model asks for another amount each time, and what was paid."""

    def __init__(self, saver: HoldfastSaver) -> None:
        self.paid: list[int] = []
        self.asked = 0

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        graph: Any = StateGraph(MessagesState)
        graph.add_node("model", self._model)
        graph.add_node("tools", ToolNode(wrap_tools([pay], saver)))
        graph.add_edge(START, "model")
        graph.add_edge("model", "tools")
        self.graph = graph.compile(checkpointer=saver)

    def _model(self, state: MessagesState) -> dict[str, Any]:
        self.asked += 1
        call = {"name": "pay", "args": {"amount": self.asked}, "id": "c"}
        return {"messages": [AIMessage("", id=f"m{self.asked}", tool_calls=[call])]}

    def at(self, node: str, thread: str = "t") -> str:
        history = self.graph.get_state_history(config(thread))
        return id_of(next(each for each in history if each.next == (node,)))


@pytest.mark.parametrize("way", ["fork", "rewind"])
def test_neither_a_fork_nor_a_rewind_pays_twice(savers: Savers, way: str) -> None:
    saver = savers.open()
    paying = Paying(saver)
    paying.graph.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")
    places = {node: paying.at(node) for node in ("tools", "model")}

    def again(node: str) -> Any:
        thread = "t" if way == "rewind" else f"at {node}"
        saver.rewind("t", places[node]) if way == "rewind" else saver.fork("t", thread, places[node])
        return paying.graph.invoke(None, config(thread), durability="sync")

    assert again("tools")["messages"][-1].content == "paid 1"
    [question] = again("model")["__interrupt__"]
    assert question.value["question"] == "may repeat"
    assert paying.paid == [1]
