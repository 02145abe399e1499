"""What a saver remembers of what it handed out and stored is never taken for something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
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


def test_a_thread_that_was_deleted_and_started_again_has_nothing_of_the_old_one(savers: Savers) -> None:
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


@pytest.mark.parametrize(
    "change",
    [
        lambda message: message.additional_kwargs.update(note="filled"),
        lambda message: message.tool_calls.append({"name": "pay", "args": {}, "id": "1", "type": "tool_call"}),
        lambda message: message.response_metadata.update(tokens=True),
        lambda message: setattr(message, "name", "other"),
        lambda message: setattr(message, "more", "an extra field"),
    ],
)
def test_a_field_of_a_stored_message_that_is_changed_in_place_is_stored(
    savers: Savers, change: Callable[[AIMessage], None]
) -> None:
    messages = [AIMessage(f"{number}", id=f"{number}") for number in range(40)]
    messages[3].response_metadata["tokens"] = 1
    saver = Face(savers.open(), is_async=False)
    saver.put(1, {"messages": messages})
    for number, changed in ((2, messages[3]), (3, messages[3])):
        if number == 2:
            change(changed)
        saver.put(number, {"messages": [*messages, HumanMessage("new", id="new")]}, parent=number - 1)

    for reading in (saver, Face(savers.open(), is_async=False)):
        found = reading.values(3)["messages"][3]
        assert repr(found) == repr(messages[3])
        assert repr(reading.values(1)["messages"][3]) != repr(messages[3])


def test_a_list_is_the_same_after_messages_were_stored_and_read_in_turns(savers: Savers) -> None:
    saver, other = Face(savers.open(), is_async=False), Face(savers.open(), is_async=False)
    told: list[AIMessage] = []
    for number in range(1, 80):
        told.append(AIMessage(f"{number}", id=f"{number}", response_metadata={"at": number} if number % 7 == 0 else {}))
        saver.put(number, {"messages": told}, parent=number - 1 or None)
        if number % 3 == 0:
            assert (saver if number % 2 else other).values(number)["messages"] == told
    for number in (1, 31, 32, 33, 64, 65, 79):
        assert saver.values(number)["messages"] == other.values(number)["messages"] == told[:number]
