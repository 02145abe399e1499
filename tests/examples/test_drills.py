"""The drill on every example agent: killed at points all over, each is resumed to the same end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples import approval_fastapi, plain_loop, plain_loop_async
from examples.clerk_drill import drill as clerk_drill
from holdfast.testing import drill_passes
from tests.examples.serving import serving

TASK = {"role": "user", "content": "Order three packs of paper and one bottle of ink."}
POINTS = 6


def placed(name: str) -> Callable[[], list[str]]:
    """What a service has in its book. Each run has idempotency keys of its own, so they are left out."""

    def entries() -> list[str]:
        path = Path(name)
        return [line.partition(",")[2] for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    return entries


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("example", [plain_loop, plain_loop_async])
def test_the_plain_loops(tmp_path: Path, example: Any, provider: str) -> None:
    with serving(tmp_path) as server:
        agent = functools.partial(getattr(example, f"{provider}_agent"), address=server.address)
        report = drill_passes(
            agent,
            {"messages": [TASK]},
            tools=[example.look_up, example.order],
            live=True,
            watch=[placed("orders.csv")],
            points=POINTS,
        )
    assert len(report.kills) == POINTS


def test_the_approvals() -> None:
    report = drill_passes(
        approval_fastapi.agent,
        {"asked": [{"id": "r1", "text": "Please refund order 7."}]},
        tools=[approval_fastapi.refund],
        live=True,
        watch=[placed("refunds.csv")],
        answers={"approve r1": True},
    )
    assert len(report.kills) > POINTS


def test_the_clerk() -> None:
    assert len(drill_passes(clerk_drill).kills) > POINTS
