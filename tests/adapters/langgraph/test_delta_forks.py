"""Forks, copies and rewinds of threads with DeltaChannels: their values are right, or it is said that they are gone."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import UntrackedValue
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast import Checkpoint, Retention
from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.playing import Player

TURNS = 4
FREQUENCIES = [2, 100]


@pytest.fixture(params=FREQUENCIES)
def frequency(request: pytest.FixtureRequest) -> int:
    kept: int = request.param
    return kept


def player_on(saver: Any, frequency: int, thread: str = "t") -> Player:
    return Player(graphs.delta(frequency)(saver), is_async=False, durability="sync", thread=thread)


def turn(player: Player, number: int) -> Any:
    given = {"turn": number, "line": [f"input {number}"], "table": {f"input-{number}": number}}
    told = {**player.config, "metadata": {"run_id": f"run-{number}"}}
    return player.invoke(given, told)


def turns(player: Player, numbers: range) -> list[Any]:
    return [turn(player, number) for number in numbers]


def expected(frequency: int, *numbers: int) -> Any:
    """The values after these turns, of a thread to which nothing else happened."""
    player = player_on(InMemorySaver(), frequency)
    return [turn(player, number) for number in numbers][-1]


def ends(saver: HoldfastSaver, thread: str = "t") -> list[Checkpoint]:
    """The checkpoint at the end of each turn, oldest first."""
    found = [one for one in saver.hf.thread(thread).history() if one.trigger == "loop"]
    newest: dict[Any, Checkpoint] = {}
    for one in reversed(found):
        newest[one.metadata["run_id"]] = one
    return [*newest.values()]


def test_a_fork_of_the_latest_has_its_values_and_goes_on(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    values = turns(player, range(TURNS))[-1]

    saver.hf.thread("t").fork("fork")

    for one in (saver, savers.open()):
        assert player_on(one, frequency, "fork").state().values == values
    assert turn(player_on(saver, frequency, "fork"), 7) == expected(frequency, *range(TURNS), 7)
    assert turn(player, 8) == expected(frequency, *range(TURNS), 8)


def test_a_fork_of_any_turn_has_the_values_of_that(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    values = turns(player_on(saver, frequency), range(TURNS))

    for number, end in enumerate(ends(saver)):
        saver.hf.thread("t").fork(f"fork-{number}", at=end.id)
        fork = player_on(savers.open(), frequency, f"fork-{number}")
        assert fork.state().values == values[number]
        assert turn(fork, 9) == expected(frequency, *range(number + 1), 9)


def test_a_fork_of_a_fork_reads_through_both(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    turns(player_on(saver, frequency), range(2))
    saver.hf.thread("t").fork("first")
    turn(player_on(saver, frequency, "first"), 5)

    saver.hf.thread("first").fork("second")

    second = player_on(savers.open(), frequency, "second")
    assert second.state().values == expected(frequency, 0, 1, 5)
    assert turn(second, 6) == expected(frequency, 0, 1, 5, 6)


def test_what_the_origin_does_after_a_fork_is_not_in_it(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    turns(player, range(2))
    saver.hf.thread("t").fork("fork")

    turn(player, 2)

    assert player_on(savers.open(), frequency, "fork").state().values == expected(frequency, 0, 1)


def test_after_a_rewind_the_values_are_those_of_then(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    values = turns(player, range(TURNS))

    for number, end in reversed([*enumerate(ends(saver))]):
        savers.handle().thread("t").rewind(end.id)
        for one in (player, player_on(savers.open(), frequency)):
            assert one.state().values == values[number]

    assert turn(player, 9) == expected(frequency, 0, 9)
    assert player_on(savers.open(), frequency).state().values == expected(frequency, 0, 9)


def test_a_rewound_thread_may_be_pruned_and_copied(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    turns(player, range(TURNS))
    saver.hf.thread("t").rewind(ends(saver)[1].id)
    turn(player, 9)

    saver.copy_thread("t", "copy")
    saver.prune(["t", "copy"])

    for thread in ("t", "copy"):
        one = player_on(savers.open(), frequency, thread)
        assert one.state().values == expected(frequency, 0, 1, 9)
        assert turn(one, 10) == expected(frequency, 0, 1, 9, 10)


def test_a_copy_does_not_need_what_it_was_copied_from(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    values = turns(player_on(saver, frequency), range(TURNS))
    saver.copy_thread("t", "copy")

    saver.delete_thread("t")

    copy = player_on(savers.open(), frequency, "copy")
    assert copy.state().values == values[-1]
    assert [one.values for one in copy.history() if not one.next] == values[::-1]
    assert turn(copy, 9) == expected(frequency, *range(TURNS), 9)


def test_a_copy_of_a_fork_reads_through_it(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    turns(player_on(saver, frequency), range(2))
    saver.hf.thread("t").fork("fork")
    turn(player_on(saver, frequency, "fork"), 5)

    saver.copy_thread("fork", "copy")

    copy = player_on(savers.open(), frequency, "copy")
    assert copy.state().values == expected(frequency, 0, 1, 5)
    assert turn(copy, 6) == expected(frequency, 0, 1, 5, 6)


def test_a_fork_of_a_pruned_thread_has_all_it_needs(savers: Savers, frequency: int) -> None:
    saver = savers.open()
    values = turns(player_on(saver, frequency), range(TURNS))[-1]
    saver.prune(["t"])
    saver.hf.thread("t").fork("fork")

    saver.delete_thread("t")

    fork = player_on(savers.open(), frequency, "fork")
    assert fork.state().values == values
    assert turn(fork, 9) == expected(frequency, *range(TURNS), 9)


@pytest.mark.parametrize("is_pruned", [True, False])
@pytest.mark.parametrize("turn_of", [1, TURNS - 1])
def test_a_fork_by_the_saver_does_not_need_its_origin(
    savers: Savers, frequency: int, turn_of: int, is_pruned: bool
) -> None:
    saver = savers.open()
    player = player_on(saver, frequency)
    values = turns(player, range(TURNS))
    id = player.graph.get_state(player.config).config["configurable"]["checkpoint_id"]
    for found in player.history():
        if found.metadata is not None and found.metadata["run_id"] == f"run-{turn_of}":
            id = found.config["configurable"]["checkpoint_id"]
            break
    saver.fork("t", "fork", id)
    saver.fork("fork", "fork of it")

    for origin in ("t", "fork"):
        if is_pruned:
            saver.prune([origin])
        else:
            saver.delete_thread(origin)

    for one in (saver, savers.open()):
        assert player_on(one, frequency, "fork of it").state().values == values[turn_of]
    fork = player_on(saver, frequency, "fork of it")
    assert turn(fork, 9) == expected(frequency, *range(turn_of + 1), 9)
    assert saver.hf.verify(deep=True).ok


def test_a_graph_without_such_channels_stores_no_history(savers: Savers) -> None:
    saver = savers.open()
    graph = graphs.files(saver)
    for number in range(3):
        graph.invoke({"turn": number}, {"configurable": {"thread_id": "t"}})

    saver.fork("t", "fork")
    saver.prune(["t"])

    for thread in ("t", "fork"):
        [kept] = saver.hf.thread(thread).history()
        assert "$history" not in saver.hf.thread(thread).load(kept.id).state


class Late(TypedDict):
    turn: int
    line: Annotated[list[str], DeltaChannel(graphs.append, snapshot_frequency=100)]


def late_player(saver: Any, thread: str = "t") -> Player:
    """A graph that writes its DeltaChannel only if the turn is odd."""
    builder: Any = StateGraph(Late)
    builder.add_node("look", lambda state: {"turn": state["turn"]})
    builder.add_node("work", lambda state: {"line": [f"work {state['turn']}"] if state["turn"] % 2 else []})
    builder.add_edge(START, "look")
    builder.add_conditional_edges("look", lambda state: "work" if state["turn"] % 2 else END, ["work", END])
    return Player(builder.compile(checkpointer=saver), is_async=False, durability="sync", thread=thread)


def late_turn(player: Player, number: int) -> list[str]:
    player.invoke({"turn": number}, {**player.config, "metadata": {"run_id": f"run-{number}"}})
    line: list[str] = player.state().values["line"]
    return line


def before_the_first_write(player: Player) -> Any:
    """The checkpoint whose next step writes the DeltaChannel for the first time."""
    return [found for found in player.history() if found.next == ("work",)][-1].config["configurable"]["checkpoint_id"]


def test_after_a_rewind_to_before_the_first_write_that_write_does_not_count(savers: Savers) -> None:
    saver = savers.open()
    player = late_player(saver)
    assert late_turn(player, 1) == ["work 1"]

    saver.rewind("t", before_the_first_write(player))

    assert player.state().values["line"] == []
    assert late_turn(player, 3) == ["work 3"]
    assert late_player(savers.open()).state().values["line"] == ["work 3"]


def test_a_fork_from_before_the_first_write_does_not_need_its_origin(savers: Savers) -> None:
    saver = savers.open()
    player = late_player(saver)
    late_turn(player, 1)
    saver.fork("t", "fork", before_the_first_write(player))

    saver.delete_thread("t")

    assert late_turn(late_player(saver, "fork"), 3) == ["work 3"]
    assert late_player(savers.open(), "fork").state().values["line"] == ["work 3"]


def test_the_first_write_does_not_need_the_runs_before_it(savers: Savers) -> None:
    saver = savers.open()
    player = late_player(saver)
    for number in (0, 2):
        late_turn(player, number)
    late_turn(player, 3)

    saver.delete_for_runs(["run-0"])

    assert late_player(savers.open()).state().values["line"] == ["work 3"]
    assert late_turn(player, 5) == ["work 3", "work 5"]


def test_a_rewind_to_the_start_of_an_exit_run_does_not_get_its_writes(savers: Savers) -> None:
    saver = savers.open()
    player = player_on(saver, 100)
    player.graph.invoke({"turn": 0, "line": ["left behind"]}, player.config, durability="exit")
    start = player.history()[-1].config["configurable"]["checkpoint_id"]

    saver.rewind("t", start)

    answer = turn(player, 1)
    assert answer == expected(100, 1)
    assert player_on(savers.open(), 100).state().values == answer


class Before(TypedDict):
    turn: int


def upgraded(saver: Any, schema: type, thread: str = "t") -> Player:
    """A graph whose newer version has a DeltaChannel that the older one does not have."""
    builder: Any = StateGraph(schema)
    builder.add_node("work", lambda state: {"line": [f"work {state['turn']}"]} if schema is Late else {})
    builder.add_edge(START, "work")
    return Player(builder.compile(checkpointer=saver), is_async=False, durability="sync", thread=thread)


def test_a_channel_that_a_thread_got_later_does_not_need_the_runs_before_it(savers: Savers) -> None:
    saver = savers.open()
    old = upgraded(saver, Before)
    for number in range(2):
        old.invoke({"turn": number}, {**old.config, "metadata": {"run_id": f"run-{number}"}})
    new = upgraded(saver, Late)
    assert late_turn(new, 2) == ["work 2"]

    saver.delete_for_runs(["run-0"])

    assert upgraded(savers.open(), Late).state().values["line"] == ["work 2"]
    assert late_turn(new, 3) == ["work 2", "work 3"]


def test_a_fork_that_gets_a_channel_later_does_not_need_its_origin(savers: Savers) -> None:
    saver = savers.open()
    old = upgraded(saver, Before)
    old.invoke({"turn": 0})
    saver.fork("t", "fork")

    saver.delete_thread("t")

    assert late_turn(upgraded(saver, Late, "fork"), 2) == ["work 2"]


def test_after_a_rewind_to_before_a_channel_was_there_its_first_write_does_not_count(savers: Savers) -> None:
    saver = savers.open()
    old = upgraded(saver, Before)
    old.invoke({"turn": 0})
    before = before_the_first_write(old)
    saver.fork("t", "fork", before)
    new = upgraded(saver, Late, "fork")
    new.invoke(None)

    saver.rewind("fork", before_the_first_write(new))

    assert new.invoke(None)["line"] == ["work 0"]
    assert upgraded(savers.open(), Late, "fork").state().values["line"] == ["work 0"]


class WithoutDelta(TypedDict):
    turn: int
    count: Annotated[int, UntrackedValue]


def test_a_thread_without_such_channels_may_be_copied_after_any_prune(savers: Savers) -> None:
    saver = savers.open()
    builder: Any = StateGraph(WithoutDelta)
    builder.add_node("work", lambda state: {"turn": state["turn"] + 1, "count": 1})
    builder.add_edge(START, "work")
    graph = builder.compile(checkpointer=saver)
    for number in range(3):
        graph.invoke({"turn": number}, {"configurable": {"thread_id": "t"}})
    saver.hf.thread("t").prune(Retention(keep_last=2))
    latest, before = graph.get_state_history({"configurable": {"thread_id": "t"}})

    saver.fork("t", "fork")
    saver.rewind("t", before.config["configurable"]["checkpoint_id"])
    assert graph.get_state({"configurable": {"thread_id": "t"}}).values == before.values
    saver.prune(["t", "fork"])

    assert graph.get_state({"configurable": {"thread_id": "t"}}).values == before.values
    assert graph.get_state({"configurable": {"thread_id": "fork"}}).values == latest.values


# -- where ancestors are gone -----------------------------------------------------------------------------------------


def test_a_fork_whose_origin_was_pruned_says_what_is_missing(savers: Savers) -> None:
    saver = savers.open()
    player = player_on(saver, 100)
    turns(player, range(TURNS))
    saver.hf.thread("t").fork("fork", at=ends(saver)[1].id)

    saver.prune(["t"])

    for one in (saver, savers.open()):
        with pytest.raises(holdfast.Damaged, match=r"line, table.*prune"):
            player_on(one, 100, "fork").state()
    assert player.state().values == expected(100, *range(TURNS))


def test_a_fork_whose_origin_was_deleted_says_what_is_missing(savers: Savers) -> None:
    saver = savers.open()
    turns(player_on(saver, 100), range(TURNS))
    saver.hf.thread("t").fork("fork")

    saver.delete_thread("t")

    with pytest.raises(holdfast.Damaged, match=r"line, table"):
        player_on(savers.open(), 100, "fork").state()


def test_a_fork_whose_origin_was_deleted_and_started_again_does_not_read_the_new_one(savers: Savers) -> None:
    saver = savers.open()
    player = player_on(saver, 100)
    turns(player, range(TURNS))
    saver.hf.thread("t").fork("fork")

    saver.delete_thread("t")
    turns(player, range(10, 10 + TURNS))

    with pytest.raises(holdfast.Damaged, match=r"line, table"):
        player_on(savers.open(), 100, "fork").state()


def test_a_fork_that_was_pruned_needs_its_origin_no_more(savers: Savers) -> None:
    saver = savers.open()
    turns(player_on(saver, 100), range(TURNS))
    saver.hf.thread("t").fork("fork")

    saver.prune(["fork"])
    saver.delete_thread("t")

    fork = player_on(savers.open(), 100, "fork")
    assert fork.state().values == expected(100, *range(TURNS))
    assert turn(fork, 9) == expected(100, *range(TURNS), 9)


def test_a_prune_that_does_not_know_of_the_channel_is_found_out(savers: Savers) -> None:
    """The handle's own retention deletes what the checkpoints that are left need: no empty channel is given for it."""
    saver = savers.open()
    turns(player_on(saver, 100), range(TURNS))

    saver.hf.thread("t").prune(Retention(keep_last=2))

    for one in (saver, savers.open()):
        with pytest.raises(holdfast.Damaged, match=r"line, table.*the saver's prune"):
            player_on(one, 100).state()


def test_a_run_does_not_begin_on_values_that_are_gone(savers: Savers) -> None:
    saver = savers.open()
    turns(player_on(saver, 100), range(TURNS))
    saver.hf.thread("t").prune(Retention(keep_last=2))
    before = len(list(saver.hf.thread("t").history()))

    with pytest.raises(holdfast.Damaged):
        turn(player_on(saver, 100), 9)

    assert len(list(saver.hf.thread("t").history())) == before


def test_a_stored_value_needs_no_ancestors(savers: Savers) -> None:
    """What is behind a snapshot of the channel may go in any way."""
    saver = savers.open()
    values = turns(player_on(saver, 1), range(TURNS))[-1]

    saver.hf.thread("t").prune(Retention(keep_last=6))

    assert player_on(savers.open(), 1).state().values == values
