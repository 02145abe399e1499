"""Short drills: `test_further.py` is about second kills, interrupts, late calls and other hash seeds."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock

from holdfast.drill import lab, seeds
from tests.selection import IN_FULL

POINTS = None if IN_FULL else 6  # where every kill shows the same


@contextmanager
def few_further(most: int) -> Generator[None]:
    """Make at most so many second kills, interrupts and late calls of each kind, if this run is not one in full."""
    with mock.patch.object(lab, "further_of", lab.further_of if IN_FULL else lambda _: most):
        yield


@contextmanager
def one_seed() -> Generator[None]:
    """Take one other hash seed, if this run is not one in full: a process is started for each."""
    with mock.patch.object(seeds, "_SEEDS", seeds._SEEDS if IN_FULL else seeds._SEEDS[:1]):
        yield


@contextmanager
def kills_only() -> Generator[None]:
    """Make no second kills, interrupts and late calls, and take one other hash seed."""
    with few_further(0), one_seed():
        yield


@contextmanager
def no_seeds() -> Generator[None]:
    """Resume runs with the same hash seed, without other processes: starting them takes the longest."""
    with mock.patch.object(lab, "Seeds", side_effect=seeds.Unloadable("not loaded, to save time")):
        yield
