"""An import is started again: after it was killed, after it was done, after the source or the store went on."""

from __future__ import annotations

import gc
import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

import holdfast
from holdfast import Holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.importers import Report, import_from
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.children import die_at
from tests.importers.conftest import Origin
from tests.importers.sources import THREADS, config, edit, play, tuples
from tests.waiting import DEADLINE

KIND = "langgraph-sqlite"


def rows(hf: Holdfast) -> dict[str, int]:
    """How many checkpoints each thread of the store has."""
    return {row.name: sum(1 for _ in hf.thread(row.name).history()) for row in hf.threads()}


def import_until(source: str, store: str, commit: int) -> None:
    with holdfast.open(store) as hf:
        die_at(hf, commit)
        import_from(hf, KIND, source)


@pytest.mark.parametrize("commit", [1, 2, 9, 16])
def test_killed_it_goes_on(small: Path, tmp_path: Path, commit: int) -> None:
    store = tmp_path / "agent.db"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=import_until, args=(str(small), str(store), commit))
    child.start()
    child.join(DEADLINE)
    assert child.exitcode == -9

    with holdfast.open(store) as hf:
        before = sum(rows(hf).values())
        report = import_from(hf, KIND, str(small))

        assert before == commit - 1
        assert report.ok
        assert report.present == before
        with SqliteSaver.from_conn_string(str(small)) as theirs:
            for thread in ("chat", "sends", "asks"):
                assert tuples(HoldfastSaver(hf), thread) == tuples(theirs, thread)
        assert sum(rows(hf).values()) == report.present + report.checkpoints


def test_a_store_that_fails_ends_it_and_it_goes_on(small: Path, hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = hf.context.store
    commit, left = store.commit, iter(range(5))

    def fail(*args: Any, **options: Any) -> Any:
        next(left)
        return commit(*args, **options)

    monkeypatch.setattr(store, "commit", fail)
    with pytest.raises(StopIteration):
        import_from(hf, KIND, str(small))
    monkeypatch.undo()
    assert import_from(hf, KIND, str(small)).present == 5


def test_twice_imports_once(source: Path, hf: Holdfast) -> None:
    first = import_from(hf, KIND, str(source))
    before = rows(hf)

    again = import_from(hf, KIND, str(source))

    assert again == Report(
        dry_run=False,
        threads=first.threads,
        checkpoints=0,
        writes=0,
        present=first.checkpoints,
        checked=first.checkpoints,
        skipped=(),
        differing=(),
        remarks=(),
        untold=0,
    )
    assert rows(hf) == before


def test_a_checkpoint_is_one_row_with_its_writes(source: Path, hf: Holdfast) -> None:
    report = import_from(hf, KIND, str(source))
    assert sum(rows(hf).values()) == report.checkpoints
    with closing(sqlite3.connect(source)) as connection:
        [(writes,)] = connection.execute("SELECT count(*) FROM writes")
    assert report.writes == writes


def test_a_dry_run_writes_nothing_and_tells_what_an_import_does(small: Path, hf: Holdfast) -> None:
    told = import_from(hf, KIND, str(small), dry_run=True)
    assert rows(hf) == {}
    assert import_from(None, KIND, str(small), dry_run=True) == told

    done = import_from(hf, KIND, str(small))

    assert told.dry_run
    assert told.checked == 0
    assert (told.threads, told.checkpoints, told.writes) == (done.threads, done.checkpoints, done.writes)
    after = import_from(hf, KIND, str(small), dry_run=True)
    assert (after.checkpoints, after.writes, after.present) == (0, 0, done.checkpoints)


def test_progress_goes_up_to_the_end(small: Path, hf: Holdfast) -> None:
    told: list[tuple[str, int, int]] = []
    report = import_from(hf, KIND, str(small), progress=lambda what, done, of: told.append((what, done, of)))
    assert [done for _, done, _ in told] == [*range(1, 2 * report.checkpoints + 1)]
    assert {of for _, _, of in told} == {2 * report.checkpoints}
    assert {what for what, _, _ in told} == {"importing", "checking"}


def test_ended_by_a_person_it_goes_on(origin: Origin, hf: Holdfast) -> None:
    def end(what: str, done: int, of: int) -> None:
        if done == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_from(hf, origin.kind, origin.source, progress=end)
    gc.collect()  # nothing is left open that would complain
    report = origin.import_to(hf)
    assert report.ok
    assert 0 < report.present < report.checked


def test_what_the_source_has_since_then_is_added(small: Path, hf: Holdfast) -> None:
    first = import_from(hf, KIND, str(small))
    with SqliteSaver.from_conn_string(str(small)) as theirs:
        graphs.chat(theirs).invoke({"messages": [HumanMessage("more", id="m")]}, config("chat"))
        graphs.asking(theirs).invoke(Command(resume="again"), config("asks"))  # writes to a checkpoint that was moved
        expected = {thread: tuples(theirs, thread) for thread in ("chat", "asks")}

        second = import_from(hf, KIND, str(small))

    assert second.ok
    assert second.present == first.checkpoints
    assert second.checkpoints > 0
    assert {thread: tuples(HoldfastSaver(hf), thread) for thread in expected} == expected
    assert import_from(hf, KIND, str(small)).writes == 0


def test_a_thread_that_went_on_here_is_left_alone(small: Path, hf: Holdfast) -> None:
    import_from(hf, KIND, str(small))
    ours = HoldfastSaver(hf)
    graphs.chat(ours).invoke({"messages": [HumanMessage("here", id="h")]}, config("chat"))
    graphs.asking(ours).invoke(Command(resume="here"), config("asks"))
    before = {thread: tuples(ours, thread) for thread in ("chat", "asks")}

    assert import_from(hf, KIND, str(small)).ok
    assert {thread: tuples(HoldfastSaver(hf), thread) for thread in before} == before

    with SqliteSaver.from_conn_string(str(small)) as theirs:
        graphs.chat(theirs).invoke({"messages": [HumanMessage("there", id="t")]}, config("chat"))
    report = import_from(hf, KIND, str(small))

    assert not report.ok
    assert {each.thread for each in report.skipped} == {"chat"}
    assert all("was continued in this store" in each.reason for each in report.skipped)
    assert {thread: tuples(HoldfastSaver(hf), thread) for thread in before} == before


def test_a_thread_of_that_name_that_is_something_else_is_left_alone(small: Path, hf: Holdfast) -> None:
    hf.thread("chat").save({"mine": 1})

    report = import_from(hf, KIND, str(small))

    [skipped] = report.skipped
    assert (skipped.thread, skipped.item) == ("chat", None)
    assert "was not written by LangGraph" in skipped.reason
    assert hf.thread("chat").load("@-1").state == {"mine": 1}
    assert report.threads == 3
    assert {row.name for row in hf.threads()} == {"chat", "sends", "asks"}


def test_a_circle_of_parents_ends(small: Path, hf: Holdfast) -> None:
    edit(
        small,
        "UPDATE checkpoints SET parent_checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints c "
        "WHERE c.thread_id = 'chat') WHERE thread_id = 'chat' AND parent_checkpoint_id IS NULL",
    )
    assert import_from(hf, KIND, str(small)).ok
    with SqliteSaver.from_conn_string(str(small)) as theirs:
        assert tuples(HoldfastSaver(hf), "chat") == tuples(theirs, "chat")


def test_writes_that_came_before_their_checkpoint(small: Path, hf: Holdfast) -> None:
    """A run was saving when it was killed: the writes are there, and the checkpoint comes later."""
    with SqliteSaver.from_conn_string(str(small)) as theirs:
        expected = tuples(theirs, "chat")
    with closing(sqlite3.connect(small)) as connection:
        latest = "checkpoint_id = (SELECT max(checkpoint_id) FROM writes WHERE thread_id = 'chat')"
        kept = connection.execute(f"SELECT * FROM checkpoints WHERE thread_id = 'chat' AND {latest}").fetchall()  # noqa: S608
        connection.execute(f"DELETE FROM checkpoints WHERE thread_id = 'chat' AND {latest}")  # noqa: S608
        connection.commit()
    [lost] = [row[2] for row in kept]

    first = import_from(hf, KIND, str(small))
    again = import_from(hf, KIND, str(small))

    assert first.ok
    assert (again.ok, again.writes) == (True, 0)
    edit(small, "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", *kept[0])
    assert import_from(hf, KIND, str(small)).checkpoints == 1
    assert tuples(HoldfastSaver(hf), "chat") == expected
    assert any(each.checkpoint["id"] == lost and each.pending_writes for each in expected)


def test_every_thread_is_there(source: Path, hf: Holdfast) -> None:
    import_from(hf, KIND, str(source))
    names = {row.name for row in hf.threads()}
    assert {name.replace("%", "%25").replace("#", "%23") for name in THREADS} <= names
    assert "sub%23graph%25#inner" in names


def test_only_what_is_missing_of_a_played_thread(small: Path, hf: Holdfast) -> None:
    import_from(hf, KIND, str(small))
    with SqliteSaver.from_conn_string(str(small)) as theirs:
        play(theirs, "files")
    report = import_from(hf, KIND, str(small))
    assert report.ok
    assert report.checkpoints == rows(hf)["files"]
