"""`holdfast worker` as a process: it does what was submitted, drains, dies, and is replaced."""

from __future__ import annotations

import re
import signal

import pytest

from tests.cli.conftest import Command, Folder

STEPPER = """
import asyncio
import time
from pathlib import Path

def stepper(run):
    for step in run.steps():
        run.tool(dict, {})
        run.state["n"] = step
        Path("step").write_text(str(step))
        time.sleep(0.01)

def stuck(run):
    for step in run.steps():
        Path("step").write_text(str(step))
        time.sleep(60)

async def later(run):
    async for step in run.steps():
        await run.tool(dict, {})
        run.state["n"] = step
        Path("step").write_text(str(step))
        await asyncio.sleep(0.01)

handlers = {"stepper": stepper, "stuck": stuck, "later": later}
"""

SHOPPER = """
import holdfast

@holdfast.tool(effect="read")
def price(item):
    return {"ink": 11}[item]

def shopper(run):
    for _ in run.steps():
        return run.tool("price", {"item": run.state["item"]})

class Agents:
    @staticmethod
    def handlers():
        return {"shopper": shopper}

tools = (price,)
"""

PAYER = """
import time
from pathlib import Path
import holdfast

def record(line):
    with open("ledger", "a") as ledger:
        ledger.write(line + "\\n")

def was_posted(letter):
    return holdfast.Happened("found in the ledger") if letter in Path("ledger").read_text() else holdfast.NotDone()

@holdfast.tool(effect="irreversible")
def pay(amount):
    record(f"paid {amount}")
    return "paid"

@holdfast.tool(effect="irreversible", probe=was_posted)
def post(letter):
    record(letter)
    time.sleep(60)

def payer(run):
    for _ in run.steps():
        return [run.tool(pay, {"amount": 7}), run.tool(post, {"letter": "Dear Sir"})]

async def async_payer(run):
    async for _ in run.steps():
        return [await run.tool(pay, {"amount": 7}), await run.tool(post, {"letter": "Dear Sir"})]

handlers = {"payer": payer, "async": async_payer}
"""

GUARDED = """
import holdfast

seen = []

@holdfast.handler(guards=[holdfast.Budget(steps=2)])
def shopper(run):
    for step in run.steps():
        run.model(str, step)

@holdfast.handler(guards=[holdfast.Budget(steps=2)])
async def later(run):
    async for step in run.steps():
        await run.model(str, step)

def app(hf):
    @hf.migration(1, 2)
    def older(state):
        return state
    return {"shopper": shopper, "later": later}
"""


def start(folder: Folder, app: str, *options: str) -> Command:
    return folder.start("worker", app, "--store", str(folder.store), *options)


def in_a_step(folder: Folder, step: int) -> bool:
    file = folder.path / "step"
    return file.exists() and int(file.read_text() or 0) >= step


def test_what_was_submitted_is_completed(folder: Folder) -> None:
    folder.write("shop.py", SHOPPER)
    with folder.open() as hf:
        hf.submit("shopper", "t", start={"item": "ink"})
        worker = start(folder, "shop:Agents.handlers", "--tools", "shop:tools", "--until-idle")
        assert worker.end() == 0, worker.err
        assert hf.result("t") == 11
    assert worker.out == ""
    where = f"store {folder.store}, namespace default"
    assert worker.err.splitlines() == [
        f"holdfast worker: serving shopper from shop:Agents.handlers, 1 at a time; {where}",
        "holdfast worker: no runs left",
    ]


def test_the_store_may_come_from_the_environment_and_the_namespace_from_an_option(folder: Folder) -> None:
    folder.write("shop.py", SHOPPER)
    options = ("--namespace", "other", "--until-idle")
    code, _, err = folder.run("worker", "shop:Agents.handlers", *options, HOLDFAST_STORE="here.db")
    assert (code, (folder.path / "here.db").exists()) == (0, True)
    assert "store here.db, namespace other (empty)" in err


def test_only_the_versions_that_were_asked_for_are_taken(folder: Folder) -> None:
    folder.write("app.py", "handlers = {'h': lambda run: 'done'}")
    with folder.open() as hf:
        for version in ("1", "2", None):
            hf.submit("h", f"of {version}", start={}, version=version)
        worker = start(folder, "app:handlers", "--version", "2", "--version", "", "--until-idle")
        assert worker.end() == 0
        assert 'serving h from app:handlers of version 2 or "",' in worker.err
        statuses = {info.name: info.status for info in hf.threads()}
    assert (statuses["of 2"], statuses["of None"]) == ("completed", "completed")
    assert statuses["of 1"] != "completed"


@pytest.mark.parametrize("handler", ["stepper", "later"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_drains(folder: Folder, number: signal.Signals, code: int, handler: str) -> None:
    folder.write("app.py", STEPPER)
    with folder.open() as hf:
        hf.submit(handler, "t", start={"n": 0})
        worker = start(folder, "app:handlers")
        worker.wait_until(lambda: in_a_step(folder, 3))
        worker.send(number)
        assert worker.end() == code, worker.err
        assert worker.err.splitlines()[-1] == "holdfast worker: stopped; all runs are released"
        assert "Traceback" not in worker.err
        done = int((folder.path / "step").read_text())
        with hf.run("t", start={"n": 0}) as run:
            assert (run.state, run.step) == ({"n": done}, done + 1)


def test_the_second_interrupt_does_not_wait_for_the_step(folder: Folder) -> None:
    folder.write("app.py", STEPPER)
    with folder.open() as hf:
        hf.submit("stuck", "t", start={})
        worker = start(folder, "app:handlers")
        worker.wait_until(lambda: in_a_step(folder, 1))
        worker.send(signal.SIGINT)
        worker.wait_until(lambda: "press Ctrl-C again to stop at once" in worker.err)
        worker.send(signal.SIGINT)
        assert worker.end() == 130
        assert [found.thread for found in hf.interrupted()] == ["t"]


@pytest.mark.parametrize("handler", ["payer", "async"])
def test_after_a_kill_another_worker_finishes_and_repeats_nothing(folder: Folder, handler: str) -> None:
    folder.write("app.py", PAYER)
    ledger = folder.path / "ledger"
    with folder.open() as hf:
        hf.submit(handler, "t", start={})
        first = start(folder, "app:handlers")
        first.wait_until(lambda: ledger.exists() and "Dear Sir\n" in ledger.read_text())
        first.send(signal.SIGKILL)
        assert first.end() == -signal.SIGKILL
        second = start(folder, "app:handlers", "--until-idle")
        assert second.end() == 0, second.err
        assert hf.result("t") == ["paid", "found in the ledger"]
    assert ledger.read_text() == "paid 7\nDear Sir\n"


@pytest.mark.parametrize("handler", ["shopper", "later"])
def test_an_application_declares_its_guards_and_gets_the_handle(folder: Folder, handler: str) -> None:
    folder.write("app.py", GUARDED)
    with folder.open() as hf:
        hf.submit(handler, "t", start={})
        worker = start(folder, "app:app", "--until-idle")
        assert worker.end() == 0, worker.err
        assert "serving shopper, later from app:app" in worker.err
        assert [(info.name, info.status) for info in hf.threads()] == [("t", "halted")]
        assert [effect.step for effect in hf.effects("t")] == [1, 2]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_failure_is_told_without_what_was_worked_on(folder: Folder, kind: str) -> None:
    folder.write("app.py", f"{kind} h(run):\n    int(run.state['card'])\n\nhandlers = {{'h': h}}\n")
    with folder.open() as hf:
        hf.submit("h", "t", start={"card": "4111-1111"})
    worker = start(folder, "app:handlers", "--until-idle")
    assert worker.end() == 0
    [line] = [line for line in worker.err.splitlines() if "failed" in line]
    assert re.fullmatch(
        r"holdfast worker: h failed on thread 't' \(attempt 1 of 5; it will be retried\): "
        r"ValueError in .*app\.py, line 2; --traceback shows its message",
        line,
    )
    assert "4111" not in worker.err


def test_a_failure_is_told_in_full_to_whoever_asks(folder: Folder) -> None:
    folder.write("app.py", "def h(run):\n    int(run.state['card'])\n\nhandlers = {'h': h}\n")
    with folder.open() as hf:
        hf.submit("h", "t", start={"card": "4111-1111"})
    worker = start(folder, "app:handlers", "--until-idle", "--traceback", "--attempts", "1")
    assert worker.end() == 0
    assert "ValueError: invalid literal for int() with base 10: '4111-1111'\n" in worker.err
    assert "(attempt 1 of 1; the run is given up)" in worker.err


def test_a_tool_that_nobody_named_is_told(folder: Folder) -> None:
    folder.write("shop.py", SHOPPER)
    with folder.open() as hf:
        hf.submit("shopper", "t", start={"item": "ink"})
    worker = start(folder, "shop:Agents.handlers", "--until-idle")
    assert worker.end() == 0
    assert "NotFound: there is no tool 'price'; the registered tools are: none" in worker.err


DOUBTFUL = """
import sys
import holdfast

@holdfast.tool(effect="irreversible")
def pay(card):
    raise TimeoutError(f"no answer for {card}")

def payer(run):
    for _ in run.steps():
        run.tool(pay, {"card": "4111-1111"})

handlers = {"payer": payer}
"""


def test_a_call_in_doubt_is_reported_in_one_line_without_its_data(folder: Folder) -> None:
    folder.write("app.py", DOUBTFUL)
    with folder.open() as hf:
        hf.submit("payer", "t", start={})
    worker = start(folder, "app:handlers", "--until-idle")
    assert worker.end() == 0
    assert (
        "holdfast worker: pay raised an error, so call 1 is in doubt and the run waits: see `holdfast inbox`"
        in worker.err
    )
    assert "Traceback" not in worker.err
    assert "4111" not in worker.err
