"""Real graphs: what they answer, and their whole history, is what it would be with LangGraph's own saver in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers, savers_on
from tests.adapters.langgraph.playing import Build, Durability, Player, Script, outcome

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


def chat(player: Player) -> None:
    for turn in range(4):
        player.invoke({"messages": [HumanMessage(f"turn {turn}", id=f"human-{turn}")]})
    player.invoke({"messages": [RemoveMessage(id="human-1"), HumanMessage("edited", id="human-2")]})
    player.state()


def talk(player: Player) -> None:
    player.invoke({"messages": [HumanMessage("what is 1 + 2?", id="human-0")]})
    player.invoke({"messages": [HumanMessage("sure?", id="human-1")]})


def fan(player: Player) -> None:
    player.invoke({"number": 3})
    player.invoke({"number": 2, "log": ["again"]})


def ask_below(player: Player) -> None:
    for _ in range(2):
        player.invoke({"log": ["go"]})
        player.state(subgraphs=True)
        player.invoke(Command(resume="yes"))


def ask(player: Player) -> None:
    player.invoke({"number": 1})
    first, second = player.state().interrupts
    player.invoke(Command(resume={first.id: "one"}))
    player.state()
    player.invoke(Command(resume={second.id: "two"}))
    player.invoke(Command(resume="three"))
    player.invoke(Command(resume="four", update={"number": 2}))
    player.state()


def update(player: Player) -> None:
    player.update({"number": 7}, as_node="__start__")
    player.state()
    player.invoke(None)
    player.update({"log": ["by hand"]}, as_node="one")
    player.state()
    player.invoke(None)
    player.update(None)
    player.state()


def travel(player: Player) -> None:
    player.invoke({"number": 1})
    player.invoke({"number": 2})
    past = next((one for one in player.history() if one.next == ("two",)), None)
    if past is None:  # of a run that stores only its end
        past = player.history()[-1]
    player.state(past.config)
    player.invoke(None, past.config)
    player.state()
    player.invoke({"number": 3}, past.config)
    branch = player.update({"number": 9, "log": ["elsewhere"]}, past.config, as_node="one")
    player.invoke(None, branch)
    player.invoke({"number": 4})
    player.state()


def edit(player: Player) -> None:
    player.invoke({"turn": 1, "files": {f"file-{number}": f"text {number}\n" * 5 for number in range(80)}})
    for turn in range(2, 7):
        player.invoke({"turn": turn})


def fail(player: Player) -> None:
    player.failing({"number": 1}, ValueError)
    player.state()
    player.invoke(None)
    player.invoke({"number": 2})


def function(player: Player) -> None:
    for number in (2, 3):
        player.invoke(number)
        player.invoke(Command(resume=f"answer {number}"))


def changes(player: Player) -> None:
    for turn in range(5):
        player.invoke({"turn": turn, "line": [f"input {turn}"], "table": {f"input-{turn}": turn}})
        player.state()


SCENES: dict[str, tuple[Build, Script]] = {
    "chat": (graphs.chat, chat),
    "react": (graphs.react, talk),
    "agent": (graphs.agent, talk),
    "map_reduce": (graphs.map_reduce, fan),
    "subgraph": (graphs.with_subgraph(remembers=False), ask_below),
    "subgraph_with_memory": (graphs.with_subgraph(remembers=True), ask_below),
    "interrupts": (graphs.asking, ask),
    "update_state": (graphs.steps, update),
    "time_travel": (graphs.steps, travel),
    "files": (graphs.files, edit),
    "failure": (graphs.failing, fail),
    "functional": (graphs.functional, function),
    "delta_often": (graphs.delta(2), changes),
    "delta_by_default": (graphs.delta(100), changes),
}

# Each durability and each way to call on several stores, not all of them on all.
WAYS: list[tuple[str, bool, Durability]] = [
    ("memory", False, "async"),
    ("memory", True, "sync"),
    ("sqlite", False, "sync"),
    ("sqlite", True, "exit"),
    ("directory", False, "exit"),
    ("directory", True, "async"),
    ("postgres", False, "sync"),
    ("postgres", True, "async"),
]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-{'async' if way[1] else 'sync'}-{way[2]}")
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Savers, bool, Durability]]:
    kind, is_async, durability = request.param
    savers = savers_on(kind, tmp_path)
    yield savers, is_async, durability
    savers.close()


@pytest.mark.parametrize("scene", SCENES)
def test_answers_and_history_are_those_of_langgraphs_own_saver(
    way: tuple[Savers, bool, Durability], scene: str
) -> None:
    savers, is_async, durability = way
    build, script = SCENES[scene]

    expected = outcome(build, script, InMemorySaver(), is_async=is_async, durability=durability)
    found = outcome(build, script, savers.open(), is_async=is_async, durability=durability)

    assert len(found) == len(expected)
    for at, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours == theirs, f"{at} of {len(found)}"


@pytest.mark.parametrize("scene", sorted(SCENES.keys() - {"failure"}))  # which counts its calls in its own process
def test_a_script_whose_every_step_is_in_another_process_comes_to_the_same(local: Savers, scene: str) -> None:
    build, script = SCENES[scene]

    class Moving(Player):
        """Opens the store anew for each call."""

        def _call(self, name: str, *args: Any, **options: Any) -> Any:
            self.graph = build(local.open())
            return super()._call(name, *args, **options)

    player = Moving(build(local.open()), is_async=False, durability="sync")
    script(player)

    assert player.outcome() == outcome(build, script, InMemorySaver(), is_async=False, durability="sync")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_history_can_be_filtered_and_cut(savers: Savers, is_async: bool) -> None:
    def cut(player: Player) -> list[Any]:
        travel(player)
        updates = player.history(filter={"source": "update"})
        some = player.history(limit=3)
        older = player.history(before=some[-1].config, limit=2)
        by_run = player.history(filter={"step": 2})
        return [(one.values, one.next, one.metadata) for one in [*updates, *some, *older, *by_run]]

    def made(saver: Any) -> Player:
        return Player(graphs.steps(saver), is_async=is_async, durability="sync")

    assert [(values, following) for values, following, _ in cut(made(savers.open()))] == [
        (values, following) for values, following, _ in cut(made(InMemorySaver()))
    ]
