"""Reading cells by span."""

from __future__ import annotations

import pytest

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores.contract import NO_REFS, Append, Refs, Span, Store
from holdfast.testing.contract.build import Line, cell, commit, noise, run, saved, texts_of
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import thread_named

NODE = Refs(spans=(Span(0, 1, 0, 2, 1, 1),), blobs=(b"v" * 32,))
LEAF = Refs(blobs=(b"w" * 32,))


class CellsContract(ContractBase):
    def test_one_cell(self, store: Store) -> None:
        line = saved(store, "a", "x")
        [cells] = store.cells([line.span()])
        assert (cells.cells, cells.refs) == ([cell("x")], [])

    def test_no_spans(self, store: Store) -> None:
        assert store.cells([]) == []

    def test_the_cells_of_one_commit_in_order(self, store: Store) -> None:
        line = saved(store, "a", "c a b a")
        assert texts_of(store, line.span()) == [["c", "a", "b", "a"]]

    def test_every_range_of_a_log_written_by_several_commits(self, store: Store) -> None:
        line = saved(store, "a", "0 1 2", "3", "", "4 5", "6 7 8")
        spans = [line.span(start, count) for start in range(9) for count in range(1, 10 - start)]
        expected = [[str(n) for n in range(span.start, span.start + span.count)] for span in spans]
        assert texts_of(store, *spans) == expected
        assert [texts_of(store, span)[0] for span in spans] == expected

    def test_cells_are_returned_in_the_order_of_the_spans(self, store: Store) -> None:
        line, other = saved(store, "a", "a b c"), saved(store, "b", "d", "e f")
        spans = [line.span(2, 1), other.span(), line.span(0, 2), line.span(2, 1), other.span(1, 1)]
        assert texts_of(store, *spans) == [["c"], ["d", "e", "f"], ["a", "b"], ["c"], ["e"]]

    def test_logs_are_separate(self, store: Store) -> None:
        runs = [run("a", "b", log=1), run("c", log=2), run("d", "e", log=2**33)]
        first = store.commit(commit("t", appends=runs))
        store.commit(commit("t", first, appends=[run("f", log=2, start=1), run("g", log=1, start=2)]))
        spans = [Span(first.thread, *at) for at in [(1, 0, 3, 1, 2), (2, 0, 2, 1, 2), (2**33, 0, 2, 1, 1)]]
        assert texts_of(store, *spans) == [["a", "b", "g"], ["c", "f"], ["d", "e"]]

    def test_a_log_that_other_commits_do_not_extend(self, store: Store) -> None:
        line = saved(store, "a", "x")
        for n in range(5):
            line.position = store.commit(commit("a", line.at, appends=[run(str(n), log=2, start=n)]))
        line.save("y")
        assert texts_of(store, line.span(), Span(line.number, 2, 0, 5, 2, 6)) == [["x", "y"], list("01234")]

    def test_a_log_may_start_anywhere(self, store: Store) -> None:
        position = store.commit(commit("a", appends=[run("x", "y", log=3, start=40)]))
        assert texts_of(store, Span(position.thread, 3, 40, 2, 1, 1)) == [["x", "y"]]

    def test_empty_cells_and_equal_cells(self, store: Store) -> None:
        if store.encoding == "text":
            pytest.skip("an empty text is not a valid value")
        position = store.commit(commit("a", appends=[Append(log=1, start=0, cells=(b"", b"\0", b"", b"\0"))]))
        assert store.cells([Span(position.thread, 1, 0, 4, 1, 1)])[0].cells == [b"", b"\0", b"", b"\0"]

    def test_many_cells_in_one_commit(self, store: Store) -> None:
        texts = [f"message {n}" for n in range(5_000)]
        line = Line(store, "a")
        line.save(*texts)
        assert texts_of(store, line.span(), line.span(4_000, 2)) == [texts, texts[4_000:4_002]]

    def test_big_cells(self, store: Store) -> None:
        cells = (noise(store, 2**20), cell("x" * 2**20), cell("small"), noise(store, 2**20, "other"))
        position = store.commit(commit("a", appends=[Append(log=1, start=0, cells=cells)]))
        whole, small = store.cells([Span(position.thread, 1, 0, 4, 1, 1), Span(position.thread, 1, 2, 1, 1, 1)])
        assert whole.cells == list(cells)
        assert small.cells == [cell("small")]

    # -- refs -------------------------------------------------------------------------------------------------------

    def test_cells_with_refs(self, store: Store) -> None:
        line = Line(store, "a")
        line.save("x", "y", "z", cell_refs=[NODE, NO_REFS, LEAF])
        whole, part = store.cells([line.span(), line.span(2, 1)])
        assert whole.refs == [NODE, NO_REFS, LEAF]
        assert (part.cells, part.refs) == ([cell("z")], [LEAF])

    def test_refs_of_several_commits(self, store: Store) -> None:
        line = Line(store, "a")
        line.save("x", "y", cell_refs=[NODE, LEAF])
        line.save("z", cell_refs=[LEAF])
        whole, part = store.cells([line.span(), line.span(1, 2)])
        assert whole.refs == [NODE, LEAF, LEAF]
        assert part.refs == [LEAF, LEAF]

    def test_a_span_over_cells_with_and_without_refs_has_an_entry_for_each(self, store: Store) -> None:
        line = Line(store, "a")
        line.save("v", "w")
        line.save("x", cell_refs=[NODE])
        line.save("y")
        whole, bare = store.cells([line.span(), line.span(0, 2)])
        assert whole.refs == [NO_REFS, NO_REFS, NODE, NO_REFS]
        assert bare.refs == []

    def test_refs_for_only_some_cells_of_an_append_are_rejected(self, store: Store) -> None:
        with pytest.raises(InvalidArgument):
            store.commit(commit("a", appends=[run("x", "y", refs=[NODE])]))
        assert thread_named(store, "a") is None

    # -- missing cells ----------------------------------------------------------------------------------------------

    def test_missing_cells_raise_damaged(self, store: Store) -> None:
        line = saved(store, "a", "x y", "z")
        for missing in [
            Span(line.number, 1, 0, 4, 1, 2),
            Span(line.number, 1, 3, 1, 2, 2),
            Span(line.number, 1, 3, 1, 3, 3),
            Span(line.number, 2, 0, 1, 1, 1),
            Span(line.number + 100, 1, 0, 1, 1, 1),
            Span(0, 1, 0, 1, 1, 1),
        ]:
            with pytest.raises(Damaged):
                store.cells([missing])
            with pytest.raises(Damaged):
                store.cells([line.span(), missing])
        assert texts_of(store, line.span()) == [["x", "y", "z"]]

    def test_a_gap_in_a_log_raises_damaged(self, store: Store) -> None:
        line = saved(store, "a", "x", "y", "z")
        store.sweep(line.number, line.live(line.span(0, 1), line.span(2, 1)))
        with pytest.raises(Damaged):
            store.cells([line.span()])
        assert texts_of(store, line.span(0, 1), line.span(2, 1)) == [["x"], ["z"]]
