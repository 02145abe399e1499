"""rust-ai-agents' graph checkpoints: a loop of nodes that is stored every N of them and goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast import Budget, CallTimedOut, EveryN, Halted, Holdfast, NotFound, Run
from tests.parity.covering import covers
from tests.runs.conftest import World

END = "end"
Node = Callable[[dict[str, Any]], str]
"""Does something to the data, and says which node is next."""


def fresh(entry: str) -> dict[str, Any]:
    return {"data": {}, "next": entry, "visited": []}


def walk(run: Run, nodes: Mapping[str, Node], before: Callable[[str], None] = lambda name: None) -> None:
    """A node in each step of the run: what it works out comes from the journal if the step is done again."""
    for _ in run.steps():
        name = run.state["next"]
        if name == END:
            run.finish(run.state["data"])
            return
        before(name)
        data, following = run.model(_worked_out, nodes[name], run.state["data"])
        run.state["data"] = data
        run.state["visited"].append(name)
        run.state["next"] = following


def _worked_out(node: Node, data: dict[str, Any]) -> list[Any]:
    data = dict(data)
    following = node(data)
    return [data, following]


def count_to(limit: int) -> Node:
    def increment(data: dict[str, Any]) -> str:
        data["count"] = data.get("count", 0) + 1
        return END if data["count"] >= limit else "increment"

    return increment


def chain(*names: str, noting: list[str] | None = None) -> dict[str, Node]:
    """Nodes that lead from one to the next and leave their mark; `noting` gets the name of each that is worked out."""
    following = dict(zip(names, (*names[1:], END), strict=True))

    def node(name: str) -> Node:
        def mark(data: dict[str, Any]) -> str:
            data[name] = True
            if noting is not None:
                noting.append(name)
            return following[name]

        return mark

    return {name: node(name) for name in names}


@covers(
    "cortex",
    "graph checkpointing",
    "graph Checkpoint.id",
    "graph Checkpoint.state",
    "graph Checkpoint.next_node",
    "graph Checkpoint.created_at",
    "graph CheckpointStore",
    "GraphConfig.checkpoint_interval",
    "GraphMetadata.iterations",
    "GraphMetadata.visited_nodes",
)
def test_a_graph_is_stored_every_so_many_nodes_and_each_is_found_by_its_turn(hf: Holdfast) -> None:
    before = datetime.now(UTC)
    with hf.run("graph", start=fresh("a"), policy=EveryN(2)) as run:
        walk(run, chain("a", "b", "c", "d", "e"))
    thread = hf.thread("graph")
    assert [checkpoint.step for checkpoint in thread.history()] == [6, 4, 2, 0]
    fourth = thread.load("@4")
    assert fourth.state == {
        "data": {"a": True, "b": True, "c": True, "d": True},
        "next": "e",
        "visited": ["a", "b", "c", "d"],
    }
    assert before <= fourth.created_at <= datetime.now(UTC)
    thread.delete("@2")
    assert [checkpoint.step for checkpoint in thread.history()] == [6, 4, 0]
    assert run.result == dict.fromkeys("abcde", True)


@covers("cortex", "graph test_checkpointing")
def test_a_graph_of_two_nodes_that_stores_at_each_leaves_checkpoints(hf: Holdfast) -> None:
    with hf.run("checkpoint_test", start=fresh("step1"), policy=EveryN(1)) as run:
        walk(run, chain("step1", "step2"))
    assert run.status == "completed"
    visited = [hf.thread("checkpoint_test").load(each).state["visited"] for each in hf.thread(run.thread).history()]
    assert visited == [["step1", "step2"], ["step1", "step2"], ["step1"], []]


@covers("cortex", "Graph.resume")
def test_after_a_crash_it_goes_on_with_the_node_that_was_next_and_works_nothing_out_twice(world: World) -> None:
    worked: list[str] = []
    nodes = chain("a", "b", "c", "d", "e", noting=worked)
    with world.dying("graph", start=fresh("a"), policy=EveryN(2)) as run:
        walk(run, nodes, before=lambda name: world.kill(run) if name == "d" else None)
    assert worked == ["a", "b", "c"]
    with world.running("graph", ends="completed", policy=EveryN(2)) as run:
        assert run.state["next"] == "c"
        walk(run, nodes)
    assert worked == ["a", "b", "c", "d", "e"]
    assert run.state["visited"] == ["a", "b", "c", "d", "e"]


@covers("cortex", "Graph.resume", "Graph.resume of an unknown checkpoint")
def test_it_goes_on_from_any_checkpoint_that_is_named(hf: Holdfast) -> None:
    with hf.run("graph", start=fresh("a"), policy=EveryN(1)) as run:
        walk(run, chain("a", "b", "c"))
    thread = hf.thread("graph")
    with pytest.raises(NotFound):
        thread.rewind("@99")
    thread.rewind("@1")
    with hf.run("graph", policy=EveryN(1)) as run:
        assert (run.state["next"], run.state["visited"]) == ("b", ["a"])
        walk(run, chain("a", "b", "c"))
    assert (run.status, run.state["visited"]) == ("completed", ["a", "b", "c"])


@covers("cortex", "graph test_cycle_with_limit")
def test_a_loop_of_five_turns_ends_with_its_count(hf: Holdfast) -> None:
    with hf.run("cycle", start=fresh("increment"), guards=[Budget(steps=100)]) as run:
        walk(run, {"increment": count_to(5)})
    assert (run.status, run.result) == ("completed", {"count": 5})
    assert len(run.state["visited"]) == 5


@covers("cortex", "GraphConfig.max_iterations", "graph test_max_iterations_limit")
def test_a_loop_without_an_end_is_stopped_and_all_that_was_done_is_kept(hf: Holdfast) -> None:
    options: dict[str, Any] = {"start": fresh("increment"), "policy": EveryN(1)}
    with pytest.raises(Halted, match="10 steps"), hf.run("infinite", guards=[Budget(steps=10)], **options) as run:
        walk(run, {"increment": count_to(1_000_000)})
    assert run.status == "halted"
    latest = hf.thread("infinite").latest()
    assert latest is not None
    assert latest.state["data"] == {"count": 10}
    with hf.run("infinite", guards=[Budget(steps=20)], **options) as run:
        walk(run, {"increment": count_to(15)})  # it goes on when it is allowed more
    assert run.result == {"count": 15}


@covers("cortex", "GraphConfig.node_timeout_ms")
def test_a_node_that_takes_too_long_is_an_error(hf: Holdfast) -> None:
    ended = threading.Event()

    @holdfast.tool(effect="read", timeout=0.05)
    def node() -> None:
        ended.wait(20)

    with pytest.raises(CallTimedOut), hf.run("t", start=fresh("node")) as run:
        run.tool(node)
    ended.set()
    assert run.status == "failed"


@covers("cortex", "GraphStatus")
def test_how_a_graph_ended_is_seen_from_outside(world: World) -> None:
    hf = world.open()
    with world.running("success", hf, ends="completed", start=fresh("a")) as run:
        walk(run, chain("a"))
    with world.failing("failed", KeyError, hf, start=fresh("nowhere")) as run:
        walk(run, chain("a"))
    with world.failing("max iterations", Halted, hf, start=fresh("a"), guards=[Budget(steps=1)]) as run:
        walk(run, chain("a", "b"))
    with world.running("paused", hf, ends="waiting", start=fresh("a")) as run:
        run.wait("which way?")
    with world.dying("interrupted", hf, start=fresh("a")):
        pass
    assert {info.name: info.status for info in hf.threads()} == {
        "success": "completed",
        "failed": "failed",
        "max iterations": "halted",
        "paused": "waiting",
        "interrupted": "running",
    }
    assert [found.thread for found in hf.interrupted()] == ["interrupted"]
