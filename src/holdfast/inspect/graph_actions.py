"""Actions on threads of LangGraph graphs: answer a question, resume, fork and rewind. They need LangGraph."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from holdfast.errors import Conflict, EffectsAhead, InvalidArgument, NotFound, NotInstalled
from holdfast.handle import Holdfast
from holdfast.inspect.call_records import effects_ahead
from holdfast.inspect.graphs import NOTE, GraphState, graph_state, thread_id_of
from holdfast.inspect.references import existing
from holdfast.text import quoted
from holdfast.types import Checkpoint

# ruff: noqa: PLC0415 - LangGraph is an extra


def runnable(found: Any, hf: Holdfast, named: str) -> Any:
    """The graph that `module:attribute` means, with a checkpointer on this store.

    It may be a compiled graph, a StateGraph, or a function that returns one, with the handle as its argument `hf` or
    without arguments.
    """
    saver = saver_on(hf)
    graph: Any = _called(found, hf) if inspect.isroutine(found) else found
    if hasattr(graph, "compile"):
        graph = graph.compile(checkpointer=saver)
    if not hasattr(graph, "ainvoke") or not hasattr(graph, "checkpointer"):
        raise InvalidArgument(f"{named} is of type {type(graph).__name__}; it must be a LangGraph graph")
    if not isinstance(graph.checkpointer, type(saver)):
        graph = graph.copy(update={"checkpointer": saver})
    return graph


def _called(factory: Callable[..., Any], hf: Holdfast) -> Any:
    return factory(hf) if "hf" in inspect.signature(factory).parameters else factory()


def saver_on(hf: Holdfast) -> Any:
    """A checkpointer on the store of a handle."""
    try:
        from holdfast.adapters.langgraph import HoldfastSaver
    except ModuleNotFoundError as error:
        raise NotInstalled('this needs LangGraph; nothing was done. Run pip install "holdfast[langgraph]".') from error
    return HoldfastSaver(hf)


def answer(graph: Any, hf: Holdfast, thread: str, name: str, value: Any) -> GraphState:
    """Answer an open question of a graph, and run it. `name` is the id of the question, or its node.

    NotFound if there is no such question, or it is not clear which one is meant.
    """
    from langgraph.types import Command

    question = asked(hf, thread, name)
    return _run(graph, hf, thread, Command(resume={question: value}))


def answer_later(graph: Any, hf: Holdfast, thread: str, name: str, value: Any) -> threading.Thread:
    """Answer a question of a graph, and run it in a Python thread, which is returned. The store has its results."""
    if graph is None:
        raise InvalidArgument(
            "a LangGraph thread is answered by running its graph; nothing was answered. Start the page with "
            "`holdfast ui --graph module:attribute`, or use `holdfast answer --graph`."
        )
    return _start(answer, graph, hf, thread, name, value)


def resume_later(graph: Any, hf: Holdfast, thread: str) -> threading.Thread:
    """Run the nodes of a graph that are left to run, in a Python thread, which is returned."""
    return _start(resume, graph, hf, thread)


def _start(action: Callable[..., GraphState], graph: Any, hf: Holdfast, *given: Any) -> threading.Thread:
    ready = runnable(graph, hf, "the graph")
    started = threading.Thread(target=action, args=(ready, hf, *given), daemon=True)
    started.start()
    return started


def asked(hf: Holdfast, thread: str, name: str) -> str:
    """The id of the open question that a name means: its id, or its node. NotFound if that is not clear."""
    questions = state_of_graph(hf, thread).questions
    meant = [each.id for each in questions if name in (each.id, each.node) and each.id is not None]
    if len(meant) == 1:
        return meant[0]
    known = ", ".join(f"{each.id} ({each.node})" for each in questions) or "none"
    which = "several open questions" if meant else "no open question"
    raise NotFound(f"thread {quoted(thread)} has {which} {quoted(name)}; nothing was answered. Open ones: {known}.")


def resume(graph: Any, hf: Holdfast, thread: str) -> GraphState:
    """Run the nodes of a graph that are left to run. Conflict if there are none, or an answer is missing."""
    open_nodes(hf, thread)
    return _run(graph, hf, thread, None)


def open_nodes(hf: Holdfast, thread: str) -> tuple[str, ...]:
    """The nodes that a resume would run. Conflict if there are none, or an answer is missing."""
    state = state_of_graph(hf, thread)
    if state.status in ("completed", "idle", "waiting"):
        why = "waits for an answer" if state.questions else "has no node left to run"
        raise Conflict(f"thread {quoted(thread)} {why}; nothing was run")
    return state.next


def _run(graph: Any, hf: Holdfast, thread: str, given: Any) -> GraphState:
    config: Any = {"configurable": {"thread_id": thread_id_of(thread)}}
    latest = graph.checkpointer.get_tuple(config)
    if latest is None or latest.checkpoint["id"] != checkpoint_id_of(hf.thread(thread).load("@-1")):
        raise InvalidArgument("the graph has its checkpoints in another store; nothing was run. Pass that as --store.")
    asyncio.run(graph.ainvoke(given, config, durability="sync"))
    graph.checkpointer.release()
    return state_of_graph(hf, thread)


def state_of_graph(hf: Holdfast, thread: str) -> GraphState:
    """Return the status of a graph's thread. NotFound if it is not one."""
    found = graph_state(hf.context.store, existing(hf, thread))
    if found is None:
        raise NotFound(f"thread {quoted(thread)} is not that of a LangGraph graph")
    return found


def checkpoint_id_of(checkpoint: Checkpoint) -> str:
    """The id that LangGraph knows a checkpoint by."""
    note = checkpoint.metadata.get(NOTE)
    if type(note) is not list or not note or note[0] is None:
        raise InvalidArgument(f"checkpoint {checkpoint.seq} is not one of a LangGraph graph; nothing was done")
    return str(note[0])


def fork(hf: Holdfast, checkpoint: Checkpoint, name: str) -> None:
    """Start a thread at a checkpoint of a graph, with its subgraphs and the results of its tools."""
    saver_on(hf).fork(thread_id_of(checkpoint.thread), thread_id_of(name), checkpoint_id_of(checkpoint))


def rewind(hf: Holdfast, checkpoint: Checkpoint, *, past_effects: bool) -> None:
    """Continue a graph from an earlier checkpoint, with its subgraphs as they were then.

    EffectsAhead if tools did something irreversible since, unless `past_effects`.
    """
    ahead = sorted({each.name for each in effects_ahead(hf, checkpoint.thread, checkpoint) if each.must_confirm})
    if ahead and not past_effects:
        raise EffectsAhead(
            f"thread {quoted(checkpoint.thread)}: {', '.join(ahead)} ran after that checkpoint, and a rewind does not "
            "undo it; nothing was changed. Pass past_effects=True (--past-effects)."
        )
    saver_on(hf).rewind(thread_id_of(checkpoint.thread), checkpoint_id_of(checkpoint))
