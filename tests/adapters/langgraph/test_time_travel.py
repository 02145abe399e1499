"""Going back to an old checkpoint: replays, updates and copies come to what LangGraph's own saver makes of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, StateSnapshot, interrupt

from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import config
from tests.adapters.langgraph.playing import Player, outcome

Script = Callable[[Player], None]


class Line(TypedDict):
    value: Annotated[list[str], operator.add]


def remembering(saver: Any) -> Any:
    """A node, and a graph with a memory of its own that does something and asks."""
    inner = (
        StateGraph(Line)
        .add_node("work", lambda state: {"value": [f"worked after {len(state['value'])}"]})
        .add_node("ask", lambda state: {"value": ["answer: " + interrupt("?")]})
        .add_edge(START, "work")
        .add_edge("work", "ask")
        .compile(checkpointer=True)
    )
    return (
        StateGraph(Line)
        .add_node("router", lambda state: {"value": ["routed"]})
        .add_node("inner", inner)
        .add_node("last", lambda state: {"value": [f"last after {len(state['value'])}"]})
        .add_edge(START, "router")
        .add_edge("router", "inner")
        .add_edge("inner", "last")
        .compile(checkpointer=saver)
    )


def before(player: Player, node: str) -> StateSnapshot:
    """The newest checkpoint at which this node is next."""
    return next(one for one in player.history() if one.next == (node,))


def replay_and_answer_anew(player: Player) -> None:
    player.invoke({"value": []})
    player.invoke(Command(resume="old"))
    player.invoke(None, before(player, "inner").config)
    player.state(subgraphs=True)
    player.invoke(Command(resume="new"))


def replay_twice(player: Player) -> None:
    player.invoke({"value": []})
    player.invoke(Command(resume="old"))
    at = before(player, "inner").config
    for answer in ("second", "third"):
        player.invoke(None, at)
        player.invoke(Command(resume=answer))


def go_on_after_a_replay(player: Player) -> None:
    replay_and_answer_anew(player)
    player.invoke({"value": ["next"]})
    player.state(subgraphs=True)
    player.invoke(Command(resume="next answer"))


def replay_what_waits(player: Player) -> None:
    player.invoke({"value": []})
    player.invoke(None, before(player, "router").config)
    player.invoke(Command(resume="of the replay"))


def update_before_the_subgraph(player: Player) -> None:
    player.invoke({"value": []})
    player.invoke(Command(resume="old"))
    branch = player.update({"value": ["by hand"]}, before(player, "inner").config, as_node="router")
    player.invoke(None, branch)
    player.invoke(Command(resume="new"))


SCRIPTS: list[Script] = [
    replay_and_answer_anew,
    replay_twice,
    go_on_after_a_replay,
    replay_what_waits,
    update_before_the_subgraph,
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_subgraph_is_replayed_as_with_langgraphs_own_saver(savers: Savers, script: Script, is_async: bool) -> None:
    theirs = outcome(remembering, script, InMemorySaver(), is_async=is_async, durability="sync")

    assert outcome(remembering, script, savers.open(), is_async=is_async, durability="sync") == theirs


def test_a_replay_asks_again_and_takes_the_new_answer(savers: Savers) -> None:
    player = Player(remembering(savers.open()), is_async=False, durability="sync")
    player.invoke({"value": []})
    old = player.invoke(Command(resume="old"))["value"]

    asked = player.invoke(None, before(player, "inner").config)
    new = player.invoke(Command(resume="new"))["value"]

    assert [question.value for question in asked["__interrupt__"]] == ["?"]
    assert "answer: old" in old
    assert "answer: new" in new
    assert "answer: old" not in new
    assert player.state().values["value"] == new


# -- copies -----------------------------------------------------------------------------------------------------------


def chat_of(savers: Savers, turns: int = 3) -> Player:
    player = Player(graphs.chat(savers.open()), is_async=False, durability="sync")
    for turn in range(turns):
        player.invoke({"messages": [HumanMessage(f"input {turn}", id=f"in-{turn}")]})
    return player


def ids(state: StateSnapshot) -> list[Any]:
    return [message.id for message in state.values["messages"]]


def parent_of(state: StateSnapshot) -> Any:
    return state.parent_config and state.parent_config["configurable"]["checkpoint_id"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("back", range(6))
def test_any_checkpoint_may_be_copied(savers: Savers, is_async: bool, back: int) -> None:
    """The copy has the values, the order and the parent of what it is a copy of, and is the latest."""
    player = chat_of(savers)
    player.is_async = is_async
    player.state()  # somebody has seen the latest, and has gone on from each of its parents
    source = player.history()[back]

    copy = player.update(None, source.config, as_node="__copy__")

    copied = player.state()
    assert copied.config["configurable"]["checkpoint_id"] == copy["configurable"]["checkpoint_id"]
    assert copied.values == source.values
    assert parent_of(copied) == parent_of(source)
    assert copied.next == source.next
    assert copied.metadata is not None
    assert copied.metadata["source"] == "fork"
    assert ids(player.state(source.config)) == ids(source)


def test_a_copy_goes_on_by_itself(savers: Savers) -> None:
    player = chat_of(savers)
    source = next(one for one in player.history() if one.next == ("answer",))

    player.update(None, source.config, as_node="__copy__")
    player.invoke(None)

    assert ids(player.state()) == [*ids(source), f"reply-{len(ids(source))}"]
    assert ids(player.state(source.config)) == ids(source)


class Fanned(MessagesState):
    log: Annotated[list[str], operator.add]


def fanned(saver: Any) -> Any:
    """Two nodes at once, and one after them."""
    graph = StateGraph(Fanned)
    for name in ("left", "right"):
        graph.add_node(
            name,
            lambda state, name=name: {"log": [name], "messages": [AIMessage(name, id=f"{name}-{len(state['log'])}")]},
        )
        graph.add_edge(START, name)
    graph.add_node("end", lambda state: {"log": [f"end of {','.join(state['log'])}"]})
    graph.add_edge(["left", "right"], "end")
    return graph.compile(checkpointer=saver)


def copy_with_other_results(player: Player) -> None:
    player.invoke({"messages": [HumanMessage("?", id="in")], "log": ["begin"]})
    at = next(one for one in player.history() if set(one.next) == {"left", "right"})
    changed: list[Any] = [
        ({"log": ["another right"], "messages": [AIMessage("r", id="other-right")]}, "right"),
        ({"log": ["another left"], "messages": [AIMessage("l", id="other-left")]}, "left"),
    ]
    branch = player.update(changed, at.config, as_node="__copy__")
    player.state()
    player.invoke(None, branch)


@pytest.mark.parametrize("is_async", [False, True])
def test_results_of_tasks_may_be_changed_in_a_copy(savers: Savers, is_async: bool) -> None:
    theirs = outcome(fanned, copy_with_other_results, InMemorySaver(), is_async=is_async, durability="sync")

    ours = outcome(fanned, copy_with_other_results, savers.open(), is_async=is_async, durability="sync")

    assert ours == theirs


def test_what_is_changed_in_a_copy_is_not_changed_where_it_was_copied_from(savers: Savers) -> None:
    player = chat_of(savers)
    source = player.history()[2]
    unchanged = player.state(source.config).values["messages"]

    player.update(None, source.config, as_node="__copy__")
    copied = player.state().values["messages"]
    copied[0].content = "changed in place"
    copied[0].additional_kwargs["changed"] = True
    player.update({"messages": [copied[0]]}, as_node="answer")

    assert player.state().values["messages"][0].content == "changed in place"
    for saver in (player.graph.checkpointer, savers.open()):
        again = graphs.chat(saver).get_state(source.config).values["messages"]
        assert again == unchanged
        assert again[0].additional_kwargs == {}


def test_an_update_of_an_old_checkpoint_leaves_every_other_as_it_was(savers: Savers) -> None:
    player = chat_of(savers)
    history = player.history()
    for old in history:
        player.update({"messages": [HumanMessage("edited", id="edited")]}, old.config, as_node="answer")
        assert ids(player.state()) == [*(message.id for message in old.values.get("messages", [])), "edited"]

    for one in (player.graph, graphs.chat(savers.open())):
        assert [one.get_state(old.config).values for old in history] == [old.values for old in history]
    assert len(player.history()) == 2 * len(history)


def test_time_travel_by_an_id_is_no_conflict_however_often(savers: Savers) -> None:
    player = chat_of(savers, 2)
    looking = graphs.chat(savers.open())
    for old in player.history()[::-1]:
        player.invoke(None, old.config)
        player.invoke({"messages": [HumanMessage("again", id=f"again-{len(player.told)}")]}, old.config)
        assert looking.get_state(config()).values == player.state().values
