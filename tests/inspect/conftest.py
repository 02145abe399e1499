"""What the tests of looking share: the stores of the tests of runs, and an agent that can be killed."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast import Run
from tests.runs import conftest
from tests.runs.conftest import Crash, World

world = conftest.world  # a fixture is found by where it stands


@holdfast.tool(effect="read", name="look_up")
def look_up(item: str) -> int:
    return len(item)


@holdfast.tool(effect="irreversible", in_doubt="ask", name="post")
def post(letter: str) -> str:
    raise Crash


def reply(step: int) -> dict[str, Any]:
    calls = [{"id": "call_0", "name": "look_up", "args": {"item": "ink"}}]
    return {
        "role": "assistant",
        "content": f"turn {step}",
        "calls": calls,
        "usage": {"prompt_tokens": 10, "completion_tokens": 3},
    }


def work(run: Run, steps: int, *, then: str | None = None) -> None:
    """Some steps of an agent: each a model call and a tool call. Then it dies in the next, where it is said."""
    for step in run.steps():
        run.state["messages"].append(run.model(reply, step))
        if step > steps and then == "model":
            raise Crash
        result = run.tool(look_up, {"item": "ink"}, key="call_0")
        run.state["messages"].append({"role": "tool", "id": "call_0", "content": result})
        if step > steps and then == "post":
            run.tool(post, {"letter": "Dear Sir"}, key="p")
        if step >= steps and then is None:
            break


def started(world: World, thread: str = "shop") -> None:
    """Three processes on one thread: two die after a model call, the third inside of a tool; two steps are saved."""
    task = {"messages": [{"role": "user", "content": "go"}]}
    with world.dying(thread, start=task) as run:
        work(run, 0, then="model")
    with world.dying(thread) as run:
        work(run, 1, then="model")
    with world.dying(thread) as run:
        work(run, 2, then="post")
