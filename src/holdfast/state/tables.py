"""Tables of spans: a series in many pieces is named through table cells, so that a save rewrites only some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.state.draft import Draft
from holdfast.state.parts import join_spans, node_digest
from holdfast.stores.contract import Refs, Span

TABLE_MAX = 64  # spans a skeleton names itself; more go into table cells
_BLOCK_MIN = 8
_BLOCK_MAX = 128


def fold(spans: Sequence[Span], known: dict[bytes, Span], draft: Draft) -> tuple[int, list[Span], dict[bytes, Span]]:
    """Level, spans to name and the tables in use. `known` are the tables of the last save, reused where equal."""
    tables: dict[bytes, Span] = {}
    level = 0
    named = join_spans(spans)
    while len(named) > TABLE_MAX:
        blocks: list[Span] = []
        for block in _blocks(named):
            refs = Refs(tuple(block))
            digest = node_digest(b"", refs)
            span = known.get(digest)
            if span is None:
                span, _ = draft.node(b"", refs)
            tables[digest] = span
            blocks.append(span)
        named = join_spans(blocks)
        level += 1
    return level, named, tables


def _blocks(spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Cut where the spans themselves say so: an insertion moves no cut but those beside it.

    Blocks of a fixed number of spans would all change when one is inserted before them.
    """
    start = 0
    for at, span in enumerate(spans, 1):
        length = at - start
        if length >= _BLOCK_MAX or (length >= _BLOCK_MIN and _is_cut(span)):
            yield spans[start:at]
            start = at
    if start < len(spans):
        yield spans[start:]


def _is_cut(span: Span) -> bool:
    # `count` and `last` of a span grow with appends; its log and start do not.
    return ((span.log * 31 + span.start) * 0x9E3779B1 >> 16) & 31 == 0
