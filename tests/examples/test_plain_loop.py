"""The plain loop on the providers' own clients. What it cost is judged by the server's count, never by the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.covers import covers
from tests.examples.shopping import Shopping, shopping
from tests.selection import tries

UNDISTURBED = [0, 1, 2, 3]  # the turns that are asked for
ORDERS = ["paper,3", "ink,1"]
ANSWER = "Ordered {'paper': 3, 'ink': 1}, for 23 in all.\n1080 tokens\n"


@pytest.fixture(params=["openai", "anthropic"][: tries(2, 1)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shopping]:
    with shopping(tmp_path, f"{request.param}_loop.py") as running:
        yield running


def test_undisturbed_each_turn_is_asked_for_once(shop: Shopping) -> None:
    done = shop.as_a_user()
    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER, "")
    assert shop.server.turns == UNDISTURBED
    assert shop.orders == ORDERS
    assert shop.to_its_end() == ANSWER
    assert shop.server.turns == UNDISTURBED, "a run that is completed asks for nothing"
    assert shop.orders == ORDERS


@covers("E1")
def test_each_kill_costs_at_most_the_call_in_flight(shop: Shopping) -> None:
    shop.killed_in_flight(1)

    shop.dies("before the order")
    assert (shop.orders, shop.last_order) == ([], "started")
    shop.dies("after the order")
    assert (shop.orders, shop.last_order) == (["paper,3"], "started")
    assert shop.server.turns == [0, 0, 1], "what the model said before the order was recorded"

    shop.killed_in_flight(4)
    shop.killed_in_flight(6)

    assert shop.to_its_end() == ANSWER
    assert Counter(shop.server.turns) == Counter([*UNDISTURBED, 0, 2, 3])
    assert shop.orders == ORDERS
