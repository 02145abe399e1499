"""Owners that are only presumed dead: what they were inside of may still happen, so rerun and probe wait."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def _passing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runs.tool_calls.time.sleep", lambda _seconds: world.pass_time(1))


RERUN: list[dict[str, Any]] = [
    {"effect": "idempotent", "timeout": TIMEOUT},
    {"effect": "irreversible", "in_doubt": "rerun", "timeout": TIMEOUT},
]


@pytest.mark.parametrize("declaration", RERUN)
def test_a_rerun_waits_until_the_call_must_be_over(world: World, declaration: dict[str, Any]) -> None:
    clerk = Clerk(world)
    tool = declared(clerk, **declaration)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"
    # It may have begun the call just before its lease ended, and been in it for as long as it may take.
    assert clerk.calls[1] >= clerk.calls[0] + (LEASE + TIMEOUT) * 1000


def test_a_probe_waits_too(world: World) -> None:
    clerk = Clerk(world)
    tool = declared(clerk, effect="irreversible", probe=clerk.probe, timeout=TIMEOUT)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"
    assert clerk.probes[0] >= clerk.calls[0] + (LEASE + TIMEOUT) * 1000


def test_an_owner_that_is_proven_dead_is_not_waited_for(world: World) -> None:
    clerk = Clerk(world)
    tool = declared(clerk, effect="irreversible", probe=clerk.probe, timeout=TIMEOUT)
    with world.dying("t", start={}) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"
    assert clerk.probes[0] == clerk.calls[0] + (LEASE + 1) * 1000


@pytest.mark.parametrize("declaration", [{"probe": True}, {"in_doubt": "rerun"}])
def test_without_a_timeout_nobody_can_tell_so_somebody_is_asked(world: World, declaration: dict[str, Any]) -> None:
    clerk = Clerk(world)
    if "probe" in declaration:
        declaration = {"probe": clerk.probe}
    tool = declared(clerk, effect="irreversible", **declaration)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {"n": 1}, key="k")
    assert (len(clerk.calls), len(clerk.probes)) == (1, 0)
    hf = world.open(tool)
    hf.settle("t", 1, Happened("paid"))
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "paid"


def test_an_idempotent_tool_without_a_timeout_is_called_beside_it(world: World) -> None:
    """Its idempotency key makes the two calls one."""
    clerk = Clerk(world)
    tool = declared(clerk, effect="idempotent")
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"


def test_it_is_not_forgotten_when_the_next_owner_dies_for_certain(world: World) -> None:
    clerk = Clerk(world)
    tool = declared(clerk, effect="irreversible", probe=clerk.probe)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    with world.dying("t", lease=LEASE):
        pass
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {"n": 1}, key="k")
    assert (len(clerk.calls), len(clerk.probes)) == (1, 0)


def test_after_a_reboot_everybody_is_dead(world: World) -> None:
    clerk = Clerk(world)
    tool = declared(clerk, effect="irreversible", probe=clerk.probe)
    with world.dying("t", start={}, is_proven=False) as run:
        run.tool(tool, {"n": 1}, key="k")
    clerk.dies = False
    world.boot = "boot-2"
    with world.running("t") as run:
        assert run.tool(tool, {"n": 1}, key="k") == "acted on 1"
