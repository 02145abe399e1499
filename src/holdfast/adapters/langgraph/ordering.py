"""Store writes before the checkpoint that was computed from them.

LangGraph passes both to background threads, writes first, and waits only for the checkpoint. So the checkpoint could be
stored first, and after a crash in between the writes that led to it would be missing. Therefore a checkpoint waits for
the writes of the nodes that, according to its versions, have just run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

_PATIENCE: Final = 0.2  # seconds to wait; with durability="exit" the writes may come after the checkpoint
_PULLED: Final = "~__pregel_pull, "
PUSHED: Final = "~__pregel_push, "
"""The prefix of the paths of sent tasks. Versions do not show that these have run."""


class Arrivals:
    """Lets a checkpoint wait until the writes of its thread are stored.

    A waiter reads the store only when writes of its own thread were stored, not for those of other threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}

    def tell(self, thread: str) -> None:
        """Wake the waiters of a thread, after writes of it were stored."""
        with self._lock:
            for came in self._waiting.get(thread, ()):
                came.set()

    def wait(self, thread: str, are_there: Callable[[], bool]) -> None:
        """Wait until the writes are stored, or until the timeout; then they are not expected."""
        if are_there():
            return
        deadline = time.monotonic() + _PATIENCE
        came = threading.Event()
        with self._lock:
            self._waiting.setdefault(thread, []).append(came)
        try:
            # They may have been stored between the first check and the registration.
            while not are_there() and (left := deadline - time.monotonic()) > 0:
                came.wait(min(left, _PATIENCE / 10))  # another saver of the same thread sends no event
                came.clear()
        finally:
            with self._lock:
                others = self._waiting[thread]
                others.remove(came)
                if not others:
                    del self._waiting[thread]

    def renew(self) -> None:
        """Reset after fork(): the threads that held the lock or waited do not exist in the child."""
        self._lock = threading.Lock()
        self._waiting = {}


def has_run(seen_now: dict[str, Any], seen_before: dict[str, Any]) -> frozenset[str]:
    """The task paths of the nodes that ran between two checkpoints, from the versions that each had seen."""
    return frozenset(
        _PULLED + node
        for node, seen in seen_now.items()
        if seen and seen != seen_before.get(node) and node != "__interrupt__"
    )
