"""The drill on every example agent: killed at points all over, each is resumed to the same end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from examples import approval_fastapi, plain_loop, plain_loop_async
from holdfast.demo.clerk_drill import drill as clerk_drill
from holdfast.testing import drill_passes
from tests.drill.short import few_further
from tests.examples.serving import serving
from tests.selection import IN_FULL, in_full, tries

TASK = {"role": "user", "content": "Order three packs of paper and one bottle of ink."}
POINTS = 8
LIVE_POINTS = tries(6, 2)  # each of them is a process that imports a provider's client


@pytest.fixture(autouse=True)
def _few_further() -> Iterator[None]:
    """`make test` makes fewer second kills, interrupts and late calls: tests/drill is about them."""
    with few_further(1):
        yield


def placed(name: str) -> Callable[[], list[str]]:
    """What a service has in its book. Each run has idempotency keys of its own, so they are left out."""

    def entries() -> list[str]:
        path = Path(name)
        return [line.partition(",")[2] for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    return entries


@pytest.mark.parametrize(
    ("example", "provider"),
    [
        (plain_loop, "openai"),
        (plain_loop_async, "anthropic"),
        (plain_loop, "anthropic"),
        (plain_loop_async, "openai"),
    ][: tries(4, 2)],
)
def test_the_plain_loops(tmp_path: Path, example: Any, provider: str) -> None:
    import_module(provider)  # once, not in each process that the drill forks
    with serving(tmp_path) as server:
        agent = functools.partial(getattr(example, f"{provider}_agent"), address=server.address)
        report = drill_passes(
            agent,
            {"messages": [TASK]},
            tools=[example.look_up, example.order],
            live=True,
            watch=[placed("orders.csv")],
            points=LIVE_POINTS,
        )
    assert len(report.kills) == LIVE_POINTS


def test_the_approvals() -> None:
    report = drill_passes(
        approval_fastapi.agent,
        {"asked": [{"id": "r1", "text": "Please refund order 7."}]},
        tools=[approval_fastapi.refund],
        live=True,
        watch=[placed("refunds.csv")],
        answers={"approve r1": True},
        points=None if IN_FULL else POINTS,
    )
    assert len(report.kills) >= POINTS


@in_full("the demo ends with this drill, at every point: tests/test_demo.py")
def test_the_clerk() -> None:
    assert len(drill_passes(clerk_drill).kills) >= 2 * POINTS
