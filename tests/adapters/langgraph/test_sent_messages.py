"""Messages in what a task wrote, such as the state that is sent to a tool: each is stored once, and comes back."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Send

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import Damaged
from holdfast.threads import scan
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, checkpoint_id, version

Another = Callable[[], Face]


class Tone(StrEnum):
    LOUD = "loud"


def told(count: int, start: int = 0) -> list[BaseMessage]:
    return [HumanMessage(f"{number} " + "long " * 200, id=f"{number}") for number in range(start, start + count)]


def stored_bytes(saver: Any) -> int:
    """The size of all writes of the thread."""
    store = saver.hf.context.store
    return sum(len(entry.result or b"") for entry in scan.entries(store, store.head("t").thread.position.thread))


def sent(messages: list[BaseMessage], **more: Any) -> Send:
    """As the prebuilt agent sends a call to its tool."""
    return Send("tools", {"__type": "tool_call_with_context", "state": {"messages": messages, **more}})


VALUES: dict[str, Callable[[list[BaseMessage]], Any]] = {
    "sent": sent,
    "sent with a time limit": lambda messages: Send("tools", {"messages": messages}, timeout=timedelta(seconds=5)),
    "the list": lambda messages: messages,
    "a dict": lambda messages: {"a": 1, "messages": messages, "b": {"messages": messages[1:]}},
    "a dict that looks like plain data": lambda messages: {"$ext": 5, "payload": messages},
    "a key that is no text": lambda messages: {1: {"messages": messages}},
    "a dict in a list": lambda messages: [{"messages": messages}],
}


@pytest.mark.parametrize("name", VALUES)
def test_what_was_written_comes_back(saver: Face, another: Another, name: str) -> None:
    messages = told(10)
    saver.put(1, {"messages": messages, "others": told(5, start=50)})
    value = VALUES[name]([*messages, AIMessage("new", id="n")])
    expected = [("task", "__pregel_tasks", value), ("task", "messages", VALUES[name](messages[:7]))]

    saver.write(1, [(channel, each) for _, channel, each in expected])

    assert saver.writes(1) == another().writes(1) == expected
    assert [type(each) for *_, each in saver.writes(1)] == [type(each) for *_, each in expected]


def test_the_conversation_is_not_stored_again_with_what_is_sent(local: Savers) -> None:
    saver = Face(local.open(), is_async=False)
    messages = told(100)
    saver.put(1, {"messages": messages})
    saver.write(1, [("__pregel_tasks", sent([*messages, AIMessage("new", id="n")]))])

    assert stored_bytes(saver.saver) < 2_000

    # Another process has read the checkpoint, and does as this one did.
    other = Face(local.open(), is_async=False)
    before = stored_bytes(saver.saver)
    other.put(2, {"messages": other.values(1)["messages"]}, parent=1)
    other.write(2, [("__pregel_tasks", sent(messages))])
    assert stored_bytes(saver.saver) < before + 2_000
    assert saver.writes(2) == [("task", "__pregel_tasks", sent(messages))]


def test_a_message_that_was_changed_in_place_is_written_as_it_is(saver: Face, another: Another) -> None:
    messages: list[Any] = [*told(10), ToolMessage("done " * 200, id="10", tool_call_id="1", artifact="loud")]
    saver.put(1, {"messages": messages})
    messages[10].artifact = Tone.LOUD  # it equals the text that was stored
    saver.write(1, [("__pregel_tasks", sent(messages))])
    saver.put(2, {"messages": messages}, parent=1)
    messages[7].content = "changed"
    saver.write(2, [("__pregel_tasks", sent(messages))])
    saver.put(3, {"messages": messages}, parent=2)

    for reading in (saver, another()):
        for number in (1, 2):
            [(_, _, found)] = reading.writes(number)
            for written in (found.arg["state"]["messages"], reading.values(number + 1)["messages"]):
                assert type(written[10].artifact) is Tone
                assert (written[7].content == "changed") is (number == 2)


def test_writes_before_their_checkpoint_are_complete(saver: Face, another: Another) -> None:
    messages = told(10)
    saver.write(1, [("__pregel_tasks", sent(messages))])
    saver.put(1, {"messages": messages})

    assert saver.writes(1) == another().writes(1) == [("task", "__pregel_tasks", sent(messages))]


def test_writes_stay_when_their_checkpoint_is_stored_anew(saver: Face, another: Another) -> None:
    messages = told(10)
    saver.put(1, {"messages": messages})
    saver.write(1, [("__pregel_tasks", sent(messages))])
    saver.put(1, {"messages": told(10, start=20)})

    assert saver.writes(1) == another().writes(1) == [("task", "__pregel_tasks", sent(messages))]


def test_writes_stay_when_another_process_stores_their_checkpoint_anew(saver: Face, another: Another) -> None:
    messages = told(10)
    saver.put(1, {"messages": messages})
    saver.write(1, [("__pregel_tasks", sent(messages))])

    another().put(1, {"messages": told(10, start=20)})

    assert saver.writes(1) == another().writes(1) == [("task", "__pregel_tasks", sent(messages))]


def test_a_fork_has_the_writes_of_a_checkpoint_that_another_process_stored_anew(saver: Face, another: Another) -> None:
    messages = told(10)
    saver.put(1, {"messages": messages})
    saver.write(1, [("__pregel_tasks", sent(messages))])
    another().put(1, {"messages": told(10, start=20)})

    made: Any = saver.saver
    made.fork("t", "fork")

    assert another().writes(thread="fork") == [("task", "__pregel_tasks", sent(messages))]


@pytest.mark.parametrize("way", ["prune", "rewind", "fork"])
def test_a_history_has_the_writes_of_a_checkpoint_that_another_process_stored_anew(
    saver: Face, another: Another, way: str
) -> None:
    messages, other = told(10), another()
    given: Any = {"versions": {"messages": version(1), "d": version(1)}}
    given["metadata"] = {"counters_since_delta_snapshot": {"d": (1, 1)}}
    saver.put(1, {"messages": messages}, **given)
    saver.write(1, [("d", messages)])
    other.put(1, {"messages": told(10, start=20)}, **given)
    other.put(2, {"messages": told(10, start=20)}, parent=1, **given)
    other.put(3, {"messages": told(10, start=20)}, parent=2, **given)

    made: Any = saver.saver
    match way:
        case "prune":
            made.prune(["t"])
        case "rewind":
            made.rewind("t", checkpoint_id(2))
        case _:
            made.fork("t", "fork")

    thread = "fork" if way == "fork" else "t"
    assert other.history(None, ["d"], thread=thread) == {"d": {"writes": [("task", "d", messages)]}}


def test_what_is_written_to_a_checkpoint_while_another_process_stores_it_anew_is_never_wrong(lasting: Savers) -> None:
    saver, other = Face(lasting.open(), is_async=False), Face(lasting.open(), is_async=False)
    saver.put(1, {"messages": told(10)})
    other.put(1, {"messages": told(10, start=20)})
    saver.write(1, [("__pregel_tasks", sent(told(10)))])

    with pytest.raises(Damaged, match="messages"):
        other.writes(1)


@pytest.mark.parametrize(
    "make", [str, lambda text: [{"type": "text", "text": text[:100]}] * 400], ids=["text", "parts"]
)
def test_a_large_message_is_not_taken_for_another_one_of_its_size(local: Savers, make: Callable[[str], Any]) -> None:
    saver, other = Face(local.open(), is_async=False), Face(local.open(), is_async=False)
    one, another = (HumanMessage(make(letter * 30_000), id="large") for letter in "ab")
    saver.put(1, {"messages": [*told(3), one]})
    other.put(1, {"messages": [*told(3), another]})
    saver.write(1, [("__pregel_tasks", sent([*told(3), one]))])

    with pytest.raises(Damaged, match="messages"):
        other.writes(1)


def test_copies_forks_and_what_is_left_after_a_prune_have_their_writes(saver: Face, another: Another) -> None:
    messages = told(10)
    saver.put(1, {"messages": messages[:5]})
    saver.put(2, {"messages": messages}, parent=1)
    expected = [("task", "__pregel_tasks", sent([*messages, AIMessage("new", id="n")], n=1))]
    saver.write(2, [(channel, value) for _, channel, value in expected])
    made: Any = saver.saver
    made.copy_thread("t", "copy")
    made.fork("t", "fork")
    made.fork("t", "earlier", checkpoint_id(1))
    saver.prune(["t"])

    for thread in ("t", "copy", "fork"):
        for reading in (saver, another()):
            assert reading.writes(thread=thread) == expected, thread
    assert another().writes(thread="earlier") == []


def test_messages_that_were_redacted_are_not_stored_again(local: Savers) -> None:
    saver = Face(HoldfastSaver(local.handle(redact=lambda text: re.sub("long", "…", text))), is_async=False)
    messages = told(100)
    saver.put(1, {"messages": messages})
    saver.write(1, [("__pregel_tasks", sent([*messages, AIMessage("long", id="n")]))])

    [(_, _, found)] = saver.writes(1)
    assert found.arg["state"]["messages"] == [*saver.values(1)["messages"], AIMessage("…", id="n")]
    assert stored_bytes(saver.saver) < 2_000
