"""Invocations: one at a time on a thread; others wait or are refused, before anything is stored or called."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import ERROR
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, invocations
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, checkpoint
from tests.selection import tries
from tests.waiting import DEADLINE, until

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Model:
    """A model that can be held back, and counts who pays."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.started = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def answer(self, state: Chat) -> dict[str, Any]:
        text = str(state["messages"][-1].content)
        self.paid.append(text)
        self.started.set()
        assert self.go.wait(DEADLINE)
        if text == "fails":
            raise ValueError(text)
        return {"messages": [AIMessage(f"to {text}")]}


def chat(saver: BaseCheckpointSaver[Any], model: Model) -> Any:
    graph: Any = StateGraph(Chat)
    graph.add_node("answer", model.answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def given(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def said(graph: Any) -> list[str]:
    return [str(message.content) for message in graph.get_state(CONFIG).values["messages"]]


def test_a_second_input_waits_for_the_first(savers: Savers) -> None:
    model = Model()
    graphs = [chat(savers.open(), model), chat(savers.open(), model)]
    model.go.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(graphs[0].invoke, given("a"), CONFIG)
        assert model.started.wait(DEADLINE)
        second = pool.submit(graphs[1].invoke, given("b"), CONFIG)
        time.sleep(0.2)
        assert model.paid == ["a"]
        model.go.set()
        first.result(DEADLINE)
        second.result(DEADLINE)
    assert said(graphs[0]) == ["a", "to a", "b", "to b"]


@pytest.mark.parametrize("is_async", [False, True])
def test_busy_refuses_before_anything_is_stored_or_paid(savers: Savers, is_async: bool) -> None:
    model = Model()
    first, second = chat(savers.open(), model), chat(savers.open(busy="refuse"), model)
    model.go.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.invoke, given("a"), CONFIG)
        assert model.started.wait(DEADLINE)
        with pytest.raises(holdfast.Conflict, match="in use by another invocation"):
            asyncio.run(second.ainvoke(given("b"), CONFIG)) if is_async else second.invoke(given("b"), CONFIG)
        assert model.paid == ["a"]
        assert second.get_state(CONFIG).values == first.get_state(CONFIG).values  # reading is always possible
        model.go.set()
        running.result(DEADLINE)
    assert said(first) == ["a", "to a"]
    second.invoke(given("b"), CONFIG)
    assert said(first) == ["a", "to a", "b", "to b"]


def test_waiting_ends_in_time(savers: Savers) -> None:
    model = Model()
    first, second = chat(savers.open(), model), chat(savers.open(wait=0.2), model)
    model.go.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.invoke, given("a"), CONFIG)
        assert model.started.wait(DEADLINE)
        with pytest.raises(holdfast.Conflict, match="was not stored"):
            second.invoke(given("b"), CONFIG)
        model.go.set()
        running.result(DEADLINE)
    assert said(first) == ["a", "to a"]


def test_an_update_does_not_disturb_an_invocation(savers: Savers) -> None:
    model = Model()
    first, second = chat(savers.open(), model), chat(savers.open(), model)
    model.go.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.invoke, given("a"), CONFIG)
        assert model.started.wait(DEADLINE)
        for graph in (first, second):
            with pytest.raises(holdfast.Conflict, match="nothing was stored"):
                graph.update_state(CONFIG, given("by hand"))
        model.go.set()
        running.result(DEADLINE)
    second.update_state(CONFIG, given("by hand"))
    assert said(first) == ["a", "to a", "by hand"]


def test_an_invocation_that_failed_keeps_nobody_waiting(local: Savers) -> None:
    model = Model()
    graph = chat(local.open(wait=5.0), model)
    kept: list[BaseException] = []
    for _ in range(2):
        try:
            graph.invoke(given("fails"), CONFIG)
        except ValueError as error:
            kept.append(error)  # with its traceback, and so with all that the invocation used
            graph.invoke(given("again"), CONFIG)
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(graph.invoke, given("fails"), CONFIG)
        assert isinstance(failed.exception(DEADLINE), ValueError)
        graph.invoke(given("b"), CONFIG)
    assert said(graph)[-2:] == ["b", "to b"]


def test_a_failed_invocation_is_over_although_earlier_writes_are_stored_after_its_error(
    local: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_failed = threading.Event()
    put_writes = HoldfastSaver.put_writes

    def in_the_other_order(saver: HoldfastSaver, config: Any, writes: Any, *task: str) -> None:
        is_error = any(channel == ERROR for channel, _ in writes)
        assert is_error or has_failed.wait(DEADLINE)
        put_writes(saver, config, writes, *task)
        if is_error:
            has_failed.set()

    graph = chat(local.open(wait=5.0), Model())
    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patch:
        patch.setattr(HoldfastSaver, "put_writes", in_the_other_order)
        failed = pool.submit(graph.invoke, given("fails"), CONFIG)
        assert isinstance(failed.exception(DEADLINE), ValueError)  # kept: so is all that the invocation used
        graph.invoke(given("b"), CONFIG)
    assert said(graph)[-2:] == ["b", "to b"]


def test_an_invocation_that_caught_the_error_of_a_task_keeps_others_out(local: Savers) -> None:
    has_caught, go = threading.Event(), threading.Event()

    @task
    def fails() -> None:
        raise ValueError("no answer")

    @task
    def goes_on() -> None:
        has_caught.set()
        assert go.wait(DEADLINE)

    def graph(saver: HoldfastSaver) -> Any:
        @entrypoint(checkpointer=saver)
        def work(_: int) -> str:
            with pytest.raises(ValueError, match="no answer"):
                fails().result()
            goes_on().result()
            return "done"

        return work

    first, second = graph(local.open()), graph(local.open(busy="refuse"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.invoke, 1, CONFIG)
        assert has_caught.wait(DEADLINE)
        with pytest.raises(holdfast.Conflict, match="in use by another invocation"):
            second.invoke(2, CONFIG)
        go.set()
        assert running.result(DEADLINE) == "done"


def test_a_stream_that_was_left_keeps_nobody_waiting(local: Savers) -> None:
    graph = chat(local.open(wait=5.0), Model())
    for mode in (["values"], ["messages", "custom"]):
        for _ in graph.stream(given("a"), CONFIG, stream_mode=mode):
            break
    with ThreadPoolExecutor(1) as pool:
        pool.submit(graph.invoke, given("b"), CONFIG).result(DEADLINE)
    assert said(graph)[-2:] == ["b", "to b"]


def test_tasks_of_one_loop_wait_for_each_other(savers: Savers) -> None:
    graph = chat(savers.open(), Model())

    async def all_of_them() -> None:
        await asyncio.gather(*(graph.ainvoke(given(f"{number}"), CONFIG) for number in range(8)))

    asyncio.run(all_of_them())
    found = said(graph)
    assert sorted(found[::2]) == [f"{number}" for number in range(8)]
    assert found[1::2] == [f"to {text}" for text in found[::2]]


def test_a_lock_keeps_others_out(savers: Savers) -> None:
    model = Model()
    saver, other = savers.open(), savers.open(busy="refuse")
    graph, theirs = chat(saver, model), chat(other, model)
    with saver.lock("t"):
        graph.invoke(given("a"), CONFIG)
        with ThreadPoolExecutor(1) as pool:
            refused = pool.submit(theirs.invoke, given("b"), CONFIG).exception(DEADLINE)
        assert isinstance(refused, holdfast.Conflict)
        graph.invoke(given("c"), CONFIG)
    theirs.invoke(given("d"), CONFIG)
    assert said(graph)[::2] == ["a", "c", "d"]


def test_a_lock_is_that_of_the_tasks_that_it_starts(local: Savers) -> None:
    saver = local.open()
    graph = chat(saver, Model())

    async def handler() -> None:
        async with saver.lock("t", wait=1.0):
            await asyncio.wait_for(graph.ainvoke(given("a"), CONFIG), DEADLINE)
            await asyncio.create_task(graph.ainvoke(given("b"), CONFIG))
        with pytest.raises(holdfast.Conflict):
            async with saver.lock("t"):
                await asyncio.to_thread(_locked_elsewhere, saver)

    asyncio.run(handler())
    assert said(graph)[::2] == ["a", "b"]


def _locked_elsewhere(saver: HoldfastSaver) -> None:
    def lock() -> None:
        with saver.lock("t", wait=0.1):
            pass

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lock).result(DEADLINE)


CHILD = """
import sys, time
from typing import Annotated, TypedDict
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from holdfast import Conflict
from holdfast.adapters.langgraph import HoldfastSaver

class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]

url, namespace, who, count, durability, busy, dies = sys.argv[1:]
graph = StateGraph(Chat)
def answer(state):
    if dies == "dies":
        import os
        os._exit(3)
    print(state["messages"][-1].content, flush=True)
    return {"messages": [AIMessage("to " + state["messages"][-1].content)]}
graph.add_node("answer", answer)
graph.add_edge(START, "answer")
with HoldfastSaver(url, namespace=namespace, durability="off", busy=busy) as saver:
    graph = graph.compile(checkpointer=saver)
    for number in range(int(count)):
        while True:
            try:
                graph.invoke({"messages": [HumanMessage(f"{who}-{number}")]}, {"configurable": {"thread_id": "t"}},
                             durability=durability)
                break
            except Conflict as refused:
                assert "the input was not stored" in str(refused), refused
                time.sleep(0.01)
"""


def child(
    savers: Savers, who: str, count: int, durability: str = "async", busy: str = "wait", dies: str = ""
) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, savers.url, savers.namespace, who, str(count), durability, busy, dies]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("durability", "busy"), [("async", "wait"), ("sync", "wait"), ("exit", "wait"), ("async", "refuse")]
)
def test_inputs_of_two_processes_are_stored_once_each(lasting: Savers, durability: str, busy: str) -> None:
    count = tries(100, 20)
    children = [child(lasting, who, count, durability, busy) for who in ("a", "b")]
    paid: list[str] = []
    for each in children:
        output, errors = each.communicate(timeout=8 * DEADLINE)
        assert each.returncode == 0, errors
        paid += output.split()
    found = said(chat(lasting.open(), Model()))
    assert len(found) == 4 * count
    assert found[1::2] == [f"to {text}" for text in found[::2]]
    for who in ("a", "b"):
        assert [text for text in found[::2] if text.startswith(who)] == [f"{who}-{number}" for number in range(count)]
    assert sorted(paid) == sorted(found[::2]), "each model was paid once"


def test_a_process_that_died_keeps_nobody_waiting(lasting: Savers) -> None:
    dead = child(lasting, "a", 1, dies="dies")
    dead.communicate(timeout=DEADLINE)
    assert dead.returncode == 3
    graph = chat(lasting.open(busy="refuse"), Model())
    graph.invoke(given("b"), CONFIG)
    assert said(graph)[-2:] == ["b", "to b"]


def test_a_node_that_invokes_a_graph_on_its_own_thread_is_not_waited_for(local: Savers) -> None:
    """The inner invocation could only wait for the outer one, which waits for it. The outer one is overtaken."""
    saver = local.open(wait=DEADLINE)
    inner = chat(saver, Model())
    done: list[str] = []

    def nested(state: Chat) -> None:
        inner.invoke(given("inner"), CONFIG)
        done.append("inner")

    graph: Any = StateGraph(Chat)
    graph.add_node("nested", nested)
    graph.add_node("beside", lambda state: None)  # two nodes at once run in threads of their own
    graph.add_edge(START, "nested")
    graph.add_edge(START, "beside")
    began = time.monotonic()
    with pytest.raises(holdfast.Conflict, match="continued from the same checkpoint"):
        graph.compile(checkpointer=saver).invoke(given("outer"), CONFIG, durability="sync")
    assert done == ["inner"]
    assert time.monotonic() - began < DEADLINE


def test_an_invocation_whose_writer_a_node_keeps_ends_with_its_last_checkpoint(local: Savers) -> None:
    kept: list[Any] = []

    def keep(state: Chat) -> dict[str, Any]:
        kept.append(get_stream_writer())
        return {"messages": [AIMessage("kept")]}

    graph: Any = StateGraph(Chat)
    graph.add_node("keep", keep)
    graph.add_edge(START, "keep")
    graph = graph.compile(checkpointer=local.open(wait=DEADLINE))
    graph.invoke(given("a"), CONFIG)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(graph.invoke, given("b"), CONFIG).result(DEADLINE)
    assert said(graph) == ["a", "kept", "b", "kept"]


def test_a_lock_that_was_left_does_not_let_its_thread_in(local: Savers) -> None:
    saver = local.open()
    lock = saver.lock("t", wait=0)
    with lock:
        pass
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lock.__enter__).result(DEADLINE)
        with pytest.raises(holdfast.Conflict):
            chat(local.open(busy="refuse"), Model()).invoke(given("a"), CONFIG)


def test_an_interrupted_invocation_lets_other_processes_in(lasting: Savers) -> None:
    """LangGraph leaves its objects in a cycle, which this process need not collect for a long time."""

    def ask(state: Chat) -> dict[str, Any]:
        return {"messages": [AIMessage(str(interrupt("really?")))]}

    def build(saver: HoldfastSaver) -> Any:
        graph: Any = StateGraph(Chat)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        return graph.compile(checkpointer=saver)

    saver = lasting.open()
    gc.disable()
    try:
        build(saver).invoke(given("a"), CONFIG, durability="sync")
        run = saver.hf.context.store.run  # the record that other processes see
        number = saver.shared.thread("t", "").known_number()
        assert number is not None
        until(lambda: (found := run(number)) is not None and found.owner is None, "the thread is released")
    finally:
        gc.enable()
    build(lasting.open()).invoke(Command(resume="yes"), CONFIG)
    assert said(build(saver)) == ["a", "yes"]


def asking(saver: HoldfastSaver, *, beside: Any = None) -> Any:
    """A node that asks, and maybe another one beside it."""

    def ask(state: Chat) -> dict[str, Any]:
        return {"messages": [AIMessage(str(interrupt("really?")))]}

    graph: Any = StateGraph(Chat)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    if beside is not None:
        graph.add_node("beside", beside)
        graph.add_edge(START, "beside")
    return graph.compile(checkpointer=saver)


def test_an_interrupted_invocation_lets_other_processes_in_however_long_its_other_node_ran(lasting: Savers) -> None:
    """Its objects were collected once while the other node was running, and were still in use."""
    saver = lasting.open()
    collected = threading.Event()

    def slow(state: Chat) -> None:
        assert collected.wait(DEADLINE)

    gc.disable()
    gc.callbacks.append(tell := lambda phase, info: collected.set() if info["generation"] == 2 else None)
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asking(saver, beside=slow).invoke, given("a"), CONFIG, durability="sync").result(DEADLINE)
            run = saver.hf.context.store.run  # the record that other processes see
            number = saver.shared.thread("t", "").known_number()
            assert number is not None
            until(lambda: (found := run(number)) is not None and found.owner is None, "the thread is released")
    finally:
        gc.callbacks.remove(tell)
        gc.enable()


def test_an_invocation_that_ended_with_an_error_of_the_graph_lets_other_processes_in(
    lasting: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph stores no such error, and leaves its objects in a cycle."""
    monkeypatch.setattr(invocations, "_IDLE", 0.2)
    saver = lasting.open()
    graph: Any = StateGraph(Chat)
    graph.add_node("answer", lambda state: {"messages": object()})
    graph.add_edge(START, "answer")
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(NotImplementedError):
                pool.submit(graph.compile(checkpointer=saver).invoke, given("a"), CONFIG).result(DEADLINE)
            run = saver.hf.context.store.run  # the record that other processes see
            number = saver.shared.thread("t", "").known_number()
            assert number is not None
            until(lambda: (found := run(number)) is not None and found.owner is None, "the thread is released")
    finally:
        gc.enable()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_same_saver", [False, True])
def test_the_state_may_be_updated_as_soon_as_a_question_is_asked(
    lasting: Savers, is_same_saver: bool, is_async: bool
) -> None:
    """From another thread, as in a web server. Until the objects of the invocation are collected, it looks alive."""
    saver = lasting.open()
    graph, other = asking(saver), asking(saver if is_same_saver else lasting.open())
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(graph.invoke, given("a"), CONFIG, durability="sync").result(DEADLINE)
            if is_async:
                asyncio.run(other.aupdate_state(CONFIG, given("by hand"), as_node="__start__"))
            else:
                other.update_state(CONFIG, given("by hand"), as_node="__start__")
    finally:
        gc.enable()
    assert said(graph) == ["a", "by hand"]


def test_an_update_of_an_async_graph_does_not_keep_its_event_loop_waiting(
    savers: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    graph = chat(savers.open(), model)
    model.go.clear()
    sleep, slept = time.sleep, []

    def noted(seconds: float) -> None:
        slept.append(threading.current_thread())
        sleep(seconds)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(graph.invoke, given("a"), CONFIG)
        assert model.started.wait(DEADLINE)
        monkeypatch.setattr(time, "sleep", noted)
        with pytest.raises(holdfast.Conflict, match="nothing was stored"):
            asyncio.run(graph.aupdate_state(CONFIG, given("by hand")))
        model.go.set()
        running.result(DEADLINE)
    assert threading.current_thread() not in slept
    assert said(graph) == ["a", "to a"]


def test_a_refused_update_leaves_nothing_in_a_delta_channel(savers: Savers) -> None:
    """LangGraph stores the writes of an update before its checkpoint: a DeltaChannel would read them."""

    def append(state: list[str], writes: Sequence[list[str]]) -> list[str]:
        return [*state, *(item for write in writes for item in write)]

    make: Any = TypedDict  # of what is only known here, which a type checker cannot follow
    graph: Any = StateGraph(make("Line", {"line": Annotated[list, DeltaChannel(append, snapshot_frequency=50)]}))
    model = Model()

    def answer(state: Any) -> dict[str, Any]:
        return {"line": [str(model.answer({"messages": [HumanMessage(state["line"][-1])]})["messages"][0].content)]}

    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    first, second = (graph.compile(checkpointer=savers.open()) for _ in range(2))
    first.invoke({"line": ["a"]}, CONFIG, durability="sync")
    model.started.clear()
    model.go.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.invoke, {"line": ["b"]}, CONFIG, durability="sync")
        assert model.started.wait(DEADLINE)
        for each in (first, second):
            with pytest.raises(holdfast.Conflict, match="nothing was stored"):
                each.update_state(CONFIG, {"line": ["by hand"]}, as_node="answer")
        model.go.set()
        running.result(DEADLINE)
    for each in (first, second):
        assert each.get_state(CONFIG).values == {"line": ["a", "to a", "b", "to b"]}


@pytest.mark.parametrize("remembers", [None, True])
def test_an_update_of_a_subgraph_does_not_disturb_an_invocation(savers: Savers, remembers: bool | None) -> None:
    model = Model()
    inner: Any = StateGraph(Chat)
    inner.add_node("answer", model.answer)
    inner.add_node("last", lambda state: {"messages": [AIMessage("last")]})
    inner.add_edge(START, "answer")
    inner.add_edge("answer", "last")
    outer: Any = StateGraph(Chat)
    outer.add_node("inner", inner.compile(checkpointer=remembers))
    outer.add_edge(START, "inner")
    first, second = (outer.compile(checkpointer=savers.open()) for _ in range(2))
    model.go.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.invoke, given("a"), CONFIG, durability="sync")
        assert model.started.wait(DEADLINE)
        for graph in (first, second):
            [now] = graph.get_state(CONFIG, subgraphs=True).tasks
            with pytest.raises(holdfast.Conflict, match="nothing was stored"):
                graph.update_state(now.state.config, given("by hand"), as_node="answer")
        model.go.set()
        running.result(DEADLINE)
    assert said(second) == ["a", "to a", "last"]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_update_that_fails_halfway_does_not_keep_the_thread(local: Savers, is_async: bool) -> None:
    """LangGraph stores what a DeltaChannel reads, and then applies it. Nobody tells the saver that this failed."""

    def append(line: list[str], writes: Sequence[list[str]]) -> list[str]:
        if ["fails"] in writes:
            raise ValueError("fails")
        return [*line, *(one for each in writes for one in each)]

    make: Any = TypedDict
    graph: Any = StateGraph(make("Line", {"line": Annotated[list, DeltaChannel(append, snapshot_frequency=50)]}))
    graph.add_node("answer", lambda state: {"line": ["answer"]})
    graph.add_edge(START, "answer")
    saver = local.open()
    first = graph.compile(checkpointer=saver)
    first.invoke({"line": ["a"]}, CONFIG, durability="sync")

    async def update_and_stay() -> Any:
        with pytest.raises(ValueError, match="fails"):
            await first.aupdate_state(CONFIG, {"line": ["fails"]}, as_node="answer")
        return await asyncio.to_thread(is_free)

    def is_free() -> bool:
        with saver.lock("t", wait=5):
            return True

    if is_async:
        assert asyncio.run(update_and_stay())
        return
    with pytest.raises(ValueError, match="fails"):
        first.update_state(CONFIG, {"line": ["fails"]}, as_node="answer")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(is_free).result(DEADLINE)


def test_an_update_in_the_middle_keeps_an_invocation_out(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the invocation would be paid for, and refused because the update has stored a checkpoint meanwhile."""
    model = Model()
    saver = local.open()
    first, second = chat(saver, model), chat(local.open(), model)
    first.invoke(given("a"), CONFIG)
    storing, go = threading.Event(), threading.Event()
    thread = saver.shared.thread("t", "")
    put = thread.put

    def slow(*what: Any) -> None:
        storing.set()
        assert go.wait(DEADLINE)
        put(*what)

    monkeypatch.setattr(thread, "put", slow)
    with ThreadPoolExecutor(2) as pool:
        updating = pool.submit(first.update_state, CONFIG, given("by hand"))
        assert storing.wait(DEADLINE)
        running = pool.submit(second.invoke, given("b"), CONFIG)
        time.sleep(0.3)
        assert model.paid == ["a"]
        go.set()
        updating.result(DEADLINE)
        running.result(DEADLINE)
    assert said(second) == ["a", "to a", "by hand", "b", "to b"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_updates_its_own_thread_is_refused(local: Savers, is_async: bool, durability: str) -> None:
    """Otherwise the invocation could not store what the node returns."""
    refused: list[Exception] = []

    def update(state: Chat) -> dict[str, Any]:
        with pytest.raises(holdfast.Conflict, match="nothing was stored") as error:
            graph.update_state(CONFIG, given("by hand"), as_node="answer")
        refused.append(error.value)
        return {"messages": [AIMessage("answer")]}

    async def aupdate(state: Chat) -> dict[str, Any]:
        with pytest.raises(holdfast.Conflict, match="nothing was stored") as error:
            await graph.aupdate_state(CONFIG, given("by hand"), as_node="answer")
        refused.append(error.value)
        return {"messages": [AIMessage("answer")]}

    builder: Any = StateGraph(Chat)
    builder.add_node("answer", aupdate if is_async else update)
    builder.add_edge(START, "answer")
    graph: Any = builder.compile(checkpointer=local.open())
    if is_async:
        asyncio.run(graph.ainvoke(given("a"), CONFIG, durability=durability))
    else:
        graph.invoke(given("a"), CONFIG, durability=durability)
    assert len(refused) == 1
    assert said(graph) == ["a", "answer"]
    graph.update_state(CONFIG, given("by hand"), as_node="answer")
    assert said(graph) == ["a", "answer", "by hand"]


def test_a_lock_within_a_lock_does_not_open_it(local: Savers) -> None:
    saver = local.open()
    other = chat(local.open(busy="refuse"), Model())
    with saver.lock("t"):
        with saver.lock("t"):
            chat(saver, Model()).update_state(CONFIG, given("by hand"))
        with ThreadPoolExecutor(1) as pool:
            refused = pool.submit(other.invoke, given("a"), CONFIG).exception(DEADLINE)
    assert isinstance(refused, holdfast.Conflict)
    assert said(other) == ["by hand"]


def test_the_claim_of_a_thread_does_not_keep_back_other_threads(
    savers: Savers, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver, model = savers.open(), Model()
    graph = chat(saver, model)
    claiming, go = threading.Event(), threading.Event()
    slow = saver.shared.thread("t", "")
    number = slow.known_number

    def held_back() -> int | None:
        claiming.set()
        assert go.wait(DEADLINE)
        return number()

    monkeypatch.setattr(slow, "known_number", held_back)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(graph.invoke, given("a"), CONFIG)
        assert claiming.wait(DEADLINE)
        graph.invoke(given("b"), {"configurable": {"thread_id": "other"}})
        go.set()
        first.result(DEADLINE)
    assert model.paid == ["b", "a"]


def test_an_event_loop_does_not_wait_while_another_checkpoint_of_the_thread_is_stored(savers: Savers) -> None:
    saver = savers.open()
    face = Face(saver, is_async=False)
    face.put(1, {"a": 1})
    stored = face.get(1)
    thread = saver.shared.thread("t", "")
    with thread.lock, ThreadPoolExecutor(1) as pool:
        taken = pool.submit(thread.take, saver.values, stored.config, checkpoint(2, {}, {}), {}, {})
        assert taken.result(DEADLINE).parent == stored.checkpoint["id"]


def test_savers_of_a_handle_that_are_no_longer_used_are_not_kept(local: Savers) -> None:
    hf = local.handle()
    model = Model()
    savers = [HoldfastSaver(hf) for _ in range(5)]
    left = [weakref.ref(saver.shared.invocations) for saver in savers]
    for number, saver in enumerate(savers):
        chat(saver, model).invoke(given("a"), {"configurable": {"thread_id": f"{number}"}})
    savers.clear()
    del saver

    until(lambda: not hf.context.at_close)
    until(lambda: not gc.collect() and not any(each() for each in left))
    for number in range(5):
        thread = hf.context.store.head(f"{number}")
        assert thread is not None
        run = hf.context.store.run(thread.thread.position.thread)
        assert run is not None
        assert run.owner is None


def test_releasing_again_and_again_starts_no_more_keepers(local: Savers) -> None:
    saver, model = local.open(), Model()
    graph = chat(saver, model)
    before = threading.enumerate()
    for number in range(10):
        with saver.lock("t"):
            graph.invoke(given(f"{number}"), CONFIG)
            time.sleep(0.05)
        saver.release()
    new = [each for each in threading.enumerate() if each not in before]
    assert [each.name for each in new if each.name == "holdfast-invocations"] in ([], ["holdfast-invocations"])


@pytest.mark.parametrize("ends", [False, True])
def test_a_claim_that_is_being_renewed_stays_held_or_is_released(
    local: Savers, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    saver = local.open()
    store = saver.hf.context.store
    claim = store.claim
    renewing, go = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        made = claim(*given)
        renewing.set()
        assert go.wait(DEADLINE)
        return made

    with saver.lock("t"), ThreadPoolExecutor(2) as pool:
        (hold,) = saver.shared.invocations._holds.values()
        monkeypatch.setattr(store, "claim", slow)
        hold.renewed_at -= 1_000
        first = pool.submit(hold.renew)
        assert renewing.wait(DEADLINE)
        monkeypatch.setattr(store, "claim", claim)
        second = pool.submit(hold.release if ends else hold.renew)
        time.sleep(0.05)
        go.set()
        first.result(DEADLINE)
        second.result(DEADLINE)
        run = store.run(hold.run.thread)
        assert run is not None
        assert (run.owner is None) == hold.is_lost == ends


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_does_not_take_a_thread_from_its_parent(tmp_path: Path) -> None:
    saver = HoldfastSaver(tmp_path / "agent.db")
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with saver.lock("t"):
            held.set()
            assert go.wait(DEADLINE)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert held.wait(DEADLINE)
        ticking = [*saver.shared.invocations._holds.values()]  # as in the keeper while it renews claims
        child = os.fork()
        if not child:
            try:
                with saver.lock("t", wait=0.2):
                    os._exit(1)
            except holdfast.Conflict:
                os._exit(0)
            finally:
                os._exit(2)  # any other error
        status = os.waitpid(child, 0)[1]
        go.set()
        holding.result(DEADLINE)
    del ticking
    saver.close()
    assert status == 0


def test_a_lock_that_was_cancelled_while_it_was_taken_is_left(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = local.open()
    claimed = saver.shared.invocations._claimed

    def slow(*given: Any) -> Any:
        found = claimed(*given)
        time.sleep(0.2)
        return found

    async def cancelled() -> None:
        lock = saver.lock("t")
        with monkeypatch.context() as patched:
            patched.setattr(saver.shared.invocations, "_claimed", slow)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), lock:
                    pytest.fail("it was not cancelled")
        async with saver.lock("t", wait=0.2):
            pass

    asyncio.run(cancelled())


@pytest.mark.parametrize("is_new", [False, True])
def test_two_savers_of_a_process_do_not_both_claim_a_thread(
    local: Savers, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    slow, other = local.open(), local.open()
    if not is_new:
        with other.lock("t"):
            pass
        other.release()
    thread, store = slow.shared.thread("t", ""), slow.hf.context.store
    create, claim = thread.create, store.claim
    claimed, go, inside = threading.Event(), threading.Event(), threading.Lock()

    def answered_late(made: Any) -> Any:
        claimed.set()
        assert go.wait(DEADLINE)
        return made

    def alone() -> None:
        with slow.lock("t", wait=DEADLINE):
            assert inside.acquire(blocking=False)
            inside.release()

    monkeypatch.setattr(thread, "create", lambda run: answered_late(create(run)))
    monkeypatch.setattr(store, "claim", lambda *given: answered_late(claim(*given)))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(alone)
        assert claimed.wait(DEADLINE)
        with other.lock("t", wait=DEADLINE), inside:
            go.set()
            time.sleep(0.1)
        first.result(DEADLINE)
