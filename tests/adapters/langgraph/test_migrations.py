"""`migrate=`: the channels of older checkpoints are changed when they are read, and stored with the next checkpoint."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import HoldfastError, Incompatible
from tests.adapters.langgraph.conftest import Savers


class Old(TypedDict, total=False):
    name: str
    log: Annotated[list[str], operator.add]


class New(TypedDict, total=False):
    first: str
    last: str
    log: Annotated[list[str], operator.add]


def config(name: str | None = None) -> Any:
    found: dict[str, Any] = {"configurable": {"thread_id": "t"}}
    return found if name is None else {**found, "metadata": {"graph": name}}


def graph(schema: Any, saver: HoldfastSaver) -> Any:
    made: Any = StateGraph(schema)

    def step(state: Any) -> dict[str, Any]:
        return {"log": [f"saw {sorted(key for key in state if key != 'log')}"]}

    made.add_node("step", step)
    made.add_edge(START, "step")
    return made.compile(checkpointer=saver)


def split(values: dict[str, Any]) -> dict[str, Any]:
    first, _, last = values.pop("name", " ").partition(" ")
    return {**values, "first": first, "last": last}


def shout(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "last": values["last"].upper()}


def test_channels_are_changed_on_read_and_stored_with_the_next_checkpoint(savers: Savers) -> None:
    graph(Old, savers.open()).invoke({"name": "Ada Lovelace", "log": []}, config(), durability="sync")
    saver = savers.open(migrate={1: split, 2: shout})
    app = graph(New, saver)
    assert app.get_state(config()).values == {"log": ["saw ['name']"], "first": "Ada", "last": "LOVELACE"}
    app.invoke({"log": ["again"]}, config(), durability="sync")
    expected = {"log": ["saw ['name']", "again", "saw ['first', 'last']"], "first": "Ada", "last": "LOVELACE"}
    # Another process with a change that would spoil them: they are of the current version.
    for one in (saver, savers.open(migrate={1: split, 2: lambda values: {**values, "last": "spoiled"}})):
        assert graph(New, one).get_state(config()).values == expected
    history = [snapshot.values for snapshot in app.get_state_history(config())]
    assert all("name" not in values for values in history if values)


def test_each_graph_has_its_own_changes(savers: Savers) -> None:
    graph(Old, savers.open()).invoke({"name": "Ada Lovelace", "log": []}, config("people"), durability="sync")
    other = graph(Old, savers.open(migrate={"ships": {1: split}}))
    assert other.get_state(config("people")).values["name"] == "Ada Lovelace"
    app = graph(New, savers.open(migrate={"people": {1: split}, "ships": {1: shout}}))
    assert app.get_state(config("people")).values["first"] == "Ada"


def test_a_later_version_is_refused(savers: Savers) -> None:
    graph(New, savers.open(migrate={1: split, 2: shout})).invoke({"log": []}, config(), durability="sync")
    older = graph(New, savers.open(migrate={1: split}))
    with pytest.raises(Incompatible, match="version 3"):
        older.get_state(config())


def test_a_change_that_fails_is_reported(local: Savers) -> None:
    graph(Old, local.open()).invoke({"name": "Ada", "log": []}, config(), durability="sync")
    with pytest.raises(HoldfastError, match="version 1 of a graph failed: KeyError"):
        graph(New, local.open(migrate={1: lambda values: {"x": values["missing"]}})).get_state(config())
    with pytest.raises(holdfast.InvalidArgument, match="returned no dict"):
        graph(New, local.open(migrate={1: lambda values: None})).get_state(config())


@pytest.mark.parametrize("migrate", [{2: split}, {1: split, 3: shout}, {"a": split}, {1: "no function"}, {"a": {}}])
def test_a_migration_that_is_not_one_is_refused(local: Savers, migrate: Any) -> None:
    with pytest.raises(holdfast.InvalidArgument, match="migrate="):
        local.open(migrate=migrate)
