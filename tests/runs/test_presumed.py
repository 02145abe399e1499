"""Owners that are only presumed dead: what they were inside of may still happen."""

from __future__ import annotations

import time
from typing import Any

import pytest

import holdfast
from holdfast import Happened, NotDone
from tests.runs.conftest import LEASE, Crash, World

TIMEOUT = 20.0


class Clerk:
    """A tool whose process dies in the middle of it. When it was called, and asked about, by the store's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.calls: list[int] = []
        self.probes: list[int] = []
        self.dies = True

    def act(self, n: int) -> str:
        self.calls.append(self._world.clock().now)
        if self.dies:
            raise Crash
        return f"acted on {n}"

    def probe(self, n: int) -> object:
        self.probes.append(self._world.clock().now)
        return NotDone()


def declared(clerk: Clerk, **declaration: Any) -> Any:
    def act(n: int) -> str:
        return clerk.act(n)

    return holdfast.tool(**declaration)(act)


def resume(world: World, tool: Any, ends: str = "idle") -> None:
    with world.running("t", ends=ends) as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"


@pytest.mark.parametrize("is_proven", [True, False])
def test_a_rerun_waits_until_the_call_must_be_over(world: World, is_proven: bool) -> None:
    clerk = Clerk(world)
    tool = declared(clerk, effect="irreversible", in_doubt="rerun", timeout=LEASE * 2)
    with world.dying("t", start={}, is_proven=is_proven) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    resume(world, tool, "waiting")
    world.pass_time(LEASE * 2)
    resume(world, tool)
    assert clerk.calls[1] >= clerk.calls[0] + LEASE * 2 * 1000


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_probe_is_believed_only_if_the_call_cannot_act_any_more(world: World, is_bounded: bool) -> None:
    """A sync function cannot be stopped, so its timeout says nothing about a process that may live."""
    clerk = Clerk(world)
    limit = {"probe_after": LEASE * 2} if is_bounded else {"timeout": LEASE * 2}
    tool = declared(clerk, effect="irreversible", probe=clerk.probe, **limit)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    resume(world, tool, "waiting")
    assert list(world.open().waiting()) == []
    world.pass_time(LEASE * 2)
    resume(world, tool, "idle" if is_bounded else "waiting")
    assert len(clerk.calls) == (2 if is_bounded else 1)
    assert len(clerk.probes) == 2


@pytest.mark.parametrize("declaration", [{"probe": True}, {"in_doubt": "rerun"}])
def test_without_a_timeout_nobody_can_tell_so_somebody_is_asked(world: World, declaration: dict[str, Any]) -> None:
    clerk = Clerk(world)
    if "probe" in declaration:
        declaration = {"probe": clerk.probe}
    tool = declared(clerk, effect="irreversible", **declaration)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    world.pass_time(3600)
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {"n": 1}, key="k")
    assert (len(clerk.calls), len(clerk.probes)) == (1, "probe" in declaration)
    hf = world.open(tool)
    hf.settle("t", 1, Happened("paid"))
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "paid"


@pytest.mark.parametrize("timeout", [None, 3600.0])
def test_an_idempotent_tool_is_called_beside_it(world: World, timeout: float | None) -> None:
    """Its idempotency key makes the two calls one."""
    clerk = Clerk(world)
    tool = declared(clerk, effect="idempotent", timeout=timeout)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"


def test_it_is_not_forgotten_when_the_next_owner_dies_for_certain(world: World) -> None:
    clerk = Clerk(world)
    tool = declared(clerk, effect="irreversible", probe=clerk.probe, timeout=TIMEOUT)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    with world.dying("t", lease=LEASE):
        pass
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {"n": 1}, key="k")
    assert len(clerk.calls) == 1
    assert [question.name for question in world.open().waiting()] == ["act"]


def test_after_a_reboot_everybody_is_dead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the store begins anew, so the wall clock says how long ago the call was made."""
    clerk = Clerk(world)
    tool = declared(clerk, effect="irreversible", probe=clerk.probe, timeout=TIMEOUT)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    world.boot = "boot-2"
    resume(world, tool, "waiting")
    later = time.time_ns() // 1000 + 30_000_000
    monkeypatch.setattr("holdfast.runs.lease.now", lambda: later)
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"
