"""Threads with DeltaChannels: their state stays what it was when older checkpoints go, are copied, or fork."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite, interrupt

from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import config
from tests.adapters.langgraph.playing import Player

FREQUENCIES = [2, 100]


def player_on(saver: Any, frequency: int, *, is_async: bool = False, thread: str = "t") -> Player:
    return Player(graphs.delta(frequency)(saver), is_async=is_async, durability="sync", thread=thread)


def run(player: Player, turns: range) -> None:
    """A run of its own for each turn."""
    for turn in turns:
        told = {**player.config, "metadata": {"run_id": f"run-{turn}"}}
        player.invoke({"turn": turn, "line": [f"input {turn}"], "table": {f"input-{turn}": turn}}, told)


def expected(frequency: int, turns: int) -> list[Any]:
    """The values after each turn, of a thread to which nothing happened."""
    player = player_on(InMemorySaver(), frequency)
    run(player, range(turns))
    return player.told


def states(player: Player) -> list[Any]:
    """Newest first."""
    return [(one.metadata["step"] if one.metadata else None, one.next, one.values) for one in player.history()]


@pytest.fixture(params=FREQUENCIES)
def frequency(request: pytest.FixtureRequest) -> int:
    kept: int = request.param
    return kept


@pytest.mark.parametrize("is_async", [False, True])
def test_every_state_on_the_way_is_right(savers: Savers, frequency: int, is_async: bool) -> None:
    ours = player_on(savers.open(), frequency, is_async=is_async)
    theirs = player_on(InMemorySaver(), frequency, is_async=is_async)
    for player in (ours, theirs):
        run(player, range(5))

    assert ours.told == theirs.told
    assert states(ours) == states(theirs)
    again = player_on(savers.open(), frequency, is_async=is_async)
    assert states(again) == states(theirs)
    assert again.state().values == theirs.told[-1]


def test_a_pruned_thread_keeps_its_state_and_goes_on(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    run(player, range(4))

    saver.prune(["t"])

    for reading in (player, player_on(savers.open(), frequency)):
        assert reading.state().values == expected(frequency, 4)[-1]
        assert len(reading.history()) == 1
        assert reading.history()[0].values == expected(frequency, 4)[-1]
    run(player, range(4, 7))
    assert player.state().values == expected(frequency, 7)[-1]
    assert player_on(savers.open(), frequency).state().values == expected(frequency, 7)[-1]


def test_pruning_after_every_turn_changes_no_answer(savers: Savers, frequency: int) -> None:
    answers = []
    for turn in range(8):
        saver = savers.open()
        player = player_on(saver, frequency)
        run(player, range(turn, turn + 1))
        answers += [one for one in player.told if isinstance(one, dict)]
        saver.prune(["t"])
        assert len([*saver.list(config())]) == 1

    assert answers == expected(frequency, 8)


def test_a_copy_has_the_state_of_every_checkpoint(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    run(player, range(4))
    before = states(player)

    saver.copy_thread("t", "copy")

    copy = player_on(savers.open(), frequency, thread="copy")
    assert states(copy) == before
    run(copy, range(4, 6))
    assert copy.state().values == expected(frequency, 6)[-1]
    assert states(player) == before
    saver.delete_thread("t")
    assert copy.state().values == expected(frequency, 6)[-1]
    assert states(copy)[-len(before) :] == before


def test_a_copy_of_a_pruned_thread_has_its_state(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    run(player_on(saver, frequency), range(5))
    saver.prune(["t"])

    saver.copy_thread("t", "copy")
    saver.delete_thread("t")

    copy = player_on(savers.open(), frequency, thread="copy")
    assert len(copy.history()) == 1
    assert copy.state().values == expected(frequency, 5)[-1]
    run(copy, range(5, 7))
    assert copy.state().values == expected(frequency, 7)[-1]


@pytest.mark.parametrize("gone", [[0], [2], [0, 1, 2, 3]], ids=str)
def test_deleting_earlier_runs_leaves_the_later_states_right(savers: Savers, frequency: int, gone: list[int]) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    run(player, range(5))
    left = [
        (one.config["configurable"]["checkpoint_id"], one.values)
        for one in player.history()
        if one.metadata and one.metadata.get("run_id") not in [f"run-{turn}" for turn in gone]
    ]

    saver.delete_for_runs([f"run-{turn}" for turn in gone])

    for reading in (player, player_on(savers.open(), frequency)):
        assert [(one.config["configurable"]["checkpoint_id"], one.values) for one in reading.history()] == left
        assert reading.state().values == expected(frequency, 5)[-1]
    run(player, range(5, 7))
    assert player.state().values == expected(frequency, 7)[-1]


def test_deleting_the_last_run_goes_back_to_the_one_before(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    run(player, range(4))

    saver.delete_for_runs(["run-3"])

    assert player.state().values == expected(frequency, 3)[-1]
    run(player, range(3, 5))
    assert player.state().values == expected(frequency, 5)[-1]


def forked(player: Player) -> list[Any]:
    run(player, range(3))
    past = next(one for one in player.history() if one.next == ("end",))
    player.invoke(None, past.config)
    player.invoke({"turn": 7, "line": ["elsewhere"]}, past.config)
    first = player.history()[-2]
    branch = player.update({"line": ["by hand"], "table": {"left": "by hand"}}, first.config, as_node="end")
    player.invoke({"turn": 8, "table": {"x": 1}}, branch)
    run(player, range(3, 5))
    return states(player)


@pytest.mark.parametrize("is_async", [False, True])
def test_each_branch_has_its_own_state(savers: Savers, frequency: int, is_async: bool) -> None:
    ours = player_on(savers.open(), frequency, is_async=is_async)
    theirs = player_on(InMemorySaver(), frequency, is_async=is_async)

    assert forked(ours) == forked(theirs)
    assert ours.told == theirs.told


def test_a_forked_thread_may_be_pruned(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    before = forked(player)

    saver.prune(["t"])

    assert states(player_on(savers.open(), frequency)) == before[:1]


class Plain(TypedDict):
    line: Annotated[list[str], operator.add]
    turn: int


class Delta(TypedDict):
    line: Annotated[list[str], DeltaChannel(graphs.append, snapshot_frequency=50)]
    turn: int


def one_node(schema: type, node: Any, saver: Any) -> Player:
    graph: Any = StateGraph(schema)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return Player(graph.compile(checkpointer=saver), is_async=False, durability="sync")


def test_a_thread_that_began_without_delta_channels_goes_on_with_them(savers: Savers) -> None:
    def node(state: Any) -> dict[str, Any]:
        return {"line": [f"node {len(state['line'])}"]}

    saver = savers.open()

    def history(chosen: Any) -> list[Any]:
        plain, delta = (one_node(schema, node, chosen) for schema in (Plain, Delta))
        for player in (plain, delta):
            for turn in range(3):
                player.invoke({"turn": turn, "line": [f"input {turn}"]})
        return states(delta)

    ours = history(saver)
    assert ours == history(InMemorySaver())
    tip = ours[0][2]

    saver.prune(["t"])

    player = one_node(Delta, node, savers.open())
    assert player.state().values == tip
    player.invoke({"turn": 9, "line": ["more"]})
    assert player.state().values["line"] == [*tip["line"], "more", "node 13"]


def test_a_channel_that_was_overwritten_stays_so(savers: Savers) -> None:
    def node(state: Any) -> dict[str, Any]:
        return {"line": Overwrite(["anew"]) if state["turn"] == 2 else [f"node {state['turn']}"]}

    saver = savers.open()
    ours, theirs = (one_node(Delta, node, chosen) for chosen in (saver, InMemorySaver()))
    for player in (ours, theirs):
        for turn in range(4):
            player.invoke({"turn": turn, "line": [f"input {turn}"]})
    assert states(ours) == states(theirs)

    saver.prune(["t"])

    assert ours.state().values == theirs.state().values


def test_a_run_that_waits_may_be_pruned_and_answered(savers: Savers) -> None:
    def node(state: Any) -> dict[str, Any]:
        return {"line": [f"answer {interrupt('?')} after {len(state['line'])}"]}

    saver = savers.open()
    player = one_node(Delta, node, saver)
    for turn in range(3):
        player.invoke({"turn": turn, "line": [f"input {turn}"]})
        saver.prune(["t"])
        player = one_node(Delta, node, savers.open())
        assert player.state().next == ("node",)
        player.invoke(Command(resume=turn))
        saver.prune(["t"])

    assert player.state().values["line"] == [
        *("input 0", "answer 0 after 1", "input 1", "answer 1 after 3", "input 2", "answer 2 after 5")
    ]
