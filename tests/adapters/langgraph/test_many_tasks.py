"""Steps of many tasks at once: each write is stored once, at the end, and all are read in the order of their use."""

from __future__ import annotations

import operator
import random
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, config
from tests.adapters.langgraph.playing import Player
from tests.waiting import DEADLINE, until

LONG = "text that is too long to be told again with each write " * 20


def path(number: int) -> str:
    return f"~__pregel_push, {number:010}, False"


def face_of(savers: Savers) -> Face:
    return Face(savers.open(), is_async=False)


def shuffled(count: int, seed: int = 1) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def of_task(number: int) -> list[tuple[str, Any]]:
    """A text, and a message as a list and alone: those are stored beside the writes."""
    said = AIMessage(f"said by {number} {LONG}", id=f"ai-{number}")
    return [
        ("a", f"{number} {LONG}"),
        ("messages", [HumanMessage(f"{number}", id=f"h-{number}"), said]),
        ("last", said),
    ]


def expected(count: int) -> list[Any]:
    return [(f"task-{number}", *write) for number in range(count) for write in of_task(number)]


def test_writes_come_in_any_order_and_are_read_in_theirs(savers: Savers) -> None:
    face = face_of(savers)
    face.put(1, {"a": 0, "messages": [HumanMessage(LONG, id="first")]})

    for number in shuffled(60):
        face.write(1, of_task(number), f"task-{number}", path(number))

    for reading in (face, face_of(savers)):
        assert reading.writes(1) == expected(60)
        [listed] = reading.list(config())
        assert listed.pending_writes == expected(60)


def test_writes_of_savers_that_take_turns_are_all_there(savers: Savers) -> None:
    """Each knows what it stored itself, and must find what the other did."""
    faces = [face_of(savers) for _ in range(3)]
    faces[0].put(1, {"a": 0})

    for at, number in enumerate(shuffled(45)):
        faces[at % 3].write(1, of_task(number), f"task-{number}", path(number))
        faces[(at + 1) % 3].write(1, [("a", "too late")], f"task-{number}", path(number))

    for face in faces:
        assert face.writes(1) == expected(45)


@pytest.mark.parametrize("seed", range(4))
def test_which_write_counts_does_not_depend_on_how_many_there_are(savers: Savers, seed: int) -> None:
    """Against a dict by task and index: ordinary writes stay, special ones are replaced."""
    chance = random.Random(seed)
    faces = [face_of(savers) for _ in range(2)]
    faces[0].put(1, {"a": 0})
    model: dict[tuple[str, int], tuple[str, Any]] = {}
    for step in range(80):
        number = chance.randrange(20)
        channels = chance.choices(["a", "b", ERROR, INTERRUPT, RESUME], [6, 6, 1, 1, 1], k=chance.randrange(1, 4))
        writes = [(channel, f"{step} {at} {LONG}") for at, channel in enumerate(channels)]
        chance.choice(faces).write(1, writes, f"task-{number:02}", path(number))
        for at, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, at)
            if index < 0 or (f"task-{number:02}", index) not in model:
                model[f"task-{number:02}", index] = (channel, value)

    told = [(task, *model[task, index]) for task, index in sorted(model)]
    for face in (*faces, face_of(savers)):
        assert face.writes(1) == told


def test_a_write_that_is_repeated_is_stored_once(savers: Savers) -> None:
    face = face_of(savers)
    face.put(1, {"a": 0})
    for number in range(40):
        face.write(1, of_task(number), f"task-{number}", path(number))
    assert isinstance(face.saver, HoldfastSaver)
    before = len(list(face.saver.hf.thread("t").history()))

    for number in range(40):
        face.write(1, of_task(number), f"task-{number}", path(number))

    assert len(list(face.saver.hf.thread("t").history())) == before
    assert face.writes(1) == expected(40)


def test_many_writes_stay_through_a_prune_a_copy_and_a_rewind(savers: Savers) -> None:
    face = face_of(savers)
    assert isinstance(face.saver, HoldfastSaver)
    face.put(1, {"a": 0})
    for number in range(30):
        face.write(1, of_task(number), f"task-{number}", path(number))
    for number in range(30, 60):
        face.write(1, of_task(number), f"task-{number}", path(number))

    face.copy_thread("t", "copy")
    face.prune(["copy"])
    for number in range(60, 70):
        face.write(1, of_task(number), f"task-{number}", path(number), thread="copy")
    face.put(2, {"a": 1}, parent=1)
    first = face.saver.hf.thread("t").load("@-2")
    face.saver.hf.thread("t").rewind(first.id)
    face.write(1, of_task(60), "task-60", path(60))

    for reading in (face, face_of(savers)):
        assert reading.writes(1, thread="copy") == expected(70)
        assert reading.writes() == reading.writes(1) == expected(61)
    assert face.saver.hf.verify(deep=True).ok


def test_late_writes_of_an_earlier_checkpoint_are_added_to_that(savers: Savers) -> None:
    face = face_of(savers)
    face.put(1, {"a": 0})
    for number in range(30):
        face.write(1, of_task(number), f"task-{number}", path(number))
    face.put(2, {"a": 1}, parent=1)
    face.write(3, of_task(0), "task-0", path(0))  # of one that is still to come
    for number in range(30, 33):
        face.write(1, of_task(number), f"task-{number}", path(number))
    face.write(2, of_task(1), "task-1", path(1))
    face.put(3, {"a": 2}, parent=2)

    for reading in (face, face_of(savers)):
        assert reading.writes(1) == expected(33)
        assert reading.writes(2) == [("task-1", *write) for write in of_task(1)]
        assert reading.writes(3) == expected(1)


# -- what it costs ----------------------------------------------------------------------------------------------------


def stored(savers: Savers, count: int) -> list[int]:
    """The bytes that each write of a task brought to the store."""
    handle = savers.handle()
    store: Any = handle.context.store
    journal_really = store.journal
    found: list[int] = []

    def journal(thread: int, fence: Any, entries: Any, **options: Any) -> None:
        found.append(sum(len(entry.result) for entry in entries))
        journal_really(thread, fence, entries, **options)

    face = Face(HoldfastSaver(handle), is_async=False)
    face.put(1, {"a": 0})
    store.journal = journal
    try:
        for number in shuffled(count):
            face.write(1, [("a", f"{number:06} {LONG}")], f"task-{number:06}", path(number))
    finally:
        store.journal = journal_really
    return found


def test_a_write_stores_what_is_new_however_many_there_are(local: Savers) -> None:
    found = stored(local, 300)

    assert len(found) == 300
    assert max(found[-100:]) < 1.2 * max(found[10:100])
    assert max(found) < 3 * len(LONG)


class Sent(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    number: int


def fan(saver: Any) -> Any:
    graph = StateGraph(Sent)
    graph.add_node("work", lambda state: {"log": [f"work {state['number']} {LONG}"]})
    graph.add_node("join", lambda state: {"log": [f"joined {len(state['log'])}"]})
    graph.add_conditional_edges(
        START, lambda state: [Send("work", {"number": at}) for at in range(state["number"])], ["work"]
    )
    graph.add_edge("work", "join")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("is_async", [False, True])
def test_two_hundred_tasks_of_one_step(savers: Savers, is_async: bool) -> None:
    def play(saver: Any) -> tuple[Any, list[Any]]:
        player = Player(fan(saver), is_async=is_async, durability="sync")
        return player.invoke({"number": 200}), [
            (one.values, one.next, [task.result for task in one.tasks]) for one in player.history()
        ]

    assert play(savers.open()) == play(InMemorySaver())


def test_early_writes_of_another_saver_are_there_when_this_one_stores_the_checkpoint(savers: Savers) -> None:
    early, other = face_of(savers), face_of(savers)
    other.put(1, {"a": 0})
    early.write(2, [("a", "early")], "task", path(1))
    other.writes(1)
    other.put(2, {"a": 1}, parent=1)
    other.write(2, [("a", "late")], "another", path(2))

    for face in (other, early, face_of(savers)):
        assert face.writes(2) == [("task", "a", "early"), ("another", "a", "late")]


def test_writes_to_a_thread_that_another_saver_deleted_start_it_again(savers: Savers) -> None:
    one, other = face_of(savers), face_of(savers)
    one.put(1, {"a": 0})
    one.write(1, [("a", "old")], "task", path(1))
    other.delete_thread("t")
    one.write(2, [("a", "new")], "task", path(1))
    one.put(2, {"a": 1})

    assert other.writes(2) == [("task", "a", "new")]
    assert [found.checkpoint["channel_values"] for found in other.list(config())] == [{"a": 1}]


def test_a_write_that_was_interrupted_is_not_reported_as_stored(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writes wait for a third; while they are stored one by one, the process is interrupted."""
    face = face_of(local)
    face.put(1, {"a": 0})
    thread = face.saver.shared.thread("t", "")  # type: ignore[attr-defined]  # a HoldfastSaver
    attempts: list[int] = []

    def interrupted(number: int, run: Any, entries: list[Any], *, last: int | None) -> None:
        attempts.append(len(entries))
        raise ValueError if len(entries) > 1 else KeyboardInterrupt

    monkeypatch.setattr(thread.store, "journal", interrupted)
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            face.write(1, [("a", number)], f"task-{number}", path(number))
        except BaseException as error:  # noqa: BLE001 - also the interruption
            failed.append(error)

    with thread.lock:
        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for each in writers:
            each.start()
        until(lambda: len(thread.journal.queue) == 3)
    for each in writers:
        each.join(DEADLINE)
    assert len(failed) == 3
    assert attempts == [3, 1]
