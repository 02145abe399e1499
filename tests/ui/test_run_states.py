"""What the page tells about a run in each of its states, and what it offers there."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, Run
from tests.ui import scene
from tests.ui.conftest import Page
from tests.ui.test_pages import text_of
from tests.ui.test_tour import JOB, clerk, posted


def fails(run: Run) -> None:
    raise ConnectionError("the supplier did not answer")


def of_thread(hf: Holdfast, name: str) -> str:
    return text_of(Page(hf, allow_write=True).get("/thread", name=name).text)


def test_a_queued_run_says_who_takes_it() -> None:
    with holdfast.open("memory:") as hf:
        hf.submit("clerk", "job", start={})
        shown = of_thread(hf, "job")
    assert "Queued Any worker with the handler clerk takes it." in shown
    assert "holdfast worker APP" in shown
    assert "runs again" not in shown, "nothing ran yet"


def test_a_run_that_will_be_tried_again_says_why_and_when(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off") as hf:
        hf.submit("clerk", "job", start={})
        worker = hf.worker({"clerk": fails})
        worker.run(until_idle=True)
        shown = of_thread(hf, "job")
        assert '<p class="bad">ConnectionError' in Page(hf).get("/thread", name="job").text
        assert "the supplier did not answer" in text_of(Page(hf).get("/threads").text)
        assert "the supplier did not answer" in text_of(Page(hf).get("/workers").text)
    assert "Queued Any worker with the handler clerk takes it" in shown
    assert "attempt 1 failed" in shown


def test_a_run_that_waits_for_a_time_says_until_when() -> None:
    with holdfast.open("memory:") as hf:
        with hf.run("nap", start={}) as run:
            for _ in run.steps():
                run.sleep(7200)
        shown = of_thread(hf, "nap")
    assert "Waiting It continues at 20" in shown
    assert "open step run.sleep sleeps" in shown
    assert "holdfast resume" not in shown, "it would only wait"


def test_calls_outside_of_steps_are_in_the_plan_and_the_open_step_runs_again() -> None:
    with holdfast.open("memory:") as hf:
        with suppress(ConnectionError), hf.run("r", start={}, policy=holdfast.EveryN(1)) as run:
            run.model(lambda: "a plan")
            for step in run.steps():
                if step == 2:
                    raise ConnectionError
        shown = of_thread(hf, "r")
    assert "What a resume would do with 1 call" in shown
    assert "replayed made outside of steps, for the whole turn: its result is recorded" in shown
    assert "No calls were recorded after that checkpoint, so the whole step runs again." in shown


def test_a_run_that_is_held_says_by_whom_once() -> None:
    shown = ""
    with holdfast.open("memory:") as hf, hf.run("job", start={}) as run:
        for _ in run.steps():
            run.model(scene.ask_model)
            shown = of_thread(hf, "job")
            run.finish()
            break
    assert shown.count("held by process") == 1
    assert "Running held by process" in shown


@pytest.mark.parametrize("path", ["/", f"/thread?name={JOB}"])
def test_a_resume_is_not_offered_while_a_decision_is_missing(path: str) -> None:
    posted.clear()
    with holdfast.open("memory:") as hf:
        hf.submit("clerk", JOB, start={"messages": [], "text": "Dear Ann"})
        hf.worker({"clerk": clerk}).run(until_idle=True)
        shown = text_of(Page(hf, allow_write=True).get(path).text)
    assert "Did it happen?" in shown
    assert "holdfast resume" not in shown
    assert "hf.settle" not in shown, "the buttons are there"
    if path != "/":
        assert "open step post_letter in doubt" in shown


def test_the_status_of_a_save_is_not_taken_for_that_of_the_run() -> None:
    with holdfast.open("memory:") as hf:
        hf.submit("clerk", "job", start={})
        assert 'class="chip queued"' not in Page(hf).get("/thread", name="job").text.partition("<h2>Step")[2]


def test_agents_are_offered_where_threads_are_filtered(memory: Holdfast) -> None:
    found = Page(memory).get("/threads").text.partition("<datalist")[2].partition("</datalist>")[0]
    assert [each for each in ("buyer", "clerk", "writer") if f'value="{each}"' in found] == ["buyer", "clerk", "writer"]


def test_a_run_that_no_worker_takes_has_its_command_in_the_inbox(
    memory: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.submit("clerk", "job", start={})
    monkeypatch.setattr("time.time", lambda now=time.time: now() + 400)  # it is stuck after 300 seconds
    found = Page(memory).get("/").text.partition("No progress")[2]
    assert "no worker claims it" in text_of(found)
    assert "holdfast resume APP job" in text_of(found)
