"""Tools of a graph that can still act: they are not called again, and the graph waits or asks."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from msgspec.structs import replace

import holdfast
from holdfast import Conflict, Happened, NotDone
from holdfast.adapters.langgraph.journaled_calls import runs_in_thread
from holdfast.adapters.langgraph.tool_journal import ToolJournal, Unsettled
from holdfast.adapters.seam_modes import AWAITING, BLOCKING, finished
from holdfast.runs.tools import tool_of
from tests.waiting import DEADLINE, until


class Bank:
    def __init__(self) -> None:
        self.requests: list[str] = []
        self.paid: list[str] = []
        self.probes: list[float] = []
        self.go_on = threading.Event()

    def slow(self, what: str) -> str:
        self.requests.append(what)
        assert self.go_on.wait(DEADLINE)
        self.paid.append(what)
        return "paid"

    def fail(self, what: str) -> str:
        self.requests.append(what)
        raise TimeoutError("read timed out")

    def was_paid(self, what: str) -> Happened | NotDone:
        self.probes.append(time.monotonic())
        return Happened("found") if what in self.paid else NotDone()


def call(hf: holdfast.Holdfast, function: Any, *, is_async: bool, **declared: Any) -> Any:
    """Call a tool as a process does that runs the graph."""
    journal = ToolJournal(hf.context, "t", 30.0)
    pay = tool_of(holdfast.tool(name="pay", **declared)(function))
    call = journal.call(AWAITING if is_async else BLOCKING, pay, {"what": "rent"}, "k", 0.0)
    return asyncio.run(call) if is_async else finished(call)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_still_runs_is_not_called_again(tmp_path: Path, is_async: bool) -> None:
    bank = Bank()
    with holdfast.open(tmp_path / "agent.db") as hf, holdfast.open(tmp_path / "agent.db") as another:
        numbers: list[int] = []
        for each in (hf, another):
            with pytest.raises(Unsettled) as asked:
                call(each, bank.slow, is_async=is_async, probe=bank.was_paid, timeout=0.05)
            numbers.append(asked.value.number)
        with pytest.raises(Conflict, match="still running its function"):
            another.settle(next(iter(hf.threads())).name, numbers[-1], NotDone())
        bank.go_on.set()
        name = next(iter(hf.threads())).name
        until(lambda: hf.effects(name)[0].status == "done")
        assert call(another, bank.slow, is_async=is_async, probe=bank.was_paid, timeout=0.05) == "paid"
    assert bank.requests == ["rent"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_waits_until_not_done_counts(tmp_path: Path, is_async: bool) -> None:
    bank = Bank()
    with holdfast.open(tmp_path / "agent.db") as hf:
        with pytest.raises(TimeoutError):
            call(hf, bank.fail, is_async=is_async, probe=bank.was_paid, probe_after=0.5)
        assert len(bank.probes) == 2
        assert bank.probes[1] - bank.probes[0] >= 0.9
        assert bank.requests == ["rent"]


def test_a_sync_tool_in_an_async_graph_is_not_stopped_by_its_timeout(tmp_path: Path) -> None:
    """LangChain calls it in a thread, which the cancelled coroutine leaves running."""
    bank = Bank()

    async def slow(what: str) -> str:
        return await asyncio.to_thread(bank.slow, what)

    declared = tool_of(holdfast.tool(name="pay", probe=bank.was_paid, timeout=0.05)(slow))
    with holdfast.open(tmp_path / "agent.db") as hf:

        async def twice() -> None:
            journal = ToolJournal(hf.context, "t", 30.0)
            for _ in range(2):
                with pytest.raises(Unsettled):
                    await journal.call(AWAITING, replace(declared, in_thread=True), {"what": "rent"}, "k", 0.0)
                await asyncio.sleep(1.7)  # longer than the timeout and its margin
            bank.go_on.set()

        asyncio.run(twice())
    assert bank.requests == ["rent"]


def test_which_tools_run_in_a_thread() -> None:
    def act() -> None:
        """Act."""

    async def aact() -> None:
        """Act."""

    class Plain(BaseTool):
        name: str = "plain"
        description: str = "Act."

        def _run(self) -> None: ...

    class Async(Plain):
        async def _arun(self) -> None: ...

    assert [runs_in_thread(each) for each in (tool(act), tool(aact), Plain(), Async())] == [True, False, True, False]
