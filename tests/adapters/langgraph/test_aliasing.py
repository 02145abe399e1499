"""No sharing: what a caller keeps and changes is not what is stored, nor what somebody else was given."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from tests.adapters.langgraph.faces import Face, checkpoint, config, version

Another = Callable[[], Face]
Messages = list[AnyMessage]


def tree() -> dict[str, Any]:
    return {
        "list": [1, [2, {"deep": ["x"]}]],
        "dict": {"a": {"b": [1]}},
        "set": {1, 2},
        "message": AIMessage("hi", id="m1", tool_calls=[{"name": "f", "args": {"q": ["x"]}, "id": "c1"}]),
        "messages": [HumanMessage([{"type": "text", "text": "hello"}], id="m2", additional_kwargs={"k": [1]})],
    }


def spoil(values: dict[str, Any]) -> None:
    """Change it at every depth."""
    values["list"][1][1]["deep"].append("spoilt")
    values["list"].append("spoilt")
    values["dict"]["a"]["b"][0] = "spoilt"
    values["dict"]["new"] = "spoilt"
    values["set"].add("spoilt")
    values["message"].content = "spoilt"
    values["message"].tool_calls[0]["args"]["q"].append("spoilt")
    values["messages"][0].content[0]["text"] = "spoilt"
    values["messages"][0].additional_kwargs["k"].append("spoilt")
    values["messages"].append("spoilt")
    values["new"] = "spoilt"


def test_spoiling_is_seen() -> None:
    spoilt = tree()
    spoil(spoilt)

    assert all(spoilt[key] != value for key, value in tree().items())


def test_what_was_given_to_put_may_change_afterwards(saver: Face, another: Another) -> None:
    values = tree()
    at = dict.fromkeys(values, version(1))
    given = checkpoint(1, values, dict(at), versions_seen={"node": {"list": version(1)}})
    metadata: Any = {"source": "loop", "step": 1, "parents": {"": "x"}, "nested": {"a": [1]}}
    new = dict(at)
    asked = config()
    saver.put_raw(asked, given, metadata, new)

    spoil(values)
    given["channel_versions"]["list"] = version(9)
    given["versions_seen"]["node"]["list"] = version(9)
    given["versions_seen"]["new"] = {}
    metadata["nested"]["a"].append(2)
    metadata["parents"]["y"] = "z"
    new.clear()
    asked["configurable"]["thread_id"] = "another"

    for reading in (saver, another()):
        found = reading.get()
        assert found.checkpoint["channel_values"] == tree()
        assert found.checkpoint["channel_versions"] == at
        assert found.checkpoint["versions_seen"] == {"node": {"list": version(1)}}
        assert found.metadata == {"source": "loop", "step": 1, "parents": {"": "x"}, "nested": {"a": [1]}}


def test_put_leaves_what_it_was_given_as_it_was(saver: Face) -> None:
    values = tree()
    at = dict.fromkeys(values, version(1))
    given = checkpoint(1, values, at)
    before = copy.deepcopy(given)
    metadata: Any = {"source": "loop", "step": 1, "parents": {}}

    saver.put_raw(config(), given, metadata, at)
    writes = [("list", values["list"])]
    saver.write(1, writes)
    saver.get()

    assert given == before
    assert given["channel_values"] is values
    assert metadata == {"source": "loop", "step": 1, "parents": {}}
    assert writes == [("list", before["channel_values"]["list"])]


def test_what_was_given_as_writes_may_change_afterwards(saver: Face, another: Another) -> None:
    values = tree()
    writes = list(values.items())
    saver.write(1, writes)
    saver.put(1)
    saver.write(1, [("late", values)], "task-2")
    late = tree()

    spoil(values)
    writes.clear()

    for reading in (saver, another()):
        assert reading.writes(1) == [*(("task", key, value) for key, value in tree().items()), ("task-2", "late", late)]


@pytest.mark.parametrize("number", [None, 1])
def test_what_was_got_may_be_changed(saver: Face, number: int | None) -> None:
    saver.put(1, tree())
    saver.write(1, list(tree().items()))
    first = saver.get(number)
    second = saver.get(number)

    spoil(second.checkpoint["channel_values"])
    second.checkpoint["channel_versions"].clear()
    second.checkpoint["versions_seen"]["x"] = {}
    second.metadata["parents"]["x"] = "y"
    second.config["configurable"]["thread_id"] = "another"
    assert second.pending_writes is not None
    spoil({channel: value for _, channel, value in second.pending_writes})
    second.pending_writes.clear()

    third = saver.get(number)
    for kept in (first, third):
        assert kept.checkpoint["channel_values"] == tree()
        assert set(kept.checkpoint["channel_versions"]) == set(tree())
        assert kept.checkpoint["versions_seen"] == {"__input__": {}}
        assert kept.metadata == {"source": "loop", "step": 1, "parents": {}}
        assert kept.config["configurable"]["thread_id"] == "t"
        assert kept.pending_writes == [("task", key, value) for key, value in tree().items()]


def test_values_and_writes_of_one_tuple_share_nothing(saver: Face) -> None:
    saver.put(1, tree())
    saver.write(1, list(tree().items()))
    found = saver.get()

    spoil(found.checkpoint["channel_values"])

    assert found.pending_writes == [("task", key, value) for key, value in tree().items()]


def test_the_tuples_of_one_list_share_nothing(saver: Face) -> None:
    saver.put(1, tree())
    saver.put(2, tree(), parent=1)
    saver.put(3, {}, parent=2, versions=dict.fromkeys(tree(), version(2)), new={})
    first, second, third = saver.list(config())

    spoil(second.checkpoint["channel_values"])
    second.metadata["parents"]["x"] = "y"

    assert first.checkpoint["channel_values"] == tree()
    assert third.checkpoint["channel_values"] == tree()
    assert first.metadata["parents"] == {}
    assert [found.checkpoint["channel_values"] for found in saver.list(config())] == [tree(), tree(), tree()]


def test_two_places_of_one_value_are_two_values(saver: Face) -> None:
    """Equal parts are stored once; that is nobody's business who reads them."""
    message = HumanMessage("same", id="m")
    saver.put(1, {"a": [message, message], "b": message})
    found = saver.values()

    found["a"][0].content = "changed"

    assert found["a"][1].content == "same"
    assert found["b"].content == "same"


def test_a_message_changed_in_place_is_stored_as_it_is_now(saver: Face, another: Another) -> None:
    message = HumanMessage("first", id="m", additional_kwargs={"k": [1]})
    messages: Messages = [message, AIMessage("reply", id="n")]
    saver.put(1, {"messages": messages})
    message.content = "second"
    saver.put(2, {"messages": messages}, parent=1)
    message.additional_kwargs["k"].append(2)
    saver.put(3, {"messages": [*messages]}, parent=2)
    messages.reverse()
    saver.put(4, {"messages": messages}, parent=3)

    for reading in (saver, another()):
        kept = {number: reading.values(number)["messages"] for number in (1, 2, 3, 4)}
        assert [one.content for one in kept[1]] == ["first", "reply"]
        assert [one.content for one in kept[2]] == ["second", "reply"]
        assert kept[2][0].additional_kwargs == {"k": [1]}
        assert kept[3][0].additional_kwargs == {"k": [1, 2]}
        assert [one.content for one in kept[4]] == ["reply", "second"]


def test_what_was_got_may_be_changed_and_put_again(saver: Face, another: Another) -> None:
    saver.put(1, {"messages": [HumanMessage("one", id="1"), HumanMessage("two", id="2")]})
    for number in range(2, 6):
        values = saver.values()
        values["messages"][0].content += "!"
        values["messages"].append(HumanMessage(f"new {number}", id=f"{number}x"))
        saver.put(number, values, parent=number - 1)

    for reading in (saver, another()):
        firsts = [reading.values(number)["messages"][0].content for number in range(1, 6)]
        assert firsts == ["one", "one!", "one!!", "one!!!", "one!!!!"]
        assert [len(reading.values(number)["messages"]) for number in range(1, 6)] == [2, 3, 4, 5, 6]


def test_values_of_other_types_are_told_apart(saver: Face) -> None:
    """Equal is not the same: 1, True and 1.0, or a message and one of another kind."""
    states: list[Any] = [[1], [True], [1.0], [0.0], [-0.0], ["1"], [b"1"], [None], [[]], [{}]]
    for number, state in enumerate(states, 1):
        saver.put(number, {"a": state}, parent=number - 1 or None)

    found = [saver.values(number)["a"] for number in range(1, len(states) + 1)]

    assert [(type(one[0]), repr(one)) for one in found] == [(type(one[0]), repr(one)) for one in states]


def test_whatever_is_done_to_the_state_each_checkpoint_keeps_its_own(saver: Face, another: Another) -> None:
    random = Random(11)
    messages: Messages = []
    expected: list[list[str]] = []
    for number in range(1, 60):
        match random.randrange(6):
            case 0 | 1:
                # Short-lived objects: the address of one that is gone is soon another's.
                messages = [*messages, HumanMessage(f"{number}", id=f"{number}")]
            case 2 if messages:
                random.choice(messages).content = f"edited {number}"
            case 3 if messages:
                messages = [copy.deepcopy(one) for one in messages]
            case 4 if messages:
                del messages[random.randrange(len(messages))]
            case _:
                messages.insert(random.randrange(len(messages) + 1), AIMessage(f"in {number}", id=f"{number}"))
        saver.put(number, {"messages": messages}, parent=number - 1 or None)
        expected.append([f"{type(one).__name__} {one.content}" for one in messages])

    for reading in (saver, another()):
        found = [one.checkpoint["channel_values"]["messages"] for one in reading.list(config())]
        assert [[f"{type(one).__name__} {one.content}" for one in state] for state in reversed(found)] == expected


def test_an_async_put_has_taken_the_value_when_it_first_waits(saver: Face) -> None:
    """A node that goes on meanwhile and changes its state does not change what is being saved."""

    async def put_and_change() -> None:
        values = tree()
        at = dict.fromkeys(values, version(1))
        metadata: Any = {"source": "loop", "step": 1, "parents": {}}
        putting = asyncio.create_task(saver.saver.aput(config(), checkpoint(1, values, {**at}), metadata, {**at}))
        await asyncio.sleep(0)
        spoil(values)
        await putting
        writes = tree()
        writing = asyncio.create_task(saver.saver.aput_writes(config(number=1), list(writes.items()), "task"))
        await asyncio.sleep(0)
        spoil(writes)
        await writing

    asyncio.run(put_and_change())

    assert saver.values() == tree()
    assert saver.writes() == [("task", key, value) for key, value in tree().items()]
