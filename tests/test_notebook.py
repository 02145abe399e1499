"""A notebook: cells with `await` at their top level, each a task on one loop that runs all the time, and interrupts."""

from __future__ import annotations

import ast
import asyncio
import inspect
import signal
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.waiting import DEADLINE


class Notebook:
    """What a kernel does with cells: compiles each, and runs it as a task of its loop, in the main thread."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._count = 0
        self._is_there = asyncio.Event()
        self.names: dict[str, Any] = {"asyncio": asyncio, "signal": signal, "path": folder / "agent.db", "calls": []}
        self.names["is_there"] = self._is_there

    def cell(self, source: str) -> None:
        """Execute a cell; what it raises is raised here."""
        self._loop.run_until_complete(self._executed(source))

    def interrupted(self, source: str, *, is_awaiting: bool = False) -> None:
        """Execute a cell that is interrupted: by a signal of its own, or while it awaits, once `is_there` is set."""
        with pytest.raises(asyncio.CancelledError if is_awaiting else KeyboardInterrupt):
            self._loop.run_until_complete(self._executed(source, is_cancelled=is_awaiting))

    async def _executed(self, source: str, *, is_cancelled: bool = False) -> None:
        self._count += 1
        code = compile(textwrap.dedent(source), f"<cell {self._count}>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

        async def execute() -> None:
            try:
                result = eval(code, self.names)  # noqa: S307 - what a kernel does with a cell
                if inspect.iscoroutine(result):
                    await result
            except KeyboardInterrupt as error:
                stopped.append(error)  # a kernel shows it; its loop goes on

        stopped: list[KeyboardInterrupt] = []
        task = asyncio.ensure_future(execute())
        if is_cancelled:
            await asyncio.wait_for(self._is_there.wait(), DEADLINE)
            task.cancel()
        await task
        if stopped:
            raise stopped[0]

    @property
    def hf(self) -> Holdfast:
        found = self.names["hf"]
        assert isinstance(found, Holdfast)
        return found

    def close(self) -> None:
        with suppress(KeyError):
            self.hf.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    made = Notebook(tmp_path)
    made.cell(
        """
        import holdfast

        hf = holdfast.open(path, durability="off")

        def ask(what):
            calls.append(what)
            return f"reply to {what}"

        async def ask_later(what):
            await asyncio.sleep(0)
            return ask(what)
        """
    )
    yield made
    made.close()
    signal.signal(signal.SIGINT, previous)


SYNC = """
    with hf.run("t", start={"replies": []}) as run:
        for step in run.steps():
            run.state["replies"].append(run.model(ask, step))
            if step == 2:
                run.finish(run.state["replies"])
"""

ASYNC = """
    async with hf.aio.run("t", start={"replies": []}) as run:
        async for step in run.steps():
            run.state["replies"].append(await run.model(ask_later, step))
            if step == 2:
                await run.finish(run.state["replies"])
"""


@pytest.mark.parametrize("source", [SYNC, ASYNC])
def test_a_cell_runs_an_agent_and_executed_again_gives_what_it_gave(notebook: Notebook, source: str) -> None:
    for _ in range(2):
        notebook.cell(source)
        assert notebook.names["run"].result == ["reply to 1", "reply to 2"]
    assert notebook.names["calls"] == [1, 2]


def test_sync_and_async_cells_share_a_handle(notebook: Notebook) -> None:
    notebook.cell("before = await hf.aio.thread('notes').save({'n': 1})")
    notebook.cell("hf.thread('notes').save({'n': 2})")
    notebook.cell("steps = [point.step async for point in hf.aio.thread('notes').history()]")
    notebook.cell(SYNC)
    notebook.cell("threads = [info.name async for info in hf.aio.threads()]; replies = await hf.aio.effects('t')")
    assert len(notebook.names["steps"]) == 2
    assert notebook.names["threads"] == ["notes", "t"]
    assert [effect.result for effect in notebook.names["replies"]] == ["reply to 1", "reply to 2"]


def test_a_sync_cell_that_is_interrupted_gives_its_run_back_and_goes_on_in_the_next(notebook: Notebook) -> None:
    source = """
        with hf.run("t", start={"replies": []}) as run:
            run.state["replies"].append(run.model(ask, "first"))
            run.state["replies"].append(run.model(second))
            run.finish(run.state["replies"])
    """
    notebook.cell(
        """
        def second():
            signal.raise_signal(signal.SIGINT)
        """
    )
    notebook.interrupted(source)
    assert [info.status for info in notebook.hf.threads()] == ["released"]
    notebook.cell("second = lambda: ask('second')")
    notebook.cell(source)
    assert notebook.names["run"].result == ["reply to first", "reply to second"]
    assert notebook.names["calls"] == ["first", "second"]


def test_an_async_cell_that_is_interrupted_gives_its_run_back_and_goes_on_in_the_next(notebook: Notebook) -> None:
    source = """
        async with hf.aio.run("t", start={"replies": []}) as run:
            run.state["replies"].append(await run.model(ask_later, "first"))
            run.state["replies"].append(await run.model(second))
            await run.finish(run.state["replies"])
    """
    notebook.cell(
        """
        async def second():
            is_there.set()
            await asyncio.Event().wait()
        """
    )
    notebook.interrupted(source, is_awaiting=True)
    assert [info.status for info in notebook.hf.threads()] == ["released"]
    notebook.cell("second = lambda: ask('second')")
    notebook.cell(source)
    assert notebook.names["run"].result == ["reply to first", "reply to second"]
    assert notebook.names["calls"] == ["first", "second"]


def test_an_async_cell_that_a_signal_interrupts_gives_its_run_back(notebook: Notebook) -> None:
    source = """
        async with hf.aio.run("t", start={}) as run:
            await run.model(ask_later, "first")
            hook()
            await run.finish(await run.model(ask_later, "second"))
    """
    notebook.cell("hook = lambda: signal.raise_signal(signal.SIGINT)")
    notebook.interrupted(source)
    assert [info.status for info in notebook.hf.threads()] == ["released"]
    notebook.cell("hook = lambda: None")
    notebook.cell(source)
    assert notebook.names["calls"] == ["first", "second"]
    assert notebook.names["run"].result == "reply to second"


def test_a_run_may_be_held_from_one_cell_to_another(notebook: Notebook) -> None:
    notebook.cell("from contextlib import AsyncExitStack; stack = AsyncExitStack()")
    notebook.cell("run = await stack.enter_async_context(hf.aio.run('t', start={'n': 0}))")
    notebook.cell("run.state['first'] = await run.model(ask_later, 'first')")
    notebook.cell("run.state['second'] = await run.model(ask_later, 'second')")
    notebook.cell("await run.save()")
    notebook.cell("await run.finish('done'); await stack.aclose()")
    latest = notebook.hf.thread("t").latest()
    assert latest is not None
    assert latest.state == {"n": 0, "first": "reply to first", "second": "reply to second"}


def test_a_worker_with_async_handlers_works_in_a_cell(notebook: Notebook) -> None:
    notebook.cell(
        """
        async def handler(run):
            return await run.model(ask_later, run.state)

        hf.submit("h", "t", start="it")
        hf.worker({"h": handler}).run(until_idle=True)
        with hf.run("t") as run:
            result = run.result
        """
    )
    assert notebook.names["result"] == "reply to it"
