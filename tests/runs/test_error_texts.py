"""What errors of runs say: which value, which thread, and advice that fits."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from holdfast import HoldfastError, InvalidArgument, NotFound, Unsupported
from holdfast.errors import Unfinished
from tests.runs.conftest import World


def echo(n: int) -> int:
    return n


def test_a_run_without_its_block_names_the_block(world: World) -> None:
    hf = world.open()
    for block, advice in (
        (cast("Any", hf.run("t", start={})), "; use `with hf.run(…) as run:`"),
        (cast("Any", hf.aio.run("t", start={})), "; use `async with hf.aio.run(…) as run:`"),
    ):
        name = type(block).__name__
        with pytest.raises(AttributeError, match=f"^'{name}' object has no attribute 'state'{re.escape(advice)}$"):
            _ = block.state
        with pytest.raises(AttributeError, match=f"^'{name}' object has no attribute 'nothing'$"):
            _ = block.nothing


def test_a_value_that_cannot_be_stored_is_named(world: World) -> None:
    stored: Any = {"x": echo}
    with world.running("t", start={}, ends="waiting") as run:
        with pytest.raises(Unsupported, match=r"^the result of the run\.x: .*; nothing was stored$"):
            run.finish(stored)
        run.wait("q", {})
    with pytest.raises(Unsupported, match=r"^the answer\.x: .*; nothing was stored$"):
        world.open().answer("t", "q", stored)


def test_a_key_that_was_used_twice_is_told_from_a_recorded_result_for_another_call(world: World) -> None:
    with world.running("t", start={}) as run:
        run.tool(echo, {"n": 1}, key="k")
        with pytest.raises(InvalidArgument, match="'echo' was already called with this key and other arguments"):
            run.tool(echo, {"n": 2}, key="k")


def test_a_verb_after_finish_belongs_before_it(world: World) -> None:
    with world.running("t", start={}, ends="completed") as run:
        run.finish(1)
        with pytest.raises(HoldfastError, match=r"Do this before run\.finish\.$"):
            run.save()


def test_a_run_that_waits_for_a_person_is_not_asked_again_later(world: World) -> None:
    with world.running("t", start={}, ends="waiting") as run:
        run.wait("q", {})
    with pytest.raises(Unfinished, match=r"is waiting and has no result yet\. hf\.waiting\(\) lists what it waits for"):
        world.open().result("t")


def test_a_short_reference_may_be_a_label(world: World) -> None:
    with world.running("t", start={}, ends="completed") as run:
        run.finish(1)
    with pytest.raises(NotFound, match=r"give at least 4 characters\. For a label, write '@zzz'\.$"):
        world.open().thread("t").load("zzz")
