"""fork() inside a run's block: only the process that claimed the run may act and write under its fence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, LeaseLost, Run
from tests.runs.conftest import World


def in_child(work: Callable[[], None]) -> int:
    """Run a function in a forked child and return its exit code."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def note(book: Path, what: str) -> str:
    with book.open("a") as file:
        file.write(f"{what}\n")
    return what


VERBS: dict[str, Callable[[Run], Any]] = {
    "tool": lambda run: run.tool("note", {"what": "child"}, key="k"),
    "read": lambda run: run.tool("look", {}, key="r"),
    "model": lambda run: run.model(lambda: "reply"),
    "save": lambda run: run.save(),
    "finish": lambda run: run.finish("by the child"),
    "halt": lambda run: run.halt("by the child"),
    "wait": lambda run: run.wait("question"),
    "sleep": lambda run: run.sleep(60),
    "child": lambda run: run.child("c", start={}).__enter__(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_forked_child_is_refused(world: World, tmp_path: Path, verb: str) -> None:
    book = tmp_path / "book"
    tools: list[Callable[..., Any]] = [
        holdfast.tool(name="note")(lambda what: note(book, what)),
        holdfast.tool(effect="read", name="look")(lambda: note(book, "look")),
    ]
    hf = world.open(*tools)

    def work() -> None:
        with pytest.raises(LeaseLost, match="forked"):
            VERBS[verb](run)

    with world.running("t", hf, start={}) as run:
        assert in_child(work) == 0
        assert run.tool("note", {"what": "parent"}, key="k") == "parent"
        run.save()
    assert book.read_text() == "parent\n"
    assert [(effect.name, effect.status) for effect in hf.effects("t")] == [("note", "done")]


def test_a_fork_inside_a_tool_records_one_result(world: World, tmp_path: Path) -> None:
    book = tmp_path / "book"

    def pay() -> str:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            return note(book, "parent")
        return "child"

    parent = os.getpid()
    hf = world.open()
    try:
        with world.running("t", hf, start={}) as run:
            assert run.tool(pay, {}, key="k") == "parent"
    except BaseException as error:
        if os.getpid() != parent:
            os._exit(0 if isinstance(error, LeaseLost) else 1)
        raise
    if os.getpid() != parent:
        os._exit(2)
    assert [effect.result for effect in hf.effects("t") if effect.status == "done"] == ["parent"]


def test_a_child_that_leaves_the_block_releases_nothing(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}) as run:
        block = _left_in_child(run)
        assert block == 0
        info = hf.run_info("t")
        assert info is not None
        assert info.status == "running"
        run.save()


def _left_in_child(run: Run) -> int:
    def work() -> None:
        with pytest.raises(LeaseLost):
            run.core.leave(None)

    return in_child(work)


def test_a_child_may_have_runs_of_its_own(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db") as hf, hf.run("t", start={}) as run:

        def work() -> None:
            with Holdfast.run(hf, "u", start={}) as own:
                own.finish("child")

        assert in_child(work) == 0
        run.finish("parent")
        info = hf.run_info("u")
        assert info is not None
        assert info.status == "completed"
