"""Typed states of submitted runs: `hf.submit` takes them, handlers get them, and migrations apply."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pydantic
import pytest

import holdfast
from holdfast import AsyncRun, Conflict, Holdfast, InvalidArgument, Run
from tests.cases import for_each
from tests.runs.conftest import World


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1


class Basket(pydantic.BaseModel):
    items: list[str]


SEEN: list[Any] = []


@holdfast.handler(type=Order)
def order(run: Run) -> Any:
    SEEN.append(run.state)
    run.state.count += 1
    run.save()
    return run.state.item


@holdfast.handler(type=Basket, schema_version=2)
def shop(run: Run) -> Any:
    SEEN.append(run.state)
    run.state.items.append("receipt")
    return len(run.state.items)


@holdfast.handler(type=Order)
async def order_async(run: AsyncRun) -> Any:
    SEEN.append(run.state)
    return run.state.count


@pytest.fixture(autouse=True)
def _unseen() -> None:
    SEEN.clear()


def work(hf: Holdfast, **handlers: Any) -> None:
    hf.worker(handlers).run(until_idle=True)


def test_a_submitted_state_and_the_state_of_its_handler_are_typed(world: World) -> None:
    hf = world.open()
    hf.submit("order", "t", start=Order("ink"), type=Order)
    hf.submit("order", "t", start=Order("ink"), type=Order)  # the same again
    hf.submit("order", "t", start={"item": "ink", "count": 1})  # and as plain data
    with pytest.raises(Conflict):
        hf.submit("order", "t", start=Order("paper"), type=Order)
    work(hf, order=order)
    assert [Order("ink", 1 + 1)] == SEEN
    found = hf.thread("t", type=Order).latest()
    assert found is not None
    assert found.state == Order("ink", 2)
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "completed"


def test_an_async_handler_gets_a_typed_state(world: World) -> None:
    hf = world.open()
    hf.submit("order", "t", start={"item": "ink"})
    work(hf, order=order_async)
    assert [Order("ink")] == SEEN


def test_async_submit(world: World) -> None:
    hf = world.open()

    async def main() -> None:
        await hf.aio.submit("order", "t", start=Order("ink"), type=Order, schema_version=1)

    asyncio.run(main())
    found = hf.thread("t", type=Order).latest()
    assert found is not None
    assert (found.state, found.schema_version) == (Order("ink"), 1)


def migrating(hf: Holdfast) -> Holdfast:
    @hf.migration(1, 2)
    def to_basket(state: Any) -> Any:
        return {"items": [state["item"]] * state["count"]}

    return hf


def test_a_state_of_an_older_version_is_migrated_for_the_handler(world: World) -> None:
    world.open().submit("shop", "t", start=Order("ink", 2), type=Order, schema_version=1)
    hf = migrating(world.open())
    work(hf, shop=shop)
    assert [Basket(items=["ink", "ink", "receipt"])] == SEEN
    found = hf.thread("t", type=Basket, schema_version=2).latest()
    assert found is not None
    assert (found.state, found.schema_version) == (Basket(items=["ink", "ink", "receipt"]), 2)


def test_a_worker_without_the_migration_does_not_touch_the_run(world: World) -> None:
    world.open().submit("shop", "t", start=Order("ink"), type=Order, schema_version=1)
    work(world.open(), shop=shop)
    assert SEEN == []
    info = world.open().run_info("t")
    assert info is not None
    assert (info.status, info.attempt) == ("queued", 0)
    work(migrating(world.open()), shop=shop)
    assert [Basket(items=["ink", "receipt"])] == SEEN


def test_a_state_that_cannot_be_stored_is_not_queued(world: World) -> None:
    hf = world.open()
    with pytest.raises(holdfast.Unsupported, match=r"type= of .*hf\.submit"):
        hf.submit("order", "t", start=Order("ink"))
    with pytest.raises(InvalidArgument, match="type= cannot be used"):
        hf.submit("order", "t", start=Order("ink"), type=object)
    assert list(hf.threads()) == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": object}, "type= cannot be used"),
    ({"type": Order, "schema_version": -1}, "schema_version must be a whole number"),
    ({"type": Order, "schema_version": "1"}, "schema_version must be a whole number"),
    ({}, "at least one of guards=, type=, schema_version=, concurrency= and rate="),
]


@for_each(("given", "why"), REFUSED)
def test_a_handler_is_checked_when_it_is_declared(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        holdfast.handler(**given)(order)


def test_guards_and_type_are_declared_together() -> None:
    @holdfast.handler(guards=[holdfast.Budget(steps=5)], type=Order)
    def bought(run: Run) -> None:
        SEEN.append(run.state)

    with holdfast.open("memory:") as hf:
        hf.submit("bought", "t", start={"item": "ink"})
        work(hf, bought=bought)
    assert [Order("ink")] == SEEN
