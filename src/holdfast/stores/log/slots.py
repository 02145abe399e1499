"""The claims of a handler with a limit that are about to be written, on a device with several writers.

A claim is counted among the runs of all threads, and written to the log of one. Two claims at a time would not count
each other. So each is announced here first, and the next one waits for it or prevents it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.stores.log.namespace import Namespace
from holdfast.types import UNREADABLE

_SUFFIX: Final = "+held"  # the encoded name of a handler has no `+`


class SlotQueue:
    """The announced claim of a handler: the number of its thread, and its fence."""

    def __init__(self, space: Namespace, key: str) -> None:
        """`key` is that of the handler's limit."""
        self._space = space
        self._key = key + _SUFFIX

    def settle(self, thread: int) -> None:
        """Make sure that the announced claim was written, or is never written. Only in a turn, before runs are read."""
        try:
            other, fence = msgspec.json.decode(self._space.device.get(self._key) or b"[0,0]", type=tuple[int, int])
        except UNREADABLE:
            return
        log = None if other in (0, thread) else self._space.numbered(other)
        if log is None or log.thread.is_gone:
            return
        run = log.thread.run_row
        if run is None or run.fence < fence:
            self._space.interrupt(log)

    def put(self, thread: int, fence: int) -> None:
        """Announce a claim. `Moved` if another writer did so since `settle`."""
        self._space.device.put(self._key, [msgspec.json.encode((thread, fence))])
