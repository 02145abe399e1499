"""Find dead cells and blobs, and remove them."""

from __future__ import annotations

from collections import defaultdict

from holdfast.delta.load import reachable
from holdfast.errors import Damaged
from holdfast.intervals import Intervals
from holdfast.stores.contract import Live, Span, Store
from holdfast.threads.scan import last_of, numbered, roots
from holdfast.types import OptimizeResult

# -- what is in use ---------------------------------------------------------------------------------------------------


def live_cells(store: Store, thread: int) -> Live:
    """The cells of a thread that checkpoints of the thread or of its forks use.

    Safe with concurrent writers. The horizon is read first. A later commit builds on a checkpoint that exists at that
    time: its cells were found when its thread was read, or it is in a fork made since. So forks are asked for until
    there are no new ones, after the thread itself was read.
    """
    horizon = last_of(store, thread)
    used: defaultdict[int, Intervals] = defaultdict(Intervals)
    read: set[int] = set()
    waiting = [thread]
    while waiting:
        for number in waiting:
            for span, _ in reachable(store, number, roots(store, number), nodes_only=True):
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
    return Live(tuple(spans), horizon)


def live_values(store: Store) -> set[bytes]:
    """The digests of all blobs of the namespace that checkpoints use. Safe with concurrent forks, as above."""
    values: set[bytes] = set()
    read: set[int] = set()
    while waiting := [thread.number for thread in numbered(store) if thread.number not in read]:
        for number in waiting:
            values |= values_of(store, number)
        read.update(waiting)
    return values


def values_of(store: Store, thread: int) -> set[bytes]:
    """The digests of the blobs that the checkpoints of a thread use."""
    named = list(roots(store, thread))
    values = {digest for refs in named for digest in refs.blobs}
    for _, cells in reachable(store, thread, named, nodes_only=True):
        for refs in cells.refs:
            values.update(refs.blobs)
    return values


# -- hf.optimize() ----------------------------------------------------------------------------------------------------


def optimize(store: Store) -> OptimizeResult:
    """Merge small segments, remove what nothing uses, and free the space. Readers and writers continue meanwhile."""
    merged = damaged = 0
    epoch = store.start_epoch()
    for number in [thread.number for thread in numbered(store)]:
        try:
            live = live_cells(store, number)
        except Damaged:
            damaged += 1  # it is not known which cells the thread or a fork needs: all stay
            continue
        store.sweep(number, live)
        done = store.compact(number, live)
        merged += done.merged
        damaged += done.damaged
    try:
        values = live_values(store)
    except Damaged:
        damaged += not damaged
    else:
        store.sweep_blobs(values, epoch)
    store.reclaim()
    return OptimizeResult(merged, damaged)
