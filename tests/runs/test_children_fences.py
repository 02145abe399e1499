"""A child acts only while its parent is held: its fence follows that of its parent."""

from __future__ import annotations

import pytest

from holdfast import LeaseLost, Run
from tests.runs.conftest import LEASE, World, stop_renewing, write_results


def renewed(run: Run) -> None:
    """Renew the lease of a run at once, as its thread does every few seconds."""
    assert run.core._lease is not None
    run.core._lease._renew()


def test_a_child_does_not_act_after_another_process_has_claimed_its_parent(world: World) -> None:
    paid: list[str] = []

    def pay(by: str) -> None:
        paid.append(by)

    parent = world.open().run("t", start={}).__enter__()
    child = parent.child("c", start={}).__enter__()
    stop_renewing(parent)
    world.pass_time(LEASE + 1)
    renewed(child)
    other = world.open().run("t").__enter__()
    with pytest.raises(LeaseLost):
        child.tool(pay, {"by": "the child of the lost parent"})
    with pytest.raises(LeaseLost):
        child.save()
    with other.child("c", start={}) as again:
        again.tool(pay, {"by": "the child of the other"})
        again.finish()
    assert paid == ["the child of the other"]
    other.finish()
    stop_renewing(other)


def test_a_grandchild_is_fenced_with_its_family(world: World) -> None:
    paid: list[str] = []

    def pay(by: str) -> None:
        paid.append(by)

    parent = world.open().run("t", start={}).__enter__()
    child = parent.child("c", start={}).__enter__()
    grandchild = child.child("d", start={}).__enter__()
    for run in (parent, child):
        stop_renewing(run)
    world.pass_time(LEASE + 1)
    renewed(grandchild)
    other = world.open().run("t").__enter__()
    with pytest.raises(LeaseLost):
        grandchild.tool(pay, {"by": "the grandchild of the lost parent"})
    assert paid == []
    other.finish()
    stop_renewing(grandchild)


def test_a_child_stops_as_soon_as_this_process_knows_that_its_parent_is_lost(world: World) -> None:
    paid: list[int] = []
    parent = world.open().run("t", start={}).__enter__()
    child = parent.child("c", start={}).__enter__()
    assert parent.core._lease is not None
    parent.core._lease.lose()
    with pytest.raises(LeaseLost):
        child.tool(lambda: paid.append(1), {})
    assert paid == []
    stop_renewing(child)
    stop_renewing(parent)


def test_a_child_is_not_claimed_for_a_parent_that_was_just_lost(world: World) -> None:
    """The intent was written in time. The other process claims the parent before the child is claimed."""
    parent = world.open().run("t", start={}).__enter__()
    opened: list[Run] = []

    class Slow:
        def __init__(self, store: object) -> None:
            self._store = store

        def __getattr__(self, name: str) -> object:
            if name == "head" and not opened:
                stop_renewing(parent)
                world.pass_time(LEASE + 1)
                opened.append(world.open().run("t").__enter__())
            return getattr(self._store, name)

    block = parent.child("c", start={})
    child = block._child
    store = child.request.context.store
    child.request.context.store = Slow(store)  # type: ignore[assignment]
    with pytest.raises(LeaseLost):
        block.__enter__()
    child.request.context.store = store
    [other] = opened
    with other.child("c", start={}) as again:
        again.finish("by the other")
    other.finish()
    assert [each.status for each in world.open().effects("t") if each.effect == "child"][-1] == "done"


def test_a_parent_that_is_resumed_by_the_same_process_runs_its_child(world: World) -> None:
    with world.dying("t", start={}) as parent:
        child = parent.child("c", start={}).__enter__()
        child.model(lambda: "reply")
        write_results(child)
        stop_renewing(child)
    with world.running("t", ends="completed") as parent:
        with parent.child("c", start={}) as child:
            assert child.model(lambda: "another") == "reply"
            child.finish()
        parent.finish()
