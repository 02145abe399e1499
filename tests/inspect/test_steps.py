"""How long a checkpoint took: told by the one after it, where the same handle wrote both."""

from __future__ import annotations

import time

import pytest

import holdfast
from holdfast.inspect import seconds_to_write, stories, timeline
from holdfast.stores.contract import Commit, Position
from tests.runs.conftest import World


def test_the_next_checkpoint_tells_how_long_one_took(world: World) -> None:
    hf = world.open()
    thread = hf.thread("t")
    begin = time.perf_counter()
    first = thread.save({"n": 1})
    took = time.perf_counter() - begin
    second = thread.save({"n": 2})
    told = seconds_to_write(hf, first)
    assert told is not None
    assert 0 < told <= took + 0.001
    assert seconds_to_write(hf, second) is None, "nothing came after it"


def test_a_slow_store_makes_it_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open("memory:") as hf:
        store = hf.context.store
        commit = store.commit

        def slow(given: Commit) -> Position:
            end = time.monotonic() + 0.05
            while time.monotonic() < end:
                pass
            return commit(given)

        monkeypatch.setattr(store, "commit", slow)
        thread = hf.thread("t")
        first = thread.save({"n": 1})
        thread.save({"n": 2})
        told = seconds_to_write(hf, first)
        assert told is not None
        assert told >= 0.05


def test_nobody_tells_it_of_what_another_handle_wrote_or_a_rewind_left_behind() -> None:
    with holdfast.open("memory:") as hf:
        first = hf.thread("t").save({"n": 1})
        hf.thread("t").save({"n": 2})
        assert seconds_to_write(hf, first) is None
        thread = hf.thread("u")
        one, two = thread.save({"n": 1}), thread.save({"n": 2})
        thread.rewind(one)
        thread.save({"n": 3})
        assert seconds_to_write(hf, one) is not None
        assert seconds_to_write(hf, two) is None


def test_a_run_tells_it_too(world: World) -> None:
    hf = world.open()
    with hf.run("r", start={"n": 0}, policy=holdfast.EveryN(1)) as run:
        for step in run.steps():
            run.state["n"] = step
            if step == 3:
                run.finish()
                break
    assert seconds_to_write(hf, hf.thread("r").load("@1")) is not None


def test_a_step_that_adds_only_a_result_shows_the_result() -> None:
    asked = {"role": "assistant", "content": "I look it up.", "tool_calls": [{"id": "c1", "name": "look", "args": {}}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "eleven euros"}
    with holdfast.open("memory:") as hf:
        thread = hf.thread("t")
        thread.save({"messages": [asked]})
        thread.save({"messages": [asked, result]})
        thread.save({"messages": [asked, result, asked, result]})
        found = stories(hf, timeline(hf, "t").steps)
    assert [(each.role, each.words) for each in found.values()] == [
        ("assistant", "I look it up."),
        ("tool", "eleven euros"),
        ("assistant", "I look it up."),
    ]
