"""Recent: cells that were read are not read again, and what is cut out of them is what the store would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from holdfast import Holdfast
from holdfast.adapters.langgraph.shared_threads import RecentCells
from holdfast.stores.contract import Cells, Span
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.threads.scan import checkpoint_at, thread_named
from tests.selection import tries


class Counting:
    """A store that counts the cells read from it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.read: list[Span] = []

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        self.read += spans
        return self._store.cells(spans)


def stored() -> tuple[MemoryStore, list[Span]]:
    """A store with lists, large dicts and split items, and a span of each of its logs."""
    store = MemoryStore(namespace="default")
    thread = Holdfast(store).thread("t")
    state: dict[str, Any] = {"list": [], "other": [], "files": {}, "wide": []}
    for turn in range(20):
        state["list"] += [f"item {turn} " * 30, {"n": turn, "pad": "x" * 200}]
        state["other"].append([turn] * 90)
        state["files"] = {**state["files"], **{f"f{turn}-{n}": "text" * 40 for n in range(6)}}
        state["wide"].append({"many": [f"{turn} {n} " * 30 for n in range(40)]})
        thread.save(state)
    found = thread_named(store, "t")
    assert found is not None
    number = found.position.thread
    row = checkpoint_at(store, number, found.position.head)
    assert row is not None
    spans = {(span.log): span for span in row.refs.spans}
    return store, [Span(number, *_rest(span)) for span in spans.values() if span.count > 1]


def _rest(span: Span) -> tuple[int, int, int, int, int]:
    return span.log, span.start, span.count, span.first, span.last


STORE, SPANS = stored()


def parts(span: Span) -> st.SearchStrategy[Span]:
    """Any stretch of a span."""
    return st.tuples(st.integers(0, span.count - 1), st.integers(1, span.count)).map(
        lambda cut: Span(
            span.thread, span.log, span.start + cut[0], min(cut[1], span.count - cut[0]), span.first, span.last
        )
    )


asked = st.lists(st.lists(st.sampled_from(SPANS).flatmap(parts), max_size=5), max_size=8)


def shown(cells: Cells) -> Any:
    return [bytes(cell) for cell in cells.cells], cells.refs


@given(asked)
@settings(max_examples=tries(150, 50), deadline=None)
def test_whatever_is_asked_for_is_what_the_store_has(questions: list[list[Span]]) -> None:
    recent = RecentCells(STORE)
    for spans in questions:
        assert [shown(one) for one in recent.cells(spans)] == [shown(one) for one in STORE.cells(spans)]


def test_there_is_something_to_ask_for() -> None:
    assert len(SPANS) >= 2
    assert max(span.count for span in SPANS) >= 20


def test_a_span_within_one_that_was_read_is_not_read() -> None:
    counting = Counting(STORE)
    recent = RecentCells(counting)
    recent.cells(SPANS)
    before = len(counting.read)
    for span in SPANS:
        for cut in range(1, span.count):
            recent.cells([Span(span.thread, span.log, span.start, cut, span.first, span.last)])
            recent.cells([Span(span.thread, span.log, span.start + cut, span.count - cut, span.first, span.last)])
    assert len(counting.read) == before


def test_a_longer_stretch_is_read_and_kept_instead() -> None:
    counting = Counting(STORE)
    recent = RecentCells(counting)
    whole = max(SPANS, key=lambda span: span.count)
    half = Span(whole.thread, whole.log, whole.start, whole.count // 2, whole.first, whole.last)
    for span in (half, whole, half, whole):
        recent.cells([span])
    assert counting.read == [half, whole]


def test_the_same_log_number_of_another_thread_is_another_log() -> None:
    store = MemoryStore(namespace="default")
    hf = Holdfast(store)
    spans = []
    for name in ("one", "two"):
        hf.thread(name).save({"list": [f"{name} {number} " * 30 for number in range(40)]})
        found = thread_named(store, name)
        assert found is not None
        row = checkpoint_at(store, found.position.thread, 1)
        assert row is not None
        (span,) = row.refs.spans
        spans.append(Span(found.position.thread, *_rest(span)))
    recent = RecentCells(store)
    for span in spans:
        assert [shown(one) for one in recent.cells([span])] == [shown(one) for one in store.cells([span])]
