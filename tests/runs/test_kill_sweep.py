"""A run with every kind of call, killed at every write and every sync, and finished by a new process each time.

Three layers are swept. "disk" dies before each write, sync, truncation and deletion that SQLite makes, and after each
sync; "verbs" dies before and after each writing verb of a store; "lines" dies at lines of the library's code. All die
before and after each thing the outside world notes. Then the second process is killed as well, at points all over its
own. What happened is judged from the books of the outside world, never from the journal.

`make test` takes a share of the points, another one in each policy. HOLDFAST_SWEEP=full takes all of them, and some
thousand lines. HOLDFAST_SWEEP=disk/sqlite/Never/137, or disk/sqlite/Never/137/12 for two kills, takes that one.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.covers import covers
from tests.crash import ledger
from tests.crash.nursery import Nursery
from tests.memory import folder_in_memory
from tests.runs.sweep_agent import (
    ALTERNATIVES,
    DETOURS,
    EFFECTS,
    FLAKY,
    POLICIES,
    SCRIPT,
    Ended,
    Layer,
    Task,
    World,
    dangling,
)
from tests.runs.sweep_faults import can_hook_disk
from tests.selection import tries
from tests.stores.postgres.server import reused_address_at

SWEEP = os.environ.get("HOLDFAST_SWEEP", "")
FULL = SWEEP == "full"
SHARE: dict[str, int] = {"disk": 67, "verbs": 19, "lines": 5987}  # one point in so many, unless all are asked for
SHARE_OF_ALL: dict[str, int] = {"disk": 1, "verbs": 1, "lines": 61}
SECOND_SHARE = 31
LEAST_KILLS = 5  # per layer and policy, in any case
SECOND_SHARE_OF_ALL = 7  # of second kills, also where all first ones are asked for: every pair would take an hour
MOST_POINTS = 100_000
REQUESTS = len(SCRIPT) + 2


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


class Sweep:
    """Kills and finishes jobs of one layer and policy, each in a folder of its own."""

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        layer: Layer,
        policy: str,
        *,
        store: str = "sqlite",
        careless: bool = False,
    ) -> None:
        self._nursery = nursery
        self._store = store
        self._folder = folder
        self._layer: Layer = layer
        self._policy = policy
        self._careless = careless
        self._expected = self.finish(self.new("undisturbed"), 0)
        self.places = self._expected.places

    def new(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def kill(self, folder: Path, at: int) -> str | None:
        """Work until the kill at point `at`; what was about to happen there, or None if the job was done before."""
        child = self._nursery.start("tests.runs.sweep_agent:work", self._task(folder, at, 0))
        try:
            child.wait_for_end()
        finally:
            child.close()
        assert child.failure is None, child.failure
        if child.lines == ["ended"]:
            return None
        assert len(child.lines) == 1, child.lines
        return child.lines[0].removeprefix("killed ")

    def finish(self, folder: Path, kills: int) -> Ended:
        """Let a new process do the rest, and check the books. AssertionError for anything twice, lost or different."""
        child = self._nursery.start("tests.runs.sweep_agent:finish", self._task(folder, 0, kills))
        try:
            child.wait_for_end()
        finally:
            child.close()
        assert child.failure is None, child.failure
        ended = msgspec.json.decode(child.lines[0], type=Ended)
        check_books(World(folder, lambda place: None), ended, kills)
        if kills:
            check_state(ended, self._expected)
        return ended

    def check(self, at: int, second: int | None = None) -> str | None:
        """Kill at a point, and perhaps once more; None if the job was done before."""
        folder = self.new(f"at-{at}-{second}")
        try:
            place = self.kill(folder, at)
            if place is None:
                return None
            assert self._layer != "verbs" or place == self.places[at - 1]
            kills = 1
            if second is not None:
                if self.kill(folder, second) is None:
                    return None
                kills = 2
            self.finish(folder, kills)
        except AssertionError as failure:
            again = "/".join(map(str, filter(None, (self._layer, self._store, self._policy, at, second))))
            pytest.fail(
                f"{self._layer}, {self._store}, {self._policy}, "
                f"point {at}{f', then {second}' if second else ''}:\n{failure}\n"
                f"To repeat: HOLDFAST_SWEEP={again} pytest tests/runs/test_kill_sweep.py",
                pytrace=False,
            )
        shutil.rmtree(folder)
        return place

    def _task(self, folder: Path, at: int, kills: int) -> Path:
        path = folder / "task.json"
        namespace = f"{folder.name}.{self._policy}" if self._store == "postgres" else "default"
        task = Task(
            str(folder), url_of(self._store, folder), namespace, self._policy, self._layer, at, kills, self._careless
        )
        path.write_bytes(msgspec.json.encode(task))
        return path


def url_of(store: str, folder: Path) -> str:
    if store == "postgres":
        return reused_address_at(folder.parent)
    return f"dir:{folder / 'agent'}" if store == "directory" else str(folder / "agent.db")


def check_books(world: World, ended: Ended, kills: int) -> None:
    requests = len(world.entries("requests"))
    assert REQUESTS <= requests <= REQUESTS + kills, f"{requests} model requests with {kills} kills"
    ledger = Counter(entry["tool"] for entry in world.entries("ledger"))
    assert len(ended.given_up) <= kills, f"{ended.given_up} given up with {kills} kills"
    assert ended.settled <= kills
    assert set(ended.given_up) <= {"notify"}, "only one tool is declared so that it can be given up"
    for tool in EFFECTS:
        wanted = (0, 1) if tool in ended.given_up else (1,)
        assert ledger[tool] in wanted, f"{tool} happened {ledger[tool]} times"
    for tools in ALTERNATIVES:
        happened = {tool: ledger[tool] for tool in tools}
        assert sum(happened.values()) == 1, f"not one of these happened: {happened}"
        assert kills or happened[tools[-1]], f"{tools[-1]} was not needed: nothing failed"
    attempts = Counter(entry["what"] for entry in world.entries("flaky"))
    assert set(attempts) == set(FLAKY)
    assert all(count <= FLAKY[name] + kills for name, count in attempts.items()), attempts
    readings = Counter(entry["what"] for entry in world.entries("readings"))
    assert all(1 <= count <= 1 + kills for count in readings.values()), readings
    assert ended.result == "all is done"


def check_state(ended: Ended, expected: Ended) -> None:
    messages, wanted = ended.state["messages"], expected.state["messages"]
    assert len(messages) == len(wanted)
    detour: dict[str, bool] = {}
    for message, other in zip(messages, wanted, strict=True):
        detour |= {call["id"]: call["name"] in DETOURS for call in message.get("calls", ())}
        if message["role"] == "tool" and detour[message["id"]]:
            # Whoever was killed before the failure was known may have been lucky at the second try.
            assert len(message["content"]) == 1
        elif ended.given_up and other.get("content") == {"notify": "the mill"}:
            assert message["content"]["outcome"] == "unknown"
        else:
            assert message == other


LAYERS: list[tuple[Layer, str]] = [
    ("disk", "sqlite"),
    *((layer, store) for layer in ("verbs", "lines") for store in ("sqlite", "directory", "postgres")),
]


def needs(layer: Layer) -> None:
    if layer == "disk" and not can_hook_disk():
        pytest.skip("the SQLite of this interpreter cannot be hooked; the other layer is swept")


@covers("A12", "E3", "E5", "ares/crash recovery", "cortex/DurableExecution.run")
@pytest.mark.skipif(bool(SWEEP) and not FULL, reason="HOLDFAST_SWEEP names one point")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("layer", "store"), LAYERS)
def test_killed_at_every_point(nursery: Nursery, folder: Path, layer: Layer, store: str, policy: str) -> None:
    needs(layer)
    sweep = Sweep(nursery, folder, layer, policy, store=store)
    share = (SHARE_OF_ALL if FULL else SHARE)[layer]
    first = 1 if FULL else 1 + list(POLICIES).index(policy) * share // len(POLICIES)
    places: Counter[str] = Counter()
    for at in range(first, MOST_POINTS, share):
        place = sweep.check(at)
        if place is None:
            break
        places[place.split()[1]] += 1
    else:
        pytest.fail(f"the job has more than {MOST_POINTS} points")
    assert places.total() >= LEAST_KILLS, f"killed at {places} only"
    if layer == "lines":
        ledger.note("kill of a run", store, lines=places.total())
        return
    wanted = {"write"} if layer == "disk" else {"journal"}
    if FULL:
        wanted |= {"requests", "ledger", "readings", "commit" if layer == "verbs" else "sync"}
    assert wanted <= set(places), f"killed at {places} only"
    ledger.note("kill of a run", store, **{layer: places.total()})


@covers("E12")
@pytest.mark.skipif(bool(SWEEP) and not FULL, reason="HOLDFAST_SWEEP names one point")
@pytest.mark.parametrize("store", ["sqlite", "directory", "postgres"])
@pytest.mark.parametrize("policy", ["AfterToolCall", "Never"][: tries(2, 1)])
def test_killed_again_while_it_recovers(nursery: Nursery, folder: Path, store: str, policy: str) -> None:
    sweep = Sweep(nursery, folder, "verbs", policy, store=store)
    share = SECOND_SHARE_OF_ALL if FULL else SECOND_SHARE
    tried = 0
    for at, place in enumerate(sweep.places, 1):
        # Where a call was made and nobody knows it, recovery has the most to decide.
        if not place.startswith(("after ledger", "before ledger", "after requests") if FULL else "after ledger"):
            continue
        for second in range(1 + tried % share, MOST_POINTS, share):
            if sweep.check(at, second) is None:
                break
            tried += 1
    assert tried > len(EFFECTS)
    ledger.note("kill of a run", store, twice=tried)


@pytest.mark.skipif(SWEEP.count("/") not in (3, 4), reason="HOLDFAST_SWEEP names no point")
def test_the_point_that_is_named(nursery: Nursery, folder: Path) -> None:
    layer, store, policy, *points = SWEEP.split("/")
    at, second = (*map(int, points), None)[:2]
    assert at is not None
    sweep = Sweep(nursery, folder, msgspec.convert(layer, Layer), policy, store=store)
    assert sweep.check(at, second) is not None, "the job is done before that point"


def test_an_effect_that_is_repeated_is_noticed(nursery: Nursery, folder: Path) -> None:
    sweep = Sweep(nursery, folder, "verbs", "AfterToolCall", careless=True)
    job = sweep.new("killed")
    assert sweep.kill(job, 1 + sweep.places.index("after ledger order")) == "after ledger order"
    with pytest.raises(AssertionError, match="order happened 2 times"):
        sweep.finish(job, 1)


def test_a_call_without_a_result_is_noticed() -> None:
    call = {"id": "call_0", "name": "order"}
    messages: list[dict[str, Any]] = [{"role": "assistant", "calls": [call]}, {"role": "assistant", "calls": []}]
    assert dangling(messages, 4, set()) == ["order call_0"]
    assert dangling(messages, 4, {(4, "order/call_0")}) == []
    assert dangling([messages[0], {"role": "tool", "id": "call_0"}], 4, set()) == []
