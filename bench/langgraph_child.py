"""One measurement of one saver in a separate process. Takes a case as JSON and prints the results as JSON.

Every turn is one invoke with the saver and one of the same graph without it, with the same messages. The difference is
the time of the saver.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from langchain_core.messages import HumanMessage

from bench.langgraph_cases import Case, Crowd, CrowdFound, Found
from bench.langgraph_graphs import Turn, conversation, graph
from bench.langgraph_savers import Place, opened, size, size_at_rest, works_in_a_loop

LISTED = 20
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "thread"}}
# As LangGraph itself does: without a namespace, SqliteSaver sorts every state that the thread ever had.
ROOT: dict[str, Any] = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
NOBODY: dict[str, Any] = {"configurable": {"thread_id": "nobody", "checkpoint_ns": ""}}


class Calls:
    """Calls of a graph and its saver, with one interface for sync and async."""

    def __init__(self, runner: asyncio.Runner, *, in_loop: bool) -> None:
        self._runner = runner
        self._in_loop = in_loop

    def invoke(self, compiled: Any, given: dict[str, Any], config: dict[str, Any] | None = None) -> dict[str, Any]:
        options = {} if config is None else {"durability": "sync"}
        done: dict[str, Any] = (
            self._runner.run(compiled.ainvoke(given, config, **options))
            if self._in_loop
            else compiled.invoke(given, config, **options)
        )
        return done

    def state(self, compiled: Any) -> Any:
        return self._runner.run(compiled.aget_state(CONFIG)) if self._in_loop else compiled.get_state(CONFIG)

    def listed(self, compiled: Any) -> list[Any]:
        saver = compiled.checkpointer
        return self._all(saver.alist if self._in_loop else saver.list, ROOT, limit=LISTED)

    def history(self, compiled: Any) -> list[Any]:
        return self._all(compiled.aget_state_history if self._in_loop else compiled.get_state_history, CONFIG)

    def touch(self, compiled: Any) -> None:
        """Make a newly opened saver connect and read its tables, without reading the thread."""
        saver = compiled.checkpointer
        _ = self._runner.run(saver.aget_tuple(NOBODY)) if self._in_loop else saver.get_tuple(NOBODY)

    def _all(self, call: Callable[..., Any], *given: Any, **options: Any) -> list[Any]:
        if not self._in_loop:
            return list(call(*given, **options))

        async def drained() -> list[Any]:
            return [one async for one in call(*given, **options)]

        return self._runner.run(drained())


def measure(case: Case) -> Found:
    """Measure a conversation in one thread, then reads of it."""
    place = Place(Path(case.folder), case.url)
    in_loop = works_in_a_loop(case.side)
    turns = conversation(case.turns)
    with asyncio.Runner() as runner:
        calls = Calls(runner, in_loop=in_loop)
        bare = graph(case.graph, turns, None, in_loop=in_loop) if case.bare else None
        with opened(case.side, place, runner) as saver:
            compiled = graph(case.graph, turns, saver, in_loop=in_loop)
            found = _converse(case, calls, place, turns, compiled, bare)
            for _ in range(case.reads):
                found.state.append(_milliseconds(calls.state, compiled))
                found.listed.append(_milliseconds(calls.listed, compiled))
            if case.side == "memory":
                found.size = size(case.side, place, saver)
                _read_again(case, calls, compiled, found)
                return found
        for number in range(case.fresh):
            # A new saver each time, so that nothing is cached.
            for times, call in ((found.fresh_state, calls.state), (found.fresh_listed, calls.listed)):
                with opened(case.side, place, runner) as saver:
                    compiled = graph(case.graph, turns, saver, in_loop=in_loop)
                    calls.touch(compiled)
                    times.append(_milliseconds(call, compiled))
            if not number:
                with opened(case.side, place, runner) as saver:
                    _read_again(case, calls, graph(case.graph, turns, saver, in_loop=in_loop), found)
    found.size = size_at_rest(case.side, place)
    return found


def _converse(case: Case, calls: Calls, place: Place, turns: list[Turn], compiled: Any, bare: Any) -> Found:
    found = Found(case.side, case.graph, case.turns)
    messages: list[Any] = []
    for number, turn in enumerate(turns, 1):
        asked = HumanMessage(turn.asked)
        begin = time.perf_counter()
        messages = calls.invoke(compiled, {"messages": [asked]}, CONFIG)["messages"]
        found.invokes.append((time.perf_counter() - begin) * 1e3)
        if bare is not None:
            given = {"messages": messages[:-1]}
            found.bare.append(_milliseconds(calls.invoke, bare, given))
        if number in case.samples:
            found.sizes.append((number, size(case.side, place, compiled.checkpointer)))
    state = calls.state(compiled)
    assert [message.text for message in state.values["messages"]] == [message.text for message in messages]
    assert len(messages) >= 2 * case.turns, "a message is missing"
    found.supersteps = (state.metadata["step"] + 2) / case.turns  # the first step is -1
    return found


def _read_again(case: Case, calls: Calls, compiled: Any, found: Found) -> None:
    """Read the whole history, once, because it takes long."""
    if not case.history:
        return
    calls.touch(compiled)
    begin = time.perf_counter()
    count = len(calls.history(compiled))
    found.history = time.perf_counter() - begin
    assert count == round(found.supersteps * case.turns), "a checkpoint is missing"


def crowd(case: Crowd) -> CrowdFound:
    """Turns per second of many concurrent threads in one event loop, with one saver."""
    place = Place(Path(case.folder), case.url)
    told = [conversation(case.turns, seed) for seed in range(case.threads + 1)]
    with asyncio.Runner() as runner:
        if case.side == "bare":
            return CrowdFound(case.side, runner.run(_crowd(case, told, None)))
        with opened(case.side, place, runner) as saver:
            return CrowdFound(case.side, runner.run(_crowd(case, told, saver)))


async def _crowd(case: Crowd, told: list[list[Turn]], saver: Any) -> float:
    async def talk(number: int) -> None:
        turns = told[number]
        compiled = graph("plain", turns, saver, in_loop=True)
        config = {"configurable": {"thread_id": f"thread-{number}"}}
        messages: list[Any] = []
        for turn in turns:
            asked = [HumanMessage(turn.asked)]
            if saver is None:
                messages = (await compiled.ainvoke({"messages": messages + asked}))["messages"]
            else:
                messages = (await compiled.ainvoke({"messages": asked}, config, durability="sync"))["messages"]
        assert len(messages) == 2 * len(turns), "a message is missing"

    await talk(case.threads)  # a warm-up: it loads code and opens connections
    begin = time.perf_counter()
    await asyncio.gather(*(talk(number) for number in range(case.threads)))
    return case.threads * case.turns / (time.perf_counter() - begin)


def _milliseconds(call: Callable[..., Any], *given: Any) -> float:
    begin = time.perf_counter()
    result = call(*given)
    seconds = time.perf_counter() - begin
    del result
    return seconds * 1e3


def main(kind: str, case: str) -> None:
    found = measure(msgspec.json.decode(case, type=Case)) if kind == "turns" else None
    print(msgspec.json.encode(found or crowd(msgspec.json.decode(case, type=Crowd))).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
