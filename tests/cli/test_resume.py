"""`holdfast resume` goes on with one run, as a worker would, and ends with a code that says how that went."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.cli.terminal import Exit
from holdfast.threads.scan import thread_named
from tests.cli.given import Said, asking, in_doubt, opened, said, store

__all__ = ["said", "store"]  # fixtures

APP = """
import holdfast

calls = []


@holdfast.tool(effect="irreversible", name="pay")
def pay(amount):
    calls.append(amount)
    return {"paid": amount}


def shop(run):
    for _ in run.steps():
        run.finish(run.tool("pay", {"amount": 3}))


def ask(run):
    for _ in run.steps():
        run.finish(run.wait("ok?"))


def fail(run):
    raise ValueError("the content of a message")


async def later(run):
    async for _ in run.steps():
        return await run.model(lambda: "done later")


def adder(run):
    for step in run.steps():
        run.state["n"] += run.model(lambda: 1)
        if step == 3:
            return run.state["n"]


one = {"shop": shop}
all = {"shop": shop, "ask": ask, "fail": fail, "later": later, "adder": adder}
tools = [pay]
"""

_numbers = itertools.count()


@pytest.fixture
def app(store: Path) -> Iterator[str]:
    """The name of a module of this test alone: modules are imported once in a process."""
    name = f"app_of_steering_{next(_numbers)}"
    Path(f"{name}.py").write_text(APP)
    path = list(sys.path)
    yield name
    sys.path[:] = path
    sys.modules.pop(name, None)


def submit(path: Path, handler: str, thread: str = "t", **given: Any) -> None:
    with opened(path) as hf:
        hf.submit(handler, thread, start={"n": 0}, **given)


def run_of(hf: Holdfast, thread: str) -> Any:
    row = thread_named(hf.context.store, thread)
    return None if row is None else hf.context.store.run(row.position.thread)


def test_a_submitted_run_is_run_by_its_handler(store: Path, app: str, said: Said) -> None:
    submit(store, "adder", version="v3")
    assert said("resume", f"{app}:all", "t") == (Exit.OK, "'t' is completed: 3\n", "")
    told = {"thread": "t", "status": "completed", "attempt": 1, "result": 3, "waits_for": None}
    code, again = said.json("resume", f"{app}:all", "t")
    assert (code, {**again, "attempt": 1}) == (Exit.OK, told)


def test_others_are_left_alone(store: Path, app: str, said: Said) -> None:
    submit(store, "adder")
    submit(store, "adder", "other")
    assert said("resume", f"{app}:all", "t")[0] == Exit.OK
    with opened(store) as hf:
        assert run_of(hf, "other").status == "queued"


def test_an_async_handler(store: Path, app: str, said: Said) -> None:
    submit(store, "later")
    code, told = said.json("resume", f"{app}:all", "t")
    assert (code, told["status"], told["result"]) == (Exit.OK, "completed", "done later")


def test_what_was_done_is_not_done_again(store: Path, app: str, said: Said) -> None:
    @holdfast.tool(effect="irreversible", name="pay")
    def pay(amount: int) -> Any:
        return {"paid": amount, "by": "the first process"}

    with opened(store, tools=[pay]) as hf, hf.run("t", start={"n": 0}) as run:
        for _ in run.steps():
            run.tool("pay", {"amount": 3})
            break
    code, told = said.json("resume", f"{app}:one", "t", "--tools", f"{app}:tools")
    assert (code, told["result"]["by"]) == (Exit.OK, "the first process")
    assert sys.modules[app].calls == []


def test_a_call_in_doubt_ends_with_5_until_it_is_settled(store: Path, app: str, said: Said) -> None:
    in_doubt(store)
    words = ("resume", f"{app}:one", "shop", "--tools", f"{app}:tools")
    code, out, _ = said(*words)
    assert code == Exit.IN_DOUBT
    assert out == "'shop' is waiting for 'pay': holdfast inbox shows what to do\n"
    code, told = said.json(*words)
    assert (code, told["waits_for"]) == (
        Exit.IN_DOUBT,
        {"name": "pay", "about": "in doubt", "effect": 1, "step": 1},
    )
    assert said("settle", "shop", "1", "--not-done")[0] == Exit.OK
    code, told = said.json(*words)
    assert (code, told["result"]) == (Exit.OK, {"paid": 3})
    assert sys.modules[app].calls == [3]


def test_a_question_is_told_and_is_no_failure(store: Path, app: str, said: Said) -> None:
    asking(store)
    words = ("resume", f"{app}:all", "asks", "--handler", "ask")
    code, out, _ = said(*words)
    assert (code, out) == (Exit.OK, "'asks' is waiting for 'ok?': holdfast inbox shows what to do\n")
    said("answer", "asks", "ok?", "7")
    code, told = said.json(*words)
    assert (code, told["status"], told["result"]) == (Exit.OK, "completed", 7)


def test_a_handler_that_raises_ends_with_1_and_shows_no_content(store: Path, app: str, said: Said) -> None:
    submit(store, "fail")
    code, out, err = said("resume", f"{app}:all", "t")
    assert (code, out) == (Exit.ERROR, "'t' is failed: holdfast inbox shows why\n")
    assert "ValueError in " in err
    assert "the content" not in err
    with opened(store) as hf:
        assert run_of(hf, "t").status == "failed"


def test_a_run_that_somebody_holds_ends_with_4(store: Path, app: str, said: Said) -> None:
    with opened(store) as hf, hf.run("t", start={"n": 0}):
        code, err = said.refused("resume", f"{app}:one", "t")
    assert code == Exit.CONFLICT
    assert "run" in err


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("all", "notes"), Exit.NOT_FOUND, "has no run"),
        (("all", "note"), Exit.NOT_FOUND, "did you mean 'notes'"),
        (("all", "asks"), Exit.USAGE, "--handler"),
        (("all", "t"), Exit.USAGE, "no handler 'addr'; did you mean 'adder'?"),
        (("all", "t", "--handler", "shop"), Exit.USAGE, "submitted for handler 'addr'"),
        (("al", "t"), Exit.USAGE, "did you mean 'all'?"),
    ],
)
def test_mistakes(words: tuple[str, ...], code: int, why: str, store: Path, app: str, said: Said) -> None:
    asking(store)
    submit(store, "addr")
    found, err = said.refused("resume", f"{app}:{words[0]}", *words[1:])
    assert found == code
    assert why in err


# -- forks -------------------------------------------------------------------------------------------------------------


def test_a_fork_is_run_by_the_handler_of_its_origin(store: Path, app: str, said: Said) -> None:
    submit(store, "adder")
    assert said("resume", f"{app}:all", "t")[0] == Exit.OK
    assert said("fork", "t@0", "second")[0] == Exit.OK
    code, told = said.json("resume", f"{app}:all", "second")
    assert (code, told["status"], told["result"]) == (Exit.OK, "completed", 3)
    assert said("diff", "t", "second") == (Exit.OK, "", "no differences\n")
    code, told = said.json("resume", f"{app}:all", "second")
    assert (code, told["status"]) == (Exit.OK, "completed")


def test_a_fork_asks_before_it_acts_unless_told_otherwise(store: Path, app: str, said: Said) -> None:
    with opened(store) as hf:
        hf.thread("plan").save({"n": 0})
        for name in ("asks first", "acts", "only looks"):
            hf.thread("plan").fork(name)
    words = ("resume", f"{app}:one", "--tools", f"{app}:tools")
    code, out, _ = said(*words, "asks first")
    assert (code, sys.modules[app].calls) == (Exit.IN_DOUBT, [])
    assert out == "'asks first' is waiting for 'pay': holdfast inbox shows what to do\n"
    code, out, _ = said("inbox")
    assert out.startswith("asks first  approval  ")
    assert "needs approval before it is called" in out
    assert "    allow it:         holdfast settle 'asks first' 1 --allow\n" in out
    assert said("settle", "asks first", "1", "--allow", "--by", "ann")[0] == Exit.OK
    code, told = said.json(*words, "asks first")
    assert (code, told["result"], sys.modules[app].calls) == (Exit.OK, {"paid": 3}, [3])
    code, told = said.json(*words, "acts", "--effects", "live")
    assert (code, told["result"], sys.modules[app].calls) == (Exit.OK, {"paid": 3}, [3, 3])
    code, told = said.json(*words, "only looks", "--effects", "recorded")
    assert code == Exit.ERROR
    assert sys.modules[app].calls == [3, 3]


def test_a_call_in_doubt_is_not_allowed_but_settled(store: Path, said: Said) -> None:
    @holdfast.tool(effect="irreversible", name="pay")
    def pay() -> None:
        raise TimeoutError

    with holdfast.open(store, durability="off", tools=[pay]) as hf, hf.run("bill", start={}) as run:
        run.tool(pay)
    code, err = said.refused("settle", "bill", "1", "--allow")
    assert code == Exit.CONFLICT
    assert "call 1 of 'bill' is in doubt, and does not wait for permission; nothing was changed. Find out" in err
    code, err = said.refused("answer", "bill", "pay", "1")
    assert code == Exit.CONFLICT
    assert (
        "'pay' is a call in doubt, not a question; nothing was stored. `holdfast inbox` shows how to settle it.\n"
        in err
    )
    assert "has not asked 'other'" in said.refused("answer", "bill", "other", "1")[1]
    assert said("settle", "bill", "1", "--not-done")[0] == Exit.OK


def test_a_fork_of_a_dropped_thread_and_a_thread_that_is_no_fork(store: Path, app: str, said: Said) -> None:
    submit(store, "adder")
    with opened(store) as hf:
        hf.thread("t").fork("orphan")
        hf.cancel("t", "no more")
        hf.thread("t").drop()
    code, err = said.refused("resume", f"{app}:all", "orphan")
    assert (code, "pass --handler with one of" in err) == (Exit.USAGE, True)
    code, told = said.json("resume", f"{app}:all", "orphan", "--handler", "adder")
    assert (code, told["result"]) == (Exit.OK, 3)
    code, err = said.refused("resume", f"{app}:all", "notes")
    assert (code, "it is not a fork; nothing was changed. Fork it, and resume the fork." in err) == (
        Exit.NOT_FOUND,
        True,
    )
    assert said.refused("resume", f"{app}:all", "orphan", "--effects", "some")[0] == Exit.USAGE
