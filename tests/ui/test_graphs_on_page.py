"""Threads of LangGraph graphs on the page: what a person has to decide is in front of them, and the counts agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, get_args

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import holdfast
from holdfast import Holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.inspect import Filter, ThreadStatus, tally, threads
from tests.ui import scene
from tests.ui.conftest import Page
from tests.ui.test_pages import text_of
from tests.waiting import until


class State(TypedDict):
    price: int


def ask(state: State) -> State:
    interrupt({"question": "Buy ink?", "price": state["price"]})
    return state


def fail(state: State) -> State:
    raise ConnectionError("the supplier did not answer")


@pytest.fixture
def graphs(tmp_path: Path) -> Iterator[Holdfast]:
    """A graph that asks, one that failed, and one that is completed, among other threads."""
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        scene.asking(hf)
        scene.letters(hf)
        scene.paying(hf)
        hf.thread("notes").save({})
        for name, node in (("asks", ask), ("failed", fail), ("done", lambda _: {"price": 1})):
            graph: Any = StateGraph(State)
            graph.add_node("buy", node)
            graph.add_edge(START, "buy")
            saver = HoldfastSaver(hf)
            app = graph.compile(checkpointer=saver)
            try:
                app.invoke({"price": 11}, {"configurable": {"thread_id": name}})
            except ConnectionError:
                assert name == "failed"
            saver.release()
        yield hf


def test_every_status_counts_what_its_list_has(graphs: Holdfast) -> None:
    found = tally(graphs)
    assert found.threads == len(threads(graphs).threads)
    for status in get_args(ThreadStatus):
        listed = threads(graphs, Filter(status=status, has_run=True)).threads
        assert found.statuses.get(status, 0) == len(listed), status
    assert found.statuses["saved"] == len(threads(graphs, Filter(has_run=False)).threads) == 1
    assert {name: found.statuses[name] for name in ("waiting", "failed", "completed")} == {
        "waiting": 2,
        "failed": 1,
        "completed": 2,
    }


@pytest.mark.parametrize("path", ["/", "/thread?name=asks"])
def test_the_question_of_a_graph_is_where_its_run_is_looked_at(graphs: Holdfast, path: str) -> None:
    shown = text_of(Page(graphs, allow_write=True).get(path).text)
    assert "Question of buy" in shown
    assert "question Buy ink? price 11" in shown
    assert "holdfast answer asks" in shown
    assert "To answer here, start this page with holdfast ui --allow-write --graph APP" in shown


def test_a_failed_graph_says_why(graphs: Holdfast) -> None:
    for path in ("/", "/threads", "/thread?name=failed"):
        assert "the supplier did not answer" in text_of(Page(graphs).get(path).text)


def test_a_page_that_may_not_write_says_how_to_decide(graphs: Holdfast) -> None:
    shown = text_of(Page(graphs).get("/thread", name=scene.LETTERS).text)
    assert "To decide here, start this page with holdfast ui --allow-write" in shown


def test_a_queue_without_workers_says_how_to_start_one() -> None:
    with holdfast.open("memory:") as hf:
        assert "holdfast worker" not in Page(hf).get("/workers").text
        hf.submit("clerk", "job", start={})
        shown = Page(hf).get("/workers").text
    assert "<code>holdfast worker APP --store" in shown


def test_a_run_with_a_decision_is_among_the_decisions(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        scene.interrupted(hf)
        shown = Page(hf).get("/").text
    assert "Needs a decision" in shown
    assert "<h2>Interrupted runs" not in shown


@pytest.mark.parametrize(
    ("name", "open_step"), [("asks", "open step buy waits for an answer"), ("failed", "open step buy failed")]
)
def test_the_node_that_is_left_to_run_is_an_open_step(graphs: Holdfast, name: str, open_step: str) -> None:
    assert open_step in text_of(Page(graphs).get("/thread", name=name).text)
    assert "open step" not in text_of(Page(graphs).get("/thread", name="done").text)


def test_a_page_with_the_graph_resumes_it(graphs: Holdfast) -> None:
    mended: Any = StateGraph(State)
    mended.add_node("buy", lambda _: {"price": 2})
    mended.add_edge(START, "buy")
    assert "/act/resume" not in Page(graphs, allow_write=True).get("/thread", name="failed").text
    page = Page(graphs, allow_write=True, graph=mended)
    for path in ("/", "/thread?name=failed"):
        assert "/act/resume" in page.get(path).text
    asked = page.post("resume", confirmed=False, thread="failed")
    assert "The graph of failed runs its open nodes: buy" in text_of(asked.text)
    page.confirm("resume", asked)
    until(lambda: "completed" in text_of(page.get("/thread", name="failed").text), "the graph is completed")
    assert "/act/resume" not in page.get("/thread", name="failed").text
