"""Redaction changes what users said, and nothing that LangGraph finds its way by: ids, versions, tasks, names."""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.threads import scan
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, checkpoint_id, config, version
from tests.adapters.langgraph.playing import Player

SECRET = "4111111111111111"  # noqa: S105 - what must not be stored
REMOVED = "[removed]"


def numbers_and_ids(text: str) -> str:
    """Takes whatever looks like a number or an id for a secret."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f-]{2,}", REMOVED, text)


def names(text: str) -> str:
    """Takes the names of channels, nodes, fields and types for those of people."""
    known = "messages|answer|fan|work|done|log|human|ai|id|content|langchain|langgraph|loop|input|source|line|table"
    return re.sub(rf"{SECRET}|{known}", REMOVED, text, flags=re.IGNORECASE)


def everything(text: str) -> str:
    return REMOVED


REDACTIONS = [numbers_and_ids, names, everything]
Redaction = Callable[[str], str]


class Recording(HoldfastSaver):
    """Keeps what LangGraph handed to it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.puts: dict[str, tuple[Any, Any, Any]] = {}
        self.writes: dict[str, set[tuple[str, str]]] = {}

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        given = copy.deepcopy((config["configurable"].get("checkpoint_id"), checkpoint, dict(metadata)))
        stored = super().put(config, checkpoint, metadata, new_versions)
        self.puts[checkpoint["id"]] = given
        return stored

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        written = self.writes.setdefault(config["configurable"]["checkpoint_id"], set())
        written |= {(task_id, channel) for channel, _ in writes}


@pytest.fixture(params=REDACTIONS)
def redact(request: pytest.FixtureRequest) -> Redaction:
    function: Redaction = request.param
    return function


@pytest.fixture
def recording(savers: Savers, redact: Redaction) -> Recording:
    return Recording(savers.handle(redact=redact))


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[str], lambda old, new: [*(old or []), *new]]


def fanned(saver: Any) -> Any:
    """A fan-out by `Send`, a question, an answer."""

    def ask(state: State) -> dict[str, Any]:
        said = interrupt({"may I?": SECRET})
        return {"messages": [AIMessage(f"heard {said} and {SECRET}", id=str(uuid.UUID(int=1)))]}

    graph = StateGraph(State)
    graph.add_node("fan", lambda state: {"done": [f"fan {SECRET}"]})
    graph.add_node("work", lambda state: {"done": [f"work {state['at']} {SECRET}"]})
    graph.add_node("answer", ask)
    graph.add_edge(START, "fan")
    graph.add_conditional_edges("fan", lambda state: [Send("work", {"at": at}) for at in range(3)], ["work"])
    graph.add_edge("work", "answer")
    return graph.compile(checkpointer=saver)


def test_what_langgraph_goes_by_comes_back_as_it_was(recording: Recording) -> None:
    graph = fanned(recording)
    told = {**config(), "metadata": {"run_id": "run-12345"}}
    graph.invoke({"messages": [HumanMessage(SECRET, id=str(uuid.UUID(int=2)))]}, told, durability="sync")
    graph.invoke(Command(resume=f"yes {SECRET}"), told, durability="sync")

    listed = [*recording.list(config(ns=None))]

    assert {one.checkpoint["id"] for one in listed} == set(recording.puts)
    for one in listed:
        parent, given, metadata = recording.puts[one.checkpoint["id"]]
        for key in ("v", "id", "ts", "channel_versions", "versions_seen", "updated_channels"):
            assert one.checkpoint[key] == given[key], key
        assert list(one.checkpoint["channel_values"]) == list(given["channel_values"])
        assert one.parent_config == (None if parent is None else config(number=None) | _of(parent))
        assert {key: one.metadata[key] for key in metadata} == metadata  # type: ignore[literal-required]  # a key of it
        assert one.metadata.get("run_id") == "run-12345"
        written = {(task, channel) for task, channel, _ in one.pending_writes or []}
        assert written == recording.writes.get(one.checkpoint["id"], set())


def _of(parent: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}}


def test_a_graph_comes_to_the_same_end_in_processes_that_each_know_only_what_is_stored(
    savers: Savers, redact: Redaction
) -> None:
    def play(open_one: Callable[[], Any]) -> tuple[list[Any], list[Any], Any]:
        graph = fanned(open_one())
        given = {"messages": [HumanMessage(SECRET, id=str(uuid.UUID(int=2)))]}
        graph.invoke(given, config(), durability="sync")
        [question] = fanned(open_one()).get_state(config()).interrupts
        fanned(open_one()).invoke(Command(resume={question.id: "yes"}), config(), durability="sync")
        state = fanned(open_one()).get_state(config())
        history = fanned(open_one()).get_state_history(config())
        ids = [message.id for message in state.values["messages"]]
        return ids, [(one.next, one.metadata["step"], len(one.tasks)) for one in history], state

    kept = InMemorySaver()
    theirs_ids, theirs, _ = play(lambda: kept)
    ours_ids, ours, state = play(lambda: HoldfastSaver(savers.handle(redact=redact)))

    assert ours_ids == theirs_ids
    assert ours == theirs
    assert [type(message) for message in state.values["messages"]] == [HumanMessage, AIMessage]
    assert SECRET not in repr(state.values)
    assert state.values["messages"][0].content == REMOVED
    assert len(state.values["done"]) == 4


def test_no_secret_is_left_in_what_is_read(recording: Recording) -> None:
    graph = fanned(recording)
    told = {"configurable": {"thread_id": "t", "customer": SECRET}, "metadata": {"note": SECRET}}
    graph.invoke({"messages": [HumanMessage(SECRET, id="h")]}, told, durability="sync")

    found = [*recording.list(None)]

    assert len(found) == 4
    assert SECRET not in repr(found)


def test_many_channels_are_redacted_one_by_one(savers: Savers, redact: Redaction) -> None:
    """They are stored under one key, each with its name."""
    face = Face(HoldfastSaver(savers.handle(redact=redact)), is_async=False)
    values: dict[str, Any] = {f"line {at:05}": SECRET for at in range(80)}
    values["messages"] = [HumanMessage(SECRET, id=f"{at:08}") for at in range(3)]
    face.put(1, values)

    for reading in (face, Face(HoldfastSaver(savers.handle(redact=redact)), is_async=False)):
        found = reading.get()
        assert list(found.checkpoint["channel_values"]) == list(values)
        assert found.checkpoint["channel_versions"] == dict.fromkeys(values, version(1))
        assert [one.id for one in reading.values()["messages"]] == ["00000000", "00000001", "00000002"]
        assert {text for text in reading.values().values() if isinstance(text, str)} == {REMOVED}


def test_messages_in_writes_keep_their_ids_and_types(savers: Savers, redact: Redaction) -> None:
    face = Face(HoldfastSaver(savers.handle(redact=redact)), is_async=False)
    face.put(1, {"a": 1})
    given = [HumanMessage(SECRET, id="11111111"), AIMessage(SECRET, id="22222222")]
    face.write(1, [("messages", given), ("messages", given[0])], "12345678", "path 12345678")
    face.write(2, [("messages", given)], "12345678", "path 12345678")
    face.put(2, {"a": 2}, parent=1)

    first, second = ([(task, channel) for task, channel, _ in face.writes(at)] for at in (1, 2))
    assert first == [("12345678", "messages")] * 2
    assert second == first[:1]
    for found in (face.writes(1)[0][2], [face.writes(1)[1][2], face.writes(1)[0][2][1]], face.writes(2)[0][2]):
        assert [(type(one), one.id, one.content) for one in found] == [
            (HumanMessage, "11111111", REMOVED),
            (AIMessage, "22222222", REMOVED),
        ]


def test_values_that_are_no_texts_stay(savers: Savers, redact: Redaction) -> None:
    face = Face(HoldfastSaver(savers.handle(redact=redact)), is_async=False)
    values: dict[str, Any] = {
        "id": uuid.UUID(int=4111111111111111),
        "when": datetime(2026, 11, 15, 12, 30, tzinfo=UTC),
        "number": 4111111111111111,
        "bytes": SECRET.encode(),
        "send": Send("work", {"at": 4111111111111111}),
    }
    face.put(1, values)

    found = face.values()
    assert {**found, "send": None} == {**values, "send": None}
    assert found["send"].node == "work"
    assert [*found["send"].arg.values()] == [4111111111111111]


def test_a_pruned_delta_channel_keeps_its_name_and_tasks(savers: Savers, redact: Redaction) -> None:
    """What is kept of its ancestors is not redacted once more."""

    def play(saver: Any) -> tuple[Player, int]:
        player = Player(graphs.delta(100)(saver), is_async=False, durability="sync")
        for turn in range(2):
            player.invoke({"turn": turn, "line": [SECRET], "table": {}})
        return player, len(player.state().values["line"])

    _, expected = play(InMemorySaver())
    saver = HoldfastSaver(savers.handle(redact=redact))
    player, _ = play(saver)
    before = player.state().values

    saver.prune(["t"])

    after = graphs.delta(100)(HoldfastSaver(savers.handle(redact=redact))).get_state(config()).values
    assert after == before
    assert len(after["line"]) == expected
    assert SECRET not in repr(after)


def test_runs_are_found_by_their_ids(savers: Savers, redact: Redaction) -> None:
    face = Face(HoldfastSaver(savers.handle(redact=redact)), is_async=False)
    run = str(uuid.UUID(int=7))
    face.put(1, {"a": 1}, metadata={"run_id": str(uuid.UUID(int=6))})
    face.put(2, {"a": 2}, parent=1, metadata={"run_id": run, "parents": {"": checkpoint_id(1)}})
    assert face.get().metadata["parents"] == {"": checkpoint_id(1)}

    face.delete_for_runs([run])

    assert [one.checkpoint["id"] for one in face.list(config())] == [checkpoint_id(1)]


def test_ids_that_are_no_uuids_stay(savers: Savers, redact: Redaction) -> None:
    saver = HoldfastSaver(savers.handle(redact=redact))
    empty: dict[str, Any] = {"v": 4, "ts": "2026", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
    for at, given in enumerate(("id-1000001", "id-1000002")):
        before: Any = {"thread_id": "t", "checkpoint_ns": "", **({"checkpoint_id": "id-1000001"} if at else {})}
        made: Any = {**empty, "id": given}
        saver.put({"configurable": before}, made, {"source": "loop", "step": at, "parents": {}}, {})

    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["id"] == "id-1000002"
    assert found.parent_config is not None
    assert found.parent_config["configurable"]["checkpoint_id"] == "id-1000001"


def test_two_keys_that_become_one_cost_no_value(tmp_path: Path) -> None:
    with HoldfastSaver(holdfast.open(tmp_path / "agent.db", redact=everything)) as saver:
        face = Face(saver, is_async=False)
        face.put(1, {"a": {"one": 1, "two": 2}})
        assert face.values() == {"a": {REMOVED: 1, f"{REMOVED} (2)": 2}}
        with pytest.raises(holdfast.Unsupported):
            face.put(2, {"a": {"$ext": 1, "two": 2}}, parent=1)
        saver.hf.close()


def test_a_key_that_is_redacted_is_not_part_of_a_reference_to_messages(local: Savers) -> None:
    saver = Face(HoldfastSaver(local.handle(redact=lambda text: text.replace(SECRET, REMOVED))), is_async=False)
    told = [HumanMessage(f"{number} " + "long " * 200, id=f"m{number}") for number in range(5)]
    saver.put(1, {"messages": told})
    saver.write(1, [("table", {SECRET: told, "more": told}), ("__pregel_tasks", Send("tools", {SECRET: told}))])

    [(_, _, table), (_, _, sent)] = saver.writes(1)
    assert table == {REMOVED: told, "more": told}
    assert sent == Send("tools", {REMOVED: told})
    store = saver.saver.hf.context.store  # type: ignore[attr-defined] # a HoldfastSaver
    [entry] = scan.entries(store, store.head("t").thread.position.thread)
    assert SECRET.encode() not in (entry.result or b"")
