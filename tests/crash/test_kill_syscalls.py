"""SIGKILL at every system call that writes, one after the other, and a judge in a fresh process after each.

The workload saves, keeps a journal, forks, rewinds, prunes, merges, drops and closes; another opens a SQLite store of
the first format. `make test` takes a share of the calls, HOLDFAST_LAB=full all of them; HOLDFAST_LAB_POINT=fsync/12
the twelfth fsync alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.covers import covers
from tests.crash import ledger
from tests.crash.lab import FULL, POINT, Lab, opened_lab, repeated_by, spread
from tests.crash.tracing import WRITING, Fault
from tests.crash.workload import Kind, Scene, Task
from tests.selection import in_full

MORE = 20  # calls that a workload may make beyond those of the first: ids and times differ, and so do sizes
SHARE: dict[Scene, int] = {"verbs": 2}  # of the calls of each name


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with opened_lab() as lab:
        yield lab


@covers("A1", "A15", "continuum/AtomicFileWriter.write_atomic")
@pytest.mark.parametrize(("kind", "scene"), [("sqlite", "verbs"), ("directory", "verbs")])
def test_killed_at_every_call(lab: Lab, kind: Kind, scene: Scene) -> None:
    killed: Counter[str] = Counter()
    calls = lab.calls(kind, scene, WRITING)
    for name, count in calls.items():
        for number in numbers(name, count, scene):
            with repeated_by(f"{name}/{number}"):
                traced = lab.attempt(kind, scene, WRITING, Fault(name, str(number), "signal=KILL"))
            if traced is not None and traced.ended == "itself":
                assert number > count - MORE, f"{name} {number} of {count} was not reached"
                break
            killed[name] += 1
    ledger.note("kill at a system call", kind, **{f"{name} ({scene})": many for name, many in killed.items()})
    assert POINT or set(killed) == set(calls), f"killed at {killed} only"


def numbers(name: str, count: int, scene: Scene) -> Sequence[int]:
    """Which of the calls of a name are tried: the first, the second … until one is not reached, or a share of them."""
    if POINT:
        return [int(POINT.rpartition("/")[2])] if POINT.startswith(f"{name}/") else []
    return range(1, count + MORE) if FULL else spread(range(1, count + 1), SHARE[scene])


@pytest.mark.parametrize(
    "kind",
    [
        "sqlite",
        pytest.param("directory", marks=in_full("SQLite shows it")),
    ],
)
def test_a_save_that_was_acknowledged_and_not_made_is_noticed(lab: Lab, kind: Kind) -> None:
    with pytest.raises(AssertionError, match="nothing that was acknowledged or in flight"):
        lab.attempt(kind, "verbs", WRITING, None, Task("", forgetful=True))
