"""The async, streaming loop on both providers' own clients, judged like its twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.shopping import Shopping, shopping
from tests.selection import tries

UNDISTURBED = [0, 1, 2, 3]  # the turns that are asked for
ORDERS = ["paper,3", "ink,1"]
SAID = [
    "Let me see what they cost.",
    "The paper first.",
    "Now the ink.",
    "Ordered {'paper': 3, 'ink': 1}, for 23 in all.",
]


@pytest.fixture(params=["anthropic", "openai"][: tries(2, 1)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shopping]:
    with shopping(tmp_path, f"{request.param}_stream.py") as running:
        yield running


def test_undisturbed_each_turn_is_streamed_once(shop: Shopping) -> None:
    done = shop.as_a_user()
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, SAID, "")
    assert [(request["turn"], request["stream"]) for request in shop.server.requests] == [
        (turn, True) for turn in UNDISTURBED
    ]
    assert shop.orders == ORDERS
    assert shop.to_its_end() == ""
    assert shop.server.turns == UNDISTURBED, "a run that is completed asks for nothing"


def test_each_kill_costs_at_most_the_stream_in_flight(shop: Shopping) -> None:
    shop.killed_in_flight(1)
    shop.killed_in_flight(2, chunks=5, shown="Let me see")

    shop.dies("before the order")
    assert (shop.orders, shop.last_order) == ([], "started")
    shop.dies("after the order")
    assert (shop.orders, shop.last_order) == (["paper,3"], "started")
    assert shop.server.turns == [0, 0, 0, 1], "what the model said before the order was recorded"

    shop.killed_in_flight(6, chunks=5, shown="Ordered {'pa")

    assert shop.to_its_end().splitlines() == [SAID[-1]]
    assert Counter(shop.server.turns) == Counter([*UNDISTURBED, 0, 0, 3])
    assert shop.orders == ORDERS
