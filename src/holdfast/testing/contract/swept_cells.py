"""Sweeping, compacting and scrubbing: live cells stay, whatever else is removed."""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.stores.contract import NO_REFS, Live, Refs, Span, Store, Swept
from holdfast.testing.contract.build import Line, commit, everything, run, saved, texts_of
from holdfast.testing.contract.fixtures import ContractBase


def is_gone(store: Store, span: Span) -> bool:
    try:
        store.cells([span])
    except Damaged:
        return True
    return False


class SweepContract(ContractBase):
    def test_dead_segments_are_dropped_and_live_ones_stay(self, store: Store) -> None:
        line = saved(store, "a", "u", "v", "w", "x", "y")
        live = line.live(line.span(1, 1), line.span(3, 1))
        assert store.sweep(line.number, live).dropped == 3
        assert texts_of(store, *live.spans) == [["v"], ["x"]]
        assert all(is_gone(store, line.span(dead, 1)) for dead in (0, 2, 4))
        assert store.sweep(line.number, live).dropped == 0

    def test_a_segment_with_one_live_cell_stays(self, store: Store) -> None:
        line = saved(store, "a", "u v w", "x y z")
        assert store.sweep(line.number, line.live(line.span(2, 2))).dropped == 0
        assert texts_of(store, line.span(2, 2)) == [["w", "x"]]

    def test_commits_after_the_horizon_stay(self, store: Store) -> None:
        line = saved(store, "a", "w", "x", "y", "z")
        assert store.sweep(line.number, line.live(horizon=2)).dropped == 2
        assert texts_of(store, line.span(2, 2)) == [["y", "z"]]
        assert is_gone(store, line.span(0, 1))
        assert is_gone(store, line.span(1, 1))
        assert store.sweep(line.number, line.live(horizon=0)).dropped == 0

    def test_live_spans_that_overlap(self, store: Store) -> None:
        line = saved(store, "a", *"stuvwxyz")
        live = line.live(line.span(1, 4), line.span(2, 1), line.span(2, 3), line.span(6, 1), line.span(1, 4))
        assert store.sweep(line.number, live).dropped == 3
        assert texts_of(store, line.span(1, 4), line.span(6, 1)) == [list("tuvw"), ["y"]]

    def test_logs_are_swept_separately(self, store: Store) -> None:
        first = store.commit(commit("a", appends=[run("x", log=1)]))
        store.commit(commit("a", first, appends=[run("y", log=2)]))
        one, two = Span(first.thread, 1, 0, 1, 1, 1), Span(first.thread, 2, 0, 1, 2, 2)
        assert store.sweep(first.thread, Live((two,), 2)).dropped == 1
        assert texts_of(store, two) == [["y"]]
        assert is_gone(store, one)

    def test_a_live_append_and_a_dead_one_of_the_same_commit(self, store: Store) -> None:
        at = store.commit(commit("a", appends=[run("x", log=1), run("y", log=2)]))
        live = Span(at.thread, 2, 0, 1, 1, 1)
        store.sweep(at.thread, Live((live,), 1))
        assert texts_of(store, live) == [["y"]]

    def test_sweeping_touches_no_checkpoint_and_no_other_thread(self, store: Store) -> None:
        line, other = saved(store, "a", "x", "y"), saved(store, "b", "x", "y")
        before = everything(store)
        assert store.sweep(line.number, line.live()).dropped == 2
        assert everything(store) == before
        assert texts_of(store, other.span()) == [["x", "y"]]

    def test_saving_continues_after_a_sweep(self, store: Store) -> None:
        line = saved(store, "a", "x", "y")
        store.sweep(line.number, line.live())
        line.save("z")
        assert texts_of(store, line.span(2, 1)) == [["z"]]

    # -- compacting -------------------------------------------------------------------------------------------------

    def test_compacting_keeps_every_live_cell_and_its_refs(self, store: Store) -> None:
        line = Line(store, "a")
        refs = [Refs(blobs=(bytes([n]) * 32,)) for n in range(60)]
        for n in range(60):
            line.save(f"{n}", cell_refs=[refs[n]] if n % 3 else ())
        spans = [line.span(), *(line.span(start, 7) for start in range(50))]
        before = [(read.cells, list(read.refs)) for read in store.cells(spans)]
        swept = store.sweep(line.number, line.whole(line.span()))
        assert (swept.damaged, swept.dropped) == (0, 0)
        assert [(read.cells, list(read.refs)) for read in store.cells(spans)] == before
        assert before[0][1] == [refs[n] if n % 3 else NO_REFS for n in range(60)]

    def test_compacting_leaves_out_dead_cells(self, store: Store) -> None:
        line = saved(store, "a", *(f"{n} {n}'" for n in range(40)))
        live = line.whole(line.span(10, 5), line.span(31, 20), line.span(70, 1))
        expected = texts_of(store, *live.spans)
        assert store.sweep(line.number, live).dropped == 80 - 26
        assert texts_of(store, *live.spans) == expected
        assert all(is_gone(store, line.span(dead, 1)) for dead in (0, 9, 15, 30, 51, 69, 71, 79))

    def test_compacting_by_live_spans_that_overlap(self, store: Store) -> None:
        line = saved(store, "a", *(f"{n} {n}' {n}''" for n in range(20)))
        live = line.whole(line.span(1, 31), line.span(4, 2), line.span(7, 20), line.span(20, 15), line.span(50, 1))
        expected = texts_of(store, line.span(1, 34), line.span(50, 1), line.span(30, 5))
        assert store.sweep(line.number, live).dropped == 60 - 35
        assert texts_of(store, line.span(1, 34), line.span(50, 1), line.span(30, 5)) == expected
        assert all(is_gone(store, line.span(dead, 1)) for dead in (0, 35, 49, 51, 59))

    def test_compacting_again_does_nothing(self, store: Store) -> None:
        line = saved(store, "a", *(f"{n} {n}'" for n in range(40)))
        live = line.whole(line.span(10, 5), line.span(31, 20))
        store.sweep(line.number, live)
        assert store.sweep(line.number, live) == Swept()
        assert store.sweep(line.number, live).dropped == 0
        assert texts_of(store, line.span(12, 2)) == [["6", "6'"]]

    def test_compacting_leaves_commits_after_the_horizon_whole(self, store: Store) -> None:
        line = saved(store, "a", *(f"{n}" for n in range(30)))
        assert store.sweep(line.number, line.whole(horizon=20)).dropped == 20
        assert texts_of(store, line.span(20)) == [[f"{n}" for n in range(20, 30)]]
        assert is_gone(store, line.span(19, 1))

    def test_saving_continues_after_compacting(self, store: Store) -> None:
        line = saved(store, "a", *(f"{n}" for n in range(20)))
        store.sweep(line.number, line.whole(line.span()))
        for n in range(20, 40):
            line.save(f"{n}")
        assert texts_of(store, line.span(), line.span(18, 4)) == [
            [f"{n}" for n in range(40)],
            ["18", "19", "20", "21"],
        ]
        store.sweep(line.number, line.whole(line.span()))
        assert texts_of(store, line.span(), line.span(18, 4))[1] == ["18", "19", "20", "21"]
        assert store.sweep(line.number, line.whole()).dropped > 0
        assert is_gone(store, line.span(0, 1))

    def test_a_merged_segment_stays_while_any_of_its_commits_is_after_the_horizon(self, store: Store) -> None:
        line = saved(store, "a", *(f"{n}" for n in range(20)))
        store.sweep(line.number, line.whole(line.span()))
        store.sweep(line.number, line.whole(horizon=10))
        assert texts_of(store, line.span(10)) == [[f"{n}" for n in range(10, 20)]]

    def test_several_logs_are_compacted(self, store: Store) -> None:
        position = store.commit(commit("a", appends=[run("0", log=1), run("0'", log=2)]))
        for n in range(1, 20):
            runs = [run(f"{n}", log=1, start=n), run(f"{n}'", log=2, start=n)]
            position = store.commit(commit("a", position, appends=runs))
        one, two = (Span(position.thread, log, 0, 20, 1, 20) for log in (1, 2))
        expected = texts_of(store, one, two)
        store.sweep(position.thread, Live((one, two), 20, frozenset()))
        assert texts_of(store, one, two) == expected
        assert store.sweep(position.thread, Live((two,), 20, frozenset())).dropped in (0, 20)
        assert texts_of(store, two) == expected[1:]

    def test_compacting_and_reclaiming_touch_no_checkpoint(self, store: Store) -> None:
        line, other = saved(store, "a", *"uvwxyz"), saved(store, "b", "x", "y")
        before = everything(store)
        store.sweep(line.number, line.whole(line.span(3)))
        assert store.reclaim() == ()
        assert everything(store) == before
        assert texts_of(store, line.span(3), other.span()) == [["x", "y", "z"], ["x", "y"]]

    # -- scrubbing --------------------------------------------------------------------------------------------------

    def test_scrubbing_changes_no_existing_data(self, store: Store) -> None:
        line, other, gone = saved(store, "a", *"uvwxyz"), saved(store, "b", "x", "y"), saved(store, "c", "z")
        fork = saved(store, "d")
        fork.save("own", origins=[line.number], bases=[(line.number, 2)])
        store.drop(gone.number)
        store.drop(line.number)
        store.sweep(line.number, line.live(line.span(1, 2)))
        before = everything(store)
        for _ in range(2):
            beyond = store.reclaim(scrub=True)
            assert all(type(each) is str and each for each in beyond)
            assert everything(store) == before
            assert texts_of(store, line.span(1, 2), other.span()) == [["v", "w"], ["x", "y"]]
            assert store.forks(line.number) == [fork.number]
        assert is_gone(store, line.span(0, 1))
        assert list(store.check()) == []
        other.save("z")
        assert texts_of(store, other.span()) == [["x", "y", "z"]]

    def test_maintenance_of_a_dropped_thread(self, store: Store) -> None:
        line = saved(store, "a", "x")
        store.drop(line.number)
        for live in (line.live(), line.whole()):
            assert store.sweep(line.number, live) == Swept()
