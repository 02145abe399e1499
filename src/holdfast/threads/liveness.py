"""Marking: which cells and values the checkpoints that are left still name."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.state.reach import reachable
from holdfast.stores.contract import Live, Refs, Span, Store

_PAGE = 500


def live_cells(store: Store, thread: int) -> Live:
    """The cells of a thread that must stay: those its own checkpoints name, and those its forks' checkpoints name.

    Safe beside writers. The horizon is read first. A later commit builds on a checkpoint that is there at the time: it
    was marked when its thread was read, or it is a fork's that was made since, and forks are asked for until there are
    no new ones, the thread itself having been read before.
    """
    horizon = store.last(thread)
    spans: set[Span] = set()
    read: set[int] = set()
    waiting = [thread]
    while waiting:
        for number in waiting:
            for span, _ in reachable(store, number, _roots(store, number), nodes_only=True):
                if span.thread == thread:
                    spans.add(span)
        read.update(waiting)
        waiting = [number for number in store.forks(thread) if number not in read]
    return Live(tuple(_merged(spans)), horizon)


def live_values(store: Store) -> set[bytes]:
    """The digests of all shared values of the namespace that some checkpoint names. Safe beside forks, as above."""
    values: set[bytes] = set()
    read: set[int] = set()
    while waiting := [number for number in store.thread_numbers() if number not in read]:
        for number in waiting:
            values |= values_of(store, number)
        read.update(waiting)
    return values


def values_of(store: Store, thread: int) -> set[bytes]:
    """The digests of the shared values that the checkpoints of a thread name."""
    roots = list(_roots(store, thread))
    values = {digest for refs in roots for digest in refs.values}
    for _, cells in reachable(store, thread, roots, nodes_only=True):
        for refs in cells.refs:
            values.update(refs.values)
    return values


def _roots(store: Store, thread: int) -> Iterator[Refs]:
    after = 0
    while page := store.refs(thread, after=after, limit=_PAGE):
        yield from (row.refs for row in page)
        after = page[-1].seq


def _merged(spans: set[Span]) -> Iterator[Span]:
    """Overlapping and touching spans as one."""
    current: Span | None = None
    for span in sorted(spans, key=lambda span: (span.log, span.start)):
        if current is None or span.log != current.log or span.start > current.start + current.count:
            if current is not None:
                yield current
            current = span
        else:
            end = max(current.start + current.count, span.start + span.count)
            first, last = min(current.first, span.first), max(current.last, span.last)
            current = Span(current.thread, current.log, current.start, end - current.start, first, last)
    if current is not None:
        yield current
