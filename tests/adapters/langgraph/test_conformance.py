"""LangGraph's own conformance suite. Its word "FULL" leaves out what was not detected, so each group is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from tests.adapters.langgraph.conftest import Savers
from tests.selection import every_store

GROUPS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


@every_store("it is the contract of a saver")
def test_every_group_is_detected_and_every_test_of_it_passes(savers: Savers) -> None:
    @checkpointer_test(name=f"HoldfastSaver on {savers.kind}")
    async def ours() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
        yield savers.open()

    report = asyncio.run(validate(ours))

    assert {group: result.failures for group, result in report.results.items() if result.failures} == {}
    assert {group: result.detected for group, result in report.results.items()} == dict.fromkeys(GROUPS, True)
    assert {group: result.tests_passed for group, result in report.results.items()} == GROUPS
    assert sum(result.tests_passed for result in report.results.values()) == 81


def test_the_walk_for_delta_channels_is_our_own(local: Savers) -> None:
    kind = type(local.open())

    assert kind.get_delta_channel_history is not BaseCheckpointSaver.get_delta_channel_history
    assert kind.aget_delta_channel_history is not BaseCheckpointSaver.aget_delta_channel_history
