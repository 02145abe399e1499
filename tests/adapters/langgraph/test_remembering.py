"""What a saver remembers of what it handed out and stored is never taken for something else."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, config, numbers

THREAD: Any = {"configurable": {"thread_id": "t"}}


class Counting(MessagesState):
    n: int


class Signed(AIMessage):
    """A message of a class that is not LangChain's."""

    signature: str = ""


def test_a_thread_that_was_deleted_and_begun_again_has_nothing_of_the_old_one(savers: Savers) -> None:
    looking, other = Face(savers.open(), is_async=False), Face(savers.open(), is_async=False)
    for number in (1, 2, 3):
        other.put(number, {"a": f"old {number}"}, parent=number - 1 or None)
    assert numbers(looking.list(config())) == [3, 2, 1]

    other.saver.delete_thread("t")
    assert looking.get_raw(config()) is None
    for number in (4, 5, 6):
        looking.put(number, {"a": f"new {number}"}, parent=number - 1 if number > 4 else None)

    assert numbers(looking.list(config())) == [6, 5, 4]
    assert [looking.values(number) for number in (4, 5, 6)] == [{"a": "new 4"}, {"a": "new 5"}, {"a": "new 6"}]


def test_a_message_that_was_changed_in_place_stays_changed_in_later_steps(savers: Savers) -> None:
    def trim(state: Counting) -> dict[str, Any]:
        message = state["messages"][0]
        message.content = "trimmed"
        return {"messages": [message]}

    graph = (
        StateGraph(Counting)
        .add_node("trim", trim)
        .add_node("other", lambda state: {"n": 1})
        .add_edge(START, "trim")
        .add_edge("trim", "other")
        .compile(checkpointer=savers.open())
    )
    graph.invoke({"messages": [HumanMessage("long " * 600, id="1")], "n": 0}, THREAD, durability="sync")

    # The other node writes another channel: by its version the list did not change since it was trimmed.
    assert graph.get_state(THREAD).values["messages"][0].content == "trimmed"


def test_messages_of_a_class_of_ones_own_come_back(savers: Savers) -> None:
    graph = (
        StateGraph(MessagesState)
        .add_node("answer", lambda state: {"messages": [Signed(content="yes", signature="me", id="2")]})
        .add_edge(START, "answer")
        .compile(checkpointer=savers.open(allow=[Signed]))
    )
    graph.invoke({"messages": [HumanMessage("?", id="1")]}, THREAD)

    messages = graph.get_state(THREAD).values["messages"]
    assert [(type(message), message.id) for message in messages] == [(HumanMessage, "1"), (Signed, "2")]
    assert messages[1].signature == "me"


def test_runs_without_an_id_are_not_those_of_none(savers: Savers) -> None:
    face = Face(savers.open(), is_async=False)
    face.put(1, {"a": 1})

    face.saver.delete_for_runs([None])  # type: ignore[list-item]  # a user's mistake

    assert numbers(face.list(config())) == [1]


def test_threads_that_are_not_langgraphs_are_not_deleted(savers: Savers) -> None:
    saver = savers.open()
    saver.hf.thread("t#2").save({"mine": True})
    Face(saver, is_async=False).put(1, {"a": 1})

    saver.delete_thread("t")

    assert [thread.name for thread in saver.hf.threads()] == ["t#2"]
