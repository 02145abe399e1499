"""Sweeps kept in memory, for stores that mark every thread as unswept in each epoch."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.stores.contract import Live


class Sweeps:
    """The unswept threads, and the blobs that the swept ones use, as one handle knows them. The caller holds a lock.

    Another handle that sweeps at the same time sweeps the same threads again.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._lasts: dict[int, int] = {}  # by thread: its last seq when it was marked as unswept
        self._swept: dict[int, Live] = {}

    def unswept(self, epoch: int, threads: Mapping[int, tuple[int, bool]]) -> dict[int, int]:
        """The threads that must be swept before blobs older than `epoch` are dropped, each with a token.

        `threads` has each thread's last seq, and whether it is a fork. A thread that was created since the epoch
        started need not be swept, because its blobs are stamped, unless it is a fork. A fork that changed since its
        sweep must be swept again: it may use blobs of another thread now.
        """
        if self._epoch < epoch:
            self._epoch = epoch
            self._lasts = {number: last for number, (last, _) in threads.items()}
            self._swept = {}
        for number, (last, is_fork) in threads.items():
            if is_fork and (number not in self._swept or self._swept[number].horizon != last):
                self._lasts[number] = last
                self._swept.pop(number, None)
        return {number: self._epoch for number in threads if number in self._lasts and number not in self._swept}

    def record(self, thread: int, live: Live) -> None:
        """Record a sweep, unless the thread was read before it was marked as unswept."""
        is_late = live.token == self._epoch and live.horizon >= self._lasts.get(thread, live.horizon + 1)
        if live.blobs is not None and is_late:
            self._swept[thread] = live

    def used(self) -> frozenset[bytes]:
        """The digests of the blobs that swept threads use."""
        return frozenset(digest for live in self._swept.values() for digest in live.blobs or ())
