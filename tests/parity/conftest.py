"""The store whose clock a test moves, and the children that it kills, are those of the tests of runs."""

from tests.parity.processes import start
from tests.runs.conftest import nursery, world

__all__ = ["nursery", "start", "world"]
