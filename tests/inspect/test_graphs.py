"""Threads of graphs, decoded: what ran, what is next, and which questions are open."""

from __future__ import annotations

import operator
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

import holdfast
from holdfast import Holdfast
from holdfast.adapters.langgraph import HoldfastSaver, wrap_tools
from holdfast.inspect import (
    Commands,
    Filter,
    calls_of,
    effects_ahead,
    find,
    graph_actions,
    inbox,
    recovery,
    search,
    state_of,
    step_of,
    threads,
    timeline,
)
from holdfast.inspect.graphs import GraphState, Question, is_graph, journal_of
from holdfast.threads.diff import diff
from tests.threads.tables import Tables

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def ask(state: State) -> dict[str, Any]:
    return {"log": [f"answered {interrupt({'question': 'really?'})}"]}


def broken() -> None:
    raise ValueError("it broke")


def build(saver: HoldfastSaver, *, last: Callable[[], None] | None = None) -> Any:
    def run_last(state: State) -> dict[str, Any]:
        if last is not None:
            last()
        return {"log": ["done"]}

    graph: Any = StateGraph(State)
    graph.add_node("first", lambda state: {"log": ["first"]})
    graph.add_node("ask", ask)
    graph.add_node("last", run_last)
    graph.add_edge(START, "first")
    graph.add_edge("first", "ask")
    graph.add_edge("ask", "last")
    return graph.compile(checkpointer=saver)


def state_of_t(hf: Holdfast) -> GraphState:
    found = timeline(hf, "t").graph
    assert found is not None
    return found


def channels(hf: Holdfast) -> Any:
    return state_of(hf, find(hf, "t")).state


def test_a_question_is_shown_with_its_node_and_the_way_to_answer(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as saver:
        graph = build(saver)
        graph.invoke({"log": ["in"]}, CONFIG, durability="sync")
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as saver:
        found = state_of_t(saver.hf)
        assert (found.status, found.next) == ("waiting", ("ask",))
        [question] = found.questions
        assert (question.node, question.value) == ("ask", {"question": "really?"})
        assert channels(saver.hf) == {"log": ["in", "first"]}
        steps = timeline(saver.hf, "t").steps
        assert [step.checkpoint.trigger for step in steps] == ["first", "__start__", "input"]
        build(saver).invoke(Command(resume={question.id: "yes"}), CONFIG)
        assert state_of_t(saver.hf).questions == ()
        assert [step.checkpoint.trigger for step in timeline(saver.hf, "t").steps][:2] == ["last", "ask"]
        assert channels(saver.hf)["log"] == ["in", "first", "answered yes", "done"]
    with holdfast.open(tmp_path / "agent.db") as hf:
        assert state_of_t(hf).status == "completed"
        assert isinstance(question, Question)


def test_an_error_is_shown(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as saver:
        graph = build(saver, last=broken)
        graph.invoke({"log": []}, CONFIG)
        with pytest.raises(ValueError, match="it broke"):
            graph.invoke(Command(resume="yes"), CONFIG)
    with holdfast.open(tmp_path / "agent.db") as hf:
        found = state_of_t(hf)
        assert (found.status, found.next) == ("failed", ("last",))
        assert "it broke" in found.errors[0]
        assert hf.effects("t") == []  # writes are not calls


def test_other_threads_are_not_graphs(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db") as hf:
        hf.thread("mine").save({"a": 1})
        assert not is_graph(hf, "mine")
        assert timeline(hf, "mine").graph is None
        with pytest.raises(holdfast.NotFound, match="LangGraph"):
            graph_actions.state_of_graph(hf, "mine")


# -- as the command line and the page show them -----------------------------------------------------------------------


class Chat(MessagesState, total=False):
    topic: str


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(saver: HoldfastSaver) -> Any:
    def write(state: Chat) -> dict[str, Any]:
        call = {"name": "pay", "args": {"amount": 3}, "id": "c1"}
        return {"messages": [AIMessage("draft", id=f"ai-{len(state['messages'])}", tool_calls=[call])]}

    def review(state: Chat) -> dict[str, Any]:
        return {"messages": [AIMessage(f"reviewed: {interrupt('publish?')}")]}

    graph: Any = StateGraph(Chat)
    graph.add_node("write", write)
    graph.add_node("tools", ToolNode(wrap_tools([pay], saver)))
    graph.add_node("review", review)
    graph.add_node("each", lambda state: {"messages": [AIMessage("sent")]})
    graph.add_edge(START, "write")
    graph.add_edge("write", "tools")
    graph.add_edge("tools", "review")
    graph.add_conditional_edges("review", lambda state: [Send("each", {"number": n}) for n in range(2)], ["each"])
    return graph.compile(checkpointer=saver)


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[HoldfastSaver]:
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as opened:
        yield opened


def asked(saver: HoldfastSaver) -> Any:
    graph = agent(saver)
    graph.invoke({"topic": "boats", "messages": [HumanMessage("write")]}, CONFIG, durability="sync")
    saver.release()
    return graph


def test_a_search_reads_the_channels(saver: HoldfastSaver) -> None:
    asked(saver)
    [hit] = search(saver.hf, "draft").hits
    assert hit.path == "$.messages[1].content"
    assert search(saver.hf, "langchain_core").hits == (), "the encoding is not searched"


def test_the_tool_calls_and_subgraphs_are_part_of_the_thread(saver: HoldfastSaver) -> None:
    asked(saver)
    hf = saver.hf
    assert [line.name for line in threads(hf).threads] == ["t"]
    assert [line.name for line in threads(hf, Filter(contains="%tools")).threads] == ["t%tools"]
    found = timeline(hf, "t")
    assert [(step.checkpoint.trigger, [call.name for call in step.calls]) for step in found.steps] == [
        ("tools", ["pay"]),
        ("write", []),
        ("__start__", []),
        ("input", []),
    ]
    assert [each.name for each in effects_ahead(hf, "t", found.steps[1].checkpoint)] == ["pay"]


def test_one_step_has_only_its_own_calls(saver: HoldfastSaver) -> None:
    asked(saver).invoke(Command(resume="yes"), CONFIG, durability="sync")
    hf = saver.hf
    listed = timeline(hf, "t").steps
    single = [step_of(hf, step.checkpoint) for step in listed]
    assert single == list(listed)
    assert [[each.call.name for each in calls_of(hf, step).calls] for step in single] == [[], [], ["pay"], [], [], []]


def test_the_checkpoint_that_created_a_thread_is_no_step_of_the_graph_but_can_be_looked_at(
    saver: HoldfastSaver,
) -> None:
    asked(saver)
    steps = timeline(saver.hf, "t").steps
    created = find(saver.hf, f"t@{steps[-1].checkpoint.parent}").checkpoint
    assert created.id not in [step.checkpoint.id for step in steps]
    assert step_of(saver.hf, created).checkpoint == created


def test_a_question_is_in_the_inbox_and_its_answer_resumes_the_graph(saver: HoldfastSaver) -> None:
    graph = asked(saver)
    hf = saver.hf
    [line] = threads(hf, Filter(status="waiting")).threads
    assert (line.name, line.status, line.waits_for) == ("t", "waiting", "review")
    [item] = inbox(hf).items
    [decision] = item.decisions
    assert (item.need, decision.about, decision.payload) == ("question", "wait", "publish?")
    assert "--graph APP" in decision.commands[0]
    with pytest.raises(holdfast.NotFound, match="no open question"):
        graph_actions.answer(graph, hf, "t", "other", "yes")
    with pytest.raises(holdfast.Conflict, match="waits for an answer"):
        graph_actions.resume(graph, hf, "t")
    assert graph_actions.answer(graph, hf, "t", "review", "yes").status == "completed"
    assert inbox(hf).items == ()
    found = timeline(hf, "t").steps
    assert [step.checkpoint.trigger for step in found][:2] == ["each", "review"]


def test_a_graph_of_another_store_is_not_run(saver: HoldfastSaver, tmp_path: Path) -> None:
    asked(saver)
    with (
        HoldfastSaver(tmp_path / "other.db", durability="off") as other,
        pytest.raises(holdfast.InvalidArgument, match="another store"),
    ):
        graph_actions.answer(agent(other), saver.hf, "t", "review", "yes")


def test_a_builder_or_a_function_is_a_graph_too(saver: HoldfastSaver) -> None:
    asked(saver)
    for given in (agent(saver).builder, lambda: agent(saver), lambda hf: agent(HoldfastSaver(hf))):
        graph = graph_actions.runnable(given, saver.hf, "app:graph")
        assert graph.get_state(CONFIG).next == ("review",)
    with pytest.raises(holdfast.InvalidArgument, match="must be a LangGraph graph"):
        graph_actions.runnable({"a": 1}, saver.hf, "app:graph")


def test_the_state_has_channels_and_a_diff_names_only_them(saver: HoldfastSaver) -> None:
    asked(saver)
    found = find(saver.hf, "t")
    state = state_of(saver.hf, found).state
    assert state.keys() == {"topic", "messages"}
    assert state["messages"][0]["content"] == "write"
    assert "$checkpoint" in state_of(saver.hf, found, raw=True).state
    before = state_of(saver.hf, find(saver.hf, "t@-2")).state
    assert [change.path for change in diff(before, state).changes] == ["$.messages[2]"]


def test_a_graph_that_was_killed_in_a_node_is_interrupted(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from tests.inspect.test_graphs import CONFIG, HoldfastSaver, build\n"
        "from langgraph.types import Command\n"
        "saver = HoldfastSaver(sys.argv[1], durability='off')\n"
        "graph = build(saver, last=lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "graph.invoke({'log': []}, CONFIG, durability='sync')\n"
        "graph.invoke(Command(resume='yes'), CONFIG, durability='sync')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "agent.db")], check=False)
    assert ended.returncode == -signal.SIGKILL
    with HoldfastSaver(tmp_path / "agent.db", durability="off") as saver:
        hf = saver.hf
        assert timeline(hf, "t").interrupted
        [line] = threads(hf, Filter(status="interrupted")).threads
        assert line.name == "t"
        [item] = inbox(hf).items
        assert (item.need, item.why, item.command) == ("interrupted", "its process died", Commands(hf).resume("t"))
        plan = recovery(hf, "t")
        assert plan is not None
        assert (plan.can_resume, plan.summary) == (True, "runs last")
        assert graph_actions.resume(build(saver), hf, "t").status == "completed"
        plan = recovery(hf, "t")
        assert plan is not None
        assert (plan.can_resume, plan.why_not) == (False, "no node is left to run")


def test_a_call_in_doubt_is_settled_by_the_name_of_the_graphs_thread(saver: HoldfastSaver) -> None:
    """`may repeat`: the model pays another amount after time travel."""
    graph = asked(saver)
    hf = saver.hf
    first = graph.get_state(CONFIG).parent_config
    graph.update_state(
        first, {"messages": [AIMessage("", id="new", tool_calls=[{"name": "pay", "args": {"amount": 4}, "id": "c"}])]}
    )
    graph.invoke(None, CONFIG, durability="sync")
    saver.release()
    [line] = threads(hf).threads
    assert (line.status, line.in_doubt) == ("in doubt", 1)
    [item] = inbox(hf).items
    [decision] = item.decisions
    assert (item.thread, decision.about, decision.name) == ("t", "approval", "pay")
    assert decision.commands[1].startswith(f"holdfast settle t {decision.effect} --allow")
    hf.settle(journal_of(hf, "t"), decision.effect, holdfast.NotDone())
    assert graph_actions.resume(graph, hf, "t").status == "waiting"
    assert graph.get_state(CONFIG).values["messages"][-1].content == "paid 4"


def test_the_page_answers_in_the_background_and_needs_the_graph(saver: HoldfastSaver) -> None:
    graph = asked(saver)
    with pytest.raises(holdfast.InvalidArgument, match="--graph"):
        graph_actions.answer_later(None, saver.hf, "t", "review", "yes")
    graph_actions.answer_later(graph, saver.hf, "t", "review", "yes").join()
    assert state_of_t(saver.hf).status == "completed"
    assert "reviewed: yes" in [message.content for message in graph.get_state(CONFIG).values["messages"]]


def flipped(record: bytearray) -> None:
    record[-3] ^= 1


@pytest.mark.parametrize("part", ["t", "t%tools"])
def test_a_graph_with_a_damaged_journal_is_shown_with_what_is_lost(tmp_path: Path, part: str) -> None:
    tables = Tables("sqlite", tmp_path)
    with tables.opened() as hf:
        asked(HoldfastSaver(hf))
    tables.change_blob("entry", "record", tables.in_thread(part), flipped)
    with tables.opened() as hf:
        assert [line.name for line in threads(hf).threads] == ["t"]
        found = timeline(hf, "t")
        assert len(found.steps) == 4
        assert any("journal" in each for each in found.lost)
        assert bool(inbox(hf).lost) == (part == "t")
        assert [item.thread for item in inbox(hf).items] == ([] if part == "t" else ["t"])
        plan = recovery(hf, "t")
        assert plan is not None
        assert plan.lost
        assert not plan.can_resume
