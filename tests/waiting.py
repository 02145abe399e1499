"""Waiting for a condition. The deadline is for what hangs: no test may depend on how fast the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

DEADLINE: Final = 120.0  # seconds; less than faulthandler_timeout, which ends the whole test run


def until(condition: Callable[[], object], what: str = "it happens") -> None:
    """Return when the condition holds; fail when it does not hold by the deadline."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE:.0f} s until {what}"
        time.sleep(0.005)
