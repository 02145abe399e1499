"""Following references: every cell that a record names, directly or through node cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from holdfast.codec import packed
from holdfast.errors import Damaged
from holdfast.state.draft import LogKind, log_kind
from holdfast.stores.contract import Cells, Refs, Span

_WAVES_MAX = 4 * packed.MAX_DEPTH  # a level of nesting takes at most a node cell and some levels of tables


class CellReader(Protocol):
    """What cells are read from: a store, or what was read from one before."""

    def cells(self, spans: Sequence[Span]) -> list[Cells]: ...


def rebased(span: Span, owner: int) -> Span:
    """A span of a record of thread `owner`, as seen from elsewhere."""
    if span.thread or not owner:
        return span
    return Span(owner, span.log, span.start, span.count, span.first, span.last)


def holds_refs(span: Span) -> bool:
    return log_kind(span.log) == LogKind.NODE


def reachable(
    store: CellReader, thread: int, roots: Iterable[Refs], *, nodes_only: bool
) -> Iterator[tuple[Span, Cells]]:
    """All cells reachable from records of a thread, each span once, in waves of one read each.

    `nodes_only` leaves the cells without references unread and gives them as empty.
    """
    seen: set[Span] = set()
    wave = {rebased(span, thread): None for refs in roots for span in refs.spans}
    for _ in range(_WAVES_MAX):
        if not wave:
            return
        seen.update(wave)
        wanted = [span for span in wave if holds_refs(span) or not nodes_only]
        read = dict(zip(wanted, store.cells(wanted), strict=True))
        following: dict[Span, None] = {}
        for span in wave:
            cells = read.get(span, _UNREAD)
            yield span, cells
            for refs in cells.refs:
                named = (rebased(inner, span.thread) for inner in refs.spans)
                following.update((inner, None) for inner in named if inner not in seen)
        wave = following
    raise Damaged("records refer to each other without end")


_UNREAD = Cells((), ())
