"""What a saver remembers of what it handed out and stored is never taken for something else."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver, checkpoints, messages, writes
from holdfast.adapters.langgraph.serde import Values
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, config, numbers
from tests.interruption import Interrupt

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


def test_messages_are_the_same_after_the_cache_was_full(savers: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_CACHE_BYTES", 20 * 1_300)
    saver, other = Face(savers.open(), is_async=False), Face(savers.open(), is_async=False)
    told = [HumanMessage(f"{number} " * 100, id=f"{number}") for number in range(13)]
    saver.put(1, {"messages": told[:10]})
    assert saver.values(1)["messages"] == told[:10]
    saver.put(1, {"messages": [HumanMessage(f"{number} " * 100) for number in range(15)]}, thread="full")
    other.put(2, {"messages": told}, parent=1)

    for _ in range(3):
        assert saver.values(2)["messages"] == told
    saver.put(3, {"messages": told}, parent=2)
    assert other.values(3)["messages"] == saver.values(3)["messages"] == told


@pytest.mark.parametrize("is_read", [True, False])
def test_the_messages_that_are_kept_in_memory_take_few_bytes(
    savers: Savers, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    monkeypatch.setattr(messages, "_CACHE_BYTES", 100_000)
    saver = savers.open()
    face = Face(saver, is_async=False)
    cache = saver.shared.messages
    resets = 0
    for thread in range(30):
        told: list[AIMessage] = []
        for number in range(1, 6):
            told.append(AIMessage(f"{thread} {number} " * 400, id=f"{number}", response_metadata={"n": "x" * 500}))
            before = cache._known
            face.put(number, {"messages": told}, parent=number - 1 or None, thread=f"{thread}")
            if is_read:
                assert face.values(number, thread=f"{thread}")["messages"] == told
            resets += cache._known is not before
            known = [one for stored in cache._known.values() for one in stored.prints]
            assert sum(len(content) + len(rest) for content, rest in known) < 100_000 + 5 * 4_500

    assert resets in (4, 5)  # with 490 kB of messages


@pytest.mark.parametrize("before", [None, "text"])
def test_a_tool_message_has_an_array(savers: Savers, before: Any) -> None:
    def told(artifact: Any) -> list[ToolMessage]:
        return [ToolMessage("long " * 600, id="1", tool_call_id="1", artifact=artifact)]

    saver = Face(savers.open(), is_async=False)
    saver.put(1, {"messages": told(before)})
    for number in (2, 3):
        saver.put(number, {"messages": told(np.array([1, 2, 3]))}, parent=number - 1)

    for reading in (saver, Face(savers.open(), is_async=False)):
        assert reading.values(1)["messages"][0].artifact == before
        assert reading.values(3)["messages"][0].artifact.tolist() == [1, 2, 3]


def test_a_redacted_message_is_not_encoded_again(savers: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = Face(HoldfastSaver(savers.handle(redact=lambda text: re.sub("secret", "…", text))), is_async=False)
    encoded: list[int] = []
    to_plain = Values.to_plain

    def counted(values: Values, value: Any, path: str = "$") -> Any:
        if path == "messages":
            encoded.append(len(value))
        return to_plain(values, value, path)

    monkeypatch.setattr(Values, "to_plain", counted)
    for turn in range(5):
        told = saver.values(2 * turn)["messages"] if turn else []
        told += [HumanMessage("secret " * 600, id=f"{turn}")]
        saver.put(2 * turn + 1, {"messages": told}, parent=2 * turn or None)
        saver.put(2 * turn + 2, {"messages": [*told, AIMessage("text " * 600, id=f"to {turn}")]}, parent=2 * turn + 1)

    assert encoded == [1] * 10


def test_messages_that_are_learned_meanwhile_are_not_taken_for_others() -> None:
    told = [HumanMessage(f"{number}", id=f"{number}") for number in range(3)]
    known = messages._StoredMessages()
    known.kinds = [HumanMessage] * 3
    known.prints = [messages.print_of(told[0])]  # the others are about to be added

    assert known.same([*told], 3) == 1


def test_copies_are_right_after_an_interrupt_of_a_full_group() -> None:
    told = [HumanMessage(f"{number}", id=f"{number}") for number in range(70)]
    prints = [*map(messages.print_of, told)]

    class Interrupted(list[Any]):
        def append(self, item: Any) -> None:
            super().append(item)
            raise KeyboardInterrupt

    known = messages._StoredMessages()
    known.add(told[:31], prints[:31])
    known.groups = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        known.add(told[31:40], prints[31:40])
    known.groups = [*known.groups]
    copied = len(known.groups) * messages._GROUP + len(known.tail)
    known.add(told[copied:], prints[copied:])

    assert messages._copies(*known.pickled(70), 70) == told


def test_copies_share_their_texts_and_nothing_that_can_change() -> None:
    told = [AIMessage(f"{number} " + "long " * 50, id="i" * 80, additional_kwargs={"k": [1]}) for number in range(64)]
    known = messages._StoredMessages()
    known.add(told, [*map(messages.print_of, told)])

    first, second = (messages._copies(*known.pickled(64), 64) for _ in range(2))
    assert first == second == told
    for one, other in zip(first, second, strict=True):
        assert one is not other
        assert one.content is other.content
        assert one.additional_kwargs["k"] is not other.additional_kwargs["k"]
        assert one.tool_calls is not other.tool_calls


def test_two_readers_of_a_value_both_get_it() -> None:
    value = messages.StoredValue(Values(JsonPlusSerializer()).to_plain([HumanMessage("hello", id="1")]))

    class Meanwhile(Values):
        """Another thread reads the same value at the worst moment."""

        is_first = True

        def __getattribute__(self, name: str) -> Any:
            if name == "from_plain" and Meanwhile.is_first:
                Meanwhile.is_first = False
                value.load(self, "messages")
            return super().__getattribute__(name)

    assert value.load(Meanwhile(JsonPlusSerializer()), "messages") == [HumanMessage("hello", id="1")]


def test_the_checkpoints_that_are_kept_in_memory_are_few_if_they_are_not_small(savers: Savers) -> None:
    saver = savers.open()
    face = Face(saver, is_async=False)
    for number in range(1, 101):
        face.put(number, {"draft": f"{number:08}" * 1_500}, parent=number - 1 or None)

    kept = saver.shared.thread("t", "")._stored.values()
    assert len(kept) > 5
    assert sum(each.base.footprint for each in kept) <= checkpoints._STORED_BYTES
    assert numbers(face.list(config())) == [*range(100, 0, -1)]
    assert sum(each.base.footprint for each in kept) <= checkpoints._STORED_BYTES


def test_the_writes_that_are_kept_in_memory_take_few_bytes(savers: Savers) -> None:
    saver = savers.open()
    face = Face(saver, is_async=False)
    journal = saver.shared.thread("t", "").journal

    def size() -> int:
        return sum(len(entry.result or b"") for entries in journal._known.values() for entry in entries)

    for number in range(1, 31):
        face.put(number, {}, parent=number - 1 or None)
        for task in range(5):
            face.write(number, [("draft", f"{number:05}" * 10_000)], f"task-{task}", f"{task}")
        assert size() <= writes._KNOWN_BYTES

    assert size() > writes._KNOWN_BYTES / 2
    for number in (*range(1, 31), *range(30, 0, -1)):
        assert [(task, value[:5]) for task, _, value in face.writes(number)] == [
            (f"task-{task}", f"{number:05}") for task in range(5)
        ]
        assert size() <= writes._KNOWN_BYTES


def test_writes_of_one_checkpoint_that_are_too_many_for_memory_are_read(savers: Savers) -> None:
    saver = savers.open()
    face = Face(saver, is_async=False)
    face.put(1, {})
    face.put(2, {}, parent=1)
    for task in range(9):
        face.write(2, [("draft", "x" * 1_000_000)], f"task-{task}", f"{task}")
        assert [found for found, *_ in face.writes(2)] == [f"task-{each}" for each in range(task + 1)]
    face.write(1, [("draft", "y")], "late")

    assert face.writes(1) == [("late", "draft", "y")]
    assert saver.shared.thread("t", "").journal.size <= writes._KNOWN_BYTES


def test_an_interrupt_leaves_no_checkpoint_without_its_writes(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_KNOWN_BYTES", 200)
    saver, other = Face(local.open(), is_async=False), Face(local.open(), is_async=False)
    wrong: dict[str, list[int]] = {}
    at, is_over = 0, False
    while not is_over:
        at += 1
        for number in range(1, 5):
            saver.put(number, {}, parent=number - 1 or None, thread=at)
            saver.write(number, [("a", f"{number}" * 50)], thread=at)
        interrupt = Interrupt(at, number=signal.SIGINT, within=writes.__file__, checks=True)
        with interrupt.strike():
            saver.writes(1, thread=at)
            other.write(3, [("b", "more")], "another task", thread=at)
            saver.write(2, [("b", "more")], "another task", thread=at)
            saver.writes(3, thread=at)
        missing = [
            number for number in range(1, 5) if saver.writes(number, thread=at) != other.writes(number, thread=at)
        ]
        if missing:
            wrong[interrupt.place] = missing
        is_over = not interrupt.came

    assert wrong == {}


def test_the_states_that_are_kept_in_memory_take_few_bytes(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "s.db", base_bytes=1_000_000) as saver:
        face = Face(saver, is_async=False)
        for thread in range(50):
            face.put(1, {"draft": f"{thread:05}" * 20_000}, thread=f"{thread}")
            face.put(2, {"draft": f"{thread:05}" * 20_000}, parent=1, thread=f"{thread}")
            assert sum(one.size for one in saver.shared._threads.values()) < 1_000_000 + 16 * 110_000

        assert len(saver.shared._threads) > 5
        for thread in range(50):
            assert face.values(2, thread=f"{thread}") == {"draft": f"{thread:05}" * 20_000}


def test_a_few_large_states_take_no_more_bytes_than_many_small_ones(tmp_path: Path) -> None:
    with HoldfastSaver(tmp_path / "s.db", base_bytes=1_000_000) as saver:
        face = Face(saver, is_async=False)
        for thread in range(10):
            face.put(1, {"draft": f"{thread:05}" * 100_000}, thread=f"{thread}")
            assert sum(one.size for one in saver.shared._threads.values()) < 1_000_000 + 510_000
        for thread in range(10):
            assert face.values(1, thread=f"{thread}") == {"draft": f"{thread:05}" * 100_000}
