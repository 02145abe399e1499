"""Tools with a journal: what was finished is never called again, what was in flight is treated by its policy."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, call_place, tools_thread
from holdfast.adapters.langgraph.tool_journal import ToolJournal, Unsettled
from holdfast.adapters.seam_modes import AWAITING, BLOCKING, finished
from holdfast.runs.calls import Calls
from holdfast.runs.tools import tool_of
from holdfast.threads.scan import thread_named
from tests.adapters.langgraph.acting import (
    CONFIG,
    INPUT,
    Death,
    Forgetful,
    Way,
    World,
    build,
    first_process,
    go,
    once,
    said,
    tools_of,
)
from tests.adapters.langgraph.children import processes
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.graphs import call
from tests.waiting import DEADLINE

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

WAYS: list[tuple[Way, bool]] = [("agent", False), ("agent", True), ("react", False), ("graph", True)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world.txt")


def killed(
    savers: Savers,
    world: World,
    policy: str,
    death: Death,
    way: Way = "agent",
    *,
    is_async: bool = False,
    durability: str = "sync",
) -> None:
    """A process that begins, and is killed in its second tool."""
    process = processes().Process(
        target=first_process,
        args=(savers.url, savers.namespace, world.path, policy, death, way, is_async, durability),
    )
    process.start()
    process.join(DEADLINE)
    assert process.exitcode == -signal.SIGKILL
    assert world.done[:1] == ["note first"]


def calls_of(world: World, name: str) -> list[str]:
    return [line for line in world.done if line.split()[0] == name]


# -- killed in a tool -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "death", "times", "answer"),
    [
        ("read", "after", 2, '{"acted": 3}'),
        ("rerun", "before", 1, '{"acted": 3}'),
        ("rerun", "after", 2, '{"acted": 3}'),
        ("probe", "before", 1, '{"acted": 3}'),
        ("probe", "after", 1, "as the probe says"),
        ("give_up", "after", 1, '{"outcome": "unknown"'),
    ],
)
def test_the_call_in_flight_is_treated_by_its_policy(
    local: Savers, world: World, policy: str, death: Death, times: int, answer: str
) -> None:
    killed(local, world, policy, death)
    state = go(build(local.open(), tools_of(world, policy, None)), None, is_async=False)
    assert calls_of(world, "note") == ["note first"], "it was finished"
    acts = calls_of(world, "act")
    assert len(acts) == times
    assert len(set(acts)) == 1, "each time with the same idempotency key"
    assert said(state)[0] == "noted first"
    assert said(state)[1].startswith(answer)
    assert state["messages"][-1].content == "Done."


@pytest.mark.parametrize(("way", "is_async"), WAYS)
def test_somebody_is_asked_by_an_interrupt(local: Savers, world: World, way: Way, is_async: bool) -> None:
    killed(local, world, "ask", "after", way, is_async=is_async)
    saver = local.open()
    graph = build(saver, tools_of(world, "ask", None), way)
    [question] = go(graph, None, is_async=is_async)["__interrupt__"]
    assert question.value["tool"] == "act"
    assert question.value["arguments"] == {"amount": 3}
    [waiting] = saver.hf.waiting()
    assert (waiting.thread, waiting.effect) == (question.value["thread"], question.value["effect"])
    answer = {"effect": question.value["effect"], "outcome": "happened", "result": "somebody looked"}
    state = go(graph, Command(resume=answer), is_async=is_async)
    assert said(state) == ["noted first", "somebody looked"]
    assert len(calls_of(world, "act")) == 1
    assert state["messages"][-1].content == "Done."


def test_what_did_not_happen_is_called(local: Savers, world: World) -> None:
    killed(local, world, "ask", "before")
    graph = build(local.open(), tools_of(world, "ask", None))
    [question] = go(graph, None, is_async=False)["__interrupt__"]
    state = go(graph, Command(resume={"effect": question.value["effect"], "outcome": "not_done"}), is_async=False)
    assert said(state) == ["noted first", '{"acted": 3}']
    assert len(calls_of(world, "act")) == 1


def test_a_question_can_be_settled_from_outside_of_the_graph(local: Savers, world: World) -> None:
    killed(local, world, "ask", "after")
    saver = local.open()
    graph = build(saver, tools_of(world, "ask", None))
    go(graph, None, is_async=False)
    journal = tools_thread("t")
    [effect] = [effect for effect in saver.hf.effects(journal) if effect.status == "in_doubt"]
    saver.hf.settle(journal, effect, holdfast.Happened("by hand"))
    assert said(go(graph, None, is_async=False)) == ["noted first", "by hand"]
    assert len(calls_of(world, "act")) == 1


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize(("way", "is_async"), [("react", True), ("graph", False)])
def test_every_way_and_store(lasting: Savers, world: World, way: Way, is_async: bool, durability: str) -> None:
    """With durability="async" the checkpoint that asks for a tool is stored before the tool acts all the same."""
    killed(lasting, world, "probe", "after", way, is_async=is_async, durability=durability)
    state = go(build(lasting.open(), tools_of(world, "probe", None), way), None, is_async=is_async)
    assert said(state) == ["noted first", "as the probe says"]
    assert (len(calls_of(world, "note")), len(calls_of(world, "act"))) == (1, 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_no_tool_acts_before_the_checkpoint_that_asks_for_it_is_stored(
    local: Savers, world: World, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is stored only when the tool is held back already."""
    is_held_back = threading.Event()
    really = call_place.is_stored

    def is_stored(*checkpoint: Any) -> bool:
        stored = really(*checkpoint)
        is_held_back.set()
        return stored

    class Late(HoldfastSaver):
        def _put(self, config: Any, thread: Any, put: Any, update: Any) -> Any:
            if put.metadata["step"] == 1:
                is_held_back.wait(DEADLINE)
            return super()._put(config, thread, put, update)

    monkeypatch.setattr(call_place, "is_stored", is_stored)
    saver = Late(local.handle())

    @tool
    def asked(text: str) -> str:
        """Say what is stored now."""
        found = HoldfastSaver(local.handle()).get_tuple({"configurable": {"thread_id": "t"}})
        assert found is not None
        return str(len(found.checkpoint["channel_values"]["messages"]))

    lines = [AIMessage("", tool_calls=[call("asked", 1, text="a")]), AIMessage("Done.")]
    state = go(build(saver, [asked], "agent", lines), INPUT, is_async=is_async, durability="async")
    assert said(state) == ["2"], "the input, and the message with the call"


# -- run again --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "is_async"), WAYS)
def test_a_node_that_is_run_again_finds_what_its_tools_gave(
    local: Savers, world: World, way: Way, is_async: bool
) -> None:
    attempts: list[int] = []

    @tool
    @holdfast.tool(effect="read")
    def unsteady(word: str) -> str:
        """Fail the first time."""
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("away")
        return "there"

    lines = [AIMessage("", tool_calls=[call("once", 1, text="a"), call("unsteady", 2, word="b")]), AIMessage("Done.")]
    graph = build(local.open(), [once(world), unsteady], way, lines)
    with pytest.raises(ConnectionError):
        go(graph, INPUT, is_async=is_async)
    assert said(go(graph, None, is_async=is_async)) == ["did a", "there"]
    assert world.done == ["once a"]
    assert len(attempts) == 2


def test_going_back_in_time_calls_nothing_again(local: Savers, world: World) -> None:
    lines = [AIMessage("", tool_calls=[call("once", 1, text="a")]), AIMessage("Done.")]
    graph = build(local.open(), [once(world)], "agent", lines)
    go(graph, INPUT, is_async=False)
    before = next(state for state in graph.get_state_history(CONFIG) if state.next == ("tools",))
    again = graph.invoke(None, before.config)
    assert said(again) == ["did a"]
    assert world.done == ["once a"]


def test_ids_of_calls_may_begin_anew_with_each_message(local: Savers, world: World) -> None:
    """Some models call each first call call_0; this one asks for the same thing three times."""
    lines = [AIMessage("", tool_calls=[call("once", 0, text="a")])] * 3 + [AIMessage("Done.")]
    state = go(build(local.open(), [once(world)], "agent", lines, Forgetful), INPUT, is_async=False)
    assert {one["id"] for message in state["messages"] for one in getattr(message, "tool_calls", ())} == {"call-0"}
    assert said(state) == ["did a"] * 3
    assert world.done == ["once a"] * 3


def test_many_calls_are_found_without_reading_the_journal(local: Savers, world: World) -> None:
    lines = [
        *(AIMessage("", tool_calls=[call("once", at, text=f"{turn}-{at}") for at in range(8)]) for turn in range(12)),
        AIMessage("Done."),
    ]
    saver = local.open()
    graph = build(saver, [once(world)], "agent", lines)
    go(graph, INPUT, is_async=False)
    assert len(world.done) == len(set(world.done)) == 96
    store: Any = saver.hf.context.store
    thread = thread_named(store, tools_thread("t"))
    assert thread is not None
    assert store.run(thread.position.thread).closed > 0, "a claim does not read what is finished"
    first = [state for state in graph.get_state_history(CONFIG) if state.next and state.next[0] == "tools"][-1]
    graph.invoke(None, first.config)
    assert len(world.done) == 96


# -- beside each other ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "is_async"), WAYS)
def test_calls_of_one_step_are_under_way_at_the_same_time(
    local: Savers, world: World, way: Way, is_async: bool
) -> None:
    together = threading.Barrier(3)

    @tool
    def meet(who: str) -> str:
        """Wait for the others."""
        together.wait(DEADLINE)
        world.do("meet", who)
        return who

    lines = [AIMessage("", tool_calls=[call("meet", at, who=str(at)) for at in range(3)]), AIMessage("Done.")]
    saver = local.open()
    state = go(build(saver, [meet], way, lines), INPUT, is_async=is_async)
    assert said(state) == ["0", "1", "2"]
    assert sorted(world.done) == ["meet 0", "meet 1", "meet 2"]
    assert [info.status for info in saver.hf.threads(prefix=tools_thread("t"))] == ["idle"]


@pytest.mark.parametrize("is_async", [False, True])
def test_one_in_doubt_does_not_hold_up_the_others(local: Savers, world: World, is_async: bool) -> None:
    @tool
    def lost(text: str) -> str:
        """Act, and lose the answer."""
        world.do("lost", text)
        raise TimeoutError("no answer")

    lines = [AIMessage("", tool_calls=[call("lost", 1, text="a"), call("once", 2, text="b")]), AIMessage("Done.")]
    saver = local.open()
    graph = build(saver, [lost, once(world)], "agent", lines)
    [question] = go(graph, INPUT, is_async=is_async)["__interrupt__"]
    assert sorted(world.done) == ["lost a", "once b"]
    answer = {"effect": question.value["effect"], "outcome": "give_up"}
    state = go(graph, Command(resume=answer), is_async=is_async)
    assert said(state)[0].startswith('{"outcome": "unknown"')
    assert said(state)[1] == "did b"
    assert sorted(world.done) == ["lost a", "once b"]


def test_a_call_that_starts_while_another_comes_into_doubt_is_made(
    local: Savers, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is suspended after the second call was let in and before its first line."""
    entered, suspended = threading.Event(), threading.Event()
    leave, call_tool = ToolJournal.leave, Calls.tool

    def leave_and_tell(self: ToolJournal, *, is_last: bool = False) -> None:
        leave(self, is_last=is_last)
        if is_last:
            suspended.set()

    def call_late(self: Calls, named: Any, *args: Any, **kwargs: Any) -> Any:
        if named.name == "once":
            entered.set()
            assert suspended.wait(DEADLINE)
        return (yield from call_tool(self, named, *args, **kwargs))

    monkeypatch.setattr(ToolJournal, "leave", leave_and_tell)
    monkeypatch.setattr(Calls, "tool", call_late)

    @tool
    def lost(text: str) -> str:
        """Act, and lose the answer."""
        assert entered.wait(DEADLINE)
        world.do("lost", text)
        raise TimeoutError("no answer")

    lines = [AIMessage("", tool_calls=[call("lost", 1, text="a"), call("once", 2, text="b")]), AIMessage("Done.")]
    graph = build(local.open(), [lost, once(world)], "agent", lines)
    [question] = go(graph, INPUT, is_async=False)["__interrupt__"]
    assert question.value["tool"] == "lost"
    assert sorted(world.done) == ["lost a", "once b"]


@pytest.mark.parametrize("way", ["react", "graph"])
def test_two_in_doubt_are_answered_by_their_numbers(local: Savers, world: World, way: Way) -> None:
    """In one node, LangGraph tells answers by their order, and nobody knows that of calls beside each other."""

    @tool
    def lost(text: str) -> str:
        """Act, and lose the answer."""
        world.do("lost", text)
        raise TimeoutError("no answer")

    lines = [AIMessage("", tool_calls=[call("lost", 1, text="a"), call("lost", 2, text="b")]), AIMessage("Done.")]
    saver = local.open()
    graph = build(saver, [lost], way, lines)
    state = go(graph, INPUT, is_async=False)
    for _ in range(4):
        if not (asked := state.get("__interrupt__")):
            break
        answers = {
            each.id: {
                "effect": each.value["effect"],
                "outcome": "happened",
                "result": f"found {each.value['arguments']['text']}",
            }
            for each in asked
        }
        state = go(graph, Command(resume=answers), is_async=False)
    assert said(state) == ["found a", "found b"]
    assert sorted(world.done) == ["lost a", "lost b"]


def test_a_second_process_is_refused_before_it_acts(local: Savers, world: World) -> None:
    """Each handle stands for a process."""
    inside, over = threading.Event(), threading.Event()

    @tool
    def slow(text: str) -> str:
        """Take a while."""
        world.do("slow", text)
        inside.set()
        assert over.wait(DEADLINE)
        return text

    lines = [AIMessage("", tool_calls=[call("slow", 1, text="a")]), AIMessage("Done.")]
    first = build(local.open(), [slow], "agent", lines)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(go(first, INPUT, is_async=False)))
    thread.start()
    try:
        assert inside.wait(DEADLINE)
        with pytest.raises(holdfast.Conflict, match="in use by another invocation"):
            go(build(local.open(busy="refuse"), [slow], "agent", lines), None, is_async=False)
    finally:
        over.set()
        thread.join()
    assert said(results[0]) == ["a"]
    assert world.done == ["slow a"]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_same_call_under_another_id_asks_the_question_of_the_first(tmp_path: Path, is_async: bool) -> None:
    @holdfast.tool(effect="irreversible", name="pay")
    def pay(amount: int) -> None:
        paid.append(amount)
        raise OSError("connection reset")

    paid: list[int] = []
    with holdfast.open(tmp_path / "a.db") as hf:
        journal = ToolJournal(hf.context, "t", 30.0)
        for id in ("call-1", "call-2"):
            call = journal.call(AWAITING if is_async else BLOCKING, tool_of(pay), {"amount": 5}, id, 5.0)
            with pytest.raises(Unsettled) as asked:
                asyncio.run(call) if is_async else finished(call)
            assert asked.value.number == 1
    assert paid == [5]
