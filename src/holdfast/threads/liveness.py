"""Marking: which cells and values the checkpoints that are left still name."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.state.reach import reachable
from holdfast.stores.contract import Live, Refs, Span, Store

_PAGE = 500


def live_cells(store: Store, thread: int) -> Live:
    """The cells of a thread that must stay: those its own checkpoints name, and those its forks' checkpoints name.

    Safe beside writers: the horizon is read first, a later commit can only build on a checkpoint that is there, and
    whatever such a checkpoint names is marked.
    """
    horizon = store.last(thread)
    spans: set[Span] = set()
    for number in (thread, *store.forks(thread)):
        for span, _ in reachable(store, number, _roots(store, number), nodes_only=True):
            if span.thread == thread:
                spans.add(span)
    return Live(tuple(_merged(spans)), horizon)


def live_values(store: Store) -> set[bytes]:
    """The digests of all shared values of the namespace that some checkpoint names."""
    values: set[bytes] = set()
    for number in store.thread_numbers():
        roots = list(_roots(store, number))
        for refs in roots:
            values.update(refs.values)
        for _, cells in reachable(store, number, roots, nodes_only=True):
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
