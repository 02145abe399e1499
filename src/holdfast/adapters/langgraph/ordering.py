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
    """Lets a checkpoint wait until writes of its thread were stored.

    Whoever waits looks when something of its own thread came: a look asks the store, and what comes for others of
    fifty conversations is no reason for one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}

    def tell(self, thread: str) -> None:
        """Writes of a thread were stored."""
        with self._lock:
            for came in self._waiting.get(thread, ()):
                came.set()

    def wait(self, thread: str, are_there: Callable[[], bool]) -> None:
        """Until they are there, or it has taken too long: then they are not coming."""
        if are_there():
            return
        deadline = time.monotonic() + _PATIENCE
        came = threading.Event()
        with self._lock:
            self._waiting.setdefault(thread, []).append(came)
        try:
            # They may have come between the first look and now.
            while not are_there() and (left := deadline - time.monotonic()) > 0:
                came.wait(min(left, _PATIENCE / 10))  # by another saver of the same thread, nobody is told
                came.clear()
        finally:
            with self._lock:
                others = self._waiting[thread]
                others.remove(came)
                if not others:
                    del self._waiting[thread]

    def renew(self) -> None:
        """After fork(), in the child: whoever held the lock, or waited, is not here."""
        self._lock = threading.Lock()
        self._waiting = {}


def has_run(seen_now: dict[str, Any], seen_before: dict[str, Any]) -> frozenset[str]:
    """The task paths of the nodes that ran between two checkpoints, by what each had seen at them."""
    return frozenset(
        _PULLED + node
        for node, seen in seen_now.items()
        if seen and seen != seen_before.get(node) and node != "__interrupt__"
    )
