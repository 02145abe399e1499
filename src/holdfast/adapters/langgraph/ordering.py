"""Order between writes and the checkpoint that was made of them.

LangGraph hands both to its background threads, writes first, and waits for the checkpoint alone: whichever thread comes
first would be stored first, and a process that dies in between would have a checkpoint without the writes that led to
it. So a checkpoint waits for those of the nodes that, as its versions say, have just run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

_PATIENCE: Final = 0.2  # seconds: with durability="exit" they may come behind it
_PULLED: Final = "~__pregel_pull, "
PUSHED: Final = "~__pregel_push, "
"""What the paths of tasks begin with that were sent for: no versions tell that they have run."""


class Arrivals:
    """Lets a checkpoint wait until writes were stored."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def tell(self) -> None:
        """Writes were stored."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, are_there: Callable[[], bool]) -> None:
        """Until they are there, or it has taken too long: then they are not coming."""
        deadline = time.monotonic() + _PATIENCE
        while not are_there() and (left := deadline - time.monotonic()) > 0:
            with self._changed:
                # Shorter than what is left: they may have come between the look and the wait.
                self._changed.wait(min(left, _PATIENCE / 40))

    def renew(self) -> None:
        """After fork(), in the child: whoever held the lock is not here to release it."""
        self._changed = threading.Condition()


def has_run(seen_now: dict[str, Any], seen_before: dict[str, Any]) -> frozenset[str]:
    """The task paths of the nodes that ran between two checkpoints, by what each had seen at them."""
    return frozenset(
        _PULLED + node
        for node, seen in seen_now.items()
        if seen and seen != seen_before.get(node) and node != "__interrupt__"
    )
