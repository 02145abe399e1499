"""Find dead cells and blobs, and remove them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from holdfast.delta.load import reachable
from holdfast.errors import Damaged
from holdfast.intervals import Intervals
from holdfast.stores.contract import Live, Refs, Span, Store
from holdfast.threads.scan import last_of, roots
from holdfast.types import OptimizeResult

# Forks that are made meanwhile must be swept, too. If new ones keep appearing, unused blobs are removed the next time.
_ROUNDS: Final = 20
_READS: Final = 3

T = TypeVar("T")

# -- what is in use ---------------------------------------------------------------------------------------------------


def live_of(store: Store, thread: int, token: int | None = None) -> Live:
    """The cells of a thread that checkpoints of the thread or of its forks use, and the blobs that the thread uses.

    The blobs are only for a sweep with a `token`.

    Safe with concurrent writers. The thread's last seq, the horizon, is read first. A commit after the horizon reuses
    only cells of a checkpoint that existed then. These were found when the thread was read, or the checkpoint is in a
    fork made since. So, after the thread itself was read, forks are listed again until there are no new ones.
    """
    return _undamaged(lambda: _live_of(store, thread, token))


def blobs_of(store: Store, thread: int) -> set[bytes]:
    """The digests of the blobs that the checkpoints of a thread use."""

    def read() -> set[bytes]:
        blobs: set[bytes] = set()
        for _ in _reached(store, thread, blobs):
            pass
        return blobs

    return _undamaged(read)


def _undamaged(read: Callable[[], T]) -> T:
    """Return the result of a function that reads a thread. `Damaged` if it fails several times.

    If other writers prune or drop the thread or a fork meanwhile, cells of checkpoints that were read are missing.
    """
    for _ in range(_READS - 1):
        with suppress(Damaged):
            return read()
    return read()


def _live_of(store: Store, thread: int, token: int | None) -> Live:
    horizon = last_of(store, thread)
    used: defaultdict[int, Intervals] = defaultdict(Intervals)
    blobs: set[bytes] = set()
    read: set[int] = set()
    waiting = [thread]
    while waiting:
        for number in waiting:
            for span in _reached(store, number, blobs if number == thread else set()):
                if span.thread == thread:
                    used[span.log].add(span.start, span.start + span.count)
        read.update(waiting)
        waiting = [number for number in store.forks(thread) if number not in read]
    last = max(horizon, 1)
    spans = (
        Span(thread, log, start, end - start, 1, last)
        for log, intervals in sorted(used.items())
        for start, end in intervals.ranges()
    )
    return Live(tuple(spans), horizon, None if token is None else frozenset(blobs), token)


def _reached(store: Store, thread: int, blobs: set[bytes]) -> Iterator[Span]:
    """The spans that checkpoints of a thread use; their blobs are added to `blobs`."""

    def named() -> Iterator[Refs]:
        for refs in roots(store, thread):
            blobs.update(refs.blobs)
            yield refs

    for span, cells in reachable(store, thread, named(), nodes_only=True):
        for refs in cells.refs:
            blobs.update(refs.blobs)
        yield span


# -- removing the rest ------------------------------------------------------------------------------------------------


class Removed(msgspec.Struct):
    """The result of `remove_unused`.

    `damaged` has the threads of which cells were left unchanged because of damage, with the number of such segments.
    `used` are the digests of the blobs that threads use. It is None if no blobs were dropped: because of damage, or
    (`is_unfinished`) because threads kept changing.
    """

    merged: int = 0
    damaged: dict[int, int] = {}
    used: frozenset[bytes] | None = None
    is_unfinished: bool = False


def remove_unused(store: Store) -> Removed:
    """Sweep the threads that were changed since their last sweep, and remove the blobs that no thread uses.

    A blob is removed if no thread's record of used blobs has it, and no commit stamped it since the epoch started. Then
    no checkpoint uses it. The records have the blobs of all checkpoints from before the epoch. A later checkpoint uses
    only those and stamped ones.
    """
    done = Removed()
    failed: set[int] = set()
    epoch = store.sweep_blobs().epoch
    for _ in range(_ROUNDS):
        try:
            found = store.sweep_blobs(epoch)
        except Damaged:
            return done
        if not found.unswept:
            done.used = found.used
            return done
        unswept = {number: token for number, token in found.unswept.items() if number not in failed}
        if not unswept:
            return done
        for number, token in unswept.items():
            try:
                swept = store.sweep(number, live_of(store, number, token))
            except Damaged:
                failed.add(number)  # it is not known which cells the thread or a fork needs: all stay
                done.damaged[number] = 1
                continue
            done.merged += swept.merged
            if swept.damaged:
                done.damaged[number] = swept.damaged
    done.is_unfinished = True
    return done


# -- hf.optimize() ----------------------------------------------------------------------------------------------------


def optimize(store: Store) -> OptimizeResult:
    """Merge small segments, remove what nothing uses, and free the space. Readers and writers continue meanwhile."""
    done = remove_unused(store)
    store.reclaim()
    is_damaged = done.used is None and not done.is_unfinished
    return OptimizeResult(done.merged, sum(done.damaged.values()) or int(is_damaged))
