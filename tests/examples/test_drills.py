"""The drill on every example agent: killed at points all over, each is resumed to the same end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import anthropic_loop, anthropic_stream, approval_fastapi, openai_loop, openai_stream
from holdfast.demo.clerk_drill import drill as clerk_drill
from holdfast.testing import drill_passes
from tests.drill.short import few_further
from tests.examples.mortal import KEYS
from tests.examples.serving import serving
from tests.selection import IN_FULL, in_full, tries

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


LOOPS = [openai_loop, anthropic_stream, anthropic_loop, openai_stream]


@pytest.mark.parametrize("example", LOOPS[: tries(4, 2)])
def test_the_loops(tmp_path: Path, example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with serving(tmp_path) as server:
        report = drill_passes(
            functools.partial(example.agent, address=server.address),
            example.TASK,
            tools=[example.look_up, example.order],
            live=True,
            watch=[placed("orders.csv")],
            points=LIVE_POINTS,
        )
    assert len(report.kills) == LIVE_POINTS


def test_the_approvals() -> None:
    report = drill_passes(
        approval_fastapi.agent,
        {"asked": [{"id": "r1", "order": "7", "amount": 40}]},
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
