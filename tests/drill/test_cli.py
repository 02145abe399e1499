"""`holdfast drill`, as a person gives it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.main import main
from tests.cli.conftest import Folder

ROOT = Path(__file__).resolve().parent.parent.parent.parent
AGENT = """
import holdfast
from holdfast.testing import Drill

@holdfast.tool(in_doubt="ask")
def post(letter):
    with open("box.txt", "a") as box:
        box.write(letter)
    return "posted"

def clerk(run):
    print("noise")
    for _ in run.steps():
        return run.tool("post", {"letter": run.state["letter"]})

def broken(run):
    return run.state["nothing"]

def polite(run):
    return run.wait("may I?")

def no_run():
    pass

async def sleepy(run):
    return "awake"

tools = [post]
handlers = {"clerk": clerk}
two = {"clerk": clerk, "broken": broken}
number = 7
drill = Drill(handler=clerk, start={"letter": "a"}, fakes=[post], watch=["box.txt"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path, around="tests.drill.short:kills_only")
    made.write("app.py", AGENT)
    made.write("wrong.py", "from holdfast.testing import Drill\n\ndrill = Drill(handler=7, start={})\n")
    yield made
    made.close()


def test_an_agent_that_passes(folder: Folder) -> None:
    code, out, err = folder.run("drill", "app:drill")
    assert (code, err) == (0, "")
    assert "after the call of post, step 1" in out
    assert "post: asked, had happened" in out
    assert "noise" not in out
    assert out.splitlines()[-1].startswith("clerk was killed at all 10 points and resumed: nothing lost")
    assert not (folder.path / "box.txt").exists(), "it worked in a folder of its own"


def test_the_seeded_bug_of_the_example_is_found(folder: Folder) -> None:
    code, out, err = folder.run("drill", "examples.leaky_agent:drill", PYTHONPATH=f"{ROOT}:{':'.join(sys.path)}")
    assert (code, err) == (1, "")
    assert "point 4, killed after the model call ask_model, step 1:\n  watch: bill.txt: 3 lines, 2 in the" in out
    assert "called again after this kill: the model function ask_model\n" in out
    assert re.match(r"agent was killed at all 16 points and resumed: \d+ FAILED", out.splitlines()[-1])


def test_a_handler_and_what_it_needs_from_the_command_line(folder: Folder) -> None:
    words = ["--start", '{"letter": "b"}', "--fakes", "app:tools", "--watch", "box.txt", "--points", "2", "--json"]
    code, out, err = folder.run("drill", "app:handlers", *words)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["passed"] is True
    assert report["points"] == 10
    assert [kill["number"] for kill in report["kills"]] == [1, 10]


def test_an_async_handler(folder: Folder) -> None:
    code, out, _ = folder.run("drill", "app:sleepy", "--start", "{}", "--points", "1")
    assert code == 0, out


def test_answers_from_the_command_line(folder: Folder) -> None:
    words = ["--start", "{}", "--answers", '{"may I?": true}', "--points", "1"]
    code, out, err = folder.run("drill", "app:polite", *words)
    assert (code, err) == (0, ""), out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("app:nothing",), 2, "module 'app' has no attribute 'nothing'"),
        (("nowhere:drill",), 2, "no module 'nowhere'"),
        (("wrong:drill",), 2, "wrong:drill: a drill needs a handler: a function that takes a run (in "),
        (("app:number",), 2, "app:number is of type int; it must be a holdfast.testing.Drill or a handler"),
        (("app:two",), 2, "app:two has the handlers clerk, broken; name one of them, as module:function"),
        (("app:clerk",), 2, "app:clerk is a handler, so the start state is missing; pass --start"),
        (("app:clerk", "--start", "{"), 2, "--start is not JSON (line 1, column 2)"),
        (("app:clark",), 2, "module 'app' has no attribute 'clark'; did you mean 'clerk'?"),
        (("app:no_run", "--start", "{}"), 2, "no_run takes (), but a handler is called with one argument, the run"),
        (("app:polite", "--start", "{}"), 2, "the run waits for an answer to 'may I?'; pass one: answers="),
        (("app:polite", "--start", "{}", "--answers", "[]"), 2, "--answers is not a JSON object"),
        (("app:drill", "--points", "0"), 2, "--points: '0' is not a whole number, 1 or more"),
        (("app:drill", "--timeout", "soon"), 2, "--timeout: 'soon' is not a number of seconds"),
        (
            ("app:clerk", "--start", '{"letter": "c"}', "--tools", "app:tools"),
            2,
            "post was not called: it is the agent's own tool",
        ),
    ],
)
def test_what_cannot_be_done(
    folder: Folder,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(folder.path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "app", raising=False)
    assert main(["drill", *words]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"holdfast drill: {says}"), err


def test_a_handler_that_fails_undisturbed(folder: Folder) -> None:
    code, out, err = folder.run("drill", "app:broken", "--start", "{}")
    assert (code, out) == (1, "")
    assert err.startswith("holdfast drill: broken failed in an undisturbed run:\nTraceback")
    assert err.endswith("KeyError: 'nothing'\n")


def test_the_drill_needs_no_pytest(folder: Folder) -> None:
    folder.write("pytest.py", "raise ImportError('there is no pytest here')")
    # Not in the context manager of the others, which imports pytest.
    code, _, err = Folder(folder.path).run("drill", "app:drill", "--points", "1")
    assert (code, err) == (0, "")
