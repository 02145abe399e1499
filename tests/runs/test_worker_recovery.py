"""Recovery is a loop that survives a store in trouble: locked, moved away, replaced, or on a disk that fails.

A worker in a process of its own meets the trouble at a place that the test chooses. What happened outside of the store
is judged: nothing is lost that was paid for, and nothing is done twice.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Happened, Holdfast, NotDone
from tests.crash.nursery import Child, Nursery
from tests.runs.sweep_faults import can_hook_disk
from tests.runs.test_duplications import row_of, wait_for_line
from tests.runs.test_processes import Family
from tests.waiting import DEADLINE, until

PATIENCE = 0.15  # of the worker's store with a lock
LEASE = 6.0
SHORT_LEASE = 0.8
ONCE = ["model 1", "act 1", "model 2", "act 2"]
# Verbs of the store, by how often they were called: a run of two steps, each a model call and a tool. The intent of the
# tool takes the model's reply along.
PLACES = {
    "claim": ("claim", 1),
    "intent": ("journal", 1),
    "result": ("journal", 2),
    "checkpoint": ("commit", 1),
    "end": ("commit", 2),
}
FAULTS = ["write", *(["sync"] if can_hook_disk() else [])]


@pytest.fixture
def family(nursery: Nursery, tmp_path: Path) -> Iterator[Family]:
    made = Family(nursery, tmp_path)
    with opened(made) as hf:
        hf.submit("h", "t", start={})
    yield made
    made.close()


def opened(family: Family) -> Holdfast:
    return holdfast.open(family.store, durability="off")


def persist(family: Family, place: str | None = None, *, lease: float = LEASE, **told: Any) -> Child:
    """A worker process; with a place, one that meets trouble there."""
    verb, count = (PLACES | {"release": ("journal", 5)}).get(place or "", (place, 1))
    return family.start(
        "persist",
        verb=verb,
        count=count,
        lease=lease,
        patience=PATIENCE,
        effects=family.path("effects"),
        failed=family.path("failed"),
        **told,
    )


def effects(family: Family) -> list[str]:
    book = family.path("effects")
    return book.read_text().splitlines() if book.exists() else []


def wait_for_the_run(family: Family, child: Child) -> str:
    """Until the run does not go on by itself: how it stands then."""
    with opened(family) as hf:
        until(lambda: row_of(hf).status in ("completed", "waiting", "dead"))
        status = row_of(hf).status
    wait_for_line(child, "looks")  # by then it knows what to do at SIGTERM
    os.kill(child.pid, signal.SIGTERM)
    child.wait_for_end()
    assert child.lines[-1] == "drained", child.failure
    return status


def settle_by_what_happened(family: Family) -> None:
    """Answer what a run waits for, if it does, as somebody would who looks at the outside."""
    with opened(family) as hf:
        for effect in hf.effects("t"):
            if effect.status == "in_doubt":
                happened = f"act {effect.step}" in effects(family)
                hf.settle("t", effect, Happened() if happened else NotDone())


# -- trouble that passes -----------------------------------------------------------------------------------------------

Trouble = Callable[[str], AbstractContextManager[str]]


@contextmanager
def gate_held(store: str) -> Generator[str]:
    """Another process is in the gate and does not come out."""
    with open(f"{store}-gate", "rb") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield "Busy"


@contextmanager
def database_locked(store: str) -> Generator[str]:
    """Another program, which knows nothing of a gate, has locked the database."""
    connection = sqlite3.connect(store, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield "Busy"
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@contextmanager
def moved_away(store: str) -> Generator[str]:
    """The files are not where they were, as when a volume is mounted late."""
    names = [store + suffix for suffix in ("", "-wal", "-shm")]
    for name in names:
        os.rename(name, f"{name}.away")
    try:
        yield "StoreError"
    finally:
        # The database last: whoever found it without its log would begin another one.
        for name in reversed(names):
            os.rename(f"{name}.away", name)


TROUBLES = [gate_held, database_locked, moved_away]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_worker_goes_on_when_the_trouble_is_over(family: Family, trouble: Trouble, place: str) -> None:
    """Within the lease: what was paid for is recorded in the end, and nobody has to be asked."""
    verb = PLACES[place][0]
    child = persist(family, place, go=family.path("go"))
    wait_for_line(child, f"at {verb}")
    with trouble(family.store) as error:
        family.path("go").touch()
        wait_for_line(child, f"{error} {verb}")
    assert wait_for_the_run(family, child) == "completed"
    assert effects(family) == ONCE


@pytest.mark.parametrize("trouble", [database_locked, moved_away])
def test_a_run_that_could_not_be_given_back_is_taken_up_when_its_lease_ends(family: Family, trouble: Trouble) -> None:
    child = persist(family, "release", go=family.path("go"), fails=True, lease=SHORT_LEASE)
    wait_for_line(child, "at journal")
    with trouble(family.store) as error:
        family.path("go").touch()
        wait_for_line(child, f"{error} journal")
    assert wait_for_the_run(family, child) == "completed"
    assert effects(family) == ONCE


@pytest.mark.parametrize("place", ["intent", "result"])
def test_trouble_that_outlasts_the_lease_repeats_no_effect(family: Family, place: str) -> None:
    """The worker stops by itself. What it could not record costs a model call or a question, never a second effect."""
    child = persist(family, place, go=family.path("go"), lease=SHORT_LEASE)
    wait_for_line(child, f"at {PLACES[place][0]}")
    with opened(family) as hf, database_locked(family.store):
        family.path("go").touch()
        wait_for_line(child, f"Busy {PLACES[place][0]}")
        until(lambda: row_of(hf).lease_until <= hf.context.store.clock().now)
    if wait_for_the_run(family, child) == "waiting":
        assert place == "result"
        assert effects(family) == ["model 1", "act 1"]
        settle_by_what_happened(family)
        assert wait_for_the_run(family, persist(family)) == "completed"
    done = effects(family)
    assert [line for line in done if line.startswith("act")] == ["act 1", "act 2"]
    assert done.count("model 1") <= (2 if place == "intent" else 1)


# -- trouble that does not ---------------------------------------------------------------------------------------------


def test_a_worker_whose_file_was_replaced_ends_or_takes_the_new_one(family: Family) -> None:
    """A backup was put in its place: to look at the old file for ever would look like working."""
    child = persist(family, "claim", go=family.path("go"))
    wait_for_line(child, "at claim")
    restored = f"{family.store}.restored"
    with sqlite3.connect(family.store) as source, sqlite3.connect(restored) as target:
        source.backup(target)
    source.close()
    target.close()
    os.replace(restored, family.store)
    for suffix in ("-wal", "-shm"):
        Path(family.store + suffix).unlink()
    family.path("go").touch()
    wait_for_line(child, "Replaced claim")
    with opened(family) as hf:
        deadline = time.monotonic() + DEADLINE
        while row_of(hf).status != "completed" and not child.ended:
            assert time.monotonic() < deadline, "it neither works nor ends"
            child.wait_for(len(child.lines) + 1)
    if child.ended:
        assert child.failure is not None
        assert wait_for_the_run(family, persist(family)) == "completed"
    assert effects(family) == ONCE


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_ends_the_worker_loudly_and_its_successor_goes_on(
    family: Family, fault: str, place: str
) -> None:
    child = persist(family, place, fault=fault, durability="full")
    child.wait_for_end()
    assert f"OutcomeUnknown {PLACES[place][0]}" in child.lines
    assert "holdfast.errors.OutcomeUnknown" in (child.failure or ""), "it ended without saying why"
    before = effects(family)
    status = wait_for_the_run(family, persist(family))
    if status == "waiting":
        assert place in ("intent", "result"), "nothing else was under way"
        assert effects(family) == before
        settle_by_what_happened(family)
        status = wait_for_the_run(family, persist(family))
    assert status == "completed"
    done = effects(family)
    assert [line for line in done if line.startswith("act")] == ["act 1", "act 2"]
    # Whether the reply was recorded nobody can know, and at worst it is paid for again.
    assert done.count("model 1") <= (2 if place == "intent" else 1)
    assert done.count("model 2") == 1
    with opened(family) as hf:
        assert hf.verify().ok
