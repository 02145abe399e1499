"""Resumes of runs with long journals: all calls of the open step are found, also after entries of closed steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

import holdfast
from holdfast import EverySeconds, Run
from tests.runs.conftest import Crash, World

MANY = 60  # more than a resume reads first


class Post:
    """A tool that counts what it sends."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.tool = holdfast.tool(effect="irreversible", name="send")(self._send)

    def _send(self, what: str) -> str:
        self.sent[what] += 1
        return what

    def send(self, run: Run, what: str) -> None:
        run.tool(self.tool, {"what": what}, key=what)


def words(*, is_broken: bool) -> Iterator[str]:
    yield "to"
    if is_broken:
        raise ConnectionError("lost")
    yield "be"


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_stream_that_ends_in_a_later_step(world: World, is_broken: bool) -> None:
    post = Post()
    with world.dying("t", start={"n": 0}) as run:
        stream = iter(())
        for step in run.steps():
            if step == 1:
                stream = run.stream(words, is_broken=is_broken)
                assert next(stream) == "to"
                post.send(run, "first")
                run.state["n"] = 1
                continue
            for number in range(MANY):
                post.send(run, str(number))
            with suppress(ConnectionError):
                assert list(stream) == ["be"]
            post.send(run, "last")
            raise Crash
    with world.running("t", ends="completed") as run:
        for step in run.steps():
            assert step == 2
            for number in range(MANY):
                post.send(run, str(number))
            post.send(run, "last")
            run.finish()
    assert set(post.sent.values()) == {1}


def test_a_call_outside_of_steps_that_is_made_again(world: World) -> None:
    post = Post()
    tries: list[str] = []

    def order_of(order: str) -> str:
        return order

    @holdfast.tool(effect="irreversible", in_doubt="rerun", identity=order_of, name="pay")
    def pay(order: str) -> str:
        tries.append(order)
        if len(tries) == 1:
            raise ConnectionError("lost")
        return "paid"

    def program(run: Run, calls: int) -> None:
        with suppress(ConnectionError):
            run.tool(pay, {"order": "1"})
        for step in run.steps():
            if step == 1:
                post.send(run, "first")
                run.state["n"] = 1
                continue
            for number in range(calls):
                post.send(run, str(number))
            break

    for calls in (MANY, MANY + 1):
        with world.dying("t", start={"n": 0}, tools=[pay]) as run:
            program(run, calls)
    with world.running("t", ends="completed", tools=[pay]) as run:
        program(run, MANY + 1)
        run.finish()
    assert tries == ["1", "1"]
    assert set(post.sent.values()) == {1}


def test_a_step_that_is_repeated_is_not_closed_before_the_recorded_steps_after_it(world: World) -> None:
    post = Post()
    tries: list[str] = []

    @holdfast.tool(effect="irreversible", in_doubt="rerun", identity=("order",), name="pay")
    def pay(order: str) -> str:
        tries.append(order)
        if len(tries) == 1:
            raise ConnectionError("lost")
        return "paid"

    def program(run: Run, *, is_cut_off: bool) -> None:
        for step in run.steps():
            if step == 1:
                with suppress(ConnectionError):
                    run.tool(pay, {"order": "1"})
            elif is_cut_off:
                raise Crash
            elif step == 2:
                for number in range(MANY):
                    post.send(run, str(number))
            else:
                break

    with world.dying("t", start={"n": 0}, tools=[pay], policy=EverySeconds(1000)) as run:
        program(run, is_cut_off=False)
    # The payment is made again, so step 1 has the newest entry. It took so long that the policy wants a checkpoint.
    with world.dying("t", tools=[pay], policy=EverySeconds(0.000_001)) as run:
        program(run, is_cut_off=True)
    with world.running("t", ends="completed", tools=[pay], policy=EverySeconds(0.000_001)) as run:
        program(run, is_cut_off=False)
        run.finish()
    assert tries == ["1", "1"]
    assert set(post.sent.values()) == {1}
    assert len(post.sent) == MANY
