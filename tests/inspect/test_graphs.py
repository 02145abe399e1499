"""Threads of graphs, decoded: what ran, what is next, and which questions are open."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.inspect.graphs import Question, graph_thread, is_graph

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def ask(state: State) -> dict[str, Any]:
    return {"log": [f"answered {interrupt({'question': 'really?'})}"]}


def build(saver: HoldfastSaver, *, fails: bool = False) -> Any:
    def last(state: State) -> dict[str, Any]:
        if fails:
            raise ValueError("it broke")
        return {"log": ["done"]}

    graph: Any = StateGraph(State)
    graph.add_node("first", lambda state: {"log": ["first"]})
    graph.add_node("ask", ask)
    graph.add_node("last", last)
    graph.add_edge(START, "first")
    graph.add_edge("first", "ask")
    graph.add_edge("ask", "last")
    return graph.compile(checkpointer=saver)


def test_a_question_is_shown_with_its_node_and_the_way_to_answer(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as saver:
        graph = build(saver)
        graph.invoke({"log": ["in"]}, CONFIG, durability="sync")
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as saver:
        found = graph_thread(saver.hf, "t")
        assert (found.status, found.next) == ("waiting", ("ask",))
        [question] = found.questions
        assert (question.node, question.value) == ("ask", {"question": "really?"})
        assert found.channels == {"log": ["in", "first"]}
        assert [(step.step, step.source, step.nodes) for step in found.steps] == [
            (1, "loop", ("first",)),
            (0, "loop", ("__start__",)),
            (-1, "input", ()),
        ]
        build(saver).invoke(Command(resume={question.id: "yes"}), CONFIG)
        found = graph_thread(saver.hf, "t")
        assert found.questions == ()
        assert [step.nodes for step in found.steps][:2] == [("last",), ("ask",)]
        assert found.channels["log"] == ["in", "first", "answered yes", "done"]
    with holdfast.open(tmp_path / "agent.db") as hf:
        assert graph_thread(hf, "t").status == "idle"
        assert isinstance(question, Question)


def test_an_error_is_shown(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as saver:
        graph = build(saver, fails=True)
        graph.invoke({"log": []}, CONFIG)
        with pytest.raises(ValueError, match="it broke"):
            graph.invoke(Command(resume="yes"), CONFIG)
    with holdfast.open(tmp_path / "agent.db") as hf:
        found = graph_thread(hf, "t")
        assert (found.status, found.next) == ("failed", ("last",))
        assert "it broke" in found.steps[0].failed[0]
        assert hf.effects("t") == []  # writes are not calls


def test_other_threads_are_not_graphs(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db") as hf:
        hf.thread("mine").save({"a": 1})
        assert not is_graph(hf, "mine")
        with pytest.raises(holdfast.NotFound, match="LangGraph"):
            graph_thread(hf, "mine")
