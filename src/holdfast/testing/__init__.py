"""Tools for tests: a crash drill for agents, and a test suite for stores (which needs pytest)."""

import sys
from typing import TYPE_CHECKING, Any

if "pytest" in sys.modules:
    # Before the import, so that failing asserts of the suite show the compared values.
    sys.modules["pytest"].register_assert_rewrite("holdfast.testing.contract")

from holdfast.drill import Drill, DrillReport, Finding, Kill, crash_everywhere, drill_passes

if TYPE_CHECKING:
    from holdfast.testing.contract import StoreContract

__all__ = ["Drill", "DrillReport", "Finding", "Kill", "StoreContract", "crash_everywhere", "drill_passes"]


def __getattr__(name: str) -> Any:
    if name != "StoreContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The drill must work without pytest.
    from holdfast.testing.contract import StoreContract  # noqa: PLC0415

    return StoreContract
