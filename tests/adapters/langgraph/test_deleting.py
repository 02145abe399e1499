"""Deleting threads, and what single runs left behind."""

from __future__ import annotations

from collections.abc import Callable

from tests.adapters.langgraph.faces import Face, checkpoint_id, config, id_of, numbers

Another = Callable[[], Face]


def test_a_deleted_thread_is_gone_with_all_namespaces_and_writes(saver: Face, another: Another) -> None:
    for ns in ("", "child:1", "child:1|grand:2"):
        saver.put(1, {"a": 1}, ns=ns)
        saver.put(2, {"a": 2}, parent=1, ns=ns)
        saver.write(2, [("a", 3)], ns=ns)
    saver.write(9, [("a", "early")], ns="waiting")
    saver.put(1, {"a": "kept"}, thread="u")

    saver.delete_thread("t")

    for reading in (saver, another()):
        assert reading.get_raw(config()) is None
        assert reading.get_raw(config(number=2)) is None
        assert reading.list(config(ns=None)) == []
        assert numbers(reading.list(None)) == [1]
        assert reading.values(thread="u") == {"a": "kept"}


def test_a_deleted_thread_may_begin_anew_and_knows_nothing_of_before(saver: Face, another: Another) -> None:
    saver.put(1, {"a": "old"})
    saver.write(1, [("a", "old")])
    saver.write(2, [("a", "old")])
    saver.get()
    saver.delete_thread("t")

    saver.put(1, {}, versions={"a": 1}, new={})
    saver.put(2, {"b": 2}, parent=1)

    for reading in (saver, another()):
        assert reading.values(1) == {}
        assert reading.writes(1) == []
        assert reading.writes(2) == []
        assert numbers(reading.list(config())) == [2, 1]


def test_a_thread_that_another_process_deleted_may_begin_anew(saver: Face, another: Another) -> None:
    saver.put(1, {"a": "old"})
    another().delete_thread("t")

    assert saver.get_raw(config()) is None
    saver.put(2, {"a": "new"})

    assert numbers(saver.list(config())) == [2]
    assert another().values() == {"a": "new"}


def test_deleting_what_is_not_there_does_nothing(saver: Face) -> None:
    saver.put(1)

    saver.delete_thread("nobody")

    assert numbers(saver.list(None)) == [1]


def runs(saver: Face) -> None:
    for thread in ("t", "u"):
        for ns in ("", "child:1"):
            for number in range(1, 7):
                run = f"run-{(number + 1) // 2}"
                saver.put(
                    number,
                    {"a": list(range(number))},
                    parent=number - 1 or None,
                    thread=thread,
                    ns=ns,
                    metadata={"run_id": run if thread == "t" else f"other-{run}"},
                )
                saver.write(number, [("a", number)], thread=thread, ns=ns)


def test_the_checkpoints_of_a_run_go_in_all_namespaces(saver: Face, another: Another) -> None:
    runs(saver)

    saver.delete_for_runs(["run-3", "other-run-1"])

    for reading in (saver, another()):
        for ns in ("", "child:1"):
            assert numbers(reading.list(config("t", ns))) == [4, 3, 2, 1]
            assert numbers(reading.list(config("u", ns))) == [6, 5, 4, 3]
            assert reading.values(ns=ns) == {"a": [0, 1, 2, 3]}
            assert reading.writes(ns=ns) == [("task", "a", 4)]
            assert reading.values(thread="u", ns=ns) == {"a": [0, 1, 2, 3, 4, 5]}
            assert reading.get_raw(config("t", ns, 6)) is None
            assert reading.get_raw(config("u", ns, 1)) is None


def test_the_run_in_the_middle_may_go(saver: Face, another: Another) -> None:
    runs(saver)

    saver.delete_for_runs(["run-2"])

    for reading in (saver, another()):
        assert numbers(reading.list(config())) == [6, 5, 2, 1]
        assert [one.checkpoint["channel_values"]["a"] for one in reading.list(config())] == [
            [0, 1, 2, 3, 4, 5],
            [0, 1, 2, 3, 4],
            [0, 1],
            [0],
        ]
        assert reading.writes(5) == [("task", "a", 5)]


def test_a_value_that_a_later_checkpoint_still_uses_stays(saver: Face, another: Another) -> None:
    saver.put(1, {"a": "used", "b": 1}, metadata={"run_id": "one"})
    both = {"a": saver.get(1).checkpoint["channel_versions"]["a"], "b": 2}
    saver.put(2, {"b": 2}, parent=1, versions=both, new={"b": 2}, metadata={"run_id": "two"})

    saver.delete_for_runs(["one"])

    for reading in (saver, another()):
        assert reading.values() == {"a": "used", "b": 2}


def test_the_work_goes_on_after_its_last_run_was_deleted(saver: Face) -> None:
    runs(saver)
    saver.delete_for_runs(["run-3"])

    saver.put(9, {"a": "new"}, parent=4, metadata={"run_id": "run-4"})

    assert numbers(saver.list(config())) == [9, 4, 3, 2, 1]
    assert id_of(saver.get(9).parent_config) == checkpoint_id(4)
    assert saver.values() == {"a": "new"}


def test_all_runs_of_a_thread_may_go(saver: Face) -> None:
    runs(saver)

    saver.delete_for_runs(["run-1", "run-2", "run-3"])

    assert saver.get_raw(config()) is None
    assert saver.list(config("t", None)) == []
    assert len(saver.list(config("u", None))) == 12
    saver.put(1, {"a": "anew"})
    assert saver.values() == {"a": "anew"}


def test_no_runs_and_unknown_runs_delete_nothing(saver: Face) -> None:
    runs(saver)
    before = len(saver.list(None))

    saver.delete_for_runs([])
    saver.delete_for_runs(["nobody", ""])

    assert len(saver.list(None)) == before
