"""What the other processes of the tests do: run a graph against each other, or until they are killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

import holdfast
from holdfast import Conflict, Holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from tests.waiting import DEADLINE

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def processes() -> ForkServerContext:
    """Starts processes from a warm one: importing LangGraph takes longer than all they do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def answering(saver: Any, during: Callable[[str], None] = lambda name: None) -> Any:
    """A graph that answers each message; `during` is called by the node, with the message it answers."""

    def answer(state: State) -> dict[str, Any]:
        name = state["messages"][-1].id
        assert name is not None
        during(name)
        return {"messages": [AIMessage(f"reply to {name}", id=f"reply-{name}")]}

    graph = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def ask(graph: Any, name: str, durability: str) -> bool:
    """Whether an input was taken; the other way is a conflict, and nothing else."""
    try:
        graph.invoke({"messages": [HumanMessage("?", id=name)]}, CONFIG, durability=durability)
    except Conflict:
        return False
    return True


def contend(url: str, namespace: str, name: str, rounds: int, durability: str, together: Any, told: Any) -> None:
    """Ask so many times, each time at the same moment as another process; tell what was taken."""
    with holdfast.open(url, namespace=namespace, durability="off") as handle:
        graph = answering(HoldfastSaver(handle))
        taken = []
        for number in range(rounds):
            together.wait(DEADLINE)
            if ask(graph, f"{name}-{number}", durability):
                taken.append(f"{name}-{number}")
        told.put(taken)


def working(saver: Any, journal: Path) -> Any:
    """One node, two at once, and one more. Each writes down that it was run."""

    def node(name: str) -> Any:
        def work(state: State) -> dict[str, Any]:
            with journal.open("a") as file:
                file.write(f"{name}\n")
            seen = sorted(str(message.id) for message in state["messages"])
            return {"messages": [AIMessage(f"{name} after {seen}", id=name)]}

        return work

    graph = StateGraph(State)
    for name in ("first", "left", "right", "last"):
        graph.add_node(name, node(name))
    graph.add_edge(START, "first")
    graph.add_edge("first", "left")
    graph.add_edge("first", "right")
    graph.add_edge(["left", "right"], "last")
    return graph.compile(checkpointer=saver)


def start_work(graph: Any, *, is_async: bool) -> Any:
    """Begin, or go on where it stopped."""
    given = None if graph.get_state(CONFIG).created_at else {"messages": [HumanMessage("go", id="input")]}
    if is_async:
        return asyncio.run(graph.ainvoke(given, CONFIG, durability="sync"))
    return graph.invoke(given, CONFIG, durability="sync")


def work_until(url: str, namespace: str, journal: Path, commit: int, is_async: bool) -> None:
    """Work until the store is asked for this commit, which kills the process before it is done."""
    with holdfast.open(url, namespace=namespace, durability="full") as handle:
        die_at(handle, commit)
        start_work(working(HoldfastSaver(handle), journal), is_async=is_async)


def die_at(handle: Holdfast, commit: int) -> None:
    store: Any = handle.context.store
    commit_really = store.commit
    counting = threading.Lock()
    counted = 0

    def commit_or_die(*args: Any, **options: Any) -> Any:
        nonlocal counted
        with counting:
            counted += 1
            if counted == commit:
                os.kill(os.getpid(), signal.SIGKILL)
        return commit_really(*args, **options)

    store.commit = commit_or_die
