"""SIGKILL at random moments, round after round on the same store: nothing acknowledged is lost, nothing is garbage.

Each round starts one or two children that work as fast as they can and acknowledge each operation when it has
returned, kills them somewhere, and lets a fresh process look at what is left. It must be exactly what the acknowledged
operations made, or that and the one operation in flight; and the next save must work at once.

HOLDFAST_KILL_SEED repeats the rounds of a failure: the same operations, killed after as many of them and as long
after. Where exactly the kill strikes is up to the machine. HOLDFAST_KILL_ROUNDS sets how many rounds, for each of the
two stores; 8 if it is not set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import msgspec
import pytest

from tests.covers import covers
from tests.crash import ledger
from tests.crash.children import Inspection, Left, Work, write_task
from tests.crash.model import MIXES, Line
from tests.crash.nursery import Child, Nursery
from tests.selection import in_full, tries

ROUNDS = int(os.environ.get("HOLDFAST_KILL_ROUNDS", "8"))
VERIFY_EVERY = 10
NEW_STORES = tries(40, 8)
LONGEST_DELAY = 0.006  # seconds after the last awaited acknowledgement: some saves, or a part of an optimize
LONGEST_OPENING = 0.03
KINDS = ("sqlite", "directory")
DURABILITIES: tuple[Literal["full", "normal", "off"], ...] = ("full", "normal", "off")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


class Killed(NamedTuple):
    """A round whose workers are dead, to be inspected."""

    store: str
    left: list[Left]


class Rounds:
    """The rounds on one store. Everything in them but the machine's own timing follows from the seed."""

    def __init__(self, nursery: Nursery, folder: Path, kind: str, seed: int) -> None:
        self._nursery = nursery
        self._folder = folder
        self._kind = kind
        self.seed = seed
        self._lines = [Line("left"), Line("right")]
        self.acknowledged = 0

    def run(self, number: int) -> None:
        random = Random(f"{self.seed}/{number}")
        killed = self._kill_working(random)
        lines = self._inspect(killed, random, verify=number % VERIFY_EVERY == 0 or number == ROUNDS)
        self._lines = sorted(lines, key=lambda line: line.name)

    def create(self, number: int) -> None:
        """Kill a store's first process while it creates it, and the next ones, until one got as far as a save."""
        random = Random(f"{self.seed}/new/{number}")
        store = self._store(f"new-{number}")
        left: list[Left] = []
        while len(left) < 3 and not (left and left[-1].acknowledged):
            # Each on a line of its own: what the one before had in flight is not known yet.
            work = Work(store, random.choice(DURABILITIES), Line(f"try-{len(left)}"), "plain", self.seed)
            child = self._start(work)
            time.sleep(random.uniform(0, LONGEST_OPENING))  # the random moment itself
            left.append(self._end(child, work))
        self._inspect(Killed(store, left), random, verify=True)

    def lose(self) -> None:
        """A round whose worker acknowledges what it did not do."""
        random = Random(self.seed)
        work = Work(self._store("a"), "full", Line("left"), "plain", self.seed, forgetful=True)
        child = self._start(work)
        child.wait_for(5)
        self._inspect(Killed(self._store("a"), [self._end(child, work)]), random, verify=False)

    def _kill_working(self, random: Random) -> Killed:
        store = self._store("a")
        busy = random.sample(self._lines, random.choice((1, 1, 2)))
        works = [Work(store, random.choice(DURABILITIES), line, random.choice(list(MIXES)), self.seed) for line in busy]
        children = [self._start(work) for work in works]
        wanted = random.randrange(30)
        delay = random.uniform(0, LONGEST_DELAY if wanted else LONGEST_OPENING)
        try:
            children[0].wait_for(wanted)
            time.sleep(delay)  # the random moment itself; nothing is waited for
            left = [self._end(children[0], works[0])]
            for child, work in zip(children[1:], works[1:], strict=True):
                # Whoever is left goes on, whatever the dead one held.
                child.wait_for(len(child.lines) + random.randrange(1, 10))
                left.append(self._end(child, work))
        finally:
            for child in children:
                child.close()
        idle = [Left(line, None, line.done) for line in self._lines if line not in busy]
        return Killed(store, left + idle)

    def _store(self, name: str) -> str:
        path = self._folder / name
        return f"dir:{path}" if self._kind == "directory" else f"{path}.db"

    def _start(self, work: Work) -> Child:
        task = write_task(self._folder / f"work-{work.line.name}.json", work)
        return self._nursery.start("tests.crash.children:work", task)

    def _end(self, child: Child, work: Work) -> Left:
        child.kill()
        if child.failure is not None:
            raise AssertionError(f"the worker failed by itself: {child.failure}")
        acknowledged = int(child.lines[-1]) if child.lines else work.line.done
        assert acknowledged == work.line.done + len(child.lines)
        self.acknowledged += len(child.lines)
        return Left(work.line, work.mix, acknowledged)

    def _inspect(self, killed: Killed, random: Random, *, verify: bool) -> list[Line]:
        durability, close = random.choice(DURABILITIES), random.random() < 0.1
        task = Inspection(killed.store, durability, killed.left, self.seed, verify, close)
        child = self._nursery.start("tests.crash.children:inspect", write_task(self._folder / "inspect.json", task))
        try:
            child.wait_for(1)
        finally:
            child.close()
        assert child.lines, "the inspector ended without a word"
        if child.failure is not None:
            raise AssertionError(child.failure)
        return msgspec.json.decode(child.lines[0], type=list[Line])


@covers("A1", "ares/CheckpointManager.load_latest.restart", "smooth/FileCheckpointStore.load_roundtrip")
@covers("smooth/FileCheckpointStore.save.creates_file", "continuum/AtomicFileWriter.new")
@covers("continuum/AtomicFileWriter.write_atomic", "continuum/AtomicFileWriter leftovers", "cortex/SledBackend")
@covers("cortex/SledBackend.flush", "cortex/CheckpointManager.current_step after a restart")
@pytest.mark.parametrize("half", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost(nursery: Nursery, tmp_path: Path, kind: str, half: int) -> None:
    rounds = Rounds(nursery, tmp_path, kind, _seed(half))
    for number in range(1, ROUNDS + 1):
        _carry_out(rounds.run, number, rounds.seed)
    assert rounds.acknowledged > ROUNDS, "the children were killed before they did anything"
    ledger.note("kill at a random moment", kind, rounds=ROUNDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_killed_while_it_is_created_can_be_opened(nursery: Nursery, tmp_path: Path, kind: str) -> None:
    rounds = Rounds(nursery, tmp_path, kind, _seed(0))
    for number in range(NEW_STORES):
        _carry_out(rounds.create, number, rounds.seed)


@pytest.mark.parametrize(
    "kind",
    [
        "sqlite",
        pytest.param("directory", marks=in_full("SQLite shows it")),
    ],
)
def test_a_lost_save_is_noticed(nursery: Nursery, tmp_path: Path, kind: str) -> None:
    with pytest.raises(AssertionError, match="acknowledged up to operation"):
        Rounds(nursery, tmp_path, kind, 1).lose()


def _seed(part: int) -> int:
    given = os.environ.get("HOLDFAST_KILL_SEED")
    return int(given) if given else int.from_bytes(os.urandom(4)) * 4 + part


def _carry_out(part: Callable[[int], None], number: int, seed: int) -> None:
    try:
        part(number)
    except AssertionError as failure:
        problem = str(failure)
    else:
        return
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    again = f"HOLDFAST_KILL_SEED={seed} pytest '{test}'"
    pytest.fail(f"round {number} of seed {seed}:\n{problem}\nTo repeat: {again}", pytrace=False)
